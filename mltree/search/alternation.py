"""Model and branch lengths in turn, until neither has anything left to gain from the other.

Where turn after turn brings as much, they creep along a ridge: then the way of a turn, of all
variables on log scales, is followed further, as far as lnL rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.events import Emit
from mltree.events.search import StoppedShort
from mltree.model.parameters import bounds, vector
from mltree.model.partitioned import SCALER_MAX, SCALER_MIN
from mltree.model.points import with_vectors
from mltree.model.portable import exp, exp_of_many, log, log_of_many
from mltree.search.model_optimiser import Fit, optimise_models
from mltree.search.requests import Steps, part_log_likelihoods, smoothed
from mltree.settings import BranchSettings, SearchSettings

__all__ = ["Course", "alternate", "settle"]

Float = NDArray[np.float64]

LEAST_PACE, MOST_PACE = 0.5, 0.95
"""Bounds on what a turn gains as a share of the turn before: the first turns tell little."""

FAST_TURNS = 2
"""That are not followed further: two to four are usual."""

LEAPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Times the way of a turn that are tried, in one launch. Two linked parts with free rates, 4 taxa x
150 sites: 54 turns had ended 0.023 below a maximum, 23 turns 0.13 below another; with leaps it is
0.014 after 17, and 0.003 after 16."""


LOGS = (-700.0, 700.0)
"""Whose exponentials are normal numbers."""


@dataclass
class Course:
    """How a fit gets on, turn by turn."""

    fit: Fit
    gain: float = np.inf
    """lnL of the last turn."""
    outlook: float = np.inf
    """lnL that all further turns would gain, if each keeps the pace of the last two."""
    turns: int = 0

    def note(self, before: float) -> None:
        """Take in a turn that began at an lnL."""
        gain = self.fit.lnl - before
        if np.isfinite(gain):
            pace = float(np.clip(gain / self.gain, LEAST_PACE, MOST_PACE)) if gain > 0 else 0.0
            self.outlook = gain * pace / (1.0 - pace)
        self.gain = gain
        self.turns += 1


def alternate(
    fits: Sequence[Fit],
    settings: SearchSettings,
    emit: Emit,
    *,
    parameters: bool = True,
) -> Steps[Fit]:
    """The best of some fits, each brought to a maximum; of its lengths alone, if asked for."""
    unsettled = yield from settle(fits, settings, parameters=parameters)
    best = max(fits, key=lambda fit: fit.lnl)
    what = "model and branch lengths" if parameters else "branch lengths"
    ahead = [course.outlook for course in unsettled if course.fit is best]
    if ahead or best.lacking:
        emit(StoppedShort.by(what, max([best.lacking, *ahead])))
    return best


def settle(
    fits: Sequence[Fit], settings: SearchSettings, *, parameters: bool = True
) -> Steps[list[Course]]:
    """Bring every fit to a maximum, side by side; those that were still moving at the end.

    Model and lengths are coupled, so that turns converge at a pace of their own: a small gain says
    little where turn after turn brings as much.
    """
    under_way = [Course(fit) for fit in fits]
    for _ in range(settings.max_alternations):
        before = [course.fit.lnl for course in under_way]
        moving = [course.fit for course in under_way]
        slow = [course for course in under_way if parameters and course.turns >= FAST_TURNS]
        starts = [(course, _Place.of(course.fit)) for course in slow]
        if parameters:
            epsilon = settings.model.final_epsilon
            yield from optimise_models(moving, settings.model, settings.branches, epsilon)
        yield from _smooth(moving, settings.final_smooth_epsilon)
        for course, lnl in zip(under_way, before, strict=True):
            course.note(lnl)
        yield from _leap(starts, settings)
        under_way = [c for c in under_way if c.outlook >= settings.alternation_epsilon]
        if not under_way:
            break
    return under_way


def _smooth(fits: Sequence[Fit], epsilon: float) -> Steps[None]:
    cases = [fit.case for fit in fits]
    lnls = yield from smoothed([fit.tree for fit in fits], cases, epsilon)
    for fit, lnl in zip(fits, lnls, strict=True):
        fit.lnl = lnl


class _Place(NamedTuple):
    """Where a fit stands, on log scales."""

    points: list[Float]
    """f64[n] of each part: the free parameters of its model."""
    lengths: Float
    """f64[edges], or f64[parts, edges]."""
    scalers: Float
    """f64[parts]."""

    @classmethod
    def of(cls, fit: Fit) -> _Place:
        points = [vector(model) for model in fit.model.models]
        lengths = np.maximum(fit.tree.lengths, np.finfo(np.float64).tiny)  # artificial ones are 0
        return cls(points, log_of_many(lengths), log(fit.model.scalers))

    def beyond(self, before: _Place, times: float) -> _Place:
        """Further on, by so many times the way from there to here."""

        def further(here: Float, there: Float) -> Float:
            return here + times * (here - there)

        points = list(map(further, self.points, before.points))
        lengths, scalers = map(further, self[1:], before[1:])
        return _Place(points, lengths, scalers)

    def taken_by(self, fit: Fit, branches: BranchSettings) -> Fit:
        """A fit of the same data that stands here, within the bounds."""
        models = fit.model.models
        limits = [np.array(bounds(model)).reshape(-1, 2).T for model in models]
        points = [np.clip(own, *limit) for own, limit in zip(self.points, limits, strict=True)]
        scalers = np.clip(exp(np.clip(self.scalers, *LOGS)), SCALER_MIN, SCALER_MAX)
        shortest = np.minimum(fit.tree.lengths, branches.minimum)
        lengths = exp_of_many(np.clip(self.lengths, *LOGS))
        lengths = np.clip(lengths, shortest, branches.maximum)
        model = fit.model.with_parts(with_vectors(models, points), scalers)
        return replace(fit, tree=fit.tree.with_lengths(lengths), model=model)


def _leap(starts: Sequence[tuple[Course, _Place]], settings: SearchSettings) -> Steps[None]:
    """Take fits on from where a turn began to where it ended and beyond, where that pays."""
    if not starts:
        return
    tried = [
        _Place.of(course.fit).beyond(before, times).taken_by(course.fit, settings.branches)
        for course, before in starts
        for times in LEAPS
    ]
    rows = yield from part_log_likelihoods([fit.tree for fit in tried], [fit.case for fit in tried])
    lnls = rows.sum(axis=1).reshape(len(starts), -1)
    for n, ((course, _), own) in enumerate(zip(starts, lnls, strict=True)):
        best, fit = int(own.argmax()), course.fit
        gain = float(own[best]) - fit.lnl
        if gain >= settings.alternation_epsilon:
            course.outlook = max(course.outlook, gain)
            found = tried[n * len(LEAPS) + best]
            fit.tree.lengths[:], fit.model = found.tree.lengths, found.model
            fit.lnl, fit.part_lnls = float(own[best]), rows[n * len(LEAPS) + best]
