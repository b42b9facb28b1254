"""Rates among sites fitted to curves, against SciPy on the same curves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from mltree.data.alphabet import DNA
from mltree.fit.fits import starting_models
from mltree.fit.rate_optimiser import Task, fit_profiles
from mltree.fit.settings import ModelSettings
from mltree.models.grammar import parse_model
from mltree.models.rate_profiles import PROFILED, Curves, RateProfiles
from mltree.models.rates import Categories, gamma_rates, with_invariable
from mltree.runs.model_choice import with_matrix_held

EPSILON = 1e-3
"""lnL: where an optimiser stops."""

SHORT, LOWER_TOP = 0.02, 0.2
"""lnL that an optimiser may lack to the best of all starts; where there are several tops, as three
and four free rates have: of 80 such optimisers two ended 0.03 and 0.11 lower."""

STARTS = 5

Float = np.ndarray


def curves(rng: np.random.Generator, count: int = 300) -> RateProfiles:
    """Of patterns of 12 branches, each of which changes on some, at rates of a few classes.

    Their mean is 1, as where the lengths of a tree are its data's: a fit's scale has bounds.
    """
    classes = int(rng.integers(1, 5))
    rates = np.exp(rng.uniform(-3.0, 1.5, classes))
    own = rng.choice(rates, count)
    own[rng.random(count) < rng.uniform(0.0, 0.5)] = 0.0
    own /= own.mean()
    branches = rng.uniform(0.02, 0.3, 12)
    stays = 0.25 + 0.75 * np.exp(-4.0 / 3.0 * np.multiply.outer(PROFILED, branches))
    changes = rng.random((count, 12)) < 0.75 * (1.0 - np.exp(-np.multiply.outer(own, branches)))
    logs = np.log(stays) @ ~changes.T + np.log((1.0 - stays) / 3.0) @ changes.T
    return RateProfiles(Curves(PROFILED, logs, np.ones(count)))


def free(x: Float, k: int) -> Categories:
    return Categories(np.exp(x[:k]), softmax(np.append(x[k:], 0.0)))


def form(text: str, x: Float) -> Categories:
    """Categories of a term at any x, in other variables than the model's."""
    k = {"+R2": 2, "+R3": 3, "+R4": 4}.get(text)
    if k is not None:
        return free(x, k)
    alpha, p, speed = np.exp(x[0]), 1.0 / (1.0 + np.exp(-x[1])), np.exp(x[2])
    gamma = gamma_rates(alpha, 4) if "G" in text else np.ones(1)
    among = Categories(gamma, np.full(gamma.size, 1.0 / gamma.size))
    rates, weights = with_invariable(among, p if "I" in text else None)
    return Categories(rates * speed, weights)


def best_of_scipy(profiles: RateProfiles, text: str, rng: np.random.Generator) -> float:
    size = {"+R2": 3, "+R3": 5, "+R4": 7}.get(text, 3)
    low, high = (-7.0, 4.0) if "R" in text else (-3.0, 3.0)

    def loss(x: Float) -> float:
        return -profiles.lnl(form(text, x))

    bounds = [(low, high)] * size
    starts = rng.uniform(-2.0, 1.5, (STARTS, size))
    return max(-minimize(loss, start, bounds=bounds, method="L-BFGS-B").fun for start in starts)


@pytest.mark.parametrize("text", ["", "+I", "+G4", "+I+G4", "+R2", "+R3", "+R4"])
@pytest.mark.cases(1, 40)
def test_no_start_of_scipy_ends_above(text: str, case: int) -> None:
    rng = np.random.default_rng([case, 141])
    profiles = curves(rng)
    starts = starting_models(with_matrix_held(parse_model("GTR+FE" + text, DNA)))
    (found,) = fit_profiles([Task(profiles, starts)], ModelSettings(), EPSILON)
    short = LOWER_TOP if text in ("+R3", "+R4") else SHORT
    assert found.lnl > best_of_scipy(profiles, text, rng) - short
    categories = with_invariable(found.model.heterogeneity.categories, found.model.p_invariant)
    scaled = Categories(categories.rates * found.scale, categories.weights)
    assert found.lnl == pytest.approx(profiles.lnl(scaled), abs=1e-9)


def test_an_optimiser_never_ends_below_its_start() -> None:
    profiles = curves(np.random.default_rng(2))
    model = with_matrix_held(parse_model("JC+R3{0.01/1/30}{0.4/0.3/0.3}", DNA))
    start = profiles.lnl(model.heterogeneity.categories)
    (found,) = fit_profiles([Task(profiles, [model])], ModelSettings(), EPSILON)
    assert found.lnl >= start - 1e-9


def test_tasks_side_by_side_are_as_each_alone() -> None:
    tasks = [
        Task(curves(np.random.default_rng(seed)), [with_matrix_held(parse_model("JC" + text, DNA))])
        for seed, text in enumerate(["+R2", "+R2", "+G4", "+R3"])
    ]
    every = fit_profiles(tasks, ModelSettings(), EPSILON)
    for task, found in zip(tasks, every, strict=True):
        (alone,) = fit_profiles([task], ModelSettings(), EPSILON)
        assert (found.lnl, found.scale) == (alone.lnl, alone.scale)


@pytest.mark.parametrize("text", ["+I+G4", "+R2", "+R4"])
def test_optimisers_that_begin_on_a_sketch_end_where_others_do(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = curves(np.random.default_rng(7), 20_000)
    starts = starting_models(with_matrix_held(parse_model("GTR+FE" + text, DNA)))
    (found,) = fit_profiles([Task(profiles, starts)], ModelSettings(), EPSILON)
    assert profiles.sketch is not None
    monkeypatch.setattr(RateProfiles, "sketch", None)
    (whole,) = fit_profiles([Task(profiles, starts)], ModelSettings(), EPSILON)
    assert found.lnl == pytest.approx(whole.lnl, abs=2 * EPSILON)
