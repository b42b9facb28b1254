"""Rate profiles: lnL of every pattern as a function of its rate, to fit all rates among sites.

Tree and matrix given, a pattern's likelihood under any rates r and weights w among sites is

    L_i = Σ_k w_k f_i(r_k)

with one curve f_i each. So a launch that finds the curves at the rates of a grid is enough to fit
every +Rn, +G and +I; in between they are splines. More rates of some make them exact there. With
c_i sites of pattern i, q_ik = w_k f_i(r_k) / L_i, and d and b the first and second derivative of
ln f in ln r, lnL changes with the logs η of weights and ρ of rates

    ∂/∂η_k = Σ c q_k             ∂²/∂η_k∂η_l = Σ c (δ_kl q_k - q_k q_l)
    ∂/∂ρ_k = Σ c q_k d_k         ∂²/∂η_k∂ρ_l = Σ c (δ_kl q_k d_k - q_k q_l d_l)
                                 ∂²/∂ρ_k∂ρ_l = Σ c (δ_kl q_k (d_k² + b_k) - q_k d_k q_l d_l)

Constant sites that were left out (+ASC) count as if as many were seen as are expected, which adds
to the second derivatives: these numbers change with rates and weights.

Sums are taken block by block of the patterns, so that they are the same on any number of CPUs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from mltree.models.portable import exp_of_many, log, log_of_many
from mltree.models.rates import GRID, Categories
from mltree.system.arrays import Float64, Index
from mltree.system.process import map_blocks

T = TypeVar("T")

# Curves of the patterns' lnL over their rate, from a table.
#
# Between the rates of the table ln f_i is a cubic spline in ln r with natural ends (de Boor, A
# Practical Guide to Splines, 2001, chapter IV); above the last it is a straight line, below the
# first
#
#     f(r) = f(0) + (f(g) - f(0)) (r / g)^m
#
# with g the first rate and m such that the slope at g is the spline's. All of it is relative to the
# highest of a pattern's lnL in the table.

BLOCK = 1 << 13
"""Patterns that are gone through at a time: rows of so many stay in a core's cache, and take longer
than it takes to call NumPy."""


class CurveValues(NamedTuple):
    """Curves of n patterns under K rates; f64[K, n] each."""

    logs: Float64
    """ln f."""
    slopes: Float64
    """First derivatives of ln f in ln r."""
    bends: Float64
    """Second derivatives of ln f in ln r."""


class SplineWeights(NamedTuple):
    """Places of K rates among the rates of a table, and the weights of the table's rows there."""

    low: Index
    """int[K]: the row before each."""
    value: Float64
    """f64[4, K, 1]: weights of two rows of lnL and of their bends in the lnL."""
    slope: Float64
    """f64[3, K, 1]: weights of the difference of the two rows, and of their bends, in the slope."""
    bend: Float64
    """f64[2, K, 1]: weights of the bends of the two rows in the bend."""
    beyond: Float64
    """f64[K, 1]: distance behind the last row, in ln r."""
    below: list[tuple[int, float]]
    """Indices of rates before the first row, and their distances in ln r: -inf for rate 0."""


