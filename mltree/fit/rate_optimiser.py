"""Rates among sites fitted to profiles: Newton's steps that take no launch at all.

Of the variables of :mod:`mltree.fit.model_optimiser` they move the model's rates among sites,
and the log of a factor on the part's branch lengths; all else is held. lnL and its derivatives in
the logs of rates and weights come from :class:`mltree.models.rate_profiles.RateProfiles`; how those
depend on the variables, from differences, which cost as little.

Where patterns are many and starts several, optimisers begin on a sketch of them and go on under all
from where those end, one from each maximum: of 130 expansions of 78,794 patterns, in a choice of
models, 44 were left.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from mltree.fit.fits import Fit, around_rates
from mltree.fit.optimisers import FIRST_RADIUS, MAX_STEP, SHORTER_STEPS, Quadratic, Stencil
from mltree.fit.settings import ModelSettings
from mltree.likelihood.requests import Steps, rate_curves
from mltree.models.parameters import among_sites, bounds, variables_among_sites, vector, with_vector
from mltree.models.partitioned import SCALER_MAX, SCALER_MIN, Linkage, PartitionModel
from mltree.models.portable import exp, log, product
from mltree.models.rate_profiles import PROFILED, Curves, RateProfiles, lacking
from mltree.models.rates import Categories, FreeRates, with_invariable
from mltree.models.substitution import Model, Paired
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree

SAME_MAXIMUM = 0.25
"""Largest difference between variables of two fits, most of them logs, at one maximum."""

_TINIEST = np.finfo(np.float64).tiny


class FittedAmongSites(NamedTuple):
    """Rates among sites fitted to the patterns of a part."""

    model: Model
    scale: float
    """Factor on branch lengths."""
    lnl: float
    """Natural log; as good as the profiles are."""

    @property
    def x(self) -> Float64:
        """f64[n]: all variables, and the log of the scale."""
        return np.append(vector(self.model), math.log(self.scale))

    @property
    def categories(self) -> Categories:
        """Categories of all sites, their rates times the factor."""
        variable, p_invariant = self.model.heterogeneity.categories, self.model.p_invariant
        rates, weights = with_invariable(variable, p_invariant)
        return Categories(self.scale * rates, weights)


class Task(NamedTuple):
    """Rates among sites to fit to a part."""

    profiles: RateProfiles
    starts: Sequence[Model]
    scale: float = 1.0
    """Factor on branch lengths to begin with."""
    limits: tuple[float, float] | None = None
    """Bounds on the log of the factor; None: those of the settings."""


def fit_profiles(
    tasks: Sequence[Task], settings: ModelSettings, epsilon: float
) -> list[FittedAmongSites]:
    """Return the best maximum from the starts of each task; the optimisers share their algebra.

    An optimiser ends where no step promises ``epsilon`` (natural log units).
    """
    starts = [
        [FittedAmongSites(model, task.scale, -np.inf) for model in task.starts] for task in tasks
    ]
    ends = _optimised(tasks, starts, settings, epsilon)
    return [max(ends_of_task, key=lambda end: end.lnl) for ends_of_task in ends]


def _optimised(
    tasks: Sequence[Task],
    starts: Sequence[Sequence[FittedAmongSites]],
    settings: ModelSettings,
    epsilon: float,
) -> list[list[FittedAmongSites]]:
    """Return the ends of the optimisers from the starts of each task.

    Several starts are first optimised on a sketch of the patterns; one alone is not.
    """
    begun = dict(enumerate(starts))
    several = (n for n, starts_of_task in begun.items() if len(starts_of_task) > 1)
    sketches = {n: sketch for n in several if (sketch := tasks[n].profiles.sketch)}
    if sketches:
        rough = [tasks[n]._replace(profiles=sketch) for n, sketch in sketches.items()]
        ends = _optimised(rough, [starts[n] for n in sketches], settings, epsilon)
        begun |= zip(sketches, map(_distinct, ends), strict=True)
    optimisers = [
        [_RateOptimiser(task, start, settings, epsilon) for start in begun[n]]
        for n, task in enumerate(tasks)
    ]
    every = list(chain.from_iterable(optimisers))
    for _ in range(settings.iterations):
        by_size: dict[int, list[_RateOptimiser]] = {}
        for optimiser in every:
            if not optimiser.done:
                by_size.setdefault(optimiser.x.size, []).append(optimiser)
        for alike in by_size.values():
            _advance(alike)
    return [[optimiser.end for optimiser in of_task] for of_task in optimisers]


def _distinct(ends: Sequence[FittedAmongSites]) -> list[FittedAmongSites]:
    """Return the ends without a better one nearby; the best first."""
    distinct: list[FittedAmongSites] = []
    for end in sorted(ends, key=lambda end: -end.lnl):
        near = (np.abs(end.x - other.x).max(initial=0.0) <= SAME_MAXIMUM for other in distinct)
        if not any(near):
            distinct.append(end)
    return distinct


def _advance(optimisers: Sequence[_RateOptimiser]) -> None:
    """Take a step of optimisers with the same number of variables, or end them."""
    quadratics = Quadratic.stack([optimiser.quadratic for optimiser in optimisers])
    low = np.stack([optimiser.low - optimiser.x for optimiser in optimisers])
    high = np.stack([optimiser.high - optimiser.x for optimiser in optimisers])
    concave = quadratics.concave(low, high)
    radii = np.array([[MAX_STEP, optimiser.radius] for optimiser in optimisers]).T[..., None]
    farthest, steps = concave.summit(low, high, radii)
    gains = quadratics.gain(farthest).tolist()
    for optimiser, gain, step in zip(optimisers, gains, steps, strict=True):
        optimiser.done = not gain >= optimiser.epsilon  # or not a number
        if not optimiser.done:
            optimiser.take(step)


class _RateOptimiser:
    """The optimiser from one start."""

    def __init__(
        self, task: Task, start: FittedAmongSites, settings: ModelSettings, epsilon: float
    ) -> None:
        self._profiles, self._model = task.profiles, start.model
        x = start.x
        n = variables_among_sites(self._model) + 1
        self._held, self.x = np.split(x, [len(x) - n])
        """f64[n]: the best point so far."""
        limits = task.limits or (-settings.scale_limit, settings.scale_limit)
        every = [*bounds(self._model)[len(self._held) :], limits]
        self.low, self.high = np.array(every, np.float64).T
        self._stencil = Stencil.of(n, settings.step)
        self.epsilon = max(epsilon, n * self._profiles.blur)
        """The least that a step must promise."""
        self._lnl, self.quadratic = self._expanded(self.x)
        """lnL at x, and the expansion about it."""
        self.radius = FIRST_RADIUS
        """The longest next step."""
        self.done = False

    @property
    def end(self) -> FittedAmongSites:
        """The rates at x."""
        scale = float(exp(self.x[-1:])[0])
        model = with_vector(self._model, np.append(self._held, self.x[:-1]))
        return FittedAmongSites(model, scale, self._lnl)

    def take(self, step: Float64) -> None:
        """Take a step f64[n] if it leads up; else plan a shorter one, or none."""
        x, length = np.clip(self.x + step, self.low, self.high), float(np.abs(step).max())
        lnl, quadratic = self._expanded(x)
        if lnl > self._lnl:
            self.x, self._lnl, self.quadratic = x, lnl, quadratic
            self.radius = min(max(self.radius, 2.0 * length), MAX_STEP)
        else:
            self.radius = SHORTER_STEPS[1] * length
            self.done = length < self._stencil.step

    def _expanded(self, x: Float64) -> tuple[float, Quadratic]:
        """Return the lnL at f64[n] and the expansion about it."""
        n = x.size
        points = x + self._stencil.offsets
        rates, weights = among_sites(self._model, points[:, :-1])
        rates = rates * exp(points[:, -1:])
        here = self._profiles.expansion(Categories(rates[0], weights[0]))
        logs = log(np.concatenate([weights, rates], axis=1).clip(_TINIEST))
        slopes = (logs[1 : n + 1] - logs[n + 1 : 2 * n + 1]) / (2.0 * self._stencil.step)
        along = self._stencil.quadratic((here.gradient * logs).sum(axis=1))
        bends = product(product(slopes, here.hessian), slopes.T)
        return here.lnl, Quadratic(along.gradient, along.curvature - bends)


def scale_bounds(model: PartitionModel, scaler: float, limit: float) -> tuple[float, float]:
    """Bounds on the log of the factor on a part's branch lengths, ``limit`` at most."""
    if model.linkage == Linkage.LINKED and model.n_parts > 1:
        return 0.0, 0.0
    if model.linkage != Linkage.SCALED:
        return -limit, limit
    low, high = math.log(SCALER_MIN / scaler), math.log(SCALER_MAX / scaler)
    return min(max(low, -limit), 0.0), max(min(high, limit), 0.0)


