"""Fits side by side of which only those are taken to their ends that may come out near the best.

Branch lengths that follow a model bring it little beside what tells one matrix from another, and
take most of the work. So models are fitted to the lengths as they are, and lengths then follow
those that score near the best alone; how near, what lengths have brought so far says too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64
from mltree.likelihood.api import Likelihood
from mltree.search.alternation import settle
from mltree.search.model_optimiser import Fit, optimise_models
from mltree.search.requests import perform
from mltree.settings import SearchSettings

__all__ = ["settle_promising", "within_reach"]


SIEVE = 20.0
"""Fits that score so much above the best before lengths follow them are left. Lengths brought
matrices 1 lnL at most, and those that lacked more than 20 lnL 3 % of that; rates among sites, whose
fits scale all lengths, 15 % (8 simulated sets of 6 to 45 taxa, DNA and protein)."""

HOPE = 2.0
"""How many times what lengths brought another of the part they may bring a fit, beside that."""

HASTE = 1.0
"""LnL that a model may lack where it is compared."""


def within_reach(fits: Sequence[Fit], penalties: Float64) -> NDArray[np.bool_]:
    """Bool[n]: which fits of single parts come near the best of their part, lengths as they are.

    ``penalties``: f64[n], scores at an lnL of 0.
    """
    scores = penalties - 2.0 * np.array([fit.lnl for fit in fits])
    parts = np.array([fit.first_part for fit in fits])
    best = np.full(parts.max() + 1, np.inf)
    np.minimum.at(best, parts, scores)
    near: NDArray[np.bool_] = scores <= best[parts] + SIEVE
    return near


def settle_promising(
    likelihood: Likelihood,
    fits: Sequence[Fit],
    penalties: Float64,
    best: Float64,
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
