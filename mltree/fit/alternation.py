"""Model and branch lengths in turn, until neither has anything left to gain from the other.

Where turn after turn brings as much, they creep along a ridge: then the way of a turn, of all
variables on log scales, is followed further, as far as lnL rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mltree.fit.model_optimiser import Fit, optimise_models
from mltree.fit.settings import BranchSettings, SearchSettings
from mltree.likelihood.requests import Steps, part_log_likelihoods, smoothed
from mltree.models.parameters import bounds, vector, with_vectors
from mltree.models.partitioned import SCALER_MAX, SCALER_MIN
from mltree.models.portable import exp, exp_of_many, log, log_of_many
from mltree.system.arrays import Float64
from mltree.system.events import Emit, StoppedShort

LEAST_PACE, MOST_PACE = 0.5, 0.95
"""Bounds on what a turn gains as a share of the turn before: the first turns tell little."""

ROUGH_TURNS = 2
"""Turns of several starts at rough tolerances, after which the starts far behind are dropped."""

MOST_AHEAD, TIE, ROUGH_SLACK = 2.0, 0.01, 0.5
"""Gain that a fit may still have ahead, in gains of its last turn; lnL by which it has to end above
the best; and lnL that it may gain beside that after a rough turn. The first turn tells nothing:
from 21 below another the best of four starts came out 4.7 above it (TIM2+I+G4, 11 taxa x
212 sites). Two that were 0.2 apart after rough turns changed places (BIN+R3, 5 taxa x 122)."""

TWINS, SHORT = 0.25, 1e-3
"""Between variables of two models, most of them logs, and between logs of lengths, so much added to
each, below which two fits are on their way to one maximum."""

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
    leapt: bool = False
    """True if the last turn was extrapolated: the next turn's pace then tells little."""

    @property
    def reachable(self) -> float:
        """Highest lnL that the fit may end with, less a tie."""
        return self.fit.lnl + MOST_AHEAD * max(self.gain, 0.0) - TIE if self.turns > 1 else np.inf

    def note(self, before: float) -> None:
        """Take in a turn that began at an lnL."""
        gain = self.fit.lnl - before
        if np.isfinite(gain):
            # A turn behind one without a gain, or behind a leap, tells nothing of the pace.
            pace = MOST_PACE
            if self.gain != 0.0 and not self.leapt:
                pace = float(np.clip(gain / self.gain, LEAST_PACE, MOST_PACE))
            pace = pace if gain > 0 else 0.0
            self.outlook = gain * pace / (1.0 - pace)
        self.gain = gain
        self.turns += 1
        self.leapt = False


def alternate(
    fits: Sequence[Fit],
    settings: SearchSettings,
    emit: Emit,
    *,
    parameters: bool = True,
) -> Steps[Fit]:
    """The best of some fits, each brought to a maximum; of its lengths alone, if asked for.

    Those that cannot become the best are left on the way.
    """
    if parameters:
        fits = yield from _race(fits, settings)
    unsettled = yield from settle(fits, settings, parameters=parameters, best_alone=True)
    best = max(fits, key=lambda fit: fit.lnl)
    what = "model and branch lengths" if parameters else "branch lengths"
    ahead = [course.outlook for course in unsettled if course.fit is best]
    if ahead or best.lacking:
        emit(StoppedShort.by(what, max([best.lacking, *ahead])))
    return best


def settle(
    fits: Sequence[Fit],
    settings: SearchSettings,
    *,
    parameters: bool = True,
    best_alone: bool = False,
) -> Steps[list[Course]]:
    """Bring every fit to a maximum, side by side; those that were still moving at the end.

    Model and lengths are coupled, so that turns converge at a pace of their own: a small gain says
    little where turn after turn brings as much. ``best_alone``: only the best of them counts.
    """
    under_way = [Course(fit) for fit in fits]
    for _ in range(settings.max_alternations):
        slow = [course for course in under_way if parameters and course.turns >= FAST_TURNS]
        starts = [(course, _Place.of(course.fit)) for course in slow]
        epsilon = settings.model.final_epsilon if parameters else None
        yield from _turn(under_way, settings, epsilon, settings.final_smooth_epsilon)
        yield from _leap(starts, settings)
        under_way = [c for c in under_way if c.outlook >= settings.alternation_epsilon]
        if best_alone:
            under_way = _hopeful(under_way, max(fit.lnl for fit in fits))
        if not under_way:
            break
    return under_way


