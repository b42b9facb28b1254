"""Many loci, each with a tree and a model of its own, searched side by side in one process.

A locus is what it is whatever runs beside it: its search is that of ``mltree search`` on its
alignment alone, with the same seed. Loci are taken in a few at a time, share launches, and are kept
in a journal as they end, so that a run goes on where it was stopped, whichever loci are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree import __version__
from mltree.alignment.loci import table_of_tips
from mltree.alignment.patterns import Patterns
from mltree.device.discovery import choose_devices, company_pays
from mltree.device.layout import Layout
from mltree.device.layout_choice import KeptLayouts, choose_layout, measured_layouts
from mltree.device.memory import cla_memory
from mltree.device.parsimony import parsimony_engine
from mltree.errors import InputError
from mltree.events import Emit, Event, ignore
from mltree.events.trees import LocusDone
from mltree.likelihood.cases import Case
from mltree.model.grammar import format_model
from mltree.placement import JointPlacement, Resources, place_all
from mltree.problem import Problem
from mltree.ranks import ALIKE_HINT, LONE, Ranks, Work
from mltree.runs.journal import Head
from mltree.runs.locus import LociJournal, Locus, LocusTree, Ready, computable, read_loci
from mltree.runs.run import with_own_lengths, without_copies
from mltree.search.checkpoint import fingerprint
from mltree.search.driver import SearchResult, StartingTree, beginning, search_steps
from mltree.search.duplicates import Collapsed
from mltree.search.quest import Quest
from mltree.search.requests import perform_all
from mltree.settings import SearchSettings
from mltree.starts import Term, starting_trees_of_each, usual_terms
from mltree.tree.newick import write_newick
from mltree.tree.parsimony import ParsimonyEngine

__all__ = ["LociSearch"]

AT_ONCE = 256
"""Loci that are in memory at a time, at most."""

CPU_BYTES, GPU_SHARE = 1 << 25, 0.5
"""Bytes of CLAs of the loci that are searched at a time, a tree each: on a CPU, where more bring
little but memory (120 loci of 20 taxa x 350 sites: 263 MB, and as much time as with half or eight
times as many); and the share of those that a GPU holds, which has work for all."""

SHARES, LEAST_SHARE = 2, 4
"""Of what is left for each of several ranks, the part that one takes next, and loci of the smallest
such share: what they take gets less towards the end, so that all end at about the same time."""

LOCUS_PATTERNS = 512
"""Patterns that layouts are chosen for: the same for all loci, whatever stands beside them."""

_Ended: TypeAlias = tuple[int, str, LocusTree | None] | Event
"""A locus by number and mark, with its tree where it had none; or what is said of one."""


class _Kind(NamedTuple):
    """Loci of one kind are computed by one engine."""

    alphabet: str
    categories: int
    systems: int
    bounds: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class LociSearch:
    """How loci are searched."""

    settings: SearchSettings
    resources: Resources
    seed: int
    starts: Sequence[Term] | None = None
    """As many as a preset has where None."""
    collapse: float | None = None
    """Branches shorter than that are written as polytomies."""
    kept: KeptLayouts | None = None
    """What layouts are chosen by, on every rank; what was measured of the devices where None."""

    def run(
        self,
        loci: Sequence[Locus],
        journal: LociJournal,
        emit: Emit = ignore,
        ranks: Ranks = LONE,
    ) -> list[LocusTree | None]:
        """The tree of every locus, in order; None where it was skipped.

        Raises: InputError: the journal is another run's, or cannot be written.
        """
        kept = measured_layouts(choose_devices(self.resources.device))
        journal.begin(Head(self._mark(), kept))
        assert journal.head is not None, "it has begun"
        search = replace(self, kept=journal.head.layouts)
        found: list[LocusTree | None] = [None] * len(loci)
        done = 0
        among = _Among(search, tuple(loci), frozenset(journal.done), self._mark())
        batches = _batches(len(loci), ranks.size)
        for ended in ranks.deal(batches, among.searched, among.helping):
            if isinstance(ended, Event):
                emit(ended)
                continue
            locus, mark, tree = ended
            if tree is not None:
                journal.add(mark, tree)
            found[locus] = tree = journal.done[mark]
            done += 1
            emit(LocusDone(loci[locus].name, locus + 1, tree.lnl, tree.taxa, done, len(loci)))
        return found

    def _mark(self) -> str:
        devices = choose_devices(self.resources.device)
        return fingerprint(
            __version__, repr(asdict(self.settings)), str(self.seed), str(self.starts),
            str(self.collapse), str(self.resources.mixed), str(self.resources.vw),
            "\n".join(f"{device.platform} {device.name}" for device in devices),
        )  # fmt: skip

    def _searched(self, loci: Sequence[Ready]) -> Iterator[tuple[Ready, LocusTree]]:
        """Loci that are in memory, as they end."""
        groups: dict[_Kind, list[Ready]] = {}
        for locus in loci:
            groups.setdefault(self._kind(locus.problem), []).append(locus)
        for kind, group in groups.items():
            layout = self._layout(kind, group[0].problem.patterns, self.resources)
            for some in _fitting(group, self._bytes(), layout):
                yield from self._side_by_side(kind, some)

    def _kind(self, problem: Problem) -> _Kind:
        bounds = self.settings.branches.bounds(problem.n_sites)
        model = problem.model
        return _Kind(
            problem.patterns.alphabet.name, model.categories[0], model.systems[0], bounds
        )  # fmt: skip

    def _bytes(self) -> int:
        """That the CLAs of loci may take that are searched at a time."""
        devices = choose_devices(self.resources.device)
        if not devices or devices[0].is_cpu:
            return min(self.resources.memory_limit or CPU_BYTES, CPU_BYTES)
        whole = cla_memory(devices[0].handle, self.resources.memory_limit)
        return int(GPU_SHARE * whole) // devices[0].sharers

    def _layout(self, kind: _Kind, patterns: Patterns, own: Resources) -> Layout | None:
        """That of a kind's loci, whichever stand side by side; None on the reference."""
        for device in choose_devices(own.device)[:1]:
            alphabet = patterns.alphabet
            return choose_layout(
                device, alphabet.n_states, alphabet.n_codes, kind.categories, LOCUS_PATTERNS,
                own.mixed, own.vw, self.kept,
            )  # fmt: skip
        return None

    def _side_by_side(
        self, kind: _Kind, loci: Sequence[Ready]
    ) -> Iterator[tuple[Ready, LocusTree]]:
        """Loci of one kind, by one engine."""
        searches = self._prepared(loci)
        patterns = table_of_tips([search.distinct.groups[0] for search in searches])
        placement = self._placed(kind, patterns, self.resources)
        likelihood = placement.likelihood([patterns])
        exact = likelihood
        if not placement.is_exact:
            exactly = self._placed(kind, patterns, placement.each[0].exactly)
            exact = exactly.likelihood([patterns])
        steps = (
            search_steps(search.quest(part, placement.is_exact))
            for part, search in enumerate(searches)
        )
        for part, result in perform_all(likelihood, steps, len(searches)):
            case = Case(result.model.arrays(), first_part=part)
            lnl = result.lnl
            if exact is not likelihood:
                lnl = float(exact.log_likelihoods([result.tree], [case])[0])
            yield loci[part], self._found(searches[part], result, lnl)

    def _placed(self, kind: _Kind, patterns: Patterns, own: Resources) -> JointPlacement:
        """Where some loci are computed: in a layout that does not depend on which they are."""
        if layout := self._layout(kind, patterns, own):
            own = replace(own, vw=layout.vw)
        trees = self.settings.most_trees
        (placement,) = place_all(
            own, [patterns], [kind.categories], kind.bounds, trees, systems=[kind.systems]
        ).each
        layouts = tuple(replace(layout, parted=True) for layout in placement.layouts)
        return JointPlacement((replace(placement, layouts=layouts),))

    @cached_property
    def _parsimony(self) -> ParsimonyEngine:
        return parsimony_engine(choose_devices(self.resources.device))

    def _prepared(self, loci: Sequence[Ready]) -> list[_Prepared]:
        problems = [locus.problem for locus in loci]
        every = [without_copies(problem.groups, None, ignore) for problem in problems]
        settings = [self._settings(problem) for problem in problems]
        terms = [self.starts or usual_terms(own) for own in settings]
        rngs = [np.random.default_rng(self.seed) for _ in loci]
        starts = starting_trees_of_each(terms, every, rngs, self._parsimony)
        return list(map(_Prepared, problems, every, settings, starts, rngs))

    def _settings(self, problem: Problem) -> SearchSettings:
        own = self.settings.for_data(len(problem.taxa), problem.n_sites)
        if not company_pays(choose_devices(self.resources.device), problem.cla_size):
            own = own.one_by_one(all_starts=self.starts is not None)
        return own

    def _found(self, search: _Prepared, result: SearchResult, lnl: float) -> LocusTree:
        problem, tree = search.problem, search.distinct.restore(result.tree)
        return LocusTree(
            taxa=len(problem.taxa),
            sites=problem.n_sites,
            patterns=problem.n_patterns,
            lnl=lnl,
            model=format_model(result.model.lone),
            tree_length=float(tree.lengths.sum()),
            newick=write_newick(tree, problem.taxa, outgroup=[0], collapse=self.collapse),
        )


