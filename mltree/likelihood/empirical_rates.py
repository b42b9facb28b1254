"""Empirical Bayesian rates of sites: what categories of rates say of every pattern of a tree.

With L_ic the likelihood of pattern i under category c alone, of rate r_c and weight w_c,

    P(c | i) = w_c L_ic / Σ_d w_d L_id,    rate of i = Σ_c P(c | i) r_c

(Yang & Wang 1995, Biometrics 51:552-561; Mayrose, Graur, Ben-Tal & Pupko 2004, Mol. Biol. Evol.
21:1781-1791). The classes of a mixture are summed over. Of invariable sites L is known without a
tree: Σ_s π_s over the states s that all tips may have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.model.eigen import ModelArrays
from mltree.model.portable import exp, log
from mltree.tree.topology import Tree

__all__ = ["EmpiricalRates", "empirical_rates"]


LEAST_LOG = -700.0
"""Natural log of a likelihood beside the best category's, below which it is as good as none."""


class EmpiricalRates(NamedTuple):
    """Of L patterns, each f64 or i64 [L]."""

    mean: Float64
    """Posterior mean rate."""
    category: npt.NDArray[np.int64]
    """The most probable category: 0 is that of invariable sites, 1 the slowest of the others."""
    rate: Float64
    """Of that category."""

    @classmethod
    def of(cls, lnls: Float64, rates: Float64, weights: Float64) -> EmpiricalRates:
        """By lnLs f64 [K, L] under each category alone, of ascending rates and weights f64 [K]."""
        logs = lnls + log(weights)[:, None]
        shares = exp(np.maximum(logs - logs.max(axis=0), LEAST_LOG))
        best = logs.argmax(axis=0)
        mean = (shares * rates[:, None]).sum(axis=0) / shares.sum(axis=0)
        return cls(mean, best + int(rates[0] > 0.0), rates[best])

    @classmethod
    def joined(cls, several: Sequence[EmpiricalRates]) -> EmpiricalRates:
        """One after the other."""
        return cls(*map(np.concatenate, zip(*several, strict=True)))


def empirical_rates(
    likelihood: Likelihood, tree: Tree, models: Sequence[ModelArrays], groups: Sequence[Patterns]
) -> EmpiricalRates:
    """Of all patterns of the groups, whose parts have these models."""
    singles = [Case(tuple(_under(own, n) for own in models)) for n in range(_most(models))]
    lnls = likelihood.single_log_likelihoods(tree, singles)
    found = []
    for arrays, (patterns, where, columns) in zip(models, _parts(groups), strict=True):
        rates = _rates(arrays)
        own = lnls[: len(rates), columns]
        if 0.0 in arrays.rates[arrays.weights > 0.0]:
            rates = np.append(0.0, rates)
            own = np.concatenate([_invariable(arrays, patterns, where)[None], own])
        weights = np.array([_shares(arrays, rate).sum() for rate in rates])
        found.append(EmpiricalRates.of(own, rates, weights))
    return EmpiricalRates.joined(found)


def _parts(groups: Sequence[Patterns]) -> Iterator[tuple[Patterns, slice, slice]]:
    """The group of every part, where it is there, and where among all patterns."""
    first = 0
    for patterns in groups:
        for where in patterns.parts:
            yield patterns, where, slice(first + where.start, first + where.stop)
        first += patterns.n_patterns


def _rates(arrays: ModelArrays) -> Float64:
    """The distinct rates above 0 of categories that have a weight, ascending."""
    rates: Float64 = np.unique(arrays.rates[(arrays.weights > 0.0) & (arrays.rates > 0.0)])
    return rates


def _most(models: Sequence[ModelArrays]) -> int:
    return max(len(_rates(arrays)) for arrays in models)


def _shares(arrays: ModelArrays, rate: float) -> Float64:
    """f64 [categories]: the weights of those of one rate, 0 of the others."""
    return np.where(arrays.rates == rate, arrays.weights, 0.0)


def _under(arrays: ModelArrays, number: int) -> ModelArrays:
    """A model all of whose sites have its rate of a number, or the last where it has fewer."""
    rates = _rates(arrays)
    shares = _shares(arrays, float(rates[min(number, len(rates) - 1)]))
    return dataclasses.replace(arrays, weights=shares / shares.sum())


def _invariable(arrays: ModelArrays, patterns: Patterns, where: slice) -> Float64:
    """f64 [patterns of the part]: their lnL if nothing ever changes; very low where it does."""
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
