"""What the search asks of the likelihood: trees in, log-likelihoods and lengths out.

Trees of whatever taxa may stand side by side, each in its own case: on as many parts as the others,
under models, one a part, and a row of weights; they share every launch. Lengths are expected
substitutions per site, lnL are natural logs. Trees whose lengths are f64[parts, E] have lengths for
every part, and so has what is told of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from mltree.contract import Control, RunKind
from mltree.errors import DeviceMemoryError
from mltree.likelihood import planner, programs
from mltree.likelihood.batches import in_batches, trees_at_once
from mltree.likelihood.cases import Case, Cases, distinct
from mltree.likelihood.classes import Columns, best_weights, class_weights_of, single_classes
from mltree.likelihood.engine import NO_CONTROL, Engine, Result
from mltree.likelihood.program import Program
from mltree.likelihood.scan_tasks import ScanTasks, split
from mltree.model.eigen import ModelArrays
from mltree.tree.topology import Tree

__all__ = ["Likelihood"]

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

MAX_PASSES = 100
"""Passes of one smoothing. Between rounds 2 to 7 do (docs/search.md, "Branch lengths"); the bound
stops a limit cycle."""

TRIPOD_PASSES = 8
"""Joint Newton steps around an insertion point: as many as the prototype's 2 loops of 4 steps
(bench/PROTOTYPE.md)."""

JOIN_PASSES = 8
"""Newton steps on the branch that a pruned subtree leaves behind."""

LOCAL_EPSILON = 1e-3
"""Local optimisations stop below this gain in lnL: well under the 0.05 that a move must gain."""

PROGRAMS_KEPT = 8
"""Programs of the latest topologies: model and branches are optimised in turn on one tree."""


class Likelihood:
    """The likelihood of trees over one alignment, computed by one engine."""

    def __init__(
        self, engine: Engine, length_bounds: tuple[float, float], columns: Columns | None = None
    ) -> None:
        """``columns``: of the engine; without, weights of classes cannot be told."""
        self.engine = engine
        self._columns = columns
        self._rows = np.empty((0, 0)) if columns is None else columns.weights[None]
        """f64[R, L]: the rows of weights that cases name."""
        self._min_length, self._max_length = length_bounds
        self._models: list[tuple[ModelArrays, ...]] = []
        self._programs: dict[Hashable, Program] = {}
        self._resident: list[tuple[Tree, Case]] = []
        """Whose directional CLAs the engine holds."""

    def log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n]: lnL of every tree."""
        return self._in_batches(trees, cases, by_part=False)

    def part_log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n, parts]: lnL of every part of every tree."""
        return self._in_batches(trees, cases, by_part=True)

    def load_weights(self, rows: Float64) -> None:
        """Take rows of pattern weights f64[R, L], which cases name."""
        self._rows = rows
        self.engine.load_weights(rows)

    def trees_at_once(self, trees: Sequence[Tree], cases: Sequence[Case]) -> int:
        """How many of the first of these trees are best searched side by side."""
        return self._at_once(list(map(planner.slots_of, trees)), cases, beside=1)(0)

    def site_log_likelihoods(self, tree: Tree, case: Case) -> Float64:
        """f64[L]: lnL of every pattern."""
        longest = self.engine.longest_walk(1)
        self._log_likelihoods([tree], [case], longest, RunKind.EVALUATE_SITES)
        lnl: Float64 = self.engine.site_log_likelihoods()[0]
        return lnl

    def derivatives(self, tree: Tree, case: Case) -> tuple[float, Float64, Float64]:
        """lnL, and first and second derivatives of lnL in every branch length, as those."""
        table = self._load([tree], [case])
        program = self._program(programs.derivatives, [tree], table)
        result = self._run(program, tree.lengths.ravel())
        self._remember([tree], [case])
        rows = result.sums.reshape(*tree.lengths.shape[:-1], -1)
        slope, curve = np.moveaxis(rows[..., 1:].reshape(*tree.lengths.shape, 2), -1, 0)
        return float(rows[..., 0].sum()), slope, curve

    def class_weights(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """The best weights of the classes of every part of every tree, all else as it is."""
        return [self._class_weights(tree, case) for tree, case in zip(trees, cases, strict=True)]

    def _class_weights(self, tree: Tree, case: Case) -> list[Float64]:
        if self._columns is None:
            raise ValueError("a likelihood without columns")
        singles = single_classes(case)
        longest = self.engine.longest_walk(len(singles))
        at_once = self._at_once([tree.n_tips - 2] * len(singles), singles)

        def score(batch: slice) -> Float64:
            own = singles[batch]
            self._log_likelihoods([tree] * len(own), own, longest, RunKind.EVALUATE_SITES)
            return self.engine.site_log_likelihoods(len(own))

        lnls = np.concatenate(in_batches(len(singles), at_once, score))
        counts, parts = self._counts(tree, case), self._columns.parts[case.first_part :]
        found = []
        for arrays, where in zip(case.models, parts, strict=False):
            weights = class_weights_of(arrays)
            has_any = weights > 0.0
            own = lnls[: has_any.sum(), where]
            weights[has_any] = best_weights(own, counts[where], weights[has_any])
            found.append(weights)
        return found

    def _counts(self, tree: Tree, case: Case) -> Float64:  # noqa: ARG002
        """f64[L]: how many sites show each pattern."""
        counts: Float64 = self._rows[case.weights]
        return counts

    def smooth(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        epsilon: float,
        max_passes: int = MAX_PASSES,
    ) -> Float64:
        """f64[n]: lnL after optimising all branch lengths, which change in place.

        Simultaneous guarded Newton steps on the device; never ends worse than it started.
        """

        def smooth(batch: slice) -> Float64:
            return self._smooth(trees[batch], cases[batch], epsilon, max_passes)

        at_once = self._at_once(list(map(planner.slots_of, trees)), cases)
        return np.concatenate(in_batches(len(trees), at_once, smooth))

    def insertions(self, trees: Sequence[Tree], cases: Sequence[Case], scan: ScanTasks) -> Float64:
        """f64[outputs]: lnL of every insertion of the scan, the target edge split in half."""
        table = self._update(trees, cases)
        program, lengths = programs.scores(trees, scan, table)
        lnl: Float64 = self._run(program, lengths).sums.reshape(-1, scan.outputs).sum(axis=0)
        return lnl

    def refine(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        scan: ScanTasks,
        floors: Float64 | None = None,
    ) -> tuple[Float64, Float64]:
        """Log-likelihoods f64[outputs] and lengths f64[outputs, 3] (near, far, pendant).

        A joint Newton optimisation of the three branches around every insertion; of every part by
        itself, f64[parts, outputs, 3], where they have lengths of their own.  It may stop short of
        the maximum where that is sure to lie below ``floors`` f64[outputs].
        """
        table = self._update(trees, cases)
        base, room = planner.slots_side_by_side(trees, table), self.engine.room
        lead = trees[0].lengths.shape[:-1]
        lnl, lengths = np.empty(scan.outputs), np.empty((*lead, scan.outputs, 3))
        if floors is None or lead:  # parts with lengths of their own are optimised one by one
            floors = np.full(scan.outputs, -np.inf)
        most = room.near_at_once(base) * self.engine.parts // table.parts
        for part, outputs in split(scan, most, max(1, room.most - base), table):
            found = self._refine(trees, part, base, table, floors[outputs])
            lnl[outputs], lengths[..., outputs, :] = found
        return lnl, lengths

    def join_lengths(self, trees: Sequence[Tree], cases: Sequence[Case], prunes: Int32) -> Float64:
        """f64[n]: best length of the branch that remains where each prune was taken out.

        ``prunes`` int32[n]: half-edges of the forest of the trees, at the pruning points, that face
        the pruned subtrees. f64[parts, n] where parts have lengths of their own.
        """
        table = self._update(trees, cases)
        program, lengths = programs.join(trees, prunes, JOIN_PASSES, table)
        control = planner.control_records(lengths.size, LOCAL_EPSILON, JOIN_PASSES)
        found = self._run(program, self._clip(lengths), control).lengths
        return found.reshape(*trees[0].lengths.shape[:-1], -1)

    def _at_once(
        self, slots: list[int], cases: Sequence[Case], beside: int = 0
    ) -> Callable[[int], int]:
        """Tells how many trees from one on, of so many slots each, are best worked on at once."""
        table, every = Cases.of(cases), np.array(slots, np.int32)
        number = np.arange(len(slots), dtype=np.int32)

        def at_once(first: int) -> int:
            room, parts = self.engine.room, self.engine.parts
            return trees_at_once(every[first:], number[first:], table, room, parts, beside)

        return at_once

    def _in_batches(
        self, trees: Sequence[Tree], cases: Sequence[Case], *, by_part: bool
    ) -> Float64:
        longest = self.engine.longest_walk(len(trees))
        nodes = [tree.n_tips - 2 for tree in trees]
        # Walks of whole trees keep their results to themselves; but P matrices take room.
        needs_room = longest < max(nodes) or len(cases[0].models) > 1
        at_once = self._at_once(nodes, cases) if needs_room else lambda _: len(trees)

        def score(batch: slice) -> Float64:
            return self._log_likelihoods(
                trees[batch], cases[batch], longest, RunKind.EVALUATE, by_part
            )

        return np.concatenate(in_batches(len(trees), at_once, score))

    def hold(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Make every directional CLA of the trees resident, in the slots that the planner names."""
        return self._update(trees, cases)

    def take(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Load the models for a program that may overwrite any CLA."""
        self._resident = []
        return self._load(trees, cases)

    def run(self, program: Program, lengths: Float64, control: Float64 = NO_CONTROL) -> Result:
        """Run a program made elsewhere: beside the CLAs on hold, or after ``take``."""
        return self._run(program, lengths, control)

    def clip(self, lengths: Float64) -> Float64:
        """Lengths within the bounds of an optimisation."""
        return self._clip(lengths)

    def _clip(self, lengths: Float64) -> Float64:
        clipped: Float64 = np.clip(lengths, self._min_length, self._max_length)
        return clipped

    def _program(
        self,
        build: Callable[..., Program],
        trees: Sequence[Tree],
        table: Cases,
        *arguments: Hashable,
    ) -> Program:
        """The program for trees of these topologies, whatever their lengths; the last are kept.

        An engine knows a program that it was given last time, and need not take it in again.
        """
        key = (build, arguments, table.key, *_topologies(trees))
        if key not in self._programs:
            if len(self._programs) == PROGRAMS_KEPT:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = build(trees, *arguments, cases=table)
        return self._programs[key]

    def _load(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Where the trees live; their models are with the engine from then on."""
        models = distinct(cases)
        if models != self._models:  # not the very same ones: models know no other equality
            self._models = models
            self._resident = []
            self.engine.load_models([model for parts in models for model in parts])
        return Cases.of(cases, unlinked=trees[0].lengths.ndim > 1)

    def _log_likelihoods(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        longest: int,
        kind: RunKind = RunKind.EVALUATE,
        by_part: bool = False,
    ) -> Float64:
        table = self._load(trees, cases)
        table = table.summed_by_part if by_part else table
        self._resident = []
        program = (
            self._program(programs.walk, trees, table, longest, kind)
            if longest
            else self._program(programs.traversal, trees, table, kind)
        )
        sums = self._run(program, _lengths(trees)).sums.reshape(-1, len(trees))
        return sums.T if by_part else sums.sum(axis=0)

    def _smooth(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        epsilon: float,
        max_passes: int,
    ) -> Float64:
        table = self._load(trees, cases)
        program = self._program(programs.smoothing, trees, table, max_passes)
        lead = trees[0].lengths.shape[:-1]
        parts = math.prod(lead)
        control = planner.control_records(parts * len(trees), epsilon / parts, max_passes)
        result = self._run(program, self._clip(_lengths(trees)), control)
        ends = np.cumsum([tree.n_edges for tree in trees])[:-1]
        lengths = np.split(result.lengths.reshape(*lead, -1), ends, axis=-1)
        for tree, own in zip(trees, lengths, strict=True):
            tree.lengths[:] = own
        if result.control[:, Control.ACCEPTED].all():
            self._remember(trees, cases)
        else:
            self._resident = []
        best: Float64 = result.control[:, Control.BEST].reshape(-1, len(trees)).sum(axis=0)
        return best

    def _run(self, program: Program, lengths: Float64, control: Float64 = NO_CONTROL) -> Result:
        try:
            return self.engine.run(program, lengths, control)
        except DeviceMemoryError:
            self._resident = []
            raise

    def _update(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Make every directional CLA of the trees resident: those that are not yet."""
        table = self._load(trees, cases)
        before = [tree for tree, _ in self._resident]
        alike = [(case, tree.n_tips) for tree, case in self._resident]
        if alike != [(case, tree.n_tips) for tree, case in zip(trees, cases, strict=True)]:
            program: Program | None = self._program(programs.update, trees, table)
        elif all(map(_is_same, before, trees)):
            return table
        else:
            program = programs.renewal(before, trees, table)
        if program is not None:
            self._run(program, _lengths(trees))
        self._remember(trees, cases)
        return table

    def _remember(self, trees: Sequence[Tree], cases: Sequence[Case]) -> None:
        self._resident = [(tree.copy(), case) for tree, case in zip(trees, cases, strict=True)]

    def _refine(
        self, trees: Sequence[Tree], scan: ScanTasks, base: int, table: Cases, floors: Float64
    ) -> tuple[Float64, Float64]:
        walk, lengths = programs.near_vectors(trees, scan, base, table)
        self._run(walk, lengths)
        program, lengths = programs.tripods(trees, scan, base, TRIPOD_PASSES, table)
        groups = lengths.size // 3
        floors = np.resize(floors, groups)
        control = planner.control_records(groups, LOCAL_EPSILON, TRIPOD_PASSES, floors)
        result = self._run(program, self._clip(lengths), control)
        lnl = result.control[:, Control.BEST].reshape(-1, scan.outputs).sum(axis=0)
        return lnl, result.lengths.reshape(*trees[0].lengths.shape[:-1], -1, 3)


def _is_same(one: Tree, other: Tree) -> bool:
    """Whether two trees are equal, numbering and lengths included."""
    return (
        np.array_equal(one.twin, other.twin)
        and np.array_equal(one.edge, other.edge)
        and np.array_equal(one.lengths, other.lengths)
    )


def _lengths(trees: Sequence[Tree]) -> Float64:
    """Those of the trees one after the other, part by part where parts have their own."""
    return np.concatenate([tree.lengths for tree in trees], axis=-1).ravel()


def _topologies(trees: Sequence[Tree]) -> tuple[Hashable, ...]:
    """What tells the topologies from others; one tree under many models is told but once."""
    arrays = {(id(tree.twin), id(tree.edge)) for tree in trees}
    if len(arrays) == 1:
        return len(trees), _topology(trees[0])
    return tuple(map(_topology, trees))


def _topology(tree: Tree) -> bytes:
    return tree.twin.tobytes() + tree.edge.tobytes()
