"""Walks of whole trees: the order of their nodes, so that few results wait for a sibling.

One walk a tree leaves most of a GPU idle where trees and patterns are few. There a tree falls into
pieces, each walked by itself: what is left of the tree once they are done falls into pieces again,
tier by tier, until the last one ends at the root. That is then the tip from which no other is far,
for such walks take the time of the steps that wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mltree import contract
from mltree.arrays import Bool, Int32
from mltree.contract import NO_CELL, RESULT
from mltree.likelihood.cases import Cases
from mltree.likelihood.stages import Records, Walk
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["walk_stages"]


def walk_stages(
    trees: Sequence[Tree], longest: int, cases: Cases, cells: Int32, sites: bool = False
) -> list[Walk]:
    """Walks of every tree to a tip, the lnL of tree n in cell ``cells[n]``; a stage for each tier.

    ``longest``: steps that two subtrees which meet may have together to be walked as one piece,
    all but one; from T - 2 on every tree is one piece. ``sites``: keep the lnL of every pattern
    too. Pieces leave their results in slots from 0 on.
    """
    shapes = _Shapes.of(trees)
    forest = Forest(shapes.unlike)
    pieces = _Pieces.of(forest, longest)
    steps, first = _steps(forest, pieces)
    walks = _walks(forest, pieces, first)
    first_slot = _before(pieces.slots[shapes.of_tree])
    shift = _before(shapes.n_edges) - forest.first_edge[shapes.of_tree]
    tier = pieces.tier[pieces.heads]
    stages = []
    for of_tier in np.split(np.arange(tier.size), np.flatnonzero(np.diff(tier)) + 1):
        own, its_steps = shapes.of_every_tree(walks[of_tier], steps)
        tree = own["case"]
        of_step = np.repeat(tree, own["steps"])
        shift_of_step = shift.take(of_step)
        for side in ("left", "right"):
            operand, matrix = its_steps[side], its_steps[f"{side}_p"]
            if first_slot.any():
                is_slot = (operand >= 0) & (operand != RESULT)
                its_steps[side] = operand + is_slot * first_slot[of_step]
            its_steps[f"{side}_p"] = cases.matrices(matrix + shift_of_step, of_step)
        own["p"] = cases.matrices(own["p"] + shift[tree], tree)
        own["slot"] += first_slot[tree] * (own["slot"] != NO_CELL)
        own["cell"] = np.where(own["slot"] == NO_CELL, cells[tree], NO_CELL)
        cases.give(own, tree)
        levels = int(pieces.levels[pieces.heads[of_tier]].max())
        stages.append(Walk(own, its_steps, max(0, levels), sites))
    return stages


class _Shapes(Value):
    """Trees that share all arrays but their lengths', as one under many models does."""

    unlike: list[Tree]
    """A tree of every shape."""
    of_tree: Int32
    """int32[n]: the shape of every tree."""
    n_edges: Int32
    """int32[n]: of every tree."""

    @classmethod
    def of(cls, trees: Sequence[Tree]) -> _Shapes:
        """Those of some trees."""
        keys = [(id(tree.twin), id(tree.edge)) for tree in trees]
        unlike = dict(zip(keys, trees, strict=True))
        place = {key: number for number, key in enumerate(unlike)}
        of_tree = np.array([place[key] for key in keys], np.int32)
        edges = np.array([tree.n_edges for tree in trees], np.int32)
        return cls(list(unlike.values()), of_tree, edges)

    def of_every_tree(self, walks: Records, steps: Records) -> tuple[Records, Records]:
        """Walks of a tree of every shape, each once for every tree of the shape; and their steps.

        Cases are the trees'; whatever else is a tree's own is still that of the one.
        """
        copies = np.bincount(self.of_tree).astype(np.int32)
        trees = np.argsort(self.of_tree, kind="stable")
        shape = walks["case"]
        tree = np.repeat(_before(copies)[shape], copies[shape]) + _within(copies[shape])
        walks = np.repeat(walks, copies[shape])
        walks["case"] = trees[tree]
        step = np.repeat(walks["first_step"], walks["steps"]) + _within(walks["steps"])
        walks["first_step"] = _before(walks["steps"])
        return walks, steps[step]


def _before(counts: Int32) -> Int32:
    """int32[n]: how many there are before each of some."""
    before: Int32 = np.cumsum(counts, dtype=np.int32) - counts
    return before


def _within(counts: Int32) -> Int32:
    """int32[sum]: 0 .. count - 1 of each of some, one after the other."""
    within: Int32 = np.arange(counts.sum(), dtype=np.int32) - np.repeat(_before(counts), counts)
    return within


