"""What replicates drew of an alignment, each in a *berth*: parts of one size for all of them.

A replicate lacks 37 % of the sites that it was drawn from. Patterns that it lacks have no place in
its berth; what is left of that are gaps without weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns

__all__ = ["drawn", "empty_berths", "usual_sizes"]

DEVIATIONS = 4.0
"""By which no replicate has more patterns than the mean one, of patterns that are there or not each
by itself. Those of an alignment are there at each other's cost, which makes it six: 1 in 10^9."""


def drawn(patterns: Patterns, weights: NDArray[np.float64], sizes: Sequence[int]) -> Patterns:
    """The patterns that have a weight, under it; part by part so many with the gaps behind them.

    weights  f64 [L]
    sizes    of each part, in patterns: as many as have a weight there, or more

    Raises: ValueError: more of a part have one.
    """
    order, is_drawn = np.zeros(sum(sizes), np.int64), np.zeros(sum(sizes), np.bool_)
    first = 0
    for part, size in zip(patterns.parts, sizes, strict=True):
        own = part.start + np.flatnonzero(weights[part])
        if own.size > size:
            raise ValueError(f"{own.size} patterns for a berth of {size}")
        order[first : first + own.size] = own
        is_drawn[first : first + own.size] = True
        first += size
    return replace(
        patterns,
        codes=np.where(is_drawn, patterns.codes[:, order], np.uint8(patterns.alphabet.gap_code)),
        weights=weights[order] * is_drawn,
        ends=_ends(sizes),
        systems=patterns.systems and patterns.systems.take(order),
    )


def empty_berths(patterns: Patterns, sizes: Sequence[int], count: int) -> Patterns:
    """So many berths for what is drawn of the patterns, one after the other, with nothing in them.

    sizes  of each part of a berth, in patterns
    """
    one = drawn(patterns, np.zeros(patterns.n_patterns), sizes)
    return replace(
        one,
        codes=np.tile(one.codes, (1, count)),
        weights=np.tile(one.weights, count),
        ends=_ends([*sizes] * count),
        systems=one.systems and one.systems.take(np.tile(np.arange(sum(sizes)), count)),
    )


def usual_sizes(patterns: Patterns) -> list[int]:
    """Patterns of each part that no replicate will have more of; all else is chance.

    One that n_i of n sites show is missing in (1 - n_i / n)^n of the replicates.
    """
    sizes: list[int] = []
    for part in patterns.parts:
        weights = patterns.weights[part]
        missing = (1.0 - weights / max(weights.sum(), 1.0)) ** weights.sum()
        mean, variance = (1.0 - missing).sum(), (missing * (1.0 - missing)).sum()
        most = int(np.count_nonzero(weights))
        sizes.append(min(most, int(np.ceil(mean + DEVIATIONS * np.sqrt(variance)))))
    return sizes


def _ends(sizes: Sequence[int]) -> tuple[int, ...]:
    """Before which pattern each of several parts ends; () of one."""
    return tuple(np.cumsum(sizes).tolist()) if len(sizes) > 1 else ()
