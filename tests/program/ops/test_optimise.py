"""The guarded Newton step: what it does to lengths, given sums, without any likelihood."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltree.program.contract import (
    GAIN_PER_PROMISE,
    LEAST_REACH,
    MOST_DECLINE,
    MOST_GROWTH,
    Control,
    GroupKind,
)
from mltree.program.ops.optimise import LengthOptimiser, solve_triplet
from mltree.program.planner import control_records, group_records

if TYPE_CHECKING:
    from conftest import Problem

    from mltree.likelihood.likelihood import TreeLikelihood
    from mltree.program.engine import Engine

Function = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]
"""lnL, first and second derivatives at f64 [n] lengths."""

BOUNDS = (1e-6, 100.0)


def optimise(
    function: Function,
    start: np.ndarray,
    epsilon: float = 1e-9,
    max_passes: int = 100,
    floor: float = -np.inf,
) -> tuple[LengthOptimiser, list[float]]:
    groups = group_records(
        GroupKind.DIAGONAL, np.array([0]), len(start), np.array([0]), np.array([1])
    )
    control = control_records(1, epsilon, max_passes, floor)
    optimiser = LengthOptimiser(start.copy(), control, *BOUNDS)
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
    assert optimiser.lengths[0] == pytest.approx(end)


def test_wrong_curvature_walks_uphill() -> None:
    def valley(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float((t**2).sum()), 2 * t, np.full_like(t, 2.0)

    optimiser, seen = optimise(valley, np.array([0.1]))
    assert optimiser.lengths[0] == BOUNDS[1]
    assert seen == sorted(seen)


def plateau(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """ln(1/4 + 3/4 e^(-40 t)) of equal states at both ends: flat to the last bit beyond t = 1."""
    decay = np.exp(-40.0 * t)
    likelihood = 0.25 + 0.75 * decay
    slope, curve = -30.0 * decay / likelihood, 1200.0 * decay / likelihood
    return float(np.log(likelihood).sum()), slope, curve - slope**2


def test_a_saturated_length_is_led_back_although_its_first_steps_gain_nothing() -> None:
    optimiser, seen = optimise(plateau, np.array([50.0]), epsilon=1e-3)
    assert seen[1] - seen[0] < 1e-12
    assert optimiser.control[0, Control.BEST] > -1e-3


def test_a_step_cut_short_on_the_way_up_is_no_end() -> None:
    """From 1e-6 a step leads to 0.1, where 1e-3 is gained of what there is at 5."""

    def far(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float((-0.001 * (t - 5.0) ** 2).sum()), -0.002 * (t - 5.0), np.full_like(t, -0.002)

    optimiser, seen = optimise(far, np.array([1e-6]), epsilon=2e-3)
    assert seen[1] - seen[0] < 1e-3
    assert optimiser.lengths[0] == pytest.approx(5.0)


def test_a_halved_step_counts_by_its_share() -> None:
    """Strongly coupled lengths: after many halvings every pass gains little, and much is left."""
    function = humps(0.3, 0.05, 1.2, coupling=20.0)
    optimiser, _ = optimise(function, np.array([5.0, 5.0, 5.0]), epsilon=1e-3, max_passes=2000)
    assert optimiser.control[0, Control.BEST] > -0.5


def test_smoothing_from_anywhere_ends_where_it_ends_from_a_good_start(
    open_native: Callable[..., Engine], likelihood: Callable[..., TreeLikelihood],
    reference: Callable[..., TreeLikelihood], make_problem: Callable[..., Problem],
) -> None:  # fmt: skip
    problem = make_problem(tips=6, patterns=60, seed=4, alpha=30.0)
    device, rng = likelihood(open_native, problem), np.random.default_rng(3)
    tree = problem.tree.copy()
    tree.lengths[:] = 0.1
    edges = tree.n_edges
    top = device.smooth([tree], [problem.case], 1e-4)[0]
    one_far, one_near = tree.lengths.copy(), tree.lengths.copy()
    one_far[3], one_near[5] = 50.0, 1e-6
    mixed = np.exp(rng.uniform(np.log(1e-6), np.log(100.0), edges))
    for lengths in (
        one_far,
        one_near,
        mixed,
        *(np.full(edges, t) for t in (1e-6, 1.0, 50.0, 100.0)),
    ):
        for judge in (device, reference(problem)):
            start = tree.copy()
            start.lengths[:] = lengths
            assert judge.smooth([start], [problem.case], 1e-4)[0] == pytest.approx(top, abs=0.01)


def test_every_pass_allowed_and_none_more() -> None:
    start = np.array([3.0, 3.0])
    optimiser, seen = optimise(humps(0.3, 0.1, coupling=5.0), start, max_passes=3)
    assert len(seen) == 3
    assert optimiser.control[0, Control.PASSES] == 3
    optimiser, seen = optimise(humps(0.3, 0.1), start, max_passes=1)
    np.testing.assert_array_equal(optimiser.lengths, start)


@pytest.mark.parametrize("floor", [-1.0, 0.5, 4.0, -np.inf])
def test_what_cannot_reach_its_floor_is_left_early(floor: float) -> None:
    """A maximum of 0, which takes many steps, each of which promises some of what there is."""
    function, start = humps(0.3, 0.1, coupling=1.5), np.array([3.0, 3.0])
    _, whole = optimise(function, start)
    optimiser, seen = optimise(function, start, floor=floor)
    if floor > 0:
        assert 2 < len(seen) < len(whole)
        assert GAIN_PER_PROMISE * -seen[-2] > floor  # what there was to gain, a step before
    else:
        assert seen == whole
        assert optimiser.control[0, Control.BEST] == pytest.approx(0.0, abs=1e-6)


def test_lengths_that_hang_together_take_few_passes() -> None:
    """Two sums of lengths tell nearly all: one length at a time gains a tenth of what is left."""

    def function(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        off = t - np.array([0.3, 0.2])
        hessian = np.array([[-10.0, -9.0], [-9.0, -10.0]])
        return float(off @ hessian @ off / 2), hessian @ off, np.diag(hessian)

    for start, most in ([0.35, 0.25], 6), ([0.35, 0.14], 12):
        optimiser, seen = optimise(function, np.array(start), epsilon=1e-6)
        assert optimiser.control[0, Control.BEST] > -1e-5
        assert len(seen) <= most


def test_steps_that_grow_are_not_mixed() -> None:
    """Up to t = 1 Newton doubles a short length of a count: every step is longer than the last."""

    def count(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float((100 * np.log(t) - 100 * t).sum()), 100 / t - 100, -100 / t**2

    optimiser, seen = optimise(count, np.array([0.01]), epsilon=1e-6)
    assert seen[:7] == sorted(seen[:7])
    assert optimiser.lengths[0] == pytest.approx(1.0, rel=1e-3)


def test_a_long_branch_that_had_few_changes_takes_one_step_down() -> None:
    """n log t - m t: Newton's own step would lead below 0."""

    def count(t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float((5 * np.log(t) - 500 * t).sum()), 5 / t - 500, -5 / t**2

    optimiser, seen = optimise(count, np.array([0.05]), epsilon=1e-6)
    assert optimiser.lengths[0] == pytest.approx(0.01)
    assert len(seen) == 2


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
    step = solve_triplet(gradient, packed)
    assert step is not None
    np.testing.assert_allclose(matrix @ step, gradient, atol=1e-8)
    valley = solve_triplet(gradient, -packed)
    assert valley is not None
    assert np.isinf(valley).all()
    beyond = np.append(packed[:3], 3 * np.sqrt(packed[[0, 0, 1]] * packed[[1, 2, 2]]))
    assert solve_triplet(gradient, beyond) is None
    saddle = packed * np.array([-1, 1, 1, 1, 1, 1])
    step = solve_triplet(gradient, saddle)
    assert step is not None
    assert step[0] == np.inf
    np.testing.assert_allclose(matrix[1:, 1:] @ step[1:], gradient[1:], atol=1e-8)


def best_in_box(slope: np.ndarray, hessian: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Largest slope x + x H x / 2 between bounds, by every choice of lengths that stand on one."""
    best = -np.inf
    for sides in product((0, 1, None), repeat=3):
        free = np.array([side is None for side in sides])
        x = np.array([0.0 if n is None else (low, high)[n][j] for j, n in enumerate(sides)])
        if free.any():
            right = -(slope + hessian @ x)[free]
            x[free] = np.linalg.solve(hessian[np.ix_(free, free)], right)
        if ((x >= low - 1e-12) & (x <= high + 1e-12)).all():
            best = max(best, slope @ x + x @ hessian @ x / 2)
    return float(best)


@settings(derandomize=True, max_examples=300)
@given(seed=st.integers(0, 10**6))
def test_a_triplets_step_leads_to_the_top_within_reach(seed: int) -> None:
    """However a joint step is cut short: the other lengths follow, and no pass is lost."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 3))
    hessian = -(root @ root.T + np.eye(3)) * 10.0 ** rng.uniform(1, 4)
    lengths, top = 10.0 ** rng.uniform(-6, 0, (2, 3))
    top[rng.random(3) < 0.4] *= -1.0
    slope = -hessian @ (top - lengths)
    packed = hessian[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    groups = group_records(GroupKind.TRIPLET, np.array([0]), 3, np.array([0]), np.array([1]))
    optimiser = LengthOptimiser(lengths.copy(), control_records(1, 1e-12, 50), *BOUNDS)
    optimiser.step(groups, np.concatenate([[-1.0], slope, packed]))
    change = optimiser.target - lengths
    low = np.maximum(lengths / MOST_DECLINE, BOUNDS[0]) - lengths
    high = MOST_GROWTH * lengths + LEAST_REACH - lengths
    assert ((change >= low - 1e-12) & (change <= high + 1e-12)).all()
    best = best_in_box(slope, hessian, low, high)
    assert slope @ change + change @ hessian @ change / 2 >= 0.9 * best - 1e-9


@settings(derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_rounding_leads_no_joint_step_anywhere(seed: int) -> None:
    """Two lengths that count as one share their step; a third that counts for nothing bends none.

    So it is where all that a branch leads to is gaps: the curvature along it is rounding, of
    either sign, and that of the two others but one number.
    """
    rng = np.random.default_rng(seed)
    size, slope = 10.0 ** rng.uniform(-6.0, 6.0, 2)
    noise = 1e-15 * rng.normal(size=6)
    hessian = np.array([-1.0, -1.0, 0.0, -1.0, 0.0, 0.0])
    step = solve_triplet(np.array([slope, slope, 0.0]), size * (hessian + noise))
    assert step is not None
    np.testing.assert_allclose(step[:2], -slope / size / 2, rtol=1e-3)


def test_a_hessian_without_digits_is_no_error() -> None:
    """Singular to the last bit, yet its determinant may round below 0."""
    for size in (1e-300, 1e-8, 1.0):
        for noise in np.random.default_rng(3).normal(size=(200, 6)) * 1e-16:
            solve_triplet(np.ones(3), -size * (1 + noise))
    groups = group_records(GroupKind.TRIPLET, np.array([0]), 3, np.array([0]), np.array([1]))
    optimiser = LengthOptimiser(np.full(3, 0.1), control_records(1, 1e-9, 50), *BOUNDS)
    hessian = [-1e-200, -1e-200, -1e-200, 0.0, 0.0, 0.0]
    optimiser.step(groups, np.array([-1.0, 0.5, -0.5, 0.5, *hessian]))
    assert np.all((optimiser.lengths >= BOUNDS[0]) & (optimiser.lengths <= BOUNDS[1]))
    assert optimiser.lengths[1] < 0.1 < optimiser.lengths[0]
