"""Optimisation of one part's model: its free variables and a factor on its branch lengths."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from mltree.fit.rate_optimiser import FittedAmongSites, Task, fitted_among_sites
from mltree.fit.settings import ModelSettings
from mltree.fit.trust_region import (
    MAX_STEP,
    SHORT_STEP,
    SHORTER_STEPS,
    BoxOptimiser,
    TrustRegion,
    VerifiedTrustRegion,
)
from mltree.likelihood.requests import Steps, flow_slopes, part_log_likelihoods, rate_curves
from mltree.models.eigen import ModelArrays
from mltree.models.parameters import (
    arrays_of,
    bounds,
    exchangeability_slopes,
    shared_exchangeabilities,
    variables_among_sites,
    vector,
    with_vector,
    with_vectors,
)
from mltree.models.partitioned import SCALER_MAX, SCALER_MIN, Linkage, PartitionModel
from mltree.models.portable import exp
from mltree.models.rate_profiles import PROFILED, Curves, RateProfiles, lacking
from mltree.models.rates import FreeRates
from mltree.models.substitution import Model
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree

# L-BFGS in a box, from values alone: for more variables than a stencil has points for.
#
# A full stencil of n variables has n²/2 points, 18,000 for the exchangeabilities of proteins. Here
# a launch holds one point beside the end of the next step for every variable, whose differences are
# the gradient, and the ends of shorter steps; the first launch has two a variable, for the
# curvature along each axis. Curvature between variables is learnt from the steps: L-BFGS, Nocedal &
# Wright, Numerical Optimization (2nd ed.), algorithm 7.4, with that curvature for the first matrix.

STENCIL_LIMIT = 40
"""Variables from which on L-BFGS takes the place of a full stencil."""

MEMORY = 40
"""Steps that are remembered: as many as an optimisation takes."""

MIN_CURVATURE = 0.01
"""Least curvature along an axis, lnL: so that a variable without information stays near."""


class LBFGS(BoxOptimiser):
    """An L-BFGS optimiser."""

    lengths: ClassVar[tuple[float, ...]] = 1.0, *SHORTER_STEPS
    """Lengths of the steps that are tried side by side, as shares of the whole one."""

    def __init__(
        self, start: Float64, low: Float64, high: Float64, step: float, epsilon: float
    ) -> None:
        super().__init__(start, low, high, epsilon)
        self._step = step
        self._curvature: Float64 = np.empty(0)
        """f64[n]: curvature along the axes, where it was last measured."""
        self._measures_curvature = True
        """True if the next launch measures the curvature."""
        self._is_fresh = False
        """True if the curvature was measured at x."""
        self._at: Float64 = self.x
        self._slope: Float64 | None = None
        """f64[n]: the gradient at ``_at``."""
        self._steps: list[tuple[Float64, Float64]] = []
        """Remembered steps, and the fall of the slope along each."""

    def points(self) -> Float64:
        """f64[m, n]: the end of the longest step, steps along the axes from it, other ends."""
        axes = self._step * np.eye(self.x.size)
        around = [np.zeros((1, self.x.size)), axes, *([-axes] if self._measures_curvature else [])]
        return np.concatenate(
            [self._trial_points[0] + np.concatenate(around), self._trial_points[1:]]
        )

    def update(self, values: Float64) -> None:
        """Go on from the f64[m] values at the points."""
        n = self.x.size
        around = 1 + (2 if self._measures_curvature else 1) * n
        at_ends = np.append(values[0], values[around:])
        slope = self._gradient(values[:around])
        self._remember(self._trial_points[0], slope)
        best = int(at_ends.argmax())
        lengths = np.abs(self._trial_points - self.x).max(axis=1, initial=0.0)
        if len(self._trial_points) > 1 and at_ends[best] <= self.value:
            self.radius = SHORTER_STEPS[0] * lengths[-1]
        else:
            self._is_fresh = self._measures_curvature and best == 0
            self.x, self.value = self._trial_points[best], float(at_ends[best])
            longer = min(2.0 * max(self.radius, lengths[0]), MAX_STEP)
            self.radius = longer if best == 0 else lengths[best]
            self._at, self._slope = (self.x, slope) if best == 0 else (self._at, self._slope)
        self._measures_curvature = False
        if best == 0 or not np.array_equal(self._trial_points[best], self.x):
            self._plan()
        else:
            self._trial_points = self.x[None]

    def _gradient(self, values: Float64) -> Float64:
        """f64[n] at the middle, from values there, up every axis and perhaps down."""
        n, h = self.x.size, self._step
        up = (values[1 : n + 1] - values[0]) / h
        if self._measures_curvature:
            down = (values[0] - values[n + 1 :]) / h
            slope: Float64 = (up + down) / 2
            self._curvature = np.maximum(
                (down - up) / h, np.maximum(MIN_CURVATURE, np.abs(slope) / MAX_STEP)
            )
            return slope
        forward: Float64 = up + self._curvature * (h / 2)
        return forward

    def _remember(self, end: Float64, slope: Float64) -> None:
        """Remember how the slope changed on the way to the end of a step, where it fell."""
        if self._slope is None:
            return
        step, fall = end - self._at, self._slope - slope
        bend = (step * fall).sum()
        if bend > MIN_CURVATURE * (step * step).sum():
            self._steps = [*self._steps, (step, fall)][-MEMORY:]

    def _plan(self) -> None:
        """Plan the next steps, or stop; variables that the slope would push out are held."""
        slope = self._slope
        if slope is None:
            raise ValueError("no slope is known")
        held = ((self.x <= self.low) & (slope <= 0)) | ((self.x >= self.high) & (slope >= 0))
        slope = np.where(held, 0.0, slope)
        move = np.where(held, 0.0, self._uphill(slope))
        longest = np.abs(move).max(initial=0.0)
        predicted_gain = self.predicted_gain = float((slope * move).sum() / 2)
        is_over = predicted_gain < self._epsilon or self.radius < self._step**2
        if is_over and not self._is_fresh:
            self._measures_curvature, self._trial_points = True, self.x[None]
            return
        self.converged = predicted_gain < self._epsilon
        self.done = bool(is_over)
        move = move * min(1.0, self.radius / max(longest, np.finfo(np.float64).tiny))
        shares = np.array(self.lengths)
        self._trial_points = np.clip(self.x + shares[:, None] * move, self.low, self.high)

    def _uphill(self, slope: Float64) -> Float64:
        """f64[n]: the slope times the approximate inverse of the curvature (two-loop recursion)."""
        rest, shares = slope.copy(), []
        for step, fall in reversed(self._steps):
            share = (step * rest).sum() / (step * fall).sum()
            shares.append(share)
            rest -= share * fall
        move: Float64 = rest / self._curvature
        for (step, fall), share in zip(self._steps, reversed(shares), strict=True):
            move += step * (share - (fall * move).sum() / (step * fall).sum())
        return move


class GradientLBFGS(LBFGS):
    """L-BFGS with a known gradient, so that a launch holds but the end of a step.

    The first matrix is so near that hardly a whole step fails (none of 112, GTR20+C10+G4, 8 x 200):
    shorter ones beside it would be computed in vain.
    """

    lengths = (1.0,)

    def points(self) -> Float64:
        """f64[1, n]: the end of the next step; at first the start."""
        return self._trial_points

    def update(self, values: Float64) -> None:
        """Move to the end of the step, or plan a shorter step if it is no better."""
        (end,), length = (
            self._trial_points,
            float(np.abs(self._trial_points - self.x).max(initial=0.0)),
        )
        if values[0] <= self.value:
            self.radius = SHORTER_STEPS[1] * length
            self._plan()
            return
        self.x, self.value = end, float(values[0])
        self.radius = min(2.0 * max(self.radius, length), MAX_STEP)

    @property
    def needs_gradient(self) -> bool:
        """True if the gradient at x is not known yet."""
        return self._at is not self.x or self._slope is None

    def set_gradient(self, slope: Float64, curvature: Float64) -> None:
        """Go on from the gradient f64[n] and the approximate curvature along each axis f64[n]."""
        self._curvature = np.maximum(curvature, MIN_CURVATURE)
        self._remember(self.x, slope)
        self._at, self._slope = self.x, slope
        self._measures_curvature, self._is_fresh = False, True
        self._plan()


def scale_bounds(model: PartitionModel, scaler: float, limit: float) -> tuple[float, float]:
    """Bounds on the log of the factor on a part's branch lengths, ``limit`` at most."""
    if model.linkage == Linkage.LINKED and model.n_parts > 1:
        return 0.0, 0.0
    if model.linkage != Linkage.SCALED:
        return -limit, limit
    low, high = math.log(SCALER_MIN / scaler), math.log(SCALER_MAX / scaler)
    return min(max(low, -limit), 0.0), max(min(high, limit), 0.0)