class Splines:
    """Splines through the lnL of L patterns under J rates."""

    def __init__(self, rates: Float64, lnls: Float64) -> None:
        """Rates f64[J], ascending, the first of them for rate 0; ``lnls``: f64[J, L], natural log.

        Both are kept, not copied.
        """
        self._places = log(rates[1:])
        self._still, self._values = lnls[0], lnls[1:]
        self.peaks: Float64 = lnls.max(axis=0)
        """f64[L]: the highest lnL of each pattern, to which all curves are relative."""
        self._bends = np.zeros_like(self._values)
        self._at_zero, self._powers = np.empty_like(self.peaks), np.empty_like(self.peaks)
        map_blocks(self._prepare, self.peaks.size, BLOCK)

    def row_weights(self, rates: Float64) -> SplineWeights:
        """The places of f64[K] rates."""
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
        return SplineWeights(
            low,
            np.stack([down, up, sixth * step * (down**3 - down), sixth * step * (up**3 - up)]),
            np.stack(
                [1.0 / step, -sixth * (3.0 * down * down - 1.0), sixth * (3.0 * up * up - 1.0)]
            ),
            np.stack([down * within, up * within]),
            beyond,
            below,
        )

    def along(self, row_weights: SplineWeights, block: slice) -> CurveValues:
        """The curves of a block of patterns."""
        low, high = row_weights.low, row_weights.low + 1
        first, second = self._values[low, block], self._values[high, block]
        bends = self._bends[low, block], self._bends[high, block]
        logs = _weighted_sum(row_weights.value, [first, second, *bends])
        logs -= self.peaks[block]
        second -= first
        slopes = _weighted_sum(row_weights.slope, [second, *bends])
        if row_weights.beyond.any():
            logs += row_weights.beyond * slopes
        curves = CurveValues(logs, slopes, _weighted_sum(row_weights.bend, bends))
        for k, away in row_weights.below:
            rows = self._below(away, block)
            for every, row in zip(curves, rows, strict=True):
                every[k] = row
        return curves

    def _below(self, beyond: float, block: slice) -> tuple[Float64, Float64, Float64]:
        """f64[n] each: curves under a rate with its log ``beyond`` the first one's, or -inf."""
        if beyond == -np.inf:
            still = self._still[block] - self.peaks[block]
            return still, np.zeros_like(still), np.zeros_like(still)
        at_zero, powers = self._at_zero[block], self._powers[block]
        fall = powers * beyond
        moving = (1.0 - at_zero) * exp_of_many(fall)
        whole = at_zero + moving
        is_lost = whole == 0.0  # patterns of a hundred changes and more
        share = np.divide(moving, whole, out=np.ones_like(whole), where=~is_lost)
        logs = np.where(is_lost, fall, log_of_many(np.where(is_lost, 1.0, whole)))
        slope = powers * share
        first = self._values[0, block] - self.peaks[block]
        return first + logs, slope, powers * slope * (1.0 - share)

    def _prepare(self, block: slice) -> None:
        """Compute the splines of a block, and the curves below their first rate."""
        values, bends = self._values[:, block], self._bends[:, block]
        _bend(self._places, values, bends)
        step = self._places[1] - self._places[0]
        slope = (values[1] - values[0]) / step - step / 6.0 * bends[1]
        share = exp_of_many(self._still[block] - values[0])
        rise = 1.0 - share
        self._at_zero[block] = share
        ones = np.ones_like(slope)
        self._powers[block] = np.divide(slope, rise, out=ones, where=slope * rise > 0)


def _weighted_sum(shares: Float64, rows: list[Float64] | tuple[Float64, ...]) -> Float64:
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
        difference = 6.0 * (rise - before)
        bends[row] = (difference - steps[row - 1] * bends[row - 1]) / pivot
    for row in reversed(range(1, len(steps))):
        bends[row] -= shares[row] * bends[row + 1]


STANDSTILL = 2.0**-40
"""The rate of the row for rate 0, under which some likelihoods are 0 and have no log."""

PROFILED: Float64 = np.append(STANDSTILL, GRID)
"""f64[J]: the rates of the first table."""

LOWEST = -700.0
"""Lowest log of a likelihood: e^x is a normal number."""

LEAST = 2.0**-20
"""Lowest rate of a table: below it likelihoods are straight lines to those under rate 0."""

NEAREST = 0.02
"""Least distance between the logs of two rates of a table: nearer ones tell nothing new."""


SKETCHED, LEAST_SITES = 16.0, 2.0**13
"""Patterns for each site of a sketch, and least number of sites in a sketch."""

FEW = 2.0
"""Patterns for each site of a sketch below which the sketch saves little."""


class UnseenSites(Protocol):
    """Contribution of unseen (left out) sites to lnL, for U patterns with likelihoods p."""

    def expected(self, seen: Float64, logs: Float64) -> Float64:
        """f64[n, U]: expected number of sites of each pattern, for f64[n] seen, by ln p."""

    def corrects(self, seen: Float64, logs: Float64) -> Float64:
        """f64[n]: term that is added to the lnL of the seen sites."""

    def bends(self, seen: float) -> tuple[float, float]:
        """Weights of Σ n_u (ln p_u)'² and (Σ n_u (ln p_u)')² in the second derivative of that term.

        The weight of Σ n_u (ln p_u)'' is 1.
        """


