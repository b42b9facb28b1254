"""The trust region alone, on functions with known maxima."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltree.fit.optimisers import FLAT_CURVATURE, MAX_STEP, Quadratic, Stencil, TrustRegion, advance

Function = Callable[[np.ndarray], np.ndarray]
"""f64 [n] values at f64 [n, variables]."""

STEP = 1e-3
EPSILON = 1e-6


def optimiser(
    function: Function,
    start: list[float],
    low: float | list[float] = -50.0,
    high: float | list[float] = 50.0,
    epsilon: float = EPSILON,
    launches: int = 100,
) -> tuple[TrustRegion, int]:
    """An optimiser at its end, and how many launches it took; its value never falls."""
    n = len(start)
    bounds = (np.broadcast_to(np.asarray(bound, float), n) for bound in (low, high))
    found = TrustRegion(np.array(start), *bounds, STEP, epsilon)
    used, last = 0, -np.inf
    while not found.done and used < launches:
        advance([found], [function(found.points())])
        used += 1
        assert found.value >= last
        assert found.value == function(found.x[None])[0]
        last = found.value
    return found, used


def bowl(*at: float, curvature: float = 1.0) -> Function:
    return lambda x: -curvature * ((x - np.array(at)) ** 2).sum(axis=1)


def banana(x: np.ndarray) -> np.ndarray:
    """Rosenbrock's valley, upside down: top 0 at (1, 1)."""
    return -((1 - x[:, 0]) ** 2) - 100 * (x[:, 1] - x[:, 0] ** 2) ** 2


def test_a_bowl_within_the_first_radius_takes_one_step() -> None:
    found, launches = optimiser(bowl(0.4, -0.3, 0.2), [0.0, 0.0, 0.0])
    np.testing.assert_allclose(found.x, [0.4, -0.3, 0.2], atol=1e-6)
    assert found.converged
    assert launches == 2


def test_a_far_bowl_is_reached_in_growing_steps() -> None:
    found, launches = optimiser(bowl(20.0, -9.0), [0.0, 0.0])
    np.testing.assert_allclose(found.x, [20.0, -9.0], atol=1e-6)
    assert found.converged
    assert launches <= 3 + 20 / MAX_STEP


@pytest.mark.parametrize("start", [[-1.2, 1.0], [5.0, -5.0], [-3.0, 9.0]])
def test_a_curved_ridge_is_followed_to_its_top(start: list[float]) -> None:
    found, launches = optimiser(banana, start)
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-2)
    assert found.value > -1e-5
    assert found.converged
    assert launches < 60


def test_a_step_that_fails_shrinks_the_region_and_is_no_end() -> None:
    """A cliff behind the top: the quadratic at the start promises what only short steps keep."""

    def cliff(x: np.ndarray) -> np.ndarray:
        return np.where(x[:, 0] < 0.001, x[:, 0], -1e6) - (x[:, 1] - 3.0) ** 2

    def steep(x: np.ndarray) -> np.ndarray:
        return 10 * x[:, 0] - np.exp(np.minimum(40 * x[:, 0], 600)) - (x[:, 1] - 3.0) ** 2

    found, _ = optimiser(steep, [-10.0, 0.0])
    assert found.converged
    np.testing.assert_allclose(found.x, [np.log(10 / 40) / 40, 3.0], atol=1e-3)
    short, _ = optimiser(cliff, [-10.0, 0.0])
    assert short.value > -0.1
    assert not short.converged  # 0.001 from an edge no difference tells how high it goes


def test_bounds_hold_and_hold_back_no_other() -> None:
    """Of a coupled pair one would go past its bound: the other goes where that leaves it best."""

    def coupled(x: np.ndarray) -> np.ndarray:
        return -((x[:, 0] - 5) ** 2) - (x[:, 0] + x[:, 1] - 1) ** 2

    found, _ = optimiser(coupled, [0.0, 0.0], high=[2.0, 50.0])
    np.testing.assert_allclose(found.x, [2.0, -1.0], atol=1e-6)
    assert found.converged


