"""Maximisers of functions within bounds, from values alone, many of them at a time.

An optimiser proposes points, its caller evaluates the points of many optimisers in one launch, and
each optimiser then accepts its best point and plans the next steps (:func:`advance`). A launch of
Newton's method holds the stencil around the end of the next step, whose differences are gradient
and Hessian there, and the ends of shorter steps, should the next one be too long.

Nocedal & Wright, Numerical Optimization (2nd ed.), chapter 4, with a box for a trust region, so
that bounds on the variables and on the step are one thing; L-BFGS, for many variables, chapter 7.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from mltree.models.portable import eigensystem, is_definite, product, solve
from mltree.system.arrays import Float64, Int64

MAX_STEP = 2.0
"""Longest step, and farthest point whose predicted gain counts, in units of a variable. On log
scales a factor of 7, beyond which the quadratic says little."""

FIRST_RADIUS = 1.0
"""Longest first step, in units of a variable."""

SHORTER_STEPS = (0.5, 0.25, 0.0625)
"""Lengths of the steps that are tried beside the whole one, as shares of it."""

FLAT_CURVATURE = 1e-3
"""Curvature below which a direction counts as straight; differences of lnL in fp64, good to 1e-9
at -1e6, have it to 1e-5."""

CONVEX_CURVATURE = 1.0
"""Negative curvature from which on a direction is left even where its slope is zero: beyond what
mixed precision, good to 1e-5, puts into a difference (0.1)."""

SHORT_STEP = 0.25
"""Length of the steps, in units of a variable, after which a curvature is measured anew."""

MIN_BFGS_STEP = 0.01
"""Least step whose change of the gradient corrects the curvature, in units of a variable."""

CURVATURE_SLACK = 0.03
"""Share of the curvature along the axes by which an unmeasured one may be too steep."""

MAX_GAIN_RATIO = 2.0
"""Largest ratio of the possible to the predicted gain at which no curvature is measured."""

STENCIL_LIMIT = 40
"""Variables from which on L-BFGS takes the place of a full stencil."""

MEMORY = 40
"""Steps that L-BFGS remembers: as many as an optimisation takes."""

MIN_CURVATURE = 0.01
"""Least curvature along an axis, lnL: so that a variable without information stays near."""


class BoxOptimiser(ABC):
    """An optimiser within low <= x <= high, from the values of points.

    Starts are f64[n], or f64[m, n], of which the first one has the stencil around it.
    """

    def __init__(self, start: Float64, low: Float64, high: Float64, epsilon: float) -> None:
        starts = np.clip(np.atleast_2d(start), low, high)
        self.x: Float64 = starts[0]
        """f64[n]: the best point so far."""
        self.value = -np.inf
        """Value at x: never less than at the start."""
        self.done = False
        self.predicted_gain = np.inf
        """Gain that a step within reach promised when one was last planned."""
        self.converged = False
        """True once no step promises ``epsilon``."""
        self.low, self.high = low, high
        self.radius = FIRST_RADIUS
        """Longest next step."""
        self.curvature: Float64 | None = None
        """f64[n, n]: minus the Hessian, as it was last known; None where it never is."""
        self._epsilon = epsilon
        self._trial_points = starts
        """f64[steps, n]: ends of the next steps, the longest first."""

    @abstractmethod
    def points(self) -> Float64:
        """f64[m, n]: points to evaluate, some a difference's step outside the bounds."""

    @abstractmethod
    def update(self, values: Float64) -> None:
        """Accept the best of the points by their values f64[m]; see :func:`advance`."""


