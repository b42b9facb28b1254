"""Poisson counts of many things at once, from tables: three nanoseconds each, NumPy's take 26.

A table has the count for each of 2^16 equal shares of the chances from 0 to 1. Where the chances of
two counts meet within a share, what is drawn is told apart by a fraction of 53 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64

__all__ = ["PoissonCounts"]

SHARES = 1 << 16
"""Of a table: a quarter of the bits of a word."""

MOST_WORD = np.iinfo(np.uint64).max
"""Of the 64 bits that a generator makes at a time."""

UNTOLD = 255
"""In a table: a share of several counts."""

LARGEST_MEAN = 32.0
"""Of a table, whose counts stay far below UNTOLD."""

LEAST_ALIKE = 100
"""Counts of one mean, in all rows that are drawn at a time, that are worth a table and a step of
NumPy's of their own; it draws the others one by one."""


class _Table:
    """The counts of one mean."""

    def __init__(self, mean: float) -> None:
        most = int(mean + 20.0 * np.sqrt(mean) + 20.0)  # more come with a chance of e^-80
        terms = np.cumprod(np.concatenate([[np.exp(-mean)], mean / np.arange(1, most)]))
        self.until = np.cumsum(terms)
        """Chance of so many or fewer, f64[most]."""
        ends = np.floor(self.until * SHARES).astype(np.intp)
        counts = np.repeat(np.arange(most, dtype=np.uint8), np.diff(ends, prepend=0))
        self.counts = np.pad(counts, (0, SHARES - counts.size))
        self.counts[ends[ends < SHARES]] = UNTOLD


class PoissonCounts:
    """Draws counts of things that have each a mean of its own, often the same."""

    def __init__(self, means: Float64, rows: int = 1) -> None:
        """``means`` f64 [L], 0 or more; ``rows``: that are drawn at a time."""
        distinct, kind, alike = np.unique(means, return_inverse=True, return_counts=True)
        has_table = (rows * alike >= LEAST_ALIKE) & (distinct <= LARGEST_MEAN) & (distinct > 0.0)
        self._tables = [_Table(float(mean)) for mean in distinct[has_table]]
        self._ends = np.cumsum(alike[has_table])
        is_drawn = has_table[kind]
        count = int(is_drawn.sum())
        order = np.argsort(np.where(is_drawn, kind, distinct.size), kind="stable")[:count]
        self._place = np.full(means.size, count)  # behind what tables give: nothing
        self._place[order] = np.arange(count)
        self._others = np.flatnonzero(~is_drawn & (means > 0.0))
        self._means = means[self._others]

    def draw(self, rngs: Sequence[np.random.Generator], out: NDArray[Any]) -> None:
        """Put the counts into [R, L], as many rows from each generator.

        What one gives does not depend on the others. A few steps of NumPy's make all rows: threads
        that draw wait for Python's lock at each.
        """
        n_drawn = self._ends[-1] if self._tables else 0
        words = np.empty((len(out), -(-(n_drawn + 1) // 4)), np.uint64)
        for own, rng in zip(np.split(words, len(rngs)), rngs, strict=True):
            own[:] = rng.integers(MOST_WORD, size=own.shape, dtype=np.uint64, endpoint=True)
        shares = words.astype("<u8", copy=False).view("<u2")
        drawn = np.zeros((len(out), n_drawn + 1), np.uint8)
        first = 0
        for table, end in zip(self._tables, self._ends.tolist(), strict=True):
            table.counts.take(shares[:, first:end], out=drawn[:, first:end], mode="clip")
            first = end
        self._tell_apart(drawn, shares, rngs)
        out[:] = drawn.take(self._place, axis=1)
        if self._others.size:
            for own, rng in zip(np.split(out, len(rngs)), rngs, strict=True):
                own[:, self._others] = rng.poisson(self._means, size=(len(own), self._means.size))

    def _tell_apart(
        self,
        drawn: NDArray[np.uint8],
        shares: NDArray[np.uint16],
        rngs: Sequence[np.random.Generator],
    ) -> None:
        """Decide the counts of shares that hold several."""
        row, place = np.divmod(np.flatnonzero(drawn == UNTOLD), drawn.shape[1])
        counts = np.bincount(row * len(rngs) // len(drawn), minlength=len(rngs)).tolist()
        fraction = [rng.random(count) for rng, count in zip(rngs, counts, strict=True)]
        chance = (shares[row, place] + np.concatenate(fraction)) / SHARES
        kind = self._ends.searchsorted(place, side="right")
        for n in np.flatnonzero(np.bincount(kind)):
            own = kind == n
            until = self._tables[n].until
            drawn[row[own], place[own]] = until.searchsorted(chance[own], side="right")