@dataclass(frozen=True)
class _Among:
    """The loci of a search, as any rank goes through some of them."""

    search: LociSearch
    loci: Sequence[Locus]
    done: frozenset[str]
    """Marks of those that need no search."""
    mark: str
    """What every rank's search must agree with."""

    def helping(self) -> Work[range, _Ended]:
        """The way of another rank than the first.

        Raises: InputError: it would find something else.
        """
        if self.search._mark() != self.mark:
            raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
        return self.searched

    def searched(self, batches: Iterator[range]) -> Iterator[_Ended]:
        """Loci of batches, by their numbers, as they end, and what is said of others."""
        for batch in batches:
            fresh = []
            for locus in read_loci(self.loci, batch):
                if isinstance(locus, Event):
                    yield locus
                elif locus.mark in self.done:
                    yield locus.number, locus.mark, None
                else:
                    fresh.append(locus)
            sound, skipped = computable(fresh)
            yield from skipped
            for locus, tree in self.search._searched(sound):
                yield locus.number, locus.mark, tree


@dataclass(frozen=True)
class _Prepared:
    """A locus about to be searched."""

    problem: Problem
    distinct: Collapsed
    settings: SearchSettings
    starts: Sequence[StartingTree]
    rng: np.random.Generator

    def quest(self, part: int, exact: bool) -> Quest:
        """Its search from the beginning, on a part of the engine."""
        settings, model = self.settings.for_precision(exact), self.problem.model
        starts = [
            StartingTree(with_own_lengths(start.tree, model), start.origin) for start in self.starts
        ]
        state = beginning(starts, model, settings, self.rng)
        return Quest(settings, state, ignore, first_part=part)


