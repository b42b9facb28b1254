"""The climb of one part's model: its free variables and a factor on its branch lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mltree.arrays import Float64
from mltree.model.parameters import (
    bounds,
    shared_exchangeabilities,
    variables_among_sites,
    vector,
)
from mltree.model.partitioned import SCALER_MAX, SCALER_MIN, Linkage, PartitionModel
from mltree.model.points import with_vectors
from mltree.model.portable import exp
from mltree.model.substitution import Model
from mltree.search.checked_climb import Checked
from mltree.search.quasi_newton import MANY, Ascent
from mltree.search.rate_climb import FittedAmongSites
from mltree.search.trust_region import NEAR, Climb
from mltree.settings import ModelSettings

__all__ = ["PartClimb", "ends_of", "scale_bounds"]


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
        shared = shared_exchangeabilities(model)  # mltree.search.shared_rates has moved them
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
