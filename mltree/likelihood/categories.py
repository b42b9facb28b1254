"""Patterns under a single class, rate or category: class weights, curves of rates, site rates.

Cases that differ in the weights of categories only take one traversal, which gives the lnL of every
pattern under each. Letters: J rates, K categories, L patterns, M classes.

With L_im the likelihood of pattern i (n_i sites) under class m alone, the weights w that maximise
Π_i (Σ_m w_m L_im)^n_i are the limit of expectation and maximisation,

    w_m  <-  w_m / n  Σ_i n_i L_im / (Σ_c w_c L_ic)

A step never lowers the likelihood, which for a given tree and matrices has a single maximum (Wang,
Li, Susko & Roger 2008, BMC Evol. Biol. 8:331).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.models.portable import exp, log
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree

MAX_STEPS = 2000
"""Steps of expectation and maximisation at most; they cost little beside the likelihoods."""

LEAST_CHANGE = 1e-7
"""Change of any weight in a step below which the iteration ends."""

LEAST_LOG = -700.0
"""Natural log of a likelihood relative to the best category's, below which it counts as 0."""


def class_weights_of(arrays: ModelArrays) -> Float64:
    """f64[M]: weights of a mixture's classes, each summed over the class's rate categories."""
    weights: Float64 = arrays.weights.reshape(arrays.n_systems, -1).sum(axis=1)
    return weights


def single_classes(case: Case) -> list[Case]:
    """The case M times, each with one class of every part; a part with fewer repeats its last."""
    most = max(arrays.n_systems for arrays in case.models)
    return [
        case._replace(models=tuple(_only(arrays, m) for arrays in case.models)) for m in range(most)
    ]


def _only(arrays: ModelArrays, number: int) -> ModelArrays:
    """A model whose sites are all of one class."""
    shares = arrays.weights.reshape(arrays.n_systems, -1)
    present = np.flatnonzero(shares.sum(axis=1))
    chosen = present[min(number, len(present) - 1)]
    only = np.zeros_like(shares)
    only[chosen] = shares[chosen] / shares[chosen].sum()
    return replace(arrays, weights=only.ravel())


def class_posteriors(lnls: Float64, weights: Float64) -> Float64:
    """f64[M, L]: posterior probabilities of the classes at every pattern, which sum to 1.

    lnls     f64[classes with weight, L]: lnL under each of those classes alone
    weights  f64[M]
    """
    present = weights > 0.0
    logs = lnls[: present.sum()] + log(weights[present])[:, None]
    shares = exp(np.maximum(logs - logs.max(axis=0), LEAST_LOG))
    posteriors = np.zeros((len(weights), lnls.shape[1]))
    posteriors[present] = shares / shares.sum(axis=0)
    return posteriors


def best_weights(lnls: Float64, counts: Float64, start: Float64) -> Float64:
    """f64[M]: maximum-likelihood weights, by expectation and maximisation from ``start``.

    lnls    f64[M, L]: lnL of each pattern under each class
    counts  f64[L]: sites of each pattern
    """
    seen = counts > 0
    lnls, counts = lnls[:, seen], counts[seen]
    likelihoods = exp(np.maximum(lnls - lnls.max(axis=0), LEAST_LOG))
    weights: Float64 = start / start.sum()
    for _ in range(MAX_STEPS):
        expected = (weights[:, None] * likelihoods).sum(axis=0)
        steps = (likelihoods * (counts / expected)).sum(axis=1) / counts.sum()
        change = weights * (steps - 1.0)
        weights = weights + change
        if np.abs(change).max() < LEAST_CHANGE:
            break
    return weights


