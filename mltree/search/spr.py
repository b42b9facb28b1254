"""Batched SPR rounds: score every move of every tree, apply many at once, keep what helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from mltree.likelihood.batches import in_batches
from mltree.model.eigen import ModelArrays
from mltree.search.acceptance import apply_moves, best_moves, better_half
from mltree.search.constraint import Constraint
from mltree.search.lineage import Lineage
from mltree.search.neighbourhood import Neighbourhood
from mltree.search.scoring import Float, Moves, SearchLikelihood, rescore, scan, shortlist
from mltree.search.trials import tried_moves
from mltree.settings import PhaseSettings, RoundSettings
from mltree.tree.topology import Tree

__all__ = ["RoundOutcome", "spr_round"]


@dataclass(frozen=True)
class RoundOutcome:
    """What one round did to one tree."""

    lnl: float
    """After the round, natural log."""
    gain: float
    """Rise in lnL; 0 where nothing was applied."""
    moves: int
    """Moves applied and kept."""
    candidates: int
    """Insertions scored."""
    rescored: int
    """Insertions optimised jointly."""


def spr_round(
    likelihood: SearchLikelihood,
    lineages: Sequence[Lineage],
    model: ModelArrays,
    phase: PhaseSettings,
    settings: RoundSettings,
    constraint: Constraint | None = None,
) -> list[RoundOutcome]:
    """One round on all trees; trees and lnLs of the lineages change in place.

    As many are scored side by side as the likelihood is best given. A lineage stays active while
    its rounds gain enough.
    """
    before = [lineage.lnl for lineage in lineages]

    def at_once() -> int:
        return likelihood.trees_at_once(lineages[0].tree)

    def score(batch: slice) -> list[_Scored]:
        return _scored(likelihood, lineages[batch], model, phase, settings, constraint)

    scored = list(chain.from_iterable(in_batches(len(lineages), at_once, score)))
    rescored = [moves for moves, _ in scored]
    wanted = [
        best_moves(moves, lnl, settings.min_gain)
        for moves, lnl in zip(rescored, before, strict=True)
    ]
    epsilon, enough = settings.smooth_epsilon, phase.min_round_gain
    if phase.trials:
        epsilon, enough = settings.trial_epsilon, settings.min_gain
        wanted = _with_trials(likelihood, lineages, model, rescored, wanted, phase, settings)
    counts = _apply_guarded(likelihood, lineages, model, wanted, epsilon, constraint)
    outcomes = []
    for lineage, lnl, count, (moves, candidates) in zip(
        lineages, before, counts, scored, strict=True
    ):
        gain = lineage.lnl - lnl
        lineage.rounds += 1
        lineage.active = count > 0 and gain >= enough and lineage.rounds < settings.max_rounds
        outcomes.append(RoundOutcome(lineage.lnl, gain, count, candidates, moves.prune.size))
    return outcomes


class _Scored(NamedTuple):
    """What was found around one tree."""

    moves: Moves
    """Of the shortlist, re-scored."""
    candidates: int
    """Insertions scored."""


def _scored(
    likelihood: SearchLikelihood,
    lineages: Sequence[Lineage],
    model: ModelArrays,
    phase: PhaseSettings,
    settings: RoundSettings,
    constraint: Constraint | None,
) -> list[_Scored]:
    """The re-scored moves of trees that stand side by side."""
    trees, lnls = [one.tree for one in lineages], [one.lnl for one in lineages]
    models = [model] * len(trees)
    found, s0 = scan(likelihood, trees, models, lnls, phase, settings)
    allowed = _masked(trees, found, s0, constraint)
    floors = [lnl - phase.breadth * settings.window for lnl in lnls]
    selected = shortlist(found, allowed, floors, round(phase.breadth * settings.keep))
    rescored = rescore(likelihood, trees, models, found, selected)
    candidates = np.bincount(found.tree, minlength=len(trees)).tolist()
    return [_Scored(*both) for both in zip(rescored, candidates, strict=True)]


def _masked(
    trees: Sequence[Tree], found: Neighbourhood, s0: Float, constraint: Constraint | None
) -> Float:
    """Scores with -inf for the moves that the constraint forbids."""
    if constraint is None:
        return s0
    forest = found.forest
    prunes = np.split(found.prunes % forest.n_halves, len(trees))
    forbidden = np.concatenate(
        [constraint.forbidden(tree, own) for tree, own in zip(trees, prunes, strict=True)]
    )
    edges = forest.edge[found.target] % forest.n_edges
    return np.where(forbidden[found.side >> 1, edges], -np.inf, s0)


def _with_trials(
    likelihood: SearchLikelihood,
    lineages: Sequence[Lineage],
    model: ModelArrays,
    rescored: Sequence[Moves],
    wanted: Sequence[Moves],
    phase: PhaseSettings,
    settings: RoundSettings,
) -> list[Moves]:
    """The wanted moves; for a tree without any, the near misses that full smoothing redeems."""
    idle = [n for n, moves in enumerate(wanted) if moves.prune.size == 0]
    tried = tried_moves(
        likelihood,
        [lineages[n] for n in idle],
        model,
        [rescored[n] for n in idle],
        phase.trials,
        settings,
    )
    found = dict(zip(idle, tried, strict=True))
    return [found.get(n, moves) for n, moves in enumerate(wanted)]


def _apply_guarded(
    likelihood: SearchLikelihood,
    lineages: Sequence[Lineage],
    model: ModelArrays,
    wanted: Sequence[Moves],
    epsilon: float,
    constraint: Constraint | None,
) -> list[int]:
    """Apply moves and smooth; a tree whose lnL did not rise retries with the better half.

    Returns the number of moves kept for each lineage.
    """
    kept = [0] * len(lineages)
    pending = {n: moves for n, moves in enumerate(wanted) if moves.prune.size}
    before = {n: lineages[n].tree.copy() for n in pending}
    while pending:
        applied = {}
        for n, moves in pending.items():
            applied[n] = apply_moves(lineages[n].tree, moves, constraint)
        trees = [lineages[n].tree for n in pending]
        lnls = likelihood.smooth(trees, [model] * len(trees), epsilon)
        failed = {}
        for (n, moves), lnl in zip(applied.items(), lnls.tolist(), strict=True):
            if moves.prune.size and lnl > lineages[n].lnl:
                lineages[n].lnl = lnl
                kept[n] = int(moves.prune.size)
                continue
            lineages[n].tree.assign(before[n])
            half = better_half(moves)
            if half.prune.size:
                failed[n] = half
        pending = failed
    return kept
