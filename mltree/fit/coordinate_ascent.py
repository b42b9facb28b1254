"""Coordinate ascent: model and branch lengths in turn, until neither gains from the other.

Where turn after turn gains as much, both creep along a ridge. The change of a turn, of all
variables on log scales, is then extrapolated, as far as lnL rises.
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

MIN_PACE, MAX_PACE = 0.5, 0.95
"""Bounds on the gain of a turn as a share of the turn before; the first turns say little."""

ROUGH_TURNS = 2
"""Turns of several starts at rough tolerances, after which the starts far behind are dropped."""

MAX_GAIN_FACTOR, TIE, ROUGH_SLACK = 2.0, 0.01, 0.5
"""Gain that a fit may still have ahead, in gains of its last turn; lnL by which it has to end above
the best; and lnL that it may gain beside that after a rough turn. The first turn tells nothing:
from 21 below another the best of four starts came out 4.7 above it (TIM2+I+G4, 11 taxa x
212 sites). Two that were 0.2 apart after rough turns changed places (BIN+R3, 5 taxa x 122)."""

SAME_MAXIMUM, SHORT_LENGTH = 0.25, 1e-3
"""Differences below which two fits are on their way to one maximum: between variables of their
models, most of them logs, and between logs of lengths, to each of which SHORT_LENGTH is added."""

FAST_TURNS = 2
"""Turns that are not extrapolated; two to four turns are usual in all."""

EXTRAPOLATIONS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Multiples of a turn's change that are tried beyond its end, in one launch. Two linked parts with
free rates, 4 taxa x 150 sites: 54 turns had ended 0.023 below a maximum, 23 turns 0.13 below
another; with extrapolation it is 0.014 after 17, and 0.003 after 16."""


LOG_RANGE = (-700.0, 700.0)
"""Range of logs whose exponentials are normal numbers."""


@dataclass
class Progress:
    """Progress of a fit, turn by turn."""

    fit: Fit
    gain: float = np.inf
    """lnL gained in the last turn."""
    remaining_gain: float = np.inf
    """lnL that all further turns would gain, if each keeps the pace of the last two."""
    turns: int = 0
    extrapolated: bool = False
    """True if the last turn was extrapolated: the next turn's pace then tells little."""

    @property
    def reachable(self) -> float:
        """Highest lnL that the fit may end with, less a tie."""
        if self.turns < 2:
            return np.inf
        return self.fit.lnl + MAX_GAIN_FACTOR * max(self.gain, 0.0) - TIE

    def update(self, before: float) -> None:
        """Record a turn that began at an lnL."""
        gain = self.fit.lnl - before
        if np.isfinite(gain):
            # After a turn without a gain, or an extrapolation, a turn says nothing of the pace.
            pace = MAX_PACE
            if self.gain != 0.0 and not self.extrapolated:
                pace = float(np.clip(gain / self.gain, MIN_PACE, MAX_PACE))
            pace = pace if gain > 0 else 0.0
            self.remaining_gain = gain * pace / (1.0 - pace)
        self.gain = gain
        self.turns += 1
        self.extrapolated = False


def ascend_best(
    fits: Sequence[Fit],
    settings: SearchSettings,
    emit: Emit,
    *,
    parameters: bool = True,
) -> Steps[Fit]:
    """Bring fits to a maximum, and return the best; without ``parameters``, over lengths alone.

    Fits that cannot become the best are left on the way.
    """
    if parameters:
        fits = yield from _race(fits, settings)
    unsettled = yield from ascend(fits, settings, parameters=parameters, best_alone=True)
    best = max(fits, key=lambda fit: fit.lnl)
    what = "model and branch lengths" if parameters else "branch lengths"
    ahead = [progress.remaining_gain for progress in unsettled if progress.fit is best]
    if ahead or best.lacking:
        emit(StoppedShort.by(what, max([best.lacking, *ahead])))
    return best


def ascend(
    fits: Sequence[Fit],
    settings: SearchSettings,
    *,
    parameters: bool = True,
    best_alone: bool = False,
) -> Steps[list[Progress]]:
    """Bring every fit to a maximum, side by side; return the progress of those that were not.

    Model and lengths are coupled, so that turns converge at a pace of their own: a small gain says
    little where turn after turn brings as much. ``best_alone``: only the best of them counts.
    """
    under_way = [Progress(fit) for fit in fits]
    for _ in range(settings.max_ascent_turns):
        slow = [progress for progress in under_way if parameters and progress.turns >= FAST_TURNS]
        starts = [(progress, _Position.of(progress.fit)) for progress in slow]
        epsilon = settings.model.final_epsilon if parameters else None
        yield from _turn(under_way, settings, epsilon, settings.final_smooth_epsilon)
        yield from _extrapolate(starts, settings)
        under_way = [c for c in under_way if c.remaining_gain >= settings.ascent_epsilon]
        if best_alone:
            under_way = _contending(under_way, max(fit.lnl for fit in fits))
        if not under_way:
            break
    return under_way


def _race(fits: Sequence[Fit], settings: SearchSettings) -> Steps[list[Fit]]:
    """Return the fits that may become the best after rough turns; a lone fit unchanged."""
    under_way = [Progress(fit) for fit in fits]
    for _ in range(ROUGH_TURNS):
        if len(under_way) < 2:
            break
        rough = settings.model.rough_epsilon, settings.rounds.smooth_epsilon
        yield from _turn(under_way, settings, *rough)
        best = max(progress.fit.lnl for progress in under_way)
        under_way = _distinct(_contending(under_way, best - ROUGH_SLACK))
    return [progress.fit for progress in under_way]