def optima_of(optimisers: Sequence[PartOptimiser]) -> tuple[list[Model], Float64]:
    """Return the best model of every optimiser, and the factors on lengths f64[n]."""
    ends = [optimiser.end for optimiser in optimisers]
    models = with_vectors([optimiser.model for optimiser in optimisers], [end[:-1] for end in ends])
    return models, exp(np.array([end[-1] for end in ends]))


class PartOptimiser:
    """The optimiser of one part: its free variables, in terms of models and scales."""

    def __init__(
        self,
        model: Model,
        scale: tuple[float, float],
        settings: ModelSettings,
        epsilon: float,
        curvature: Float64 | None = None,
        fitted_rates: FittedAmongSites | None = None,
    ) -> None:
        """``curvature``: of the free variables, f64[n, n], as an optimiser nearby left it.

        ``fitted_rates``: rates among sites to begin with, fitted to the rest of the model.
        """
        self.model = model
        """The model as it started."""
        low, high = np.array([*bounds(model), scale], dtype=np.float64).T
        shared = shared_exchangeabilities(model)  # share_exchangeabilities has moved them
        low[:shared] = high[:shared]
        self._free = np.flatnonzero(high > low)
        self._start: Float64 = np.append(vector(model), 0.0)
        """f64[variables]: the free and the fixed ones, the scale last."""
        self.optimiser = self._optimise(
            low[self._free], high[self._free], settings.step, epsilon, curvature, fitted_rates
        )
        self.points = 0
        """Number of points that were asked for last."""

    def _optimise(
        self,
        low: Float64,
        high: Float64,
        step: float,
        epsilon: float,
        curvature: Float64 | None,
        fitted_rates: FittedAmongSites | None,
    ) -> TrustRegion | LBFGS:
        starts = self._start[None, self._free]
        if fitted_rates is not None:
            new = np.append(vector(fitted_rates.model), math.log(fitted_rates.scale))[
                None, self._free
            ]
            if (far := np.abs(new - starts).max()) > step:
                starts = np.concatenate([new, starts])
            others = len(self._start) - 1 - variables_among_sites(self.model)
            if self._free.min(initial=others) >= others:  # nothing else is free but the scale
                return VerifiedTrustRegion(fitted_rates.lnl, starts, low, high, step, epsilon)
            curvature = curvature if far < SHORT_STEP else None
        if len(low) < STENCIL_LIMIT:
            return TrustRegion(starts, low, high, step, epsilon, curvature)
        return LBFGS(starts, low, high, step, epsilon)

    @property
    def done(self) -> bool:
        """True once the optimiser has ended."""
        return self.optimiser.done

    @property
    def value(self) -> float:
        """LnL at the end."""
        return self.optimiser.value

    @property
    def curvature(self) -> Float64 | None:
        """f64[n, n]: minus the Hessian in the free variables, as far as it is known."""
        return self.optimiser.curvature if isinstance(self.optimiser, TrustRegion) else None

    @property
    def lacking(self) -> float:
        """Gain in lnL that a step still promises at the end; 0 at a maximum."""
        return 0.0 if self.optimiser.converged else self.optimiser.predicted_gain

    def reachable_lnl(self, times: float) -> float:
        """Return the lnL of the end if it gains so many times what a step promises."""
        predicted_gain = self.optimiser.predicted_gain
        return (
            self.optimiser.value + times * predicted_gain
            if math.isfinite(predicted_gain)
            else math.inf
        )

    def variables(self) -> Float64:
        """f64[n, variables]: points to evaluate; the end once done."""
        points = self.optimiser.x[None] if self.done else self.optimiser.points()
        self.points = len(points)
        return self._variables(points)

    @property
    def end(self) -> Float64:
        """f64[variables]: of the best model, and the log of its factor."""
        (best,) = self._variables(self.optimiser.x[None])
        end: Float64 = best
        return end

    def _variables(self, points: Float64) -> Float64:
        """f64[n, variables]: the free ones of f64[n, free] beside the fixed ones."""
        every = np.tile(self._start, (len(points), 1))
        every[:, self._free] = points
        return every