class TrustRegion(BoxOptimiser):
    """Newton's method in a trust region.

    The curvature is measured wherever a step of some length may end. Around the end of a short one,
    or where it is known from an optimiser nearby, points up every axis are enough for the gradient,
    and no other step is tried beside it: the curvature is off by as little as the step is long, and
    learns from how the gradient changed along it (BFGS: Nocedal & Wright, equation 6.19). Where
    that leaves convergence in doubt, or such a step leads down, all of it is measured after all.
    """

    def __init__(
        self,
        start: Float64,
        low: Float64,
        high: Float64,
        step: float,
        epsilon: float,
        curvature: Float64 | None = None,
        *,
        maximum: float | None = None,
    ) -> None:
        """``curvature``: f64[n, n], minus the Hessian somewhere near; of other shapes, not used.

        ``maximum``: the value of the first start, if that is expected to be a maximum. The starts
        are then evaluated before anything is measured around them.
        """
        super().__init__(start, low, high, epsilon)
        self._maximum = maximum
        n = len(low)
        self._stencil = Stencil.of(n, step)
        if curvature is not None and curvature.shape == (n, n):
            self.curvature = curvature
        self._measures_curvature = self.curvature is None
        """True if the next launch measures the whole curvature."""
        self._drift = 0.0
        """Length of the steps since the whole curvature was measured."""
        self.quadratic: Quadratic | None = None
        """The expansion about x; None where x is new and nothing around it is known."""

    def points(self) -> Float64:
        """The stencil around the end of the longest step, and the other ends."""
        if self._maximum is not None:
            return self._trial_points
        offsets = self._stencil.offsets if self._measures_curvature else self._stencil.up
        return np.concatenate([self._trial_points[0] + offsets, self._trial_points[1:]])

    def update(self, values: Float64) -> None:
        """Move to the best end of a step, and expand around it, from f64[m] values."""
        if self._maximum is not None:
            self._verify(values, self._maximum)
            return
        middle = len(values) - len(self._trial_points) + 1
        around, beside = values[:middle], values[middle:]
        at_ends = np.append(around[0], beside)
        best = int(at_ends.argmax())
        lengths = np.abs(self._trial_points - self.x).max(axis=1, initial=0.0)
        is_first = self.value == -np.inf
        if self.quadratic is not None and at_ends[best] <= self.value:
            self.radius = SHORTER_STEPS[1] * lengths[-1]
            if self._drift:
                self.quadratic = None
        else:
            step = self._trial_points[0] - self.x
            self.x, self.value = self._trial_points[best], float(at_ends[best])
            self.quadratic = self._expanded(around, step) if best == 0 else None
            longer = max(self.radius, 2.0 * lengths[0])
            if best == 0:
                self.radius = min(longer, MAX_STEP)
            elif not is_first:
                self.radius = lengths[best]
        if self.quadratic is None:
            self._measures_curvature, self._trial_points = True, self.x[None]

    def _verify(self, values: Float64, maximum: float) -> None:
        """End at the first start if it is a maximum, else begin at the best one."""
        best = int(values.argmax())
        self.x, self.value = self._trial_points[best], float(values[best])
        self.done = self.converged = best == 0 and abs(values[0] - maximum) < self._epsilon
        self.predicted_gain = 0.0 if self.done else np.inf
        self._maximum, self._trial_points = None, self.x[None]

    def plan(self, predicted_gain: float, possible_gain: float, steps: Float64) -> None:
        """Plan the next steps, or stop where no step promises enough or steps are too short.

        ``possible_gain``: gain under less curvature; if it is enough, the curvature is measured.
        ``steps``: f64[steps, n], the longest first, to be tried next.
        """
        self.predicted_gain, is_little = predicted_gain, predicted_gain < self._epsilon
        self.done = is_little or self.radius < self._stencil.step
        self._trial_points = np.clip(self.x + steps, self.low, self.high)
        if self.done and self._drift and possible_gain >= self._epsilon:
            self.done, self.quadratic, self._trial_points = False, None, self.x[None]
        self.converged = self.done and is_little
        drift = self._drift + np.abs(steps[0]).max(initial=0.0)
        self._measures_curvature = (
            self.quadratic is None
            or drift > SHORT_STEP
            or possible_gain > MAX_GAIN_RATIO * predicted_gain
        )
        if not self._measures_curvature:
            self._trial_points = self._trial_points[:1]

    def _expanded(self, values: Float64, step: Float64) -> Quadratic:
        """Expand about x, from the values around it, at the end of a step f64[n]."""
        if self._measures_curvature or self.curvature is None:
            expansion, self._drift = self._stencil.quadratic(values), 0.0
        else:
            gradient = self._stencil.slope(values, np.diagonal(self.curvature))
            before = None if self.quadratic is None else self.quadratic.gradient
            curvature = self.curvature
            if before is not None:
                curvature = _bfgs_updated(curvature, step, before - gradient)
            expansion = Quadratic(gradient, curvature)
            self._drift += max(np.abs(step).max(initial=0.0), np.finfo(np.float64).tiny)
        self.curvature = expansion.curvature
        return expansion