def _contending(progresses: Sequence[Progress], best: float) -> list[Progress]:
    """Return the courses that may end above a best lnL, or have it."""
    return [
        progress for progress in progresses if max(progress.reachable, progress.fit.lnl) >= best
    ]


def _distinct(progresses: Sequence[Progress]) -> list[Progress]:
    """Drop every course that has a better one nearby; the order stays."""
    kept_so_far: list[tuple[Progress, _Position]] = []
    for progress in sorted(progresses, key=lambda progress: -progress.fit.lnl):
        position = _Position.of(progress.fit)
        if not any(_are_same(progress.fit, position, one.fit, other) for one, other in kept_so_far):
            kept_so_far.append((progress, position))
    kept = {id(progress) for progress, _ in kept_so_far}
    return [progress for progress in progresses if id(progress) in kept]


def _are_same(one: Fit, position: _Position, other: Fit, beside: _Position) -> bool:
    if not one.tree.is_alike(other.tree):
        return False
    logs = (log_of_many(fit.tree.lengths + SHORT_LENGTH) for fit in (one, other))
    pairs = [tuple(logs), *zip(position.points, beside.points, strict=True)]
    return all(np.abs(here - there).max(initial=0.0) <= SAME_MAXIMUM for here, there in pairs)


def _turn(
    progresses: Sequence[Progress], settings: SearchSettings, model: float | None, lengths: float
) -> Steps[None]:
    """Optimise models, to an epsilon if any, and then lengths."""
    before = [progress.fit.lnl for progress in progresses]
    fits = [progress.fit for progress in progresses]
    if model is not None:
        yield from optimise_models(fits, settings.model, settings.branches, model)
    yield from _smooth(fits, lengths)
    for progress, lnl in zip(progresses, before, strict=True):
        progress.update(lnl)


def _smooth(fits: Sequence[Fit], epsilon: float) -> Steps[None]:
    cases = [fit.case for fit in fits]
    lnls = yield from smoothed([fit.tree for fit in fits], cases, epsilon)
    for fit, lnl in zip(fits, lnls, strict=True):
        fit.lnl = lnl


class _Position(NamedTuple):
    """Position of a fit, on log scales."""

    points: list[Float64]
    """f64[n] of each part: the free parameters of its model."""
    lengths: Float64
    """f64[edges], or f64[parts, edges]."""
    scalers: Float64
    """f64[parts]: logs of the factors on branch lengths."""

    @classmethod
    def of(cls, fit: Fit) -> _Position:
        points = [vector(model) for model in fit.model.models]
        lengths = np.maximum(fit.tree.lengths, np.finfo(np.float64).tiny)  # artificial ones are 0
        return cls(points, log_of_many(lengths), log(fit.model.scalers))

    def beyond(self, before: _Position, times: float) -> _Position:
        """Extrapolate the change from another position, so many times."""

        def further(here: Float64, there: Float64) -> Float64:
            return here + times * (here - there)

        points = list(map(further, self.points, before.points))
        lengths, scalers = map(further, self[1:], before[1:])
        return _Position(points, lengths, scalers)

    def taken_by(self, fit: Fit, branches: BranchSettings) -> Fit:
        """Return a fit of the same data at this position, within the bounds."""
        models = fit.model.models
        limits = [np.array(bounds(model)).reshape(-1, 2).T for model in models]
        points = [np.clip(point, *limit) for point, limit in zip(self.points, limits, strict=True)]
        scalers = np.clip(exp(np.clip(self.scalers, *LOG_RANGE)), SCALER_MIN, SCALER_MAX)
        shortest = np.minimum(fit.tree.lengths, branches.minimum)
        lengths = exp_of_many(np.clip(self.lengths, *LOG_RANGE))
        lengths = np.clip(lengths, shortest, branches.maximum)
        model = fit.model.with_parts(with_vectors(models, points), scalers)
        return replace(fit, tree=fit.tree.with_lengths(lengths), model=model)


def _extrapolate(
    starts: Sequence[tuple[Progress, _Position]], settings: SearchSettings
) -> Steps[None]:
    """Move fits beyond the end of a turn, as far in its direction as pays."""
    if not starts:
        return
    tried = [
        _Position.of(progress.fit).beyond(before, times).taken_by(progress.fit, settings.branches)
        for progress, before in starts
        for times in EXTRAPOLATIONS
    ]
    rows = yield from part_log_likelihoods([fit.tree for fit in tried], [fit.case for fit in tried])
    lnls = rows.sum(axis=1).reshape(len(starts), -1)
    for n, ((progress, _), row) in enumerate(zip(starts, lnls, strict=True)):
        best, fit = int(row.argmax()), progress.fit
        gain = float(row[best]) - fit.lnl
        if gain >= settings.ascent_epsilon:
            progress.remaining_gain = max(progress.remaining_gain, gain)
            progress.extrapolated = True
            farther = tried[n * len(EXTRAPOLATIONS) + best]
            fit.tree.lengths[:], fit.model = farther.tree.lengths, farther.model
            fit.lnl, fit.part_lnls = float(row[best]), rows[n * len(EXTRAPOLATIONS) + best]
