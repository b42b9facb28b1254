"""Which of the re-scored moves are applied, and how a failed batch is cut down."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mltree.search.scoring import Moves
from mltree.tree.moves import apply_sprs
from mltree.tree.topology import Tree

__all__ = ["Allowed", "apply_moves", "best_moves", "better_half"]


class Allowed(Protocol):
    """A rule that trees must satisfy; see :class:`mltree.search.constraint.Constraint`."""

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