# The exchangeabilities that the classes of a mixture share, by quasi-Newton steps.
#
# A gradient from differences takes, for each of 189 exchangeabilities, a traversal and as many
# eigen systems as there are classes. Here it is computed (:mod:`mltree.program.ops.edges`), and
# about how lnL curves: by the changes between two states that are expected, as in expectation and
# maximisation, whose step along each axis is the first one here.

EPSILON_SHARE = 0.1
"""Share of an epsilon that a step must promise: many flat directions together promise little, and
with all of it optimisers on 30 sites ended 0.09 lnL short."""

MAX_STEPS = 200
"""Steps of an optimiser; 190 exchangeabilities on 30 sites, most of them on a bound, took 75."""


class AnyFit(Protocol):
    """A tree and a model that are optimised together (:class:`.model_optimiser.Fit`)."""

    tree: Tree
    model: PartitionModel
    weights: int
    first_part: int

    @property
    def case(self) -> Case:
        """Case of the tree under the model."""


@dataclass
class _ExchangeabilityFit:
    """The optimiser of the exchangeabilities that one part's classes share."""

    fit: AnyFit
    part: int
    optimiser: GradientLBFGS
    rest: Float64
    """f64 [variables]: the other parameters, which stay."""
    here: Case | None = None
    """Case of the fit at the optimiser's best point."""

    @classmethod
    def of(
        cls, fit: AnyFit, part: int, settings: ModelSettings, epsilon: float
    ) -> _ExchangeabilityFit:
        """Begin at the exchangeabilities that the model has."""
        model = fit.model.models[part]
        count = shared_exchangeabilities(model)
        low, high = np.array(bounds(model)[:count]).T
        start, rest = np.split(vector(model), [count])
        optimiser = GradientLBFGS(start, low, high, settings.step, EPSILON_SHARE * epsilon)
        return cls(fit, part, optimiser, rest)

    @property
    def model(self) -> Model:
        """Model of the part, as the optimiser began."""
        return self.fit.model.models[self.part]

    def vectors(self, points: Float64) -> Float64:
        """f64 [n, variables]: all parameters at some points."""
        return np.concatenate([points, np.tile(self.rest, (len(points), 1))], axis=1)

    def end(self) -> Model:
        """Return the part's model at the optimiser's best point."""
        return with_vector(self.model, self.vectors(self.optimiser.x[None])[0])

    def case(self, arrays: ModelArrays) -> Case:
        """Return the fit's case with the part under a model."""
        fit, models = self.fit, list(self.fit.model.arrays())
        models[self.part] = arrays
        return Case(tuple(models), fit.weights, fit.first_part)

    def update(self, values: Float64, cases: Sequence[Case]) -> None:
        """Update with the lnL f64 [n] of cases at the points."""
        if values.max() > self.optimiser.value:
            self.here = cases[int(values.argmax())]
        self.optimiser.update(values)

    def set_gradient(self, slopes: Float64) -> None:
        """Set the gradient from f64 [M, S, S], by the rates of classes."""
        model, case = self.end(), self.standing
        by_rate = exchangeability_slopes(model.rates, case.models[self.part].frequencies, slopes)
        count = len(self.optimiser.x)
        slope, changes = (
            np.asarray(np.bincount(model.rate_classes, values, count), np.float64)
            for values in by_rate
        )
        self.optimiser.set_gradient(slope, changes)

    @property
    def standing(self) -> Case:
        """Case at the optimiser's best point, once lnLs are known."""
        if self.here is None:
            raise ValueError("no lnL is known")
        return self.here


