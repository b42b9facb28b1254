"""Where a run computes, and what it finds there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.berths import with_replicates
from mltree.device.demand import Rows
from mltree.device.layout_choice import KeptLayouts
from mltree.device.parsimony import parsimony_engine
from mltree.device.rate_groups import RateGroupEngine, alike
from mltree.events import Emit, Notice, ignore
from mltree.events.run import RunFinished
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.classes import Columns
from mltree.likelihood.engine import Engine
from mltree.likelihood.site_rates import PerSiteLikelihood
from mltree.model.partitioned import PartitionModel
from mltree.model.site_rates import rates_for
from mltree.placement import JointPlacement, Resources, place_all
from mltree.problem import Problem
from mltree.ranks import LONE, Ranks, here
from mltree.search.driver import SearchResult
from mltree.search.model_optimiser import Fit
from mltree.settings import SearchSettings, preset
from mltree.tree.parsimony import ParsimonyEngine
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = [
    "ANY_DEVICE",
    "DEFAULT",
    "NOTHING",
    "Afterwards",
    "Computation",
    "Found",
    "open_computation",
]

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
        placement = _placed(resources, groups, model, bounds, trees, kept, here())
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
    search: SearchResult | None = None
    """How it was found, without the copies of sequences; None where the topology was given."""
    per_site: PartitionModel | None = None
    """The model with the rates of sites that it was found under, where they have any (+PSR)."""

    @classmethod
    def of(cls, fit: Fit, seconds: float, search: SearchResult | None = None) -> Found:
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
