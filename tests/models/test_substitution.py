"""The model value: rate classes, frequencies from an alignment, arrays."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.patterns import Patterns
from mltree.models import parameters
from mltree.models.grammar import parse_model
from mltree.models.parameters import with_vector
from mltree.models.substitution import DNA_MODELS, expand_rates, unique_rates
from mltree.system.errors import ModelError


def patterns(rows: list[str], alphabet: Alphabet = DNA) -> Patterns:
    codes = alphabet.encode(np.array([list(row.encode()) for row in rows], np.uint8))
    sites = codes.shape[1]
    return Patterns(
        taxa=tuple(f"t{i}" for i in range(len(rows))),
        codes=codes,
        weights=np.ones(sites),
        site_pattern=np.arange(sites, dtype=np.int32),
        alphabet=alphabet,
    )


@pytest.mark.parametrize("name", sorted(DNA_MODELS))
def test_classes_are_numbered_in_order_of_appearance(name: str) -> None:
    classes = DNA_MODELS[name].rate_classes
    assert list(dict.fromkeys(classes)) == list(range(max(classes) + 1))


def test_classes_of_the_families() -> None:
    """Pairs AC AG AT CG CT GT: transitions AG and CT; Posada (2008), Table 1."""
    assert DNA_MODELS["HKY"].code == DNA_MODELS["K80"].code == "010010"
    assert DNA_MODELS["TN93"].code == "010020"
    assert DNA_MODELS["K81uf"].code == "012210"
    assert DNA_MODELS["TPM2"].code == "010212"
    assert DNA_MODELS["TPM3"].code == "012012"
    assert DNA_MODELS["TIM1"].code == "012230"
    assert DNA_MODELS["TIM2"].code == "010232"
    assert DNA_MODELS["TIM3"].code == "012032"
    assert DNA_MODELS["TVM"].code == "012314"


def test_rates_of_classes_and_back() -> None:
    unique = np.array([2.0, 3.0, 1.0, 5.0])
    classes = DNA_MODELS["TIM2"].rate_classes
    rates = expand_rates(classes, unique)
    assert rates.tolist() == [2.0, 3.0, 2.0, 1.0, 5.0, 1.0]
    assert unique_rates(classes, rates).tolist() == unique.tolist()


def test_counted_frequencies_share_ambiguities_and_skip_gaps() -> None:
    """R is half an A and half a G; - and N are nothing: 3.5 A, 1 C, 1.5 G, 2 T of 8."""
    model = parse_model("GTR+FC", DNA)
    counted = model.with_empirical_frequencies(patterns(["AACR-", "AGTTN"]))
    assert counted.frequencies == pytest.approx([3.5 / 8, 1 / 8, 1.5 / 8, 2 / 8])
    assert np.isnan(model.frequencies).all()


def test_estimated_frequencies_start_from_the_counted() -> None:
    counted = parse_model("GTR+FO", DNA).with_empirical_frequencies(patterns(["AACC", "GGTA"]))
    assert counted.frequencies == pytest.approx([3 / 8, 2 / 8, 2 / 8, 1 / 8])
    assert counted.frequency_mode == "FO"


@pytest.mark.parametrize("text", ["JC", "GTR+FE", "GTR+FU{0.1/0.2/0.3/0.4}"])
def test_other_frequencies_are_not_counted(text: str) -> None:
    model = parse_model(text, DNA)
    assert model.with_empirical_frequencies(patterns(["AACC", "GGTA"])) is model


def test_a_state_that_never_occurs_still_gives_arrays() -> None:
    model = parse_model("GTR+FC+G4", DNA).with_empirical_frequencies(patterns(["ACAC", "CCAA"]))
    arrays = model.arrays()
    assert np.isfinite(arrays.right).all()
    assert arrays.frequencies.min() > 0.0


def test_uncounted_frequencies_are_refused() -> None:
    for text, alphabet in (("GTR+FC", DNA), ("LG+F+G4", PROTEIN)):
        with pytest.raises(ModelError, match="not known without an alignment"):
            parse_model(text, alphabet).arrays()


def test_protein_frequencies_are_counted() -> None:
    model = parse_model("LG+F", PROTEIN)
    counted = model.with_empirical_frequencies(patterns(["AAB-", "AAXX"], PROTEIN))
    expected = dict.fromkeys(PROTEIN.states, 0.0) | {"A": 0.8, "N": 0.1, "D": 0.1}
    assert counted.frequencies == pytest.approx(list(expected.values()))
    assert counted.rates is model.rates


def test_arrays_have_the_invariable_category() -> None:
    arrays = parse_model("JC+I{0.3}+G4{0.5}", DNA).arrays()
    assert arrays.n_categories == 5
    assert arrays.weights.sum() == pytest.approx(1.0)
    assert (arrays.rates[-1], arrays.weights[-1]) == (0.0, 0.3)


@pytest.mark.parametrize(
    "text", ["GTR+FO+I+G4", "HKY+FC+R3", "JC", "SYM+I{0.2}+R2{0.1/2}{0.5/0.5}", "TN93+G4a+BO"]
)
def test_values_are_kept_to_the_last_bit(text: str) -> None:
    """As a checkpoint does: through JSON."""
    model = parse_model(text, DNA).with_empirical_frequencies(patterns(["AACC", "GGTA"]))
    x = np.random.default_rng(1).normal(size=len(parameters.vector(model)))
    moved = with_vector(model, x)
    again = model.with_values(json.loads(json.dumps(moved.values())))
    for name, values in vars(moved.arrays()).items():
        np.testing.assert_array_equal(getattr(again.arrays(), name), values, err_msg=name)
    assert again.branch_scaler == moved.branch_scaler
    np.testing.assert_array_equal(parameters.vector(again), parameters.vector(moved))
