"""The reference engine: the living definition of every operation, in NumPy and fp64.

CLAs lie as RAxML's AVX code keeps them, ``[pattern][category][state]`` (VW = 1). Each operation
reads like its formula; every device test is "device == reference".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.models.portable import product
from mltree.program import builders
from mltree.program.cases import Case, Cases
from mltree.program.engine import Engine, Result, Room, Weights
from mltree.program.model_rows import ModelRow, RowLayout, model_rows, tables_of
from mltree.program.program import Program
from mltree.program.stages import (
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
from mltree.system import contract
from mltree.system.arrays import Float64
from mltree.system.contract import (
    ENOUGH,
    FAR_COUNT,
    FLOW_NEAR,
    HOPE,
    LEAST_REACH,
    MAX_STEP_HALVINGS,
    MOST_GROWTH,
    MOST_MIXED,
    NO_CELL,
    RESULT,
    RIDGE,
    ROOT_LEVEL,
    SATURATED,
    SCALE_BITS_DOUBLE,
    STEP_GROWTH,
    TRIPOD_CELLS,
    UPHILL,
    Control,
    GroupKind,
)
from mltree.system.errors import NumericalError
from mltree.tree.topology import Tree

# The guarded Newton step in NumPy: what ``opencl/optimise.h`` does, for the reference engine.
#
# A group of branch lengths moves together. A better trial becomes the best and gives a new aim; a
# worse one halves the step from the best towards its aim. A group ends on its best lengths where a
# step promises less than ENOUGH of its epsilon, where it has no hope of its floor, after its last
# pass, or when the step is spent.
#
# What a step promises is the quadratic's gain, half of slope times step. It says nothing where the
# step was cut short on the way to a length far above, or where a length is so far beyond saturation
# that lnL has no slope left, only the wrong curvature.
#
# Where a step is a whole one, the last step's change goes into it as well: as much as leaves least
# of both, were lnL a quadratic (Anderson's mixing, of depth one; Walker and Ni 2011, SIAM Journal
# on Numerical Analysis 49:1715). Lengths that hang together, and those that swing about each other,
# are a matter of passes without it. Should the next trial be worse, it is the plain step that is
# halved.


class _Aim(NamedTuple):
    """Where a step of a group leads."""

    target: Float64
    promise: float
    """What lnL gains there, were it a quadratic; or loses, where bounds bend a joint step."""
    is_far: bool
    """Whether a length may be far from a maximum, whatever is promised."""
    weights: Float64
    """Of the lengths, where steps are compared: minus the second derivatives, 0 if positive."""


class LengthOptimiser:
    """The state of all groups between passes."""

    def __init__(
        self, lengths: Float64, control: Float64, min_length: float, max_length: float
    ) -> None:
        self.lengths = lengths
        self.control = control
        self.best = lengths.copy()
        self.target = lengths.copy()
        self.min_length = min_length
        self.max_length = max_length

    @property
    def active(self) -> bool:
        """Whether any group still moves."""
        return bool(self.control[:, Control.ACTIVE].any())

    def step(self, groups: npt.NDArray[np.void], sums: Float64) -> None:
        """One pass over all groups (:data:`mltree.system.contract.GROUP`), given f64[sums]."""
        for g, group in enumerate(groups):
            if self.control[g, Control.ACTIVE]:
                self._step(self.control[g], group, sums)

    def _step(self, control: Float64, group: np.void, sums: Float64) -> None:
        lnl, epsilon = sums[group["lnl_sum"]], control[Control.EPSILON]
        gain = lnl - control[Control.BEST]
        passes = control[Control.PASSES] + 1
        first = passes == 1
        better = first or gain >= 0
        span = slice(group["first_length"], group["first_length"] + group["count"])
        at_end, goes_on, following = False, better, self.target[span]
        if better:
            aim = self._aim(self.lengths[span], group, sums)
            at_end = not aim.is_far and (
                aim.promise < ENOUGH * epsilon or lnl + HOPE * aim.promise < control[Control.FLOOR]
            )
            goes_on = first or aim.is_far or gain >= epsilon * control[Control.STEP]
            is_mixed = not first and group["kind"] == GroupKind.DIAGONAL
            following = self._mixed(span, aim) if is_mixed else aim.target
            self.best[span], self.target[span] = self.lengths[span], aim.target
            control[Control.BEST] = lnl
        step = min(1.0, control[Control.STEP] * (STEP_GROWTH if goes_on else 0.5))
        spent = not goes_on and step * 2.0**MAX_STEP_HALVINGS < 1
        done = at_end or spent or passes >= control[Control.MAX_PASSES]
        if done:
            self.lengths[span] = self.best[span]
        elif step == 1:
            self.lengths[span] = following
        else:
            self.lengths[span] = self.best[span] + step * (self.target[span] - self.best[span])
        control[Control.ACTIVE] = not done
        control[Control.STEP] = step
        control[Control.PASSES] = passes
        control[Control.ACCEPTED] = better

    def _aim(self, lengths: Float64, group: np.void, sums: Float64) -> _Aim:
        """Where the lengths of a group aim."""
        first, count = group["first_sum"], group["count"]
        if group["kind"] == GroupKind.TRIPOD:
            slope, hessian = sums[first : first + 3], sums[first + 3 : first + 9]
            curve = hessian[:3]
            joint = solve_tripod(slope, hessian)
        else:
            slope, curve = sums[first : first + 2 * count].reshape(count, 2).T
            joint = None
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(curve < 0, slope / curve, np.inf)
            if group["kind"] == GroupKind.DIAGONAL:
                step = np.where(step > 0, lengths * step / (lengths + step), step)
        step = step if joint is None else joint
        newton = np.isfinite(step)
        blind = np.where(slope > 0, UPHILL * lengths, lengths / UPHILL)
        following = np.where(newton, lengths - step, blind)
        target = self._within_reach(lengths, following)
        too_far = following > MOST_GROWTH * lengths + LEAST_REACH
        far = (target != lengths) & np.where(newton, too_far, lengths > SATURATED)
        promise = np.where(newton, slope / 2, slope) * (target - lengths)
        weights = np.maximum(-curve, 0.0)
        return _Aim(target, abs(float(promise.sum())), bool(far.any()), weights)

    def _mixed(self, span: slice, aim: _Aim) -> Float64:
        """The aim, and what the last step's change adds to it."""
        lengths, before = self.lengths[span], self.target[span] - self.best[span]
        residual = aim.target - lengths
        change = residual - before
        size = float((aim.weights * change**2).sum())
        share = float((aim.weights * residual * change).sum()) / size if size > 0 else 0.0
        share = max(share, -MOST_MIXED) if share < 1 else 0.0  # steps that grow tell nothing
        return self._within_reach(lengths, aim.target - share * (aim.target - self.target[span]))

    def _within_reach(self, lengths: Float64, following: Float64) -> Float64:
        """The lengths that follow, cut to the reach of a step and to the bounds."""
        highest = MOST_GROWTH * lengths + LEAST_REACH
        reached = np.clip(following, lengths / MOST_GROWTH, highest)
        return np.asarray(np.clip(reached, self.min_length, self.max_length))


