"""OPTIMISE: one guarded Newton step of every group of branch lengths.

A group moves together. A better trial becomes the best and gives a new aim; a worse one halves the
step from the best towards its aim. A group ends on its best lengths where a step promises less than
LEAST_PROMISE of its epsilon, where GAIN_PER_PROMISE times as much ends below its floor, after its
last pass, or when the step is spent.

What a step promises is the quadratic's gain, half of slope times step. It says nothing where the
step was cut short on the way to a length far above, or where a length is so far beyond saturation
that lnL has no slope left, only the wrong curvature.

An insertion triplet's aim is the top of its quadratic within reach. A joint step that is cut short
in one length leads the others astray: 10 and 43 % of the scores near the tree's lnL ended 0.05 and
more short of their tops so on two sets of few sites, after all passes (bench/search-notebook.md).

Where a step is a whole one, the last step's change goes into it as well: as much as leaves least of
both, were lnL a quadratic (Anderson's mixing, of depth one; Walker and Ni 2011, SIAM Journal on
Numerical Analysis 49:1715). Lengths that hang together, and those that swing about each other, are
a matter of passes without it. Should the next trial be worse, it is the plain step that is halved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mltree.program import contract
from mltree.program.contract import Control, Function, GroupKind
from mltree.program.ops.operation import ControlStage, Driver, LaunchShape, Records, Words, record
from mltree.system.arrays import Bool, Float64

GROUP = record("kind first_length:length count lnl_sum first_sum", "GROUP")


class Optimise(ControlStage):
    """One guarded Newton step of every group; ``alone`` for many small groups."""

    name = "OPTIMISE"
    number = 3
    layouts = (GROUP,)
    function = Function.OPTIMISE
    line = (
        "kind {kind}: {count} lengths from {first_length} on, by sum[{lnl_sum}] and "
        "sum[{first_sum}...]"
    )

    records: Records
    alone: bool = False

    def jobs(self, shape: LaunchShape) -> int:
        groups = len(self.records)
        return -(-groups // shape.items) if self.alone else groups

    def aux(self, cases: Records) -> int:
        """1 where a work-item, not a work-group, has each group."""
        return int(self.alone)

    def control(self, driver: Driver, at: int, repeats: int) -> int:
        driver.step(at)
        return at + 1


class _Aim(NamedTuple):
    """The target of a group's step, and how far to trust it."""

    target: Float64
    promise: float
    """Gain of lnL there, were it a quadratic."""
    is_far: bool
    """True where a length may be far from a maximum, whatever is promised."""
    weights: Float64
    """Weights of the lengths in a comparison of steps: minus the second derivatives, at least 0."""


