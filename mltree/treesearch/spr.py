"""Batched SPR rounds: score every move of every tree, apply many at once, halve what fails."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.requests import Steps, shape_keys, smoothed
from mltree.program.cases import Case
from mltree.system.values import Value
from mltree.tree.moves import SprLengths, apply_sprs, spr
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.move_cache import MoveCache
from mltree.treesearch.scoring import MoveRules, RescoredMoves, scored_moves


class Allowed(Protocol):
    """A rule that trees must satisfy; see :class:`mltree.treesearch.constraint.Constraint`."""

    def satisfied(self, tree: Tree) -> bool:
        """Return True if the tree is allowed."""


def best_moves(moves: RescoredMoves, lnl: float, min_gain: float) -> RescoredMoves:
    """Select the best target of every prune that gains ``min_gain`` or more, best moves first.

    ``lnl`` is that of the tree before any move.
    """
    good = np.flatnonzero(moves.lnl >= lnl + min_gain)
    good = good[np.lexsort((-moves.lnl[good], moves.prune[good]))]
    best = good[np.flatnonzero(np.diff(moves.prune[good], prepend=-1))]
    best = best[np.argsort(-moves.lnl[best], kind="stable")]
    return moves.at(best)


def apply_moves(tree: Tree, moves: RescoredMoves, allowed: Allowed | None = None) -> RescoredMoves:
    """Apply the moves that the loose rule lets through, in order, and return those.

    Moves that satisfy the constraint one by one but not together are left out.
    """
    if allowed is None:
        return _applied(tree, moves)
    before = tree.copy()
    done = _applied(tree, moves)
    if allowed.satisfied(tree):
        return done
    kept = np.empty(0, dtype=np.intp)
    for move in range(done.prune.size):
        tree.assign(before)
        _applied(tree, done.at(np.append(kept, move)))
        if allowed.satisfied(tree):
            kept = np.append(kept, move)
    tree.assign(before)
    return _applied(tree, done.at(kept))


def better_half(moves: RescoredMoves) -> RescoredMoves:
    """Return the better half of moves sorted by gain; none of a single one."""
    return moves.at(slice(moves.prune.size // 2))


def _applied(tree: Tree, moves: RescoredMoves) -> RescoredMoves:
    applied, _ = apply_sprs(tree, moves.prune, moves.target, moves.lengths)
    return moves.at(np.flatnonzero(applied))


# Fully smoothed candidates: the trees of near misses, smoothed whole and side by side.
#
# Near the optimum the joint score of three branches undervalues a move by a few tenths of lnL: on
# the 47-taxon set the two moves that improve the tree score -0.32 and -0.17 and end at +0.27 and
# +0.11 once all branches follow.  So when a round finds nothing to apply, its best near misses are
# applied to copies of the tree, one each, and smoothed in one launch.
#
# Where inner branches have no length, the nearest misses by far are those that only put them in
# another order, and end where the tree is: trees that differ only so are not smoothed.


class FullSmoothing(NamedTuple):
    """Settings of the full smoothing of candidates."""

    limit: int
    """Trees that are smoothed for a candidate, at most."""
    settings: RoundSettings
    free_length: float = 0.0
    """Inner branches up to here say nothing about the order of their neighbours."""


def fully_smoothed_moves(
    candidates: Sequence[CandidateTree],
    case: Case,
    rescored: Sequence[RescoredMoves],
    smoothing: FullSmoothing,
) -> Steps[list[RescoredMoves]]:
    """Return each candidate's near miss that gains most once all its branches are smoothed.

    The smoothed trees differ from the candidate, and from each other, in shape.  One move is
    returned for each candidate, or none: together, two such moves gained less than either
    (R_Laurasiatherian).
    """
    settings, chosen, trees = smoothing.settings, [], []
    for candidate, moves in zip(candidates, rescored, strict=True):
        near = best_moves(moves, candidate.lnl, -settings.smoothing_margin)
        index, moved = yield from _different(candidate.tree, case, near, smoothing)
        chosen.append(near.at(index))
        trees += moved
    if not trees:
        return chosen
    floors = np.repeat(
        [candidate.lnl + settings.min_gain for candidate in candidates],
        [moves.prune.size for moves in chosen],
    )
    lnls = yield from smoothed(trees, [case] * len(trees), settings.full_epsilon, floors.tolist())
    ends = np.cumsum([moves.prune.size for moves in chosen])[:-1]
    parts = np.split(np.array(lnls), ends)
    return [
        best_moves(moves._replace(lnl=part), candidate.lnl, settings.min_gain).at(slice(1))
        for candidate, moves, part in zip(candidates, chosen, parts, strict=True)
    ]


def _different(
    tree: Tree, case: Case, moves: RescoredMoves, smoothing: FullSmoothing
) -> Steps[tuple[NDArray[np.intp], list[Tree]]]:
    """Select the first moves that lead to different shapes: their indices, and the trees."""
    limit, free_length = smoothing.limit, smoothing.free_length
    seen: dict[int, tuple[int, Tree]] = {}
    every = moves.prune.size
    for first in range(0, every, 2 * limit):
        span = range(first, min(first + 2 * limit, every))
        trees = [_moved(tree, moves, n) for n in span]
        shape, *keys = yield from shape_keys([tree, *trees], [case] * (1 + len(trees)), free_length)
        for n, moved, key in zip(span, trees, keys, strict=True):
            if key != shape:
                seen.setdefault(key, (n, moved))
        if len(seen) >= limit:
            break
    chosen = list(seen.values())[:limit]
    return np.array([n for n, _ in chosen], dtype=np.intp), [moved for _, moved in chosen]


def _moved(tree: Tree, moves: RescoredMoves, n: int) -> Tree:
    """Return a copy of the tree after the n-th move."""
    moved = tree.copy()
    lengths = SprLengths(*moves.lengths[n])
    spr(moved, int(moves.prune[n]), int(moves.target[n]), lengths)
    return moved


class RoundOutcome(Value):
    """The outcome of an SPR round for one candidate tree."""

    lnl: float
    """lnL after the round, natural log."""
    gain: float
    """Rise in lnL; 0 where nothing was applied."""
    moves: int
    """Moves applied and kept."""
    insertions: int
    """Insertions scored."""
    rescored: int
    """Insertions optimised jointly."""


def spr_round(
    candidates: Sequence[CandidateTree],
    case: Case,
    phase: PhaseSettings,
    settings: RoundSettings,
    constraint: Constraint | None = None,
    cache: MoveCache | None = None,
    free_length: float = 0.0,
) -> Steps[list[RoundOutcome]]:
    """Do an SPR round on all candidates; their trees and lnLs change in place.

    A candidate stays active while its rounds gain enough.  ``cache``: read, and added to.
    ``free_length``: trees that differ in branches up to here alone are one.
    """
    cache = MoveCache() if cache is None else cache
    before = [candidate.lnl for candidate in candidates]
    trees = [candidate.tree for candidate in candidates]
    rules = MoveRules(phase, settings, constraint)
    scored = yield from scored_moves(
        trees, [case] * len(trees), before, [cache] * len(trees), rules
    )
    rescored = [around.moves for around in scored]
    better = [
        best_moves(moves, lnl, settings.min_gain)
        for moves, lnl in zip(rescored, before, strict=True)
    ]
    epsilon, least_gain = settings.smooth_epsilon, phase.min_round_gain
    if phase.fully_smoothed:
        epsilon, least_gain = settings.full_epsilon, settings.min_gain
        smoothing = FullSmoothing(phase.fully_smoothed, settings, free_length)
        better = yield from _with_fully_smoothed(candidates, case, rescored, better, smoothing)
    counts = yield from _apply_guarded(candidates, case, better, epsilon, constraint)
    updates = [around.update for around in scored]
    counting = [phase.skips_stalled or count == 0 for count in counts]
    cache.add(updates, stalled=list(compress(updates, counting)))
    outcomes = []
    for candidate, lnl, count, around in zip(candidates, before, counts, scored, strict=True):
        gain = candidate.lnl - lnl
        candidate.rounds += 1
        candidate.active = (
            count > 0 and gain >= least_gain and candidate.rounds < settings.max_rounds
        )
        sizes = around.insertions, int(around.moves.prune.size)
        outcomes.append(RoundOutcome(candidate.lnl, gain, count, *sizes))
    return outcomes


def _with_fully_smoothed(
    candidates: Sequence[CandidateTree],
    case: Case,
    rescored: Sequence[RescoredMoves],
    better: Sequence[RescoredMoves],
    smoothing: FullSmoothing,
) -> Steps[list[RescoredMoves]]:
    """Return the moves; for a tree without any, the near miss that full smoothing redeems."""
    stalled = [n for n, moves in enumerate(better) if moves.prune.size == 0]
    near = [candidates[n] for n in stalled], case, [rescored[n] for n in stalled]
    smoothed_moves = yield from fully_smoothed_moves(*near, smoothing)
    redeemed = dict(zip(stalled, smoothed_moves, strict=True))
    return [redeemed.get(n, moves) for n, moves in enumerate(better)]


def _apply_guarded(
    candidates: Sequence[CandidateTree],
    case: Case,
    better: Sequence[RescoredMoves],
    epsilon: float,
    constraint: Constraint | None,
) -> Steps[list[int]]:
    """Apply moves and smooth; a tree whose lnL did not rise retries with the better half.

    Returns the number of moves kept for each candidate.
    """
    kept = [0] * len(candidates)
    pending = {n: moves for n, moves in enumerate(better) if moves.prune.size}
    before = {n: candidates[n].tree.copy() for n in pending}
    while pending:
        applied = {}
        for n, moves in pending.items():
            applied[n] = apply_moves(candidates[n].tree, moves, constraint)
        trees = [candidates[n].tree for n in pending]
        lnls = yield from smoothed(trees, [case] * len(trees), epsilon)
        failed = {}
        for (n, moves), lnl in zip(applied.items(), lnls, strict=True):
            if moves.prune.size and lnl > candidates[n].lnl:
                candidates[n].lnl = lnl
                kept[n] = int(moves.prune.size)
                continue
            candidates[n].tree.assign(before[n])
            half = better_half(moves)
            if half.prune.size:
                failed[n] = half
        pending = failed
    return kept
