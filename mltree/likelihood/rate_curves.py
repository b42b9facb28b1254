"""The lnL of patterns under one rate for all sites, and another: what rates among sites rest on.

A traversal computes as many categories as an engine has, here each with a rate of its own, and what
a pattern has under each of them alone comes of one more step at its end. So the curves of patterns
(:mod:`mltree.model.rate_profiles`) take as many traversals as their rates fill.

Letters: J rates, K categories, L patterns, M classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from mltree.arrays import Float64
from mltree.likelihood.cases import Case
from mltree.likelihood.classes import Columns
from mltree.model.eigen import ModelArrays
from mltree.model.rate_profiles import Curves
from mltree.tree.topology import Tree

__all__ = ["rate_curves"]


class Singles(Protocol):
    """What scores classes alone (:class:`mltree.likelihood.api.Likelihood`)."""

    def single_log_likelihoods(self, tree: Tree, singles: Sequence[Case]) -> Float64:
        """f64[n, L]: in cases that differ in their categories' weights."""


def rate_curves(
    likelihood: Singles,
    tree: Tree,
    case: Case,
    rates: Sequence[Float64],
    columns: Columns,
    counts: Float64,
) -> list[Curves]:
    """The patterns of every part, were all of its sites as fast as each of some rates.

    Those f64[J] are relative to the part's mean; where it has none, nothing is known of it. The
    classes of a mixture stay as fast beside each other as they are, and as heavy.

    ``counts`` f64[L]: sites that show each pattern of the engine.
    """
    width = min(own.n_categories // own.n_systems for own in case.models)
    rows = []
    for first in range(0, max(map(len, rates)), width):
        chunks = [own[first : first + width] for own in rates]
        most = max(map(len, chunks))
        each = [_singles(*pair, most) for pair in zip(case.models, chunks, strict=True)]
        singles = [case._replace(models=models) for models in zip(*each, strict=True)]
        rows.append(likelihood.single_log_likelihoods(tree, singles))
    lnls = np.concatenate(rows)
    parts = columns.parts[case.first_part :]
    return [
        Curves(own, lnls[: len(own), where], counts[where])
        for own, where in zip(rates, parts, strict=False)
    ]


def _singles(arrays: ModelArrays, rates: Float64, most: int) -> list[ModelArrays]:
    """Models of the categories' rates, all of whose sites are of one of the first so many."""
    shares = arrays.weights.reshape(arrays.n_systems, -1)
    classes = shares.sum(axis=1)
    speeds = (shares * arrays.rates.reshape(shares.shape)).sum(axis=1)
    speeds = np.divide(speeds, classes, out=np.ones_like(speeds), where=classes > 0.0)
    own = np.ones(shares.shape[1])
    own[: len(rates)] = rates
    found = []
    for k in range(most):
        weights = np.zeros_like(shares)
        weights[:, k] = classes
        every = (speeds[:, None] * own).ravel()
        found.append(replace(arrays, rates=every, weights=weights.ravel()))
    return found
