"""Newton's method in a box, from values alone, many of them at a time.

A climb asks for points and takes their values, a launch at a time, so that many climbs can share
their launches, and their algebra. A launch holds the stencil around the end of the next step, whose
differences are gradient and Hessian there, and the ends of shorter steps, should that one be too
bold.

Nocedal & Wright, Numerical Optimization (2nd ed.), chapter 4, with a box for a trust region, so
that bounds on the variables and on the step are one thing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.model.portable import eigensystem, product, solve

__all__ = ["FIRST", "REACH", "SHORTER", "Climb", "Quadratic", "Stencil", "Way", "advance"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

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


class Way(ABC):
    """The way uphill from one start within low <= x <= high, from the values of points."""

    def __init__(self, start: Float, low: Float, high: Float, epsilon: float) -> None:
        self.x = np.clip(start, low, high)
        """f64[n]: the best end of a step so far."""
        self.value = -np.inf
        """What it is worth: never less than the start."""
        self.done = False
        self.converged = False
        """Whether no step promises ``epsilon`` any more."""
        self.low, self.high = low, high
        self.radius = FIRST
        """The longest next step."""
        self._epsilon = epsilon
        self._ends = self.x[None]
        """f64[steps, n]: where steps would end, the longest first."""

    @abstractmethod
    def points(self) -> Float:
        """f64[m, n]: where values are wanted, some a difference's step outside the bounds."""

    @abstractmethod
    def note(self, values: Float) -> None:
        """Take in f64[m] values at the points; see :func:`advance`."""


class Climb(Way):
    """By Newton's steps."""

    def __init__(self, start: Float, low: Float, high: Float, step: float, epsilon: float) -> None:
        super().__init__(start, low, high, epsilon)
        self._stencil = Stencil.of(len(start), step)
        self.quadratic: Quadratic | None = None
        """The expansion about x; None where x is new and nothing around it is known."""

    def points(self) -> Float:
        """The stencil around the end of the longest step, and the other ends."""
        return np.concatenate([self._ends[0] + self._stencil.offsets, self._ends[1:]])

    def take(self, values: Float) -> None:
        """Go on from the f64[m] values at the points; see :func:`advance`."""
        advance([self], [values])

    def note(self, values: Float) -> None:
        """Find the best end of a step, and what is known around it, in f64[m] values."""
        around, beside = np.split(values, [len(self._stencil.offsets)])
        at_ends = np.append(around[0], beside)
        best = int(at_ends.argmax())
        lengths = np.abs(self._ends - self.x).max(axis=1, initial=0.0)
        if self.quadratic is not None and at_ends[best] <= self.value:
            self.radius = SHORTER[1] * lengths[-1]
        else:
            self.x, self.value = self._ends[best], float(at_ends[best])
            self.quadratic = self._stencil.quadratic(around) if best == 0 else None
            longer = max(self.radius, 2.0 * lengths[0])
            self.radius = min(longer, REACH) if best == 0 else lengths[best]
        if self.quadratic is None:
            self._ends = self.x[None]

    def end_at(self, promise: float) -> None:
        """Stop where no step within reach promises enough, or the steps have become too short."""
        self.converged = promise < self._epsilon
        self.done = self.converged or self.radius < self._stencil.step

    def try_steps(self, steps: Float) -> None:
        """Take f64[steps, n], the longest first, for the next ones."""
        self._ends = np.clip(self.x + steps, self.low, self.high)


def advance(climbs: Sequence[Way], values: Sequence[Float]) -> None:
    """Let every climb go on from the f64[m] values at its points."""
    for climb, own in zip(climbs, values, strict=True):
        climb.note(own)
    by_size: dict[int, list[Climb]] = {}
    for climb in climbs:
        if isinstance(climb, Climb) and climb.quadratic is not None:
            by_size.setdefault(climb.x.size, []).append(climb)
    for alike in by_size.values():
        _plan_steps(alike)


