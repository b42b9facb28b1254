"""Free rates: normalised, ordered, and moved by the optimiser."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.models.rates import RATE_RATIO_MIN, FreeRates, gamma_rates
from mltree.system.errors import ModelError


def random_form(case: int) -> FreeRates:
    rng = np.random.default_rng(case)
    categories = int(rng.integers(2, 11))
    rates = np.exp(rng.normal(0.0, 2.0, categories))
    return FreeRates.of(rates, rng.dirichlet(np.ones(categories)) + 1e-3)


@pytest.mark.cases(20, 2000)
def test_normalised_in_ascending_order(case: int) -> None:
    rates, weights = random_form(case).categories
    assert weights.sum() == pytest.approx(1.0, rel=1e-14)
    assert weights @ rates == pytest.approx(1.0, rel=1e-14)
    assert (np.diff(rates) >= 0.0).all()


def test_weights_go_with_their_rates() -> None:
    form = FreeRates.of(np.array([4.0, 1.0]), np.array([1.0, 3.0]))
    assert form.rates.tolist() == [1.0 / 1.75, 4.0 / 1.75]
    assert form.weights.tolist() == [0.75, 0.25]


@pytest.mark.cases(20, 2000)
def test_the_vector_says_the_ratios(case: int) -> None:
    form = random_form(case)
    variables = form.variables()
    categories = len(form.rates)
    assert len({variable.name for variable in variables}) == 2 * categories - 2
    ratios = np.exp([variable.value for variable in variables])
    np.testing.assert_allclose(ratios[: categories - 1], form.rates[:-1] / form.rates[-1])
    np.testing.assert_allclose(ratios[categories - 1 :], form.weights[:-1] / form.weights[-1])


@pytest.mark.cases(20, 2000)
def test_any_point_in_the_bounds_is_a_form_that_says_so(case: int) -> None:
    form = random_form(case)
    low, high = np.array([(v.low, v.high) for v in form.variables()]).T
    points = np.random.default_rng(case).uniform(low, high, (3, len(low)))
    for point, rates, weights in zip(points, *form.at(points), strict=True):
        moved = form.with_vector(point)
        np.testing.assert_allclose([v.value for v in moved.variables()], point, atol=1e-9)
        np.testing.assert_array_equal(moved.categories, [rates, weights])
        assert weights.sum() == pytest.approx(1.0)
        assert weights @ rates == pytest.approx(1.0)
        ordered = moved.ascending()
        assert (np.diff(ordered.rates) >= 0.0).all()
        assert ordered.weights @ ordered.rates == pytest.approx(1.0)


def test_fixed_ones_have_no_variables() -> None:
    form = FreeRates.of(np.array([0.5, 2.0]), np.array([0.5, 0.5]), fixed=True)
    assert form.variables() == []
    assert form.with_vector(np.empty(0)) is form
    assert form.at(np.empty((2, 0))).rates.tolist() == [form.rates.tolist()] * 2


def test_a_rate_of_zero_starts_within_reach_of_the_bounds() -> None:
    form = FreeRates.of(np.array([0.0, 2.0]), np.array([0.5, 0.5]))
    slowest, _ = form.variables()
    assert slowest.value < slowest.low == np.log(RATE_RATIO_MIN)


def test_starts_have_the_rates_of_a_gamma_distribution() -> None:
    form = FreeRates.from_gamma(4, 0.3)
    np.testing.assert_allclose(form.rates, gamma_rates(0.3, 4))
    np.testing.assert_allclose(form.weights, np.full(4, 0.25))


@pytest.mark.parametrize("categories", [1, 2, 4, 10])
def test_starts_with_few_fast_sites(categories: int) -> None:
    form = FreeRates.with_few_fast(categories, 100.0)
    assert (form.rates * form.weights).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(form.rates * form.weights, 1.0 / categories)
    span = 100.0 if categories > 1 else 1.0
    assert form.rates[-1] / form.rates[0] == pytest.approx(span)
    np.testing.assert_allclose(np.diff(np.log(form.rates)), np.log(span) / max(1, categories - 1))


@pytest.mark.parametrize(
    ("rates", "weights", "message"),
    [
        ([-1.0, 2.0], [0.5, 0.5], "must not be negative"),
        ([1.0, 2.0], [1.5, -0.5], "must not be negative"),
        ([0.0, 0.0], [0.5, 0.5], "are zero"),
        ([0.0, 1.0], [1.0, 0.0], "are zero"),
    ],
)
def test_what_is_no_distribution_is_refused(
    rates: list[float], weights: list[float], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        FreeRates.of(np.array(rates), np.array(weights))