def _batches(loci: int, ranks: int) -> Iterator[range]:
    """Loci by their numbers, those that a rank has in memory at a time."""
    first = 0
    while first < loci:
        share = max(LEAST_SHARE, (loci - first) // (SHARES * ranks)) if ranks > 1 else AT_ONCE
        last = min(loci, first + min(AT_ONCE, share))
        yield range(first, last)
        first = last


def _fitting(loci: Sequence[Ready], most: int, layout: Layout | None) -> Iterator[list[Ready]]:
    """Loci whose CLAs, of all patterns and as many as the largest tree has, take no more bytes.

    Of several no more patterns than are summed in the smallest chunks, as those of one are.
    """
    patterns = layout.patterns_in_least_chunks if layout else math.inf
    some: list[Ready] = []
    slots = words = count = 0
    for locus in loci:
        problem = locus.problem
        own = problem.n_patterns * problem.model.categories[0] * problem.patterns.alphabet.n_states
        slots = max(slots, 3 * (len(problem.taxa) - 2))
        words += own
        count += problem.n_patterns
        if some and (8 * slots * words > most or count > patterns):
            yield some
            some, slots = [], 3 * (len(problem.taxa) - 2)
            words, count = own, problem.n_patterns
        some.append(locus)
    if some:
        yield some