def _plan_steps(climbs: Sequence[Climb]) -> None:
    """The next steps of climbs of as many variables, or their end."""
    known = [climb.quadratic for climb in climbs if climb.quadratic is not None]
    quadratics = Quadratic(*(np.stack(every) for every in zip(*known, strict=True)))
    low = np.stack([climb.low - climb.x for climb in climbs])
    high = np.stack([climb.high - climb.x for climb in climbs])
    concave = quadratics.concave(low, high)

    def steps(radius: Float) -> Float:
        return concave.summit(np.maximum(low, -radius[:, None]), np.minimum(high, radius[:, None]))

    promises = quadratics.gain(steps(np.full(len(climbs), REACH)))
    whole = steps(np.array([climb.radius for climb in climbs]))
    length = np.abs(whole).max(axis=1, initial=0.0)
    every = np.stack([whole, *(steps(share * length) for share in SHORTER)], axis=1)
    for climb, promise, own in zip(climbs, promises.tolist(), every, strict=True):
        climb.end_at(promise)
        climb.try_steps(own)


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
    """What a step d brings: gradient . d - d . curvature . d / 2; one, or a stack of them."""

    gradient: Float
    """f64[..., n]"""
    curvature: Float
    """f64[..., n, n]: minus the Hessian."""

    def gain(self, step: Float) -> Float:
        """What steps f64[..., n] promise at least: no quadratic curves up for ever."""
        bend = (step * (self.curvature * step[..., None, :]).sum(axis=-1)).sum(axis=-1)
        gain: Float = (self.gradient * step).sum(axis=-1) - np.maximum(bend, 0.0) / 2
        return gain

    def concave(self, low: Float, high: Float) -> Quadratic:
        """About straight where it is convex, within low <= 0 <= high f64[..., n].

        Variables that a bound holds back take no part, so that their curvature bends no other's:
        they slope no way. On a ridge's foot, where the slope may be zero and yet the way leads up,
        it is given one.
        """
        gradient = self.gradient
        held = ((low >= 0) & (gradient <= 0)) | ((high <= 0) & (gradient >= 0))
        either = held[..., :, None] | held[..., None, :]
        values, vectors = eigensystem(np.where(either, np.eye(gradient.shape[-1]), self.curvature))
        slopes = (vectors * np.where(held, 0.0, gradient)[..., None]).sum(axis=-2)
        least = np.where(values < -CONVEX, FLAT, 0.0)
        slopes = np.copysign(np.maximum(np.abs(slopes), least), slopes)
        values = np.maximum(values, FLAT)
        return Quadratic(
            np.where(held, 0.0, (vectors * slopes[..., None, :]).sum(axis=-1)),
            product(vectors * values[..., None, :], vectors.swapaxes(-1, -2)),
        )

    def summit(self, low: Float, high: Float) -> Float:
        """f64[m, n]: the highest points of m concave quadratics in boxes around 0, by active sets.

        Nocedal & Wright, algorithm 16.3: towards the top of the face that the bounds met so far
        leave free, as far as the next bound; from a face's top, off the bound that holds back most.
        """
        count, n = self.gradient.shape
        x = np.zeros((count, n))
        free = np.ones((count, n), dtype=bool)
        climbing = np.arange(count if n else 0)
        identity = np.eye(n)
        for _ in range(4 * n + 1):
            if not climbing.size:
                break
            own, at = free[climbing], x[climbing]
            lowest, highest = low[climbing], high[climbing]
            slope = self._slope(climbing, at)
            between = own[:, :, None] & own[:, None, :]
            move = solve(
                np.where(between, self.curvature[climbing], identity), np.where(own, slope, 0.0)
            )
            limit = np.where(move > 0, highest, lowest)
            share = np.divide(limit - at, move, out=np.full_like(at, np.inf), where=move != 0)
            hit = share.argmin(axis=1)
            rows = np.arange(climbing.size)
            blocked = share[rows, hit] < 1
            at = at + np.where(blocked, share[rows, hit], 1.0)[:, None] * move
            at[blocked, hit[blocked]] = limit[blocked, hit[blocked]]
            x[climbing] = at
            free[climbing[blocked], hit[blocked]] = False
            slope = self._slope(climbing, at)
            inward = np.where(own, 0.0, np.where(at >= highest, -slope, slope))
            release = inward.argmax(axis=1)
            held_back = ~blocked & (inward[rows, release] > 0)
            free[climbing[held_back], release[held_back]] = True
            climbing = climbing[blocked | held_back]
        return x

    def _slope(self, which: Int, x: Float) -> Float:
        """f64[m, n]: of some quadratics at x f64[m, n]."""
        bend = (self.curvature[which] * x[:, None, :]).sum(axis=-1)
        slope: Float = self.gradient[which] - bend
        return slope