def share_exchangeabilities(
    fits: Sequence[AnyFit], settings: ModelSettings, epsilon: float
) -> Steps[None]:
    """Optimise what the classes of the fits' models share, where they share so much."""
    optimisers = [
        _ExchangeabilityFit.of(fit, part, settings, epsilon)
        for fit in fits
        for part, model in enumerate(fit.model.models)
        if shared_exchangeabilities(model)
    ]
    for _ in range(MAX_STEPS):
        under_way = [own for own in optimisers if not own.optimiser.done]
        if not under_way:
            break
        yield from _take_steps(under_way)
        waiting = [own for own in under_way if own.optimiser.needs_gradient]
        if waiting:
            cases = [own.standing for own in waiting]
            slopes = yield from flow_slopes([own.fit.tree for own in waiting], cases)
            for own, of_parts in zip(waiting, slopes, strict=True):
                own.set_gradient(of_parts[own.part])
    for own in optimisers:
        models = list(own.fit.model.models)
        models[own.part] = own.end()
        own.fit.model = own.fit.model.with_parts(models)


def _take_steps(optimisers: Sequence[_ExchangeabilityFit]) -> Steps[None]:
    """Move optimisers to the best ends of their next steps."""
    ends = [part.optimiser.points() for part in optimisers]
    trees = [part.fit.tree for part, points in zip(optimisers, ends, strict=True) for _ in points]
    cases = list(_cases(optimisers, ends))
    lnls = yield from part_log_likelihoods(trees, list(chain.from_iterable(cases)))
    first = 0
    for part, under in zip(optimisers, cases, strict=True):
        part.update(lnls[first : first + len(under), part.part], under)
        first += len(under)