def _bfgs_updated(curvature: Float64, step: Float64, fall: Float64) -> Float64:
    """f64[n, n]: the BFGS update by which the gradient falls along a step as measured, f64[n]."""
    predicted = (curvature * step).sum(axis=-1)
    expected, measured = float((step * predicted).sum()), float((step * fall).sum())
    if (
        np.abs(step).max(initial=0.0) < MIN_BFGS_STEP
        or min(expected, measured) <= FLAT_CURVATURE * (step * step).sum()
    ):
        return curvature
    return curvature + np.outer(fall, fall) / measured - np.outer(predicted, predicted) / expected


def advance(optimisers: Sequence[BoxOptimiser], values: Sequence[Float64]) -> None:
    """Update every optimiser with the f64[m] values at its points."""
    for optimiser, values_of_one in zip(optimisers, values, strict=True):
        optimiser.update(values_of_one)
    by_size: dict[int, list[TrustRegion]] = {}
    for optimiser in optimisers:
        if isinstance(optimiser, TrustRegion) and optimiser.quadratic is not None:
            by_size.setdefault(optimiser.x.size, []).append(optimiser)
    for alike in by_size.values():
        _plan_steps(alike)


def _plan_steps(optimisers: Sequence[TrustRegion]) -> None:
    """Plan the next steps of optimisers with the same number of variables."""
    known = [optimiser.quadratic for optimiser in optimisers if optimiser.quadratic is not None]
    quadratics = Quadratic.stack(known)
    low = np.stack([optimiser.low - optimiser.x for optimiser in optimisers])
    high = np.stack([optimiser.high - optimiser.x for optimiser in optimisers])
    both = Quadratic.stack([quadratics, quadratics.flatter(CURVATURE_SLACK)])
    concave = both.concave(low, high)
    predicted_gains, possible_gains = both.gain(concave.summit(low, high, MAX_STEP))
    measured = Quadratic(concave.gradient[0], concave.curvature[0])
    whole = measured.summit(low, high, np.array([[optimiser.radius] for optimiser in optimisers]))
    length = np.abs(whole).max(axis=1, initial=0.0)
    shorter = measured.summit(low, high, np.array(SHORTER_STEPS)[:, None, None] * length[:, None])
    every = np.concatenate([whole[None], shorter]).swapaxes(0, 1)
    rows = zip(optimisers, predicted_gains.tolist(), possible_gains.tolist(), every, strict=True)
    for optimiser, predicted_gain, possible_gain, ends in rows:
        optimiser.plan(predicted_gain, possible_gain, ends)


