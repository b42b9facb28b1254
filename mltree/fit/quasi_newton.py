"""L-BFGS in a box, from values alone: for more variables than a stencil has points for.

A full stencil of n variables has n²/2 points, 18,000 for the exchangeabilities of proteins. Here a
launch holds one point beside the end of the next step for every variable, whose differences are
the gradient, and the ends of shorter steps; the first launch has two a variable, for the curvature
along each axis. Curvature between variables is learnt from the steps: L-BFGS, Nocedal & Wright,
Numerical Optimization (2nd ed.), algorithm 7.4, with that curvature for the first matrix.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mltree.fit.trust_region import MAX_STEP, SHORTER_STEPS, BoxOptimiser
from mltree.system.arrays import Float64

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