class _Pieces(Value):
    """How trees fall into pieces; arrays are over a forest's half-edges that face its roots."""

    roots: Int32
    """The half-edge of the tip, of every tree, where its walks end."""
    waves: list[Int32]
    """The half-edges that face them, nearest first, an array per distance."""
    is_cut: Bool
    """Whether a piece ends there, and another one goes on from its result."""
    steps: Int32
    """Of its piece, up to there."""
    tier: Int32
    """Of its piece, which needs results of lower tiers only."""
    levels: Int32
    """That its piece needs up to there; -1 of a tip, which never waits."""
    heads: Int32
    """Where pieces end, in the order of tiers, the longest first."""
    tree: Int32
    """int32[heads]: which trees those are of."""

    @classmethod
    def of(cls, forest: Forest, longest: int) -> _Pieces:
        """From the tips to the root: a node goes on with its children's piece where it can.

        Where it has two, and they are long together, both end and a higher tier begins: they can
        then be walked side by side. A lone one grows without end, for its steps wait for each
        other anyway.

        Its levels: the child that needs more is walked first, so that a whole tree needs at most
        log2(T) of them (Sethi and Ullman, 1970).
        """
        is_whole, size = longest >= forest.n_tips.max() - 2, forest.twin.size
        roots = forest.of_trees(0) if is_whole else forest.central_tips()
        waves = forest.waves(roots)
        is_cut = np.zeros(size, np.bool_)
        steps, tier, levels = np.zeros((3, size), np.int32)
        levels -= 1
        for wave in reversed(waves):
            children = np.stack([side[wave] for side in forest.behind])
            last = tier[children].max(axis=0)
            stays = tier[children] == last
            meets = (stays & forest.is_inner[children]).all(axis=0)
            is_full = meets & (steps[children].sum(axis=0) >= longest)
            stays &= ~is_full
            is_cut[children] = forest.is_inner[children] & ~stays
            steps[wave] = 1 + (steps[children] * stays).sum(axis=0)
            tier[wave] = last + is_full
            needs = np.where(stays, levels[children], -1)
            levels[wave] = np.maximum(needs.max(axis=0), needs.min(axis=0) + 1)
        heads = np.concatenate([np.flatnonzero(is_cut), forest.twin[roots]])
        heads = heads[np.lexsort((-steps[heads], tier[heads]))]
        heads = heads.astype(np.int32)
        trees = forest.tree_of_half[heads]
        return cls(roots, waves, is_cut, steps, tier, levels, heads, trees)

    @cached_property
    def slots(self) -> Int32:
        """int32[trees]: results of each that other pieces go on from."""
        return np.bincount(self._trees_of_slots, minlength=len(self.roots)).astype(np.int32)

    @cached_property
    def slot(self) -> Int32:
        """int32[heads]: where among those of its tree a result is left; NO_CELL at a root."""
        slot = np.full(len(self.heads), NO_CELL, np.int32)
        order = np.argsort(self._trees_of_slots, kind="stable")
        slot[np.flatnonzero(self.is_cut[self.heads])[order]] = _within(self.slots)
        return slot

    @property
    def _trees_of_slots(self) -> Int32:
        return self.tree[self.is_cut[self.heads]]


def _steps(forest: Forest, pieces: _Pieces) -> tuple[Records, Int32]:
    """The steps of all pieces, and int32[halves]: where each half-edge's part of them starts."""
    needs = np.where(pieces.is_cut, -1, pieces.levels)
    one, other = forest.behind
    swap = needs[other] > needs[one]
    left, right = np.where(swap, other, one), np.where(swap, one, other)
    first = np.zeros(forest.twin.size, np.int32)
    ends = np.cumsum(pieces.steps[pieces.heads])
    first[pieces.heads] = ends - pieces.steps[pieces.heads]
    for wave in pieces.waves:
        begin = first[wave]
        for child in (left[wave], right[wave]):
            goes_on = ~pieces.is_cut[child]
            first[child[goes_on]] = begin[goes_on]
            begin = begin + pieces.steps[child] * goes_on
    every = np.concatenate(pieces.waves)
    at = first[every] + pieces.steps[every] - 1
    operand = np.full(forest.twin.size, RESULT, np.int32)
    operand[forest.tips] = ~(forest.in_tree(forest.tips) // 3)
    is_kept = pieces.slot != NO_CELL
    operand[pieces.heads[is_kept]] = pieces.slot[is_kept]
    steps: Records = np.empty(every.size, contract.WALK_STEP)
    for field, halves in (("left", left[every]), ("right", right[every])):
        steps[field][at] = operand[halves]
        steps[f"{field}_p"][at] = forest.edge[halves]
    return steps, first


def _walks(forest: Forest, pieces: _Pieces, first: Int32) -> Records:
    """A walk to every head, of the tree that its case is."""
    heads, roots, tree = pieces.heads, pieces.roots, pieces.tree
    walks: Records = np.empty(heads.size, contract.WALK)
    walks["tip"] = ~(forest.in_tree(roots) // 3)[tree]
    walks["p"] = forest.edge[roots][tree]
    walks["case"] = tree
    walks["slot"] = pieces.slot
    walks["first_step"] = first[heads]
    walks["steps"] = pieces.steps[heads]
    return walks
