"""The eigen system and the transition probabilities that come from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltree.models.eigen import (
    MIN_FREQUENCY,
    ModelArrays,
    decompose,
    p_matrices,
    random_reversible,
    rate_matrix,
)
from mltree.system.errors import ModelError

ONE = np.ones(1)
STATES = [2, 4, 20, 61]


def system(exchangeabilities: list[float], frequencies: list[float]) -> ModelArrays:
    return decompose(np.array(exchangeabilities), np.array(frequencies), ONE, ONE)


def p_matrix(arrays: ModelArrays, length: float) -> NDArray[np.float64]:
    (p,) = p_matrices(arrays, np.array([length]))[:, 0]
    return np.asarray(p, np.float64)


def q_of(arrays: ModelArrays) -> NDArray[np.float64]:
    return (arrays.right * arrays.eigenvalues) @ arrays.left


def test_jukes_cantor_closed_form() -> None:
    """Jukes & Cantor (1969): P(same) = 1/4 + 3/4 exp(-4t/3)."""
    arrays = system([1.0] * 6, [0.25] * 4)
    for t in (1e-6, 0.1, 1.0, 100.0):
        p = p_matrix(arrays, t)
        decay = np.exp(-4.0 * t / 3.0)
        assert np.diag(p) == pytest.approx(np.full(4, 0.25 + 0.75 * decay), rel=1e-13)
        off = p[~np.eye(4, dtype=bool)]
        assert off == pytest.approx(np.full(12, -0.25 * np.expm1(-4.0 * t / 3.0)), rel=1e-12)


def test_kimura_closed_form() -> None:
    """Kimura (1980) with kappa = 2.5, in units of expected substitutions (beta = 1/(kappa + 2))."""
    kappa, t = 2.5, 0.37
    p = p_matrix(system([1.0, kappa, 1.0, 1.0, kappa, 1.0], [0.25] * 4), t)
    beta = 1.0 / (kappa + 2.0)
    slow, fast = np.exp(-4.0 * beta * t), np.exp(-2.0 * (kappa + 1.0) * beta * t)
    assert p[0, 0] == pytest.approx(0.25 + 0.25 * slow + 0.5 * fast, rel=1e-13)
    assert p[0, 2] == pytest.approx(0.25 + 0.25 * slow - 0.5 * fast, rel=1e-13)
    assert p[0, [1, 3]] == pytest.approx(np.full(2, 0.25 - 0.25 * slow), rel=1e-13)


def test_felsenstein_81_closed_form() -> None:
    """Felsenstein (1981): P = e^-ut I + (1 - e^-ut) 1 pi, u = 1/(1 - sum of pi squared)."""
    pi = np.array([0.1, 0.2, 0.3, 0.4])
    t = 0.8
    decay = np.exp(-t / (1.0 - pi @ pi))
    expected = decay * np.eye(4) + (1.0 - decay) * pi
    assert p_matrix(system([1.0] * 6, list(pi)), t) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("states", STATES)
def test_matches_the_matrix_exponential(states: int) -> None:
    from scipy.linalg import expm

    arrays = random_reversible(states, np.random.default_rng(states), categories=3)
    p = p_matrices(arrays, np.array([0.3]))[0]
    for category, rate in enumerate(arrays.rates):
        assert p[category] == pytest.approx(expm(q_of(arrays) * 0.3 * rate), abs=1e-12)


@pytest.mark.parametrize("states", STATES)
def test_eigen_system_is_the_rate_matrix(states: int) -> None:
    rng = np.random.default_rng(states)
    exchangeabilities = np.exp(rng.normal(size=states * (states - 1) // 2))
    frequencies = rng.dirichlet(np.full(states, 5.0))
    arrays = decompose(exchangeabilities, frequencies, ONE, ONE)
    q = rate_matrix(exchangeabilities, frequencies)
    assert q_of(arrays) == pytest.approx(q, abs=1e-12)
    assert arrays.left @ arrays.right == pytest.approx(np.eye(states), abs=1e-12)
    assert arrays.frequencies @ np.diag(q) == pytest.approx(-1.0)
    assert arrays.eigenvalues[-1] == 0.0
    assert (np.diff(arrays.eigenvalues) >= 0.0).all()


@settings(max_examples=40)
@given(
    states=st.sampled_from(STATES),
    seed=st.integers(0, 2**32 - 1),
    s=st.floats(0.0, 10.0),
    t=st.floats(1e-6, 100.0),
)
def test_transition_probabilities_are_a_reversible_semigroup(
    states: int, seed: int, s: float, t: float
) -> None:
    arrays = random_reversible(states, np.random.default_rng(seed), categories=2)
    p_s, p_t, p_sum = p_matrices(arrays, np.array([s, t, s + t]))
    assert (p_t >= 0.0).all()
    assert p_t.sum(axis=2) == pytest.approx(np.ones((2, states)), abs=1e-12)
    flow = arrays.frequencies[:, None] * p_t
    assert flow == pytest.approx(flow.transpose(0, 2, 1), abs=1e-13)
    assert p_s @ p_t == pytest.approx(p_sum, abs=1e-12)


@pytest.mark.parametrize("states", STATES)
def test_the_derivative_at_zero_is_q(states: int) -> None:
    arrays = random_reversible(states, np.random.default_rng(1), categories=2)
    t = 1e-7
    p = p_matrices(arrays, np.array([t]))[0]
    for category, rate in enumerate(arrays.rates):
        slope = (p[category] - np.eye(states)) / t
        assert slope == pytest.approx(q_of(arrays) * rate, rel=1e-4, abs=1e-4)


def test_no_time_is_the_identity_and_much_is_the_equilibrium() -> None:
    arrays = random_reversible(20, np.random.default_rng(3), categories=1)
    assert (p_matrix(arrays, 0.0) == np.eye(20)).all()
    long = p_matrix(arrays, 1e4)
    assert long == pytest.approx(np.broadcast_to(arrays.frequencies, (20, 20)), rel=1e-10)


def test_shortest_branch_keeps_its_digits() -> None:
    """At t = 1e-6 an off-diagonal entry is Q t to within t², not a difference of near-ones."""
    exchangeabilities, pi = [1.2, 3.4, 0.7, 0.9, 4.1, 1.0], [0.31, 0.22, 0.19, 0.28]
    p = p_matrix(system(exchangeabilities, pi), 1e-6)
    q = rate_matrix(np.array(exchangeabilities), np.array(pi))
    off = ~np.eye(4, dtype=bool)
    second_order = q @ q * 0.5e-12
    assert p[off] == pytest.approx((q * 1e-6 + second_order)[off], rel=1e-11)


def test_a_category_of_rate_zero_never_changes() -> None:
    gtr = np.array([1.2, 3.4, 0.7, 0.9, 4.1, 1.0])
    pi = np.array([0.31, 0.22, 0.19, 0.28])
    arrays = decompose(gtr, pi, np.array([1.25, 0.0]), np.array([0.8, 0.2]))
    assert (p_matrices(arrays, np.array([0.5, 100.0]))[:, 1] == np.eye(4)).all()


def test_a_state_that_never_occurs_is_guarded() -> None:
    arrays = system([1.0, 2.0, 1.0, 1.0, 2.0, 1.0], [0.5, 0.5, 0.0, 0.0])
    assert arrays.frequencies.sum() == pytest.approx(1.0)
    assert arrays.frequencies.min() == pytest.approx(MIN_FREQUENCY, rel=1e-5)
    p = p_matrix(arrays, 0.2)
    assert p.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-10)
    assert p[0, 0] == pytest.approx(0.5 + 0.5 * np.exp(-0.4), rel=1e-4)


def test_extreme_exchangeabilities_stay_stochastic() -> None:
    arrays = system([1e-3, 1e3, 1e-3, 1e3, 1e-3, 1.0], [0.97, 0.01, 0.01, 0.01])
    p = p_matrices(arrays, np.array([1e-6, 1.0, 100.0]))
    assert p.sum(axis=3) == pytest.approx(np.ones((3, 1, 4)), abs=1e-11)


@pytest.mark.parametrize(
    ("exchangeabilities", "frequencies"),
    [([0.0] * 6, [0.25] * 4), ([-1.0] + [1.0] * 5, [0.25] * 4), ([np.nan] * 6, [0.25] * 4)],
)
def test_bad_values_are_refused(exchangeabilities: list[float], frequencies: list[float]) -> None:
    with pytest.raises(ModelError):
        system(exchangeabilities, frequencies)


def test_random_models_are_reproducible() -> None:
    a, b = (random_reversible(61, np.random.default_rng(7)) for _ in range(2))
    assert (a.right == b.right).all()
    assert a.weights @ a.rates == pytest.approx(1.0)
    assert (a.n_states, a.n_categories) == (61, 4)


def test_models_that_differ_in_rates_among_sites_share_an_eigen_system() -> None:
    matrix = np.array([1.2, 3.4, 0.7, 0.9, 4.1, 1.0]), np.array([0.31, 0.22, 0.19, 0.28])
    one = decompose(*matrix, np.ones(1), np.ones(1))
    other = decompose(*matrix, np.array([0.5, 1.5]), np.array([0.5, 0.5]))
    assert other.right is one.right
    assert not other.right.flags.writeable
    stacked = decompose(*(table[None] for table in matrix), np.ones((1, 1)), np.ones((1, 1)))
    np.testing.assert_array_equal(stacked.right[0], one.right)
    np.testing.assert_array_equal(stacked.eigenvalues[0], one.eigenvalues)
