"""The weights of a mixture's classes, by expectation and maximisation.

With L_im the likelihood of pattern i (n_i sites) under class m alone, the weights w that make
Π_i (Σ_m w_m L_im)^n_i largest are found from

    w_m  <-  w_m / n  Σ_i n_i L_im / (Σ_c w_c L_ic)

which never loses and, tree and matrices given, has but one maximum (Wang, Li, Susko & Roger 2008,
BMC Evol. Biol. 8:331). The L_im take one traversal, scored in cases whose other classes have no
weight.
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
"""Steps of a climb, which cost next to nothing beside the likelihoods."""

LEAST_CHANGE = 1e-7
"""Of any weight in a step: a climb ends below it."""


class Columns(Value, eq=False):
    """What the patterns of an engine stand for."""

    weights: Float64
    """f64[L]: how many sites show each."""
    parts: tuple[slice, ...]
    """Those of every part."""

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
        """The best weights of the classes of every part of a case.

        ``lnls`` f64[M, L]: under each class alone that has a weight; ``counts`` f64[L].
        """
        found = []
        for arrays, where in zip(case.models, self.parts[case.first_part :], strict=False):
            weights = class_weights_of(arrays)
            has_any = weights > 0.0
            own = lnls[: has_any.sum(), where]
            weights[has_any] = best_weights(own, counts[where], weights[has_any])
            found.append(weights)
        return found


def class_weights_of(arrays: ModelArrays) -> Float64:
    """f64[M]: the weights of a mixture's classes, of whose categories each has its share."""
    weights: Float64 = arrays.weights.reshape(arrays.n_systems, -1).sum(axis=1)
    return weights


def single_classes(case: Case) -> list[Case]:
    """The case M times, each with one class of every part; a part with fewer has its last again."""
    most = max(arrays.n_systems for arrays in case.models)
    return [case._replace(models=tuple(_only(own, m) for own in case.models)) for m in range(most)]


def _only(arrays: ModelArrays, number: int) -> ModelArrays:
    """A model whose sites are all of one class."""
    shares = arrays.weights.reshape(arrays.n_systems, -1)
    present = np.flatnonzero(shares.sum(axis=1))
    chosen = present[min(number, len(present) - 1)]
    only = np.zeros_like(shares)
    only[chosen] = shares[chosen] / shares[chosen].sum()
    return dataclasses.replace(arrays, weights=only.ravel())


def class_posteriors(lnls: Float64, weights: Float64) -> Float64:
    """f64[M, L]: probabilities of the classes of every pattern, which sum to 1.

    ``lnls``: f64[classes with weight, L], under each of those alone; ``weights``: f64[M].
    """
    present = weights > 0.0
    logs = lnls[: present.sum()] + log(weights[present])[:, None]
    shares = exp(np.maximum(logs - logs.max(axis=0), -700.0))
    posteriors = np.zeros((len(weights), lnls.shape[1]))
    posteriors[present] = shares / shares.sum(axis=0)
    return posteriors


def best_weights(lnls: Float64, counts: Float64, start: Float64) -> Float64:
    """f64[M]: the weights that suit lnLs f64[M, L] of patterns best, which occur f64[L] times."""
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
