"""The move cache of a search: moves, prunes and topologies that need no second look.

Rounds, starts and perturbed copies meet the same subtrees at the same places over and over. The
cache holds four kinds of keys, each 64 bits of the sets of tips that make a thing up:

* a *rejected move*: a subtree, at an edge of the rest, whose re-scored lnL lay far below the tree;
* a *rejected prune*: a subtree where it stands, its surroundings known to some edges' distance,
  none of whose moves came near the tree's lnL;
* a *stalled prune*: a subtree some of whose moves came near, but none gained; it counts where a
  round found no move, and in the repair of copies, under one model;
* a *converged topology*: one from which a phase found no move.

A key holds for any numbering and any tree of these tips. Parts of the tree beyond a key's sets may
have changed since, and with them the lnL: by a little near the top, which the margins allow for,
and by more on the way there from a start, so that phases which look farther forget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.fit.settings import PhaseSettings
from mltree.system.arrays import Float64, Int32, UInt64, rising
from mltree.tree.topology import Forest, mixed

NOTHING: UInt64 = np.empty(0, np.uint64)

SURROUNDINGS = 3
"""Distance, in edges from a pruned subtree, to which its surroundings have to be the same."""

MOST_KEYS = 1 << 20
"""Keys of a kind that are kept, 8 MB; a search that has met more begins an empty cache."""

_REJECTED, _STALLED, _GAINS = range(3)
"""Outcome of a subtree's moves; a subtree that was not scored counts as one that gains."""

_PRUNED, _HERE = np.uint64(3), np.uint64(5)
"""Odd factors that tell the parts of a key apart."""


class CacheUpdate(NamedTuple):
    """Keys to add to a cache after the moves around a tree were scored."""

    moves: UInt64
    """Keys of rejected moves."""
    prunes: UInt64
    """Keys of rejected prunes."""
    stalled: UInt64 = NOTHING
    """Keys of stalled prunes."""


class RescoredMoves(NamedTuple):
    """Re-scored insertions of one tree, as arrays of equal length."""

    prune: Int32
    """int32[n]: half-edge that faces the pruned subtree."""
    target: Int32
    """int32[n]: half-edge of the target edge, on its proximal side."""
    lnl: Float64
    """float64[n]: lnL of the tree after the move, natural log."""
    lengths: Float64
    """float64[n, 4]: proximal, distal, pendant, merged; [n, 4, parts] if parts have their own."""

    @classmethod
    def of(cls, shares: Sequence[RescoredMoves]) -> RescoredMoves:
        """Concatenate the moves of all shares."""
        some = [moves for moves in shares if moves.prune.size] or shares[:1]
        return cls(*map(np.concatenate, zip(*some, strict=True)))

    def at(self, index: slice | NDArray[np.intp]) -> RescoredMoves:
        """Select moves, in the order of the indices."""
        prune, target, lnl, lengths = self
        return RescoredMoves(prune[index], target[index], lnl[index], lengths[index])


class MoveKeys:
    """Keys of the prunes and moves of trees side by side."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._tips = mixed(forest.tip_sets)
        """uint64[3N of all]: keys of the tips seen across each half-edge from its neighbour."""
        self._prune_keys = self._prunes(forest.inner)

    def open_prunes(self, caches: Sequence[MoveCache]) -> Int32:
        """int32[prunes]: half-edges of subtrees neither rejected nor stalled, rising."""
        prunes, keys = self._forest.inner, self._prune_keys
        for known in ([cache.prunes for cache in caches], [cache.stalled for cache in caches]):
            is_open = ~self._known(prunes, keys, known)
            prunes, keys = prunes[is_open], keys[is_open]
        return prunes

    def open_moves(
        self, caches: Sequence[MoveCache], prunes: Int32, targets: Int32
    ) -> NDArray[np.bool_]:
        """bool[moves]: True for moves that are not rejected."""
        known = [cache.moves for cache in caches]
        return ~self._known(prunes, self._moves(prunes, targets), known)

    def _known(self, halves: Int32, keys: UInt64, known: Sequence[UInt64]) -> NDArray[np.bool_]:
        """bool[keys]: True for keys known of the tree that their half-edge is in."""
        last = {id(of_tree): n for n, of_tree in enumerate(known)}  # of the trees of one search
        searches = np.array([last[id(of_tree)] for of_tree in known], np.int32)
        if len(last) == 1:
            return _among(keys, known[0])
        tree = searches[self._forest.tree_of_half[halves]]
        order = rising(tree, len(known))
        ends = np.searchsorted(tree[order], np.arange(1, len(known)))
        is_known = np.zeros(keys.size, np.bool_)
        for in_tree, of_tree in zip(np.split(order, ends), known, strict=True):
            is_known[in_tree] = _among(keys[in_tree], of_tree)
        return is_known

    def updates(
        self, prunes: Int32, rescored: Sequence[RescoredMoves], floors: Float64, goals: Float64
    ) -> list[CacheUpdate]:
        """Return the keys to add for each tree, whose ``prunes`` were scored.

        floors  f64[trees]: lnL below which a move is rejected
        goals   f64[trees]: lnL from which on it gains
        """
        forest, updates = self._forest, []
        ends = np.searchsorted(forest.inner, forest.first_half[1:])
        inner = np.split(forest.inner, ends)
        keys = np.split(self._prune_keys, ends)
        outcome = np.full(forest.twin.size, _GAINS, np.int8)
        outcome[prunes] = _REJECTED
        for n, moves in enumerate(rescored):
            first, low = forest.first_half[n], moves.lnl < floors[n]
            outcome[first + moves.prune[~low]] = _STALLED
            outcome[first + moves.prune[moves.lnl >= goals[n]]] = _GAINS
            rejected = self._moves(first + moves.prune[low], first + moves.target[low])
            outcomes = outcome[inner[n]]
            kinds = (keys[n][outcomes == kind] for kind in (_REJECTED, _STALLED))
            updates.append(CacheUpdate(rejected, *kinds))
        return updates

    def _prunes(self, prunes: Int32) -> UInt64:
        """uint64[prunes]: keys of subtrees where they stand."""
        around, twin, (left, right) = self._around(), self._forest.twin, self._forest.siblings
        beside = around[twin[left[prunes]]] + around[twin[right[prunes]]]
        return mixed(self._tips[twin[prunes]] * _PRUNED + beside)

    def _moves(self, prunes: Int32, targets: Int32) -> UInt64:
        """uint64[moves]: keys of subtrees at edges; targets are the edges' proximal halves."""
        sets, twin = self._forest.tip_sets, self._forest.twin
        pruned, distal = twin[prunes], twin[targets]
        rest = sets[targets] - sets[pruned]
        return mixed(self._tips[pruned] * _PRUNED + mixed(rest) + self._tips[distal])

    def _around(self) -> UInt64:
        """uint64[3N of all]: keys of the tree across each half-edge, SURROUNDINGS edges deep."""
        one, other = self._forest.behind
        here = self._tips * _HERE
        around = self._tips
        inner = self._forest.inner
        for _ in range(SURROUNDINGS):
            further = here.copy()
            further[inner] += around[one[inner]] + around[other[inner]]
            around = mixed(further)
        return around


