"""Walks of whole trees: the order of their nodes, so that few results wait for a sibling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltree import contract
from mltree.likelihood.planner import operand_table
from mltree.likelihood.program import Records
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree

__all__ = ["WalkPlan", "walk_records"]


@dataclass(frozen=True)
class WalkPlan:
    """Depth-first walks of trees: WALK records, one a tree, and their WALK_STEP records."""

    walks: Records
    steps: Records
    levels: int
    """Results that wait at most for their sibling, beside the last one."""


def walk_records(trees: Sequence[Tree]) -> WalkPlan:
    """Walks of every tree to its tip 0, the lnL of tree n in cell n.

    At every node the branch that needs more levels is walked first, so that a walk needs at most
    log2(T) of them (Sethi and Ullman, 1970).
    """
    apart = {(id(tree.twin), id(tree.edge)): tree for tree in trees}
    distinct = list(apart.values()) if len(apart) == 1 else list(trees)
    forest = Forest(distinct)
    steps, levels = _walk_steps(forest)
    root = forest.edge[forest.of_trees(0)]
    if len(distinct) < len(trees):  # one tree under many models
        first_length = forest.n_edges * np.arange(len(trees))
        root = root + first_length
        steps = np.tile(steps, len(trees))
        for field in ("left_p", "right_p"):
            steps[field] += np.repeat(first_length, forest.n_tips - 2)
    walks: Records = np.empty(len(trees), contract.WALK)
    walks["tip"] = ~0
    walks["length"] = root
    walks["model"] = walks["cell"] = np.arange(len(trees))
    walks["first_step"] = (forest.n_tips - 2) * np.arange(len(trees))
    walks["steps"] = forest.n_tips - 2
    return WalkPlan(walks, steps, levels)


def _walk_steps(forest: Forest) -> tuple[Records, int]:
    """The steps of all walks, tree after tree, and the levels that the neediest has to have."""
    one, other = forest.behind
    waves = forest.waves()
    size = np.zeros(forest.twin.size, np.int32)
    levels = np.full(forest.twin.size, -1, np.int32)  # of a tip: it never waits
    for wave in reversed(waves):
        first, second = levels[one[wave]], levels[other[wave]]
        levels[wave] = np.maximum(np.maximum(first, second), np.minimum(first, second) + 1)
        size[wave] = 1 + size[one[wave]] + size[other[wave]]
    swap = levels[other] > levels[one]
    left, right = np.where(swap, other, one), np.where(swap, one, other)
    start = np.zeros(forest.twin.size, np.int32)
    roots = forest.twin[forest.of_trees(0)]
    start[roots] = (forest.n_tips - 2) * np.arange(forest.n_trees)
    for wave in waves:
        begin, first = start[wave], left[wave]
        start[first] = begin
        start[right[wave]] = begin + size[first]
    every = np.concatenate(waves)
    at = start[every] + size[every] - 1
    table = operand_table(forest.n_tips, 1)  # of results only the sign counts
    steps: Records = np.empty(every.size, contract.WALK_STEP)
    for field, halves in (("left", left[every]), ("right", right[every])):
        steps[field][at] = table[halves % forest.n_halves]
        steps[f"{field}_p"][at] = forest.edge[halves]
    return steps, max(0, int(levels[roots].max()))
