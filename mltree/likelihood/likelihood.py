"""The likelihood that searches and analyses call: trees in, log-likelihoods and lengths out.

Trees over different taxa may stand side by side, each in its own case (parts, a model a part, a row
of weights); all cases have equally many parts, and all trees share every launch. Lengths are
expected substitutions per site, lnL are natural logs. Where a tree's lengths are f64[parts, E],
results are by part too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from mltree.data.patterns import Patterns
from mltree.likelihood.categories import (
    fitted_class_weights,
    parts_of,
    single_classes,
    single_rates,
)
from mltree.likelihood.interchanges import Alternatives
from mltree.likelihood.left_out import Shares
from mltree.models.eigen import ModelArrays
from mltree.models.portable import product
from mltree.models.rate_profiles import Curves
from mltree.models.rates import GRID, FittedRates, SiteRates, fitted_rates
from mltree.program import builders, planner
from mltree.program.builders import KeptPrograms
from mltree.program.cases import Case, Cases, distinct
from mltree.program.contract import Control
from mltree.program.engine import NO_CONTROL, Engine, Result, Room, Weights
from mltree.program.ops.edges import Evaluate, EvaluateSites
from mltree.program.ops.operation import Run
from mltree.program.planner import ScanTasks, split
from mltree.program.program import Program
from mltree.system.arrays import Float64, Int32, Int64
from mltree.system.errors import DeviceMemoryError
from mltree.system.values import Value
from mltree.tree.topology import Forest, Tree, Trees


class Columns(Value, eq=False):
    """The patterns of an engine: how many sites each stands for, and its part."""

    weights: Float64
    """f64[L]: sites that show each pattern."""
    parts: tuple[slice, ...]
    """The patterns of every part."""

    @classmethod
    def of(cls, groups: Sequence[Patterns]) -> Columns:
        """The columns of all groups, one after the other."""
        weights = np.concatenate([patterns.weights for patterns in groups])
        return cls(weights, tuple(columns for _, _, columns in parts_of(groups)))


# Batches: work on many trees, as many at a time as the engine has room for.

Done = TypeVar("Done")


def dealt(cases: Sequence[Case]) -> Int32:
    """int32[n]: an order of trees that takes one of each set of parts in turn.

    Trees on different parts share slots, so that most of them have room beside those that follow.
    """
    every = np.arange(len(cases), dtype=np.int32)
    turn = Cases.of(cases).before(every, np.ones_like(every))
    return np.argsort(turn, kind="stable").astype(np.int32)


def trees_at_once(
    slots: Int32, number: Int32, cases: Cases, room: Room, parts: int, beside: int = 0
) -> int:
    """Trees, of the first in ``number``, that are best worked on side by side; one at least.

    slots   int32[n]: slots of each of the trees ``number``
    parts   parts of the engine
    beside  slots needed beside the trees'
    Trees on different parts share slots, since a slot is a row over all patterns. The rows that an
    engine works on best at a time are divided among the parts, some times over, for each part is
    gone through by itself; trees on the same parts take no more of them than all, or the largest
    tree, need.
    """
    share = cases.parts / parts
    best = room.trees * min(parts // cases.parts, room.spread)
    most = 1 + int(best / (share * max(1, slots.min())))
    slots, number = slots[:most], number[:most]
    needed = np.maximum.accumulate(cases.before(number, slots) + slots)
    rows = _rows(needed, cases.records["first_part"][number], cases.parts, room)
    fits = rows <= room.most - beside
    fits &= np.cumsum(slots) * share <= best
    fits &= rows <= max(room.trees, slots.max())
    return max(1, int(np.count_nonzero(fits)))


def turns_at_once(slots: int, matrices: int, cases: Sequence[Case], room: Room) -> int:
    """Trees, of the first, that there is room for if they take turns; one at least.

    slots     slots that the trees share
    matrices  bytes of a tree's P matrices, which stay
    """
    fitting = cases[: max(1, room.matrices // matrices)]
    if not room.starts:
        return len(fitting)
    first = np.array([case.first_part for case in fitting], np.int32)
    rows = _rows(np.full(len(fitting), slots, np.int32), first, len(fitting[0].models), room)
    return max(1, int(np.count_nonzero(rows <= room.most)))


def _rows(slots: Int32, first: Int32, parts: int, room: Room) -> Float64:
    """Whole slots that the first 1 .. n trees take, f64[n].

    slots  int32[n]: slots that they need
    first  int32[n]: the first of each tree's ``parts`` parts
    """
    if not room.starts:
        return slots.astype(np.float64)
    starts = np.array(room.starts)
    taken: Float64 = starts[np.maximum.accumulate(first) + parts]
    taken = taken - starts[np.minimum.accumulate(first)]
    return slots * taken


def in_batches(
    count: int, at_once: Callable[[int], int], work: Callable[[slice], Done]
) -> list[Done]:
    """Results of ``work`` on the items 0 .. count - 1, slice by slice.

    ``at_once`` gives the items that there is room for, from an item on. It is asked before every
    batch: an engine that was refused memory has less room, and repeats the batch in smaller ones.

    Raises:
        DeviceError: there is no room for a single item.
    """
    done: list[Done] = []
    first = 0
    while first < count:
        batch = slice(first, min(count, first + at_once(first)))
        try:
            done.append(work(batch))
        except DeviceMemoryError:
            continue
        first = batch.stop
    return done


def rows_in_batches(
    count: int, at_once: Callable[[int], int], work: Callable[[slice], Float64]
) -> Float64:
    """Rows that ``work`` makes, one an item, put into one array from the first batch on."""
    whole = np.empty((0, 0))

    def put(batch: slice) -> None:
        nonlocal whole
        rows = work(batch)
        if len(rows) == count:
            whole = rows
            return
        if not whole.size:
            whole = np.empty((count, rows.shape[1]))
        whole[batch] = rows

    in_batches(count, at_once, put)
    return whole


# Limits of Newton steps on branch lengths.

MAX_PASSES = 100
"""Passes of one smoothing. Between rounds 2 to 7 do (docs/search.md, "Branch lengths"); the bound
stops a limit cycle."""

ONE_STEP = 2
"""Passes of a single step: one tells where to, the other what it gained."""

TRIPLET_PASSES = 8
"""Joint Newton steps on an insertion triplet: as many as the prototype's 2 loops of 4 steps
(bench/PROTOTYPE.md)."""

JOIN_PASSES = 8
"""Newton steps on the branch that a pruned subtree leaves behind."""

LOCAL_EPSILON = 1e-3
"""Local optimisations stop below this gain in lnL: well under the 0.05 that a move must gain."""

MOVE_EPSILON = 0.01
"""The same of the branches of a move, whose last step gains what it promises: with 1e-3 a seventh
more passes over insertion triplets led 1e-3 higher."""


class TreeLikelihood:
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
        """Guards the engine and the record of its state."""
        self._columns = columns
        self._rows: Weights = np.empty((0, 0)) if columns is None else columns.weights[None]
        """f64[R, L]: the rows of weights that cases name."""
        self._min_length, self._max_length = length_bounds
        self._models: list[tuple[ModelArrays, ...]] = []
        self._programs = KeptPrograms()
        self._resident: tuple[Forest, Cases] | None = None
        """Trees and cases whose directional CLAs the engine holds."""

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
        """Free the engine's memory; the next call takes it again."""
        self.engine.close()
        self._models, self._resident = [], None

    def trees_at_once(self, trees: Sequence[Tree], cases: Sequence[Case]) -> int:
        """Trees, of the first of these, that are best searched side by side."""
        return self._at_once(list(map(planner.slots_of, trees)), cases, beside=1)(0)

    def site_log_likelihoods(self, tree: Tree, case: Case) -> Float64:
        """f64[L]: lnL of every pattern."""
        return np.asarray(self.site_rows([tree], [case])[0])

    def site_rows(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n, L]: lnL of every pattern of every tree, in the parts of its case."""
        longest = self.engine.longest_walk(len(trees))
        at_once = self._at_once([tree.n_tips - 2 for tree in trees], cases)

        def score(batch: slice) -> Float64:
            batch_cases = cases[batch]
            self._log_likelihoods(trees[batch], batch_cases, longest, EvaluateSites)
            return self.engine.site_log_likelihoods(len(batch_cases))

        return rows_in_batches(len(trees), at_once, score)

    def derivatives(self, tree: Tree, case: Case) -> tuple[float, Float64, Float64]:
        """Log-likelihood, and its first and second derivatives in every branch length."""
        rows = self._derivatives(tree, case)
        slope, curve = np.moveaxis(rows[..., 1:].reshape(*tree.lengths.shape, 2), -1, 0)
        return float(rows[..., 0].sum()), slope, curve

    def _derivatives(self, tree: Tree, case: Case, by_part: bool = False) -> Float64:
        """f64[1 + 2E]: lnL, then both derivatives a branch; a row a part if ``by_part``."""
        table = self._load([tree], [case], by_part)
        program = self._programs.of(builders.derivatives, [tree], table)
        sums = self.run(program, tree.lengths.ravel()).sums
        self._resident = Forest([tree]), table
        return sums.reshape(table.parts, -1) if by_part or tree.lengths.ndim > 1 else sums

    def class_weights(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """Maximum-likelihood class weights of every part of every tree, all else fixed."""
        weights = []
        for tree, case in zip(trees, cases, strict=True):
            lnls = self._by_part(case, self.class_log_likelihoods(tree, case))
            counts = self._by_part(case, self._counts(tree, case))
            weights.append(fitted_class_weights(case, lnls, counts))
        return weights

    def outruns_host(self, tree: Tree) -> bool:
        """Tell if one tree fills a GPU, whose lnL then comes before site lnL are read."""
        return tree.n_tips <= self.engine.longest_walk(1)

    def rate_curves(self, tree: Tree, case: Case, rates: Sequence[Float64]) -> list[Curves]:
        """Curves of every part's patterns: lnL as a function of one rate for all of its sites.

        rates  f64[J] a part, relative to its mean rate
        """
        rows = [self.single_log_likelihoods(tree, under) for under in single_rates(case, rates)]
        lnls = self._by_part(case, np.concatenate(rows))
        counts = self._by_part(case, np.asarray(self._rows[case.weights], np.float64))
        of_parts = zip(rates, lnls, counts, strict=True)
        return [Curves(part, lnl[: len(part)], count) for part, lnl, count in of_parts]

    def flow_slopes(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """Derivatives of each part's lnL in its classes' rate matrices, f64[M, S, S] each."""
        return [self._flow_slopes(tree, case) for tree, case in zip(trees, cases, strict=True)]

    def _flow_slopes(self, tree: Tree, case: Case) -> list[Float64]:
        """The slopes of a tree (:mod:`mltree.program.ops.edges`), class by class in a few cells."""
        table = self.take([tree], [case]).summed_by_part
        most = max(arrays.n_systems * arrays.n_states**2 for arrays in case.models)
        of_class = max(arrays.n_states for arrays in case.models) ** 2
        at_once = of_class * max(1, self.engine.room.cells // of_class)
        program = builders.flows(tree, most, table, at_once)
        sums = self.run(program, tree.lengths.ravel()).sums
        rows = sums.reshape(len(case.models), 1 + most)[:, 1:]
        return [_in_states(arrays, row) for arrays, row in zip(case.models, rows, strict=True)]

    def _by_part(self, case: Case, values: Float64) -> list[Float64]:
        """The values f64[..., L] of each part of a case."""
        if self._columns is None:
            raise ValueError("a likelihood without columns")
        parts = self._columns.parts[case.first_part :][: len(case.models)]
        return [values[..., part] for part in parts]

    def class_log_likelihoods(self, tree: Tree, case: Case) -> Float64:
        """f64[M, L]: lnL of every pattern under each class alone of its part's model.

        Classes without weight are left out; a part with fewer classes repeats its last.
        """
        return self.single_log_likelihoods(tree, single_classes(case))

    def single_log_likelihoods(self, tree: Tree, singles: Sequence[Case]) -> Float64:
        """f64[n, L]: lnL of every pattern in cases that differ in their categories' weights."""
        table = self.take([tree] * len(singles), singles)
        program = self._programs.of(builders.classes, [tree], table)
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
        """Optimise all branch lengths in place and return lnL f64[n].

        Simultaneous guarded Newton steps on the device, which never end worse; polytomies stay. A
        tree may stop short once its predicted end is below ``floors`` f64[n].
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
            (made,) = self._beside(trees, cases, (*builders.scores(trees, part, table), NO_CONTROL))
            lnl[at] = made.sums.reshape(-1, part.outputs).sum(axis=0)
        return lnl

    def refine(
        self, trees: Trees, cases: Sequence[Case], scan: ScanTasks, floors: Float64 | None = None
    ) -> tuple[Float64, Float64]:
        """Insertions' lnL f64[outputs], lengths f64[outputs, 3] (proximal, distal, pendant).

        A joint Newton optimisation of the insertion triplet's three branches; where parts have
        lengths of their own each part is optimised by itself, f64[parts, outputs, 3]. ``floors``
        f64[outputs]: see :meth:`smooth`.
        """
        trees = Forest.of(trees)
        table = self.hold(trees, cases)
        base, room = planner.slots_side_by_side(trees, table), self.engine.room
        lead, count = trees.lengths.shape[:-1], scan.outputs
        lnl, lengths = np.empty(count), np.empty((*lead, count, 3))
        if floors is None or lead:  # parts with lengths of their own are optimised one by one
            floors = np.full(count, -np.inf)
        sets = self.engine.parts // table.parts
        alike = room.near_at_once(base, sets)
        most = alike * sets
        for part, at in split(scan, most, alike, table, room.most - base):
            lnl[at], lengths[..., at, :] = self._refine(trees, cases, part, base, floors[at])
        return lnl, lengths

    def join_lengths(self, trees: Trees, cases: Sequence[Case], prunes: Int32) -> Float64:
        """f64[n]: best length of the merged branch where each pruned subtree was taken out.

        ``prunes`` int32[n]: half-edges of the trees' forest, at the pruning points, that face the
        pruned subtrees. f64[parts, n] where parts have lengths of their own.
        """
        trees = Forest.of(trees)
        table = self.hold(trees, cases)
        program, lengths = builders.join(trees, prunes, JOIN_PASSES, table)
        control = planner.control_records(lengths.size, MOVE_EPSILON, JOIN_PASSES)
        (result,) = self._beside(trees, cases, (program, self.clip(lengths), control))
        return result.lengths.reshape(*trees.lengths.shape[:-1], -1)

    def optimise_alternatives(self, others: Alternatives, turns: int) -> tuple[Float64, Float64]:  # noqa: ARG002
        """Best lengths f64[..., n, k] of the alternatives to a tree, and their lnL f64[n].

        turns  turns taken where sites were left out (:mod:`mltree.likelihood.left_out`)
        """
        count = others.lengths.shape[-2]
        return others.newton(np.arange(count), others.lengths, [others.case] * count)

    def shares(self, cases: Sequence[Case]) -> Shares | None:  # noqa: ARG002
        """Corrections to the site lnL that are the engine's rows; None if there are none."""
        return None

    def _at_once(
        self, slots: list[int], cases: Sequence[Case], beside: int = 0
    ) -> Callable[[int], int]:
        """A function: how many trees, from one on, are best worked on at once.

        slots   slots of each tree
        beside  slots needed beside the trees'
        """
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
            some = trees[batch], cases[batch]
            return self._log_likelihoods(*some, longest, Evaluate, by_part)

        return np.concatenate(in_batches(len(trees), at_once, score))

    def _by_matrices(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Callable[[int], int]:
        """A function: how many trees, from one on, there is room for if they take turns."""
        size = sum(arrays.n_categories * arrays.n_states**2 for arrays in cases[0].models)
        size *= 8 * max(tree.n_edges for tree in trees)
        most = max(tree.n_tips for tree in trees) - 2
        return lambda first: turns_at_once(most, size, cases[first:], self.engine.room)

    def hold(self, trees: Trees, cases: Sequence[Case]) -> Cases:
        """Make the directional CLAs of the trees resident, in the planner's slots."""
        with self._lock:
            forest, table = Forest.of(trees), self._load(trees, cases)
            match self._resident:
                case (before, under) if before.is_as_large(forest) and under.is_same(table):
                    if before.is_same(forest):
                        return table
                    program = builders.renewal(before, forest, table)
                case _:
                    program = self._programs.of(builders.update, forest, table)
            if program is not None:
                self.run(program, forest.lengths.ravel())
            self._resident = forest, table
            return table

    def take(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Load the models for a program that may overwrite any CLA."""
        self._resident = None
        return self._load(trees, cases)

    def run(self, program: Program, lengths: Float64, control: Float64 = NO_CONTROL) -> Result:
        """Run a program, beside the resident CLAs or, after :meth:`take`, over them."""
        try:
            return self.engine.run(program, lengths, control)
        except DeviceMemoryError:
            self._resident = None
            raise

    def clip(self, lengths: Float64) -> Float64:
        """Lengths within the bounds of an optimisation."""
        return np.asarray(np.clip(lengths, self._min_length, self._max_length))

    def _load(self, trees: Trees, cases: Sequence[Case], by_part: bool = False) -> Cases:
        """Load the models of the cases, and return the table of cases."""
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
        kind: type[Run] = Evaluate,
        by_part: bool = False,
    ) -> Float64:
        table = self._load(trees, cases, by_part)
        self._resident = None
        program = self._programs.of(builders.scoring, trees, table, longest, kind)
        sums = self.run(program, lengths_of(trees)).sums.reshape(-1, len(trees))
        return sums.T if by_part else sums.sum(axis=0)

    def _smooth(
        self, trees: Sequence[Tree], cases: Sequence[Case], epsilon: float, most: int, low: Float64
    ) -> Float64:
        table, forest = self._load(trees, cases), Forest(trees)
        program = self._programs.of(builders.smoothing, forest, table, most)
        parts = math.prod(lead := trees[0].lengths.shape[:-1])
        least = low if parts == 1 else -np.inf  # parts are optimised one by one
        control = planner.control_records(parts * len(trees), epsilon / parts, most, least)
        clipped = self.clip(forest.lengths.ravel())
        if any(tree.n_artificial for tree in trees):
            clipped = lengths_of([tree.with_lengths(self.clip(tree.lengths)) for tree in trees])
        result = self.run(program, clipped, control)
        forest = forest.with_lengths(result.lengths.reshape(*lead, -1))
        for tree, row in zip(trees, forest.lengths_by_tree, strict=True):
            tree.lengths[:] = row
        is_accepted = result.control[:, Control.ACCEPTED].all()
        self._resident = (forest, table) if is_accepted else None
        return np.asarray(result.control[:, Control.BEST].reshape(-1, len(trees)).sum(axis=0))

    def _beside(
        self, trees: Trees, cases: Sequence[Case], *runs: tuple[Program, Float64, Float64]
    ) -> list[Result]:
        """Results of programs, run one right after the other beside the trees' CLAs."""
        for program, *_ in runs:
            _ = program.pieces  # laid out before other threads have to wait
        with self._lock:
            self.hold(trees, cases)
            return [self.run(*run) for run in runs]

    def _refine(
        self, trees: Forest, cases: Sequence[Case], scan: ScanTasks, base: int, low: Float64
    ) -> tuple[Float64, Float64]:
        table = self.hold(trees, cases)
        views = builders.near_vectors(trees, scan, base, table)
        program, lengths = builders.triplets(trees, scan, base, TRIPLET_PASSES, table)
        groups = lengths.size // 3
        low = np.resize(low, groups)
        control = planner.control_records(groups, MOVE_EPSILON, TRIPLET_PASSES, low)
        triplets = program, self.clip(lengths), control
        _, result = self._beside(trees, cases, (*views, NO_CONTROL), triplets)
        lnl = result.control[:, Control.BEST].reshape(-1, scan.outputs).sum(axis=0)
        return lnl, result.lengths.reshape(*trees.lengths.shape[:-1], -1, 3)


def _in_states(arrays: ModelArrays, sums: Float64) -> Float64:
    """f64[M, S, S]: V⁻ᵀ (sums) Vᵀ, of a part's sums over edges; behind those of its classes 0."""
    shape = arrays.n_systems, arrays.n_states, arrays.n_states
    joint = sums[: np.prod(shape)].reshape(shape)
    left, right = arrays.left.reshape(shape), arrays.right.reshape(shape)
    by_entry: Float64 = product(product(left.swapaxes(1, 2), joint), right.swapaxes(1, 2))
    return by_entry


def lengths_of(trees: Sequence[Tree]) -> Float64:
    """All lengths, tree after tree; part by part where parts have lengths of their own."""
    return np.concatenate([tree.lengths for tree in trees], axis=-1).ravel()


# +PSR: one rate a pattern, chosen by maximum likelihood.


class GroupingEngine(Engine, Protocol):
    """An engine that groups patterns by their rates."""

    def group(self, category: Int64) -> None:
        """Take the rate category i64[L] of every pattern; drops models and CLAs."""


class PerSiteLikelihood(TreeLikelihood):
    """TreeLikelihood of trees over patterns each of which has one of its model's rates."""

    def __init__(
        self,
        engine: GroupingEngine,
        length_bounds: tuple[float, float],
        columns: Columns,
        count: int,
    ) -> None:
        """``count``: rates of every part."""
        super().__init__(engine, length_bounds, columns)
        self._grouping, self._count = engine, count
        self._category: Int64 = np.zeros(0, np.int64)

    def group(self, rates: Sequence[SiteRates]) -> None:
        """Give every pattern the rate that ``rates``, one a part, say."""
        category = np.concatenate([form.category for form in rates])
        if not np.array_equal(category, self._category):
            self._grouping.group(category)
            self._category = category
            self._models, self._resident = [], None

    def site_rates(self, tree: Tree, case: Case) -> list[FittedRates]:
        """Maximum-likelihood rates of every part's sites, at the tree's lengths."""
        under = [
            case._replace(models=tuple(_at(arrays, rate) for arrays in case.models))
            for rate in GRID.tolist()
        ]
        lnls = self._by_part(case, self.site_rows([tree] * len(under), under))
        counts = self._by_part(case, self._rows[case.weights].astype(np.float64))
        pairs = zip(lnls, counts, strict=True)
        return [fitted_rates(lnl, count, GRID, self._count) for lnl, count in pairs]


def _at(arrays: ModelArrays, rate: float) -> ModelArrays:
    """The model with one rate for all sites."""
    return replace(arrays, rates=np.array([rate]), weights=np.ones(1))
