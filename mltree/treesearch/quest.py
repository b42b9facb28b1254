"""A search under way: what it knows, and what every act may do to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from mltree.fit.model_optimiser import Fit, distant_starts, starts_of
from mltree.fit.settings import PerturbationSettings, PhaseSettings, SearchSettings
from mltree.likelihood.requests import Steps, smoothed, topology_keys
from mltree.program.cases import Case
from mltree.system.events import Emit, ModelOptimised, RoundDone, StartTree
from mltree.tree.moves import random_nnis
from mltree.treesearch.checkpoint import Lineage, SearchState, shapes
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.spr import spr_round

# Iterated local search: random interchanges on copies of the best tree.

RESOLVINGS = 3
"""Sweeps over the free edges: no two edges of one sweep share a node."""


def perturbed_copies(
    best: Lineage,
    settings: PerturbationSettings,
    fraction: float,
    rng: np.random.Generator,
    constraint: Constraint | None = None,
) -> list[Lineage]:
    """Copies of a tree with random NNIs on a share of its inner edges; lnLs are not known yet.

    Edges without length are crossed in every copy: that costs nothing, and of the trees on such a
    plateau only some lie one move below a better one (50 taxa x 600 sites, a tree with 8 of 47
    inner edges at the bound and 0.20 lnL short: some copies found that move, none of 32 without
    such crossings; too few draws to tell a rate).

    Under a constraint only edges are crossed that show none of its splits, so that every split
    keeps the edges that show it.
    """
    edges = best.tree.inner_edges
    if constraint is not None:
        edges = edges[~constraint.shown_by(best.tree)[:, edges].any(axis=0)]
    longest = best.tree.lengths.reshape(-1, best.tree.n_edges).max(axis=0)
    free = edges[longest[edges] <= settings.free_length]
    result = []
    for number in range(settings.copies):
        tree = best.tree.copy()
        for _ in range(RESOLVINGS if free.size else 0):
            random_nnis(tree, 1.0, rng, among=free)
        random_nnis(tree, fraction, rng, among=edges)
        result.append(Lineage(tree, -np.inf, f"copy {number + 1}"))
    return result


def fallen_back(copies: list[Lineage], same: list[bool], best: Lineage, min_gain: float) -> int:
    """How many copies returned to the ``same`` tree that they came from, or to one just as good."""
    return sum(
        is_same or abs(copy.lnl - best.lnl) <= min_gain
        for copy, is_same in zip(copies, same, strict=True)
    )


def next_fraction(fraction: float, fell_back: int, settings: PerturbationSettings) -> float:
    """The share of edges of the next batch: larger where most copies fell back."""
    if fell_back > settings.fall_back_share * settings.copies:
        return min(fraction * settings.strengthen, settings.max_fraction)
    return fraction


@dataclass
class Quest:
    """A search under way: its state, and what it goes by."""

    settings: SearchSettings
    state: SearchState
    emit: Emit
    constraint: Constraint | None = None
    weights: int = 0
    """The row of pattern weights that it searches under."""
    first_part: int = 0
    """Where its data begin among the parts of the engine."""

    @property
    def case(self) -> Case:
        """What its trees are computed under now."""
        return Case(self.state.model.arrays(), self.weights, self.first_part)

    def smooth(self, lineages: Sequence[Lineage], epsilon: float) -> Steps[None]:
        """Optimise the branch lengths of some trees."""
        trees = [lineage.tree for lineage in lineages]
        lnls = yield from smoothed(trees, [self.case] * len(trees), epsilon)
        for lineage, lnl in zip(lineages, lnls, strict=True):
            lineage.lnl = lnl

    def round(self, lineages: Sequence[Lineage], phase: PhaseSettings) -> Steps[bool]:
        """An SPR round on the active lineages; True when none is active any more."""
        state = self.state
        active = [lineage for lineage in lineages if lineage.active]
        unfinished = yield from self._unfinished(active)
        if not unfinished:
            return True
        topologies, active = list(unfinished), list(unfinished.values())
        outcomes = yield from spr_round(
            active,
            self.case,
            phase,
            self.settings.rounds,
            self.constraint,
            state.explored,
            self.settings.perturbation.free_length,
        )
        idle = [outcome.moves == 0 for outcome in outcomes]
        state.explored.ended(compress(topologies, idle))
        candidates = sum(outcome.candidates for outcome in outcomes)
        moves = sum(outcome.moves for outcome in outcomes)
        state.rounds += 1
        state.candidates += candidates
        state.moves += moves
        self.emit(RoundDone(state.rounds, phase.radius, candidates, moves, state.best.lnl))
        return not any(lineage.active for lineage in lineages)

    def _unfinished(self, lineages: Sequence[Lineage]) -> Steps[dict[int, Lineage]]:
        """Those from which more may be found, by topology: of equal ones the best.

        The others rest from now on.
        """
        best: dict[int, Lineage] = {}
        trees = [lineage.tree for lineage in lineages]
        keys = (yield from topology_keys(trees, [self.case] * len(trees))) if trees else []
        for lineage, key in zip(lineages, keys, strict=True):
            lineage.active = False
            best[key] = max(best.get(key, lineage), lineage, key=lambda one: one.lnl)
        for lineage, is_over in zip(
            best.values(), self.state.explored.has_ended(list(best)), strict=True
        ):
            lineage.active = not is_over
        return {key: lineage for key, lineage in best.items() if lineage.active}

    def admit(self) -> Steps[bool]:
        """Let the next starts in, unless those before agree; whether any came."""
        state, settings = self.state, self.settings
        epsilon = settings.rounds.smooth_epsilon
        if not state.waiting or self.reached(state.lineages, epsilon) >= settings.agreement:
            return False
        count = settings.starts_at_once
        fresh, state.waiting = state.waiting[:count], state.waiting[count:]
        yield from self.smooth(fresh, epsilon)
        for lineage in fresh:
            lineage.active = True
            self.emit(StartTree(lineage.origin, lineage.lnl))
        state.lineages = [*state.lineages, *fresh]
        state.starts += len(fresh)
        return True

    def reached(self, lineages: Sequence[Lineage], within: float = 0.0) -> int:
        """Starts that led to the best of these trees, or ``within`` so much lnL of it."""
        shaped = list(zip(lineages, self.shapes(lineages), strict=True))
        best, shape = max(shaped, key=lambda pair: pair[0].lnl)
        floor = best.lnl - within
        return sum(one.starts for one, own in shaped if own == shape or one.lnl >= floor)

    def shapes(self, lineages: Sequence[Lineage]) -> list[int]:
        """See :func:`mltree.treesearch.checkpoint.shapes`."""
        return shapes(lineages, self.settings.perturbation.free_length)

    def rivals(self, best: Lineage) -> Steps[list[Lineage]]:
        """Other trees of the search that are near the best one under its model.

        Branch lengths of all of them are brought to a maximum, and those of the best one.
        """
        settings = self.settings
        pooled = [Lineage(entry.tree.copy(), entry.lnl, "pool") for entry in self.state.pool.trees]
        shape, *others = self.shapes([best, *pooled])
        distinct: dict[int, Lineage] = {}
        for own, lineage in zip(others, pooled, strict=True):
            if own != shape:
                distinct.setdefault(own, lineage)
        rivals = list(distinct.values())[: settings.max_survivors - 1]
        yield from self.smooth([best, *rivals], settings.final_smooth_epsilon)
        return [one for one in rivals if one.lnl > best.lnl - settings.cull_margin]

    def adopt(self, lineage: Lineage, fit: Fit) -> None:
        """A lineage goes on with the tree of a fit, and the search with its model."""
        gain = fit.lnl - lineage.lnl
        self.state.model = fit.model
        self.state.explored.forget_ends(idle=gain >= self.settings.rounds.min_gain)
        lineage.tree, lineage.lnl = fit.tree, fit.lnl
        self.emit(ModelOptimised(fit.model.text, fit.lnl))

    def fits(self, lineage: Lineage) -> list[Fit]:
        """The model on a tree, and from the other starts that a model may have."""
        row = self.weights, self.first_part
        return [Fit(lineage.tree.copy(), own, *row) for own in starts_of(self.state.model)]

    def contenders(self, lineage: Lineage) -> list[Fit]:
        """The same, and from afar: lnL has several maxima in branch lengths too."""
        tree, row = lineage.tree, (self.weights, self.first_part)
        distant = [
            Fit(tree.with_lengths(np.full_like(tree.lengths, length)), model, *row)
            for length, model in distant_starts(self.state.model)
        ]
        return [*self.fits(lineage), *distant]
