"""What lnL gains with shared exchangeabilities, against differences of the reference's lnL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.classes import Columns
from mltree.likelihood.reference import ReferenceEngine
from mltree.model.eigen import ModelArrays, decompose
from mltree.model.exchangeability_slopes import exchangeability_slopes

BOUNDS = (1e-6, 100.0)
STEP = 1e-5


@pytest.mark.cases(3, 40)
def test_slopes_are_differences(case: int, make_problem: Callable[..., Any]) -> None:
    """Of classes with frequencies of their own, two rates each, one of them 0 at times."""
    rng = np.random.default_rng([case, 5])
    classes, taxa = int(rng.integers(1, 4)), int(rng.integers(4, 9))
    problem = make_problem(taxa, 25, categories=2, seed=case)
    problem.tree.lengths[0] = BOUNDS[0]
    pairs = np.exp(rng.normal(size=6))
    frequencies = rng.dirichlet(np.full(4, 3.0), classes)
    rates = np.tile([0.0 if case % 2 else 0.2, rng.uniform(0.5, 2)], classes)
    weights = rng.dirichlet(np.full(2 * classes, 3.0))
    likelihood = Likelihood(
        ReferenceEngine(problem.patterns, 2 * classes, BOUNDS, classes),
        BOUNDS,
        Columns.of([problem.patterns]),
    )

    def arrays(logs: np.ndarray) -> ModelArrays:
        every = np.repeat(np.exp(logs)[None], classes, axis=0)
        found = decompose(every, frequencies, rates, weights)
        return (
            found
            if classes > 1
            else ModelArrays(*(t[0] for t in list(vars(found).values())[:4]), rates, weights)
        )

    def lnl(logs: np.ndarray) -> float:
        return float(likelihood.log_likelihoods([problem.tree], [Case((arrays(logs),))])[0])

    logs = np.log(pairs)
    ((slopes,),) = likelihood.flow_slopes([problem.tree], [Case((arrays(logs),))])
    found, changes = exchangeability_slopes(pairs, frequencies, slopes)
    axes = STEP * np.eye(6)
    expected = [(lnl(logs + one) - lnl(logs - one)) / (2 * STEP) for one in axes]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert (changes > 0).all()
    assert found.sum() == pytest.approx(0.0, abs=1e-8)
