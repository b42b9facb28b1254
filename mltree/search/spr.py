"""Batched SPR rounds: score every move of every tree, apply many at once, keep what helps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from mltree.likelihood.cases import Case
from mltree.search.acceptance import apply_moves, best_moves, better_half
from mltree.search.constraint import Constraint
from mltree.search.explored import Explored
from mltree.search.requests import Steps, smoothed
from mltree.search.scoring import Moves, Rules, scored_moves
from mltree.search.state import Lineage
from mltree.search.trials import Trials, tried_moves
from mltree.settings import PhaseSettings, RoundSettings
from mltree.values import Value

__all__ = ["RoundOutcome", "spr_round"]


class RoundOutcome(Value):
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
    lineages: Sequence[Lineage],
    case: Case,
    phase: PhaseSettings,
    settings: RoundSettings,
    constraint: Constraint | None = None,
    explored: Explored | None = None,
    free_length: float = 0.0,
) -> Steps[list[RoundOutcome]]:
    """One round on all trees; trees and lnLs of the lineages change in place.

    A lineage stays active while its rounds gain enough.  ``explored``: what the search knows, and
    learns from the round.  ``free_length``: trees that differ in branches up to here alone are one.
    """
    explored = Explored() if explored is None else explored
    before = [lineage.lnl for lineage in lineages]
    trees = [lineage.tree for lineage in lineages]
    rules = Rules(phase, settings, constraint)
    scored = yield from scored_moves(
        trees, [case] * len(trees), before, [explored] * len(trees), rules
    )
    rescored = [found.moves for found in scored]
    wanted = [
        best_moves(moves, lnl, settings.min_gain)
        for moves, lnl in zip(rescored, before, strict=True)
    ]
    epsilon, enough = settings.smooth_epsilon, phase.min_round_gain
    if phase.trials:
        epsilon, enough = settings.trial_epsilon, settings.min_gain
        trials = Trials(phase.trials, settings, free_length)
        wanted = yield from _with_trials(lineages, case, rescored, wanted, trials)
    counts = yield from _apply_guarded(lineages, case, wanted, epsilon, constraint)
    lessons = [found.lesson for found in scored]
    counting = [phase.looks_once or count == 0 for count in counts]
    explored.add(lessons, idle=list(compress(lessons, counting)))
    outcomes = []
    for lineage, lnl, count, found in zip(lineages, before, counts, scored, strict=True):
        gain = lineage.lnl - lnl
        lineage.rounds += 1
        lineage.active = count > 0 and gain >= enough and lineage.rounds < settings.max_rounds
        sizes = found.candidates, int(found.moves.prune.size)
        outcomes.append(RoundOutcome(lineage.lnl, gain, count, *sizes))
    return outcomes


def _with_trials(
    lineages: Sequence[Lineage],
    case: Case,
    rescored: Sequence[Moves],
    wanted: Sequence[Moves],
    trials: Trials,
) -> Steps[list[Moves]]:
    """The wanted moves; for a tree without any, the near misses that full smoothing redeems."""
    idle = [n for n, moves in enumerate(wanted) if moves.prune.size == 0]
    near = [lineages[n] for n in idle], case, [rescored[n] for n in idle]
    tried = yield from tried_moves(*near, trials)
    found = dict(zip(idle, tried, strict=True))
    return [found.get(n, moves) for n, moves in enumerate(wanted)]


def _apply_guarded(
    lineages: Sequence[Lineage],
    case: Case,
    wanted: Sequence[Moves],
    epsilon: float,
    constraint: Constraint | None,
) -> Steps[list[int]]:
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
        lnls = yield from smoothed(trees, [case] * len(trees), epsilon)
        failed = {}
        for (n, moves), lnl in zip(applied.items(), lnls, strict=True):
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