def solve_tripod(gradient: Float64, hessian: Float64) -> Float64 | None:
    """H^-1 g, f64[3], for H as (11, 22, 33, 12, 13, 23); None where -H is not positive definite.

    A length whose curvature is not negative takes no part, its step infinite: what the data say
    nothing of has one of either sign, which is rounding. To what is all but singular a ridge is
    added (:data:`mltree.system.contract.RIDGE`).
    """
    alone = ~(hessian[:3] < 0)
    first, second = np.array([[0, 0, 1], [1, 2, 2]])
    curves, gradient = np.where(alone, -1.0, hessian[:3]), np.where(alone, 0.0, gradient)
    between = np.where(alone[first] | alone[second], 0.0, hessian[3:])
    step = _cramer(gradient, np.append(curves, between), RIDGE**2)
    if step is None:
        step = _cramer(gradient, np.append(curves * (1 + RIDGE), between), 0.0)
    return None if step is None else np.where(alone, np.inf, step)


def _cramer(gradient: Float64, hessian: Float64, least: float) -> Float64 | None:
    """H^-1 g by Cramer's rule, as on the device: a step may be long, or not finite.

    None where -H is not positive definite, or its determinant at most ``least`` of its diagonal's.
    """
    a, b, c, d, e, f = hessian
    minor = a * b - d * d
    determinant = c * minor - a * f * f + 2 * d * e * f - b * e * e
    if not (a < 0 and minor > 0 and determinant < 0 and determinant < least * (a * b * c)):
        return None
    cofactors = np.array(
        [
            [b * c - f * f, e * f - c * d, d * f - b * e],
            [e * f - c * d, a * c - e * e, d * e - a * f],
            [d * f - b * e, d * e - a * f, minor],
        ]
    )
    step: Float64 = cofactors @ gradient / determinant
    return step


