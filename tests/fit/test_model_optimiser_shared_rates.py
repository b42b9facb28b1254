"""Exchangeabilities that the profiles of a mixture share, against SciPy's optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.data.alphabet import PROTEIN
from mltree.fit.fits import Fit
from mltree.fit.model_optimiser import share_exchangeabilities
from mltree.fit.settings import ModelSettings
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.likelihood.requests import perform
from mltree.models.grammar import parse_model
from mltree.models.parameters import (
    bounds,
    exchangeability_slopes,
    shared_exchangeabilities,
    vector,
    with_vector,
)
from mltree.models.partitioned import alone
from mltree.models.substitution import Model, Profiles
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine

BOUNDS = (1e-6, 100.0)
SHORT = 0.05
"""lnL that an optimiser may be short of SciPy's best."""


@pytest.fixture
def make_fit(make_problem: Callable[..., Any]) -> Callable[..., tuple[Fit, TreeLikelihood]]:
    """A tree of few proteins under PROTGTR and two random profiles."""

    def make(case: int) -> tuple[Fit, TreeLikelihood]:
        rng = np.random.default_rng([case, 9])
        profiles = Profiles(
            name="C10", weights=np.array([0.3, 0.7]), frequencies=rng.dirichlet(np.full(20, 1.0), 2)
        )
        model = replace(parse_model("PROTGTR", PROTEIN), mixture=profiles, frequency_mode="model")
        problem = make_problem(5, 30, states=20, seed=case)
        engine = ReferenceEngine(problem.patterns, 2, BOUNDS, 2)
        likelihood = TreeLikelihood(engine, BOUNDS, Columns.of([problem.patterns]))
        return Fit(problem.tree, alone(model)), likelihood

    return make


@pytest.mark.cases(1, 20)
def test_as_good_as_scipy_s(case: int, make_fit: Callable[..., tuple[Fit, TreeLikelihood]]) -> None:
    fit, likelihood = make_fit(case)
    (model,) = fit.model.models
    count = shared_exchangeabilities(model)
    low, high = np.array(bounds(model)[:count]).T

    def at(x: np.ndarray) -> tuple[Model, Case]:
        own = with_vector(model, np.append(x, vector(model)[count:]))
        return own, Case(alone(own).arrays())

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        own, under = at(x)
        lnl = likelihood.log_likelihoods([fit.tree], [under])[0]
        ((slopes,),) = likelihood.flow_slopes([fit.tree], [under])
        found, _ = exchangeability_slopes(own.rates, own.arrays().frequencies, slopes)
        return -float(lnl), -np.bincount(own.rate_classes, found, count)

    start = vector(model)[:count]
    limits = list(zip(low, high, strict=True))
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits).fun
    perform(likelihood, share_exchangeabilities([fit], ModelSettings(), 1e-3))
    assert -best - SHORT < likelihood.log_likelihoods([fit.tree], [fit.case])[0]


def test_others_are_left_alone() -> None:
    for text in ("LG+C10+F+G4", "PROTGTR+FO", "LG4X", "PROTGTR{" + "/".join(["1"] * 190) + "}+C10"):
        assert shared_exchangeabilities(parse_model(text, PROTEIN)) == 0
    assert shared_exchangeabilities(parse_model("PROTGTR+C10+G4", PROTEIN)) == 190