class LengthOptimiser:
    """The state of all groups between passes."""

    def __init__(
        self, lengths: Float64, control: Float64, min_length: float, max_length: float
    ) -> None:
        self.lengths = lengths
        self.control = control
        self.best = lengths.copy()
        self.target = lengths.copy()
        self.min_length = min_length
        self.max_length = max_length

    @property
    def active(self) -> bool:
        """True while any group still moves."""
        return bool(self.control[:, Control.ACTIVE].any())

    def step(self, groups: npt.NDArray[np.void], sums: Float64) -> None:
        """One pass over all groups (:data:`GROUP`), given f64[sums]."""
        for g, group in enumerate(groups):
            if self.control[g, Control.ACTIVE]:
                self._step(self.control[g], group, sums)

    def _step(self, control: Float64, group: np.void, sums: Float64) -> None:
        lnl, epsilon = sums[group["lnl_sum"]], control[Control.EPSILON]
        gain = lnl - control[Control.BEST]
        passes = control[Control.PASSES] + 1
        first = passes == 1
        better = first or gain >= 0
        span = slice(group["first_length"], group["first_length"] + group["count"])
        at_end, goes_on, following = False, better, self.target[span]
        if better:
            aim = self._aim(self.lengths[span], group, sums)
            at_end = not aim.is_far and (
                aim.promise < contract.LEAST_PROMISE * epsilon
                or lnl + contract.GAIN_PER_PROMISE * aim.promise < control[Control.FLOOR]
            )
            goes_on = first or aim.is_far or gain >= epsilon * control[Control.STEP]
            is_mixed = not first and group["kind"] == GroupKind.DIAGONAL
            following = self._mixed(span, aim) if is_mixed else aim.target
            self.best[span], self.target[span] = self.lengths[span], aim.target
            control[Control.BEST] = lnl
        step = min(1.0, control[Control.STEP] * (contract.STEP_GROWTH if goes_on else 0.5))
        spent = not goes_on and step * 2.0**contract.MAX_STEP_HALVINGS < 1
        done = at_end or spent or passes >= control[Control.MAX_PASSES]
        if done:
            self.lengths[span] = self.best[span]
        elif step == 1:
            self.lengths[span] = following
        else:
            self.lengths[span] = self.best[span] + step * (self.target[span] - self.best[span])
        control[Control.ACTIVE] = not done
        control[Control.STEP] = step
        control[Control.PASSES] = passes
        control[Control.ACCEPTED] = better

    def _aim(self, lengths: Float64, group: np.void, sums: Float64) -> _Aim:
        """Return the aim of a group's lengths."""
        first, count = group["first_sum"], group["count"]
        if group["kind"] == GroupKind.TRIPLET:
            return self._joint_aim(lengths, sums[first : first + 3], sums[first + 3 : first + 9])
        slope, curve = sums[first : first + 2 * count].reshape(count, 2).T
        newton = curve < 0
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(newton, slope / curve, np.inf)
            step = np.where(step > 0, lengths * step / (lengths + step), step)
        following = np.where(newton, lengths - step, _blind(lengths, slope))
        target = self._within_reach(lengths, following)
        promise = np.where(newton, slope / 2, slope) * (target - lengths)
        is_far = _is_far(lengths, following, target, newton)
        return _Aim(target, abs(float(promise.sum())), is_far, np.maximum(-curve, 0.0))

    def _joint_aim(self, lengths: Float64, slope: Float64, hessian: Float64) -> _Aim:
        """Return the aim of a triplet: Newton's step, or the best within reach."""
        curves, newton = _uncoupled(hessian)
        step = solve_triplet(slope, hessian)
        following = np.where(newton, lengths if step is None else lengths - step, 0.0)
        following = np.where(newton, following, _blind(lengths, slope))
        target = self._within_reach(lengths, following)
        if step is None or (newton & (target != following)).any():
            for one in np.tile(np.flatnonzero(newton), contract.REACH_SWEEPS):
                pull = slope[one] + curves[one] @ (target - lengths)
                following[one] = target[one] - pull / curves[one, one]
                target[one] = self._within_reach(lengths[one], following[one])
        change = target - lengths
        promise = float(slope @ change + change @ curves @ change / 2)
        is_far = _is_far(lengths, following, target, newton)
        return _Aim(target, abs(promise), is_far, np.maximum(-hessian[:3], 0.0))

    def _mixed(self, span: slice, aim: _Aim) -> Float64:
        """The aim, and what the last step's change adds to it."""
        lengths, before = self.lengths[span], self.target[span] - self.best[span]
        residual = aim.target - lengths
        change = residual - before
        size = float((aim.weights * change**2).sum())
        share = float((aim.weights * residual * change).sum()) / size if size > 0 else 0.0
        share = (
            max(share, -contract.MOST_MIXED) if share < 1 else 0.0
        )  # steps that grow tell nothing
        return self._within_reach(lengths, aim.target - share * (aim.target - self.target[span]))

    def _within_reach(self, lengths: Float64, following: Float64) -> Float64:
        """The lengths that follow, cut to the reach of a step and to the bounds."""
        highest = contract.MOST_GROWTH * lengths + contract.LEAST_REACH
        reached = np.clip(following, lengths / contract.MOST_DECLINE, highest)
        return np.asarray(np.clip(reached, self.min_length, self.max_length))


