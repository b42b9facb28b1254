"""Resampled alignments as rows of pattern weights, a random stream for each replicate.

Sites are drawn with replacement, from every part as many as it has, or that number scaled. A
replicate depends on the seed, the name of what is drawn and its number alone: it is the same
whatever is drawn beside it, or before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns
from mltree.shares import in_shares
from mltree.threads import threads
from mltree.tree.topology import Float64Array

__all__ = ["Resampling", "share_error"]

STREAM = 210306068529402873165736369884012333109
"""Numbers between the starts of two replicates' streams: NumPy's jump, 2^128 over the golden ratio.
Streams a power of two apart are no independent ones: at 2^64 the mean weights were 1 % off."""

BATCH_BYTES = 1 << 23
"""Of the rows that are drawn at a time: so few that the allocator uses one batch's memory for the
next. Pages that are new to the process took longer than the draws (10,000 sites on one core: 110 to
150 us a row in batches of 2^27, 49 in these)."""

LEAST_ROWS, MOST_BYTES = 32, 1 << 28
"""Of a batch of longer rows, for each CPU that draws: a product with fewer reads the rows of trees
more often than it must (64 trees x 66,458 patterns on one core: 1.12 ms a row in batches of 10,
0.80 of 32)."""

SHARE = 1 << 19
"""Sites that are worth a share of their own: some milliseconds' work."""


class Resampling:
    """Draws the replicates of one alignment."""

    def __init__(self, weights: Float64Array, parts: Sequence[slice], seed: int, name: str) -> None:
        """Get ready to draw.

        weights  f64 [L]: sites of each pattern, whole numbers
        parts    the patterns of each part
        name     of the draws: others are independent of them
        """
        self._n_patterns = weights.size
        self._parts = tuple(parts)
        self._sites = [
            np.repeat(np.arange(part.start, part.stop), weights[part].astype(np.intp))
            for part in parts
        ]
        self._seeds = np.random.SeedSequence([seed, *name.encode()])

    @classmethod
    def of(cls, groups: Sequence[Patterns], seed: int, name: str) -> Resampling:
        """Of the patterns of all data types, one after the other."""
        parts, first = [], 0
        for patterns in groups:
            parts += [slice(first + part.start, first + part.stop) for part in patterns.parts]
            first += patterns.n_patterns
        return cls(np.concatenate([own.weights for own in groups]), parts, seed, name)

    def batches(self, replicates: int, scale: float = 1.0) -> Iterator[Float64Array]:
        """The first so many replicates, some at a time, each batch in the memory of the last."""
        row = 8 * self._n_patterns
        least = LEAST_ROWS * threads().number
        step = max(1, BATCH_BYTES // row, min(least, MOST_BYTES // row))
        rows = np.empty((min(step, replicates), self._n_patterns))
        for first in range(0, replicates, step):
            own = rows[: replicates - first]
            self.fill(own, first, scale)
            yield own

    def rows(self, replicates: range, scale: float = 1.0) -> Float64Array:
        """The weights of some replicates, f64 [R, L]; of so many sites a part times the scale."""
        rows = np.empty((len(replicates), self._n_patterns))
        self.fill(rows, replicates.start, scale)
        return rows

    def most_patterns(self, replicates: Iterable[int]) -> list[int]:
        """Of each part, the most different patterns that any of these replicates has."""
        most = np.zeros(len(self._parts), np.intp)
        for number in replicates:
            (row,) = self.rows(range(number, number + 1))
            own = [np.count_nonzero(row[part]) for part in self._parts]
            most = np.maximum(most, own)
        return [int(count) for count in most]

    def fill(self, rows: NDArray[Any], first: int, scale: float = 1.0) -> None:
        """Put the weights of replicate ``first`` and those behind it into rows [R, L]."""
        sites = len(rows) * sum(own.size for own in self._sites)
        shares = np.array_split(np.arange(len(rows)), max(1, min(len(rows), sites // SHARE)))
        at_once = threads().number
        in_shares(lambda share: self._fill(rows, share, first, scale), shares, at_once)

    def _fill(self, rows: NDArray[Any], which: NDArray[np.intp], first: int, scale: float) -> None:
        bits = np.random.PCG64DXSM(self._seeds)
        rng, start = np.random.Generator(bits), bits.state
        for row in which.tolist():
            bits.state = start
            bits.advance((first + row) * STREAM)
            drawn = [
                sites.take(rng.integers(sites.size, size=round(scale * sites.size)))
                for sites in self._sites
                if sites.size
            ]
            rows[row] = np.bincount(_joined(drawn), minlength=self._n_patterns)


def _joined(several: list[NDArray[np.intp]]) -> NDArray[np.intp]:
    return several[0] if len(several) == 1 else np.concatenate(several)


def share_error(share: Float64Array, replicates: int) -> Float64Array:
    """Standard error of a share of so many replicates."""
    return np.sqrt(share * (1.0 - share) / max(replicates, 1))
