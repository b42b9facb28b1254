"""Weights of a mixture's classes, by expectation and maximisation.

With L_im the likelihood of pattern i (n_i sites) under class m alone, the weights w that maximise
Π_i (Σ_m w_m L_im)^n_i are the limit of

    w_m  <-  w_m / n  Σ_i n_i L_im / (Σ_c w_c L_ic)

A step never lowers the likelihood, which for a given tree and matrices has a single maximum (Wang,
Li, Susko & Roger 2008, BMC Evol. Biol. 8:331). All L_im take one traversal, scored in cases that
give weight to one class each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.models.portable import exp, log
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.system.values import Value

MAX_STEPS = 2000
"""Steps of expectation and maximisation at most; they cost little beside the likelihoods."""

LEAST_CHANGE = 1e-7
"""Change of any weight in a step below which the iteration ends."""


class Columns(Value, eq=False):
    """The patterns of an engine: how many sites each stands for, and its part."""

    weights: Float64
    """f64[L]: sites that show each pattern."""
    parts: tuple[slice, ...]
    """The patterns of every part."""

    @classmethod
    def of(cls, groups: Sequence[Patterns]) -> Columns:
        """The columns of all groups, one after the other."""
        firsts = np.cumsum([0, *(patterns.n_patterns for patterns in groups)]).tolist()
        parts = tuple(
            slice(first + part.start, first + part.stop)
            for first, patterns in zip(firsts, groups, strict=False)
            for part in patterns.parts
        )
        weights = np.concatenate([patterns.weights for patterns in groups])
        return cls(weights, parts)

    def best_weights(self, lnls: Float64, counts: Float64, case: Case) -> list[Float64]:
        """Maximum-likelihood class weights, f64[M] for every part of a case.

        lnls    f64[M, L]: lnL of each pattern under each class alone, classes without weight left
        out
        counts  f64[L]: sites of each pattern
        """
        all_weights = []
        for arrays, where in zip(case.models, self.parts[case.first_part :], strict=False):
            weights = class_weights_of(arrays)
            has_any = weights > 0.0
            class_lnls = lnls[: has_any.sum(), where]
            weights[has_any] = best_weights(class_lnls, counts[where], weights[has_any])
            all_weights.append(weights)
        return all_weights


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
    return dataclasses.replace(arrays, weights=only.ravel())


def class_posteriors(lnls: Float64, weights: Float64) -> Float64:
    """f64[M, L]: posterior probabilities of the classes at every pattern, which sum to 1.

    lnls     f64[classes with weight, L]: lnL under each of those classes alone
    weights  f64[M]
    """
    present = weights > 0.0
    logs = lnls[: present.sum()] + log(weights[present])[:, None]
    shares = exp(np.maximum(logs - logs.max(axis=0), -700.0))
    posteriors = np.zeros((len(weights), lnls.shape[1]))
    posteriors[present] = shares / shares.sum(axis=0)
    return posteriors


def best_weights(lnls: Float64, counts: Float64, start: Float64) -> Float64:
    """f64[M]: maximum-likelihood weights, by the EM of the module, from ``start``.

    lnls    f64[M, L]: lnL of each pattern under each class
    counts  f64[L]: sites of each pattern
    """
    seen = counts > 0
    lnls, counts = lnls[:, seen], counts[seen]
    likelihoods = exp(np.maximum(lnls - lnls.max(axis=0), -700.0))
    weights: Float64 = start / start.sum()
    for _ in range(MAX_STEPS):
        expected = (weights[:, None] * likelihoods).sum(axis=0)
        steps = (likelihoods * (counts / expected)).sum(axis=1) / counts.sum()
        change = weights * (steps - 1.0)
        weights = weights + change
        if np.abs(change).max() < LEAST_CHANGE:
            break
    return weights