class Stencil(NamedTuple):
    """Points around a point: itself, a step up and down each axis, and up every two axes."""

    offsets: Float64
    """f64[1 + 2n + n(n-1)/2, n]"""
    step: float
    pairs: tuple[Int64, Int64]
    """i64[n(n-1)/2] each: the two axes of the last points."""

    @property
    def up(self) -> Float64:
        """f64[1 + n, n]: the middle, and the steps up each axis."""
        return self.offsets[: 1 + self.offsets.shape[1]]

    @classmethod
    @lru_cache(maxsize=64)  # a thousand parts have the same
    def of(cls, n: int, step: float) -> Stencil:
        """Return the stencil of n variables, read-only."""
        axes = step * np.eye(n)
        pairs = np.triu_indices(n, 1)
        one, other = (axes[each] for each in pairs)
        offsets = np.concatenate([np.zeros((1, n)), axes, -axes, one + other])
        offsets.setflags(write=False)
        return cls(offsets, step, pairs)

    def slope(self, values: Float64, along: Float64) -> Float64:
        """f64[n]: gradient in the middle, from values there and up each axis.

        ``along`` f64[n]: the curvature along the axes.
        """
        slope: Float64 = (values[1:] - values[0]) / self.step + along * (self.step / 2)
        return slope

    def quadratic(self, values: Float64) -> Quadratic:
        """The second-order expansion about the middle, from f64[points] values."""
        n, (one, other) = self.offsets.shape[1], self.pairs
        up, down, both = np.split(values[1:] - values[0], [n, 2 * n])
        curvature = np.diag((-up - down) / self.step**2)
        between = (up[one] + up[other] - both) / self.step**2
        curvature[one, other] = curvature[other, one] = between
        return Quadratic((up - down) / (2 * self.step), curvature)


