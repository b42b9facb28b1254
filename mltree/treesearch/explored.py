"""What a search has looked at in vain, so that it does not look again.

Rounds, starts and perturbed copies meet the same subtrees at the same places over and over. Four
things are remembered, each as 64 bits of the sets of tips that make it up:

* a *hopeless move*: a subtree, at an edge of the rest, whose re-scored lnL lay far below the tree;
* an *exhausted prune*: a subtree where it stands, its surroundings known to some edges' distance,
  none of whose moves came near the tree's lnL;
* an *idle prune*: one of whose moves some came near, but none gained; it counts where nothing was
  found to do, and in the repair of copies, under one model;
* an *end*: a topology from which a phase found nothing to do.

A key holds for any numbering and any tree of these tips. What lies farther away may have changed
since, and with it the lnL: by a little near the top, for which "far" and "near" leave room, and by
more on the way there from a start, so that phases which look farther forget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.fit.settings import PhaseSettings
from mltree.system.arrays import Float64, Int32, UInt64
from mltree.tree.forest import Forest, mixed

NOTHING: UInt64 = np.empty(0, np.uint64)

SURROUNDINGS = 3
"""Edges from a pruned subtree to which its surroundings have to be the same."""

MOST_KEYS = 1 << 20
"""Of a kind: 8 MB. A search that has met more begins to learn anew."""

_EXHAUSTED, _IDLE, _GAINS = range(3)
"""What the moves of a subtree came to; the last also of one that was not looked at."""

_PRUNED, _HERE = np.uint64(3), np.uint64(5)
"""Odd factors that tell the parts of a key apart."""


class Lesson(NamedTuple):
    """What scoring the moves around a tree says of later rounds."""

    moves: UInt64
    """Hopeless ones."""
    prunes: UInt64
    """Exhausted ones."""
    idle: UInt64 = NOTHING
    """Idle ones."""


class Rescored(Protocol):
    """Moves with their lnL; see :class:`mltree.treesearch.scoring.Moves`."""

    @property
    def prune(self) -> Int32:
        """int32[n]: half-edge that faces the pruned subtree."""

    @property
    def target(self) -> Int32:
        """int32[n]: half-edge of the target edge, on the near side."""

    @property
    def lnl(self) -> Float64:
        """float64[n]: after the move."""


class Keys:
    """Keys of the prunes and moves of trees side by side."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._tips = mixed(forest.tip_sets)
        """uint64[3N of all]: of the tips that a half-edge's neighbour sees across it."""
        self._of_prunes = self._prunes(forest.inner)

    def worthwhile(self, explored: Sequence[Explored]) -> Int32:
        """int32[prunes]: the half-edges whose subtrees are neither exhausted nor idle, rising."""
        prunes, keys = self._forest.inner, self._of_prunes
        is_exhausted = self._known(prunes, keys, [one.prunes for one in explored])
        is_idle = self._known(prunes, keys, [one.idle for one in explored])
        return prunes[~(is_exhausted | is_idle)]

    def hopeful(
        self, explored: Sequence[Explored], prunes: Int32, targets: Int32
    ) -> NDArray[np.bool_]:
        """bool[moves]: which are not hopeless."""
        known = [one.moves for one in explored]
        return ~self._known(prunes, self._moves(prunes, targets), known)

    def _known(self, halves: Int32, keys: UInt64, known: Sequence[UInt64]) -> NDArray[np.bool_]:
        """bool[keys]: which are known of the tree that their half-edge is in."""
        tree = self._forest.tree_of_half[halves]
        order = np.argsort(tree, kind="stable")
        ends = np.searchsorted(tree[order], np.arange(1, len(known)))
        found = np.zeros(keys.size, np.bool_)
        for own, of_tree in zip(np.split(order, ends), known, strict=True):
            found[own] = _among(keys[own], of_tree)
        return found

    def lessons(
        self,
        prunes: Int32,
        rescored: Sequence[Rescored],
        near: Float64,
        better: Float64,
    ) -> list[Lesson]:
        """What to learn of the trees, whose ``prunes`` were looked at.

        near    f64[trees]: lnL below which a move is hopeless
        better  f64[trees]: and from which on it gains
        """
        forest, lessons = self._forest, []
        ends = np.searchsorted(forest.inner, forest.first_half[1:])
        inner = np.split(forest.inner, ends)
        keys = np.split(self._of_prunes, ends)
        promise = np.full(forest.twin.size, _GAINS, np.int8)
        promise[prunes] = _EXHAUSTED
        for n, moves in enumerate(rescored):
            first, low = forest.first_half[n], moves.lnl < near[n]
            promise[first + moves.prune[~low]] = _IDLE
            promise[first + moves.prune[moves.lnl >= better[n]]] = _GAINS
            hopeless = self._moves(first + moves.prune[low], first + moves.target[low])
            own = promise[inner[n]]
            lessons.append(Lesson(hopeless, keys[n][own == _EXHAUSTED], keys[n][own == _IDLE]))
        return lessons

    def _prunes(self, prunes: Int32) -> UInt64:
        """uint64[prunes]: of subtrees where they stand."""
        around, twin, (left, right) = self._around(), self._forest.twin, self._forest.siblings
        beside = around[twin[left[prunes]]] + around[twin[right[prunes]]]
        return mixed(self._tips[twin[prunes]] * _PRUNED + beside)

    def _moves(self, prunes: Int32, targets: Int32) -> UInt64:
        """uint64[moves]: of subtrees at edges, whose halves on the near side these are."""
        sets, twin = self._forest.tip_sets, self._forest.twin
        pruned, far = twin[prunes], twin[targets]
        rest = sets[targets] - sets[pruned]
        return mixed(self._tips[pruned] * _PRUNED + mixed(rest) + self._tips[far])

    def _around(self) -> UInt64:
        """uint64[3N of all]: of all that is seen across a half-edge for some edges."""
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
class Explored:
    """What one search knows to lead nowhere."""

    moves: UInt64 = field(default_factory=NOTHING.copy)
    """Hopeless ones, rising."""
    prunes: UInt64 = field(default_factory=NOTHING.copy)
    """Exhausted ones, rising."""
    idle: UInt64 = field(default_factory=NOTHING.copy)
    """Idle ones, rising."""
    ends: UInt64 = field(default_factory=NOTHING.copy)
    """Topologies, rising."""
    reach: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Radius, cut, breadth and trials of the phases that exhausted prunes and ends have seen at
    least."""

    def enter(self, phase: PhaseSettings) -> None:
        """Rounds of a phase begin: what was seen in narrower ones does not count there.

        Hopeless moves are forgotten too: around a better tree some of them help.
        """
        new = (float(phase.radius), phase.cut, phase.breadth, float(phase.trials))
        wider = [own > known for own, known in zip(new, self.reach, strict=True)]
        if any(wider):
            self.forget_ends()
        if any(wider[:-1]):
            self.moves = self.prunes = NOTHING
        self.reach = new

    def add(self, lessons: Sequence[Lesson], idle: Sequence[Lesson] = ()) -> None:
        """Learn hopeless moves and exhausted prunes, and the idle prunes of ``idle`` ones."""
        self.moves = _joined(self.moves, [one.moves for one in lessons])
        self.prunes = _joined(self.prunes, [one.prunes for one in lessons])
        self.idle = _joined(self.idle, [one.idle for one in idle])

    def ended(self, topologies: Iterable[int]) -> None:
        """Nothing was found to do from these."""
        self.ends = _joined(self.ends, [np.array(list(topologies), np.uint64)])

    def forget_ends(self, *, idle: bool = True) -> None:
        """More may be found to do from them, and with ``idle`` prunes too."""
        self.ends = NOTHING
        if idle:
            self.idle = NOTHING

    def has_ended(self, topologies: Sequence[int]) -> list[bool]:
        """Which of these are among the ends."""
        found: list[bool] = _among(np.array(topologies, np.uint64), self.ends).tolist()
        return found

    def copy(self) -> Explored:
        """The same, which later rounds do not change."""
        return replace(self)


def _among(keys: UInt64, known: UInt64) -> NDArray[np.bool_]:
    """bool[keys]: which are among the known, which rise."""
    place = np.searchsorted(known, keys)
    inside = place < known.size
    inside[inside] = known[place[inside]] == keys[inside]
    return inside


def _joined(known: UInt64, others: Sequence[UInt64]) -> UInt64:
    """The known keys and those of the others, rising: merged, since known ones are many."""
    every = np.sort(np.concatenate((NOTHING, *others)))
    new = every[~_among(every, known)]
    if not new.size:
        return known
    new = new[np.append(True, new[1:] != new[:-1])]
    both = np.insert(known, np.searchsorted(known, new), new)
    return both if both.size <= MOST_KEYS else new[:MOST_KEYS]
