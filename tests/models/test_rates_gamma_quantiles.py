"""Quantiles of the gamma distribution, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammainc, gammaincinv

from mltree.models.rates import ALPHA_MAX, ALPHA_MIN, LARGEST_SHAPE, quantiles


@pytest.mark.cases(10, 400)
def test_quantiles_are_scipys(case: int) -> None:
    """Of 50 shapes that a search may come to, spread evenly over their logarithms.

    The lowest are as p^(1/a): both sides round log(p)/a, which may be 200.
    """
    rng = np.random.default_rng(case)
    shape = np.exp(rng.uniform(np.log(ALPHA_MIN), np.log(ALPHA_MAX), (50, 1)))
    categories = int(rng.integers(2, 65))
    p = np.arange(1, categories) / categories
    ratio, below = quantiles(shape, p)
    expected = gammaincinv(shape, p)
    rtol = 1e-13 + 5e-16 * np.log(categories) / shape
    assert (np.abs(ratio * shape - expected) <= rtol * expected).all()
    above = gammainc(shape + 1.0, expected)
    assert (np.abs(below - above) <= rtol * above).all()


@pytest.mark.parametrize("shape", [1e-3, 9.9999, 10.0, 10.0001, 1e3, 1e5, LARGEST_SHAPE])
def test_quantiles_of_unusual_shapes_and_tails(shape: float) -> None:
    p = np.array([1e-3, 0.1, 0.5, 0.99, 0.999])
    ratio, below = quantiles(np.array(shape), p)
    expected = gammaincinv(shape, p)
    np.testing.assert_allclose(ratio * shape, expected, rtol=1e-12)
    np.testing.assert_allclose(below, gammainc(shape + 1.0, expected), rtol=1e-12, atol=1e-300)


def test_an_element_has_the_bits_that_it_has_alone() -> None:
    shape, p = np.array([0.02, 0.5, 3.0, 100.0, 1e5])[:, None], np.array([0.1, 0.5, 0.99])
    together = quantiles(shape, p)
    for place in np.ndindex(5, 3):
        alone = quantiles(shape[place[0]], p[place[1] : place[1] + 1])
        assert [x[0] for x in alone] == [x[place] for x in together]


def test_the_smallest_shapes_are_zero_but_for_the_highest_class() -> None:
    ratio, below = quantiles(np.array([1e-300]), np.array([0.25, 0.75]))
    assert not ratio.any()
    assert not below.any()
