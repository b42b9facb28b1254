"""What the search asks of the likelihood: trees in, log-likelihoods and lengths out.

Trees of whatever taxa may stand side by side, each in its own case: on as many parts as the others,
under models, one a part, and a row of weights; they share every launch. Lengths are expected
substitutions per site, lnL are natural logs. Trees whose lengths are f64[parts, E] have lengths for
every part, and so has what is told of them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np

from mltree.arrays import Float64, Int32
from mltree.contract import Control, RunKind
from mltree.errors import DeviceMemoryError
from mltree.likelihood import planner, programs
from mltree.likelihood.cases import Case, Cases, distinct
from mltree.likelihood.classes import Columns, single_classes
from mltree.likelihood.engine import NO_CONTROL, Engine, Result, Weights
from mltree.likelihood.flow_slopes import flow_slopes
from mltree.likelihood.interchanges import Alternatives
from mltree.likelihood.kept_programs import KeptPrograms
from mltree.likelihood.left_out import Shares
from mltree.likelihood.passes import JOIN_PASSES, LOCAL_EPSILON, MAX_PASSES, TRIPOD_PASSES
from mltree.likelihood.program import Program
from mltree.likelihood.rate_curves import rate_curves
from mltree.likelihood.scan_tasks import ScanTasks, split
from mltree.model.eigen import ModelArrays
from mltree.model.rate_profiles import Curves
from mltree.tree.forest import Forest, Trees
from mltree.tree.topology import Tree

__all__ = ["Likelihood"]


class Likelihood:
    """The likelihood of trees over one alignment, computed by one engine."""

    def __init__(
        self,
        engine: Engine,
        length_bounds: tuple[float, float],
        columns: Columns | None = None,
        planners: int = 1,
    ) -> None:
        """``columns``: of the engine, where weights of classes are asked for.

        ``planners``: threads that may ask about the insertions into the same trees at once.
        """
        self.engine = engine
        self.planners = planners
        self._lock = threading.RLock()
        """Of the engine, and of what is known of it."""
        self._columns = columns
        self._rows: Weights = np.empty((0, 0)) if columns is None else columns.weights[None]
        """f64[R, L]: the rows of weights that cases name."""
        self._min_length, self._max_length = length_bounds
        self._models: list[tuple[ModelArrays, ...]] = []
        self._programs = KeptPrograms()
        self._resident: tuple[Forest, Cases] | None = None
        """Whose directional CLAs the engine holds."""

    def log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n]: lnL of every tree."""
        return self._in_batches(trees, cases)

    def part_log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n, parts]: lnL of every part of every tree."""
        return self._in_batches(trees, cases, by_part=True)

    def load_weights(self, rows: Weights) -> None:
        """Take rows of pattern weights f64[R, L], which cases name."""
        self._rows = rows
        self.engine.load_weights(rows)

    def close(self) -> None:
        """Give the memory back until there is more to do."""
        self.engine.close()
        self._models, self._resident = [], None

    def trees_at_once(self, trees: Sequence[Tree], cases: Sequence[Case]) -> int:
        """How many of the first of these trees are best searched side by side."""
        return self._at_once(list(map(planner.slots_of, trees)), cases, beside=1)(0)

    def site_log_likelihoods(self, tree: Tree, case: Case) -> Float64:
        """f64[L]: lnL of every pattern."""
        return np.asarray(self.site_rows([tree], [case])[0])

    def site_rows(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n, L]: lnL of every pattern of every tree, in the parts of its case."""
        longest = self.engine.longest_walk(len(trees))
        at_once = self._at_once([tree.n_tips - 2 for tree in trees], cases)

        def score(batch: slice) -> Float64:
            own = cases[batch]
            self._log_likelihoods(trees[batch], own, longest, RunKind.EVALUATE_SITES)
            return self.engine.site_log_likelihoods(len(own))

        return rows_in_batches(len(trees), at_once, score)

    def derivatives(self, tree: Tree, case: Case) -> tuple[float, Float64, Float64]:
        """lnL, and first and second derivatives of lnL in every branch length, as those."""
        rows = self._derivatives(tree, case)
        slope, curve = np.moveaxis(rows[..., 1:].reshape(*tree.lengths.shape, 2), -1, 0)
        return float(rows[..., 0].sum()), slope, curve

    def _derivatives(self, tree: Tree, case: Case, by_part: bool = False) -> Float64:
        """f64[1 + 2E]: lnL, then both derivatives of each branch; with rows, of every part."""
        table = self._load([tree], [case], by_part)
        program = self._programs.of(programs.derivatives, [tree], table)
        sums = self.run(program, tree.lengths.ravel()).sums
        self._resident = Forest([tree]), table
        return sums.reshape(table.parts, -1) if by_part or tree.lengths.ndim > 1 else sums

    def class_weights(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """The best weights of the classes of every part of every tree, all else as it is."""
        found, best = [], self._known_columns.best_weights
        for tree, case in zip(trees, cases, strict=True):
            lnls = self.class_log_likelihoods(tree, case)
            found.append(best(lnls, self._counts(tree, case), case))
        return found

    def outruns_host(self, tree: Tree) -> bool:
        """Whether one such tree fills a GPU: its lnL is told sooner than its patterns' are read."""
        return tree.n_tips <= self.engine.longest_walk(1)

    def rate_curves(self, tree: Tree, case: Case, rates: Sequence[Float64]) -> list[Curves]:
        """The patterns of every part under rates f64[J] for all of its sites."""
        counts = np.asarray(self._rows[case.weights], np.float64)
        return rate_curves(self, tree, case, rates, self._known_columns, counts)

    def flow_slopes(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """What every part's lnL gains with the rates of its classes, f64[M, S, S] each."""
        return [flow_slopes(self, tree, case) for tree, case in zip(trees, cases, strict=True)]

    @property
    def _known_columns(self) -> Columns:
        if self._columns is None:
            raise ValueError("a likelihood without columns")
        return self._columns

    def class_log_likelihoods(self, tree: Tree, case: Case) -> Float64:
        """f64[M, L]: lnL of every pattern under each class alone that its part's model has.

        Classes without weight are left out; a part with fewer has its last again.
        """
        return self.single_log_likelihoods(tree, single_classes(case))

    def single_log_likelihoods(self, tree: Tree, singles: Sequence[Case]) -> Float64:
        """f64[n, L]: lnL of every pattern in cases that differ in their categories' weights."""
        table = self.take([tree] * len(singles), singles)
        program = self._programs.of(programs.classes, [tree], table)
        self.run(program, tree.lengths.ravel())
        return self.engine.site_log_likelihoods(len(singles))

    def _counts(self, tree: Tree, case: Case) -> Float64:  # noqa: ARG002
        """f64[L]: how many sites show each pattern."""
        return np.asarray(self._rows[case.weights], np.float64)

    def smooth(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        epsilon: float,
        max_passes: int = MAX_PASSES,
        floors: Float64 | None = None,
    ) -> Float64:
        """f64[n]: lnL after optimising all branch lengths, which change in place.

        Simultaneous guarded Newton steps on the device, never to a worse end; polytomies stay.
        They may stop short where HOPE times what a step promises ends below ``floors`` f64[n].
        """
        order = dealt(cases)
        trees, cases = [trees[n] for n in order], [cases[n] for n in order]
        low = np.full(len(trees), -np.inf) if floors is None else floors[order]

        def smooth(batch: slice) -> Float64:
            return self._smooth(trees[batch], cases[batch], epsilon, max_passes, low[batch])

        at_once = self._at_once(list(map(planner.slots_of, trees)), cases)
        lnl: Float64 = np.concatenate(in_batches(len(trees), at_once, smooth))
        return lnl[np.argsort(order)]

    def insertions(self, trees: Trees, cases: Sequence[Case], scan: ScanTasks) -> Float64:
        """f64[outputs]: lnL of every insertion of the scan, the target edge split in half."""
        trees = Forest.of(trees)
        table, lnl = self.hold(trees, cases), np.empty(scan.outputs)
        for part, at in split(scan, scan.outputs, self.engine.room.scores, table):
            (made,) = self._beside(trees, cases, (*programs.scores(trees, part, table), NO_CONTROL))
            lnl[at] = made.sums.reshape(-1, part.outputs).sum(axis=0)
        return lnl

    def refine(
        self,
        trees: Trees,
        cases: Sequence[Case],
        scan: ScanTasks,
        floors: Float64 | None = None,
    ) -> tuple[Float64, Float64]:
        """Log-likelihoods f64[outputs] and lengths f64[outputs, 3] (near, far, pendant).

        A joint Newton optimisation of the three branches around every insertion; of every part by
        itself, f64[parts, outputs, 3], where they have lengths of their own.  ``floors``
        f64[outputs]: see ``smooth``.
        """
        trees = Forest.of(trees)
        table = self.hold(trees, cases)
        base, room = planner.slots_side_by_side(trees, table), self.engine.room
        lead, count = trees.lengths.shape[:-1], scan.outputs
        lnl, lengths = np.empty(count), np.empty((*lead, count, 3))
        if floors is None or lead:  # parts with lengths of their own are optimised one by one
            floors = np.full(count, -np.inf)
        alike = room.near_at_once(base)
        most = alike * self.engine.parts // table.parts
        for part, at in split(scan, most, alike, table, room.most - base):
            lnl[at], lengths[..., at, :] = self._refine(trees, cases, part, base, floors[at])
        return lnl, lengths

    def join_lengths(self, trees: Trees, cases: Sequence[Case], prunes: Int32) -> Float64:
        """f64[n]: best length of the branch that remains where each prune was taken out.

        ``prunes`` int32[n]: half-edges of the forest of the trees, at the pruning points, that face
        the pruned subtrees. f64[parts, n] where parts have lengths of their own.
        """
        trees = Forest.of(trees)
        table = self.hold(trees, cases)
        program, lengths = programs.join(trees, prunes, JOIN_PASSES, table)
        control = planner.control_records(lengths.size, LOCAL_EPSILON, JOIN_PASSES)
        (result,) = self._beside(trees, cases, (program, self.clip(lengths), control))
        return result.lengths.reshape(*trees.lengths.shape[:-1], -1)

    def optimised(self, others: Alternatives, turns: int) -> tuple[Float64, Float64]:  # noqa: ARG002
        """Best lengths f64[..., n, k] of the alternatives to a tree, and their lnL f64[n].

        turns  that are taken where sites were left out (:mod:`mltree.likelihood.turns`)
        """
        count = others.lengths.shape[-2]
        return others.newton(np.arange(count), others.lengths, [others.case] * count)

    def shares(self, cases: Sequence[Case]) -> Shares | None:  # noqa: ARG002
        """What is to be added to the site lnL of trees that are the engine's rows, if anything."""
        return None

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
        self, trees: Sequence[Tree], cases: Sequence[Case], by_part: bool = False
    ) -> Float64:
        longest = self.engine.longest_walk(len(trees))
        nodes = [tree.n_tips - 2 for tree in trees]
        # Whole trees are walked, or take turns; what they leave behind are their P matrices.
        in_pieces = 0 < longest < max(nodes)
        at_once = self._at_once(nodes, cases) if in_pieces else self._by_matrices(trees, cases)

        def score(batch: slice) -> Float64:
            own = trees[batch], cases[batch]
            return self._log_likelihoods(*own, longest, RunKind.EVALUATE, by_part)

        return np.concatenate(in_batches(len(trees), at_once, score))

    def _by_matrices(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Callable[[int], int]:
        """Tells how many trees there is room for at once if they take turns."""
        size = sum(arrays.n_categories * arrays.n_states**2 for arrays in cases[0].models)
        size *= 8 * max(tree.n_edges for tree in trees)
        most = max(tree.n_tips for tree in trees) - 2
        return lambda first: turns_at_once(most, size, cases[first:], self.engine.room)

    def hold(self, trees: Trees, cases: Sequence[Case]) -> Cases:
        """Make the directional CLAs of trees resident that are not yet, in the planner's slots."""
        with self._lock:
            forest, table = Forest.of(trees), self._load(trees, cases)
            match self._resident:
                case (before, under) if before.is_as_large(forest) and under.is_same(table):
                    if before.is_same(forest):
                        return table
                    program = programs.renewal(before, forest, table)
                case _:
                    program = self._programs.of(programs.update, forest, table)
            if program is not None:
                self.run(program, forest.lengths.ravel())
            self._resident = forest, table
            return table

    def take(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Load the models for a program that may overwrite any CLA."""
        self._resident = None
        return self._load(trees, cases)

    def run(self, program: Program, lengths: Float64, control: Float64 = NO_CONTROL) -> Result:
        """Run a program, one made elsewhere too: beside the CLAs on hold, or after ``take``."""
        try:
            return self.engine.run(program, lengths, control)
        except DeviceMemoryError:
            self._resident = None
            raise

    def clip(self, lengths: Float64) -> Float64:
        """Lengths within the bounds of an optimisation."""
        return np.asarray(np.clip(lengths, self._min_length, self._max_length))

    def _load(self, trees: Trees, cases: Sequence[Case], by_part: bool = False) -> Cases:
        """Where the trees live; their models are with the engine from then on."""
        models = distinct(cases)
        if models != self._models:  # not the very same ones: models know no other equality
            self._models = models
            self._resident = None
            self.engine.load_models([model for parts in models for model in parts])
        lengths = trees.lengths if isinstance(trees, Forest) else trees[0].lengths
        table = Cases.of(cases, unlinked=lengths.ndim > 1)
        return table.summed_by_part if by_part else table

    def _log_likelihoods(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        longest: int,
        kind: RunKind = RunKind.EVALUATE,
        by_part: bool = False,
    ) -> Float64:
        table = self._load(trees, cases, by_part)
        self._resident = None
        program = (
            self._programs.of(programs.walk, trees, table, longest, kind)
            if longest
            else self._programs.of(programs.traversal, trees, table, kind)
        )
        sums = self.run(program, _lengths(trees)).sums.reshape(-1, len(trees))
        return sums.T if by_part else sums.sum(axis=0)

    def _smooth(
        self, trees: Sequence[Tree], cases: Sequence[Case], epsilon: float, most: int, low: Float64
    ) -> Float64:
        table = self._load(trees, cases)
        program = self._programs.of(programs.smoothing, trees, table, most)
        parts = math.prod(lead := trees[0].lengths.shape[:-1])
        least = low if parts == 1 else -np.inf  # parts are optimised one by one
        control = planner.control_records(parts * len(trees), epsilon / parts, most, least)
        clipped = self.clip(_lengths(trees))
        if any(tree.n_artificial for tree in trees):
            clipped = _lengths([tree.with_lengths(self.clip(tree.lengths)) for tree in trees])
        result = self.run(program, clipped, control)
        ends = np.cumsum([tree.n_edges for tree in trees])[:-1]
        lengths = np.split(result.lengths.reshape(*lead, -1), ends, axis=-1)
        for tree, own in zip(trees, lengths, strict=True):
            tree.lengths[:] = own
        if result.control[:, Control.ACCEPTED].all():
            self._resident = Forest(trees), table
        else:
            self._resident = None
        return np.asarray(result.control[:, Control.BEST].reshape(-1, len(trees)).sum(axis=0))

    def _beside(
        self, trees: Trees, cases: Sequence[Case], *runs: tuple[Program, Float64, Float64]
    ) -> list[Result]:
        """Results of programs, one right after the other, beside the CLAs of the trees."""
        for program, *_ in runs:
            _ = program.words  # laid out before other threads have to wait
        with self._lock:
            self.hold(trees, cases)
            return [self.run(*run) for run in runs]

    def _refine(
        self, trees: Forest, cases: Sequence[Case], scan: ScanTasks, base: int, low: Float64
    ) -> tuple[Float64, Float64]:
        table = self.hold(trees, cases)
        near = programs.near_vectors(trees, scan, base, table)
        program, lengths = programs.tripods(trees, scan, base, TRIPOD_PASSES, table)
        groups = lengths.size // 3
        low = np.resize(low, groups)
        control = planner.control_records(groups, LOCAL_EPSILON, TRIPOD_PASSES, low)
        tripods = program, self.clip(lengths), control
        _, result = self._beside(trees, cases, (*near, NO_CONTROL), tripods)
        lnl = result.control[:, Control.BEST].reshape(-1, scan.outputs).sum(axis=0)
        return lnl, result.lengths.reshape(*trees.lengths.shape[:-1], -1, 3)


def _lengths(trees: Sequence[Tree]) -> Float64:
    """Those of the trees one after the other, part by part where parts have their own."""
    return np.concatenate([tree.lengths for tree in trees], axis=-1).ravel()
