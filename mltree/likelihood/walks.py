"""Walks of whole trees: the order of their nodes, so that few results wait for a sibling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltree import contract
from mltree.likelihood.planner import operands
from mltree.likelihood.program import Records
from mltree.tree.topology import Tree, siblings

__all__ = ["WalkPlan", "walk_records"]

Int32 = npt.NDArray[np.int32]


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
    tree = trees[0]
    inner = tree.n_tips - 2
    walks: Records = np.empty(len(trees), contract.WALK)
    steps: Records = np.empty(len(trees) * inner, contract.WALK_STEP)
    walks["tip"] = ~0
    walks["model"] = walks["cell"] = np.arange(len(trees))
    walks["first_step"] = inner * np.arange(len(trees))
    walks["steps"] = inner
    known: dict[int, tuple[Records, int]] = {}
    for n, here in enumerate(trees):
        if id(here.twin) not in known:
            known[id(here.twin)] = _walk_steps(here)
        own = steps[n * inner : (n + 1) * inner]
        own[:] = known[id(here.twin)][0]
        own["left_p"] += n * tree.n_edges
        own["right_p"] += n * tree.n_edges
        walks["length"][n] = here.edge[0] + n * tree.n_edges
    return WalkPlan(walks, steps, max(levels for _, levels in known.values()))


def _walk_steps(tree: Tree) -> tuple[Records, int]:
    """The steps of one tree's walk, and the levels that it needs; loops run over waves."""
    waves = list(tree.waves_from(int(tree.edge[0])))
    size = np.zeros(tree.twin.size, np.int32)
    levels = np.full(tree.twin.size, -1, np.int32)  # of a tip: it never waits
    branches: list[tuple[Int32, Int32]] = []
    for wave in reversed(waves):
        one, other = siblings(wave)
        swap = levels[tree.twin[other]] > levels[tree.twin[one]]
        first, second = np.where(swap, other, one), np.where(swap, one, other)
        size[wave] = 1 + size[tree.twin[first]] + size[tree.twin[second]]
        levels[wave] = np.maximum(levels[tree.twin[first]], levels[tree.twin[second]] + 1)
        branches.append((first, second))
    steps: Records = np.empty(tree.n_tips - 2, contract.WALK_STEP)
    start = np.zeros(tree.twin.size, np.int32)
    for wave, (first, second) in zip(waves, reversed(branches), strict=True):
        at = start[wave] + size[wave] - 1
        start[tree.twin[first]] = start[wave]
        start[tree.twin[second]] = start[wave] + size[tree.twin[first]]
        for side, half in (("left", first), ("right", second)):
            steps[side][at] = operands(tree, tree.twin[half])
            steps[f"{side}_p"][at] = tree.edge[half]
    return steps, max(0, int(levels[waves[0][0]]))
