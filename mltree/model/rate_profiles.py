"""How the lnL of patterns depends on their rate: one table for all rates among sites.

Tree and matrix given, a pattern's likelihood under any rates r and weights w among sites is

    L_i = Σ_k w_k f_i(r_k)

with one curve f_i each. So a launch that finds the curves at the rates of a grid is enough to fit
every +Rn, +G and +I; in between, ln f_i is a cubic spline in ln r (de Boor, A Practical Guide to
Splines, 2001, chapter IV), beyond the ends a straight line. With c_i sites of pattern i,
q_ik = w_k f_i(r_k) / L_i, and d and b the first and second derivative of ln f in ln r, lnL changes
with the logs η of weights and ρ of rates as

    ∂/∂η_k = Σ c q_k             ∂²/∂η_k∂η_l = Σ c (δ_kl q_k - q_k q_l)
    ∂/∂ρ_k = Σ c q_k d_k         ∂²/∂η_k∂ρ_l = Σ c (δ_kl q_k d_k - q_k q_l d_l)
                                 ∂²/∂ρ_k∂ρ_l = Σ c (δ_kl q_k (d_k² + b_k) - q_k d_k q_l d_l)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.model.portable import exp_of_many, log_of_many
from mltree.model.rates import Categories
from mltree.model.site_rates import GRID

__all__ = ["PROFILED", "Expansion", "RateProfiles"]

Float = NDArray[np.float64]

STANDSTILL = 2.0**-40
"""The rate of the row for rate 0, under which some likelihoods are 0 and have no log."""

PROFILED: Float = np.append(STANDSTILL, GRID)
"""f64[J]: the rates that curves are asked for at."""

LOWEST = -700.0
"""Of a log: e^x is a normal number."""

_FIRST = math.log(GRID[0])
_STEP = math.log(GRID[1] / GRID[0])


class Expansion(NamedTuple):
    """lnL of K categories, and its derivatives in the logs of K weights and then of K rates."""

    lnl: float
    gradient: Float
    """f64[2K]"""
    hessian: Float
    """f64[2K, 2K]"""


class RateProfiles:
    """The curves of the patterns of a part."""

    def __init__(self, lnls: Float, counts: Float) -> None:
        """``lnls``: f64[J, L], under the rates of ``PROFILED``; ``counts``: f64[L], sites each."""
        seen = counts > 0
        lnls, self._counts = lnls[:, seen], counts[seen]
        peaks = lnls.max(axis=0)
        self._base = float((self._counts * peaks).sum())
        (self._still,), self._values = np.split(lnls - peaks, [1])
        self._bends = _natural_spline(self._values)
        self._at_zero, self._powers = self._on_the_way_down()

    def lnl(self, categories: Categories) -> float:
        """Natural log, under f64[K] rates and weights."""
        return self._base + float((self._counts * log_of_many(self._shares(categories)[1])).sum())

    def expansion(self, categories: Categories) -> Expansion:
        """Around f64[K] rates and weights, of which none is 0 but the rate of a last category."""
        shares, whole, slopes, bends = self._shares(categories)
        q = shares / whole
        lnl = self._base + float((self._counts * log_of_many(whole)).sum())
        sides = np.concatenate([q, q * slopes])
        counted = sides * self._counts
        gradient = counted.sum(axis=1)
        hessian = -np.array([(counted * row).sum(axis=1) for row in sides])
        k, own = len(q), np.arange(len(q))
        hessian[own, own] += gradient[:k]
        hessian[own, own + k] += gradient[k:]
        hessian[own + k, own] += gradient[k:]
        hessian[own + k, own + k] += (counted[:k] * (slopes * slopes + bends)).sum(axis=1)
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
        none = np.zeros_like(self._counts)
        return self._still, none, none

    def _on_the_way_down(self) -> tuple[Float, Float]:
        """f64[L] each: f(0) as a share of f(g), and m."""
        first, second = self._values[:2]
        slope = (second - first) / _STEP - _STEP / 6.0 * self._bends[1]
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
        last = len(self._values) - 1
        place = (at - _FIRST) / _STEP
        if place < 0.0:
            return self._below(at - _FIRST)
        within = min(place, float(last))
        low = min(int(within), last - 1)
        up = within - low
        down = 1.0 - up
        values, bends = self._values[low : low + 2], self._bends[low : low + 2]
        sixth = _STEP / 6.0
        slope = (values[1] - values[0]) / _STEP + sixth * (
            (3.0 * up * up - 1.0) * bends[1] - (3.0 * down * down - 1.0) * bends[0]
        )
        value = (
            down * values[0]
            + up * values[1]
            + sixth * _STEP * ((down**3 - down) * bends[0] + (up**3 - up) * bends[1])
        )
        beyond = (place - within) * _STEP
        bend = down * bends[0] + up * bends[1] if beyond == 0.0 else np.zeros_like(value)
        return value + beyond * slope, slope, bend


def _natural_spline(values: Float) -> Float:
    """f64[J, L]: second derivatives at the knots, 0 at the ends, of splines through f64[J, L]."""
    bends = np.zeros_like(values)
    wanted = 6.0 * (values[2:] - 2.0 * values[1:-1] + values[:-2]) / _STEP**2
    shares = np.zeros(len(wanted))
    for row in range(len(wanted)):  # Thomas's algorithm for the rows (1, 4, 1)
        pivot = 4.0 - (shares[row - 1] if row else 0.0)
        shares[row] = 1.0 / pivot
        bends[row + 1] = (wanted[row] - bends[row]) / pivot
    for row in reversed(range(len(wanted) - 1)):
        bends[row + 1] -= shares[row] * bends[row + 2]
    return bends
