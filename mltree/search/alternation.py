"""Model and branch lengths in turn, until neither has anything left to gain from the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltree.events import Emit
from mltree.events.search import StoppedShort
from mltree.search.model_optimiser import Fit, optimise_models
from mltree.search.requests import Steps, smoothed
from mltree.settings import SearchSettings

__all__ = ["Course", "alternate", "settle"]

LEAST_PACE, MOST_PACE = 0.5, 0.95
"""Bounds on what a turn gains as a share of the turn before: the first turns tell little."""


@dataclass
class Course:
    """How a fit gets on, turn by turn."""

    fit: Fit
    gain: float = np.inf
    """lnL of the last turn."""
    outlook: float = np.inf
    """lnL that all further turns would gain, if each keeps the pace of the last two."""

    def note(self, before: float) -> None:
        """Take in a turn that began at an lnL."""
        gain = self.fit.lnl - before
        if np.isfinite(gain):
            pace = float(np.clip(gain / self.gain, LEAST_PACE, MOST_PACE)) if gain > 0 else 0.0
            self.outlook = gain * pace / (1.0 - pace)
        self.gain = gain


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
        if parameters:
            epsilon = settings.model.final_epsilon
            yield from optimise_models(moving, settings.model, settings.branches, epsilon)
        yield from _smooth(moving, settings.final_smooth_epsilon)
        for course, lnl in zip(under_way, before, strict=True):
            course.note(lnl)
        under_way = [c for c in under_way if c.outlook >= settings.alternation_epsilon]
        if not under_way:
            break
    return under_way


def _smooth(fits: Sequence[Fit], epsilon: float) -> Steps[None]:
    cases = [fit.case for fit in fits]
    lnls = yield from smoothed([fit.tree for fit in fits], cases, epsilon)
    for fit, lnl in zip(fits, lnls, strict=True):
        fit.lnl = lnl
