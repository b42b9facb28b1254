"""The lnL of patterns as curves over the rate that they have, from a table of both.

Between the rates of the table ln f_i is a cubic spline in ln r with natural ends (de Boor, A
Practical Guide to Splines, 2001, chapter IV); above the last it is a straight line, below the first

    f(r) = f(0) + (f(g) - f(0)) (r / g)^m

with g the first rate and m such that the slope at g is the spline's. All of it is relative to the
highest of a pattern's lnL in the table.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64
from mltree.model.portable import exp_of_many, log, log_of_many
from mltree.shares import in_blocks

__all__ = ["BLOCK", "Along", "Splines", "Spots"]


BLOCK = 1 << 13
"""Patterns that are gone through at a time: rows of so many stay in a core's cache, and take longer
than it takes to call NumPy."""


class Along(NamedTuple):
    """Curves of n patterns under K rates; f64[K, n] each."""

    logs: Float64
    """Of f."""
    slopes: Float64
    """Their derivatives in ln r."""
    bends: Float64
    """Their second ones."""


class Spots(NamedTuple):
    """Where K rates lie among those of the table, and the shares that its rows have there."""

    low: NDArray[np.intp]
    """int[K]: the row before each."""
    value: Float64
    """f64[4, K, 1]: of the two rows of lnL about it and of their bends, in its lnL."""
    slope: Float64
    """f64[3, K, 1]: of the first two's difference, and of their bends, in its slope."""
    bend: Float64
    """f64[2, K, 1]: of their bends, in its own."""
    beyond: Float64
    """f64[K, 1]: how far each lies behind the last row, in ln r."""
    below: list[tuple[int, float]]
    """Which lie before the first row, and how far, in ln r: -inf for rate 0."""


class Splines:
    """Through the lnL of L patterns under J rates."""

    def __init__(self, rates: Float64, lnls: Float64) -> None:
        """Rates f64[J], ascending, the first of them for rate 0; ``lnls``: f64[J, L], natural log.

        Both are kept, not copied.
        """
        self._places = log(rates[1:])
        self._still, self._values = lnls[0], lnls[1:]
        self.peaks: Float64 = lnls.max(axis=0)
        """f64[L]: what all else is relative to."""
        self._bends = np.zeros_like(self._values)
        self._at_zero, self._powers = np.empty_like(self.peaks), np.empty_like(self.peaks)
        in_blocks(self._prepare, self.peaks.size, BLOCK)

    def spots(self, rates: Float64) -> Spots:
        """Of f64[K] rates."""
        places = self._places
        at = np.array([math.log(rate) if rate > 0 else -np.inf for rate in rates.tolist()])
        below = [(k, float(at[k] - places[0])) for k in np.flatnonzero(at < places[0]).tolist()]
        inside = np.maximum(at, places[0])[:, None]
        low = np.searchsorted(places, inside[:, 0], side="right").clip(max=len(places) - 1) - 1
        step = (places[low + 1] - places[low])[:, None]
        beyond = np.maximum(inside - places[-1], 0.0)
        up = np.minimum((inside - places[low][:, None]) / step, 1.0)
        down, sixth = 1.0 - up, step / 6.0
        within = beyond == 0.0
        return Spots(
            low,
            np.stack(
                [down, up, sixth * step * (down**3 - down), sixth * step * (up**3 - up)],
            ),
            np.stack(
                [1.0 / step, -sixth * (3.0 * down * down - 1.0), sixth * (3.0 * up * up - 1.0)]
            ),
            np.stack([down * within, up * within]),
            beyond,
            below,
        )

    def along(self, spots: Spots, block: slice) -> Along:
        """The curves of a block of patterns."""
        low, high = spots.low, spots.low + 1
        first, second = self._values[low, block], self._values[high, block]
        bends = self._bends[low, block], self._bends[high, block]
        logs = _mixed(spots.value, [first, second, *bends])
        logs -= self.peaks[block]
        second -= first
        slopes = _mixed(spots.slope, [second, *bends])
        if spots.beyond.any():
            logs += spots.beyond * slopes
        found = Along(logs, slopes, _mixed(spots.bend, bends))
        for k, away in spots.below:
            rows = self._at_rest(block) if away == -np.inf else self._below(away, block)
            for every, row in zip(found, rows, strict=True):
                every[k] = row
        return found

    def _at_rest(self, block: slice) -> tuple[Float64, Float64, Float64]:
        """Under rate 0."""
        still = self._still[block] - self.peaks[block]
        none = np.zeros_like(still)
        return still, none, none

    def _below(self, beyond: float, block: slice) -> tuple[Float64, Float64, Float64]:
        """f64[n] each, under a rate whose log lies so far beyond the first one's."""
        at_zero, powers = self._at_zero[block], self._powers[block]
        moving = (1.0 - at_zero) * exp_of_many(powers * beyond)
        whole = at_zero + moving
        share = moving / whole
        slope = powers * share
        first = self._values[0, block] - self.peaks[block]
        return first + log_of_many(whole), slope, powers * slope * (1.0 - share)

    def _prepare(self, block: slice) -> None:
        """Find the splines of a block, and what is below them."""
        values, bends = self._values[:, block], self._bends[:, block]
        _bend(self._places, values, bends)
        step = self._places[1] - self._places[0]
        slope = (values[1] - values[0]) / step - step / 6.0 * bends[1]
        share = exp_of_many(self._still[block] - values[0])
        rise = 1.0 - share
        self._at_zero[block] = share
        ones = np.ones_like(slope)
        self._powers[block] = np.divide(slope, rise, out=ones, where=slope * rise > 0)


def _mixed(shares: Float64, rows: list[Float64] | tuple[Float64, ...]) -> Float64:
    """f64[K, n]: the sum of f64[K, n] times f64[K, 1] each."""
    total: Float64 = shares[0] * rows[0]
    other = np.empty_like(total)
    for share, row in zip(shares[1:], rows[1:], strict=True):
        total += np.multiply(share, row, out=other)
    return total


def _bend(places: Float64, values: Float64, bends: Float64) -> None:
    """Put the second derivatives of splines through f64[J, n] at f64[J] into zeros f64[J, n].

    At the ends they are 0.
    """
    steps = np.diff(places).tolist()
    shares = [0.0] * len(steps)
    rise = (values[1] - values[0]) / steps[0]
    for row in range(1, len(steps)):  # Thomas's algorithm; row 0 and the last are 0
        pivot = 2.0 * (steps[row - 1] + steps[row]) - steps[row - 1] * shares[row - 1]
        shares[row] = steps[row] / pivot
        before, rise = rise, (values[row + 1] - values[row]) / steps[row]
        wanted = 6.0 * (rise - before)
        bends[row] = (wanted - steps[row - 1] * bends[row - 1]) / pivot
    for row in reversed(range(1, len(steps))):
        bends[row] -= shares[row] * bends[row + 1]