# How lnL changes with every entry of the rate matrices of a mixture's classes.
#
# At an edge of length t, with x and y for what is seen from its two ends, pattern l (n_l sites) has
#
#     L_l = Σ_k w_k Σ_ij π_i x_i P_k[i, j] y_j,   W_k = Σ_l n_l / L_l w_k (π x) yᵀ = ∂lnL / ∂P_k
#
# and an entry of Q moves P = V exp(Λ r t) V⁻¹ by way of divided differences (Schadt, Sinsheimer &
# Lange 1998, Genome Res. 8:222-233; Najfeld & Havel 1995, Adv. Appl. Math. 16:321-375):
#
#     ∂lnL / ∂Q = V⁻ᵀ (Σ_edges,k F_k ∘ Vᵀ W_k V⁻ᵀ) Vᵀ
#     F[a, b] = (e^{λ_a r t} - e^{λ_b r t}) / (λ_a - λ_b)
#
# where Vᵀ π x = V⁻¹ x. One such computation tells what all 189 exchangeabilities of proteins would
# gain, where differences take a traversal for each, with as many eigen systems as there are
# classes. The sum over edges is the engine's (:attr:`mltree.system.contract.RunKind.FLOW`), the
# rest done here.
#
# Letters: K categories, M classes, S states.


class Runs(Protocol):
    """What runs programs (:class:`mltree.likelihood.likelihood.Likelihood`)."""

    engine: Engine

    def take(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Load the models."""

    def run(self, program: Program, lengths: Float64) -> Result:
        """Run a program."""


def flow_slopes(likelihood: Runs, tree: Tree, case: Case) -> list[Float64]:
    """The derivative of lnL in every entry of every class's normalised Q, f64[M, S, S] a part."""
    table = likelihood.take([tree], [case]).summed_by_part
    most = max(own.n_systems * own.n_states**2 for own in case.models)
    of_class = max(own.n_states for own in case.models) ** 2
    at_once = of_class * max(1, likelihood.engine.room.cells // of_class)
    program = builders.flows(tree, most, table, at_once)
    sums = likelihood.run(program, tree.lengths.ravel()).sums
    rows = sums.reshape(len(case.models), 1 + most)[:, 1:]
    return [_in_states(own, row) for own, row in zip(case.models, rows, strict=True)]


def _in_states(arrays: ModelArrays, sums: Float64) -> Float64:
    """f64[M, S, S]: V⁻ᵀ (sums) Vᵀ, of a part's sums over edges; behind those of its classes 0."""
    shape = arrays.n_systems, arrays.n_states, arrays.n_states
    joint = sums[: np.prod(shape)].reshape(shape)
    left, right = arrays.left.reshape(shape), arrays.right.reshape(shape)
    found: Float64 = product(product(left.swapaxes(1, 2), joint), right.swapaxes(1, 2))
    return found


def divided(eigenvalues: Float64, times: Float64) -> Float64:
    """f64[K, S, S]: F, from λ f64[K, S] and r t f64[K]."""
    exponents = times[:, None] * eigenvalues
    change = np.expm1(exponents)
    apart = exponents[..., :, None] - exponents[..., None, :]
    is_near = np.abs(apart) < FLOW_NEAR
    quotient = (change[..., :, None] - change[..., None, :]) / np.where(is_near, 1.0, apart)
    series = (1 + apart / 2 * (1 + apart / 3 * (1 + apart / 4))) * (1 + change[..., None, :])
    found: Float64 = times[:, None, None] * np.where(is_near, series, quotient)
    return found


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
        """See :meth:`mltree.program.engine.ReplicateEngine.load_patterns`."""
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
        """Run a program; see :class:`mltree.program.engine.Engine`."""
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

    The definition of :mod:`mltree.models.eigen`.
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
