"""Rates of sites: likelihoods with one rate a pattern (+PSR), and empirical Bayesian rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mltree.data.patterns import Patterns
from mltree.likelihood.likelihood import Columns, Likelihood
from mltree.models.eigen import ModelArrays
from mltree.models.portable import exp, log
from mltree.models.rates import GRID, FittedRates, SiteRates, fitted_rates
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.system.arrays import Float64, Int64
from mltree.tree.topology import Tree

# +PSR: one rate a pattern, chosen by maximum likelihood.


class GroupingEngine(Engine, Protocol):
    """An engine that groups patterns by their rates."""

    def group(self, category: Int64) -> None:
        """Take the rate category i64[L] of every pattern; drops models and CLAs."""


class PerSiteLikelihood(Likelihood):
    """Likelihood of trees over patterns each of which has one of its model's rates."""

    def __init__(
        self,
        engine: GroupingEngine,
        length_bounds: tuple[float, float],
        columns: Columns,
        count: int,
    ) -> None:
        """``count``: rates of every part."""
        super().__init__(engine, length_bounds, columns)
        self._grouping, self._part_columns, self._count = engine, columns, count
        self._category: Int64 = np.zeros(0, np.int64)

    def group(self, rates: Sequence[SiteRates]) -> None:
        """Give every pattern the rate that ``rates``, one a part, say."""
        category = np.concatenate([form.category for form in rates])
        if not np.array_equal(category, self._category):
            self._grouping.group(category)
            self._category = category
            self._models, self._resident = [], None

    def site_rates(self, tree: Tree, case: Case) -> list[FittedRates]:
        """Maximum-likelihood rates of every part's sites, at the tree's lengths."""
        under = [
            case._replace(models=tuple(_at(arrays, rate) for arrays in case.models))
            for rate in GRID.tolist()
        ]
        lnls = self.site_rows([tree] * len(under), under)
        weights = self._rows[case.weights].astype(np.float64)
        return [
            fitted_rates(lnls[:, part], weights[part], GRID, self._count)
            for part in self._part_columns.parts
        ]


def _at(arrays: ModelArrays, rate: float) -> ModelArrays:
    """The model with one rate for all sites."""
    return replace(arrays, rates=np.array([rate]), weights=np.ones(1))


# Empirical Bayesian rates of sites: with L_ic pattern i's likelihood under category c alone, of
# rate r_c and weight w_c,
#
#     P(c | i) = w_c L_ic / Σ_d w_d L_id,    rate of i = Σ_c P(c | i) r_c
#
# (Yang & Wang 1995, Biometrics 51:552-561; Mayrose, Graur, Ben-Tal & Pupko 2004, Mol. Biol. Evol.
# 21:1781-1791), summed over the classes of a mixture. Invariable sites need no tree: L = Σ_s π_s
# over the states s that all tips may have.

LEAST_LOG = -700.0
"""Natural log of a likelihood relative to the best category's, below which it counts as 0."""


class EmpiricalRates(NamedTuple):
    """Posterior rates of L patterns, each f64 or i64 [L]."""

    mean: Float64
    """Posterior mean rate."""
    category: npt.NDArray[np.int64]
    """The most probable category: 0 is that of invariable sites, 1 the slowest of the others."""
    rate: Float64
    """Rate of that category."""

    @classmethod
    def of(cls, lnls: Float64, rates: Float64, weights: Float64) -> EmpiricalRates:
        """Rates from lnLs f64 [K, L] under each category alone, of rates and weights f64 [K].

        The rates ascend.
        """
        logs = lnls + log(weights)[:, None]
        shares = exp(np.maximum(logs - logs.max(axis=0), LEAST_LOG))
        best = logs.argmax(axis=0)
        mean = (shares * rates[:, None]).sum(axis=0) / shares.sum(axis=0)
        return cls(mean, best + int(rates[0] > 0.0), rates[best])

    @classmethod
    def joined(cls, several: Sequence[EmpiricalRates]) -> EmpiricalRates:
        """Several sets of patterns, one after the other."""
        return cls(*map(np.concatenate, zip(*several, strict=True)))


def empirical_rates(
    likelihood: Likelihood, tree: Tree, models: Sequence[ModelArrays], groups: Sequence[Patterns]
) -> EmpiricalRates:
    """Posterior rates of all patterns of the groups, whose parts have these models."""
    most = max(len(_rates(arrays)) for arrays in models)
    singles = [Case(tuple(_under(arrays, n) for arrays in models)) for n in range(most)]
    lnls = likelihood.single_log_likelihoods(tree, singles)
    by_part = []
    for arrays, (patterns, where, columns) in zip(models, _parts(groups), strict=True):
        rates = _rates(arrays)
        part_lnls = lnls[: len(rates), columns]
        if 0.0 in arrays.rates[arrays.weights > 0.0]:
            rates = np.append(0.0, rates)
            part_lnls = np.concatenate([_invariable(arrays, patterns, where)[None], part_lnls])
        weights = np.array([_shares(arrays, rate).sum() for rate in rates])
        by_part.append(EmpiricalRates.of(part_lnls, rates, weights))
    return EmpiricalRates.joined(by_part)


def _parts(groups: Sequence[Patterns]) -> Iterator[tuple[Patterns, slice, slice]]:
    """The group of every part, the part's patterns in the group, and in all groups."""
    first = 0
    for patterns in groups:
        for where in patterns.parts:
            yield patterns, where, slice(first + where.start, first + where.stop)
        first += patterns.n_patterns


def _rates(arrays: ModelArrays) -> Float64:
    """The distinct rates above 0 of categories that have a weight, ascending."""
    rates: Float64 = np.unique(arrays.rates[(arrays.weights > 0.0) & (arrays.rates > 0.0)])
    return rates


def _shares(arrays: ModelArrays, rate: float) -> Float64:
    """f64 [categories]: weights of the categories of one rate, 0 for the others."""
    return np.where(arrays.rates == rate, arrays.weights, 0.0)


def _under(arrays: ModelArrays, number: int) -> ModelArrays:
    """The model with all weight on its ``number``-th distinct rate, or the last if it has fewer."""
    rates = _rates(arrays)
    shares = _shares(arrays, float(rates[min(number, len(rates) - 1)]))
    return replace(arrays, weights=shares / shares.sum())


def _invariable(arrays: ModelArrays, patterns: Patterns, where: slice) -> Float64:
    """f64 [patterns of the part]: lnL of each if nothing changes; very low if it varies."""
    classes = _shares(arrays, 0.0).reshape(arrays.n_systems, -1).sum(axis=1)
    frequencies = (classes[:, None] * np.atleast_2d(arrays.frequencies)).sum(axis=0) / classes.sum()
    if patterns.systems is not None:
        frequencies = patterns.systems.frequencies[where]
    codes = patterns.codes[:, where]
    common = np.bitwise_and.reduce(patterns.alphabet.state_masks[codes], axis=0)
    states = np.arange(patterns.alphabet.n_states, dtype=np.uint64)
    possible = (common[:, None] >> states & np.uint64(1)).astype(np.float64)
    total = (possible * frequencies).sum(axis=1)
    return log(np.maximum(total, np.finfo(np.float64).tiny))
