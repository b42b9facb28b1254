"""Curvatures of models, against differences of a function of their exchangeabilities."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.models.grammar import parse_model
from mltree.models.parameters import vector, with_vector
from mltree.models.rates import Gamma
from mltree.models.substitution import Model
from mltree.runs.model_choice import matrices, projected, with_rates_held

NAMES = matrices(DNA)


def of_all(model: Model, x: np.ndarray) -> np.ndarray:
    """f64[n + 1]: variables of GTR, and the scale, at those of a model; held rates stay."""
    own = with_vector(model, x[:-1])
    form = own.heterogeneity
    alpha = [np.log(form.alpha)] if isinstance(form, Gamma) else []
    p = own.p_invariant
    logit = [] if p is None else [np.log(p / (1.0 - p))]
    return np.array([*np.log(own.rates[:5] / own.rates[5]), *logit, *alpha, x[-1]])


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("rates", ["", "+G4", "+I+G4"])
@pytest.mark.parametrize("name", NAMES[1:])
def test_it_is_that_of_the_same_function(name: str, rates: str, held: bool) -> None:
    rng = np.random.default_rng([len(name), len(rates), held])
    general = parse_model("GTR+FC" + rates, DNA)
    model = parse_model(name + rates, DNA)
    model = replace(model, heterogeneity=general.heterogeneity, p_invariant=general.p_invariant)
    model = with_rates_held(model) if held else model
    n = len(vector(general)) + 1
    root = rng.normal(size=(n, n))
    curvature = root @ root.T
    found = projected(curvature, general, model)
    assert found is not None
    x, step = np.append(vector(model), 0.0), 0.1
    steps = step * np.eye(len(x))

    def lnl(at: np.ndarray) -> float:
        y = of_all(model, at)
        return float(-y @ curvature @ y / 2.0)

    for i, one in enumerate(steps):
        for j, other in enumerate(steps):
            corners = [lnl(x + a * one + b * other) for a in (1, -1) for b in (1, -1)]
            (up, down) = (
                first - second for first, second in zip(*[iter(corners)] * 2, strict=True)
            )
            assert found[i, j] == pytest.approx(-(up - down) / (4 * step**2), abs=1e-6)


def test_there_is_none_of_variables_that_the_general_model_lacks() -> None:
    general, n = parse_model("GTR+FC", DNA), len(vector(parse_model("GTR+FC", DNA)))
    assert projected(np.eye(n + 1), general, parse_model("HKY+FC+G4", DNA)) is None
    assert projected(np.eye(n + 2), general, parse_model("HKY+FC", DNA)) is None
    sizes = [
        len(found)
        for name in ("JC", "HKY+FC", "GTR+FC")
        if (found := projected(np.eye(n + 1), general, parse_model(name, DNA))) is not None
    ]
    assert sizes == [1, 2, 6]
    assert all(one < other for one, other in pairwise(sizes))