def test_a_corner_is_a_maximum() -> None:
    found, _ = optimiser(lambda x: x.sum(axis=1), [0.0, 0.0, 0.0], low=-1.0, high=1.0)
    np.testing.assert_array_equal(found.x, [1.0, 1.0, 1.0])
    assert found.converged


def test_a_start_outside_is_moved_to_its_bound() -> None:
    found, _ = optimiser(bowl(0.0), [70.0], low=3.0, high=60.0)
    assert found.x == [3.0]
    assert found.converged


def test_a_saddle_is_left_even_where_nothing_slopes() -> None:
    def saddle(x: np.ndarray) -> np.ndarray:
        return -(x[:, 0] ** 2) + 4 * x[:, 1] ** 2 - x[:, 1] ** 4

    found, _ = optimiser(saddle, [0.5, 0.0])
    np.testing.assert_allclose(np.abs(found.x), [0.0, np.sqrt(2)], atol=1e-3)
    assert found.value == pytest.approx(4.0)
    assert found.converged


def test_a_long_tail_is_walked_to_its_end() -> None:
    """An exponential tail promises little at every step, and never a quadratic's top."""
    found, _ = optimiser(lambda x: -np.exp(-x[:, 0]), [0.0], high=40.0, epsilon=1e-3)
    assert found.converged
    assert found.value > -2e-3


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_a_curvature_that_is_off_costs_no_height(seed: int) -> None:
    """One that is too steep promises too little: where it may be, all of it is measured."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    axes, _ = np.linalg.qr(rng.normal(size=(n, n)))
    bends = np.exp(rng.uniform(-3.0, 5.0, n))
    top = rng.uniform(-0.1, 0.1, n)

    def ridge(x: np.ndarray) -> np.ndarray:
        along = (x - top) @ axes
        return -(bends * along**2 + 0.3 * np.abs(along) ** 3).sum(axis=1)

    wrong = axes @ np.diag(2.0 * bends * rng.uniform(0.98, 1.02, n)) @ axes.T
    found = TrustRegion(np.zeros(n), np.full(n, -9.0), np.full(n, 9.0), STEP, 1e-3, wrong)
    while not found.done:
        advance([found], [ridge(found.points())])
    assert found.converged
    assert found.value > -2e-3


def test_around_a_short_step_only_the_gradient_is_measured() -> None:
    """Of 6 variables 7 points instead of 28, and no end of a shorter step beside them."""
    at = np.linspace(-0.1, 0.1, 6)
    found = TrustRegion(np.zeros(6), np.full(6, -9.0), np.full(6, 9.0), STEP, EPSILON)
    counts = []
    while not found.done:
        points = found.points()
        counts.append(len(points))
        advance([found], [bowl(*at)(points)])
    assert counts == [1 + 12 + 15, 1 + 6]
    assert found.converged


def test_a_short_step_that_leads_down_has_the_curvature_measured() -> None:
    """It is given as a hundredth of what it is, so that the step is ten times too long."""
    found = TrustRegion(
        np.zeros(3), np.full(3, -9.0), np.full(3, 9.0), STEP, EPSILON, 0.02 * np.eye(3)
    )
    counts, last = [], -np.inf
    while not found.done:
        points = found.points()
        counts.append(len(points))
        advance([found], [bowl(0.002, -0.001, 0.001)(points)])
        assert found.value >= last
        last = found.value
    assert counts[0] == 1 + 3
    assert 1 + 6 + 3 in counts
    np.testing.assert_allclose(found.x, [0.002, -0.001, 0.001], atol=1e-5)
    assert found.converged


@pytest.mark.parametrize("seed", range(20))
def test_the_curvature_learns_from_how_the_gradient_changes(seed: int) -> None:
    """Of a quadratic it is right along the last step, and still curves down everywhere."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    root = rng.normal(size=(n, n))
    bends, top = root @ root.T + 0.5 * np.eye(n), rng.uniform(-0.06, 0.06, n)

    def hill(x: np.ndarray) -> np.ndarray:
        return -np.einsum("ni,ij,nj->n", x - top, bends, x - top) / 2

    wrong = bends * np.exp(rng.normal(scale=0.05, size=(n, 1)))
    wrong = (wrong + wrong.T) / 2
    found = TrustRegion(np.zeros(n), np.full(n, -9.0), np.full(n, 9.0), STEP, 1e-9, wrong)
    advance([found], [hill(found.points())])
    assert len(found.points()) == 1 + n
    step = found.points()[0] - found.x
    advance([found], [hill(found.points())])
    assert found.curvature is not None
    np.testing.assert_allclose(found.curvature @ step, bends @ step, rtol=0.01, atol=1e-3)
    assert np.linalg.eigvalsh(found.curvature).min() > 0.0


