"""The programs of a search: which stages make a traversal, a smoothing, a scan.

Each function returns the program, and the branch lengths that it starts from where those are not
simply the trees' own. Trees of one program stand side by side, each with the model of its number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mltree import contract
from mltree.contract import TRIPOD_CELLS, GroupKind, RunKind
from mltree.likelihood import planner
from mltree.likelihood.planner import Runs
from mltree.likelihood.program import (
    Optimise,
    PMatrices,
    Program,
    Records,
    Reduce,
    Repeat,
    Scan,
    Sites,
    Tripods,
)
from mltree.likelihood.scan_tasks import ScanTasks
from mltree.likelihood.walks import walk_stages
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree, siblings

__all__ = [
    "derivatives",
    "join",
    "near_vectors",
    "scores",
    "smoothing",
    "traversal",
    "tripods",
    "update",
    "walk",
]

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]


def traversal(trees: Sequence[Tree], kind: RunKind = RunKind.EVALUATE) -> Program:
    """A post-order traversal towards edge 0 and lnL there, for every tree; cell n is tree n's."""
    runs: Runs = planner.newviews_towards(trees, 0)
    runs.append((kind, _first_branches(planner.branch_records(Forest(trees)), len(trees))))
    runs = [(run_kind, planner.one_slot_a_node(records)) for run_kind, records in runs]
    stages = (_pmatrices(trees), Sites(tuple(runs)), Reduce(0, len(trees)))
    return Program(stages, len(trees))


def walk(trees: Sequence[Tree], longest: int, kind: RunKind = RunKind.EVALUATE) -> Program:
    """LnL of every tree from walks (:func:`.walks.walk_stages`); cell n is tree n's."""
    walks = walk_stages(trees, longest, sites=kind == RunKind.EVALUATE_SITES)
    return Program((_pmatrices(trees), *walks, Reduce(0, len(trees))), len(trees))


def update(trees: Sequence[Tree]) -> Program:
    """Every directional CLA of every tree."""
    return Program((_pmatrices(trees), Sites(tuple(planner.all_newviews(Forest(trees))))), 1)


def derivatives(trees: Sequence[Tree]) -> Program:
    """Every directional CLA, lnL (cell n), and d1, d2 of every branch (cells from len(trees))."""
    count, forest = len(trees), Forest(trees)
    derive = planner.branch_records(forest)
    derive["cell"] = count + 2 * np.arange(len(derive))
    runs: Runs = [
        *planner.all_newviews(forest),
        (RunKind.EVALUATE, _first_branches(derive, count)),
        (RunKind.DERIVE, derive),
    ]
    cells = count + 2 * len(derive)
    return Program((_pmatrices(trees), Sites(tuple(runs)), Reduce(0, cells)), cells)


def smoothing(trees: Sequence[Tree], max_passes: int) -> Program:
    """Simultaneous Newton steps on all branches until no tree gains; a group is a tree."""
    count, edges = len(trees), trees[0].n_edges
    number = np.arange(count, dtype=np.int32)
    groups = planner.group_records(
        GroupKind.DIAGONAL, number * edges, edges, number, count + 2 * number * edges
    )
    once = derivatives(trees)
    stages = (*once.stages, Optimise(groups), Repeat(0, max_passes, count))
    return Program(stages, once.cells)


