"""Curves of patterns over their rates, against sums over the states of a star."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.models.eigen import p_matrices
from mltree.models.grammar import parse_model
from mltree.models.rate_profiles import PROFILED, Curves, RateProfiles
from mltree.models.rates import GRID, Categories

Float = np.ndarray

A_SITE = 1e-5
"""lnL a site that a spline may be wrong by; its step is a third of a doubling."""

BELOW = 5e-4
"""The same below the grid, where two of 1,000 are more than 1e-4 off; a straight line in logs was
1e-2 wrong there."""

STEP = 1e-4
"""Of differences, on log scales."""


class Star:
    """Every pattern of a few tips around a node, each seen a few times."""

    def __init__(self, rng: np.random.Generator) -> None:
        rates = "/".join(map(str, 10 ** rng.uniform(-1, 1, 6)))
        frequencies = "/".join(map(str, 0.9 * rng.dirichlet(np.full(4, 3.0)) + 0.025))
        self.arrays = parse_model(f"GTR{{{rates}}}+FU{{{frequencies}}}", DNA).arrays()
        tips = int(rng.integers(2, 5))
        self.lengths = np.exp(rng.uniform(-4.0, 1.0, tips))
        self.columns = np.array(list(np.ndindex(*[4] * tips)))
        self.counts = rng.integers(0, 5, len(self.columns)).astype(float)

    def likelihoods(self, rates: Float) -> Float:
        """f64[K, L]: of every pattern under each rate."""
        arrays = replace(self.arrays, rates=rates, weights=np.ones_like(rates))
        p = p_matrices(arrays, self.lengths)
        product = self.arrays.frequencies[None, :, None].repeat(len(rates), axis=0)
        for tip, states in enumerate(self.columns.T):
            product = product * p[tip][:, :, states]
        return product.sum(axis=1)

    @property
    def profiles(self) -> RateProfiles:
        return RateProfiles(Curves(PROFILED, np.log(self.likelihoods(PROFILED)), self.counts))

    def lnl(self, categories: Categories) -> float:
        mixed = categories.weights @ self.likelihoods(categories.rates)
        return float(self.counts @ np.log(mixed))


def random_categories(rng: np.random.Generator) -> Categories:
    """One to five, some far apart or below the grid; the last may be of rate 0."""
    count = int(rng.integers(1, 6))
    rates = np.exp(rng.uniform(-6.0, 3.0, count))
    rates[1:] *= np.exp(rng.uniform(-20.0, 0.0) * rng.integers(2))
    weights = rng.dirichlet(np.ones(count + 1))
    return Categories(np.append(rates, 0.0 if rng.random() < 0.5 else 1.0), weights)


@pytest.mark.cases(10, 1000)
def test_mixtures_of_curves_are_sums_over_states(case: int) -> None:
    rng = np.random.default_rng([case, 1414])
    star, categories = Star(rng), random_categories(rng)
    found = star.profiles.lnl(categories)
    is_below = ((categories.rates > 0) & (categories.rates < GRID[0])).any()
    off = (BELOW if is_below else A_SITE) * star.counts.sum() + 1e-9
    assert found == pytest.approx(star.lnl(categories), abs=off)


def test_a_rate_of_the_grid_is_as_it_was_told() -> None:
    star = Star(np.random.default_rng(3))
    for rate in GRID[[0, 7, 48]]:
        alone = Categories(np.array([rate]), np.ones(1))
        assert star.profiles.lnl(alone) == pytest.approx(star.lnl(alone), abs=1e-9)


@pytest.mark.cases(10, 1000)
def test_derivatives_are_differences(case: int) -> None:
    rng = np.random.default_rng([case, 1415])
    star, categories = Star(rng), random_categories(rng)
    profiles, k = star.profiles, len(categories.rates)

    def at(step: Float) -> float:
        rates = categories.rates * np.exp(step[k:])
        return profiles.lnl(Categories(rates, categories.weights * np.exp(step[:k])))

    found = profiles.expansion(categories)
    axes = STEP * np.eye(2 * k)
    slopes = [(at(axis) - at(-axis)) / (2 * STEP) for axis in axes]
    bends = [
        [(at(a + b) - at(a - b) - at(b - a) + at(-a - b)) / (4 * STEP**2) for a in axes]
        for b in axes
    ]
    size = star.counts.sum()
    assert found.lnl == pytest.approx(at(np.zeros(2 * k)), abs=1e-9)
    np.testing.assert_allclose(found.gradient, slopes, rtol=1e-5, atol=1e-5 * size)
    np.testing.assert_allclose(found.hessian, bends, rtol=1e-3, atol=1e-3 * size)


def test_patterns_that_no_site_shows_count_for_nothing() -> None:
    star = Star(np.random.default_rng(5))
    star.counts[::2] = 0.0
    categories = random_categories(np.random.default_rng(6))
    assert star.profiles.lnl(categories) == pytest.approx(star.lnl(categories), abs=1e-3)
