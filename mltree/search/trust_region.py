"""Newton's method in a box, from values alone, many of them at a time.

A climb asks for points and takes their values, a launch at a time, so that several climbs can
share their launches. A launch holds the stencil around the end of the next step, whose differences
are gradient and Hessian there, and the ends of shorter steps, should that one be too bold.

Nocedal & Wright, Numerical Optimization (2nd ed.), chapter 4, with a box for a trust region, so
that bounds on the variables and on the step are one thing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.model.portable import eigensystem, product, solve

__all__ = ["REACH", "Climb", "Quadratic", "Stencil"]

Float = NDArray[np.float64]

REACH = 2.0
"""The longest step, and how far a quadratic's promise is believed, in units of a variable. On log
scales a factor of 7, beyond which the quadratic says little."""

FIRST = 1.0
"""The longest first step."""

SHORTER = (0.5, 0.25, 0.0625)
"""Lengths of the steps that are tried beside the whole one, as shares of its own."""

FLAT = 1e-3
"""Curvature below which a direction counts as straight; differences of lnL in fp64, good to 1e-9
at -1e6, have it to 1e-5."""

CONVEX = 1.0
"""Negative curvature from which on a direction is left even where its slope is zero: beyond what
mixed precision, good to 1e-5, puts into a difference (0.1)."""


class Climb:
    """The way uphill from one start within low <= x <= high."""

    def __init__(self, start: Float, low: Float, high: Float, step: float, epsilon: float) -> None:
        self.x = np.clip(start, low, high)
        """f64[n]: the best end of a step so far."""
        self.value = -np.inf
        """What it is worth: never less than the start."""
        self.done = False
        self.converged = False
        """Whether no step within reach promises ``epsilon`` any more."""
        self._low, self._high = low, high
        self._stencil = Stencil.of(len(start), step)
        self._epsilon = epsilon
        self._radius = FIRST
        self._quadratic: Quadratic | None = None
        """The expansion about x; None where x is new and nothing around it is known."""
        self._ends = self.x[None]
        """f64[steps, n]: where steps would end, the longest first."""

    def points(self) -> Float:
        """f64[m, n]: where values are wanted, some a stencil's step outside the bounds."""
        return np.concatenate([self._ends[0] + self._stencil.offsets, self._ends[1:]])

    def take(self, values: Float) -> None:
        """Go on from the f64[m] values at the points."""
        around, beside = np.split(values, [len(self._stencil.offsets)])
        at_ends = np.append(around[0], beside)
        best = int(at_ends.argmax())
        lengths = np.abs(self._ends - self.x).max(axis=1, initial=0.0)
        if self._quadratic is not None and at_ends[best] <= self.value:
            self._radius = SHORTER[1] * lengths[-1]
        else:
            self.x, self.value = self._ends[best], float(at_ends[best])
            self._quadratic = self._stencil.quadratic(around) if best == 0 else None
            longer = max(self._radius, 2.0 * lengths[0])
            self._radius = min(longer, REACH) if best == 0 else lengths[best]
        if self._quadratic is None:
            self._ends = self.x[None]
        else:
            self._plan(self._quadratic)

    def _plan(self, quadratic: Quadratic) -> None:
        """The next steps, or the end."""
        self.converged = quadratic.gain(self._step(quadratic, REACH)) < self._epsilon
        self.done = self.converged or self._radius < self._stencil.step
        whole = self._step(quadratic, self._radius)
        length = np.abs(whole).max(initial=0.0)
        shorter = [self._step(quadratic, share * length) for share in SHORTER]
        self._ends = np.clip(self.x + np.array([whole, *shorter]), self._low, self._high)

    def _step(self, quadratic: Quadratic, radius: float) -> Float:
        low = np.maximum(self._low - self.x, -radius)
        return quadratic.step(low, np.minimum(self._high - self.x, radius))