class Curves(NamedTuple):
    """lnL of the patterns of a part, each row under one rate for all of them."""

    rates: Float64
    """f64[J]: ascending, the first of them for rate 0."""
    lnls: Float64
    """f64[J, L]: natural log."""
    counts: Float64
    """f64[L]: number of sites that show each pattern."""
    unseen: slice = slice(0)
    """Patterns of unseen sites."""
    left_out: UnseenSites | None = None

    def with_rates(self, rates: Float64, lnls: Float64) -> Curves:
        """A copy with rows of lnL f64[n, L] under f64[n] more rates, above 0."""
        every = np.append(self.rates, rates)
        order = np.argsort(every, kind="stable")
        return self._replace(rates=every[order], lnls=np.concatenate([self.lnls, lnls])[order])


class Expansion(NamedTuple):
    """lnL of K categories, and its derivatives in the logs of K weights and then of K rates."""

    lnl: float
    gradient: Float64
    """f64[2K]: first derivatives."""
    hessian: Float64
    """f64[2K, 2K]: second derivatives."""


def lacking(known: Float64, rates: Float64) -> Float64:
    """f64[n]: rates, from ``LEAST`` on, that are far from the known rates; ascending."""
    places, missing = log(known[1:]).tolist(), []
    rates = np.maximum(rates, LEAST)
    for rate, place in sorted(zip(rates.tolist(), log(rates).tolist(), strict=True)):
        if min(abs(place - other) for other in places) >= NEAREST:
            places.append(place)
            missing.append(rate)
    return np.array(missing)


class RateProfiles:
    """lnL of a part as a function of rates and weights of categories."""

    def __init__(self, curves: Curves, blur: float = 0.0) -> None:
        """``blur``: lnL by which the top of a sketch lies below that of all sites, a variable."""
        seen = np.flatnonzero(curves.counts > 0)
        unseen = np.arange(curves.counts.size)[curves.unseen]
        self._curves = curves
        self.blur = blur
        self._counts, self._left_out = curves.counts[seen], curves.left_out
        self._all = float(self._counts.sum())
        every = seen.size == curves.counts.size
        self._seen = Splines(curves.rates, curves.lnls if every else curves.lnls[:, seen])
        self._unseen = Splines(curves.rates, curves.lnls[:, unseen])
        self._base = float((self._counts * self._seen.peaks).sum())

    @cached_property
    def sketch(self) -> RateProfiles | None:
        """A profile of some of the sites, each weighted to stand for many; None for few patterns.

        The sites are spread evenly over the sites in the order of patterns. Where n variables are
        best for one site of m, twice the lnL lost under all sites is chi-squared, times m: n m / 2
        is expected.
        """
        sites = max(self._counts.size / SKETCHED, LEAST_SITES)
        if self._counts.size < FEW * sites:
            return None
        taken = np.diff(np.rint(np.cumsum(self._curves.counts) * (sites / self._all)), prepend=0.0)
        each = self._all / float(taken.sum())
        return RateProfiles(self._curves._replace(counts=taken * each), each / 2.0)

    def lnl(self, categories: Categories) -> float:
        """Natural log of the likelihood under f64[K] rates and weights."""
        lnl = self._base + sum(self._by_block(categories, _CategoryLikelihoods.lnl))
        return lnl if self._left_out is None else lnl + self._expected(categories)[0]

    def expansion(self, categories: Categories) -> Expansion:
        """Expand lnL at f64[K] rates and weights, none 0 but the rate of a last category."""
        blocks = self._by_block(categories, _CategoryLikelihoods.sums)
        sums = _Sums(*(sum(terms[1:], terms[0]) for terms in zip(*blocks, strict=True)))
        lnl = self._base + sums.lnl
        if self._left_out is None:
            return Expansion(lnl, *sums.derivatives())
        added, numbers, unseen = self._expected(categories)
        more = unseen.sums(numbers)
        gradient, hessian = _Sums(*map(operator.add, sums, more)).derivatives()
        each, together = self._left_out.bends(self._all)
        products = np.triu(more.products) + np.triu(more.products, 1).T
        hessian += each * products + together * np.multiply.outer(more.gradient, more.gradient)
        return Expansion(lnl + added, gradient, hessian)

    def _by_block(
        self, categories: Categories, summed: Callable[[_CategoryLikelihoods, Float64], T]
    ) -> list[T]:
        """Return sums over the sites of each block of seen patterns."""
        row_weights = self._seen.row_weights(categories.rates)

        def of_block(block: slice) -> T:
            curves = self._seen.along(row_weights, block)
            likelihoods = _CategoryLikelihoods.of(curves, categories.weights)
            return summed(likelihoods, self._counts[block])

        return map_blocks(of_block, self._counts.size, BLOCK)

    def _expected(self, categories: Categories) -> tuple[float, Float64, _CategoryLikelihoods]:
        """Return the added lnL of unseen sites, f64[U] expected numbers, and their likelihoods."""
        row_weights, peaks = self._unseen.row_weights(categories.rates), self._unseen.peaks
        curves = self._unseen.along(row_weights, slice(peaks.size))
        unseen = _CategoryLikelihoods.of(curves, categories.weights)
        seen, logs = np.array([self._all]), (log_of_many(unseen.whole) + peaks)[None]
        assert self._left_out is not None
        (numbers,) = self._left_out.expected(seen, logs)
        (added,) = self._left_out.corrects(seen, logs).tolist()
        return added, numbers, unseen


