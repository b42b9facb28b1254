"""Batched SPR rounds: score every move of every tree, apply many at once, keep what helps."""

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
from mltree.treesearch.checkpoint import Lineage
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.explored import Explored
from mltree.treesearch.scoring import Moves, Rules, scored_moves

# Which of the re-scored moves are applied, and how a failed batch is cut down.


class Allowed(Protocol):
    """A rule that trees must satisfy; see :class:`mltree.treesearch.constraint.Constraint`."""

    def satisfied(self, tree: Tree) -> bool:
        """Whether the tree is allowed."""


def best_moves(moves: Moves, lnl: float, min_gain: float) -> Moves:
    """The best target of every prune that gains at least ``min_gain``, best moves first.

    ``lnl`` is that of the tree before any move.
    """
    good = np.flatnonzero(moves.lnl >= lnl + min_gain)
    good = good[np.lexsort((-moves.lnl[good], moves.prune[good]))]
    best = good[np.flatnonzero(np.diff(moves.prune[good], prepend=-1))]
    best = best[np.argsort(-moves.lnl[best], kind="stable")]
    return moves.at(best)


def apply_moves(tree: Tree, moves: Moves, allowed: Allowed | None = None) -> Moves:
    """Apply what the loose rule lets through, in order; returns the moves that were applied.

    Where they are allowed one by one but not together, those that break the rule are left out.
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


def better_half(moves: Moves) -> Moves:
    """The better half of moves sorted by gain; none of a single one."""
    return moves.at(slice(moves.prune.size // 2))


def _applied(tree: Tree, moves: Moves) -> Moves:
    applied, _ = apply_sprs(tree, moves.prune, moves.target, moves.lengths)
    return moves.at(np.flatnonzero(applied))


# Near misses given a second look: whole trees smoothed side by side.
#
# Near the optimum the joint score of three branches undervalues a move by a few tenths of lnL: on
# the 47-taxon set the two moves that improve the tree score -0.32 and -0.17 and end at +0.27 and
# +0.11 once all branches follow.  So when a round finds nothing to apply, its best near misses are
# applied to copies of the tree, one each, and smoothed in one launch.
#
# Where inner branches have no length, the nearest misses by far are those that only put them in
# another order, and end where the tree is: trees that differ so are not tried.


class Trials(NamedTuple):
    """How near misses are tried."""

    limit: int
    """Trees smoothed for a lineage, at most."""
    settings: RoundSettings
    free_length: float = 0.0
    """Inner branches up to here say nothing about the order of their neighbours."""


def tried_moves(
    lineages: Sequence[Lineage], case: Case, rescored: Sequence[Moves], trials: Trials
) -> Steps[list[Moves]]:
    """Of every lineage's near misses the one that gains most once all branches are smoothed.

    What is tried differs from the tree, and from each other, in shape.  Only one move is
    returned, or none: together, two such moves gained less than either (R_Laurasiatherian).
    """
    settings, chosen, trees = trials.settings, [], []
    for lineage, moves in zip(lineages, rescored, strict=True):
        near = best_moves(moves, lineage.lnl, -settings.trial_margin)
        index, moved = yield from _different(lineage.tree, case, near, trials)
        chosen.append(near.at(index))
        trees += moved
    if not trees:
        return chosen
    floors = np.repeat(
        [lineage.lnl + settings.min_gain for lineage in lineages],
        [moves.prune.size for moves in chosen],
    )
    lnls = yield from smoothed(trees, [case] * len(trees), settings.trial_epsilon, floors.tolist())
    ends = np.cumsum([moves.prune.size for moves in chosen])[:-1]
    parts = np.split(np.array(lnls), ends)
    return [
        best_moves(moves._replace(lnl=part), lineage.lnl, settings.min_gain).at(slice(1))
        for lineage, moves, part in zip(lineages, chosen, parts, strict=True)
    ]


def _different(
    tree: Tree, case: Case, moves: Moves, trials: Trials
) -> Steps[tuple[NDArray[np.intp], list[Tree]]]:
    """The first moves that lead to different shapes: their indices, and the trees."""
    limit, free_length = trials.limit, trials.free_length
    seen: dict[int, tuple[int, Tree]] = {}
    every = moves.prune.size
    for first in range(0, every, 2 * limit):
        span = range(first, min(first + 2 * limit, every))
        trees = [_moved(tree, moves, n) for n in span]
        own, *keys = yield from shape_keys([tree, *trees], [case] * (1 + len(trees)), free_length)
        for n, moved, key in zip(span, trees, keys, strict=True):
            if key != own:
                seen.setdefault(key, (n, moved))
        if len(seen) >= limit:
            break
    chosen = list(seen.values())[:limit]
    return np.array([n for n, _ in chosen], dtype=np.intp), [moved for _, moved in chosen]


def _moved(tree: Tree, moves: Moves, n: int) -> Tree:
    """A copy of the tree after the n-th move."""
    moved = tree.copy()
    lengths = SprLengths(*moves.lengths[n])
    spr(moved, int(moves.prune[n]), int(moves.target[n]), lengths)
    return moved


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