def _blind(lengths: Float64, slope: Float64) -> Float64:
    """Return the lengths that follow where the curvature is of no use."""
    return np.where(slope > 0, contract.UPHILL * lengths, lengths / contract.DOWNHILL)


def _is_far(lengths: Float64, following: Float64, target: Float64, newton: Bool) -> bool:
    """True where a length may be far from a maximum, whatever is promised."""
    too_far = following > contract.MOST_GROWTH * lengths + contract.LEAST_REACH
    is_far = (target != lengths) & np.where(newton, too_far, lengths > contract.SATURATED)
    return bool(is_far.any())


def _uncoupled(hessian: Float64) -> tuple[Float64, Bool]:
    """f64[3, 3]: second derivatives without those of lengths that take no part; bool[3]: others."""
    newton = hessian[:3] < 0
    curves = hessian[[[0, 3, 4], [3, 1, 5], [4, 5, 2]]]
    return np.where(newton & newton[:, None], curves, 0.0), newton


def solve_triplet(gradient: Float64, hessian: Float64) -> Float64 | None:
    """H^-1 g, f64[3], for H as (11, 22, 33, 12, 13, 23); None where -H is not positive definite.

    A length whose curvature is not negative takes no part, its step infinite: what the data say
    nothing of has one of either sign, which is rounding. To what is all but singular a ridge is
    added (:data:`mltree.program.contract.RIDGE`).
    """
    alone = ~(hessian[:3] < 0)
    first, second = np.array([[0, 0, 1], [1, 2, 2]])
    curves, gradient = np.where(alone, -1.0, hessian[:3]), np.where(alone, 0.0, gradient)
    between = np.where(alone[first] | alone[second], 0.0, hessian[3:])
    step = _cramer(gradient, np.append(curves, between), contract.RIDGE**2)
    if step is None:
        step = _cramer(gradient, np.append(curves * (1 + contract.RIDGE), between), 0.0)
    return None if step is None else np.where(alone, np.inf, step)


def _cramer(gradient: Float64, hessian: Float64, least: float) -> Float64 | None:
    """H^-1 g by Cramer's rule, as on the device: a step may be long.

    None where -H is not positive definite, its determinant at most ``least`` of its diagonal's, or
    the step not finite.
    """
    a, b, c, d, e, f = hessian
    minor = a * b - d * d
    determinant = c * minor - a * f * f + 2 * d * e * f - b * e * e
    if not (a < 0 and minor > 0 and determinant < 0 and determinant < least * (a * b * c)):
        return None
    cofactors = np.array(
        [
            [b * c - f * f, e * f - c * d, d * f - b * e],
            [e * f - c * d, a * c - e * e, d * e - a * f],
            [d * f - b * e, d * e - a * f, minor],
        ]
    )
    step: Float64 = cofactors @ gradient / determinant
    return step if np.isfinite(step).all() else None


# REPEAT: back to an earlier stage while a group of branch lengths moves.


class Repeat(ControlStage):
    """Back to stage ``to`` while one of ``groups`` groups is active, at most ``times``."""

    name = "REPEAT"
    number = 4

    to: int
    times: int
    groups: int

    @property
    def title(self) -> str:
        of = f"{self.groups} groups moves, at most {self.times} times"
        return f"REPEAT from {self.to:03d} while one of {of}"

    def jobs(self, shape: LaunchShape) -> int:
        return 1

    def encode(self, words: Words) -> tuple[int, int]:
        return self.to, self.times

    def aux(self, cases: object) -> int:
        """The number of groups."""
        return self.groups

    def control(self, driver: Driver, at: int, repeats: int) -> int:
        return self.to if repeats < self.times and driver.is_active(self.groups) else at + 1
