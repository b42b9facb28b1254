"""From trees to record tables: which slot, length and cell every operation works on.

Trees of one launch lie side by side. Tree n has slots ``n * 3(T-2) ...``: the CLA of inner
half-edge h is slot ``h - 3T`` of its tree. Its branch lengths start at ``n * E``. Everything
here is vectorised over nodes and candidates; loops run over tree levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mltree import contract
from mltree.contract import NO_CELL, ROOT_LEVEL, Control, GroupKind, RunKind
from mltree.likelihood.program import Records
from mltree.likelihood.scan_tasks import ScanTasks
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree, siblings

__all__ = [
    "Runs",
    "all_newviews",
    "branch_records",
    "control_records",
    "group_records",
    "newviews_towards",
    "one_slot_a_node",
    "operand_table",
    "operands",
    "pmatrix_records",
    "scan_records",
    "slots_of",
]

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]
Runs = list[tuple[RunKind, Records]]


def slots_of(tree: Tree) -> int:
    """3(T-2): the CLAs of one tree, one for each inner half-edge."""
    return 3 * (tree.n_tips - 2)


def operands(tree: Tree, halves: Int32, number: int | Int32 = 0) -> Int32:
    """int32[n]: slot of each inner half-edge of tree ``number``, ``~tip`` of each tip's."""
    first_inner = 3 * tree.n_tips
    inner = halves - first_inner + np.asarray(number, np.int32) * np.int32(slots_of(tree))
    operand: Int32 = np.where(halves >= first_inner, inner, ~(halves // 3)).astype(np.int32)
    return operand


def pmatrix_records(lengths: Int32, models: Int32 | int) -> Records:
    """One P matrix per length index."""
    records: Records = np.empty(len(lengths), contract.PMATRIX)
    records["length"] = lengths
    records["model"] = models
    return records


def _newview_records(trees: Sequence[Tree], halves: Int32, number: Int32) -> Records:
    """NEWVIEW of half-edges of trees ``number``, both int32[n]."""
    tree = trees[0]
    twin, edge = np.stack([t.twin for t in trees]), np.stack([t.edge for t in trees])
    left, right = siblings(halves)
    offset = number * np.int32(tree.n_edges)
    records: Records = np.empty(len(halves), contract.NEWVIEW)
    records["dst"] = operands(tree, halves, number)
    records["left"] = operands(tree, twin[number, left], number)
    records["right"] = operands(tree, twin[number, right], number)
    records["left_p"] = edge[number, left] + offset
    records["right_p"] = edge[number, right] + offset
    return records


def _runs_by_level(trees: Sequence[Tree], halves: list[Int32], levels: list[Int32]) -> Runs:
    """One run a level, lowest first, from the half-edges of every tree and their levels."""
    counts = [part.size for part in halves]
    level = np.concatenate(levels)
    order = np.argsort(level, kind="stable")
    number = np.repeat(np.arange(len(trees), dtype=np.int32), counts)
    records = _newview_records(trees, np.concatenate(halves)[order], number[order])
    bounds = np.flatnonzero(np.diff(level[order])) + 1
    return [(RunKind.NEWVIEW, run) for run in np.split(records, bounds)]


@lru_cache(maxsize=32)
def operand_table(n_tips: int, n_trees: int) -> Int32:
    """int32[n * 3N]: what :func:`operands` gives for every half-edge of a forest; read-only."""
    tree = np.concatenate([~(np.arange(3 * n_tips) // 3), np.arange(3 * (n_tips - 2))])
    inner = np.arange(tree.size) >= 3 * n_tips
    offset = np.arange(n_trees)[:, None] * (3 * (n_tips - 2))
    table = (tree + inner * offset).astype(np.int32).ravel()
    table.setflags(write=False)
    return table


def all_newviews(forest: Forest) -> Runs:
    """Every directional CLA of every tree, level by level."""
    table = operand_table(forest.n_tips, forest.n_trees)
    level = forest.levels()[forest.inner]
    halves = forest.inner[np.argsort(level, kind="stable")]
    one, other = (side[halves] for side in forest.siblings)
    records: Records = np.empty(halves.size, contract.NEWVIEW)
    records["dst"] = table[halves]
    records["left"] = table[forest.twin[one]]
    records["right"] = table[forest.twin[other]]
    records["left_p"] = forest.edge[one]
    records["right_p"] = forest.edge[other]
    ends = np.cumsum(np.bincount(level)).tolist()
    return [(RunKind.NEWVIEW, records[a:b]) for a, b in pairwise(ends)]


def branch_records(forest: Forest) -> Records:
    """EVALUATE or DERIVE at every branch of every tree, in order; cells are not given yet."""
    table = operand_table(forest.n_tips, forest.n_trees)
    lower = np.empty(forest.lengths.size, np.int32)
    first = np.flatnonzero(forest.twin > np.arange(forest.twin.size))
    lower[forest.edge[first]] = first
    records: Records = np.empty(lower.size, contract.EDGE)
    records["x"] = table[forest.twin[lower]]
    records["y"] = table[lower]  # a tip where there is one: the operand that P is applied to
    records["length"] = np.arange(lower.size)
    records["model"] = np.repeat(np.arange(forest.n_trees), forest.n_edges)
    return records


def newviews_towards(trees: Sequence[Tree], edge: int) -> Runs:
    """The CLAs that face one edge, level by level: a plain post-order traversal.

    Trees that share one ``twin`` array (a tree under many models) are walked once.
    """
    walks: dict[int, tuple[Int32, Int32]] = {}
    for tree in trees:
        if id(tree.twin) not in walks:
            walks[id(tree.twin)] = _walk_towards(tree, edge)
    halves, levels = zip(*(walks[id(tree.twin)] for tree in trees), strict=True)
    return _runs_by_level(trees, list(halves), list(levels))


def _walk_towards(tree: Tree, edge: int) -> tuple[Int32, Int32]:
    """The inner half-edges that face an edge, and minus their distance from it."""
    waves = list(tree.waves_from(edge))
    distance = np.arange(len(waves), dtype=np.int32)
    return np.concatenate(waves), -np.repeat(distance, [wave.size for wave in waves])


def one_slot_a_node(records: Records) -> Records:
    """The records with slots for one half-edge of each inner node: all that a traversal needs.

    The three half-edges of a node have neighbouring slots, so slot s becomes s // 3, and many
    trees side by side take a third of the memory.
    """
    for field in {"dst", "left", "right", "x", "y"}.intersection(records.dtype.names or ()):
        operand = records[field]
        records[field] = np.where(operand >= 0, operand // 3, operand)
    return records


def group_records(
    kind: GroupKind, first_length: Int32, count: int, lnl_cell: Int32, first_cell: Int32
) -> Records:
    """Groups of ``count`` lengths each."""
    records: Records = np.empty(len(first_length), contract.GROUP)
    records["kind"] = kind
    records["first_length"] = first_length
    records["count"] = count
    records["lnl_cell"] = lnl_cell
    records["first_cell"] = first_cell
    return records


def control_records(groups: int, epsilon: float, max_passes: int) -> Float64:
    """f64[groups, CONTROL_WORDS] before the first pass."""
    control = np.zeros((groups, contract.CONTROL_WORDS))
    control[:, Control.ACTIVE] = 1
    control[:, Control.STEP] = 1
    control[:, Control.EPSILON] = epsilon
    control[:, Control.MAX_PASSES] = max_passes
    return control


@dataclass(frozen=True)
class ScanPlan:
    """A scan in slots and lengths: f64 lengths, P matrices and the walk itself."""

    lengths: Float64
    """Full lengths of every tree, their halves, then the joins."""
    pmatrices: Records
    tasks: Records
    """The longest first, so that short ones are left to fill the gaps at the end."""
    steps: Records


def scan_records(trees: Sequence[Tree], scan: ScanTasks, first_output: int = 0) -> ScanPlan:
    """The scan's tables; its outputs are cells, or slots, from ``first_output`` on."""
    tree = trees[0]
    edges = len(trees) * tree.n_edges
    edge = np.stack([t.edge for t in trees])
    tasks: Records = np.empty(len(scan.prune), contract.SCAN_TASK)
    tasks["pendant"] = operands(tree, _twins(trees, scan.tree, scan.prune), scan.tree)
    tasks["pendant_p"] = edge[scan.tree, scan.prune] + scan.tree * tree.n_edges
    tasks["root"] = operands(tree, scan.root, scan.tree)
    tasks["join_p"] = 2 * edges + np.arange(len(scan.prune))
    tasks["model"] = scan.tree
    pairs = _pairs(scan, tree.n_tips)
    tasks["steps"] = np.bincount(pairs.task, minlength=len(tasks))
    tasks["first_step"] = np.cumsum(tasks["steps"]) - tasks["steps"]
    steps: Records = np.zeros(len(pairs.task), contract.SCAN_STEP)
    steps["level_in"] = scan.level_in[pairs.left] + ROOT_LEVEL
    number = scan.tree[pairs.task]
    for side, half, step in (
        ("left", scan.far[pairs.left], pairs.left),
        ("right", scan.sibling[pairs.left], pairs.right),
    ):
        steps[side] = operands(tree, half, number)
        steps[f"{side}_p"] = edge[number, half] + number * tree.n_edges
        steps[f"{side}_half_p"] = steps[f"{side}_p"] + edges
        output = scan.output[step]
        wanted = step >= 0
        pushed = wanted & (scan.level_out[step] >= 0)
        steps[f"{side}_level"] = np.where(pushed, scan.level_out[step] + ROOT_LEVEL, NO_CELL)
        scored = wanted & (output >= 0)
        steps[f"{side}_output"] = np.where(scored, output + first_output, NO_CELL)
    full = np.concatenate([t.lengths for t in trees])
    lengths = np.concatenate([full, full / 2, scan.join_length])
    model = np.concatenate(
        [np.tile(np.repeat(np.arange(len(trees)), tree.n_edges), 2), scan.tree]
    ).astype(np.int32)
    indices = np.arange(len(lengths), dtype=np.int32)
    longest_first = np.argsort(-tasks["steps"], kind="stable")
    return ScanPlan(lengths, pmatrix_records(indices, model), tasks[longest_first], steps)


@dataclass(frozen=True)
class _Pairs:
    """The two steps that start at one node, as one; int32[pairs] each, in the walks' order."""

    task: Int32
    left: Int32
    """Index of the step that comes first in the walk."""
    right: Int32
    """Index of the other; -1 where the walk goes one way only."""


def _pairs(scan: ScanTasks, n_tips: int) -> _Pairs:
    """Pairs the steps of each task by the node that they start at."""
    task = np.repeat(np.arange(len(scan.prune), dtype=np.int32), np.diff(scan.first_step))
    place = task.astype(np.int64) * (2 * n_tips) + scan.near // 3
    index = np.arange(len(place), dtype=np.int32)
    first_at = np.empty(len(scan.prune) * 2 * n_tips, np.int32)
    first_at[place[::-1]] = index[::-1]  # the last assignment stays: the first step at a node
    first = first_at[place]
    is_left = first == index
    left = index[is_left]
    right = np.full(len(left), -1, np.int32)
    right[np.cumsum(is_left)[first[~is_left]] - 1] = index[~is_left]
    return _Pairs(task[left], left, right)


def _twins(trees: Sequence[Tree], number: Int32, halves: Int32) -> Int32:
    twins: Int32 = np.stack([tree.twin for tree in trees])[number, halves]
    return twins
