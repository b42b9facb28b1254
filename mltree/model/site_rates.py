"""A rate for every site (+PSR): no distribution, and no sum over categories.

Stamatakis (2006, Proc. 20th IPDPS, "CAT" in RAxML): every pattern has the rate that suits it best,
of a few that all share. A likelihood then takes one category, not four. What the rates say depends
on the tree, so that trees are searched under them, and scored under Γ.

The rates are found in one launch: the lnL of every pattern under each rate of `GRID`. Of those the
few are kept that lose least,

    max over S, |S| = n   of   Σ_i w_i max over r in S of lnL_i(r)

found exactly by dynamic programming, for lnL_i rises up to its maximum and falls behind it: a
pattern takes one of the two kept rates around its best. RAxML searches along a line, pattern by
pattern, and keeps the rates with most lnL.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64
from mltree.errors import ModelError
from mltree.model.portable import log
from mltree.model.rates import Categories, Variable
from mltree.values import Value

__all__ = [
    "DEFAULT_SITE_RATES",
    "GRID",
    "FittedRates",
    "SiteRates",
    "check_beside",
    "fitted_rates",
    "rates_for",
]


DEFAULT_SITE_RATES = 25
"""Rates that the sites of a part share, as in RAxML and ExaML."""

PATTERNS_A_RATE, LEAST_RATES = 128, 4
"""No more rates than one for so many patterns, and these at least: each takes P matrices of its
own. On a CPU core the insertions of 64 taxa x 890 patterns took 231 ms under +G4, 178 with 8 rates,
423 with 25; of 50 x 3,549 623, 328 and 419."""

GRID: Float64 = np.geomspace(2.0**-10, 2.0**6, 49)
"""Rates that are tried, three to a doubling: a pattern of m changes loses about m/150 at most."""


SILENT = 1e-6
"""lnL between a pattern's rates below which it tells nothing of them: that of one taxon alone has
the same under all. It takes an average rate, not the lowest, which would shorten the tree."""

_TERM = re.compile(r"PSR([0-9]{0,9})")


class SiteRates(Value, eq=False):
    """A few rates, and which of them every pattern of the part has."""

    most: int
    """How many there may be."""
    rates: Float64
    """f64 [n]: ascending, of weighted mean 1 over the sites; 1 alone as long as none are known."""
    category: NDArray[np.int64]
    """i64 [L]: of each pattern; empty as long as the patterns are not known: the first one."""

    @classmethod
    def unknown(cls, count: int) -> SiteRates:
        """So many rates at most, before any data."""
        return cls(count, np.ones(1), np.zeros(0, np.int64))

    @classmethod
    def read(cls, text: str) -> SiteRates:
        """Those of a term: ``PSR``, ``PSR10``. Raises: ModelError where it cannot be read."""
        match = _TERM.fullmatch(text.strip().upper())
        if match is None:
            raise ModelError(
                f"cannot read the rates of sites +{text}",
                hint=f"write +PSR, or +PSR10 for 10 rates instead of {DEFAULT_SITE_RATES}",
            )
        count = int(match[1] or DEFAULT_SITE_RATES)
        if not 2 <= count <= len(GRID):
            raise ModelError(f"+{text}: between 2 and {len(GRID)} rates, please")
        return cls.unknown(count)

    @property
    def of_patterns(self) -> Float64:
        """f64 [L]: the rate of every pattern."""
        return self.rates[self.category]

    @property
    def categories(self) -> Categories:
        """The rates; as no sum takes the weights, they are equal."""
        return Categories(self.rates, np.full_like(self.rates, 1.0 / self.rates.size))

    @property
    def kind(self) -> Hashable:
        """Of these rates."""
        return SiteRates, self.rates.tobytes()

    def variables(self) -> list[Variable]:
        """None: the rates are found apart."""
        return []

    def at(self, points: Float64) -> Categories:
        """The rates, M times."""
        return Categories(*(np.tile(each, (len(points), 1)) for each in self.categories))

    def with_vector(self, x: Float64) -> SiteRates:
        """Itself, whatever the f64 [0]."""
        del x
        return self


def check_beside(p_invariant: object, ascertainment: object, mixture: object) -> None:
    """Make sure that a site has nothing beside a rate of its own. Raises: ModelError."""
    beside = {"+I": p_invariant, "+ASC": ascertainment, "mixtures": mixture}
    for what, there in beside.items():
        if there is not None:
            raise ModelError(f"+PSR does not go with {what}", hint="use +G4 instead of +PSR")


def rates_for(patterns: int, most: int) -> int:
    """How many rates the patterns of a part share, of so many at most."""
    return min(most, max(LEAST_RATES, patterns // PATTERNS_A_RATE))


class FittedRates(NamedTuple):
    """Rates that suit the patterns of a part."""

    rates: Float64
    """f64 [n]: of mean 1 over the sites that tell their rate."""
    category: NDArray[np.int64]
    """i64 [L]: of every pattern."""
    speed: float
    """The mean that they had, by which branch lengths make up for it."""
    lnl: float
    """Natural log, of the part."""


def fitted_rates(lnls: Float64, weights: Float64, rates: Float64, count: int) -> FittedRates:
    """The few (``count``, or all) of f64 [J] rates that suit patterns best, and each pattern's own.

    lnls     f64 [J, L]: of every pattern under each rate
    weights  f64 [L]: how many sites show each pattern
    """
    kept = _kept(lnls, weights, min(count, len(rates)))
    category = lnls[kept].argmax(axis=0)
    lnl = float((weights * lnls[kept].max(axis=0)).sum())
    silent = np.ptp(lnls, axis=0) < SILENT
    telling = np.where(silent, 0.0, weights)
    speed = 1.0
    if telling.any():
        speed = float((telling * rates[kept][category]).sum() / telling.sum())
    category[silent] = np.abs(log(rates[kept] / speed)).argmin()
    return FittedRates(rates[kept] / speed, category, speed, lnl)


def _kept(lnls: Float64, weights: Float64, count: int) -> list[int]:
    """Which rows are kept: rising."""
    many = len(lnls)
    peak = lnls.argmax(axis=0)
    order = np.argsort(peak, kind="stable")
    rows = (lnls * weights)[:, order]
    first = np.searchsorted(peak[order], np.arange(many + 1))
    between = np.full((many, many), -np.inf)
    for low in range(many):
        for high in range(low + 1, many):
            own = slice(first[low], first[high])
            between[low, high] = np.maximum(rows[low, own], rows[high, own]).sum()
    best = np.array([rows[b, : first[b]].sum() for b in range(many)])
    behind = []
    for _ in range(count - 1):
        every = best[:, None] + between
        behind.append(every.argmax(axis=0))
        best = every.max(axis=0)
    best = best + [rows[b, first[b] :].sum() for b in range(many)]
    kept = [int(best.argmax())]
    for before in reversed(behind):
        kept.append(int(before[kept[-1]]))
    return kept[::-1]
