"""The climb of one part's model: its free variables and a factor on its branch lengths."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from mltree.fit.quasi_newton import MANY, Ascent, Guided
from mltree.fit.rate_climb import FittedAmongSites, Task, fitted_among_sites
from mltree.fit.settings import ModelSettings
from mltree.fit.trust_region import NEAR, Checked, Climb
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


def scale_bounds(model: PartitionModel, scaler: float, limit: float) -> tuple[float, float]:
    """Bounds on the log of the factor on a part's branch lengths, ``limit`` at most."""
    if model.linkage == Linkage.LINKED and model.n_parts > 1:
        return 0.0, 0.0
    if model.linkage != Linkage.SCALED:
        return -limit, limit
    low, high = math.log(SCALER_MIN / scaler), math.log(SCALER_MAX / scaler)
    return min(max(low, -limit), 0.0), max(min(high, limit), 0.0)


def ends_of(climbs: Sequence[PartClimb]) -> tuple[list[Model], Float64]:
    """The best model of every climb, and f64[n]: their factors."""
    ends = [climb.end for climb in climbs]
    models = with_vectors([climb.model for climb in climbs], [end[:-1] for end in ends])
    return models, exp(np.array([end[-1] for end in ends]))


class PartClimb:
    """The climb of one part: variables that are free, in terms of models and scales."""

    def __init__(
        self,
        model: Model,
        scale: tuple[float, float],
        settings: ModelSettings,
        epsilon: float,
        curvature: Float64 | None = None,
        told: FittedAmongSites | None = None,
    ) -> None:
        """``curvature``: of the free variables, f64[n, n], as a climb near this one left it.

        ``told``: rates among sites to begin with, which suit the rest of the model best.
        """
        self.model = model
        """As it started."""
        low, high = np.array([*bounds(model), scale], dtype=np.float64).T
        shared = shared_exchangeabilities(model)  # mltree.fit.part_climb has moved them
        low[:shared] = high[:shared]
        self._free = np.flatnonzero(high > low)
        self._start: Float64 = np.append(vector(model), 0.0)
        """f64[variables]: the free and the fixed ones, the scale last."""
        self.climb = self._climb(
            low[self._free], high[self._free], settings.step, epsilon, curvature, told
        )
        self.points = 0
        """How many were asked for last."""

    def _climb(
        self,
        low: Float64,
        high: Float64,
        step: float,
        epsilon: float,
        curvature: Float64 | None,
        told: FittedAmongSites | None,
    ) -> Climb | Ascent:
        starts = self._start[None, self._free]
        if told is not None:
            new = np.append(vector(told.model), math.log(told.scale))[None, self._free]
            if (far := np.abs(new - starts).max()) > step:
                starts = np.concatenate([new, starts])
            others = len(self._start) - 1 - variables_among_sites(self.model)
            if self._free.min(initial=others) >= others:  # nothing else is free but the scale
                return Checked(told.lnl, starts, low, high, step, epsilon)
            curvature = curvature if far < NEAR else None
        if len(low) < MANY:
            return Climb(starts, low, high, step, epsilon, curvature)
        return Ascent(starts, low, high, step, epsilon)

    @property
    def done(self) -> bool:
        """Whether there is nothing more to try."""
        return self.climb.done

    @property
    def value(self) -> float:
        """LnL at the end."""
        return self.climb.value

    @property
    def curvature(self) -> Float64 | None:
        """f64[n, n]: minus the Hessian in the free variables, as far as it is known."""
        return self.climb.curvature if isinstance(self.climb, Climb) else None

    @property
    def lacking(self) -> float:
        """LnL that a step still promises at the end; 0 where that is a maximum."""
        return 0.0 if self.climb.converged else self.climb.promise

    def hope(self, times: float) -> float:
        """LnL that the end may have, if it gains so many times what a step promises."""
        promise = self.climb.promise
        return self.climb.value + times * promise if math.isfinite(promise) else math.inf

    def variables(self) -> Float64:
        """f64[n, variables]: where lnLs are wanted; at the end once done."""
        points = self.climb.x[None] if self.done else self.climb.points()
        self.points = len(points)
        return self._variables(points)

    @property
    def end(self) -> Float64:
        """f64[variables]: of the best model, and the log of its factor."""
        (best,) = self._variables(self.climb.x[None])
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
# eigen systems as there are classes. Here it is told (:mod:`mltree.program.ops.flow`), and
# about how lnL curves: by the changes between two states that are expected, as in expectation and
# maximisation, whose step along each axis is the first one here.

