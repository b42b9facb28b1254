"""The programs of a search: which stages make a traversal, a smoothing, a scan.

Each function returns the program, and the branch lengths that it starts from where those are not
simply the trees' own. Trees of one program stand side by side, each in its case; without cases they
are all on the only part, each under the model of its number. Where parts have branch lengths of
their own, a tree's ``lengths`` are f64[parts, E], and lengths and sums come in rows, one a part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltree import contract
from mltree.arrays import Float64, Int32
from mltree.contract import NO_CELL, TRIPOD_CELLS, GroupKind, RunKind
from mltree.likelihood import planner
from mltree.likelihood.cases import Cases, groups_by_part, sums_of
from mltree.likelihood.planner import Piece
from mltree.likelihood.program import Program
from mltree.likelihood.scan_tasks import ScanTasks
from mltree.likelihood.stages import (
    Optimise,
    PMatrices,
    Records,
    Reduce,
    Rell,
    Repeat,
    Scan,
    Stage,
    Tripods,
)
from mltree.likelihood.walks import walk_stages
from mltree.tree.forest import Forest, Trees
from mltree.tree.topology import Tree, siblings

__all__ = [
    "classes",
    "derivatives",
    "flows",
    "join",
    "near_vectors",
    "rell",
    "renewal",
    "scores",
    "smoothing",
    "traversal",
    "tripods",
    "update",
    "walk",
]


def traversal(
    trees: Sequence[Tree], kind: RunKind = RunKind.EVALUATE, cases: Cases | None = None
) -> Program:
    """A post-order traversal towards edge 0 and lnL there, for every tree; sum n is tree n's.

    Trees on the same parts take turns in slots that stay in a CPU's caches.
    """
    cases = cases or Cases.alike(len(trees))
    sums, forest = sums_of(_numbers(trees), 1, cases), Forest(trees)
    ends = planner.branch_records(forest, cases)[forest.first_edge]
    ends["cell"] = sums.cells
    pieces = [
        planner.sharing_slots(piece, forest, cases)
        for piece in (planner.newviews_towards(trees, 0, cases), _at_edges(kind, ends))
    ]
    sites = planner.sites(pieces, cases, in_turn=True)
    stages = (_pmatrices(forest, cases), sites, sums.reduce)
    return Program(stages, sums.n_cells, cases.records)


def classes(trees: Sequence[Tree], cases: Cases) -> Program:
    """The lnL of every pattern of a lone tree in every case, and of all: sum n is case n's.

    Cases differ in the weights of categories only, so that one traversal does for all.
    """
    (tree,) = trees
    forest, number = Forest([tree]), np.arange(len(cases.records), dtype=np.int32)
    sums = sums_of(number, 1, cases)
    ends = np.repeat(planner.branch_records(forest, cases)[:1], len(number))
    cases.give(ends, number)
    ends["cell"] = sums.cells
    towards = planner.newviews_towards([tree], 0, cases)
    pieces = [towards, _at_edges(RunKind.EVALUATE_SITES, ends)]
    stages = (_pmatrices(forest, cases), planner.sites(pieces, cases), sums.reduce)
    return Program(stages, sums.n_cells, cases.records)


def walk(
    trees: Sequence[Tree],
    longest: int,
    kind: RunKind = RunKind.EVALUATE,
    cases: Cases | None = None,
) -> Program:
    """LnL of every tree from walks (:func:`.walks.walk_stages`); sum n is tree n's."""
    cases = cases or Cases.alike(len(trees))
    sums = sums_of(_numbers(trees), 1, cases)
    if len(cases.streams[0]) > 1:  # trees enough to fill the device, and slots would not be shared
        longest = max(tree.n_tips for tree in trees)
    walks = walk_stages(trees, longest, cases, sums.cells, sites=kind == RunKind.EVALUATE_SITES)
    of_edge = np.repeat(_numbers(trees), [tree.n_edges for tree in trees])
    matrices = PMatrices(planner.pmatrix_records(len(of_edge), of_edge, cases))
    stages: tuple[Stage, ...] = (matrices, *walks, sums.reduce)
    return Program(stages, sums.n_cells, cases.records)


def update(trees: Trees, cases: Cases | None = None) -> Program:
    """Every directional CLA of every tree."""
    cases = cases or Cases.alike(len(trees))
    forest = Forest.of(trees)
    newviews = planner.all_newviews(forest, cases)
    return Program((_pmatrices(forest, cases), planner.sites([newviews], cases)), 1, cases.records)


def renewal(before: Trees, trees: Trees, cases: Cases | None = None) -> Program | None:
    """The directional CLAs that differ from those of the trees ``before``; None where none does."""
    cases = cases or Cases.alike(len(trees))
    forest = Forest.of(trees)
    stale = planner.is_stale(Forest.of(before), forest)
    if not stale.any():
        return None
    newviews = planner.stale_newviews(forest, stale, cases)
    one, other = forest.siblings
    edges = forest.edge[np.concatenate([one[stale], other[stale]])]
    branch = np.flatnonzero(np.bincount(edges)).astype(np.int32)
    number = forest.tree_of_edge[branch]
    matrices = planner.pmatrix_records(forest.tree_of_edge.size, number, cases, branch)
    stages = (PMatrices(matrices), planner.sites([newviews], cases))
    return Program(stages, 1, cases.records)


