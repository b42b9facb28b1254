"""L-BFGS in a box, against SciPy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.fit.optimisers import LBFGS, GradientLBFGS, advance

STEP = 1e-3
LAUNCHES = 200
"""Most need 60, from anywhere in a box in which values differ by e^10."""
SHORT = 0.05
"""Shortfall of an optimiser below the top that SciPy finds, its epsilon 1e-3."""

Function = Callable[[np.ndarray], np.ndarray]


def optimised(function: Function, start: np.ndarray, low: np.ndarray, high: np.ndarray) -> LBFGS:
    """The optimiser at its end; values never fall, and ends never leave the box."""
    found = LBFGS(start, low, high, STEP, 1e-3)
    for _ in range(LAUNCHES):
        if found.done:
            break
        before = found.value
        points = found.points()
        advance([found], [function(points)])
        assert found.value >= before
        assert ((low <= found.x) & (found.x <= high)).all()
    return found


def counted(n: int, rng: np.random.Generator) -> Function:
    """lnL of counts under rates whose logs are mixed by a random matrix: concave, flat far out."""
    mix = np.eye(n) + rng.normal(0, 0.3 / np.sqrt(n), (n, n))
    counts = rng.gamma(0.3, 20.0, n)

    def lnl(x: np.ndarray) -> np.ndarray:
        logs = (x[..., None, :] * mix).sum(axis=-1)  # the same bits in any batch
        return np.asarray((counts * logs - np.exp(logs)).sum(axis=-1))

    return lnl


@pytest.mark.cases(2, 60)
def test_tops_are_scipy_s(case: int) -> None:
    rng = np.random.default_rng([case, 77])
    n = int(rng.integers(40, 90))
    low, high = rng.uniform(-6, -1, n), rng.uniform(0.5, 5, n)
    function = counted(n, rng)
    found = optimised(function, rng.uniform(low, high), low, high)
    best = minimize(
        lambda x: -float(function(x)), np.zeros(n), bounds=list(zip(low, high, strict=True)),
        options={"maxfun": 200_000, "maxiter": 5_000, "ftol": 1e-13},
    )  # fmt: skip
    assert -best.fun - SHORT < found.value
    assert found.value == float(function(found.x))


def test_a_flat_function_ends_where_it_began() -> None:
    start = np.full(50, 0.5)
    found = optimised(lambda x: np.zeros(len(x)), start, np.zeros(50), np.ones(50))
    assert found.converged
    np.testing.assert_array_equal(found.x, start)


def test_a_start_at_its_bounds_leaves_only_inwards() -> None:
    """Uphill is outwards along one half of the axes, and inwards along the other."""
    slope = np.where(np.arange(40) % 2, 1.0, -1.0)
    low, high = np.zeros(40), np.ones(40)
    found = optimised(lambda x: (x * slope).sum(axis=-1), np.zeros(40), low, high)
    np.testing.assert_allclose(found.x, np.where(slope > 0, 1.0, 0.0))


@pytest.mark.cases(3, 60)
def test_told_slopes_lead_to_scipy_s_tops(case: int) -> None:
    """Gradients of the same lnL, and what its counts alone would curve by."""
    rng = np.random.default_rng([case, 78])
    n = int(rng.integers(5, 90))
    mix = np.eye(n) + rng.normal(0, 0.3 / np.sqrt(n), (n, n))
    counts = rng.gamma(0.3, 20.0, n)

    def lnl(x: np.ndarray) -> np.ndarray:
        logs = (x[..., None, :] * mix).sum(axis=-1)
        return np.asarray((counts * logs - np.exp(logs)).sum(axis=-1))

    def slope(x: np.ndarray) -> np.ndarray:
        return np.asarray((counts - np.exp(mix @ x)) @ mix)

    low, high = rng.uniform(-6, -1, n), rng.uniform(0.5, 5, n)
    optimiser = GradientLBFGS(rng.uniform(low, high), low, high, STEP, 1e-3)
    for _ in range(LAUNCHES):
        if optimiser.done:
            break
        before = optimiser.value
        optimiser.update(lnl(optimiser.points()))
        assert optimiser.value >= before
        if optimiser.needs_gradient:
            optimiser.set_gradient(slope(optimiser.x), counts)
    best = minimize(
        lambda x: -float(lnl(x)), np.zeros(n), jac=lambda x: -slope(x),
        bounds=list(zip(low, high, strict=True)), options={"maxiter": 5_000, "ftol": 1e-13},
    )  # fmt: skip
    assert -best.fun - SHORT < optimiser.value