def scales_bounds(model: PartitionModel, limit: float) -> list[tuple[float, float]]:
    """Bounds on the logs of the factors on the parts' branch lengths, ``limit`` at most."""
    return [scale_bounds(model, scaler, limit) for scaler in model.scalers.tolist()]


EPSILON_SHARE = 0.1
"""Share of an epsilon that a step must promise: many flat directions together promise little, and
with all of it optimisers on 30 sites ended 0.09 lnL short."""


# Free rates among sites, fitted before all else of a model.
#
# Free rates are many variables, on flat and bent ridges. The lnL of every pattern as a function of
# its rate has all of them at once (:mod:`mltree.models.rate_profiles`): a few traversals, where a
# stencil takes one a point. The curves are computed at rates far apart, and then where the rates of
# categories have come to stand, until they stay there.

COARSE_RATES: Float64 = np.append(PROFILED[0], PROFILED[1::2])
"""f64[J]: rates that curves are requested at first."""

NEARBY_RATES: Float64 = exp(np.array([-0.1, 0.0, 0.1]))
"""Rates that curves are requested at next, as multiples of a category's rate."""

CURVE_ROUNDS = 6
"""Most requests for curves."""


@dataclass
class _PartRates:
    """Rates among sites of a part of a fit, while they are fitted."""

    fit: int
    """Number of the fit."""
    part: int
    starts: Sequence[Model]
    """Models that optimisers begin with: one, the last end, from the second request on."""
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
    fits: Sequence[Fit], settings: ModelSettings, epsilon: float, *, around: bool = False
) -> Steps[list[dict[int, FittedAmongSites]]]:
    """Fit free rates among sites to the parts of each fit; return them by the parts' numbers.

    All else stays as it is in the fit, which is not changed; nothing is fitted where stencils take
    less time. ``epsilon``: natural log units. ``around``: fit gamma distributions beside invariable
    sites too, from starts all over.
    """
    under_way = every = [
        _PartRates(n, part, starts, FittedAmongSites(model, 1.0, -np.inf), limits)
        for n, fit in enumerate(fits)
        for part, (model, limits) in enumerate(
            zip(fit.model.models, scales_bounds(fit.model, settings.scale_limit), strict=True)
        )
        if (starts := [model] if _is_to_fit(model) else around_rates(model) if around else [])
    ]
    for _ in range(CURVE_ROUNDS):
        under_way = [rates for rates in under_way if rates.missing_rates().size]
        if not under_way:
            break
        yield from _request_curves(fits, under_way, anyway=around)
        under_way = _fitted(under_way, settings, EPSILON_SHARE * epsilon)
    fitted: list[dict[int, FittedAmongSites]] = [{} for _ in fits]
    for rates in every:
        if rates.curves is not None:
            fitted[rates.fit][rates.part] = rates.fitted
    return fitted


