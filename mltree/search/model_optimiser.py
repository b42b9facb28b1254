"""Model parameters by L-BFGS-B, a whole gradient to a launch.

The variables are the model's parameters on their log scales and the log of a factor on the tree
length, so that the alternation with branch smoothing converges in few turns.  The gradient is a
forward difference whose points are all evaluated side by side.  Variables are divided by the
square root of their curvature at the start: without it the first steps are wasted on finding a
scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize

from mltree.model.parameters import bounds, vector, with_vector
from mltree.model.substitution import Model
from mltree.search.scoring import SearchLikelihood
from mltree.settings import BranchSettings, ModelSettings
from mltree.tree.topology import Tree

__all__ = ["Optimised", "optimise_model"]

Float = NDArray[np.float64]
Index = NDArray[np.intp]

CURVATURE_STEP = 1e-3
"""Log units: central second difference; noise 1e-9 / step^2 is far below curvatures of 1 and up."""

MIN_CURVATURE = 1.0
"""lnL per squared log unit: flatter variables are scaled as if they were this curved."""


@dataclass(frozen=True)
class Optimised:
    """The best point that was seen."""

    model: Model
    scale: float
    """Factor on every branch length."""
    lnl: float
    evaluations: int
    """Launches used."""


def optimise_model(
    likelihood: SearchLikelihood,
    tree: Tree,
    model: Model,
    settings: ModelSettings,
    branches: BranchSettings,
    epsilon: float,
) -> Optimised:
    """Optimise a model on one tree, whose lengths are scaled in place to go with it.

    Stops when an iteration gains less than ``epsilon`` (natural log units); never ends worse than
    it started.
    """
    objective = _Objective(likelihood, tree, model, settings, branches)
    start = np.append(vector(model), 0.0)
    low, high = np.array(
        [*bounds(model), (-settings.scale_limit, settings.scale_limit)], dtype=np.float64
    ).T
    free = np.flatnonzero(high > low)
    objective.values(start[None])
    if free.size:
        unit = objective.units(start, low, high, free)
        minimize(
            objective.scaled(start, high, free, unit),
            start[free] / unit,
            method="L-BFGS-B",
            jac=True,
            bounds=Bounds(low[free] / unit, high[free] / unit),
            options={
                "maxiter": settings.iterations,
                "ftol": epsilon / max(abs(objective.best_lnl), 1.0),
                "gtol": 0.0,
            },
        )
    best = objective.best
    tree.lengths[:] = branches.scaled(tree.lengths, np.exp(best[-1]))
    return Optimised(
        model=with_vector(model, best[:-1]),
        scale=float(np.exp(best[-1])),
        lnl=objective.best_lnl,
        evaluations=objective.evaluations,
    )


class _Objective:
    """The log-likelihood of parameter vectors, remembering the best one."""

    def __init__(
        self,
        likelihood: SearchLikelihood,
        tree: Tree,
        model: Model,
        settings: ModelSettings,
        branches: BranchSettings,
    ) -> None:
        self._likelihood = likelihood
        self._tree = tree
        self._model = model
        self._step = settings.step
        self._branches = branches
        self.best = np.append(vector(model), 0.0)
        self.best_lnl = -np.inf
        self.evaluations = 0

    def values(self, points: Float) -> Float:
        """f64[n]: lnL at f64[n, variables], in one launch."""
        trees = [self._scaled_tree(point[-1]) for point in points]
        models = [with_vector(self._model, point[:-1]).arrays() for point in points]
        lnls = self._likelihood.log_likelihoods(trees, models)
        self.evaluations += 1
        top = int(lnls.argmax())
        if lnls[top] > self.best_lnl:
            self.best_lnl, self.best = float(lnls[top]), points[top].copy()
        return lnls

    def units(self, start: Float, low: Float, high: Float, free: Index) -> Float:
        """f64[free]: 1 / sqrt(curvature) of every free variable at the start."""
        inside = start.copy()
        inside[free] = np.clip(start, low + CURVATURE_STEP, high - CURVATURE_STEP)[free]
        offsets = CURVATURE_STEP * np.eye(start.size)[free]
        # Two launches: the trees of one alone are already as many as a gradient's.
        up = self.values(inside + offsets)
        down = self.values(np.concatenate([inside[None], inside - offsets]))
        curvature = np.abs(up - 2 * down[0] + down[1:]) / CURVATURE_STEP**2
        units: Float = 1.0 / np.sqrt(np.maximum(curvature, MIN_CURVATURE))
        return units

    def scaled(
        self, start: Float, high: Float, free: Index, unit: Float
    ) -> Callable[[Float], tuple[float, Float]]:
        """-lnL and its gradient as functions of the free variables divided by ``unit``."""
        directions = np.eye(start.size)[free]

        def negative(z: Float) -> tuple[float, Float]:
            point = start.copy()
            point[free] = z * unit
            step = np.where(point + self._step > high, -self._step, self._step)[free]
            lnls = self.values(np.concatenate([point[None], point + step[:, None] * directions]))
            return -float(lnls[0]), -(lnls[1:] - lnls[0]) / step * unit

        return negative

    def _scaled_tree(self, log_factor: float) -> Tree:
        if log_factor == 0.0:
            return self._tree
        lengths = self._branches.scaled(self._tree.lengths, np.exp(log_factor))
        return replace(self._tree, lengths=lengths)
