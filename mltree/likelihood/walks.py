"""Walks of whole trees: the order of their nodes, so that few results wait for a sibling.

One walk a tree leaves most of a GPU idle where trees and patterns are few. There a tree falls into
pieces, each walked by itself: what is left of the tree once they are done falls into pieces again,
tier by tier, until the last one ends at the root. That is then the tip from which no other is far,
for such walks take the time of the steps that wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mltree import contract
from mltree.contract import NO_CELL, RESULT
from mltree.likelihood.cases import Cases
from mltree.likelihood.stages import Records, Walk
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["walk_stages"]

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]


def walk_stages(
    trees: Sequence[Tree], longest: int, cases: Cases, cells: Int32, sites: bool = False
) -> list[Walk]:
    """Walks of every tree to a tip, the lnL of tree n in cell ``cells[n]``; a stage for each tier.

    ``longest``: steps that two subtrees which meet may have together to be walked as one piece,
    all but one; from T - 2 on every tree is one piece. ``sites``: keep the lnL of every pattern
    too. Pieces leave their results in slots from 0 on.
    """
    is_one = len({(id(tree.twin), id(tree.edge)) for tree in trees}) == 1
    forest = Forest(trees[:1] if is_one else trees)
    pieces = _Pieces.of(forest, longest)
    steps, first = _steps(forest, pieces)
    walks = _walks(forest, pieces, first)
    tier = pieces.tier[pieces.heads]
    stages = []
    for of_tier in np.split(np.arange(tier.size), np.flatnonzero(np.diff(tier)) + 1):
        own, begin = walks[of_tier], first[pieces.heads[of_tier[0]]]
        own["first_step"] -= begin
        its_steps = steps[begin : begin + own["steps"].sum()]
        if is_one:
            own, its_steps = _under_models(own, its_steps, forest, pieces, len(trees))
        of_step = np.repeat(own["case"], own["steps"])
        for field in ("left_p", "right_p"):
            its_steps[field] = cases.matrices(its_steps[field], of_step)
        own["p"] = cases.matrices(own["p"], own["case"])
        cases.give(own, own["case"])
        own["cell"] = np.where(own["cell"] == NO_CELL, NO_CELL, cells[own["cell"]])
        levels = int(pieces.levels[pieces.heads[of_tier]].max())
        stages.append(Walk(own, its_steps, max(0, levels), sites))
    return stages


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
        return cls(roots, waves, is_cut, steps, tier, levels, heads.astype(np.int32))

    @property
    def slots(self) -> int:
        """Results that other pieces go on from."""
        return int(np.count_nonzero(self.is_cut))


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
    ends_there = pieces.heads[pieces.is_cut[pieces.heads]]
    operand[ends_there] = np.arange(ends_there.size)
    steps: Records = np.empty(every.size, contract.WALK_STEP)
    for field, halves in (("left", left[every]), ("right", right[every])):
        steps[field][at] = operand[halves]
        steps[f"{field}_p"][at] = forest.edge[halves]
    return steps, first


def _walks(forest: Forest, pieces: _Pieces, first: Int32) -> Records:
    """A walk to every head; those that end at a root are scored."""
    heads, roots = pieces.heads, pieces.roots
    is_cut, number = pieces.is_cut[heads], forest.tree_of_half[heads]
    walks: Records = np.empty(heads.size, contract.WALK)
    walks["tip"] = ~(forest.in_tree(roots) // 3)[number]
    walks["p"] = forest.edge[roots][number]
    walks["case"] = number
    walks["cell"] = np.where(is_cut, NO_CELL, number)
    walks["slot"] = np.where(is_cut, np.cumsum(is_cut) - 1, NO_CELL)
    walks["first_step"] = first[heads]
    walks["steps"] = pieces.steps[heads]
    return walks


def _under_models(
    walks: Records, steps: Records, forest: Forest, pieces: _Pieces, models: int
) -> tuple[Records, Records]:
    """The walks and steps of one tree again for every model, each with lengths of its own."""
    of_walk = np.repeat(np.arange(models, dtype=np.int32), len(walks))
    of_step = np.repeat(np.arange(models, dtype=np.int32), len(steps))
    walks, steps = np.tile(walks, models), np.tile(steps, models)
    walks["p"] += forest.n_edges[0] * of_walk
    walks["case"] = of_walk
    walks["cell"] += of_walk * (walks["cell"] != NO_CELL)
    walks["slot"] += pieces.slots * of_walk * (walks["slot"] != NO_CELL)
    walks["first_step"] += (len(steps) // models) * of_walk
    for side in ("left", "right"):
        is_slot = (steps[side] >= 0) & (steps[side] != RESULT)
        steps[side] += pieces.slots * of_step * is_slot
        steps[f"{side}_p"] += forest.n_edges[0] * of_step
    return walks, steps
