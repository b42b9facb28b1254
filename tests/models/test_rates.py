"""Invariable sites, and no heterogeneity at all."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from mltree.models.rates import (
    ONE_RATE,
    Categories,
    FreeRates,
    Gamma,
    categories_at,
    gamma_rates,
    with_invariable,
)
from mltree.system.errors import ModelError


def test_rates_with_invariable_sites_agree_with_iqtree() -> None:
    """Table of relative rates in the report of IQ-TREE 2.0.7, which lists the invariable first.

    iqtree2 -m JC+I{0.2}+G4{50} -te TREE -blfix
    """
    rates, weights = with_invariable(Gamma(4, 50.0).categories, 0.2)
    assert rates == pytest.approx([1.033, 1.186, 1.3, 1.481, 0.0], rel=6e-4)
    assert weights == pytest.approx(np.full(5, 0.2))


def test_invariable_sites_are_one_more_category() -> None:
    rates, weights = with_invariable(Gamma(4, 0.7).categories, 0.2)
    assert rates == pytest.approx([*(gamma_rates(0.7, 4) / 0.8), 0.0])
    assert weights == pytest.approx([0.2, 0.2, 0.2, 0.2, 0.2])
    assert weights @ rates == pytest.approx(1.0)


def test_invariable_sites_beside_one_rate() -> None:
    rates, weights = with_invariable(ONE_RATE.categories, 0.25)
    assert rates.tolist() == [1.0 / 0.75, 0.0]
    assert weights.tolist() == [0.75, 0.25]


def test_many_models_at_once_are_the_same() -> None:
    p = np.array([0.0, 0.1, 0.9])
    rates = np.array([[0.5, 1.5], [0.2, 1.8], [1.0, 1.0]])
    weights = np.full((3, 2), 0.5)
    together = with_invariable(Categories(rates, weights), p)
    for row, one in enumerate(p.tolist()):
        alone = with_invariable(Categories(rates[row], weights[row]), one)
        for many, single in zip(together, alone, strict=True):
            np.testing.assert_array_equal(many[row], single)


def test_forms_of_one_kind_are_computed_at_once_and_are_the_same() -> None:
    """To the last bit, whatever stands beside them; fixed ones keep their own values."""
    rng = np.random.default_rng(14)
    free, fixed = FreeRates.from_gamma(3, 0.5), FreeRates.of(rng.random(3), rng.random(3))
    forms = [
        Gamma(4, 1.0), Gamma(4, 0.3), Gamma(4, 0.3, fixed=True), Gamma(4, 0.9, fixed=True),
        Gamma(4, 1.0, "median"), Gamma(2, 1.0), ONE_RATE, free,
        dataclasses.replace(fixed, fixed=True), dataclasses.replace(free, fixed=True),
    ]  # fmt: skip
    points = [rng.normal(size=(1 + n % 3, len(form.variables()))) for n, form in enumerate(forms)]
    for form, own, together in zip(forms, points, categories_at(forms, points), strict=True):
        for many, alone in zip(together, form.at(own), strict=True):
            np.testing.assert_array_equal(many, alone)


def test_no_heterogeneity_is_one_category() -> None:
    rates, weights = with_invariable(ONE_RATE.categories, None)
    assert (rates.tolist(), weights.tolist()) == ([1.0], [1.0])
    assert ONE_RATE.variables() == []
    assert ONE_RATE.with_vector(np.empty(0)) == ONE_RATE
    assert ONE_RATE.at(np.empty((3, 0))).rates.tolist() == [[1.0]] * 3


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_proportion_of_invariable_sites_is_checked(p: float) -> None:
    with pytest.raises(ModelError, match="invariable sites"):
        with_invariable(ONE_RATE.categories, p)