def _race(fits: Sequence[Fit], settings: SearchSettings) -> Steps[list[Fit]]:
    """Return the fits that may become the best after rough turns; a lone fit unchanged."""
    under_way = [Course(fit) for fit in fits]
    for _ in range(ROUGH_TURNS):
        if len(under_way) < 2:
            break
        rough = settings.model.rough_epsilon, settings.rounds.smooth_epsilon
        yield from _turn(under_way, settings, *rough)
        best = max(course.fit.lnl for course in under_way)
        under_way = _apart(_hopeful(under_way, best - ROUGH_SLACK))
    return [course.fit for course in under_way]


def _hopeful(courses: Sequence[Course], best: float) -> list[Course]:
    """Return the courses that may end above a best lnL, or have it."""
    return [course for course in courses if max(course.reachable, course.fit.lnl) >= best]


def _apart(courses: Sequence[Course]) -> list[Course]:
    """Drop every course that has a better one nearby; the order stays."""
    found: list[tuple[Course, _Place]] = []
    for course in sorted(courses, key=lambda course: -course.fit.lnl):
        place = _Place.of(course.fit)
        if not any(_are_twins(course.fit, place, one.fit, other) for one, other in found):
            found.append((course, place))
    kept = {id(course) for course, _ in found}
    return [course for course in courses if id(course) in kept]


def _are_twins(one: Fit, place: _Place, other: Fit, beside: _Place) -> bool:
    if not one.tree.is_alike(other.tree):
        return False
    logs = (log_of_many(fit.tree.lengths + SHORT) for fit in (one, other))
    pairs = [tuple(logs), *zip(place.points, beside.points, strict=True)]
    return all(np.abs(here - there).max(initial=0.0) <= TWINS for here, there in pairs)


def _turn(
    courses: Sequence[Course], settings: SearchSettings, model: float | None, lengths: float
) -> Steps[None]:
    """Models, to an epsilon if any, and then lengths."""
    before = [course.fit.lnl for course in courses]
    fits = [course.fit for course in courses]
    if model is not None:
        yield from optimise_models(fits, settings.model, settings.branches, model)
    yield from _smooth(fits, lengths)
    for course, lnl in zip(courses, before, strict=True):
        course.note(lnl)


def _smooth(fits: Sequence[Fit], epsilon: float) -> Steps[None]:
    cases = [fit.case for fit in fits]
    lnls = yield from smoothed([fit.tree for fit in fits], cases, epsilon)
    for fit, lnl in zip(fits, lnls, strict=True):
        fit.lnl = lnl


class _Place(NamedTuple):
    """Where a fit stands, on log scales."""

    points: list[Float64]
    """f64[n] of each part: the free parameters of its model."""
    lengths: Float64
    """f64[edges], or f64[parts, edges]."""
    scalers: Float64
    """f64[parts]."""

    @classmethod
    def of(cls, fit: Fit) -> _Place:
        points = [vector(model) for model in fit.model.models]
        lengths = np.maximum(fit.tree.lengths, np.finfo(np.float64).tiny)  # artificial ones are 0
        return cls(points, log_of_many(lengths), log(fit.model.scalers))

    def beyond(self, before: _Place, times: float) -> _Place:
        """Further on, by so many times the way from there to here."""

        def further(here: Float64, there: Float64) -> Float64:
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
            course.outlook, course.leapt = max(course.outlook, gain), True
            found = tried[n * len(LEAPS) + best]
            fit.tree.lengths[:], fit.model = found.tree.lengths, found.model
            fit.lnl, fit.part_lnls = float(own[best]), rows[n * len(LEAPS) + best]