def join(
    trees: Sequence[Tree], number: Int32, prunes: Int32, passes: int
) -> tuple[Program, Float64]:
    """Newton on the branch that each prune leaves behind; a group is a prune."""
    left, right = siblings(prunes)
    twin, edge = np.stack([t.twin for t in trees]), np.stack([t.edge for t in trees])
    count = len(prunes)
    index = np.arange(count, dtype=np.int32)
    derive: Records = np.empty(count, contract.EDGE)
    derive["x"] = planner.operands(trees[0], twin[number, left], number)
    derive["y"] = planner.operands(trees[0], twin[number, right], number)
    derive["length"] = index
    derive["model"] = number
    derive["cell"] = count + 2 * index
    evaluate = derive.copy()
    evaluate["cell"] = index
    groups = planner.group_records(GroupKind.DIAGONAL, index, 1, index, count + 2 * index)
    stages = (
        PMatrices(planner.pmatrix_records(index, number)),
        Sites(((RunKind.EVALUATE, evaluate), (RunKind.DERIVE, derive))),
        Reduce(0, 3 * count),
        Optimise(groups, alone=True),
        Repeat(0, passes, count),
    )
    lengths = np.stack([t.lengths for t in trees])
    start = lengths[number, edge[number, left]] + lengths[number, edge[number, right]]
    return Program(stages, 3 * count), start


def scores(trees: Sequence[Tree], scan: ScanTasks) -> tuple[Program, Float64]:
    """The lnL of every insertion of a scan; cell n is output n."""
    plan = planner.scan_records(trees, scan)
    stages = (
        PMatrices(plan.pmatrices),
        Scan(plan.tasks, plan.steps),
        Reduce(0, scan.outputs),
    )
    return Program(stages, scan.outputs), plan.lengths


def near_vectors(trees: Sequence[Tree], scan: ScanTasks, base: int) -> tuple[Program, Float64]:
    """The near vector of every output of a scan, kept in slots from ``base`` on."""
    plan = planner.scan_records(trees, scan, first_output=base)
    stages = (PMatrices(plan.pmatrices), Scan(plan.tasks, plan.steps, stores=True))
    return Program(stages, 1), plan.lengths


def tripods(
    trees: Sequence[Tree], scan: ScanTasks, base: int, passes: int
) -> tuple[Program, Float64]:
    """Joint Newton around every output of a scan, from the near vectors in slots from ``base``.

    Starts from the target edge split in half and the pendant length as it is.
    """
    step = np.flatnonzero(scan.output >= 0)
    step = step[np.argsort(scan.output[step])]
    task = np.searchsorted(scan.first_step, step, side="right") - 1
    number, count = scan.tree[task], len(step)
    twin, edge = np.stack([t.twin for t in trees]), np.stack([t.edge for t in trees])
    lengths = np.stack([t.lengths for t in trees])
    index = np.arange(count, dtype=np.int32)
    records: Records = np.empty(count, contract.TRIPOD)
    records["near"] = base + index
    records["far"] = planner.operands(trees[0], scan.far[step], number)
    records["pendant"] = planner.operands(trees[0], twin[number, scan.prune[task]], number)
    for leg, field in enumerate(("near_p", "far_p", "pendant_p")):
        records[field] = 3 * index + leg
    records["model"] = number
    records["cell"] = TRIPOD_CELLS * index
    half = lengths[number, edge[number, scan.far[step]]] / 2
    start = np.stack([half, half, lengths[number, edge[number, scan.prune[task]]]], axis=1)
    groups = planner.group_records(
        GroupKind.TRIPOD, 3 * index, 3, TRIPOD_CELLS * index, TRIPOD_CELLS * index + 1
    )
    every = np.arange(3 * count, dtype=np.int32)
    stages = (
        PMatrices(planner.pmatrix_records(every, np.repeat(number, 3))),
        Tripods(records),
        Reduce(0, TRIPOD_CELLS * count),
        Optimise(groups, alone=True),
        Repeat(0, passes, count),
    )
    return Program(stages, TRIPOD_CELLS * count), start.ravel()


def _first_branches(branches: Records, trees: int) -> Records:
    """Of every tree's branches the first one; cell n is tree n's."""
    first = branches[:: len(branches) // trees].copy()
    first["cell"] = np.arange(trees)
    return first


def _pmatrices(trees: Sequence[Tree]) -> PMatrices:
    """P matrices of every branch of every tree."""
    edges = trees[0].n_edges
    models = np.repeat(np.arange(len(trees), dtype=np.int32), edges)
    return PMatrices(planner.pmatrix_records(np.arange(len(models), dtype=np.int32), models))