def _cases(
    optimisers: Sequence[_ExchangeabilityFit], ends: Sequence[Float64]
) -> Iterator[list[Case]]:
    """Yield the cases of each optimiser's points; all eigen systems are computed at once."""
    wholes = [part.fit.model for part in optimisers]
    arrays_of_parts = arrays_of(
        [part.model for part in optimisers],
        [part.vectors(points) for part, points in zip(optimisers, ends, strict=True)],
        [
            np.full(len(points), whole.scalers[part.part])
            for part, whole, points in zip(optimisers, wholes, ends, strict=True)
        ],
        [whole.shapes[part.part] for part, whole in zip(optimisers, wholes, strict=True)],
    )
    for part, arrays in zip(optimisers, arrays_of_parts, strict=True):
        yield [part.case(one) for one in arrays]


# Free rates among sites, fitted before all else of a model.
#
# They are many variables, of flat and bent ways up, and how the lnL of every pattern depends on its
# rate tells all of them at once (:mod:`mltree.models.rate_profiles`): a few traversals, where a
# stencil takes one a point. The curves are asked for at rates far apart, and then where the rates
# of categories have come to stand, until they stay there.

COARSE_RATES: Float64 = np.append(PROFILED[0], PROFILED[1::2])
"""f64[J]: rates that curves are requested at first."""

NEARBY_RATES: Float64 = exp(np.array([-0.1, 0.0, 0.1]))
"""Rates that curves are requested at next, as multiples of a category's rate."""

MAX_ROUNDS = 6
"""Most requests for curves."""


@dataclass
class _RatesOfPart:
    """Rates among sites of a part of a fit, while they are fitted."""

    fit: int
    """Number of the fit."""
    number: int
    fitted: FittedAmongSites
    limits: tuple[float, float]
    """Bounds on the log of the part's scale."""
    curves: Curves | None = None

    def missing_rates(self) -> Float64:
        """f64[n]: rates at which the curves are yet to be requested."""
        rates = self.fitted.categories.rates
        around = np.multiply.outer(rates[rates > 0.0], NEARBY_RATES).ravel()
        if self.curves is not None:
            return lacking(self.curves.rates, around)
        return np.sort(np.append(COARSE_RATES, lacking(COARSE_RATES, around)))

    def add_curves(self, curves: Curves) -> None:
        """Add requested curves."""
        known = self.curves
        self.curves = curves if known is None else known.with_rates(curves.rates, curves.lnls)


