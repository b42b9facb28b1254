"""The reference engine: the living definition of every operation, in NumPy and fp64.

CLAs lie as RAxML's AVX code keeps them, ``[pattern][category][state]`` (VW = 1). Each operation
reads like its formula; every device test is "device == reference".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from mltree import contract
from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64
from mltree.contract import (
    FAR_COUNT,
    NO_CELL,
    RESULT,
    ROOT_LEVEL,
    SCALE_BITS_DOUBLE,
    TRIPOD_CELLS,
)
from mltree.errors import NumericalError
from mltree.likelihood.engine import Result, Room, Weights
from mltree.likelihood.flow_slopes import divided
from mltree.likelihood.model_rows import ModelRow, RowLayout, model_rows, tables_of
from mltree.likelihood.optimise import LengthOptimiser
from mltree.likelihood.program import Program
from mltree.likelihood.stages import (
    Optimise,
    PMatrices,
    Records,
    Reduce,
    Rell,
    Repeat,
    Scan,
    Sites,
    Stage,
    Tripods,
    Walk,
)
from mltree.model.eigen import ModelArrays

__all__ = ["ReferenceEngine", "exponential"]


UNBOUNDED = 1 << 30
"""CLA slots: it has the host's memory."""

CANCELLED = 2.0**-14
"""Share of the size of a sum's terms below which they have cancelled each other."""

MOST_TERMS_OF_ONE = 20
"""Terms of e^theta for theta up to 1, beside those that lead from a state to the farthest."""

_THRESHOLD = 2.0**-SCALE_BITS_DOUBLE
_LN_SCALE = SCALE_BITS_DOUBLE * np.log(2.0)
_TRIPOD_ORDERS = (
    (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1),
    (2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1), (0, 1, 1),
)  # fmt: skip
_HESSIAN_PAIRS = ((1, 1), (2, 2), (3, 3), (1, 2), (1, 3), (2, 3))


class _Scaled:
    """A CLA: values f64[L, K, S] and scaling counts i64[L, K] (value = stored * 2^(-256 count))."""

    def __init__(self, values: Float64, counts: npt.NDArray[np.int64]) -> None:
        self.values = values
        self.counts = counts

    def times(self, other: _Scaled) -> _Scaled:
        """The elementwise product, scaled up where all states fell below 2^-256."""
        values, counts = self.values * other.values, self.counts + other.counts
        small = values.max(axis=2) < _THRESHOLD
        values[small] *= 2.0**SCALE_BITS_DOUBLE
        return _Scaled(values, counts + small)


