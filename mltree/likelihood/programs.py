"""The programs of a search: which stages make a traversal, a smoothing, a scan.

Each function returns the program, and the branch lengths that it starts from where those are not
simply the trees' own. Trees of one program stand side by side, each in its case; without cases they
are all on the only part, each under the model of its number. Where parts have branch lengths of
their own, a tree's ``lengths`` are f64[parts, E], and lengths and sums come in rows, one a part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mltree import contract
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
    Rell,
    Repeat,
    Scan,
    Stage,
    Tripods,
)
from mltree.likelihood.walks import walk_stages
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree, siblings

__all__ = [
    "derivatives",
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

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]


def traversal(
    trees: Sequence[Tree], kind: RunKind = RunKind.EVALUATE, cases: Cases | None = None
) -> Program:
    """A post-order traversal towards edge 0 and lnL there, for every tree; sum n is tree n's."""
    cases = cases or Cases.alike(len(trees))
    sums = sums_of(_numbers(trees), 1, cases)
    ends = planner.branch_records(Forest(trees), cases)[:: trees[0].n_edges].copy()
    ends["cell"] = sums.cells
    pieces = [planner.newviews_towards(trees, 0, cases), _at_edges(kind, ends)]
    for piece in pieces:
        planner.one_slot_a_node(piece.records)
    stages = (_pmatrices(trees, cases), planner.sites(pieces, cases), sums.reduce)
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
        longest = trees[0].n_tips
    walks = walk_stages(trees, longest, cases, sums.cells, sites=kind == RunKind.EVALUATE_SITES)
    stages: tuple[Stage, ...] = (_pmatrices(trees, cases), *walks, sums.reduce)
    return Program(stages, sums.n_cells, cases.records)


def update(trees: Sequence[Tree], cases: Cases | None = None) -> Program:
    """Every directional CLA of every tree."""
    cases = cases or Cases.alike(len(trees))
    newviews = planner.all_newviews(Forest(trees), cases)
    return Program((_pmatrices(trees, cases), planner.sites([newviews], cases)), 1, cases.records)


def renewal(
    before: Sequence[Tree], trees: Sequence[Tree], cases: Cases | None = None
) -> Program | None:
    """The directional CLAs that differ from those of the trees ``before``; None where none does."""
    cases = cases or Cases.alike(len(trees))
    forest = Forest(trees)
    stale = planner.is_stale(Forest(before), forest)
    if not stale.any():
        return None
    newviews = planner.stale_newviews(forest, stale, cases)
    one, other = forest.siblings
    edges = forest.edge[np.concatenate([one[stale], other[stale]])]
    branch = np.flatnonzero(np.bincount(edges)).astype(np.int32)
    number = branch // np.int32(forest.n_edges)
    matrices = planner.pmatrix_records(len(trees) * forest.n_edges, number, cases, branch)
    stages = (PMatrices(matrices), planner.sites([newviews], cases))
    return Program(stages, 1, cases.records)


def derivatives(trees: Sequence[Tree], cases: Cases | None = None) -> Program:
    """Every directional CLA, lnL (sum n), and d1, d2 of every branch (sums from len(trees))."""
    cases = cases or Cases.alike(len(trees))
    number, edges = _numbers(trees), trees[0].n_edges
    forest = Forest(trees)
    sums = sums_of(np.tile(number, 2), np.repeat([1, 2 * edges], len(trees)), cases)
    of_tree, of_branches = np.split(sums.cells, 2)
    derive = planner.branch_records(forest, cases)
    derive["cell"] = (of_branches[:, None] + 2 * np.arange(edges, dtype=np.int32)).ravel()
    ends = derive[::edges].copy()
    ends["cell"] = of_tree
    pieces = [
        planner.all_newviews(forest, cases),
        _at_edges(RunKind.EVALUATE, ends),
        _at_edges(RunKind.DERIVE, derive),
    ]
    stages = (_pmatrices(trees, cases), planner.sites(pieces, cases), sums.reduce)
    return Program(stages, sums.n_cells, cases.records)


def smoothing(trees: Sequence[Tree], max_passes: int, cases: Cases | None = None) -> Program:
    """Simultaneous Newton steps on all branches until no tree gains; a group is a tree.

    Where lengths are not linked a group is a part of a tree, part by part.
    """
    cases = cases or Cases.alike(len(trees))
    count, edges, number = len(trees), trees[0].n_edges, _numbers(trees)
    groups = planner.group_records(
        GroupKind.DIAGONAL, number * edges, edges, number, count + 2 * number * edges
    )
    once = derivatives(trees, cases)
    groups = groups_by_part(groups, cases, count * edges, count * (1 + 2 * edges))
    stages = (*once.stages, Optimise(groups), Repeat(0, max_passes, len(groups)))
    return Program(stages, once.cells, cases.records)


