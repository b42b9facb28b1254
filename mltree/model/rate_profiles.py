"""How the lnL of patterns depends on their rate: one table for all rates among sites.

Tree and matrix given, a pattern's likelihood under any rates r and weights w among sites is

    L_i = Σ_k w_k f_i(r_k)

with one curve f_i each. So a launch that finds the curves at the rates of a grid is enough to fit
every +Rn, +G and +I; in between, ln f_i is a cubic spline in ln r (de Boor, A Practical Guide to
Splines, 2001, chapter IV), beyond the ends a straight line. More rates of some make them exact
there. With c_i sites of pattern i,
q_ik = w_k f_i(r_k) / L_i, and d and b the first and second derivative of ln f in ln r, lnL changes
with the logs η of weights and ρ of rates as

    ∂/∂η_k = Σ c q_k             ∂²/∂η_k∂η_l = Σ c (δ_kl q_k - q_k q_l)
    ∂/∂ρ_k = Σ c q_k d_k         ∂²/∂η_k∂ρ_l = Σ c (δ_kl q_k d_k - q_k q_l d_l)
                                 ∂²/∂ρ_k∂ρ_l = Σ c (δ_kl q_k (d_k² + b_k) - q_k d_k q_l d_l)

Constant sites that were left out (+ASC) count as if as many were seen as are expected, which adds
to the second derivatives: these numbers change with rates and weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.model.portable import exp_of_many, log, log_of_many, product
from mltree.model.rates import Categories
from mltree.model.site_rates import GRID

__all__ = ["PROFILED", "Curves", "Expansion", "LeftOut", "RateProfiles", "lacking"]

Float = NDArray[np.float64]

STANDSTILL = 2.0**-40
"""The rate of the row for rate 0, under which some likelihoods are 0 and have no log."""

PROFILED: Float = np.append(STANDSTILL, GRID)
"""f64[J]: the rates that curves are asked for at first."""

LOWEST = -700.0
"""Of a log: e^x is a normal number."""

LEAST = 2.0**-20
"""Of these rates: under lower ones likelihoods are straight lines to those under 0."""

NEAREST = 0.02
"""Between the logs of two rates that curves are asked for at: nearer ones tell nothing new."""


class LeftOut(Protocol):
    """What sites that were left out add to lnL, U patterns of likelihoods p."""

    def expected(self, seen: Float, logs: Float) -> Float:
        """f64[n, U]: how many sites of each, where f64[n] were seen, by f64[n, U] ln p."""

    def corrects(self, seen: Float, logs: Float) -> Float:
        """f64[n]: what is added to the lnL of those seen."""

    def bends(self, seen: float) -> tuple[float, float]:
        """How much of Σ n_u (ln p_u)'² and (Σ n_u (ln p_u)')² is in the second derivative of that.

        Beside Σ n_u (ln p_u)''.
        """


class Curves(NamedTuple):
    """The patterns of a part under one rate for all of them, and another, and another."""

    rates: Float
    """f64[J]: ascending, the first of them for rate 0."""
    lnls: Float
    """f64[J, L]: natural log."""
    counts: Float
    """f64[L]: sites that show each."""
    unseen: slice = slice(0)
    """Patterns of sites that were left out."""
    left_out: LeftOut | None = None

    def with_rates(self, rates: Float, lnls: Float) -> Curves:
        """With lnL f64[n, L] under f64[n] more rates, above 0."""
        every = np.append(self.rates, rates)
        order = np.argsort(every, kind="stable")
        return self._replace(rates=every[order], lnls=np.concatenate([self.lnls, lnls])[order])


class Expansion(NamedTuple):
    """lnL of K categories, and its derivatives in the logs of K weights and then of K rates."""

    lnl: float
    gradient: Float
    """f64[2K]"""
    hessian: Float
    """f64[2K, 2K]"""


def lacking(known: Float, rates: Float) -> Float:
    """f64[n]: which of some rates, from ``LEAST`` on, are far from those known; ascending."""
    places, found = log(known[1:]).tolist(), []
    rates = np.maximum(rates, LEAST)
    for rate, place in sorted(zip(rates.tolist(), log(rates).tolist(), strict=True)):
        if min(abs(place - other) for other in places) >= NEAREST:
            places.append(place)
            found.append(rate)
    return np.array(found)


class RateProfiles:
    """The curves of the patterns of a part."""

    def __init__(self, curves: Curves) -> None:
        seen = np.flatnonzero(curves.counts > 0)
        unseen = np.arange(len(curves.counts))[curves.unseen]
        lnls = curves.lnls[:, np.append(seen, unseen)]
        self._counts, self._left_out = curves.counts[seen], curves.left_out
        self._all = float(self._counts.sum())
        self._peaks = lnls.max(axis=0)
        self._base = float((self._counts * self._peaks[: len(seen)]).sum())
        (self._still,), self._values = np.split(lnls - self._peaks, [1])
        self._places = log(curves.rates[1:])
        self._bends = _natural_spline(self._places, self._values)
        self._at_zero, self._powers = self._on_the_way_down()

    def lnl(self, categories: Categories) -> float:
        """Natural log, under f64[K] rates and weights."""
        return self._told(self._shares(categories)[1])[0]

    def _told(self, whole: Float) -> tuple[float, Float]:
        """By Σ_k w_k f_i(r_k) f64[L]: lnL, and how many sites of each pattern there are, f64[L]."""
        logs, n = log_of_many(whole), len(self._counts)
        lnl = self._base + float((self._counts * logs[:n]).sum())
        if self._left_out is None:
            return lnl, self._counts
        seen, unseen = np.array([self._all]), (logs[n:] + self._peaks[n:])[None]
        (numbers,) = self._left_out.expected(seen, unseen)
        (added,) = self._left_out.corrects(seen, unseen).tolist()
        return lnl + added, np.append(self._counts, numbers)

    def expansion(self, categories: Categories) -> Expansion:
        """Around f64[K] rates and weights, of which none is 0 but the rate of a last category."""
        shares, whole, slopes, bends = self._shares(categories)
        q = shares / whole
        lnl, counts = self._told(whole)
        sides = np.concatenate([q, q * slopes])
        counted = sides * counts
        gradient = counted.sum(axis=1)
        hessian = -np.array([(counted * row).sum(axis=1) for row in sides])
        k, own = len(q), np.arange(len(q))
        hessian[own, own] += gradient[:k]
        hessian[own, own + k] += gradient[k:]
        hessian[own + k, own] += gradient[k:]
        hessian[own + k, own + k] += (counted[:k] * (slopes * slopes + bends)).sum(axis=1)
        if self._left_out is not None:
            n = len(self._counts)
            each, together = self._left_out.bends(self._all)
            unseen, told = sides[:, n:], counted[:, n:].sum(axis=1)
            hessian += each * product(counted[:, n:], unseen.T) + together * told[:, None] * told
        return Expansion(lnl, gradient, hessian)

    def _shares(self, categories: Categories) -> tuple[Float, Float, Float, Float]:
        """w_k f_i(r_k) f64[K, L], their sums f64[L], and d and b f64[K, L] of the curves."""
        logs, slopes, bends = self._curves(categories.rates)
        shares = categories.weights[:, None] * exp_of_many(np.maximum(logs, LOWEST))
        return shares, shares.sum(axis=0), slopes, bends

    def _curves(self, rates: Float) -> tuple[Float, Float, Float]:
        """f64[K, L] each: the logs of f under f64[K] rates, and their derivatives in ln r."""
        rows = [self._curve(math.log(rate)) if rate > 0 else self._at_rest() for rate in rates]
        logs, slopes, bends = (np.stack(each) for each in zip(*rows, strict=True))
        return logs, slopes, bends

    def _at_rest(self) -> tuple[Float, Float, Float]:
        """Under rate 0."""
        none = np.zeros_like(self._still)
        return self._still, none, none

    def _on_the_way_down(self) -> tuple[Float, Float]:
        """f64[L] each: f(0) as a share of f(g), and m."""
        first, second = self._values[:2]
        step = self._places[1] - self._places[0]
        slope = (second - first) / step - step / 6.0 * self._bends[1]
        share: Float = exp_of_many(self._still - first)
        rise = 1.0 - share
        return share, np.divide(slope, rise, out=np.ones_like(slope), where=slope * rise > 0)

    def _below(self, beyond: float) -> tuple[Float, Float, Float]:
        """f64[L] each, under a rate whose log lies so far beyond the first one's."""
        moving = (1.0 - self._at_zero) * exp_of_many(self._powers * beyond)
        whole = self._at_zero + moving
        share = moving / whole
        slope = self._powers * share
        return self._values[0] + log_of_many(whole), slope, self._powers * slope * (1.0 - share)

    def _curve(self, at: float) -> tuple[Float, Float, Float]:
        """f64[L] each, under the rate of a log."""
        places = self._places
        if at < places[0]:
            return self._below(at - float(places[0]))
        low = min(int(np.searchsorted(places, at, side="right")), len(places) - 1) - 1
        step = float(places[low + 1] - places[low])
        up = min((at - float(places[low])) / step, 1.0)
        down = 1.0 - up
        values, bends = self._values[low : low + 2], self._bends[low : low + 2]
        sixth = step / 6.0
        slope = (values[1] - values[0]) / step + sixth * (
            (3.0 * up * up - 1.0) * bends[1] - (3.0 * down * down - 1.0) * bends[0]
        )
        value = (
            down * values[0]
            + up * values[1]
            + sixth * step * ((down**3 - down) * bends[0] + (up**3 - up) * bends[1])
        )
        beyond = max(at - float(places[-1]), 0.0)
        bend = down * bends[0] + up * bends[1] if beyond == 0.0 else np.zeros_like(value)
        return value + beyond * slope, slope, bend


def _natural_spline(places: Float, values: Float) -> Float:
    """f64[J, L]: second derivatives of splines through f64[J, L] at f64[J], at the ends 0."""
    steps, bends = np.diff(places), np.zeros_like(values)
    rises = np.diff(values, axis=0) / steps[:, None]
    shares = np.zeros(len(steps))
    for row in range(1, len(steps)):  # Thomas's algorithm; row 0 and the last are 0
        pivot = 2.0 * (steps[row - 1] + steps[row]) - steps[row - 1] * shares[row - 1]
        shares[row] = steps[row] / pivot
        wanted = 6.0 * (rises[row] - rises[row - 1])
        bends[row] = (wanted - steps[row - 1] * bends[row - 1]) / pivot
    for row in reversed(range(1, len(steps))):
        bends[row] -= shares[row] * bends[row + 1]
    return bends
