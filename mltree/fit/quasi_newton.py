"""Quasi-Newton steps in a box, from values alone: for more variables than a stencil has points for.

A full stencil of n variables has n²/2 points, 18,000 for the exchangeabilities of proteins. Here a
launch holds one point beside the end of the next step for every variable, whose differences are
the gradient, and the ends of shorter steps; the first launch has two a variable, for the curvature
along each axis. What bends between variables is learnt from the steps: L-BFGS, Nocedal & Wright,
Numerical Optimization (2nd ed.), algorithm 7.4, with that curvature for the first matrix.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mltree.fit.trust_region import REACH, SHORTER, Way
from mltree.system.arrays import Float64

MANY = 40
"""Variables from which on a step is worth more than its curvature is."""

MEMORY = 40
"""Steps that are remembered: as many as a climb takes."""

FLATTEST = 0.01
"""Least curvature along an axis, lnL: a variable that the data say nothing of is not sent far."""


class Ascent(Way):
    """By quasi-Newton steps."""

    lengths: ClassVar[tuple[float, ...]] = 1.0, *SHORTER
    """Of the steps that are tried side by side, as shares of the whole one."""

    def __init__(
        self, start: Float64, low: Float64, high: Float64, step: float, epsilon: float
    ) -> None:
        super().__init__(start, low, high, epsilon)
        self._step = step
        self._curvature: Float64 = np.empty(0)
        """f64[n]: along the axes, where it was last measured."""
        self._measures = True
        """Whether the next launch measures it."""
        self._is_fresh = False
        """Whether it was measured where the climb stands."""
        self._at: Float64 = self.x
        self._slope: Float64 | None = None
        """f64[n]: the gradient at ``_at``."""
        self._learnt: list[tuple[Float64, Float64]] = []
        """Steps, and by how much the slope fell along each."""

    def points(self) -> Float64:
        """A step along every axis around the end of the longest step, and the other ends."""
        axes = self._step * np.eye(self.x.size)
        around = [np.zeros((1, self.x.size)), axes, *([-axes] if self._measures else [])]
        return np.concatenate([self._ends[0] + np.concatenate(around), self._ends[1:]])

    def note(self, values: Float64) -> None:
        """Go on from the f64[m] values at the points."""
        n = self.x.size
        around = 1 + (2 if self._measures else 1) * n
        at_ends = np.append(values[0], values[around:])
        slope = self._gradient(values[:around])
        self._learn(self._ends[0], slope)
        best = int(at_ends.argmax())
        lengths = np.abs(self._ends - self.x).max(axis=1, initial=0.0)
        if len(self._ends) > 1 and at_ends[best] <= self.value:
            self.radius = SHORTER[0] * lengths[-1]
        else:
            self._is_fresh = self._measures and best == 0
            self.x, self.value = self._ends[best], float(at_ends[best])
            longer = min(2.0 * max(self.radius, lengths[0]), REACH)
            self.radius = longer if best == 0 else lengths[best]
            self._at, self._slope = (self.x, slope) if best == 0 else (self._at, self._slope)
        self._measures = False
        if best == 0 or not np.array_equal(self._ends[best], self.x):
            self._plan()
        else:
            self._ends = self.x[None]

    def _gradient(self, values: Float64) -> Float64:
        """f64[n] at the middle, from values there, up every axis and perhaps down."""
        n, h = self.x.size, self._step
        up = (values[1 : n + 1] - values[0]) / h
        if self._measures:
            down = (values[0] - values[n + 1 :]) / h
            slope: Float64 = (up + down) / 2
            self._curvature = np.maximum(
                (down - up) / h, np.maximum(FLATTEST, np.abs(slope) / REACH)
            )
            return slope
        forward: Float64 = up + self._curvature * (h / 2)
        return forward

    def _learn(self, end: Float64, slope: Float64) -> None:
        """Remember how the slope changed on the way to the end of a step, where it fell."""
        if self._slope is None:
            return
        step, fall = end - self._at, self._slope - slope
        bend = (step * fall).sum()
        if bend > FLATTEST * (step * step).sum():
            self._learnt = [*self._learnt, (step, fall)][-MEMORY:]

    def _plan(self) -> None:
        """The next steps, or the end: no bound is left behind that the slope leads across."""
        slope = self._slope
        if slope is None:
            raise ValueError("no slope is known")
        held = ((self.x <= self.low) & (slope <= 0)) | ((self.x >= self.high) & (slope >= 0))
        slope = np.where(held, 0.0, slope)
        move = np.where(held, 0.0, self._uphill(slope))
        longest = np.abs(move).max(initial=0.0)
        promise = self.promise = float((slope * move).sum() / 2)
        is_over = promise < self._epsilon or self.radius < self._step**2
        if is_over and not self._is_fresh:
            self._measures, self._ends = True, self.x[None]
            return
        self.converged = promise < self._epsilon
        self.done = bool(is_over)
        move = move * min(1.0, self.radius / max(longest, np.finfo(np.float64).tiny))
        shares = np.array(self.lengths)
        self._ends = np.clip(self.x + shares[:, None] * move, self.low, self.high)

    def _uphill(self, slope: Float64) -> Float64:
        """f64[n]: the slope times what is known of the curvature's inverse (two loops)."""
        rest, shares = slope.copy(), []
        for step, fall in reversed(self._learnt):
            share = (step * rest).sum() / (step * fall).sum()
            shares.append(share)
            rest -= share * fall
        move: Float64 = rest / self._curvature
        for (step, fall), share in zip(self._learnt, reversed(shares), strict=True):
            move += step * (share - (fall * move).sum() / (step * fall).sum())
        return move


class Guided(Ascent):
    """The same where the gradient is told, so that a launch holds but the end of a step.

    The first matrix is so near that hardly a whole step fails (none of 112, GTR20+C10+G4, 8 x 200):
    shorter ones beside it would be computed in vain.
    """

    lengths = (1.0,)

    def points(self) -> Float64:
        """The end of the next step; at first the start."""
        return self._ends

    def note(self, values: Float64) -> None:
        """Stand on the end, or plan a shorter step where it is no better."""
        (end,), length = self._ends, float(np.abs(self._ends - self.x).max(initial=0.0))
        if values[0] <= self.value:
            self.radius = SHORTER[1] * length
            self._plan()
            return
        self.x, self.value = end, float(values[0])
        self.radius = min(2.0 * max(self.radius, length), REACH)

    @property
    def is_lost(self) -> bool:
        """Whether the slope where the climb stands is yet to be told."""
        return self._at is not self.x or self._slope is None

    def tell(self, slope: Float64, curvature: Float64) -> None:
        """Go on from f64[n], f64[n]: the gradient, and about what lnL curves by along each axis."""
        self._curvature = np.maximum(curvature, FLATTEST)
        self._learn(self.x, slope)
        self._at, self._slope = self.x, slope
        self._measures, self._is_fresh = False, True
        self._plan()
