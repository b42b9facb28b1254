"""Where a run computes, and what it finds there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from mltree.data.patterns import Patterns
from mltree.device.layout_choice import KeptLayouts
from mltree.device.parsimony import parsimony_engine
from mltree.device.timing import Breakdown
from mltree.fit.model_optimiser import Fit
from mltree.fit.settings import SearchSettings, preset
from mltree.likelihood.classes import Columns
from mltree.likelihood.likelihood import Likelihood
from mltree.likelihood.site_rates import PerSiteLikelihood
from mltree.models.eigen import ModelArrays
from mltree.models.partitioned import PartitionModel
from mltree.models.rates import rates_for
from mltree.program.cases import Case
from mltree.program.engine import Engine, Result, Room, Weights
from mltree.program.ops.operation import Records, Role, fields
from mltree.program.program import Program
from mltree.runs.demand import Rows
from mltree.runs.engines import (
    JointPlacement,
    Resources,
    can_have_berths,
    place_all,
    plan_berths,
    with_replicates,
)
from mltree.runs.problem import Problem
from mltree.system.arrays import Float64, Int64
from mltree.system.events import Emit, Notice, RunFinished, ignore
from mltree.system.ranks import LONE, Ranks, current_ranks
from mltree.system.values import Value
from mltree.tree.parsimony import ParsimonyEngine
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree
from mltree.treesearch.replicates import PatternSlots, Replicates, ReplicateSlots, WeightRows
from mltree.treesearch.search import SearchOutcome

# Patterns that have a rate each (+PSR), grouped by it: what was a part is a range of parts.
#
# The patterns of a part that have one rate are a part of their own to the engine, of one category,
# with the part's eigen system and that rate; branch lengths are linked. So kernels know nothing of
# rates of sites: a program is spread over more parts, and patterns are laid out anew, in an engine
# that is opened for it, when their rates have changed.

PROGRAMS_KEPT = 16
"""Programs that are spread once: more than a search repeats in turn."""

Open = Callable[[Sequence[Patterns], Emit], Engine]


class RateGroupEngine:
    """Implements :class:`mltree.program.engine.Engine` over patterns that have a rate each.

    To its client it has the parts and the order of the patterns that it was given. A model's
    categories are the rates that patterns may have.
    """

    def __init__(
        self, open_: Open, groups: Sequence[Patterns], count: int, emit: Emit = ignore
    ) -> None:
        """``open_``: opens an engine of one category; ``count``: rates of every part."""
        self._open, self._groups, self._count = open_, tuple(groups), count
        self._past: list[Breakdown] = []
        self._rows: Weights | None = None
        self.parts = sum(len(patterns.parts) for patterns in groups)
        self._category = _one(groups)
        self._lay_out(emit)

    def _lay_out(self, emit: Emit = ignore) -> Engine:
        grouped, self._order = _grouped(self._groups, self._category, self._count)
        self._programs: dict[int, tuple[Program, Program]] = {}
        self._opened: Engine | None = self._open(grouped, emit)
        if self._rows is not None:
            self.load_weights(self._rows)
        return self._opened

    @property
    def _engine(self) -> Engine:
        """Opened again where it was closed."""
        return self._opened or self._lay_out()

    def group(self, category: Int64) -> None:
        """Take the rate i64[L] of every pattern; models and CLAs are gone then."""
        if not np.array_equal(category, self._category):
            self.close()
            self._category = category

    def close(self) -> None:
        """Give the memory back until there is more to do; models and CLAs are gone then."""
        if (spent := self._spent()) is not None:
            self._past.append(spent)
        self._opened = None
        self._programs = {}

    def _spent(self) -> Breakdown | None:
        known: Callable[[], Breakdown | None] | None = getattr(self._opened, "breakdown", None)
        return None if known is None else known()

    def breakdown(self) -> Breakdown | None:
        """Where the time of all engines so far went; None where they do not know."""
        every = [*self._past, self._spent()]
        known = [spent for spent in every if spent is not None]
        return Breakdown.one_after_the_other(known) if known else None

    @property
    def name(self) -> str:
        """The engine's."""
        return self._engine.name

    @property
    def room(self) -> Room:
        """The engine's."""
        return self._engine.room

    def longest_walk(self, trees: int) -> int:
        """As of the engine."""
        return self._engine.longest_walk(trees)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row a part: each is the rows of its rates, one by one."""
        self._engine.load_models([row for model in models for row in self._one_by_one(model)])

    def _one_by_one(self, model: ModelArrays) -> list[ModelArrays]:
        """A model of one category for each rate; the last for what it has none for."""
        rates = np.append(model.rates, np.repeat(model.rates[-1], self._count))
        one = np.ones(1)
        return [replace(model, rates=rates[n : n + 1], weights=one) for n in range(self._count)]

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L], which outlast the patterns' order."""
        self._rows = rows
        self._engine.load_weights(np.take(rows, self._order, axis=1))

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        grouped = self._engine.site_log_likelihoods(rows)
        lnl = np.empty_like(grouped)
        lnl[:, self._order] = grouped
        return lnl

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`."""
        known = self._programs.pop(id(program), None) or (program, spread(program, self._count))
        self._programs[id(program)] = known
        if len(self._programs) > PROGRAMS_KEPT:
            del self._programs[next(iter(self._programs))]
        return self._engine.run(known[1], lengths, control)


def alike(groups: Sequence[Patterns], count: int) -> list[Patterns]:
    """The patterns as they are held before any rates are known: all in the first group."""
    return _grouped(groups, _one(groups), count)[0]


def _one(groups: Sequence[Patterns]) -> Int64:
    return np.zeros(sum(patterns.n_patterns for patterns in groups), np.int64)


def _grouped(
    groups: Sequence[Patterns], category: Int64, count: int
) -> tuple[list[Patterns], Int64]:
    """The patterns by category, ``count`` parts for each part, and their order."""
    sizes = [patterns.n_patterns for patterns in groups]
    ends = np.cumsum(sizes)
    each = [
        patterns.grouped(own, count)
        for patterns, own in zip(groups, np.split(category, ends[:-1]), strict=True)
    ]
    orders = [order + end - size for (_, order), end, size in zip(each, ends, sizes, strict=True)]
    return [patterns for patterns, _ in each], np.concatenate(orders)


def spread(program: Program, count: int) -> Program:
    """The program with ``count`` parts for every part; those share its branch lengths."""
    return program.changed(partial(_times, count=count))


def _times(records: Records, count: int) -> Records:
    """Records whose parts, matrices and rows of models are ``count`` for each."""
    widened = Role.FIRST_PART, Role.PARTS, Role.MATRIX, Role.MAKES, Role.MODEL
    wide = records.copy()
    for name in fields(records.dtype, *widened):
        wide[name] *= count
    return wide


DEFAULT = preset("default")

ANY_DEVICE = Resources()


class Afterwards(NamedTuple):
    """What is computed where a search was, when that has ended."""

    replicates: int = 0
    """That are searched side by side."""
    rows: Rows = Rows()
    """That supports or tests take."""


NOTHING = Afterwards()


class Computation(Value):
    """Where a run computes: as it was placed, and in fp64 where it reports from."""

    placement: JointPlacement
    likelihood: Likelihood
    all_patterns: Sequence[Patterns]
    """Of all taxa, a data type each: what is reported is scored on them."""
    is_whole: bool
    """Whether it is computed on all taxa: no copies of sequences were left out."""
    asked: tuple[Any, ...]
    """What :func:`open_computation` was."""
    reported: JointPlacement | None = None
    """Where the model is computed that results are reported under, if that is another (+PSR)."""
    others: list[Engine] = field(default_factory=list, compare=False)
    """Engines that computed something of the run beside it."""

    def __reduce__(self) -> tuple[Callable[..., Computation], tuple[Any, ...]]:
        """What another rank is sent, to open its own."""
        return open_computation, self.asked

    @property
    def is_shared(self) -> bool:
        """Whether every rank has a share of the patterns: none of them can compute alone."""
        return any(placement.among.size > 1 for placement in self.placement.each)

    @property
    def is_exact(self) -> bool:
        """Whether what it computes is what is reported."""
        return self.placement.is_exact and self.reported is None

    @cached_property
    def exact(self) -> Likelihood:
        """Of what is reported, opened when needed.

        In fp64, whatever precision was asked for; of all taxa, with the copies of sequences that
        a search went without.
        """
        if self.is_exact and self.is_whole:
            return self.likelihood
        placement = self.reported or self.placement
        return placement.exact(self.all_patterns).likelihood(self.all_patterns)

    def exactly(self, found: Found, emit: Emit) -> Found:
        """With its lnL in fp64, and a notice of the difference where there was another."""
        if self.placement.is_exact or self.reported is not None:
            return found
        lnl = float(self.exact.log_likelihoods([found.tree], [Case(found.model.arrays())])[0])
        emit(Notice(f"scored again in fp64: lnL {lnl:.6f}, {lnl - found.lnl:+.1e} from fp32"))
        return replace(found, lnl=lnl)

    @cached_property
    def parsimony(self) -> ParsimonyEngine:
        """What makes starting trees."""
        return parsimony_engine(self.placement.devices)

    @property
    def engines(self) -> list[Engine]:
        """The engine that it was placed on, the exact one where that is another, and the others."""
        exact = [] if self.is_exact else [self.exact.engine]
        return [self.likelihood.engine, *exact, *self.others]


def open_computation(
    problem: Problem,
    resources: Resources,
    emit: Emit,
    groups: Sequence[Patterns] | None = None,
    settings: SearchSettings = DEFAULT,
    trees: int | None = None,
    kept: KeptLayouts | None = None,
    afterwards: Afterwards = NOTHING,
) -> Computation:
    """Plan where a run computes, show that, and open it.

    groups      patterns of a search without copies; the problem's where None
    trees       that a search will have; None where one is evaluated
    kept        layouts that a search goes on in
    afterwards  what comes when that has ended

    Raises:
        DeviceError: a device cannot be found or used.
    """
    groups, model = groups or problem.groups, problem.model
    bounds = settings.branches.bounds(problem.n_sites)
    is_whole = groups[0].n_tips == len(problem.taxa)
    likelihood: Likelihood
    reported = None
    if not model.has_site_rates:
        placement = _placed(resources, groups, model, bounds, trees, kept, current_ranks())
        if afterwards.replicates:
            placement = with_replicates(placement, groups, afterwards.replicates)
        placement = _with_rows(placement, afterwards.rows)
        placement.show(emit)
        likelihood = placement.likelihood(groups, emit)
    else:
        largest = max(own.stop - own.start for patterns in groups for own in patterns.parts)
        count = rates_for(largest, max(form.most for form in model.site_rates))
        one = [1] * len(groups)
        beside = afterwards.replicates
        most = max(trees or 1, beside) if beside else trees
        placement = place_all(resources, alike(groups, count), one, bounds, most, kept)
        placement = _with_rows(placement, afterwards.rows)
        placement.show(emit)
        engine = RateGroupEngine(placement.open, groups, count, emit)
        likelihood = PerSiteLikelihood(engine, bounds, Columns.of(groups), count)
        reported = _placed(
            resources, problem.groups, model.under_gamma, bounds, kept=placement.kept
        )
    asked = problem, resources, ignore, groups, settings, trees, placement.kept, afterwards
    return Computation(placement, likelihood, problem.groups, is_whole, asked, reported)


def _placed(
    resources: Resources,
    groups: Sequence[Patterns],
    model: PartitionModel,
    bounds: tuple[float, float],
    trees: int | None = None,
    kept: KeptLayouts | None = None,
    among: Ranks = LONE,
) -> JointPlacement:
    """Where these patterns are computed under a model of as many parts."""
    firsts = np.cumsum([0, *(len(patterns.parts) for patterns in groups[:-1])]).tolist()
    widths = [model.categories[first] for first in firsts]
    systems = [model.systems[first] for first in firsts]
    return place_all(resources, groups, widths, bounds, trees, kept, systems, among)


def _with_rows(placement: JointPlacement, rows: Rows) -> JointPlacement:
    """The same, with what supports or tests take afterwards."""
    return JointPlacement(tuple(replace(one, rows=rows) for one in placement.each))


class Found(Value):
    """A run's result."""

    tree: Tree
    """Of all taxa."""
    model: PartitionModel
    """Scalers of mean 1."""
    lnl: float
    """Natural log, as computed on the way; see :meth:`Computation.exactly`."""
    seconds: float
    """Wall time of the search or the optimisation alone."""
    search: SearchOutcome | None = None
    """How it was found, without the copies of sequences; None where the topology was given."""
    per_site: PartitionModel | None = None
    """The model with the rates of sites that it was found under, where they have any (+PSR)."""

    @classmethod
    def of(cls, fit: Fit, seconds: float, search: SearchOutcome | None = None) -> Found:
        """What a tree and a model were brought to."""
        model, factor = fit.model.normalised()
        tree = fit.tree.copy()
        tree.lengths *= factor
        return cls(tree, model, fit.lnl, seconds, search)

    @property
    def mean_tree(self) -> Tree:
        """The tree with one length a branch: where parts have their own, the mean over sites."""
        return self.tree.with_lengths(self.model.mean_lengths(self.tree.lengths))

    @property
    def part_trees(self) -> list[Tree]:
        """The tree with the lengths of each part, where parts have their own."""
        rows = list(self.tree.lengths) if self.tree.lengths.ndim > 1 else []
        return [self.tree.with_lengths(row) for row in rows]

    def event(self, newick: str, files: Sequence[str] = (), support: str = "") -> RunFinished:
        """The result as the last event of a run that wrote these files."""
        return RunFinished(
            lnl=self.lnl,
            model=self.model.text,
            tree=newick,
            tree_length=float(self.mean_tree.lengths.sum()),
            taxa=self.tree.n_tips,
            files=tuple(files),
            seconds=self.seconds,
            support=support,
        )


# What replicates are searched with: berths where there can be any, else rows of weights.


class Resampled(Value):
    """A likelihood, and where replicates' weights are there."""

    likelihood: Likelihood
    slots: ReplicateSlots


def has_berths(computation: Computation, replicates: Replicates) -> bool:
    """Whether replicates have berths: it decides the last bits of their lnL."""
    groups = replicates.distinct.groups
    has_rates = replicates.model.has_site_rates
    return not has_rates and can_have_berths(computation.placement, groups)


@contextmanager
def resampled(
    computation: Computation, replicates: Replicates, numbers: Sequence[int], most: int
) -> Iterator[Resampled]:
    """What these replicates are searched with, ``most`` of them side by side at most.

    With berths the computation's own likelihood gives its memory back; theirs is taken until the
    replicates are done.
    """
    starts = 1 if replicates.given else replicates.settings.parsimony_starts
    if not has_berths(computation, replicates):
        yield _rows(computation.likelihood, replicates, most, starts)
        return
    (patterns,), (placement,) = replicates.distinct.groups, computation.placement.each
    sizes = replicates.resampling.most_patterns(numbers)
    plan = plan_berths(placement, patterns, sizes, most, starts)
    computation.likelihood.close()
    likelihood = plan.open(patterns)
    computation.others.append(likelihood.engine)
    try:
        yield Resampled(likelihood, PatternSlots(plan.count, patterns, plan.sizes))
    finally:
        likelihood.close()


def _rows(likelihood: Likelihood, replicates: Replicates, most: int, starts: int) -> Resampled:
    groups = replicates.distinct.groups
    tree = random_topology(groups[0].n_tips, np.random.default_rng(0))
    tree.lengths = replicates.model.spread(tree.lengths)
    every = [tree] * (starts * most), [Case(replicates.model.arrays())] * (starts * most)
    count = max(1, likelihood.trees_at_once(*every) // starts)
    return Resampled(likelihood, WeightRows(count, sum(own.n_patterns for own in groups)))