def derivatives(
    trees: Sequence[Tree], cases: Cases | None = None, *, grouped: bool = False
) -> Program:
    """Every directional CLA, lnL (sum n), and d1, d2 of every branch (sums from len(trees)).

    ``grouped``: a tree is left out once the group of its number moves no more.
    """
    cases = cases or Cases.alike(len(trees))
    number, forest = _numbers(trees), Forest(trees)
    widths = np.concatenate([np.ones_like(number), 2 * forest.n_edges])
    sums = sums_of(np.tile(number, 2), widths, cases)
    of_tree, of_branches = np.split(sums.cells, 2)
    derive = planner.branch_records(forest, cases)
    in_tree = np.arange(len(derive), dtype=np.int32) - forest.first_edge[forest.tree_of_edge]
    derive["cell"] = of_branches[forest.tree_of_edge] + 2 * in_tree
    ends = derive[forest.first_edge]
    ends["cell"] = of_tree
    pieces = [
        planner.all_newviews(forest, cases),
        _at_edges(RunKind.EVALUATE, ends),
        _at_edges(RunKind.DERIVE, derive),
    ]
    every = planner.sites(pieces, cases, grouped=grouped)
    stages = (_pmatrices(forest, cases), every, sums.reduce)
    return Program(stages, sums.n_cells, cases.records)


def flows(tree: Tree, most: int, cases: Cases, at_once: int) -> Program:
    """lnL, and what it gains with the rate matrices of the classes, in ``most`` sums.

    Those are made ``at_once`` at a time, in the same cells. See
    :mod:`mltree.likelihood.flow_slopes`.
    """
    forest, number = Forest([tree]), np.zeros(tree.n_edges, np.int32)
    edges = planner.branch_records(forest, cases)
    lengths = planner.pmatrix_records(tree.n_edges, number, cases)
    records: Records = np.empty(tree.n_edges, contract.FLOW)
    for name in ("x", "y", "case", "model", "weights"):
        records[name] = edges[name]
    for name in ("length", "stride"):
        records[name] = lengths[name]
    edges["cell"], records["cell"] = 0, 1
    pieces = [planner.all_newviews(forest, cases), _at_edges(RunKind.EVALUATE_SITES, edges[:1])]
    every = sums_of(number[:1], 1 + most, cases).reduce.records
    stages: list[Stage] = [PMatrices(lengths)]
    for first in range(0, most, at_once):
        records["first"], records["cells"] = first, min(at_once, most - first)
        pieces.append(_at_edges(RunKind.FLOW, records.copy()))
        made: Records = every.copy()
        made["cell"] = int(first > 0)  # lnL comes with the first of them
        made["sum"] += made["cell"] + first
        made["count"] = 1 - made["cell"] + records["cells"][0]
        stages += [planner.sites(pieces, cases), Reduce(made)]
        pieces = []
    return Program(tuple(stages), 1 + min(at_once, most), cases.records)


def smoothing(trees: Sequence[Tree], max_passes: int, cases: Cases | None = None) -> Program:
    """Simultaneous Newton steps on all branches until no tree gains; a group is a tree.

    Artificial edges, the last ones of a tree, are in no group and stay as they are.
    Where lengths are not linked a group is a part of a tree, part by part.
    """
    cases = cases or Cases.alike(len(trees))
    number, forest = _numbers(trees), Forest(trees)
    count, edges, first = forest.n_trees, forest.tree_of_edge.size, forest.first_edge
    groups = planner.group_records(
        GroupKind.DIAGONAL, first, forest.n_branches, number, count + 2 * first
    )
    once = derivatives(trees, cases, grouped=not cases.unlinked)
    groups = groups_by_part(groups, cases, edges, count + 2 * edges)
    stages = (*once.stages, Optimise(groups), Repeat(0, max_passes, len(groups)))
    return Program(stages, once.cells, cases.records)


def join(
    trees: Trees, prunes: Int32, passes: int, cases: Cases | None = None
) -> tuple[Program, Float64]:
    """Newton on the branch that each prune (a half-edge of the forest) leaves behind."""
    cases, forest = cases or Cases.alike(len(trees)), Forest.of(trees)
    table, number = planner.operand_table(forest, cases), forest.tree_of_half[prunes]
    left, right = siblings(prunes)
    count = len(prunes)
    index = np.arange(count, dtype=np.int32)
    sums = sums_of(np.tile(number, 2), np.repeat([1, 2], count), cases)
    derive: Records = np.empty(count, contract.EDGE)
    derive["x"] = table[forest.twin[left]]
    derive["y"] = table[forest.twin[right]]
    derive["p"] = cases.matrices(index, number)
    cases.give(derive, number)
    evaluate = derive.copy()
    evaluate["cell"], derive["cell"] = np.split(sums.cells, 2)
    pieces = [_at_edges(RunKind.EVALUATE, evaluate), _at_edges(RunKind.DERIVE, derive)]
    groups = planner.group_records(GroupKind.DIAGONAL, index, 1, index, count + 2 * index)
    groups = groups_by_part(groups, cases, count, sums.n_sums)
    stages = (
        PMatrices(planner.pmatrix_records(count, number, cases)),
        planner.sites(pieces, cases),
        sums.reduce,
        Optimise(groups, alone=True),
        Repeat(0, passes, len(groups)),
    )
    start = forest.lengths[..., forest.edge[left]] + forest.lengths[..., forest.edge[right]]
    return Program(stages, sums.n_cells, cases.records), start.ravel()


