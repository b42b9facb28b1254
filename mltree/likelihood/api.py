"""What the search asks of the likelihood: trees in, log-likelihoods and lengths out.

Several trees of the same taxa may stand side by side, each with its own model; they share every
launch. Lengths are expected substitutions per site, lnL are natural logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mltree.contract import TRIPOD_CELLS, Control, GroupKind, RunKind
from mltree.likelihood import planner
from mltree.likelihood.engine import Engine
from mltree.likelihood.model_rows import model_rows
from mltree.likelihood.planner import Runs
from mltree.likelihood.program import (
    Optimise,
    PMatrices,
    Program,
    Reduce,
    Repeat,
    Scan,
    Sites,
    Tripods,
)
from mltree.likelihood.scan_tasks import ScanTasks
from mltree.model.eigen import ModelArrays
from mltree.tree.topology import Tree, siblings

__all__ = ["Likelihood"]

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

MAX_PASSES = 100
"""Passes of one smoothing. SEARCH.md saw 2 to 7 between rounds; the bound stops a limit cycle."""

TRIPOD_PASSES = 8
"""Joint Newton steps around an insertion point; as many as 2 loops x 4 steps of the prototype."""

JOIN_PASSES = 8
"""Newton steps on the branch that a pruned subtree leaves behind."""

LOCAL_EPSILON = 1e-3
"""Local optimisations stop below this gain in lnL: well under the 0.05 that a move must gain."""

_NO_CONTROL = np.zeros((0, len(Control) + 1))


class Likelihood:
    """The likelihood of trees over one alignment, computed by one engine."""

    def __init__(self, engine: Engine, length_bounds: tuple[float, float]) -> None:
        self.engine = engine
        self._min_length, self._max_length = length_bounds
        self._rows = np.empty((0, 0))
        self._resident: tuple[bytes, ...] = ()

    def log_likelihoods(self, trees: Sequence[Tree], models: Sequence[ModelArrays]) -> Float64:
        """f64[n]: lnL of every tree under its model."""
        batch = max(1, self.engine.max_slots // planner.slots_of(trees[0]))
        parts = [
            self._log_likelihoods(trees[i : i + batch], models[i : i + batch])
            for i in range(0, len(trees), batch)
        ]
        return np.concatenate(parts)

    def site_log_likelihoods(self, tree: Tree, model: ModelArrays) -> Float64:
        """f64[L]: lnL of every pattern."""
        self._log_likelihoods([tree], [model], RunKind.EVALUATE_SITES)
        return self.engine.site_log_likelihoods()

    def derivatives(self, tree: Tree, model: ModelArrays) -> tuple[float, Float64, Float64]:
        """lnL, and f64[E] first and second derivatives of lnL in every branch length."""
        self._load([model])
        stages = self._derivative_stages([tree])
        result = self.engine.run(Program(stages, 1 + 2 * tree.n_edges), tree.lengths, _NO_CONTROL)
        self._remember([tree])
        slope, curve = result.sums[1:].reshape(-1, 2).T
        return float(result.sums[0]), slope, curve

    def smooth(
        self,
        trees: Sequence[Tree],
        models: Sequence[ModelArrays],
        epsilon: float,
        max_passes: int = MAX_PASSES,
    ) -> Float64:
        """f64[n]: lnL after optimising all branch lengths, which change in place.

        Simultaneous guarded Newton steps on the device; never ends worse than it started.
        """
        batch = max(1, self.engine.max_slots // planner.slots_of(trees[0]))
        parts = [
            self._smooth(trees[i : i + batch], models[i : i + batch], epsilon, max_passes)
            for i in range(0, len(trees), batch)
        ]
        return np.concatenate(parts)

    def insertions(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], scan: ScanTasks
    ) -> Float64:
        """f64[outputs]: lnL of every insertion of the scan, the target edge split in half."""
        self._update(trees, models)
        plan = planner.scan_records(trees, scan)
        stages = (
            PMatrices(plan.pmatrices),
            Scan(plan.tasks, plan.steps),
            Reduce(0, scan.outputs),
        )
        return self.engine.run(Program(stages, scan.outputs), plan.lengths, _NO_CONTROL).sums

    def refine(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], scan: ScanTasks
    ) -> tuple[Float64, Float64]:
        """lnL f64[outputs] and lengths f64[outputs, 3] (near, far, pendant) of every insertion,
        after a joint Newton optimisation of the three branches around it."""
        self._update(trees, models)
        base = len(trees) * planner.slots_of(trees[0])
        room = max(1, self.engine.max_slots - base)
        lnl, lengths = np.empty(scan.outputs), np.empty((scan.outputs, 3))
        for part, outputs in _split(scan, room):
            lnl[outputs], lengths[outputs] = self._refine(trees, part, base)
        return lnl, lengths

    def join_lengths(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], number: Int32, prunes: Int32
    ) -> Float64:
        """f64[n]: best length of the branch that remains where each prune was taken out.

        ``number`` int32[n]: index of the tree; ``prunes`` int32[n]: half-edges at the pruning
        points that face the pruned subtrees.
        """
        self._update(trees, models)
        left, right = siblings(prunes)
        twin, edge = np.stack([t.twin for t in trees]), np.stack([t.edge for t in trees])
        count = len(prunes)
        index = np.arange(count, dtype=np.int32)
        derive = np.empty(count, planner.contract.EDGE)
        derive["x"] = planner.operands(trees[0], twin[number, left], number)
        derive["y"] = planner.operands(trees[0], twin[number, right], number)
        derive["length"] = index
        derive["model"] = number
        derive["cell"] = count + 2 * index
        evaluate = derive.copy()
        evaluate["cell"] = index
        runs = ((RunKind.EVALUATE, evaluate), (RunKind.DERIVE, derive))
        groups = planner.group_records(GroupKind.DIAGONAL, index, 1, index, count + 2 * index)
        program = Program(
            (
                PMatrices(planner.pmatrix_records(index, number)),
                Sites(runs),
                Reduce(0, 3 * count),
                Optimise(groups, alone=True),
                Repeat(0, JOIN_PASSES, count),
            ),
            3 * count,
        )
        lengths = np.stack([t.lengths for t in trees])
        start = lengths[number, edge[number, left]] + lengths[number, edge[number, right]]
        control = planner.control_records(count, LOCAL_EPSILON, JOIN_PASSES)
        return self.engine.run(program, self._clip(start), control).lengths

    def _clip(self, lengths: Float64) -> Float64:
        clipped: Float64 = np.clip(lengths, self._min_length, self._max_length)
        return clipped

    def _load(self, models: Sequence[ModelArrays]) -> None:
        rows = model_rows(models)
        if not np.array_equal(rows, self._rows):
            self._rows = rows
            self.engine.load_models(rows)

    def _log_likelihoods(
        self,
        trees: Sequence[Tree],
        models: Sequence[ModelArrays],
        kind: RunKind = RunKind.EVALUATE,
    ) -> Float64:
        self._load(models)
        self._resident = ()
        program = traversal_program(trees, kind)
        return self.engine.run(program, _lengths(trees), _NO_CONTROL).sums

    def _derivative_stages(self, trees: Sequence[Tree]) -> tuple[PMatrices, Sites, Reduce]:
        edges = trees[0].n_edges
        every = np.arange(edges, dtype=np.int32)
        count = len(trees)
        evaluate = [planner.edge_records(t, every[:1], n, n, 1) for n, t in enumerate(trees)]
        derive = [
            planner.edge_records(t, every, n, count + 2 * n * edges, 2)
            for n, t in enumerate(trees)
        ]
        runs: Runs = [
            *planner.all_newviews(trees),
            (RunKind.EVALUATE, np.concatenate(evaluate)),
            (RunKind.DERIVE, np.concatenate(derive)),
        ]
        return (
            PMatrices(_all_pmatrices(trees)),
            Sites(tuple(runs)),
            Reduce(0, count * (1 + 2 * edges)),
        )

    def _smooth(
        self,
        trees: Sequence[Tree],
        models: Sequence[ModelArrays],
        epsilon: float,
        max_passes: int,
    ) -> Float64:
        self._load(models)
        count, edges = len(trees), trees[0].n_edges
        number = np.arange(count, dtype=np.int32)
        groups = planner.group_records(
            GroupKind.DIAGONAL, number * edges, edges, number, count + 2 * number * edges
        )
        stages = (
            *self._derivative_stages(trees),
            Optimise(groups),
            Repeat(0, max_passes, count),
        )
        control = planner.control_records(count, epsilon, max_passes)
        program = Program(stages, count * (1 + 2 * edges))
        result = self.engine.run(program, self._clip(_lengths(trees)), control)
        for n, tree in enumerate(trees):
            tree.lengths[:] = result.lengths[n * edges : (n + 1) * edges]
        if result.control[:, Control.ACCEPTED].all():
            self._remember(trees)
        else:
            self._resident = ()
        return result.control[:, Control.BEST].copy()

    def _update(self, trees: Sequence[Tree], models: Sequence[ModelArrays]) -> None:
        """Make every directional CLA of the trees resident."""
        self._load(models)
        if self._resident == _fingerprint(trees, self._rows):
            return
        stages = (PMatrices(_all_pmatrices(trees)), Sites(tuple(planner.all_newviews(trees))))
        self.engine.run(Program(stages, 1), _lengths(trees), _NO_CONTROL)
        self._remember(trees)

    def _remember(self, trees: Sequence[Tree]) -> None:
        self._resident = _fingerprint(trees, self._rows)

    def _refine(
        self, trees: Sequence[Tree], scan: ScanTasks, base: int
    ) -> tuple[Float64, Float64]:
        plan = planner.scan_records(trees, scan, store_from=base)
        walk = Program((PMatrices(plan.pmatrices), Scan(plan.tasks, plan.steps)), 1)
        self.engine.run(walk, plan.lengths, _NO_CONTROL)
        program, lengths = _tripod_program(trees, scan, base)
        control = planner.control_records(scan.outputs, LOCAL_EPSILON, TRIPOD_PASSES)
        result = self.engine.run(program, self._clip(lengths), control)
        return result.control[:, Control.BEST], result.lengths.reshape(-1, 3)


def traversal_program(trees: Sequence[Tree], kind: RunKind = RunKind.EVALUATE) -> Program:
    """P matrices, a post-order traversal towards edge 0 and lnL there, for every tree."""
    edge = np.zeros(1, dtype=np.int32)
    runs: Runs = planner.newviews_towards(trees, 0)
    at = [planner.edge_records(tree, edge, n, n, 1) for n, tree in enumerate(trees)]
    runs.append((kind, np.concatenate(at)))
    runs = [(run_kind, planner.one_slot_a_node(records)) for run_kind, records in runs]
    stages = (PMatrices(_all_pmatrices(trees)), Sites(tuple(runs)), Reduce(0, len(trees)))
    return Program(stages, len(trees))


def _lengths(trees: Sequence[Tree]) -> Float64:
    return np.concatenate([tree.lengths for tree in trees])


def _all_pmatrices(trees: Sequence[Tree]) -> npt.NDArray[np.void]:
    edges = trees[0].n_edges
    models = np.repeat(np.arange(len(trees), dtype=np.int32), edges)
    return planner.pmatrix_records(np.arange(len(models), dtype=np.int32), models)


def _fingerprint(trees: Sequence[Tree], rows: Float64) -> tuple[bytes, ...]:
    parts = [rows.tobytes()]
    for tree in trees:
        parts += [tree.twin.tobytes(), tree.edge.tobytes(), tree.lengths.tobytes()]
    return tuple(parts)


def _split(scan: ScanTasks, room: int) -> list[tuple[ScanTasks, Int32]]:
    """The scan in parts of at most ``room`` outputs (a task is never cut), each with the
    indices of its outputs in the whole."""
    per_step = np.concatenate([[0], np.cumsum(scan.output >= 0)])
    ends = per_step[scan.first_step]
    parts = []
    first = 0
    while first < len(scan.prune):
        last = int(np.searchsorted(ends, ends[first] + room, side="right")) - 1
        last = max(last, first + 1)
        parts.append(_part(scan, first, last))
        first = last
    return parts


def _part(scan: ScanTasks, first: int, last: int) -> tuple[ScanTasks, Int32]:
    tasks, steps = slice(first, last), slice(scan.first_step[first], scan.first_step[last])
    output = scan.output[steps]
    scored = output >= 0
    renumbered = np.where(scored, np.cumsum(scored) - 1, -1).astype(np.int32)
    part = replace(
        scan,
        tree=scan.tree[tasks],
        prune=scan.prune[tasks],
        root=scan.root[tasks],
        join_length=scan.join_length[tasks],
        first_step=scan.first_step[first : last + 1] - scan.first_step[first],
        near=scan.near[steps],
        far=scan.far[steps],
        sibling=scan.sibling[steps],
        level_in=scan.level_in[steps],
        level_out=scan.level_out[steps],
        output=renumbered,
        outputs=int(scored.sum()),
    )
    return part, output[scored]


def _tripod_program(
    trees: Sequence[Tree], scan: ScanTasks, base: int
) -> tuple[Program, Float64]:
    """Newton around every output of a scan part, and the lengths f64[3n] that it starts from."""
    step = np.flatnonzero(scan.output >= 0)
    step = step[np.argsort(scan.output[step])]
    task = np.searchsorted(scan.first_step, step, side="right") - 1
    number, count = scan.tree[task], len(step)
    twin, edge = np.stack([t.twin for t in trees]), np.stack([t.edge for t in trees])
    lengths = np.stack([t.lengths for t in trees])
    index = np.arange(count, dtype=np.int32)
    records = np.empty(count, planner.contract.TRIPOD)
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
        Repeat(0, TRIPOD_PASSES, count),
    )
    return Program(stages, TRIPOD_CELLS * count), start.ravel()
