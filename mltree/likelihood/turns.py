"""Lengths optimised where sites were left out: by turns, with the numbers of those last expected.

Expectation and maximisation (Dempster, Laird, Rubin 1977, J. R. Stat. Soc. B 39:1-38): see
:mod:`mltree.likelihood.ascertainment`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mltree.arrays import Float64, Index
from mltree.likelihood.left_out import Corrected

__all__ = ["MAX_TURNS", "in_turns"]


MAX_TURNS = 60
"""Turns at most: expected numbers, then lengths under them."""

STRETCHES = (1.0, 1.5, 2.5, 5.0, 10.0)
"""Factors on the log of what a turn did to each length. Turns alone converge slowly where most
sites were left out (90 % of them: a tenth of the way each); the best factor is taken, and 1 is
among them, so that no turn loses."""


def in_turns(
    start: Sequence[Float64],
    known: Corrected,
    raised: Callable[[Index, list[Float64], Corrected], list[Float64]],
    corrected: Callable[[Index, list[Float64]], Corrected],
    clip: Callable[[Float64], Float64],
    epsilon: float,
    turns: int = MAX_TURNS,
) -> tuple[list[Float64], Corrected]:
    """The lengths of n trees, f64[...] each, and their lnL, once no turn gains ``epsilon``.

    known      of the trees as they start
    raised     better lengths of some of them, under the numbers of the latest
    corrected  what their lnL is; a tree may be asked for with several lengths
    clip       keeps lengths within their bounds
    """
    best, lnl = list(start), known.lnl.copy()
    numbers, above = known.numbers.copy(), known.above.copy()
    moving = np.arange(len(best))
    for _ in range(turns):
        before = [clip(best[n]) for n in moving.tolist()]
        after = raised(moving, before, Corrected(lnl, numbers, above).of(moving))
        tried = [
            clip(one * (other / one) ** far)
            for one, other in zip(before, after, strict=True)
            for far in STRETCHES
        ]
        found = corrected(np.repeat(moving, len(STRETCHES)), tried)
        by_tree = found.lnl.reshape(-1, len(STRETCHES))
        chosen = by_tree.argmax(axis=1) + len(STRETCHES) * np.arange(len(moving))
        gain = found.lnl[chosen] - lnl[moving]
        better, chosen = moving[gain >= 0.0], chosen[gain >= 0.0]
        for n, k in zip(better.tolist(), chosen.tolist(), strict=True):
            best[n] = tried[k]
        lnl[better], numbers[better] = found.lnl[chosen], found.numbers[chosen]
        above[better] = found.above[chosen]
        moving = moving[gain >= epsilon]
        if not moving.size:
            break
    return best, Corrected(lnl, numbers, above)
