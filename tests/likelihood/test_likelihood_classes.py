"""Mixtures in engines, and the weights of their classes, against each class by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.likelihood.categories import best_weights, class_posteriors, class_weights_of
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.models.eigen import ModelArrays, random_reversible
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine

BOUNDS = (1e-6, 100.0)
FIELDS = ("eigenvalues", "right", "left", "frequencies", "generator", "direct")


def mixture(states: int, classes: int, rng: np.random.Generator) -> tuple[ModelArrays, Any]:
    """The arrays of a mixture of two categories a class, and those of every class alone."""
    alone = [random_reversible(states, rng, categories=2) for _ in range(classes)]
    weights = rng.dirichlet(np.full(classes, 3.0))
    stacked = {name: np.stack([getattr(own, name) for own in alone]) for name in FIELDS}
    rates = np.concatenate([own.rates for own in alone])
    shares = np.concatenate([w * own.weights for w, own in zip(weights, alone, strict=True)])
    return ModelArrays(**stacked, rates=rates, weights=shares), (alone, weights)


def by_class(problem: Any, alone: list[ModelArrays]) -> np.ndarray:
    plain = TreeLikelihood(ReferenceEngine(problem.patterns, 2, BOUNDS), BOUNDS)
    return np.stack([plain.site_log_likelihoods(problem.tree, Case((own,))) for own in alone])


def test_a_mixture_is_the_sum_of_its_classes(
    open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    classes = 3
    problem = make_problem(7, 30, categories=2)
    arrays, (alone, weights) = mixture(4, classes, np.random.default_rng(1))
    sites = np.log(weights @ np.exp(by_class(problem, alone)))
    for engine in (
        open_native(problem.patterns, 2 * classes, systems=classes),
        ReferenceEngine(problem.patterns, 2 * classes, BOUNDS, classes),
    ):
        used = TreeLikelihood(engine, BOUNDS)
        found = used.site_log_likelihoods(problem.tree, Case((arrays,)))
        np.testing.assert_allclose(found, sites, rtol=1e-9)


@pytest.mark.cases(2, 30)
def test_weights_are_as_good_as_an_independent_optimiser_s(
    case: int, open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    problem = make_problem(6, 40, categories=2, seed=case)
    arrays, (alone, weights) = mixture(4, 3, np.random.default_rng(case))
    engine = open_native(problem.patterns, 6, systems=3)
    used = TreeLikelihood(engine, BOUNDS, Columns.of([problem.patterns]))
    ((found,),) = used.class_weights([problem.tree], [Case((arrays,))])
    likelihoods, counts = np.exp(by_class(problem, alone)), problem.patterns.weights

    def loss(logs: np.ndarray) -> float:
        shares = np.exp(logs - logs.max())
        return -float(counts @ np.log(shares / shares.sum() @ likelihoods))

    limits = [(-9.0, 9.0)] * 3
    best = minimize(loss, np.log(weights), method="L-BFGS-B", bounds=limits).fun
    assert found.sum() == pytest.approx(1.0)
    assert -float(counts @ np.log(found @ likelihoods)) <= best + 1e-3


def test_posteriors_are_bayes_s(make_problem: Callable[..., Any]) -> None:
    """Of classes one of which has no weight."""
    problem = make_problem(6, 20, categories=2)
    arrays, (alone, weights) = mixture(4, 3, np.random.default_rng(2))
    weights[1] = 0.0
    shares = np.concatenate([w * own.weights for w, own in zip(weights, alone, strict=True)])
    arrays = replace(arrays, weights=shares)
    used = TreeLikelihood(ReferenceEngine(problem.patterns, 6, BOUNDS, 3), BOUNDS)
    lnls = used.class_log_likelihoods(problem.tree, Case((arrays,)))
    joint = weights[:, None] * np.exp(by_class(problem, alone))
    np.testing.assert_allclose(
        class_posteriors(lnls, class_weights_of(arrays)), joint / joint.sum(axis=0), rtol=1e-9
    )


def test_patterns_that_do_not_occur_have_no_say() -> None:
    lnls = np.log(np.array([[0.5, 0.1, 0.001], [0.1, 0.5, 0.9]]))
    even = np.full(2, 0.5)
    assert best_weights(lnls, np.array([3.0, 3.0, 0.0]), even) == pytest.approx([0.5, 0.5])
    assert best_weights(lnls, np.array([3.0, 0.0, 0.0]), even)[0] > 0.999


def test_without_columns_there_are_no_weights(make_problem: Callable[..., Any]) -> None:
    problem = make_problem(5, 10)
    used = TreeLikelihood(ReferenceEngine(problem.patterns, 4, BOUNDS), BOUNDS)
    with pytest.raises(ValueError, match="without columns"):
        used.class_weights([problem.tree], [problem.case])
