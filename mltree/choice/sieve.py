"""Fits side by side of which only those are taken to their ends that may come out near the best.

Branch lengths that follow a model bring it little beside what tells one matrix from another, and
take most of the work. So models are fitted to the lengths as they are, and lengths then follow
those that score near the best alone; how near, what lengths have brought so far says too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mltree.likelihood.api import Likelihood
from mltree.search.alternation import settle
from mltree.search.model_optimiser import Fit, optimise_models
from mltree.search.requests import perform
from mltree.settings import SearchSettings

__all__ = ["settle_promising"]

Float = NDArray[np.float64]

SIEVE = 50.0
"""Fits that score so much above the best before lengths follow them are left. Lengths brought those
that came near 2 lnL at most, others 14, which lacked 70 (20 to 43 taxa, DNA and protein)."""

HOPE = 2.0
"""How many times what lengths brought another of the part they may bring a fit, beside that."""

HASTE = 1.0
"""LnL that a model may lack where it is compared."""


def settle_promising(
    likelihood: Likelihood,
    fits: Sequence[Fit],
    penalties: Float,
    best: Float,
    settings: SearchSettings,
) -> None:
    """Bring fits of single parts to a maximum, but leave those far from the best of their part.

    penalties  f64[n]: scores, which are smaller if better, at an lnL of 0; each unit of that takes
               2 off
    best       f64[parts]: scores that were reached before
    """
    perform(likelihood, optimise_models(fits, settings.model, settings.branches, HASTE))
    parts = np.array([fit.first_part for fit in fits])
    best, gained = best.copy(), np.zeros(best.size)
    left = np.ones(len(fits), dtype=bool)
    while True:
        before = np.array([fit.lnl for fit in fits])
        scores = penalties - 2.0 * before
        np.minimum.at(best, parts, scores)
        limits = best + SIEVE + 2.0 * HOPE * gained
        near = np.flatnonzero(left & (scores <= limits[parts]))
        if not near.size:
            return
        perform(likelihood, settle([fits[n] for n in near.tolist()], settings))
        left[near] = False
        gains = np.array([fit.lnl for fit in fits]) - before
        np.maximum.at(gained, parts[near], gains[near])
