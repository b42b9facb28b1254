"""Model parameters by Newton's method, an iteration to a launch.

The variables are the model's parameters on their log scales and the log of a factor on the tree
length, so that the alternation with branch smoothing converges in few turns.  Whatever an
iteration needs stands side by side in one launch: the points around the end of the last step,
whose differences are gradient and Hessian there, and shorter steps, should that one have been too
bold.  A gradient alone takes a fifth of the points, but five times as many launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.model.parameters import arrays_at, bounds, vector, with_vector
from mltree.model.substitution import Model
from mltree.search.scoring import SearchLikelihood
from mltree.settings import BranchSettings, ModelSettings
from mltree.tree.topology import Tree

__all__ = ["Optimised", "optimise_model"]

Float = NDArray[np.float64]

MIN_CURVATURE = 0.1
"""lnL per squared log unit: flatter directions are taken to be this curved."""

MAX_STEP = 2.0
"""Log units that a variable moves in one step: beyond a factor of 7 the quadratic says little."""

SHORTER = np.array([0.5, 0.25, 0.0625])
"""Fractions of a step that are tried beside the whole of it."""


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

    Stops when the next step promises less than ``epsilon`` (natural log units); never ends worse
    than it started.
    """
    objective = _Objective(likelihood, tree, model, settings, branches)
    if objective.low.size:
        _climb(objective, settings, epsilon)
    else:
        objective.values(np.empty((1, 0)))
    best = objective.best
    tree.lengths[:] = branches.scaled(tree.lengths, np.exp(best[-1]))
    return Optimised(
        model=with_vector(model, best[:-1]),
        scale=float(np.exp(best[-1])),
        lnl=objective.best_lnl,
        evaluations=objective.evaluations,
    )


def _climb(objective: _Objective, settings: ModelSettings, epsilon: float) -> None:
    """Newton steps from the start, until one promises too little or none goes up any more."""
    # The points around a point within these bounds are within the bounds of the model.
    low, high = objective.low + settings.step, objective.high - settings.step
    x, lnl = np.clip(objective.start, low, high), -np.inf
    step, others = np.zeros(x.size), objective.start[None]
    stencil = _Stencil.of(x.size, settings.step)
    for _ in range(settings.iterations):
        lnls = objective.values(np.concatenate([x + step + stencil.offsets, others]))
        around, beside = np.split(lnls, [len(stencil.offsets)])
        top = int(beside.argmax())
        if max(around[0], beside[top]) <= lnl:
            return
        if step.any() and beside[top] > around[0]:
            x, step, others = others[top], np.zeros(x.size), others[top][None]
            continue
        x, lnl = x + step, around[0]
        quadratic = stencil.quadratic(around)
        step = quadratic.step(x, low, high)
        if quadratic.gain(step) < epsilon:
            return
        others = x + SHORTER[:, None] * step


class _Objective:
    """The log-likelihood as a function of the free variables, remembering the best point."""

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
        self._branches = branches
        limit = settings.scale_limit
        low, high = np.array([*bounds(model), (-limit, limit)], dtype=np.float64).T
        self._free = np.flatnonzero(high > low)
        self.low: Float = low[self._free]
        self.high: Float = high[self._free]
        self.best: Float = np.append(vector(model), 0.0)
        """f64[variables]: the free and the fixed ones, the scale last."""
        self.start: Float = self.best[self._free]
        self.best_lnl = -np.inf
        self.evaluations = 0

    def values(self, points: Float) -> Float:
        """f64[n]: lnL at f64[n, free], in one launch."""
        every = np.tile(self.best, (len(points), 1))
        every[:, self._free] = points
        trees = self._scaled_trees(np.exp(every[:, -1]))
        lnls = self._likelihood.log_likelihoods(trees, arrays_at(self._model, every[:, :-1]))
        self.evaluations += 1
        top = int(lnls.argmax())
        if lnls[top] > self.best_lnl:
            self.best_lnl, self.best = float(lnls[top]), every[top]
        return lnls

    def _scaled_trees(self, factors: Float) -> list[Tree]:
        tree = self._tree
        scaled = self._branches.scaled(tree.lengths, factors[:, None])
        return [Tree(tree.twin, tree.edge, lengths, tree.n_tips) for lengths in scaled]


class _Stencil(NamedTuple):
    """Points around a point: itself, a step up and down each axis, and up every two axes."""

    offsets: Float
    """f64[1 + 2n + n(n-1)/2, n]"""
    step: float

    @classmethod
    def of(cls, n: int, step: float) -> _Stencil:
        axes = step * np.eye(n)
        one, other = np.triu_indices(n, 1)
        return cls(np.concatenate([np.zeros((1, n)), axes, -axes, axes[one] + axes[other]]), step)

    def quadratic(self, lnls: Float) -> _Quadratic:
        """The second-order expansion about the middle, from f64[points] values."""
        n = self.offsets.shape[1]
        up, down, both = np.split(lnls[1:] - lnls[0], (n, 2 * n))
        one, other = np.triu_indices(n, 1)
        curvature = np.diag(-up - down)
        curvature[one, other] = curvature[other, one] = up[one] + up[other] - both
        return _Quadratic((up - down) / (2 * self.step), curvature / self.step**2)


class _Quadratic(NamedTuple):
    """What a step d brings: gradient . d - d . curvature . d / 2."""

    gradient: Float
    """f64[n]"""
    curvature: Float
    """f64[n, n]: minus the Hessian."""

    def step(self, x: Float, low: Float, high: Float) -> Float:
        """f64[n]: Newton's step within the bounds; uphill where the Hessian is not definite."""
        gradient = self.gradient
        blocked = ((x <= low) & (gradient < 0)) | ((x >= high) & (gradient > 0))
        moving = np.flatnonzero(~blocked)
        values, vectors = np.linalg.eigh(self.curvature[np.ix_(moving, moving)])
        values = np.maximum(np.abs(values), MIN_CURVATURE)
        step = np.zeros_like(x)
        step[moving] = vectors @ (vectors.T @ gradient[moving] / values)
        return np.clip(x + np.clip(step, -MAX_STEP, MAX_STEP), low, high) - x

    def gain(self, step: Float) -> float:
        """What a step promises, at least; no quadratic curves up for ever."""
        return float(self.gradient @ step - abs(step @ self.curvature @ step) / 2)
