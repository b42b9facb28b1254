"""The search: starting trees in, the best tree and model out.

A search is a plan (:mod:`mltree.search.stages`) worked off in steps.  A step is one launch's
worth of work (a smoothing, a model optimisation, one SPR round over all trees) and turns one
:class:`SearchState` into the next, so that a checkpoint between any two steps is enough to go on
with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltree.errors import InputError
from mltree.events import (
    Emit,
    ModelOptimised,
    PhaseStarted,
    RoundDone,
    SearchFinished,
    SearchResumed,
    StartTree,
    TreePerturbed,
    TreesCulled,
    ignore,
)
from mltree.model.grammar import format_model
from mltree.model.substitution import Model
from mltree.search.alternation import alternate
from mltree.search.checkpoint import Checkpoint
from mltree.search.constraint import Constraint
from mltree.search.culling import survivors
from mltree.search.lineage import Lineage, best_of
from mltree.search.model_optimiser import Fit, optimise_models, with_other_rates
from mltree.search.perturbation import fallen_back, next_fraction, perturbed_copies
from mltree.search.pool import Pool
from mltree.search.scoring import SearchLikelihood
from mltree.search.spr import spr_round
from mltree.search.stages import (
    Cull,
    Finish,
    OptimiseModel,
    Perturb,
    Rearrange,
    Smooth,
    plan,
)
from mltree.search.state import SearchState
from mltree.settings import PhaseSettings, SearchSettings
from mltree.tree.topology import Tree

__all__ = ["SearchResult", "StartingTree", "search"]


@dataclass(frozen=True)
class StartingTree:
    """Where a lineage begins."""

    tree: Tree
    origin: str
    """``parsimony 1``, ``random 2``, ``user 1``."""


@dataclass(frozen=True)
class SearchResult:
    """The best tree found, under the optimised model."""

    tree: Tree
    model: Model
    lnl: float
    """Natural log."""
    pool: Pool
    """The distinct best trees of the search, lnLs as of when they were found."""
    rounds: int
    candidates: int
    moves: int


def search(
    likelihood: SearchLikelihood,
    starts: Sequence[StartingTree],
    model: Model,
    settings: SearchSettings,
    rng: np.random.Generator,
    emit: Emit = ignore,
    checkpoint: Checkpoint | None = None,
    constraint: Constraint | None = None,
) -> SearchResult:
    """Search from all starts side by side; the trees given are not changed.

    Raises:
        InputError: a start violates the constraint, or the checkpoint belongs to another search.
    """
    for start in starts if constraint is not None else ():
        if constraint is not None and not constraint.satisfied(start.tree):
            raise InputError(f"starting tree {start.origin} does not fit the constraint tree")
    state = checkpoint.load(model) if checkpoint is not None else None
    if state is None:
        state = SearchState(
            lineages=[Lineage(start.tree.copy(), -np.inf, start.origin) for start in starts],
            model=model,
            rng=rng,
            pool=Pool(settings.pool),
            fraction=settings.perturbation.fraction,
        )
    elif checkpoint is not None:
        emit(SearchResumed(str(checkpoint.path), state.rounds, best_of(state.lineages).lnl))
    return _Search(likelihood, settings, state, emit, constraint).run(checkpoint)


class _Search:
    """One search under way."""

    def __init__(
        self,
        likelihood: SearchLikelihood,
        settings: SearchSettings,
        state: SearchState,
        emit: Emit,
        constraint: Constraint | None,
    ) -> None:
        self._likelihood = likelihood
        self._settings = settings
        self._state = state
        self._emit = emit
        self._constraint = constraint
        self._plan = plan(settings)

    def run(self, checkpoint: Checkpoint | None) -> SearchResult:
        """Work off the plan."""
        state = self._state
        while state.stage < len(self._plan):
            if checkpoint is not None:
                checkpoint.step(state, self._emit)
            if self._step():
                state.stage += 1
                state.entered = False
            else:
                state.entered = True
        if checkpoint is not None:
            checkpoint.step(state, self._emit, is_last=True)
        best = best_of(state.lineages)
        self._emit(SearchFinished(best.lnl, state.rounds, state.candidates, state.moves))
        return SearchResult(
            best.tree,
            state.model,
            best.lnl,
            state.pool,
            state.rounds,
            state.candidates,
            state.moves,
        )

    def _step(self) -> bool:
        """One step of the current stage; True when the stage is over."""
        stage = self._plan[self._state.stage]
        if isinstance(stage, Smooth):
            return self._smooth_starts(stage.epsilon)
        if isinstance(stage, OptimiseModel):
            return self._optimise_model(stage.afresh)
        if isinstance(stage, Rearrange):
            return self._rearrange(stage.phase)
        if isinstance(stage, Cull):
            return self._cull()
        if isinstance(stage, Perturb):
            return self._perturb()
        assert isinstance(stage, Finish)
        return self._finish()

    def _smooth_starts(self, epsilon: float) -> bool:
        first = self._state.stage == 0
        self._smooth(self._state.lineages, epsilon)
        for lineage in self._state.lineages if first else ():
            self._emit(StartTree(lineage.origin, lineage.lnl))
        return True

    def _smooth(self, lineages: Sequence[Lineage], epsilon: float) -> None:
        trees = [lineage.tree for lineage in lineages]
        models = [self._state.model.arrays()] * len(trees)
        lnls = self._likelihood.smooth(trees, models, epsilon)
        for lineage, lnl in zip(lineages, lnls.tolist(), strict=True):
            lineage.lnl = lnl

    def _optimise_model(self, afresh: bool) -> bool:
        """Model on the best tree; the others' lnLs are stale until they are smoothed."""
        state, settings = self._state, self._settings
        best = best_of(state.lineages)
        models = with_other_rates(state.model) if afresh else [state.model]
        fits = [Fit(best.tree.copy(), model) for model in models]
        optimise_models(
            self._likelihood, fits, settings.model, settings.branches, settings.model.rough_epsilon
        )
        self._adopt(best, max(fits, key=lambda fit: fit.lnl))
        return True

    def _adopt(self, lineage: Lineage, fit: Fit) -> None:
        """A lineage goes on with the tree of a fit, and the search with its model."""
        self._state.model = fit.model
        lineage.tree, lineage.lnl = fit.tree, fit.lnl
        self._emit(ModelOptimised(format_model(fit.model), fit.lnl))

    def _rearrange(self, phase: PhaseSettings) -> bool:
        lineages = self._state.lineages
        if not self._state.entered:
            for lineage in lineages:
                lineage.active, lineage.rounds = True, 0
            number = sum(isinstance(s, Rearrange) for s in self._plan[: self._state.stage + 1])
            self._emit(PhaseStarted(number, phase.radius, phase.cut, len(lineages)))
        return self._round(lineages, phase)

    def _round(self, lineages: Sequence[Lineage], phase: PhaseSettings) -> bool:
        """An SPR round on the active lineages; True when none is active any more."""
        state = self._state
        outcomes = spr_round(
            self._likelihood,
            [lineage for lineage in lineages if lineage.active],
            state.model.arrays(),
            phase,
            self._settings.rounds,
            self._constraint,
        )
        candidates = sum(outcome.candidates for outcome in outcomes)
        moves = sum(outcome.moves for outcome in outcomes)
        state.rounds += 1
        state.candidates += candidates
        state.moves += moves
        self._emit(RoundDone(state.rounds, phase.radius, candidates, moves, state.best.lnl))
        return not any(lineage.active for lineage in lineages)

    def _cull(self) -> bool:
        state = self._state
        for lineage in state.lineages:
            state.pool.add(lineage.tree, lineage.lnl)
        kept = survivors(state.lineages, self._settings)
        if len(state.lineages) > 1:
            self._emit(TreesCulled(len(kept), len(state.lineages) - len(kept)))
        state.lineages = kept
        return True

    def _perturb(self) -> bool:
        """Set up a batch, or do one round on it; True when the search should stop."""
        state, settings = self._state, self._settings.perturbation
        if not state.copies:
            state.lineages = [best_of(state.lineages)]
            state.copies = perturbed_copies(
                state.lineages[0], settings, state.fraction, state.rng, self._constraint
            )
            self._smooth(state.copies, self._settings.rounds.smooth_epsilon)
            return False
        if self._round(state.copies, settings.phase):
            self._accept_copies()
        return not state.copies and state.failures >= settings.patience

    def _accept_copies(self) -> None:
        """Replace the best tree by a better copy, and end the batch."""
        state, settings = self._state, self._settings.perturbation
        best = state.lineages[0]
        for copy in state.copies:
            state.pool.add(copy.tree, copy.lnl)
        fell_back = fallen_back(state.copies, best, settings.min_gain)
        better = [copy for copy in state.copies if copy.lnl > best.lnl + settings.min_gain]
        state.batches += 1
        state.failures = 0 if better else state.failures + 1
        state.fraction = next_fraction(state.fraction, fell_back, settings)
        state.lineages = [best_of([best, *better])]
        self._emit(
            TreePerturbed(state.batches, len(state.copies), len(better), state.lineages[0].lnl)
        )
        state.copies = []

    def _finish(self) -> bool:
        """Model and branches in turn, up to a maximum."""
        state, settings = self._state, self._settings
        best = best_of(state.lineages)
        fits = [Fit(best.tree.copy(), model) for model in with_other_rates(state.model)]
        fits[0].lnl = best.lnl
        state.lineages = [best]
        self._adopt(best, alternate(self._likelihood, fits, settings, self._emit))
        state.pool.add(best.tree, best.lnl)
        return True
