"""Empirical Bayesian rates: by exponentials of Q and sums over all states of inner nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.patterns import Patterns
from mltree.likelihood.categories import empirical_rates
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays, rate_matrix
from mltree.models.grammar import parse_model
from mltree.models.partitioned import PartitionModel
from mltree.program.engine import ReferenceEngine
from mltree.tree.topology import Tree, uniform_tree

BOUNDS = (0.0, 100.0)


def plain(tree: Tree, tips: np.ndarray, q: np.ndarray, pi: np.ndarray, rate: float) -> np.ndarray:
    """f64 [L]: likelihoods under one rate, of tip vectors f64 [T, L, S]."""

    def towards(half: int) -> np.ndarray:
        if half < 3 * tree.n_tips:
            return tips[half // 3]
        below = [tree.twin.item(sibling) for sibling in tree.siblings(half)]
        p = [expm(q * rate * tree.lengths[tree.edge.item(child)]) for child in below]
        return np.prod([towards(child) @ own.T for child, own in zip(below, p, strict=True)], 0)

    first = tree.twin.item(0)
    across = towards(first) @ expm(q * rate * tree.lengths[tree.edge.item(0)]).T
    return (tips[0] * across) @ pi


MODELS = (
    "HKY{1/3}+FU{0.3/0.2/0.1/0.4}+G4{0.4}", "JC+I{0.3}", "GTR{1/3/1/2/4/1}+FE+IU{0.2}+G4a{0.7}",
    "K80{2}+R3{0.2/1/2.5}{0.5/0.3/0.2}", "F81+FU{0.1/0.2/0.3/0.4}+I{0.1}+R2{2/0.4}{0.3/0.7}",
)  # fmt: skip


@pytest.mark.cases(4, 40)
def test_they_are_bayes_s(case: int, open_native: Callable[..., Any]) -> None:
    """One part or two, at scales of their own, with ambiguities and gaps."""
    rng = np.random.default_rng([case, 7])
    taxa, sites = int(rng.integers(4, 8)), int(rng.integers(10, 40))
    tree = uniform_tree(taxa, float(rng.uniform(0.05, 0.5)), rng)
    ancestors = rng.integers(0, 4, sites)
    states = np.where(rng.random((taxa, sites)) < 0.3, rng.integers(0, 4, (taxa, sites)), ancestors)
    codes = (1 << states).astype(np.uint8)
    codes[rng.random(codes.shape) < 0.1] = rng.integers(1, 16)
    split = sites // 2
    patterns = Patterns(
        taxa=tuple(f"t{n}" for n in range(taxa)), codes=codes, weights=np.ones(sites),
        site_pattern=np.arange(sites, dtype=np.int32), alphabet=DNA,
        ends=(split, sites) if case % 2 else (),
    )  # fmt: skip
    texts = rng.choice(MODELS, 2, replace=False)[: 1 + case % 2]
    models = [parse_model(text, DNA) for text in texts]
    scalers = np.array([0.6, 1.4])[: len(models)] if case % 2 else np.ones(1)
    whole = PartitionModel(tuple(models), ("a", "b")[: len(models)], scalers=scalers)
    arrays = whole.arrays()
    likelihood = TreeLikelihood(open_native(patterns, max(whole.categories)), BOUNDS)
    found = empirical_rates(likelihood.single_log_likelihoods, tree, arrays, [patterns])
    for model, scale, where in zip(models, scalers, patterns.parts, strict=True):
        own = model.arrays()
        q = rate_matrix(model.rates, model.frequencies)
        tips = DNA.tip_table[codes[:, where]]
        joint = np.array(
            [
                weight * plain(tree, tips, q, model.frequencies, float(rate * scale))
                for weight, rate in zip(own.weights, own.rates, strict=True)
            ]
        )
        posteriors = joint / joint.sum(axis=0)
        np.testing.assert_allclose(found.mean[where], own.rates * scale @ posteriors, rtol=1e-7)
        second, first = np.sort(posteriors, axis=0)[-2:]
        is_clear = first > second + 1e-9  # of gaps alone all categories of one weight are as likely
        best = own.rates[posteriors.argmax(axis=0)]
        np.testing.assert_allclose(found.rate[where][is_clear], best[is_clear] * scale)
        ranks = np.sort(own.rates).searchsorted(best) + (0.0 not in own.rates)
        np.testing.assert_array_equal(found.category[where][is_clear], ranks[is_clear])


def test_classes_of_a_mixture_are_summed_over(make_problem: Callable[..., Any]) -> None:
    """C10 with ten equal profiles' weights is no other than its posterior by hand."""
    rng = np.random.default_rng(5)
    tree = uniform_tree(4, 0.3, rng)
    codes = rng.integers(0, 20, (4, 12)).astype(np.uint8)
    codes[:, :4] = codes[0, :4]
    patterns = Patterns(
        taxa=("a", "b", "c", "d"), codes=codes, weights=np.ones(12),
        site_pattern=np.arange(12, dtype=np.int32), alphabet=PROTEIN,
    )  # fmt: skip
    model = parse_model("LG+C10+I{0.2}+G2{0.5}", PROTEIN)
    arrays = model.arrays()
    likelihood = TreeLikelihood(ReferenceEngine(patterns, arrays.n_categories, BOUNDS, 10), BOUNDS)
    found = empirical_rates(likelihood.single_log_likelihoods, tree, [arrays], [patterns])
    joint: dict[float, np.ndarray] = {}
    for own in separate(arrays):
        q = (own.right * own.eigenvalues) @ own.left
        for weight, rate in zip(own.weights.tolist(), own.rates.tolist(), strict=True):
            terms = plain(tree, PROTEIN.tip_table[codes], q, own.frequencies, rate)
            joint[rate] = joint.get(rate, 0.0) + weight * terms
    rates = np.array([*joint])
    posteriors = np.array([*joint.values()]) / sum(joint.values())
    np.testing.assert_allclose(found.mean, rates @ posteriors, rtol=1e-7)
    assert set(found.category) <= {0, 1, 2}


def separate(arrays: ModelArrays) -> list[ModelArrays]:
    shares = (column.reshape(arrays.n_systems, -1) for column in (arrays.rates, arrays.weights))
    rates, weights = shares
    return replace(arrays, rates=rates, weights=weights).unstacked()