CAREFUL = 0.1
"""Share of an epsilon that a step must promise: many flat directions together promise little, and
with all of it climbs on 30 sites ended 0.09 lnL short."""

MOST_STEPS = 200
"""Of a climb; 190 exchangeabilities on 30 sites, most of which end on a bound, took 75."""


class SharedFit(Protocol):
    """A tree and a model that are optimised together (:class:`.model_optimiser.Fit`)."""

    tree: Tree
    model: PartitionModel
    weights: int
    first_part: int


@dataclass
class _PartClimb:
    """The climb of one part of a fit."""

    fit: SharedFit
    part: int
    climb: Guided
    rest: Float64
    """f64 [variables]: the other parameters, which stay."""
    here: Case | None = None
    """What the fit is computed under where the climb stands."""

    @classmethod
    def of(cls, fit: SharedFit, part: int, settings: ModelSettings, epsilon: float) -> _PartClimb:
        """From the exchangeabilities that the model has."""
        model = fit.model.models[part]
        count = shared_exchangeabilities(model)
        low, high = np.array(bounds(model)[:count]).T
        start, rest = np.split(vector(model), [count])
        climb = Guided(start, low, high, settings.step, CAREFUL * epsilon)
        return cls(fit, part, climb, rest)

    @property
    def model(self) -> Model:
        """The part's, as the climb began."""
        return self.fit.model.models[self.part]

    def vectors(self, points: Float64) -> Float64:
        """f64 [n, variables]: all parameters at some points."""
        return np.concatenate([points, np.tile(self.rest, (len(points), 1))], axis=1)

    def end(self) -> Model:
        """The part's model where the climb stands."""
        return with_vector(self.model, self.vectors(self.climb.x[None])[0])

    def case(self, arrays: ModelArrays) -> Case:
        """The fit's, with the part under a model."""
        fit, models = self.fit, list(self.fit.model.arrays())
        models[self.part] = arrays
        return Case(tuple(models), fit.weights, fit.first_part)

    def note(self, values: Float64, cases: Sequence[Case]) -> None:
        """Go on from the lnL f64 [n] of cases at the points."""
        if values.max() > self.climb.value:
            self.here = cases[int(values.argmax())]
        self.climb.note(values)

    def tell(self, slopes: Float64) -> None:
        """Take in f64 [M, S, S], by the rates of classes."""
        model, case = self.end(), self.standing
        found = exchangeability_slopes(model.rates, case.models[self.part].frequencies, slopes)
        count = len(self.climb.x)
        slope, changes = (
            np.asarray(np.bincount(model.rate_classes, own, count), np.float64) for own in found
        )
        self.climb.tell(slope, changes)

    @property
    def standing(self) -> Case:
        """The case of where the climb stands; there is one once lnL are known."""
        if self.here is None:
            raise ValueError("no lnL is known")
        return self.here


def share_exchangeabilities(
    fits: Sequence[SharedFit], settings: ModelSettings, epsilon: float
) -> Steps[None]:
    """Optimise what the classes of the fits' models share, where they share so much."""
    climbs = [
        _PartClimb.of(fit, part, settings, epsilon)
        for fit in fits
        for part, model in enumerate(fit.model.models)
        if shared_exchangeabilities(model)
    ]
    for _ in range(MOST_STEPS):
        under_way = [own for own in climbs if not own.climb.done]
        if not under_way:
            break
        yield from _take_steps(under_way)
        lost = [own for own in under_way if own.climb.is_lost]
        if lost:
            cases = [own.standing for own in lost]
            slopes = yield from flow_slopes([own.fit.tree for own in lost], cases)
            for own, of_parts in zip(lost, slopes, strict=True):
                own.tell(of_parts[own.part])
    for own in climbs:
        models = list(own.fit.model.models)
        models[own.part] = own.end()
        own.fit.model = own.fit.model.with_parts(models)