class Stencil(NamedTuple):
    """Points around a point: itself, a step up and down each axis, and up every two axes."""

    offsets: Float
    """f64[1 + 2n + n(n-1)/2, n]"""
    step: float

    @classmethod
    def of(cls, n: int, step: float) -> Stencil:
        """The stencil of n variables."""
        axes = step * np.eye(n)
        one, other = np.triu_indices(n, 1)
        return cls(np.concatenate([np.zeros((1, n)), axes, -axes, axes[one] + axes[other]]), step)

    def quadratic(self, values: Float) -> Quadratic:
        """The second-order expansion about the middle, from f64[points] values."""
        n = self.offsets.shape[1]
        up, down, both = np.split(values[1:] - values[0], (n, 2 * n))
        one, other = np.triu_indices(n, 1)
        curvature = np.diag(-up - down)
        curvature[one, other] = curvature[other, one] = up[one] + up[other] - both
        return Quadratic((up - down) / (2 * self.step), curvature / self.step**2)


class Quadratic(NamedTuple):
    """What a step d brings: gradient . d - d . curvature . d / 2."""

    gradient: Float
    """f64[n]"""
    curvature: Float
    """f64[n, n]: minus the Hessian."""

    def step(self, low: Float, high: Float) -> Float:
        """f64[n]: the step in low <= 0 <= high that brings most; convex directions are straight.

        Variables that a bound holds back take no part, so that their curvature bends no other's.
        """
        held = ((low >= 0) & (self.gradient <= 0)) | ((high <= 0) & (self.gradient >= 0))
        moving = np.flatnonzero(~held)
        gradient, curvature = _concave(
            self.gradient[moving], self.curvature[np.ix_(moving, moving)]
        )
        step = np.zeros_like(self.gradient)
        step[moving] = _summit(gradient, curvature, low[moving], high[moving])
        return step

    def gain(self, step: Float) -> float:
        """What a step promises at least: no quadratic curves up for ever."""
        bend = (step * (self.curvature * step).sum(axis=1)).sum()
        return float((self.gradient * step).sum() - max(bend, 0.0) / 2)


def _concave(gradient: Float, curvature: Float) -> tuple[Float, Float]:
    """A quadratic that is the same where it is concave and about straight where it is not.

    On a ridge's foot, where the slope may be zero and yet the way leads up, it is given one.
    """
    values, vectors = eigensystem(curvature)
    slopes = (vectors * gradient[:, None]).sum(axis=0)
    least = np.where(values < -CONVEX, FLAT, 0.0)
    slopes = np.copysign(np.maximum(np.abs(slopes), least), slopes)
    values = np.maximum(values, FLAT)
    return (vectors * slopes).sum(axis=1), product(vectors * values, vectors.T)


def _summit(gradient: Float, curvature: Float, low: Float, high: Float) -> Float:
    """The highest point of a concave quadratic in a box around 0, by active sets.

    Nocedal & Wright, algorithm 16.3: towards the top of the face that the bounds met so far leave
    free, as far as the next bound; from a face's top, off the bound that holds back most.
    """
    x = np.zeros_like(gradient)
    free = np.ones(x.size, dtype=bool)
    for _ in range(4 * x.size + 1):
        slope = gradient - (curvature * x).sum(axis=1)
        move = np.zeros_like(x)
        move[free] = solve(curvature[np.ix_(free, free)], slope[free])
        limit = np.where(move > 0, high, low)
        moving = move != 0
        share = np.divide(limit - x, move, out=np.full_like(x, np.inf), where=moving)
        hit = int(share.argmin()) if x.size else 0
        if x.size and share[hit] < 1:
            x = x + share[hit] * move
            x[hit] = limit[hit]
            free[hit] = False
            continue
        x = x + move
        slope = gradient - (curvature * x).sum(axis=1)
        inward = np.where(free, 0.0, np.where(x >= high, -slope, slope))
        release = int(inward.argmax()) if x.size else 0
        if not x.size or inward[release] <= 0:
            break
        free[release] = True
    return x