class _CategoryLikelihoods(NamedTuple):
    """Likelihoods of patterns under all categories."""

    along: CurveValues
    shares: Float64
    """f64[K, n]: w_k f_i(r_k)."""
    whole: Float64
    """f64[n]: their sums over the categories."""

    @classmethod
    def of(cls, along: CurveValues, weights: Float64) -> _CategoryLikelihoods:
        """Return the likelihoods under rates of f64[K] weights."""
        shares = exp_of_many(np.maximum(along.logs, LOWEST))
        shares *= weights[:, None]
        return cls(along, shares, shares.sum(axis=0))

    def lnl(self, counts: Float64) -> float:
        """The lnL of f64[n] sites that show each pattern."""
        return float((counts * log_of_many(self.whole)).sum())

    def sums(self, counts: Float64) -> _Sums:
        """Sums over f64[n] sites that show each pattern."""
        (_, slopes, bends), k = self.along, len(self.shares)
        sides = np.empty((2 * k, counts.size))
        q = np.divide(self.shares, self.whole, out=sides[:k])
        np.multiply(q, slopes, out=sides[k:])
        counted = sides * counts
        second = slopes * slopes
        second += bends
        second *= counted[:k]
        products, room = np.empty((2 * k, 2 * k)), np.empty_like(sides)
        for row, side in enumerate(sides):
            np.multiply(counted[row:], side, out=room[row:])
            products[row, row:] = room[row:].sum(axis=1)
        return _Sums(self.lnl(counts), counted.sum(axis=1), second.sum(axis=1), products)


class _Sums(NamedTuple):
    """Sums over sites for lnL and its derivatives."""

    lnl: float
    gradient: Float64
    """f64[2K]: Σ c q and Σ c q d."""
    bends: Float64
    """f64[K]: Σ c q (d² + b)."""
    products: Float64
    """f64[2K, 2K]: of q and q d two by two; nothing below the diagonal."""

    def derivatives(self) -> tuple[Float64, Float64]:
        """Gradient f64[2K] and Hessian f64[2K, 2K] (see the module's first lines)."""
        k, diagonal = len(self.bends), np.arange(len(self.bends))
        hessian = -np.triu(self.products) - np.triu(self.products, 1).T
        hessian[diagonal, diagonal] += self.gradient[:k]
        hessian[diagonal, diagonal + k] += self.gradient[k:]
        hessian[diagonal + k, diagonal] += self.gradient[k:]
        hessian[diagonal + k, diagonal + k] += self.bends
        return self.gradient, hessian