def fitted_class_weights(
    case: Case, lnls: Sequence[Float64], counts: Sequence[Float64]
) -> list[Float64]:
    """Maximum-likelihood class weights, f64[M] for every part of a case.

    lnls    f64[M, L] a part: lnL of each pattern under each class alone, classes without weight
            left out
    counts  f64[L] a part: sites of each pattern
    """
    all_weights = []
    for arrays, part_lnls, part_counts in zip(case.models, lnls, counts, strict=True):
        weights = class_weights_of(arrays)
        has_any = weights > 0.0
        class_lnls = part_lnls[: has_any.sum()]
        weights[has_any] = best_weights(class_lnls, part_counts, weights[has_any])
        all_weights.append(weights)
    return all_weights


def single_rates(case: Case, rates: Sequence[Float64]) -> Iterator[list[Case]]:
    """Cases with one rate each for all sites of a part, for as many traversals as they take.

    rates   f64[J] a part, relative to the part's mean rate
    The classes of a mixture keep their relative rates and their weights.
    """
    width = min(arrays.n_categories // arrays.n_systems for arrays in case.models)
    for first in range(0, max(map(len, rates)), width):
        chunks = [part_rates[first : first + width] for part_rates in rates]
        most = max(map(len, chunks))
        each = [_single_rate_models(*pair, most) for pair in zip(case.models, chunks, strict=True)]
        yield [case._replace(models=models) for models in zip(*each, strict=True)]


def _single_rate_models(arrays: ModelArrays, rates: Float64, most: int) -> list[ModelArrays]:
    """Models with the given category rates, each with all weight on one of them."""
    shares = arrays.weights.reshape(arrays.n_systems, -1)
    classes = shares.sum(axis=1)
    speeds = (shares * arrays.rates.reshape(shares.shape)).sum(axis=1)
    speeds = np.divide(speeds, classes, out=np.ones_like(speeds), where=classes > 0.0)
    category_rates = np.ones(shares.shape[1])
    category_rates[: len(rates)] = rates
    singles = []
    for k in range(most):
        weights = np.zeros_like(shares)
        weights[:, k] = classes
        every = (speeds[:, None] * category_rates).ravel()
        singles.append(replace(arrays, rates=every, weights=weights.ravel()))
    return singles


# Empirical Bayesian rates of sites: with L_ic pattern i's likelihood under category c alone, of
# rate r_c and weight w_c,
#
#     P(c | i) = w_c L_ic / Σ_d w_d L_id,    rate of i = Σ_c P(c | i) r_c
#
# (Yang & Wang 1995, Biometrics 51:552-561; Mayrose, Graur, Ben-Tal & Pupko 2004, Mol. Biol. Evol.
# 21:1781-1791), summed over the classes of a mixture. Invariable sites need no tree: L = Σ_s π_s
# over the states s that all tips may have.


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
    log_likelihoods: Callable[[Tree, Sequence[Case]], Float64],
    tree: Tree,
    models: Sequence[ModelArrays],
    groups: Sequence[Patterns],
) -> EmpiricalRates:
    """Posterior rates of all patterns of the groups, whose parts have these models.

    log_likelihoods  :meth:`mltree.likelihood.likelihood.TreeLikelihood.single_log_likelihoods`
    """
    most = max(len(_rates(arrays)) for arrays in models)
    singles = [Case(tuple(_under(arrays, n) for arrays in models)) for n in range(most)]
    lnls = log_likelihoods(tree, singles)
    by_part = []
    for arrays, (patterns, where, columns) in zip(models, parts_of(groups), strict=True):
        rates = _rates(arrays)
        part_lnls = lnls[: len(rates), columns]
        if 0.0 in arrays.rates[arrays.weights > 0.0]:
            rates = np.append(0.0, rates)
            part_lnls = np.concatenate([_invariable(arrays, patterns, where)[None], part_lnls])
        weights = np.array([_shares(arrays, rate).sum() for rate in rates])
        by_part.append(EmpiricalRates.of(part_lnls, rates, weights))
    return EmpiricalRates.joined(by_part)


def parts_of(groups: Sequence[Patterns]) -> Iterator[tuple[Patterns, slice, slice]]:
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
