"""The guarded Newton step: what it does to lengths, given sums, without any likelihood."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltree.contract import Control, GroupKind
from mltree.likelihood.optimise import LengthOptimiser, solve_tripod
from mltree.likelihood.planner import control_records, group_records

Function = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]
"""lnL, first and second derivatives at f64 [n] lengths."""

BOUNDS = (1e-6, 100.0)


def optimise(
    function: Function, start: np.ndarray, epsilon: float = 1e-9, max_passes: int = 100
) -> tuple[LengthOptimiser, list[float]]:
    groups = group_records(
        GroupKind.DIAGONAL, np.array([0]), len(start), np.array([0]), np.array([1])
    )
    optimiser = LengthOptimiser(start.copy(), control_records(1, epsilon, max_passes), *BOUNDS)
    seen = []
    while optimiser.active:
        lnl, slope, curve = function(optimiser.lengths)
        seen.append(lnl)
        optimiser.step(groups, np.concatenate([[lnl], np.column_stack([slope, curve]).ravel()]))
        assert len(seen) <= max_passes
    return optimiser, seen


def humps(*at: float, coupling: float = 0.0) -> Function:
    """-sum (t - at)^2 - coupling (sum (t - at))^2: one maximum, strongly coupled if asked."""
    top = np.array(at)

    def function(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        off = t - top
        lnl = -float((off**2).sum() + coupling * off.sum() ** 2)
        slope = -2 * off - 2 * coupling * off.sum()
        return lnl, slope, np.full_like(t, -2 - 2 * coupling)

    return function


def test_a_lone_hump_takes_one_step() -> None:
    optimiser, seen = optimise(humps(0.3), np.array([0.2]))
    np.testing.assert_allclose(optimiser.lengths, [0.3])
    assert len(seen) <= 4


@settings(derandomize=True)
@given(
    start=st.lists(st.floats(1e-6, 5.0), min_size=3, max_size=3),
    coupling=st.sampled_from([0.0, 0.5, 3.0, 20.0]),
)
def test_never_ends_worse_and_finds_the_top(start: list[float], coupling: float) -> None:
    """Simultaneous steps overshoot where lengths are coupled: the guard halves them."""
    function = humps(0.3, 0.05, 1.2, coupling=coupling)
    begin = np.array(start)
    optimiser, seen = optimise(function, begin, epsilon=1e-12, max_passes=2000)
    best = optimiser.control[0, Control.BEST]
    assert best == max(seen) >= function(begin)[0]
    assert function(optimiser.lengths)[0] == best
    if coupling <= 0.5:
        np.testing.assert_allclose(optimiser.lengths, [0.3, 0.05, 1.2], atol=1e-3)


@pytest.mark.parametrize(("top", "end"), [(-1.0, 1e-6), (1e4, 100.0)])
def test_an_optimum_outside_ends_on_the_bound(top: float, end: float) -> None:
    optimiser, _ = optimise(humps(top), np.array([0.1]))
    assert optimiser.lengths[0] == end


def test_wrong_curvature_walks_uphill() -> None:
    def valley(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float((t**2).sum()), 2 * t, np.full_like(t, 2.0)

    optimiser, seen = optimise(valley, np.array([0.1]))
    assert optimiser.lengths[0] == BOUNDS[1]
    assert seen == sorted(seen)


def test_every_pass_allowed_and_none_more() -> None:
    start = np.array([3.0, 3.0])
    optimiser, seen = optimise(humps(0.3, 0.1, coupling=5.0), start, max_passes=3)
    assert len(seen) == 3
    assert optimiser.control[0, Control.PASSES] == 3
    optimiser, seen = optimise(humps(0.3, 0.1), start, max_passes=1)
    np.testing.assert_array_equal(optimiser.lengths, start)


def test_groups_rest_by_themselves() -> None:
    groups = group_records(
        GroupKind.DIAGONAL, np.array([0, 1]), 1, np.array([0, 1]), np.array([2, 4])
    )
    control = control_records(2, 1e-9, 50)
    control[1, Control.ACTIVE] = 0
    optimiser = LengthOptimiser(np.array([0.2, 0.2]), control, *BOUNDS)
    optimiser.step(groups, np.array([-1.0, -1.0, 0.5, -2.0, 0.5, -2.0]))
    assert optimiser.lengths[0] == pytest.approx(0.45)
    assert optimiser.lengths[1] == 0.2
    assert optimiser.active


@settings(derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_the_joint_step_solves_three_equations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root, gradient = rng.normal(size=(3, 3)), rng.normal(size=3)
    matrix = -(root @ root.T) - 0.1 * np.eye(3)
    packed = matrix[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    step = solve_tripod(gradient, packed)
    assert step is not None
    np.testing.assert_allclose(matrix @ step, gradient, atol=1e-8)
    assert solve_tripod(gradient, -packed) is None
    saddle = packed * np.array([-1, 1, 1, 1, 1, 1])
    assert solve_tripod(gradient, saddle) is None


def test_a_hessian_without_digits_is_no_error() -> None:
    """Singular to the last bit, yet its determinant may round below 0."""
    for size in (1e-300, 1e-8, 1.0):
        for noise in np.random.default_rng(3).normal(size=(200, 6)) * 1e-16:
            solve_tripod(np.ones(3), -size * (1 + noise))
    groups = group_records(GroupKind.TRIPOD, np.array([0]), 3, np.array([0]), np.array([1]))
    optimiser = LengthOptimiser(np.full(3, 0.1), control_records(1, 1e-9, 50), *BOUNDS)
    hessian = [-1e-200, -1e-200, -1e-200, 0.0, 0.0, 0.0]
    optimiser.step(groups, np.array([-1.0, 0.5, -0.5, 0.5, *hessian]))
    assert np.all((optimiser.lengths >= BOUNDS[0]) & (optimiser.lengths <= BOUNDS[1]))
    assert optimiser.lengths[1] < 0.1 < optimiser.lengths[0]