def _take_steps(climbs: Sequence[_PartClimb]) -> Steps[None]:
    """Let climbs stand on the best ends of their next steps."""
    ends = [own.climb.points() for own in climbs]
    trees = [own.fit.tree for own, points in zip(climbs, ends, strict=True) for _ in points]
    cases = list(_cases(climbs, ends))
    lnls = yield from part_log_likelihoods(trees, list(chain.from_iterable(cases)))
    first = 0
    for own, under in zip(climbs, cases, strict=True):
        own.note(lnls[first : first + len(under), own.part], under)
        first += len(under)


def _cases(climbs: Sequence[_PartClimb], ends: Sequence[Float64]) -> Iterator[list[Case]]:
    """The cases of each climb's ends; the eigen systems of all are found at once."""
    wholes = [own.fit.model for own in climbs]
    found = arrays_of(
        [own.model for own in climbs],
        [own.vectors(points) for own, points in zip(climbs, ends, strict=True)],
        [
            np.full(len(points), whole.scalers[own.part])
            for own, whole, points in zip(climbs, wholes, ends, strict=True)
        ],
        [whole.shapes[own.part] for own, whole in zip(climbs, wholes, strict=True)],
    )
    for own, arrays in zip(climbs, found, strict=True):
        yield [own.case(one) for one in arrays]


# Free rates among sites, fitted before all else of a model is climbed.
#
# They are many variables, of flat and bent ways up, and how the lnL of every pattern depends on its
# rate tells all of them at once (:mod:`mltree.models.rate_profiles`): a few traversals, where a
# stencil takes one a point. The curves are asked for at rates far apart, and then where the rates
# of categories have come to stand, until they stay there.

COARSE: Float64 = np.append(PROFILED[0], PROFILED[1::2])
"""f64[J]: the rates that curves are asked for at first."""

AROUND: Float64 = exp(np.array([-0.1, 0.0, 0.1]))
"""Rates that they are asked for at next, as shares of a category's."""

MOST_ROUNDS = 6
"""In which they are."""


class AnyFit(Protocol):
    """A tree and a model that are optimised together (:class:`.model_optimiser.Fit`)."""

    tree: Tree
    model: PartitionModel

    @property
    def case(self) -> Case:
        """What the tree is computed under."""


@dataclass
class _Part:
    """A part of a fit, on its way."""

    fit: int
    """Its number."""
    number: int
    found: FittedAmongSites
    limits: tuple[float, float]
    """Of the log of its scale."""
    curves: Curves | None = None

    def wanted(self) -> Float64:
        """f64[n]: the rates that its patterns are asked for at next."""
        rates = self.found.categories.rates
        around = np.multiply.outer(rates[rates > 0.0], AROUND).ravel()
        if self.curves is not None:
            return lacking(self.curves.rates, around)
        return np.sort(np.append(COARSE, lacking(COARSE, around)))

    def learn(self, curves: Curves) -> None:
        """Take in what was asked for."""
        known = self.curves
        self.curves = curves if known is None else known.with_rates(curves.rates, curves.lnls)


