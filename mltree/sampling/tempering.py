"""Ladders of heated chains: deterministic even-odd swaps, fitting of heats, and ln Z.

Rung 0 has the posterior (heat 1), the last rung the prior (heat 0); only the likelihood is heated.
Swaps exchange heats, not states, and pairs of rungs take turns, even ones and odd ones (Okabe et
al. 2001; Syed, Bouchard-Côté, Deligiannidis and Doucet 2022, JRSS B 84:321-350). Letters: R runs,
N rungs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mltree.program.contract import MOVE_STRIDE, HostMove
from mltree.program.random_numbers import philox, uniforms_of
from mltree.system.arrays import Bool, Float64, Int64

LEAST_RATE = 1e-6
"""Least barrier per unit of heat, so that no two heats become one where lnL do not differ."""


HOTTEST_STEP = 2.5
"""Barrier between the last two rungs, over that between the first two. Chains that have left a mode
come back to the first rung sooner where rungs are dense there; ln Z needs all of them."""

BARRIER_A_RUNG = 1.0
"""Mean barrier between rungs that are chosen freely, where chains cost time."""


def first_heats(rungs: int) -> Float64:
    """f64[N]: heats before anything is known, from 1 to 0; 1 for a lone rung.

    They are as quantiles of Beta(0.3, 1) at equal distances (Xie et al. 2011): most are small,
    where lnL changes most.
    """
    if rungs == 1:
        return np.ones(1)
    heats: Float64 = np.linspace(1.0, 0.0, rungs) ** (1 / 0.3)
    return heats


def barriers(heats: Float64, deviation: Float64) -> Float64:
    """f64[N - 1]: communication barrier between neighbouring rungs, from deviations of lnL f64[N].

    The barrier grows with heat at the rate E|lnL - lnL'| / 2 of two samples, deviation / sqrt(pi)
    of normal ones, which falls about as 1 / heat: between rungs its inverse is taken to be linear.
    Unlike rejections it does not end at 1 a pair.
    """
    if len(heats) < 2:
        return np.zeros(0)
    inverse = 1 / np.maximum(deviation / math.sqrt(math.pi), LEAST_RATE)
    gap, slope = heats[:-1] - heats[1:], inverse[:-1] - inverse[1:]
    mean = (inverse[:-1] + inverse[1:]) / 2
    is_flat = np.abs(slope) < 1e-6 * mean
    ratio = np.log(inverse[:-1] / inverse[1:]) / np.where(is_flat, 1.0, slope)
    made: Float64 = gap * np.where(is_flat, 1 / mean, ratio)
    return made


def refitted(heats: Float64, deviation: Float64) -> Float64:
    """f64[N]: heats with barriers that rise evenly, from deviations of lnL f64[N]."""
    return spaced(heats, deviation, len(heats))


def spaced(heats: Float64, deviation: Float64, rungs: int) -> Float64:
    """f64[rungs]: heats within those of f64[N], with barriers that rise by equal factors."""
    if len(heats) < 2 or rungs < 2:
        return heats[:rungs]
    each = barriers(heats, deviation)
    before = np.append(0.0, np.cumsum(each))
    steps = np.cumsum(HOTTEST_STEP ** np.linspace(0.0, 1.0, rungs - 1))
    wanted = before[-1] * steps[:-1] / steps[-1]
    at = np.clip(np.searchsorted(before, wanted, side="right") - 1, 0, len(each) - 1)
    inverse = 1 / np.maximum(deviation / math.sqrt(math.pi), LEAST_RATE)
    gap = heats[:-1] - heats[1:]
    slope = (inverse[1:] - inverse[:-1])[at] / gap[at]
    rest, start = wanted - before[at], inverse[:-1][at]
    is_flat = np.abs(slope) * gap[at] < 1e-6 * start
    step = np.where(is_flat, rest * start, start * np.expm1(slope * rest))
    step /= np.where(is_flat, 1.0, slope)
    return np.concatenate([heats[:1], heats[at] - np.minimum(step, gap[at]), heats[-1:]])


_GIVEN = ("_seed", "_grain")
"""Attributes that are no state."""


class Ladders:
    """R ladders of N rungs: which chain is on which rung, and how swaps went."""

    def __init__(self, runs: int, rungs: int, seed: int, grain: int = 0) -> None:
        """``grain``: number of which all heats are multiples of the inverse; 0 for any heats."""
        self.runs, self.rungs, self._seed, self._grain = runs, rungs, seed, grain
        self.heats: Float64 = np.zeros((runs, rungs))
        """f64[R, N]: heat of each rung."""
        self.take_heats(first_heats(rungs))
        self.rung: Int64 = np.tile(np.arange(rungs), (runs, 1))
        """i64[R, N]: rung of each chain."""
        self.rounds = 0
        self._direction = np.zeros((runs, rungs), np.int64)
        """1 for a chain that was on the last rung since it was on the first, else 0."""
        self.begin()

    def begin(self) -> None:
        """Forget how swaps went, and what lnL were met."""
        shape = self.runs, max(0, self.rungs - 1)
        self.rejected, self.tried = np.zeros((2, *shape))
        """f64[R, N - 1]: sums of the probabilities of rejection, and swaps, of neighbours."""
        self.trips = np.zeros(self.runs, np.int64)
        """i64[R]: round trips from the first rung to the last and back."""
        self._forth = np.full(shape, -np.inf)
        self._back = np.full(shape, -np.inf)
        self._shift, self._shifted_sum, self._square_sum = np.zeros((3, self.runs, self.rungs))
        self._steps = 0

    @property
    def chain_heats(self) -> Float64:
        """f64[R, N]: heat of each chain."""
        return np.take_along_axis(self.heats, self.rung, axis=1)

    @property
    def chains(self) -> Int64:
        """i64[R, N]: chain on each rung."""
        return np.argsort(self.rung, axis=1)

    @property
    def rejection(self) -> Float64:
        """f64[R, N - 1]: mean probability of rejection of each pair of rungs."""
        return np.divide(self.rejected, self.tried, np.zeros_like(self.tried), where=self.tried > 0)

    @property
    def barrier(self) -> float:
        """The communication barrier between the first rung and the last."""
        return float(barriers(self.heats[0], self.deviation).sum())

    @property
    def deviation(self) -> Float64:
        """f64[N]: standard deviation of lnL on each rung, around each run's own mean."""
        steps = max(1, self._steps)
        variance = self._square_sum / steps - (self._shifted_sum / steps) ** 2
        spread: Float64 = np.sqrt(np.maximum(variance, 0.0).mean(axis=0))
        return spread

    @property
    def mean_lnl(self) -> Float64:
        """f64[R, N]: mean lnL on each rung."""
        means: Float64 = self._shift + self._shifted_sum / max(1, self._steps)
        return means

    def swap(self, lnl: Float64) -> None:
        """Exchange heats between neighbours, given the chains' lnL f64[R, N]."""
        chains = self.chains
        of_rung = np.take_along_axis(lnl, chains, axis=1)
        self._measure(of_rung)
        pairs = np.arange(self.rounds % 2, self.rungs - 1, 2)
        if pairs.size:
            gap = self.heats[:, pairs] - self.heats[:, pairs + 1]
            log_ratio = gap * (of_rung[:, pairs + 1] - of_rung[:, pairs])
            self.rejected[:, pairs] += 1 - np.exp(np.minimum(log_ratio, 0.0))
            self.tried[:, pairs] += 1
            taken = np.log(self._draws(pairs)) < log_ratio
            self._exchange(chains, pairs, taken)
        self.rounds += 1

    def refit(self) -> None:
        """Move the heats to where barriers between rungs rise evenly."""
        self.take_heats(refitted(self.heats[0], self.deviation))
        self.begin()

    def take_heats(self, heats: Float64) -> None:
        """Place the rungs of all runs at heats f64[N]."""
        self.heats[:] = np.rint(heats * self._grain) / self._grain if self._grain else heats

    @property
    def log_evidence(self) -> Float64:
        """f64[R]: ln Z of each ladder by stepping stones, the mean of forwards and backwards."""
        if self.rungs < 2 or not self._steps:
            return np.full(self.runs, math.nan)
        each: Float64 = (self._forth - self._back) / 2
        totals: Float64 = each.sum(axis=1)
        return totals

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return {name: np.copy(value) for name, value in vars(self).items() if name not in _GIVEN}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name, value in vars(self).items():
            if name not in _GIVEN:
                setattr(self, name, type(value)(state[name]) if np.isscalar(value) else state[name])

    def _measure(self, of_rung: Float64) -> None:
        """Add lnL f64[R, N] to the means and to both sums of every stepping stone.

        Forth: Z_n / Z_{n+1} = E_{n+1} L^(b_n - b_{n+1}); back: Z_{n+1} / Z_n = E_n L^-(...).
        """
        if not self._steps:
            self._shift = of_rung.copy()
        shifted = of_rung - self._shift
        self._shifted_sum += shifted
        self._square_sum += shifted**2
        self._steps += 1
        gap = self.heats[:, :-1] - self.heats[:, 1:]
        before, share = math.log(max(1, self._steps - 1)), -math.log(self._steps)
        keep = before + share if self._steps > 1 else -math.inf
        self._forth = np.logaddexp(self._forth + keep, gap * of_rung[:, 1:] + share)
        self._back = np.logaddexp(self._back + keep, -gap * of_rung[:, :-1] + share)

    def _draws(self, pairs: Int64) -> Float64:
        counter = np.zeros((self.runs, len(pairs), 4), np.uint32)
        counter[..., 0], counter[..., 1] = pairs, self.rounds
        counter[..., 2] = HostMove.SWAP * MOVE_STRIDE
        key = np.empty((self.runs, len(pairs), 2), np.uint32)
        key[..., 0], key[..., 1] = self._seed, np.arange(self.runs)[:, None]
        return uniforms_of(philox(counter, key))[..., 0]

    def _exchange(self, chains: Int64, pairs: Int64, taken: Bool) -> None:
        run, at = np.nonzero(taken)
        lower, upper = chains[run, pairs[at]], chains[run, pairs[at] + 1]
        self.rung[run, lower], self.rung[run, upper] = pairs[at] + 1, pairs[at]
        is_first, is_last = self.rung == 0, self.rung == self.rungs - 1
        self.trips += (is_first & (self._direction == 1)).sum(axis=1)
        self._direction[is_last] = 1
        self._direction[is_first] = 0
