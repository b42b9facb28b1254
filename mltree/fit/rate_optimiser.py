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
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from mltree.fit.settings import ModelSettings
from mltree.fit.trust_region import FIRST_RADIUS, MAX_STEP, SHORTER_STEPS, Quadratic, Stencil
from mltree.models.parameters import among_sites, bounds, variables_among_sites, vector, with_vector
from mltree.models.portable import exp, log, product
from mltree.models.rate_profiles import RateProfiles
from mltree.models.rates import Categories, with_invariable
from mltree.models.substitution import Model
from mltree.system.arrays import Float64

SAME_MAXIMUM = 0.25
"""Largest difference between variables of two ends, most of them logs, at one maximum."""

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


def fitted_among_sites(
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
    several = (n for n, own in begun.items() if len(own) > 1)
    sketches = {n: own for n in several if (own := tasks[n].profiles.sketch)}
    if sketches:
        rough = [tasks[n]._replace(profiles=own) for n, own in sketches.items()]
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
    return [[optimiser.end for optimiser in own] for own in optimisers]


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
    quadratics = Quadratic(
        *map(np.stack, zip(*(optimiser.quadratic for optimiser in optimisers), strict=True))
    )
    low = np.stack([optimiser.low - optimiser.x for optimiser in optimisers])
    high = np.stack([optimiser.high - optimiser.x for optimiser in optimisers])
    concave = quadratics.concave(low, high)
    radii = np.array(
        [[(MAX_STEP,) for _ in optimisers], [(optimiser.radius,) for optimiser in optimisers]]
    )
    farthest, steps = concave.summit(low, high, radii)
    for optimiser, predicted_gain, step in zip(
        optimisers, quadratics.gain(farthest), steps, strict=True
    ):
        optimiser.done = bool(predicted_gain < optimiser.epsilon)
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