def test_nothing_to_vary_is_an_end() -> None:
    found, launches = optimiser(lambda x: np.full(len(x), 7.0), [])
    assert (launches, found.value, found.converged) == (1, 7.0, True)


def test_too_few_launches_are_no_convergence() -> None:
    found, _ = optimiser(banana, [-1.2, 1.0], launches=3)
    assert not found.done
    assert not found.converged


def test_the_stencil_knows_a_quadratic() -> None:
    rng = np.random.default_rng(5)
    root, gradient = rng.normal(size=(4, 4)), rng.normal(size=4)
    curvature = root @ root.T
    stencil = Stencil.of(4, 0.5)
    x = stencil.offsets
    found = stencil.quadratic(3.0 + x @ gradient - np.einsum("ni,ij,nj->n", x, curvature, x) / 2)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-12)
    np.testing.assert_allclose(found.curvature, curvature, atol=1e-12)
    x = stencil.up
    up = 3.0 + x @ gradient - np.einsum("ni,ij,nj->n", x, curvature, x) / 2
    np.testing.assert_allclose(stencil.slope(up, np.diag(curvature)), gradient, atol=1e-12)


def test_what_is_concave_stays_and_what_is_not_becomes_so() -> None:
    rng = np.random.default_rng(6)
    turn, _ = np.linalg.qr(rng.normal(size=(2, 3, 4, 4)))
    values = np.array([[[1, 2, 3, 4], [-2, 1, 2, 3], [0, 0, 1, 2]]] * 2)
    bent = Quadratic(
        rng.normal(size=(2, 3, 4)), turn * values[..., None, :] @ turn.swapaxes(-1, -2)
    )
    low, high = np.full((3, 4), -1.0), np.full((3, 4), 1.0)
    found = bent.concave(low, high)
    np.testing.assert_array_equal(found.curvature[:, 0], bent.curvature[:, 0])
    np.testing.assert_array_equal(found.gradient[:, 0], bent.gradient[:, 0])
    wanted = turn * np.maximum(values, FLAT_CURVATURE)[..., None, :] @ turn.swapaxes(-1, -2)
    np.testing.assert_allclose(found.curvature, wanted, atol=1e-12)
    np.testing.assert_allclose(found.gradient, bent.gradient, atol=1e-12)


@settings(derandomize=True)
@given(n=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_no_point_of_the_box_beats_the_step(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) * np.exp(rng.normal(scale=2, size=n))
    quadratic = Quadratic(rng.normal(scale=5, size=n), root @ root.T + 1e-2 * np.eye(n))
    low, high = -rng.exponential(size=n), rng.exponential(size=n)
    low[rng.random(n) < 0.2] = 0.0
    step = quadratic.concave(low, high).summit(low, high, np.inf)
    assert np.all((low <= step) & (step <= high))
    # A point on the way from the step to any corner of the box brings no more (it is convex).
    held = ((low >= 0) & (quadratic.gradient <= 0)) | ((high <= 0) & (quadratic.gradient >= 0))
    slope = np.where(held, 0.0, quadratic.gradient - quadratic.curvature @ step)
    ascent = np.where(slope > 0, slope * (high - step), slope * (low - step))
    assert ascent.max() < 1e-7 * (1 + np.abs(quadratic.gradient).max())
    assert quadratic.gain(step) >= 0