def fit_among_sites(
    fits: Sequence[AnyFit], settings: ModelSettings, epsilon: float
) -> Steps[list[dict[int, FittedAmongSites]]]:
    """What suits the parts of each fit best, by their numbers, of those with free rates.

    All else is as it is in the fit, which stays as it is; nothing is found where stencils take less
    time. ``epsilon``: natural log units.
    """
    parts = [
        _Part(n, number, FittedAmongSites(model, 1.0, -np.inf), limits)
        for n, fit in enumerate(fits)
        for number, (model, limits) in enumerate(_of_parts(fit.model, settings))
        if _is_to_fit(model)
    ]
    under_way = parts
    for _ in range(MOST_ROUNDS):
        under_way = [part for part in under_way if part.wanted().size]
        if not under_way:
            break
        yield from _ask(fits, under_way)
        known = [part for part in under_way if part.curves is not None]
        under_way = _fitted(known, settings, CAREFUL * epsilon)
    found: list[dict[int, FittedAmongSites]] = [{} for _ in fits]
    for part in parts:
        if part.curves is not None:
            found[part.fit][part.number] = part.found
    return found


def _of_parts(
    model: PartitionModel, settings: ModelSettings
) -> list[tuple[Model, tuple[float, float]]]:
    limit, scalers = settings.scale_limit, model.scalers.tolist()
    limits = [scale_bounds(model, scaler, limit) for scaler in scalers]
    return list(zip(model.models, limits, strict=True))


def _is_to_fit(model: Model) -> bool:
    """Whether rates are free, and go with all classes that there are."""
    form, mixture = model.heterogeneity, model.mixture
    is_free = isinstance(form, FreeRates) and not form.fixed
    return is_free and not (mixture is not None and mixture.is_paired)


def _fitted(parts: Sequence[_Part], settings: ModelSettings, epsilon: float) -> list[_Part]:
    """Fit parts by their curves as they are; those that gained by what these told last."""
    profiles = [RateProfiles(part.curves) for part in parts if part.curves is not None]
    before = [own.lnl(part.found.categories) for own, part in zip(profiles, parts, strict=True)]
    tasks = [
        Task(own, [part.found.model], part.found.scale, part.limits)
        for own, part in zip(profiles, parts, strict=True)
    ]
    gained = []
    for part, found, lnl in zip(
        parts, fitted_among_sites(tasks, settings, epsilon), before, strict=True
    ):
        part.found = found
        if found.lnl - lnl >= epsilon:
            gained.append(part)
    return gained


class _Asked(NamedTuple):
    """A tree, its case, and who asks for which of its parts."""

    tree: Tree
    case: Case
    parts: dict[int, _Part]

    @property
    def kind(self) -> Hashable:
        """Equal for those that are asked for together."""
        return len(self.case.models), self.tree.lengths.ndim

    @property
    def rates(self) -> list[Float64]:
        """f64[J] of every part of the case."""
        none = np.empty(0)
        return [
            self.parts[place].wanted() if place in self.parts else none
            for place in range(len(self.case.models))
        ]


def _ask(fits: Sequence[AnyFit], parts: Sequence[_Part]) -> Steps[None]:
    """Let parts learn what they want."""
    of_fits: dict[int, list[_Part]] = {}
    for part in parts:
        of_fits.setdefault(part.fit, []).append(part)
    kinds: dict[Hashable, list[_Asked]] = {}
    for number, own in of_fits.items():
        for asked in _asked(fits[number], own):
            kinds.setdefault(asked.kind, []).append(asked)
    for alike in kinds.values():
        trees, cases = [asked.tree for asked in alike], [asked.case for asked in alike]
        found = yield from rate_curves(trees, cases, [asked.rates for asked in alike])
        for asked, curves in zip(alike, found, strict=True):
            for place, part in asked.parts.items() if curves else ():
                part.learn(curves[place])


def _asked(fit: AnyFit, parts: Sequence[_Part]) -> list[_Asked]:
    """The whole tree, or one for every part where those are few of many."""
    case, tree = fit.case, fit.tree
    if 2 * len(parts) >= len(case.models):
        return [_Asked(tree, case, {part.number: part for part in parts})]
    return [
        _Asked(
            tree if tree.lengths.ndim == 1 else tree.with_lengths(tree.lengths[part.number]),
            case._replace(
                models=(case.models[part.number],), first_part=case.first_part + part.number
            ),
            {0: part},
        )
        for part in parts
    ]
