"""Topology tests: which trees the data reject, from resampled log-likelihoods (RELL).

    bp     how often a tree is the best (Kishino, Miyata & Hasegawa 1990)
    KH     how often the best tree's lead, centred, is as large as it was (one-sided; Kishino &
           Hasegawa 1989); of the best tree itself the lead of the second best
    SH     how often the lead of the best of all trees, centred, is (Shimodaira & Hasegawa 1999)
    wKH, wSH   leads divided by the standard deviation of the two trees' difference
    ELW    expected likelihood weight (Strimmer & Rambaut 2002)
    AU     approximately unbiased: :mod:`mltree.supports.unbiased`

The definitions are IQ-TREE's and CONSEL's, but that bp shares exact ties out instead of near ones
at random. Letters: n trees, R replicates; ``resampled`` is f64 [n, R], ``lnl`` f64 [n].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltree.arrays import Float64
from mltree.shares import in_blocks
from mltree.supports.resampling import share_error

__all__ = [
    "LEVEL",
    "TreeTest",
    "bootstrap_proportions",
    "deviations",
    "expected_weights",
    "kishino_hasegawa",
    "leads",
    "shimodaira_hasegawa",
    "weighted_tests",
]

BLOCK = 1 << 12
"""Patterns whose differences are summed at a time, so that they take little memory."""

COMPARED = 1 << 17
"""Resampled lnLs that every tree is compared with at a time, on a thread of its own."""

LEVEL = 0.05
"""Of significance: a tree of a smaller p-value is rejected."""

ROUNDING = 1e-12
"""Of sums of shares: 0.95 is one that replicates in multiples of 20 often have."""


@dataclass(frozen=True)
class TreeTest:
    """One test of every tree, [n] each."""

    values: Float64
    """p-values, proportions or weights, 0 to 1."""
    errors: Float64
    """Their Monte-Carlo errors: standard errors, for only so many replicates are drawn."""
    is_kept: NDArray[np.bool_]
    """Whether a tree is in the 95 % confidence set."""

    @classmethod
    def of_p(cls, values: Float64, errors: Float64) -> TreeTest:
        """A test with p-values."""
        return cls(values, errors, values >= LEVEL)

    @classmethod
    def of_shares(cls, values: Float64, errors: Float64) -> TreeTest:
        """A test whose values sum to 1: the largest make the set, up to 95 % together."""
        ranked = np.argsort(-values, kind="stable")
        before = np.cumsum(values[ranked]) - values[ranked]
        is_kept = np.empty(values.size, dtype=np.bool_)
        is_kept[ranked] = before <= 1 - LEVEL + ROUNDING
        return cls(values, errors, is_kept)


def leads(lnl: Float64) -> Float64:
    """How much better the best other tree is than each, f64 as ``lnl``, trees along axis 0.

    Of the best tree it is less than 0.
    """
    first, second = _best_two(lnl)
    lead: Float64 = np.where(lnl == first, second, first) - lnl
    return lead


def _best_two(lnl: Float64) -> tuple[Float64, Float64]:
    """The largest along axis 0, and the next; equal where two are."""
    first: Float64 = lnl.max(axis=0)
    is_best = lnl == first
    others = np.where(is_best, -np.inf, lnl).max(axis=0)
    return first, np.where(np.count_nonzero(is_best, axis=0) > 1, first, others)


def bootstrap_proportions(resampled: Float64) -> TreeTest:
    """Shares of the replicates; trees that are the best together share one."""
    is_best = resampled == resampled.max(axis=0)
    share = (is_best / is_best.sum(axis=0)).mean(axis=1)
    return TreeTest.of_shares(share, share_error(share, resampled.shape[1]))


def _centred(resampled: Float64) -> Float64:
    """Less each tree's mean: as if all trees were as good."""
    centred: Float64 = resampled - resampled.mean(axis=1, keepdims=True)
    return centred