def fit_among_sites(
    fits: Sequence[AnyFit], settings: ModelSettings, epsilon: float
) -> Steps[list[dict[int, FittedAmongSites]]]:
    """Fit free rates among sites to the parts of each fit; return them by the parts' numbers.

    All else stays as it is in the fit, which is not changed; nothing is fitted where stencils take
    less time. ``epsilon``: natural log units.
    """
    parts = [
        _RatesOfPart(n, number, FittedAmongSites(model, 1.0, -np.inf), limits)
        for n, fit in enumerate(fits)
        for number, (model, limits) in enumerate(_of_parts(fit.model, settings))
        if _is_to_fit(model)
    ]
    under_way = parts
    for _ in range(MAX_ROUNDS):
        under_way = [part for part in under_way if part.missing_rates().size]
        if not under_way:
            break
        yield from _request_curves(fits, under_way)
        known = [part for part in under_way if part.curves is not None]
        under_way = _fitted(known, settings, EPSILON_SHARE * epsilon)
    fitted: list[dict[int, FittedAmongSites]] = [{} for _ in fits]
    for part in parts:
        if part.curves is not None:
            fitted[part.fit][part.number] = part.fitted
    return fitted


def _of_parts(
    model: PartitionModel, settings: ModelSettings
) -> list[tuple[Model, tuple[float, float]]]:
    limit, scalers = settings.scale_limit, model.scalers.tolist()
    limits = [scale_bounds(model, scaler, limit) for scaler in scalers]
    return list(zip(model.models, limits, strict=True))


def _is_to_fit(model: Model) -> bool:
    """Return True if the rates are free, and the same for all classes."""
    form, mixture = model.heterogeneity, model.mixture
    is_free = isinstance(form, FreeRates) and not form.fixed
    return is_free and not (mixture is not None and mixture.is_paired)


def _fitted(
    parts: Sequence[_RatesOfPart], settings: ModelSettings, epsilon: float
) -> list[_RatesOfPart]:
    """Fit parts to their curves; return the parts that gained from the curves added last."""
    profiles = [RateProfiles(part.curves) for part in parts if part.curves is not None]
    before = [
        profile.lnl(part.fitted.categories) for profile, part in zip(profiles, parts, strict=True)
    ]
    tasks = [
        Task(profile, [part.fitted.model], part.fitted.scale, part.limits)
        for profile, part in zip(profiles, parts, strict=True)
    ]
    gained = []
    for part, fitted, lnl in zip(
        parts, fitted_among_sites(tasks, settings, epsilon), before, strict=True
    ):
        part.fitted = fitted
        if fitted.lnl - lnl >= epsilon:
            gained.append(part)
    return gained


class _CurveRequest(NamedTuple):
    """A tree, its case, and the parts whose curves are requested."""

    tree: Tree
    case: Case
    parts: dict[int, _RatesOfPart]

    @property
    def kind(self) -> Hashable:
        """Key of requests that are made together."""
        return len(self.case.models), self.tree.lengths.ndim

    @property
    def rates(self) -> list[Float64]:
        """f64[J] of every part of the case."""
        none = np.empty(0)
        return [
            self.parts[place].missing_rates() if place in self.parts else none
            for place in range(len(self.case.models))
        ]


def _request_curves(fits: Sequence[AnyFit], parts: Sequence[_RatesOfPart]) -> Steps[None]:
    """Request the curves that parts are missing."""
    of_fits: dict[int, list[_RatesOfPart]] = {}
    for part in parts:
        of_fits.setdefault(part.fit, []).append(part)
    kinds: dict[Hashable, list[_CurveRequest]] = {}
    for number, of_fit in of_fits.items():
        for asked in _curve_requests(fits[number], of_fit):
            kinds.setdefault(asked.kind, []).append(asked)
    for alike in kinds.values():
        trees, cases = [asked.tree for asked in alike], [asked.case for asked in alike]
        answers = yield from rate_curves(trees, cases, [asked.rates for asked in alike])
        for asked, curves in zip(alike, answers, strict=True):
            for place, part in asked.parts.items() if curves else ():
                part.add_curves(curves[place])


def _curve_requests(fit: AnyFit, parts: Sequence[_RatesOfPart]) -> list[_CurveRequest]:
    """Request curves of the whole tree, or of single parts where those are few of many."""
    case, tree = fit.case, fit.tree
    if 2 * len(parts) >= len(case.models):
        return [_CurveRequest(tree, case, {part.number: part for part in parts})]
    return [
        _CurveRequest(
            tree if tree.lengths.ndim == 1 else tree.with_lengths(tree.lengths[part.number]),
            case._replace(
                models=(case.models[part.number],), first_part=case.first_part + part.number
            ),
            {0: part},
        )
        for part in parts
    ]
