"""Discrete gamma categories."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.models.rates import ALPHA_MAX, ALPHA_MIN, Gamma, GammaMode, gamma_rates
from mltree.system.errors import ModelError

MODES: tuple[GammaMode, ...] = ("mean", "median")


@pytest.mark.parametrize(
    ("alpha", "categories", "mode", "expected"),
    [
        (0.5, 4, "mean", [0.03339, 0.2519, 0.8203, 2.894]),
        (0.5, 4, "median", [0.02908, 0.2807, 0.9248, 2.765]),
        (
            0.05,
            8,
            "mean",
            [4.828e-19, 1.013e-12, 5.049e-9, 2.118e-6, 0.0002281, 0.01037, 0.2646, 7.725],
        ),
    ],
)
def test_rates_agree_with_iqtree(
    alpha: float, categories: int, mode: GammaMode, expected: list[float]
) -> None:
    """Table of relative rates (4 digits) in the report of IQ-TREE 2.0.7.

    iqtree2 -m JC+G4{0.5} -te TREE -blfix [--gamma-median]; the last with JC+G8{0.05}.
    """
    assert gamma_rates(alpha, categories, mode) == pytest.approx(expected, rel=3e-4)


@pytest.mark.parametrize("categories", [2, 4, 7])
def test_alpha_one_is_the_exponential_distribution(categories: int) -> None:
    """The mean of Exp(1) between its quantiles a and b is (1 + a)e^-a - (1 + b)e^-b, times K."""

    def above(p: float) -> float:
        return 0.0 if p >= 1.0 else (1.0 - math.log1p(-p)) * (1.0 - p)

    cuts = [above(k / categories) for k in range(categories + 1)]
    expected = [categories * (low - high) for low, high in pairwise(cuts)]
    assert gamma_rates(1.0, categories) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("categories", [4, 8])
def test_smallest_alpha_keeps_the_digits_of_its_lowest_rate(categories: int) -> None:
    """Series of the incomplete gamma near 0: q = (p Γ(a+1))^(1/a), P(a+1, q) = q^(a+1)/Γ(a+2)."""
    a = ALPHA_MIN
    q = (math.gamma(a + 1.0) / categories) ** (1.0 / a)
    expected = categories * q ** (a + 1.0) / math.gamma(a + 2.0)
    assert 0.0 < expected < 1e-30
    assert gamma_rates(a, categories)[0] == pytest.approx(expected, rel=1e-9)


def test_rates_underflow_to_zero() -> None:
    for mode in MODES:
        rates = gamma_rates(1e-3, 4, mode)
        assert rates[0] == 0.0
        assert np.isfinite(rates).all()
        assert rates.mean() == pytest.approx(1.0, rel=1e-14)


def test_large_alpha_tends_to_equal_rates() -> None:
    assert gamma_rates(1e8, 4) == pytest.approx(np.ones(4), abs=1e-3)
    assert np.ptp(gamma_rates(ALPHA_MAX, 4)) < 0.09


@given(
    alpha=st.floats(ALPHA_MIN, 1000.0),
    categories=st.integers(1, 16),
    mode=st.sampled_from(MODES),
)
def test_rates_ascend_and_have_mean_one(alpha: float, categories: int, mode: GammaMode) -> None:
    rates = gamma_rates(alpha, categories, mode)
    assert rates.shape == (categories,)
    assert (rates >= 0.0).all()
    assert (np.diff(rates) > 0.0).all()
    assert rates.mean() == pytest.approx(1.0, rel=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_many_shapes_at_once_are_the_same(mode: GammaMode) -> None:
    alpha = np.array([ALPHA_MIN, 0.4, 1.0, ALPHA_MAX])
    np.testing.assert_array_equal(
        gamma_rates(alpha, 4, mode), [gamma_rates(a, 4, mode) for a in alpha]
    )


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_alpha_must_be_positive(alpha: float) -> None:
    with pytest.raises(ModelError, match="alpha must be positive"):
        gamma_rates(alpha, 4)


def test_at_least_one_category() -> None:
    with pytest.raises(ModelError, match="at least one"):
        gamma_rates(1.0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_the_form_has_the_rates_of_its_alpha(mode: GammaMode) -> None:
    form = Gamma(5, 0.3, mode)
    rates, weights = form.categories
    np.testing.assert_array_equal(rates, gamma_rates(0.3, 5, mode))
    np.testing.assert_array_equal(weights, np.full(5, 0.2))
    at = form.at(np.log([[0.3], [2.0]]))
    np.testing.assert_allclose(at.rates, gamma_rates([0.3, 2.0], 5, mode), rtol=1e-12)


def test_log_alpha_is_the_variable_unless_it_is_fixed() -> None:
    (variable,) = Gamma(4, 0.5).variables()
    assert (variable.name, variable.value) == ("alpha", math.log(0.5))
    assert (variable.low, variable.high) == (math.log(ALPHA_MIN), math.log(ALPHA_MAX))
    assert Gamma(4, 0.5).with_vector(np.log([7.0])).alpha == pytest.approx(7.0)
    fixed = Gamma(4, 0.5, fixed=True)
    assert fixed.variables() == []
    assert fixed.with_vector(np.empty(0)) == fixed
    assert fixed.at(np.empty((3, 0))).rates.tolist() == [fixed.categories.rates.tolist()] * 3


def test_importing_the_package_does_not_import_scipy() -> None:
    code = "import sys, mltree.models; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
