"""Splines through the lnL of patterns, against SciPy's, and block by block."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from mltree.models.rate_profiles import BLOCK, PROFILED, Curves, Expansion, RateProfiles, Splines
from mltree.models.rates import Categories
from mltree.system.process import VARIABLE

Float = np.ndarray


def lnls_of(rng: np.random.Generator, patterns: int, rates: Float = PROFILED) -> Float:
    """f64[J, L]: of patterns of 20 branches, of which some changed."""
    changed = rng.integers(0, 21, patterns)
    length = rng.uniform(0.02, 0.3, patterns)
    stays = 0.25 + 0.75 * np.exp(-4.0 / 3.0 * np.multiply.outer(rates, length))
    return (20 - changed) * np.log(stays) + changed * np.log((1.0 - stays) / 3.0)


def categories_of(rng: np.random.Generator, least: float) -> Categories:
    """A few rates from the least on, and perhaps rate 0."""
    rates = np.exp(rng.uniform(np.log(least), np.log(200.0), int(rng.integers(1, 6))))
    weights = rng.dirichlet(np.ones(len(rates) + 1))
    return Categories(np.append(rates, rng.choice([0.0, 1.0])), weights)


@pytest.mark.cases(5, 200)
def test_splines_and_their_derivatives_are_scipys(case: int) -> None:
    rng = np.random.default_rng([case, 77])
    lnls, rates = lnls_of(rng, 50), PROFILED[1:]
    at = np.exp(rng.uniform(np.log(rates[0]), np.log(rates[-1]), 7))
    own = Splines(PROFILED, lnls)
    found = own.along(own.row_weights(at), slice(50))
    theirs = CubicSpline(np.log(rates), lnls[1:] - lnls.max(axis=0), bc_type="natural")
    for order, values in enumerate(found):
        np.testing.assert_allclose(values, theirs(np.log(at), order), rtol=1e-9, atol=1e-9)


def told(profiles: RateProfiles, categories: Categories) -> Expansion:
    found = profiles.expansion(categories)
    assert found.lnl == profiles.lnl(categories)
    return found


@pytest.mark.cases(3, 100)
def test_the_same_bits_on_any_number_of_threads(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([case, 78])
    patterns = int(rng.integers(4 * BLOCK, 6 * BLOCK))
    curves = Curves(PROFILED, lnls_of(rng, patterns), rng.integers(0, 4, patterns).astype(float))
    categories = categories_of(rng, 1e-5)
    monkeypatch.setenv(VARIABLE, "1")
    alone = told(RateProfiles(curves), categories)
    for threads in "2", "3", "8":
        monkeypatch.setenv(VARIABLE, threads)
        for one, other in zip(told(RateProfiles(curves), categories), alone, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.cases(3, 100)
def test_blocks_add_up_to_what_patterns_are_one_by_one(case: int) -> None:
    rng = np.random.default_rng([case, 79])
    patterns = int(rng.integers(2 * BLOCK, 3 * BLOCK))
    lnls, counts = lnls_of(rng, patterns), rng.integers(1, 4, patterns).astype(float)
    rates, weights = categories = categories_of(rng, PROFILED[1])
    found = told(RateProfiles(Curves(PROFILED, lnls, counts)), categories)
    spline = CubicSpline(np.log(PROFILED[1:]), lnls[1:], bc_type="natural")
    k, end = len(rates), np.log(PROFILED[-1])
    places = np.log(np.maximum(rates, PROFILED[1]))
    logs, slopes, bends = (spline(np.minimum(places, end), order) for order in range(3))
    logs += np.maximum(places - end, 0.0)[:, None] * slopes
    bends[places > end] = 0.0
    logs[rates == 0], slopes[rates == 0], bends[rates == 0] = lnls[0], 0.0, 0.0
    highest = logs.max(axis=0)
    shares = weights[:, None] * np.exp(logs - highest)
    q = shares / shares.sum(axis=0)
    sides = np.concatenate([q, q * slopes])
    more = np.zeros((2 * k, 2 * k))
    more[:k, :k], more[k:, k:] = np.diag(q @ counts), np.diag((q * (slopes**2 + bends)) @ counts)
    more[:k, k:] = more[k:, :k] = np.diag((q * slopes) @ counts)
    size = counts.sum()
    assert found.lnl == pytest.approx(counts @ (highest + np.log(shares.sum(axis=0))), rel=1e-11)
    np.testing.assert_allclose(found.gradient, sides @ counts, rtol=1e-9, atol=1e-9 * size)
    hessian = more - (sides * counts) @ sides.T
    np.testing.assert_allclose(found.hessian, hessian, rtol=1e-9, atol=1e-9 * size)


def test_a_sketch_has_the_sites_of_all_in_few_patterns() -> None:
    rng = np.random.default_rng(80)
    lnls = lnls_of(rng, 40_000)
    counts = np.ones(40_000)
    counts[7] = 20_000.0
    profiles = RateProfiles(Curves(PROFILED, lnls, counts))
    assert profiles.sketch is not None
    assert profiles.sketch.sketch is None
    one = Categories(np.ones(1), np.ones(1))
    lnl, rough = profiles.lnl(one), profiles.sketch.lnl(one)
    assert rough == pytest.approx(lnl, rel=0.02)
    assert rough != lnl
    assert RateProfiles(Curves(PROFILED, lnls[:, :16_000], counts[:16_000])).sketch is None


def test_patterns_of_many_changes_keep_their_slope_at_the_lowest_rates() -> None:
    """Their likelihoods there are too small for a number: a tree of hundreds of taxa."""
    changes = np.array([5.0, 150.0, 600.0])
    lnls = changes * np.log(PROFILED)[:, None] - 10.0
    splines = Splines(PROFILED, lnls)
    rates = np.array([1e-12, 1e-9, 1e-7, 1.0])
    curves = splines.along(splines.row_weights(rates), slice(0, 3))
    assert all(np.isfinite(table).all() for table in curves)
    exact = changes * np.log(rates)[:, None] - 10.0 - splines.peaks
    np.testing.assert_allclose(curves.logs[1:, 1:], exact[1:, 1:], rtol=0.02)