def scores(trees: Trees, scan: ScanTasks, cases: Cases | None = None) -> tuple[Program, Float64]:
    """The lnL of every insertion of a scan; sum n is output n."""
    cases = cases or Cases.alike(len(trees))
    is_one = len(cases.streams[0]) == 1  # and it does not matter which tree an output is of
    sums = sums_of(np.zeros(scan.outputs, np.int32) if is_one else scan.tree_of_output, 1, cases)
    tables = planner.scan_records(Forest.of(trees), scan, cases, sums.cells)
    stages: tuple[Stage, ...] = (
        PMatrices(tables.pmatrices), Scan(tables.tasks, tables.steps), sums.reduce,
    )  # fmt: skip
    return Program(stages, sums.n_cells, cases.records), tables.lengths


def near_vectors(
    trees: Trees, scan: ScanTasks, base: int, cases: Cases | None = None
) -> tuple[Program, Float64]:
    """The near vector of every output of a scan, kept in slots from ``base`` on."""
    cases = cases or Cases.alike(len(trees))
    slots = _near_slots(scan, base, cases)
    tables = planner.scan_records(Forest.of(trees), scan, cases, slots)
    stages = (PMatrices(tables.pmatrices), Scan(tables.tasks, tables.steps, stores=True))
    return Program(stages, 1, cases.records), tables.lengths


def tripods(
    trees: Trees,
    scan: ScanTasks,
    base: int,
    passes: int,
    cases: Cases | None = None,
) -> tuple[Program, Float64]:
    """Joint Newton around every output of a scan, from the near vectors in slots from ``base``.

    Starts from the target edge split in half and the pendant length as it is.
    """
    cases, forest = cases or Cases.alike(len(trees)), Forest.of(trees)
    table, number = planner.operand_table(forest, cases), scan.tree_of_output
    far, prune, count = scan.far_of_output, scan.prune[scan.task_of_output], scan.outputs
    index = np.arange(count, dtype=np.int32)
    sums = sums_of(number, TRIPOD_CELLS, cases)
    records: Records = np.empty(count, contract.TRIPOD)
    records["near"] = _near_slots(scan, base, cases)
    records["far"] = table[far]
    records["pendant"] = table[forest.twin[prune]]
    for leg, field in enumerate(("near_p", "far_p", "pendant_p")):
        records[field] = cases.matrices(3 * index + np.int32(leg), number)
    cases.give(records, number)
    records["cell"] = sums.cells
    records["group"] = NO_CELL if cases.unlinked else index
    half = forest.lengths[..., forest.edge[far]] / 2
    start = np.stack([half, half, forest.lengths[..., forest.edge[prune]]], axis=-1)
    groups = planner.group_records(GroupKind.TRIPOD, 3 * index, 3, sums.sums, sums.sums + 1)
    groups = groups_by_part(groups, cases, 3 * count, sums.n_sums)
    stages = (
        PMatrices(planner.pmatrix_records(3 * count, np.repeat(number, 3), cases)),
        Tripods(records),
        sums.reduce,
        Optimise(groups, alone=True),
        Repeat(0, passes, len(groups)),
    )
    return Program(stages, sums.n_cells, cases.records), start.ravel()


def _near_slots(scan: ScanTasks, base: int, cases: Cases) -> Int32:
    """int32[outputs]: slots of near vectors, which those on different parts share."""
    slots: Int32 = np.int32(base) + cases.before(scan.tree_of_output, 1)
    return slots


def rell(rows: int, weights: int, parts: int = 1, first_weights: int = 0) -> Program:
    """LnL of the trees whose site lnL stand in the first rows, under every row of weights.

    Sum ``t * weights + w`` is that of row t under row ``first_weights + w``.
    """
    record = np.array([(0, rows, first_weights, weights, 0, 0, parts)], contract.RELL)
    return Program((Rell(record),), 1)


def _numbers(trees: Sequence[Tree]) -> Int32:
    return np.arange(len(trees), dtype=np.int32)


def _at_edges(kind: RunKind, records: Records) -> Piece:
    """Edges do not depend on each other."""
    return Piece(kind, records, records["case"], np.zeros(len(records), np.int32))


def _pmatrices(forest: Forest, cases: Cases) -> PMatrices:
    """P matrices of every branch of every tree."""
    number = forest.tree_of_edge
    return PMatrices(planner.pmatrix_records(len(number), number, cases))
