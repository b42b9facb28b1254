"""Patterns under one rate for all sites, against the lnL of sites under a model of that rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.data.patterns import Ascertainment, Correction, with_unseen
from mltree.likelihood.ascertainment import AscertainedLikelihood
from mltree.likelihood.left_out import ascertained_parts
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.models.eigen import ModelArrays, random_reversible
from mltree.models.grammar import parse_model
from mltree.models.rate_profiles import PROFILED, RateProfiles
from mltree.models.rates import Categories
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine

BOUNDS = (1e-6, 100.0)

Float = np.ndarray


def one_rate(arrays: ModelArrays, rate: float) -> ModelArrays:
    """A plain model whose sites all have a rate, for an engine of as many categories."""
    k = arrays.n_categories
    return replace(arrays, rates=np.full(k, rate), weights=np.full(k, 1.0 / k))


def random_rates(rng: np.random.Generator, count: int) -> Float:
    return np.sort(np.exp(rng.uniform(-6.0, 2.0, count)))


@pytest.mark.cases(2, 40)
def test_every_part_has_the_lnl_of_sites_of_each_rate(
    case: int, open_engine: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    """More rates than categories, fewer for the second part."""
    rng = np.random.default_rng([case, 50])
    problem = make_problem(7, 30, categories=4, seed=case)
    patterns = replace(problem.patterns, ends=(12, 30))
    used = TreeLikelihood(open_engine(patterns, 4), BOUNDS, Columns.of([patterns]))
    under = Case(tuple(random_reversible(4, rng) for _ in range(2)))
    rates = [random_rates(rng, 9), random_rates(rng, 2)]
    one, two = used.rate_curves(problem.tree, under, rates)
    for part, curves, own in zip(patterns.parts, (one, two), rates, strict=True):
        np.testing.assert_array_equal(curves.rates, own)
        np.testing.assert_array_equal(curves.counts, patterns.weights[part])
        for row, rate in zip(curves.lnls, own.tolist(), strict=True):
            models = tuple(one_rate(model, rate) for model in under.models)
            sites = used.site_log_likelihoods(problem.tree, Case(models))
            np.testing.assert_allclose(row, sites[part], rtol=1e-9)


def test_classes_keep_their_weights_and_speeds(
    open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(51)
    problem = make_problem(6, 25, categories=2)
    alone = [random_reversible(4, rng, categories=2) for _ in range(3)]
    weights, speeds = np.array([0.5, 0.0, 0.5]), np.array([0.4, 1.0, 1.6])
    names = ("eigenvalues", "right", "left", "frequencies", "generator", "direct")
    stacked = {name: np.stack([getattr(own, name) for own in alone]) for name in names}
    arrays = ModelArrays(
        **stacked,
        rates=np.concatenate([s * own.rates for s, own in zip(speeds, alone, strict=True)]),
        weights=np.concatenate([w * own.weights for w, own in zip(weights, alone, strict=True)]),
    )
    columns = Columns.of([problem.patterns])
    used = TreeLikelihood(open_native(problem.patterns, 6, systems=3), BOUNDS, columns)
    rates = random_rates(rng, 3)
    (curves,) = used.rate_curves(problem.tree, Case((arrays,)), [rates])
    plain = TreeLikelihood(ReferenceEngine(problem.patterns, 2, BOUNDS), BOUNDS)
    for row, rate in zip(curves.lnls, rates.tolist(), strict=True):
        each = [
            plain.site_log_likelihoods(problem.tree, Case((one_rate(own, rate * speed),)))
            for own, speed in zip(alone, speeds.tolist(), strict=True)
        ]
        np.testing.assert_allclose(row, np.log(weights @ np.exp(each)), rtol=1e-9)


ABOUT = [
    Ascertainment(Correction.LEWIS),
    Ascertainment(Correction.FELSENSTEIN, (70.0,)),
    Ascertainment(Correction.STAMATAKIS, (20.0, 30.0, 5.0, 11.0)),
]


@pytest.mark.parametrize("about", ABOUT)
@pytest.mark.cases(2, 40)
def test_sites_that_were_left_out_have_curves_too(
    case: int, about: Ascertainment, make_problem: Callable[..., Any]
) -> None:
    """The corrected lnL of free rates, exact at rates that were asked for, and its derivatives."""
    problem = make_problem(6, 40, categories=4, seed=case)
    patterns = with_unseen(problem.patterns, [about])
    engine = ReferenceEngine(patterns, 4, BOUNDS)
    used = AscertainedLikelihood(
        engine, BOUNDS, Columns.of([patterns]), ascertained_parts([patterns])
    )
    rng = np.random.default_rng([case, 52])
    k = 4
    rates, weights = random_rates(rng, k), rng.dirichlet(np.full(k, 3.0))
    model = parse_model("GTR{1/2/3/4/5/1}+FU{0.3/0.2/0.2/0.3}+G4{0.7}", DNA)
    own = model.arrays()
    knots = np.sort(np.append(PROFILED, np.multiply.outer(rates, np.exp([-0.1, 0.0, 0.1]))))
    (curves,) = used.rate_curves(problem.tree, Case((own,)), [knots])
    profiles = RateProfiles(curves)

    def told(x: Float) -> float:
        speeds, shares = rates * np.exp(x[k:]), weights * np.exp(x[:k])
        arrays = replace(own, rates=speeds, weights=shares)
        return float(used.log_likelihoods([problem.tree], [Case((arrays,))])[0])

    found = profiles.expansion(Categories(rates, weights))
    assert found.lnl == pytest.approx(told(np.zeros(2 * k)), abs=1e-7)
    assert profiles.lnl(Categories(rates, weights)) == pytest.approx(found.lnl, abs=1e-9)
    axes = 1e-3 * np.eye(2 * k)
    slopes = [(told(a) - told(-a)) / 2e-3 for a in axes]
    np.testing.assert_allclose(found.gradient, slopes, rtol=1e-2, atol=0.02)
    bends = [
        [(told(a + b) - told(a - b) - told(b - a) + told(-a - b)) / 4e-6 for a in axes]
        for b in axes
    ]
    np.testing.assert_allclose(found.hessian, bends, rtol=1e-2, atol=0.2)