@dataclass
class MoveCache:
    """The move cache of one search; its arrays of keys are replaced, not changed in place."""

    moves: UInt64 = field(default_factory=NOTHING.copy)
    """Keys of rejected moves, rising."""
    prunes: UInt64 = field(default_factory=NOTHING.copy)
    """Keys of rejected prunes, rising."""
    stalled: UInt64 = field(default_factory=NOTHING.copy)
    """Keys of stalled prunes, rising."""
    converged: UInt64 = field(default_factory=NOTHING.copy)
    """Keys of converged topologies, rising."""
    reach: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Least radius, cut, breadth and fully smoothed moves of the phases that rejected prunes and
    converged topologies went through."""

    def enter(self, phase: PhaseSettings) -> None:
        """Begin a phase: forget the keys of phases that looked less far.

        Rejected moves are forgotten too: around a better tree some of them help.
        """
        new = (float(phase.radius), phase.cut, phase.breadth, float(phase.fully_smoothed))
        wider = [after > before for after, before in zip(new, self.reach, strict=True)]
        if any(wider):
            self.forget_converged()
        if any(wider[:-1]):
            self.moves = self.prunes = NOTHING
        self.reach = new

    def add(self, updates: Sequence[CacheUpdate], stalled: Sequence[CacheUpdate] = ()) -> None:
        """Add rejected moves and prunes, and the stalled prunes of ``stalled`` updates."""
        self.moves = _joined(self.moves, [one.moves for one in updates])
        self.prunes = _joined(self.prunes, [one.prunes for one in updates])
        self.stalled = _joined(self.stalled, [one.stalled for one in stalled])

    def add_converged(self, topologies: Iterable[int]) -> None:
        """Add topologies from which a phase found no move."""
        self.converged = _joined(self.converged, [np.array(list(topologies), np.uint64)])

    def forget_converged(self, *, stalled: bool = True) -> None:
        """Forget the converged topologies, and with ``stalled`` the stalled prunes."""
        self.converged = NOTHING
        if stalled:
            self.stalled = NOTHING

    def has_converged(self, topologies: Sequence[int]) -> list[bool]:
        """bool[topologies]: True for converged ones."""
        is_known: list[bool] = _among(np.array(topologies, np.uint64), self.converged).tolist()
        return is_known


def _among(keys: UInt64, known: UInt64) -> NDArray[np.bool_]:
    """bool[keys]: True for keys among the known ones, which rise."""
    # Among many, keys in order are found in half the time: each near the one before.
    order = np.argsort(keys) if known.size > keys.size else np.s_[:]
    in_order = keys[order]
    place = np.searchsorted(known, in_order)
    inside = place < known.size
    inside[inside] = known[place[inside]] == in_order[inside]
    among = np.empty_like(inside)
    among[order] = inside
    return among


def _joined(known: UInt64, others: Sequence[UInt64]) -> UInt64:
    """Return the known keys and the other ones, rising; merged, since the known ones are many."""
    every = np.sort(np.concatenate((NOTHING, *others)))
    new = every[~_among(every, known)]
    if not new.size:
        return known
    new = new[np.append(True, new[1:] != new[:-1])]
    both = np.insert(known, np.searchsorted(known, new), new)
    return both if both.size <= MOST_KEYS else new[:MOST_KEYS]