class Quadratic(NamedTuple):
    """Gain of a step d: gradient . d - d . curvature . d / 2; one quadratic, or a stack."""

    gradient: Float64
    """f64[..., n]: gradient at the point of expansion."""
    curvature: Float64
    """f64[..., n, n]: minus the Hessian."""

    @classmethod
    def stack(cls, quadratics: Sequence[Quadratic]) -> Quadratic:
        """Stack quadratics along a new first axis."""
        return cls(*map(np.stack, zip(*quadratics, strict=True)))

    def gain(self, step: Float64) -> Float64:
        """Return the least gain of steps f64[..., n]: no quadratic curves up for ever."""
        bend = (step * (self.curvature * step[..., None, :]).sum(axis=-1)).sum(axis=-1)
        gain: Float64 = (self.gradient * step).sum(axis=-1) - np.maximum(bend, 0.0) / 2
        return gain

    def flatter(self, share: float) -> Quadratic:
        """Return the quadratic with a share less of the curvature along each axis."""
        along = np.abs(np.diagonal(self.curvature, axis1=-2, axis2=-1))
        less = share * along[..., None] * np.eye(self.gradient.shape[-1])
        return Quadratic(self.gradient, self.curvature - less)

    def concave(self, low: Float64, high: Float64) -> Quadratic:
        """Make the quadratic about straight where it is convex, in low <= 0 <= high f64[..., n].

        Variables that a bound holds back take no part, so that their curvature bends no other's:
        they slope no way. On a ridge's foot, where the slope may be zero and yet the way leads up,
        it is given one.
        """
        gradient = self.gradient
        held = ((low >= 0) & (gradient <= 0)) | ((high <= 0) & (gradient >= 0))
        either = held[..., :, None] | held[..., None, :]
        identity = np.eye(gradient.shape[-1])
        curvature = np.where(either, identity, self.curvature)
        concave = Quadratic(np.where(held, 0.0, gradient), curvature)
        bent = ~is_definite(curvature - FLAT_CURVATURE * identity)
        if bent.any():
            straight = Quadratic(concave.gradient[bent], curvature[bent])._straightened()
            concave.gradient[bent] = np.where(held[bent], 0.0, straight.gradient)
            curvature[bent] = straight.curvature
        return concave

    def _straightened(self) -> Quadratic:
        """Return the quadratic with at least FLAT_CURVATURE in all directions."""
        values, vectors = eigensystem(self.curvature)
        slopes = (vectors * self.gradient[..., None]).sum(axis=-2)
        least = np.where(values < -CONVEX_CURVATURE, FLAT_CURVATURE, 0.0)
        slopes = np.copysign(np.maximum(np.abs(slopes), least), slopes)
        values = np.maximum(values, FLAT_CURVATURE)
        return Quadratic(
            (vectors * slopes[..., None, :]).sum(axis=-1),
            product(vectors * values[..., None, :], vectors.swapaxes(-1, -2)),
        )

    def summit(self, low: Float64, high: Float64, radius: Float64 | float) -> Float64:
        """f64[..., n]: the highest points, where they are concave, in boxes around 0.

        A box reaches from low to high, but no farther than the radius; shapes are broadcast.
        """
        low, high = np.maximum(low, -radius), np.minimum(high, radius)
        shape = np.broadcast_shapes(self.gradient.shape, low.shape)
        count, n = math.prod(shape[:-1]), shape[-1]
        gradient, low, high = (
            np.broadcast_to(part, shape).reshape(count, n) for part in (self.gradient, low, high)
        )
        curvature = np.broadcast_to(self.curvature, (*shape, n)).reshape(count, n, n)
        return Quadratic(gradient, curvature)._summit(low, high).reshape(shape)

    def _summit(self, low: Float64, high: Float64) -> Float64:
        """f64[m, n]: of m quadratics, by active sets.

        Nocedal & Wright, algorithm 16.3: towards the top of the face that the bounds met so far
        leave free, as far as the next bound; from a face's top, off the bound that holds back most.
        """
        count, n = self.gradient.shape
        x = np.zeros((count, n))
        free = np.ones((count, n), dtype=bool)
        moving = np.arange(count if n else 0)
        identity = np.eye(n)
        for _ in range(4 * n + 1):
            if not moving.size:
                break
            is_free, at = free[moving], x[moving]
            lowest, highest = low[moving], high[moving]
            slope = self._slope(moving, at)
            between = is_free[:, :, None] & is_free[:, None, :]
            move = solve(
                np.where(between, self.curvature[moving], identity), np.where(is_free, slope, 0.0)
            )
            limit = np.where(move > 0, highest, lowest)
            share = np.divide(limit - at, move, out=np.full_like(at, np.inf), where=move != 0)
            hit = share.argmin(axis=1)
            rows = np.arange(moving.size)
            blocked = share[rows, hit] < 1
            at = at + np.where(blocked, share[rows, hit], 1.0)[:, None] * move
            at[blocked, hit[blocked]] = limit[blocked, hit[blocked]]
            x[moving] = at
            free[moving[blocked], hit[blocked]] = False
            slope = self._slope(moving, at)
            inward = np.where(is_free, 0.0, np.where(at >= highest, -slope, slope))
            release = inward.argmax(axis=1)
            held_back = ~blocked & (inward[rows, release] > 0)
            free[moving[held_back], release[held_back]] = True
            moving = moving[blocked | held_back]
        return x

    def _slope(self, which: Int64, x: Float64) -> Float64:
        """f64[m, n]: of some quadratics at x f64[m, n]."""
        bend = (self.curvature[which] * x[:, None, :]).sum(axis=-1)
        slope: Float64 = self.gradient[which] - bend
        return slope


class LBFGS(BoxOptimiser):
    """L-BFGS from values alone: for more variables than a stencil has points for.

    A full stencil of n variables has n²/2 points, 18,000 for the exchangeabilities of proteins.
    Here a launch holds one point beside the end of the next step for every variable, whose
    differences are the gradient, and the ends of shorter steps; the first launch has two a
    variable, for the curvature along each axis. Curvature between variables is learnt from the
    steps: Nocedal & Wright, algorithm 7.4, with that curvature for the first matrix.
    """

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
        axes, longest = self._step * np.eye(self.x.size), self._trial_points[:1]
        down = longest - axes if self._measures_curvature else axes[:0]
        return np.concatenate([longest, longest + axes, down, self._trial_points[1:]])

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
        (end,) = self._trial_points
        length = float(np.abs(end - self.x).max(initial=0.0))
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