class ReferenceEngine:
    """Interprets programs one record and one part of the patterns at a time.

    Letters: L patterns of a part, K categories, S states.
    """

    name = "NumPy reference (AVX layout, fp64)"
    room = Room(UNBOUNDED, UNBOUNDED, UNBOUNDED)

    def __init__(
        self,
        patterns: Patterns,
        categories: int,
        length_bounds: tuple[float, float],
        systems: int = 1,
    ) -> None:
        self._ranges = patterns.parts
        self.parts = len(self._ranges)
        self._tips = patterns.alphabet.tip_table[patterns.codes]
        self._tip_table = patterns.alphabet.tip_table
        self._tables = None if patterns.systems is None else tables_of(patterns.systems)
        self._row = RowLayout(len(patterns.alphabet.states), categories, systems)
        self._bounds = length_bounds
        self._cla: dict[tuple[int, int], _Scaled] = {}
        self._p: dict[int, Float64] = {}
        self._expm1: dict[int, Float64] = {}
        self._models: list[ModelRow] = []
        self._weights = patterns.weights[None].copy()
        self._site_lnl = np.zeros((1, patterns.n_patterns))

    def longest_walk(self, trees: int) -> int:  # noqa: ARG002
        """None: it takes a level at a time as well as a walk."""
        return 0

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each; patterns with eigen systems of their own have those instead."""
        self._models = self._row.unpack(model_rows(models))
        direct = np.array([model.direct for model in models]).reshape(len(models), -1)
        if self._tables is not None:
            direct = np.zeros_like(direct)  # as small as their frequencies may be
        self._is_indirect = np.repeat(direct == 0.0, self._row.categories // self._row.systems, 1)
        """bool[n, K]: of categories whose P the eigen system does not give (see `exponential`)."""

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        self._weights = rows.astype(np.float64, copy=False)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.likelihood.engine.BerthEngine.load_patterns`."""
        own = self._ranges[first_part : first_part + len(patterns.parts)]
        span = slice(own[0].start, own[-1].stop)
        if [part.stop - span.start for part in own] != [part.stop for part in patterns.parts]:
            raise ValueError("parts of other sizes")
        self._tips[:, span] = self._tip_table[patterns.codes]
        self._weights[0, span] = patterns.weights
        if self._tables is not None and patterns.systems is not None:
            for table, fresh in zip(self._tables, tables_of(patterns.systems), strict=True):
                table[span] = fresh

    def close(self) -> None:
        """Forget the CLAs."""
        self._cla = {}

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        return self._site_lnl[:rows].copy()

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.likelihood.engine.Engine`."""
        optimiser = LengthOptimiser(lengths.copy(), control.copy(), *self._bounds)
        self._lengths = optimiser.lengths
        self._cases = program.cases.tolist()
        self._cells = np.zeros((program.cells, self.parts))
        self._sums = np.zeros(program.sums)
        if program.site_rows > len(self._site_lnl):
            self._site_lnl = np.zeros((program.site_rows, self._site_lnl.shape[1]))
        at = repeats = 0
        while at < len(program.stages):
            stage = program.stages[at]
            if isinstance(stage, Repeat) and repeats < stage.times and optimiser.active:
                repeats += 1
                at = stage.to
                continue
            if isinstance(stage, Optimise):
                optimiser.step(stage.records, self._sums)
            else:
                self._stage(stage)
            at += 1
        return Result(self._sums, optimiser.lengths, optimiser.control)

    def _stage(self, stage: Stage) -> None:
        match stage:
            case PMatrices(records):
                self._each(self._make_p, records)
            case Sites():
                for parts, kind, records in stage.each():
                    for self._part in parts:
                        self._each(getattr(self, f"_{kind.name.lower()}"), records)
            case Reduce(records):
                self._each(self._reduce, records)
            case Scan(tasks, steps, stores):
                self._each_part(partial(self._scan_task, steps, stores), tasks)
            case Walk(walks, steps, _, sites):
                self._each_part(partial(self._walk, steps, sites), walks)
            case Tripods(records):
                self._each_part(self._tripod, records)
            case Rell(records):
                self._each(self._rell, records)

    @staticmethod
    def _each(operation: Callable[..., None], records: Records) -> None:
        for record in records.tolist():
            operation(*record)

    def _each_part(self, operation: Callable[..., None], records: Records) -> None:
        """Every record on every part of its case."""
        for record, number in zip(records.tolist(), records["case"].tolist(), strict=True):
            first, parts, *_ = self._cases[number]
            for self._part in range(first, first + parts):
                operation(*record)

    def _make_p(self, p: int, length: int, stride: int, case: int, model: int) -> None:
        first, parts, *_ = self._cases[case]
        for part in range(first, first + parts):
            row = self._model_of(model, part)
            time = row.rates * self._lengths[length + stride * part]
            expm1 = np.expm1(time[:, None] * row.eigenvalues)
            change = (row.right * expm1[..., None, :]) @ row.left
            made = np.maximum(np.eye(self._row.states) + change, 0.0)
            for k in np.flatnonzero(self._is_indirect[model + part]):
                made[:, k] = exponential(row.generator[:, k % row.generator.shape[1]], time[k])
            self._p[p + part] = made
            self._expm1[p + part] = expm1

    def _reduce(self, cell: int, first_sum: int, count: int, first_part: int, parts: int) -> None:
        cells = self._cells[cell : cell + count, first_part : first_part + parts]
        self._sums[first_sum : first_sum + count] = cells.sum(axis=1)
        if not np.isfinite(cells).all():
            raise NumericalError("a log-likelihood came out as NaN or infinite")
        cells[:] = 0.0  # a FLOW that follows adds to them

    def _rell(
        self, row: int, rows: int, first: int, weights: int, at: int, first_part: int, parts: int
    ) -> None:
        own = self._ranges[first_part : first_part + parts]
        span = slice(own[0].start, own[-1].stop) if own else slice(0)
        lnl = self._site_lnl[row : row + rows, span]
        products = lnl @ self._weights[first : first + weights, span].T
        self._sums[at : at + rows * weights] = products.ravel()

    def _model(self, model: int) -> ModelRow:
        """A case's model of the part at hand."""
        return self._model_of(model, self._part)

    def _model_of(self, model: int, part: int) -> ModelRow:
        own = self._ranges[part]
        tables = None if self._tables is None else [table[own] for table in self._tables]
        return self._models[model + part].of_patterns(tables)

    def _weighted(self, row: int, of_patterns: Float64) -> Float64:
        """The sum over the part's patterns f64[L, ...], under a row of weights."""
        weights = self._weights[row, self._ranges[self._part]]
        total: Float64 = weights @ of_patterns
        return total

    def _operand(self, x: int) -> _Scaled:
        if x >= 0:
            return self._cla[x, self._part]
        of_part = self._tips[~x][self._ranges[self._part]]
        tip = np.repeat(of_part[:, None, :], self._row.categories, axis=1)
        return _Scaled(tip, np.zeros(tip.shape[:2], dtype=np.int64))

    def _across(self, x: _Scaled, p: int) -> _Scaled:
        """P[p] x."""
        return _Scaled(np.einsum("lkij,lkj->lki", self._p[p + self._part], x.values), x.counts)

    def _newview(self, dst: int, left: int, left_p: int, right: int, right_p: int) -> None:
        a = self._across(self._operand(left), left_p)
        self._cla[dst, self._part] = a.times(self._across(self._operand(right), right_p))

    def _evaluate(
        self, x: int, y: int, p: int, case: int, model: int, weights: int, cell: int
    ) -> Float64:
        del case  # its part is at hand
        lnl = self._lnl_across(self._operand(x), self._across(self._operand(y), p), model)
        self._cells[cell, self._part] = self._weighted(weights, lnl)
        return lnl

    def _evaluate_sites(self, *record: int) -> None:
        self._site_lnl[record[3], self._ranges[self._part]] = self._evaluate(*record)

    def _lnl_across(self, a: _Scaled, b: _Scaled, model: int) -> Float64:
        """f64[L]: lnL of every pattern at an edge, from both sides, one of them across it."""
        row = self._model(model)
        terms = np.einsum("k,lki,lki,lki->lk", row.weights, row.frequencies, a.values, b.values)
        (likelihood,), least = _over_categories(terms[None], a.counts + b.counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            lnl: Float64 = np.log(likelihood) - least * _LN_SCALE
        return lnl

    def _derive(
        self, x: int, y: int, p: int, case: int, model: int, weights: int, cell: int
    ) -> None:
        del case  # its part is at hand
        row, part = self._model(model), model + self._part
        a, b = self._operand(x), self._operand(y)
        terms, size = self._by_eigen_system(row, a.values, b.values, self._expm1[p + self._part])
        lost = (terms[0] < CANCELLED * size) & self._is_indirect[part]
        terms = np.where(lost, self._by_generator(row, a, self._across(b, p)), terms)
        (l0, l1, l2), _ = _over_categories(terms, a.counts + b.counts)
        self._cells[cell, self._part] = self._weighted(weights, l1 / l0)
        self._cells[cell + 1, self._part] = self._weighted(weights, l2 / l0 - (l1 / l0) ** 2)

    @staticmethod
    def _by_eigen_system(
        row: ModelRow, x: Float64, y: Float64, expm1: Float64
    ) -> tuple[Float64, Float64]:
        """f64[3, L, K]: L, L' and L'' of every category; f64[L, K]: the size of L's terms."""
        sum_gamma = np.einsum("lki,lkim,lki->lkm", row.frequencies, row.right, x)
        sum_gamma *= np.einsum("lkmi,lki->lkm", row.left, y)
        same = np.einsum("lki,lki,lki->lk", row.frequencies, x, y)
        lam = row.rates[:, None] * row.eigenvalues
        change = sum_gamma * expm1
        slope = sum_gamma * lam * (expm1 + 1)
        terms = np.stack([same + change.sum(axis=2), slope.sum(axis=2), (lam * slope).sum(axis=2)])
        return row.weights * terms, row.weights * (same + np.abs(change).sum(axis=2))

    @staticmethod
    def _by_generator(row: ModelRow, x: _Scaled, seen: _Scaled) -> Float64:
        """The same f64[3, L, K] from x and P y, by Q, whose products lose nothing that is small."""
        flow = row.rates[:, None, None] * row.generator
        first = np.einsum("lkij,lkj->lki", flow, seen.values)
        orders = seen.values, first, np.einsum("lkij,lkj->lki", flow, first)
        return np.stack(
            [
                np.einsum("k,lki,lki,lki->lk", row.weights, row.frequencies, x.values, order)
                for order in orders
            ]
        )

    def _flow(
        self, x: int, y: int, length: int, stride: int, case: int, model: int, weights: int,
        cell: int, cells: int, first: int,
    ) -> None:  # fmt: skip
        row, a, b = self._model(model), self._operand(x), self._operand(y)
        where, size = self._ranges[self._part], self._row.states**2
        time = self._lengths[length + stride * self._part] * row.rates
        u = np.einsum("lkai,lki->lka", row.left, a.values)
        v = np.einsum("lkbj,lkj->lkb", row.left, b.values)
        logs = self._site_lnl[case, where, None] + (a.counts + b.counts) * _LN_SCALE
        counts = self._weights[weights, where]
        shares = np.where(counts > 0, counts, 0.0)[:, None] * row.weights * np.exp(-logs)
        joint = np.einsum("lk,lka,lkb->kab", shares, u, v) * divided(row.eigenvalues[0], time)
        of_classes = joint.reshape(self._row.systems, -1, size).sum(axis=1).ravel()
        wanted = of_classes[first : first + cells]
        self._cells[cell : cell + wanted.size, self._part] += wanted

    def _walk(
        self, steps: Records, sites: bool, tip: int, p: int, case: int, model: int, weights: int,
        cell: int, slot: int, first: int, count: int,
    ) -> None:  # fmt: skip
        waiting: list[_Scaled] = []
        for left, left_p, right, right_p in steps[first : first + count].tolist():
            b = waiting.pop() if right == RESULT else self._operand(right)
            a = waiting.pop() if left == RESULT else self._operand(left)
            waiting.append(self._across(a, left_p).times(self._across(b, right_p)))
        root = waiting.pop()
        if slot != NO_CELL:
            self._cla[slot, self._part] = root
            return
        lnl = self._lnl_across(root, self._across(self._operand(tip), p), model)
        self._cells[cell, self._part] = self._weighted(weights, lnl)
        if sites:
            self._site_lnl[case, self._ranges[self._part]] = lnl

    def _scan_task(self, steps: Records, stores: bool, *task: int) -> None:
        pendant, pendant_p, root, join_p, _, model, weights, first, count = task
        subtree = self._across(self._operand(pendant), pendant_p)
        stack = {ROOT_LEVEL: self._across(self._operand(root), join_p)}
        for level_in, *fields in steps[first : first + count].tolist():
            above, left, right = stack[level_in], fields[:5], fields[5:10]
            for target, other in ((left, right), (right, left)):
                far, full_p, half_p, level, output = target
                near = above.times(self._across(self._operand(other[0]), other[1]))
                if output != NO_CELL and stores:
                    self._cla[output, self._part] = near
                elif output != NO_CELL:
                    far_half = self._across(self._operand(far), half_p)
                    parts = (self._across(near, half_p), far_half, subtree)
                    self._cells[output, self._part] = self._insertion(parts, model, weights)
                if level >= 0:
                    stack[level] = self._across(near, full_p)

    def _insertion(
        self, parts: tuple[_Scaled, _Scaled, _Scaled], model: int, weights: int
    ) -> float:
        row = self._model(model)
        a, b, c = (part.values for part in parts)
        terms = np.einsum("k,lki,lki->lk", row.weights, row.frequencies, a * (b * c))
        (likelihood,), least = _over_categories(terms[None], sum(p.counts for p in parts))
        return float(self._weighted(weights, np.log(likelihood) - least * _LN_SCALE))

    def _tripod(
        self, near: int, far: int, pendant: int, near_p: int, far_p: int, pendant_p: int,
        case: int, model: int, weights: int, cell: int, group: int,
    ) -> None:  # fmt: skip
        del case, group  # the parts are given, and to leave it out would only save work
        row = self._model(model)
        parts = [
            self._across(self._operand(x), p)
            for x, p in ((near, near_p), (far, far_p), (pendant, pendant_p))
        ]
        flow = row.rates[:, None, None] * row.generator
        orders = []
        for part in parts:
            first = np.einsum("lkij,lkj->lki", flow, part.values)
            orders.append((part.values, first, np.einsum("lkij,lkj->lki", flow, first)))
        terms = np.stack(
            [
                np.einsum("k,lki,lki->lk", row.weights, row.frequencies,
                          orders[0][d1] * (orders[1][d2] * orders[2][d3]))
                for d1, d2, d3 in _TRIPOD_ORDERS
            ]
        )  # fmt: skip
        total, least = _over_categories(terms, sum(p.counts for p in parts))
        ratio = total / total[0]
        sums = [np.log(total[0]) - least * _LN_SCALE, *ratio[1:4]]
        sums += [ratio[4 + h] - ratio[a] * ratio[b] for h, (a, b) in enumerate(_HESSIAN_PAIRS)]
        self._cells[cell : cell + TRIPOD_CELLS, self._part] = self._weighted(
            weights, np.stack(sums, axis=1)
        )


def exponential(generators: Float64, time: float) -> Float64:
    """f64[..., S, S]: e^(Q t) by scaling and squaring, without a difference: Q + q I >= 0.

    The definition of :mod:`mltree.model.series`.
    """
    states, one = generators.shape[-1], np.eye(generators.shape[-1])
    rates = -np.diagonal(generators, axis1=-2, axis2=-1).min(axis=-1)[..., None, None]
    squarings = max(0, int(np.ceil(np.log2(max(float(rates.max()) * time, 1.0)))))
    theta = rates * (time * 0.5**squarings)
    lazy = np.maximum(generators / rates + one, 0.0)
    term = total = np.exp(-theta) * one
    for n in range(1, states + MOST_TERMS_OF_ONE):
        term = term @ lazy * (theta / n)
        total = total + term
    for _ in range(squarings):
        total = total @ total
        total /= total.sum(axis=-1, keepdims=True)
    exact: Float64 = total
    return exact


def _over_categories(
    terms: Float64, counts: npt.NDArray[np.int64] | int
) -> tuple[Float64, npt.NDArray[np.int64]]:
    """Sums f64[n, L] over the categories of f64[n, L, K], and the count that they are scaled by."""
    # A category that cannot be has no say in the scale: its count tells nothing of its size.
    counts = np.where(terms[0] != 0, counts, FAR_COUNT)
    least = counts.min(axis=1)
    scale = np.ldexp(1.0, -SCALE_BITS_DOUBLE * (counts - least[:, None]))
    return (terms * scale).sum(axis=2), least


assert len(_TRIPOD_ORDERS) == contract.TRIPOD_CELLS