def _is_to_fit(model: Model) -> bool:
    """Return True if the rates are free, and the same for all classes."""
    form = model.heterogeneity
    is_free = isinstance(form, FreeRates) and not form.fixed
    return is_free and not isinstance(model.mixture, Paired)


def _fitted(
    parts: Sequence[_PartRates], settings: ModelSettings, epsilon: float
) -> list[_PartRates]:
    """Fit parts to their curves; return the parts that gained from the curves added last."""
    known = [(part, RateProfiles(part.curves)) for part in parts if part.curves is not None]
    before = [profiles.lnl(part.fitted.categories) for part, profiles in known]
    tasks = [
        Task(profiles, part.starts, part.fitted.scale, part.limits) for part, profiles in known
    ]
    gained = []
    ends = fit_profiles(tasks, settings, epsilon)
    for (part, _), end, lnl in zip(known, ends, before, strict=True):
        part.fitted, part.starts = end, [end.model]
        if end.lnl - lnl >= epsilon:
            gained.append(part)
    return gained


class _CurveRequest(NamedTuple):
    """A tree, its case, and the parts whose curves are requested, by their place in the case."""

    tree: Tree
    case: Case
    parts: dict[int, _PartRates]

    @property
    def kind(self) -> Hashable:
        """Key of requests that are made together."""
        return len(self.case.models), self.tree.lengths.ndim

    @property
    def rates(self) -> list[Float64]:
        """f64[J] of every part of the case."""
        places = range(len(self.case.models))
        return [self.parts[n].missing_rates() if n in self.parts else np.empty(0) for n in places]


def _request_curves(
    fits: Sequence[Fit], parts: Sequence[_PartRates], *, anyway: bool
) -> Steps[None]:
    """Request the curves that parts, in the order of fits, are missing."""
    kinds: dict[Hashable, list[_CurveRequest]] = {}
    for number, of_fit in groupby(parts, key=attrgetter("fit")):
        for request in _curve_requests(fits[number], list(of_fit)):
            kinds.setdefault(request.kind, []).append(request)
    for alike in kinds.values():
        trees, cases, places = zip(*alike, strict=True)
        rates = [request.rates for request in alike]
        answers = yield from rate_curves(trees, cases, rates, anyway=anyway)
        for of_request, curves in zip(places, answers, strict=True):
            for place, part in of_request.items() if curves else ():
                part.add_curves(curves[place])


def _curve_requests(fit: Fit, parts: Sequence[_PartRates]) -> list[_CurveRequest]:
    """Request curves of the whole tree, or of single parts where those are few of many."""
    case, tree = fit.case, fit.tree
    if 2 * len(parts) >= len(case.models):
        return [_CurveRequest(tree, case, {rates.part: rates for rates in parts})]
    return [
        _CurveRequest(
            tree if tree.lengths.ndim == 1 else tree.with_lengths(tree.lengths[rates.part]),
            Case((case.models[rates.part],), case.weights, case.first_part + rates.part),
            {0: rates},
        )
        for rates in parts
    ]
