"""Where the estimate of a model's parameters begins."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.fit.fits import TILTED, distant_models, starting_models
from mltree.models import parameters
from mltree.models.grammar import parse_model
from mltree.models.parameters import with_vector


def test_starting_models_are_the_model_and_others_that_differ_among_sites() -> None:
    for text in ("GTR+G4", "GTR+I", "GTR+I+G4{0.5}", "GTR+I{0.2}+G4", "GTR", "GTR+R2{1/2}"):
        assert len(starting_models(parse_model(text, DNA))) == 1
    model = parse_model("GTR+I+G4", DNA)
    few, other = starting_models(model)
    assert few is model
    assert other.p_invariant > 0.5 > few.p_invariant
    assert starting_models(other)[1].p_invariant < 0.01


@pytest.mark.parametrize("text", ["HKY+FC+R4", "HKY+FC+I+R3", "LG+I{0.2}+R2"])
def test_free_rates_start_from_a_gamma_distribution_and_with_few_fast_sites(text: str) -> None:
    model = parse_model(text, PROTEIN if text[0] == "L" else DNA)
    fresh, other = starting_models(model)
    assert fresh is model
    assert np.ptp(fresh.heterogeneity.weights) < 1e-12
    assert other.heterogeneity.weights[-1] < 0.05
    assert (other.p_invariant == model.p_invariant) == ("+I+" not in text)
    moved = with_vector(model, parameters.vector(model) + 0.1)
    kept, first, second = starting_models(moved)
    assert kept is moved
    for one, same in ((first, fresh), (second, other)):
        np.testing.assert_array_equal(one.heterogeneity.rates, same.heterogeneity.rates)
        np.testing.assert_array_equal(one.rates, moved.rates)


def test_classes_that_are_alike_are_moved_apart() -> None:
    model = parse_model("MIX{GTR+FO,GTR+FO}+G4", DNA)
    first, *others = starting_models(model)
    assert first is model
    assert len(others) == TILTED
    for other in others:
        one, two = other.components
        assert np.abs(one.frequencies - two.frequencies).max() > 0.01
        assert np.abs(one.rates - two.rates).max() > 0.01
    assert len(starting_models(parse_model("MIX{LG,WAG}+G4", PROTEIN))) == 1


def test_starts_from_afar_have_lengths_of_their_own() -> None:
    """Only where rates among sites are estimated, and not of mixtures."""
    for text in ("GTR", "GTR+I{0.2}", "GTR+G4{0.5}", "GTR+R2{1/2}", "MIX{GTR+FO,GTR+FO}+G4"):
        assert not distant_models(parse_model(text, DNA))
    for text, count in (("GTR+I", 1), ("GTR+G4", 1), ("GTR+I+G4", 2), ("GTR+R3", 2)):
        found = distant_models(parse_model(text, DNA))
        assert len(found) == count
        assert all(length > 0.01 for length, _ in found)


def test_the_matrices_of_lg4x_start_in_other_orders() -> None:
    model = parse_model("LG4X", PROTEIN)
    first, *others = starting_models(model)
    assert first is model
    orders = {tuple(np.argsort(own.heterogeneity.rates).tolist()) for own in [first, *others]}
    assert len(orders) == 3
