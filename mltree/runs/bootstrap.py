"""The standard bootstrap: replicates searched side by side, kept as they end, until they suffice.

``prepare_bootstrap(load_problem("frogs.phy", "GTR+G4")).run(100, journal)`` is a whole bootstrap. A
replicate is what it is whatever runs beside it, so that a bootstrap goes on where it was stopped,
and more replicates can be added at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mltree.device.layout_choice import KeptLayouts
from mltree.errors import InputError
from mltree.events import Emit, ignore
from mltree.events.trees import ReplicateDone
from mltree.model.parameters import bounds
from mltree.model.partitioned import PartitionModel
from mltree.placement import Resources
from mltree.problem import Problem
from mltree.ranks import ALIKE_HINT, LONE, Ranks, Work
from mltree.runs.computation import Afterwards
from mltree.runs.journal import Entry, Head, Journal
from mltree.runs.resampled import has_berths, resampled
from mltree.runs.run import (
    ANY_DEVICE,
    FIXED_TOPOLOGY,
    Computation,
    TreeSearch,
    evaluate,
    mark,
    open_computation,
    without_copies,
)
from mltree.search.constraint import Constraint
from mltree.search.constraint_tree import read_constraint
from mltree.search.duplicates import Collapsed
from mltree.search.replicates import Replicates
from mltree.search.requests import perform_all
from mltree.settings import SearchSettings
from mltree.supports.bootstop import STEP, Verdict, bootstop
from mltree.supports.table import split_table
from mltree.tree.fitch import pack_sites
from mltree.tree.newick import write_newick
from mltree.tree.newick_clades import read_clades
from mltree.tree.parsimony import REFERENCE, ParsimonyEngine
from mltree.tree.parsimony_spr import parsimony_trees
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["MOST", "Bootstrap", "Outcome", "bootstrap_after", "prepare_bootstrap"]

MOST = 1000
"""Replicates after which autoMRE gives up: RAxML's and RAxML-NG's."""


class Outcome(Value):
    """The replicates of a bootstrap that has ended."""

    count: int
    """Those from 1 up to this one."""
    verdict: Verdict | None
    """Of the last of them that were asked; None where they were too few."""
    seconds: float
    """Wall time in this process."""


class Bootstrap(Value, kw_only=True):
    """A bootstrap that stands ready."""

    problem: Problem
    computation: Computation
    replicates: Replicates

    def __reduce__(self) -> tuple[Callable[..., Bootstrap], tuple[Any, ...]]:
        """What another rank is sent, to compute on its own device."""
        bare = replace(self.replicates, parsimony=REFERENCE)
        return _elsewhere, (self.problem, self.computation, bare)

    @property
    def head(self) -> Head:
        """What its journal must agree with."""
        own = self.replicates
        fingerprint = mark(
            self.problem, own.model, self.computation, own.constraint, own.seed,
            repr(asdict(own.settings)), repr(has_berths(self.computation, own)),
        )  # fmt: skip
        return Head(fingerprint, self.computation.placement.kept)

    def run(
        self,
        wanted: int | None,
        journal: Journal,
        emit: Emit = ignore,
        grown: Callable[[], None] = lambda: None,
        ranks: Ranks = LONE,
    ) -> Outcome:
        """Search for the replicates that the journal lacks.

        wanted  how many there shall be; as many as autoMRE asks for where None
        grown   called whenever there is one more
        Raises: InputError: the journal is another run's, or cannot be written.
        """
        began = time.perf_counter()
        journal.begin(self.head)
        goal = wanted or MOST
        checks = _Checks(journal, self.replicates.seed, goal, wanted is None, emit)
        if self.computation.is_shared:  # the likelihood asks them
            ranks = LONE
        missing = [k for k in range(1, goal + 1) if k not in journal.done]
        if not checks.are_enough() and missing:
            soon = missing[: 2 * STEP] if wanted is None else missing  # a check may end it all
            shares = missing, -(-len(soon) // ranks.size)
            helping = partial(_helping, self, *shares, self.head.fingerprint)
            for number, entry in ranks.deal(missing, partial(self._searched, *shares), helping):
                journal.add(number, entry)
                done = sum(k <= goal for k in journal.done)
                emit(ReplicateDone(number, entry.lnl, done, goal))
                grown()
                if checks.are_enough():
                    break
        verdict = checks.verdict
        count = verdict.replicates if verdict and checks.are_enough() else goal
        return Outcome(count, verdict, time.perf_counter() - began)

    def _searched(
        self, missing: Sequence[int], most: int, numbers: Iterator[int]
    ) -> Iterator[tuple[int, Entry]]:
        """Replicates as they end, some of the missing; so many under way at a time at most."""
        with resampled(self.computation, self.replicates, missing, most) as own:
            searches = self.replicates.searches(numbers, own.spots)
            for _, found in perform_all(own.likelihood, searches, own.spots.count):
                yield found.number, Entry(found.lnl, write_newick(found.tree, self.problem.taxa))


def _elsewhere(problem: Problem, computation: Computation, replicates: Replicates) -> Bootstrap:
    own = replace(replicates, parsimony=computation.parsimony)
    return Bootstrap(problem=problem, computation=computation, replicates=own)


def _helping(
    bootstrap: Bootstrap, missing: Sequence[int], most: int, mark: str
) -> Work[int, tuple[int, Entry]]:
    """How another rank than the first goes through replicates.

    Raises: InputError: it would find something else.
    """
    if bootstrap.head.fingerprint != mark:
        raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
    return partial(bootstrap._searched, missing, most)


@dataclass
class _Checks:
    """Asks whether the replicates are enough, whenever there are so many more without a gap."""

    journal: Journal
    seed: int
    goal: int
    auto: bool
    """Whether the first ones that are enough end it."""
    emit: Emit
    verdict: Verdict | None = None

    def are_enough(self) -> bool:
        """Whether nothing more is wanted; asks what has not been asked."""
        last = min(self.journal.in_order, self.goal) // STEP * STEP
        asked = self.verdict.replicates if self.verdict else 0
        for count in range(asked + STEP if self.auto else max(last, asked + STEP), last + 1, STEP):
            if self.auto and self.verdict and self.verdict.is_converged:
                break
            trees = read_clades(self.journal.newicks(count))
            self.verdict = bootstop(split_table(trees), self.seed)
            self.emit(self.verdict.event)
        return bool(self.auto and self.verdict and self.verdict.is_converged)


def bootstrap_after(
    search: TreeSearch, model: PartitionModel, settings: SearchSettings, seed: int
) -> Bootstrap:
    """The bootstrap of a search's data, under the model that it ended with.

    settings  of a search like a replicate's; see :func:`prepare_bootstrap`
    """
    return _bootstrap(
        search.problem, search.distinct, search.computation, model, search.constraint, seed,
        settings,
    )  # fmt: skip


def prepare_bootstrap(
    problem: Problem,
    settings: SearchSettings,
    resources: Resources = ANY_DEVICE,
    *,
    replicates: int | None = None,
    seed: int = 1,
    tree: Tree | None = None,
    constraint: str | None = None,
    kept: KeptLayouts | None = None,
    emit: Emit = ignore,
) -> Bootstrap:
    """Open an engine for a bootstrap, and fit what its model leaves open.

    settings    of a search like a replicate's, which has its rounds and nothing else
    replicates  that there will be, as far as is known
    tree        of all taxa, on which the model is fitted; one by parsimony where None
    kept        layouts of the journal that the bootstrap goes on from

    Raises:
        InputError: the constraint cannot be used.
        DeviceError: a device cannot be found or used.
    """
    groups = read_constraint(constraint, problem.taxa) if constraint else None
    distinct = without_copies(problem.groups, groups, emit)
    fitting = settings.for_data(len(problem.taxa), problem.n_sites)
    computation = open_computation(
        problem, resources, emit, distinct.groups, fitting, kept=kept,
        afterwards=Afterwards(replicates or 2 * STEP),
    )  # fmt: skip
    model = problem.model
    if not _is_given(problem):
        start = (
            _parsimony_tree(distinct, seed, computation.parsimony)
            if tree is None
            else distinct.reduce_tree(tree)
        )
        exact = computation.placement.is_exact
        found = evaluate(
            computation.likelihood, start, model, emit, optimise_parameters=True,
            optimise_lengths=True, settings=FIXED_TOPOLOGY.for_precision(exact),
        )  # fmt: skip
        model = found.model
    return _bootstrap(problem, distinct, computation, model, groups, seed, settings)


def _bootstrap(
    problem: Problem,
    distinct: Collapsed,
    computation: Computation,
    model: PartitionModel,
    constraint: Constraint | None,
    seed: int,
    settings: SearchSettings,
) -> Bootstrap:
    exact = computation.placement.is_exact
    fitting = settings.for_data(len(problem.taxa), problem.n_sites).for_precision(exact)
    replicates = Replicates(
        distinct, model, fitting, seed, constraint, parsimony=computation.parsimony
    )
    return Bootstrap(problem=problem, computation=computation, replicates=replicates)


def _is_given(problem: Problem) -> bool:
    """Whether the model has all its values, as those of a .bestModel file."""
    parts = [] if problem.data is None else problem.data.parts
    is_scaled = not parts or any(part.scaler is not None for part in parts)
    is_known = not problem.model.has_site_rates
    return is_scaled and is_known and not any(bounds(model) for model in problem.model.models)


def _parsimony_tree(distinct: Collapsed, seed: int, engine: ParsimonyEngine) -> Tree:
    sites, rng = pack_sites(*distinct.groups), np.random.default_rng(seed)
    (tree,) = parsimony_trees(sites, 1, rng, engine=engine)
    return tree