def kishino_hasegawa(lnl: Float64, resampled: Float64) -> TreeTest:
    """Each tree against the best other one."""
    centred = _centred(resampled)
    best = lnl.argmax()
    rival = np.full(lnl.size, best)
    rival[best] = np.where(np.arange(lnl.size) == best, -np.inf, lnl).argmax()
    larger = [
        np.count_nonzero(centred[other] - centred[tree] > lnl[other] - lnl[tree])
        for tree, other in enumerate(rival)
    ]
    return _share(larger, resampled)


def shimodaira_hasegawa(lnl: Float64, resampled: Float64) -> TreeTest:
    """Each tree against the best of all."""
    centred = _centred(resampled)
    lead = centred.max(axis=0) - centred
    return _share((lead > leads(lnl)[:, None]).sum(axis=1), resampled)


def deviations(sites: Float64, weights: Float64) -> Float64:
    """Standard deviation of the difference in lnL of each two trees, f64 [n, n].

        variance = N / (N - 1) * sum over N sites of (d - mean d)^2,  d = site lnL's difference

    sites  f64 [n, L] site lnL of every pattern; weights f64 [L] its sites
    """
    n_sites = weights.sum()
    means = sites @ weights / n_sites
    product = np.zeros((len(sites), len(sites)))
    for first in range(0, weights.size, BLOCK):
        some = slice(first, first + BLOCK)
        centred = sites[:, some] - means[:, None]
        product += (centred * weights[some]) @ centred.T
    own = np.diagonal(product)
    variance = np.maximum(own[:, None] + own - product - product.T, 0.0)
    deviation: Float64 = np.sqrt(variance * n_sites / max(n_sites - 1.0, 1.0))
    return deviation


def weighted_tests(
    lnl: Float64, resampled: Float64, deviation: Float64
) -> tuple[TreeTest, TreeTest]:
    """Both weighted tests, wKH and wSH; ``deviation`` f64 [n, n], see :func:`deviations`.

    Trees that do not differ at any site lead each other by nothing, whatever that is divided by.
    """
    centred = _centred(resampled)
    with np.errstate(divide="ignore"):
        scale = np.where(deviation > 0.0, 1.0 / deviation, 0.0)
    leading = (lnl - lnl[:, None]) * scale
    np.fill_diagonal(leading, -np.inf)
    rivals = leading.argmax(axis=1)
    single = [
        np.count_nonzero(centred[rival] - centred[tree] > lnl[rival] - lnl[tree])
        for tree, rival in enumerate(rivals)
    ]

    lead = leading.max(axis=1)
    farthest = (centred.max(axis=0) - centred).max(axis=1) * scale.max(axis=1)
    contested = np.flatnonzero(farthest > lead)  # the others never lag as far as they do

    def lagging(block: slice) -> NDArray[np.int64]:
        """In how many of some replicates a tree lags by more than it does."""
        own = centred[:, block]
        ahead, found = np.empty_like(own), np.zeros(lnl.size, np.int64)
        for tree in contested:
            np.subtract(own, own[tree], out=ahead)
            ahead *= scale[tree, :, None]
            ahead[tree] = -np.inf
            found[tree] = np.count_nonzero(ahead.max(axis=0) > lead[tree])
        return found

    size = max(1, COMPARED // lnl.size)
    several = np.sum(in_blocks(lagging, centred.shape[1], size), axis=0)
    return _share(single, resampled), _share(several, resampled)


def expected_weights(resampled: Float64) -> TreeTest:
    """Each tree's share of the likelihood of all, averaged over the replicates."""
    likelihood = np.exp(resampled - resampled.max(axis=0))
    weight = likelihood / likelihood.sum(axis=0)
    error = weight.std(axis=1) / np.sqrt(resampled.shape[1])
    return TreeTest.of_shares(weight.mean(axis=1), error)


def _share(larger: ArrayLike, resampled: Float64) -> TreeTest:
    replicates = resampled.shape[1]
    p = np.asarray(larger) / replicates
    return TreeTest.of_p(p, share_error(p, replicates))