def join(
    trees: Sequence[Tree],
    number: Int32,
    prunes: Int32,
    passes: int,
    cases: Cases | None = None,
) -> tuple[Program, Float64]:
    """Newton on the branch that each prune leaves behind; a group is a prune."""
    cases = cases or Cases.alike(len(trees))
    left, right = siblings(prunes)
    twin, edge = np.stack([t.twin for t in trees]), np.stack([t.edge for t in trees])
    count, rank = len(prunes), cases.rank[number]
    index = np.arange(count, dtype=np.int32)
    sums = sums_of(np.tile(number, 2), np.repeat([1, 2], count), cases)
    derive: Records = np.empty(count, contract.EDGE)
    derive["x"] = planner.operands(trees[0], twin[number, left], rank)
    derive["y"] = planner.operands(trees[0], twin[number, right], rank)
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
    lengths = np.stack([t.lengths for t in trees])
    start = lengths[number, ..., edge[number, left]] + lengths[number, ..., edge[number, right]]
    return Program(stages, sums.n_cells, cases.records), start.T.ravel()


def scores(
    trees: Sequence[Tree], scan: ScanTasks, cases: Cases | None = None
) -> tuple[Program, Float64]:
    """The lnL of every insertion of a scan; sum n is output n."""
    cases = cases or Cases.alike(len(trees))
    plan = planner.scan_records(trees, scan, cases)
    sums = sums_of(_trees_of(scan)[scan.wanted], 1, cases)
    steps = plan.steps
    if sums.cells is not sums.sums:  # trees on different parts share cells
        for field in ("left_output", "right_output"):
            output = steps[field]
            steps[field] = np.where(output >= 0, sums.cells[output], NO_CELL)
    stages: tuple[Stage, ...] = (
        PMatrices(plan.pmatrices), Scan(plan.tasks, steps), sums.reduce,
    )  # fmt: skip
    return Program(stages, sums.n_cells, cases.records), plan.lengths


def near_vectors(
    trees: Sequence[Tree], scan: ScanTasks, base: int, cases: Cases | None = None
) -> tuple[Program, Float64]:
    """The near vector of every output of a scan, kept in slots from ``base`` on."""
    cases = cases or Cases.alike(len(trees))
    plan = planner.scan_records(trees, scan, cases, first_output=base)
    stages = (PMatrices(plan.pmatrices), Scan(plan.tasks, plan.steps, stores=True))
    return Program(stages, 1, cases.records), plan.lengths


def tripods(
    trees: Sequence[Tree],
    scan: ScanTasks,
    base: int,
    passes: int,
    cases: Cases | None = None,
) -> tuple[Program, Float64]:
    """Joint Newton around every output of a scan, from the near vectors in slots from ``base``.

    Starts from the target edge split in half and the pendant length as it is.
    """
    cases = cases or Cases.alike(len(trees))
    step = scan.wanted
    task = np.searchsorted(scan.first_step, step, side="right") - 1
    number, count = scan.tree[task], len(step)
    rank = cases.rank[number]
    twin, edge = np.stack([t.twin for t in trees]), np.stack([t.edge for t in trees])
    lengths = np.stack([t.lengths for t in trees])
    index = np.arange(count, dtype=np.int32)
    sums = sums_of(number, TRIPOD_CELLS, cases)
    records: Records = np.empty(count, contract.TRIPOD)
    records["near"] = base + index
    records["far"] = planner.operands(trees[0], scan.far[step], rank)
    records["pendant"] = planner.operands(trees[0], twin[number, scan.prune[task]], rank)
    for leg, field in enumerate(("near_p", "far_p", "pendant_p")):
        records[field] = cases.matrices(3 * index + np.int32(leg), number)
    cases.give(records, number)
    records["cell"] = sums.cells
    records["group"] = NO_CELL if cases.unlinked else index
    half = lengths[number, ..., edge[number, scan.far[step]]] / 2
    pendant = lengths[number, ..., edge[number, scan.prune[task]]]
    start = np.moveaxis(np.stack([half, half, pendant], axis=-1), 0, -2)
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


def _trees_of(scan: ScanTasks) -> Int32:
    """int32[steps]: the tree of every step."""
    trees: Int32 = np.repeat(scan.tree, np.diff(scan.first_step))
    return trees


def _pmatrices(trees: Sequence[Tree], cases: Cases) -> PMatrices:
    """P matrices of every branch of every tree."""
    edges = trees[0].n_edges
    number = np.repeat(_numbers(trees), edges)
    return PMatrices(planner.pmatrix_records(len(number), number, cases))
