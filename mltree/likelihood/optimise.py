"""The guarded Newton step in NumPy: what ``opencl/optimise.h`` does, for the reference engine.

A group of branch lengths moves together. A better trial becomes the best and gives a new Newton
target; a worse one halves the step from the best towards its target. A group ends on its best
lengths when a pass gains less than its epsilon, after its last pass, when the step is spent, or
where it has no hope of its floor.

A small gain is no maximum where the step was cut short: by halving, so that it counts by the share
of Newton's step that was taken; or by the bounds of a step, on the way to a length far above; or
where a length is so far beyond saturation that lnL has no slope left, only the wrong curvature.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mltree.contract import (
    HOPE,
    LEAST_REACH,
    MAX_STEP_HALVINGS,
    MOST_GROWTH,
    SATURATED,
    STEP_GROWTH,
    UPHILL,
    Control,
    GroupKind,
)

__all__ = ["LengthOptimiser", "solve_tripod"]

Float64 = npt.NDArray[np.float64]


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
        """Whether any group still moves."""
        return bool(self.control[:, Control.ACTIVE].any())

    def step(self, groups: npt.NDArray[np.void], sums: Float64) -> None:
        """One pass over all groups (:data:`mltree.contract.GROUP`), given f64[sums]."""
        for g, group in enumerate(groups):
            if self.control[g, Control.ACTIVE]:
                self._step(self.control[g], group, sums)

    def _step(self, control: Float64, group: np.void, sums: Float64) -> None:
        lnl = sums[group["lnl_sum"]]
        gain = lnl - control[Control.BEST]
        passes = control[Control.PASSES] + 1
        first = passes == 1
        better = first or gain >= 0
        last_step = control[Control.STEP]
        step = 1.0 if first else last_step * (STEP_GROWTH if better else 0.5)
        step = min(step, 1.0)
        came_far = control[Control.FAR] == passes - 1
        spent = not first and not came_far and gain < control[Control.EPSILON] * last_step
        may_reach = first or came_far or lnl + HOPE * gain >= control[Control.FLOOR]
        if not better:
            spent = step * 2.0**MAX_STEP_HALVINGS < 1
        hopeless = better and not may_reach
        done = spent or hopeless or passes >= control[Control.MAX_PASSES]
        span = slice(group["first_length"], group["first_length"] + group["count"])
        if better:
            self.best[span] = self.lengths[span]
            self.target[span], far = self._targets(self.lengths[span], group, sums)
            if far:
                control[Control.FAR] = passes
            control[Control.BEST] = lnl
        move = 0.0 if done else step
        self.lengths[span] = self.best[span] + move * (self.target[span] - self.best[span])
        control[Control.ACTIVE] = not done
        control[Control.STEP] = step
        control[Control.PASSES] = passes
        control[Control.ACCEPTED] = better

    def _targets(self, lengths: Float64, group: np.void, sums: Float64) -> tuple[Float64, bool]:
        """Where the lengths of a group aim, and whether one of them is far from a maximum."""
        first, count = group["first_sum"], group["count"]
        if group["kind"] == GroupKind.TRIPOD:
            slope, hessian = sums[first : first + 3], sums[first + 3 : first + 9]
            curve = hessian[:3]
            joint = solve_tripod(slope, hessian)
        else:
            slope, curve = sums[first : first + 2 * count].reshape(count, 2).T
            joint = None
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = np.where(curve < 0, slope / curve, np.inf)
        step = alone if joint is None else joint
        newton = np.isfinite(step)
        blind = np.where(slope > 0, UPHILL * lengths, lengths / UPHILL)
        following = np.where(newton, lengths - step, blind)
        highest = MOST_GROWTH * lengths + LEAST_REACH
        target: Float64 = np.clip(following, lengths / MOST_GROWTH, highest)
        target = np.clip(target, self.min_length, self.max_length)
        far = (target != lengths) & np.where(newton, following > highest, lengths > SATURATED)
        return target, bool(far.any())


def solve_tripod(gradient: Float64, hessian: Float64) -> Float64 | None:
    """H^-1 g, f64[3], for H as (11, 22, 33, 12, 13, 23); None where -H is not positive definite.

    By Cramer's rule, as on the device: a Hessian that is all but singular gives a long step,
    which is clipped, or one that is not finite, and no error.
    """
    a, b, c, d, e, f = hessian
    minor = a * b - d * d
    determinant = c * minor - a * f * f + 2 * d * e * f - b * e * e
    if not (a < 0 and minor > 0 and determinant < 0):
        return None
    cofactors = np.array(
        [
            [b * c - f * f, e * f - c * d, d * f - b * e],
            [e * f - c * d, a * c - e * e, d * e - a * f],
            [d * f - b * e, d * e - a * f, minor],
        ]
    )
    step: Float64 = cofactors @ gradient / determinant
    return step
