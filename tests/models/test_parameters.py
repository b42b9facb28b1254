"""The vector of free parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.models import parameters
from mltree.models.grammar import parse_model
from mltree.models.parameters import arrays_of, with_vector
from mltree.models.partitioned import alone
from mltree.models.rates import Gamma
from mltree.models.substitution import DNA_MODELS

GTR_RATES = ["rate AC", "rate AG", "rate AT", "rate CG", "rate CT"]
PI = ["pi A", "pi C", "pi G"]
FREE = ["rate of category 1", "weight of category 1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JC", []),
        ("JC+G4", ["alpha"]),
        ("F81", PI),
        ("K80", ["rate AG=CT"]),
        ("HKY+FC+G4", ["rate AG=CT", "alpha"]),
        ("TN93", ["rate AG", "rate CT", *PI]),
        ("TIM2+FE", ["rate AC=AT", "rate AG", "rate CT"]),
        ("GTR", [*GTR_RATES, *PI]),
        ("GTR+FC+I+G4", [*GTR_RATES, "p_invariant", "alpha"]),
        ("GTR{1/2/3/4/5/6}+FC+G4{0.5}", []),
        ("GTR{1/2/3/4/5/6}+FO+I{0.1}+G4", [*PI, "alpha"]),
        ("SYM+IO", [*GTR_RATES, "p_invariant"]),
        ("JC+R2", FREE),
        ("K80+I+R2", ["rate AG=CT", "p_invariant", *FREE]),
        ("JC+R2{1/2}{0.5/0.5}+BO", []),
    ],
)
def test_only_what_is_free(text: str, expected: list[str]) -> None:
    model = parse_model(text, DNA)
    assert parameters.names(model) == expected
    assert len(parameters.vector(model)) == len(parameters.bounds(model)) == len(expected)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("LG", 0),
        ("LG+G4", 1),
        ("WAG+FO+I+G4", 21),
        ("LG+R4", 6),
        ("PROTGTR+FE", 190),
        ("PROTGTR+I", 210),
    ],
)
def test_protein(text: str, size: int) -> None:
    model = parse_model(text, PROTEIN)
    assert len(parameters.vector(model)) == len(parameters.names(model)) == size


@given(name=st.sampled_from(sorted(DNA_MODELS)), seed=st.integers(0, 2**32 - 1))
def test_round_trip(name: str, seed: int) -> None:
    model = parse_model(f"{name}+I+{'G4' if seed % 2 else 'R3'}", DNA)
    low, high = np.array(parameters.bounds(model)).T
    x = np.random.default_rng(seed).uniform(low, high)
    moved = with_vector(model, x)
    assert parameters.vector(moved) == pytest.approx(x, abs=1e-9)
    assert moved.frequencies.sum() == pytest.approx(1.0)
    assert moved.rates[-1] == 1.0
    digits = model.rate_classes
    for a, b in zip(digits, moved.rates, strict=True):
        assert b == moved.rates[digits.index(a)]


def test_values_are_on_their_natural_scales() -> None:
    model = parse_model("GTR+FO+I+G4", DNA)
    x = np.zeros(10)
    x[1], x[5], x[8], x[9] = math.log(3.0), math.log(2.0), math.log(0.25 / 0.75), math.log(0.4)
    moved = with_vector(model, x)
    assert moved.rates == pytest.approx([1, 3, 1, 1, 1, 1])
    assert moved.frequencies == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert moved.p_invariant == pytest.approx(0.25)
    assert moved.heterogeneity == Gamma(4, pytest.approx(0.4))


def test_bounds_are_the_documented_ones() -> None:
    bounds = dict(
        zip(
            *(f(parse_model("K80+I+G4", DNA)) for f in (parameters.names, parameters.bounds)),
            strict=True,
        )
    )
    assert np.exp(bounds["rate AG=CT"]) == pytest.approx([1e-3, 1e3])
    assert np.exp(bounds["alpha"]) == pytest.approx([0.02, 1000.0])
    assert bounds["p_invariant"][1] == pytest.approx(math.log(0.99 / 0.01))


def test_the_vector_starts_within_its_bounds() -> None:
    counted = parse_model("GTR+FO", DNA)
    edge = with_vector(counted, np.array([20.0, -20.0, 0, 0, 0, 30.0, 0, 0]))
    x = parameters.vector(edge)
    low, high = np.array(parameters.bounds(edge)).T
    assert ((low <= x) & (x <= high)).all()


def test_both_ends_of_the_bounds_give_a_usable_model() -> None:
    for text in ("GTR+FO+I+G4", "HKY+G4a"):
        model = parse_model(text, DNA)
        for end in np.array(parameters.bounds(model)).T:
            arrays = with_vector(model, end).arrays()
            assert np.isfinite(arrays.right).all()
            assert arrays.weights @ arrays.rates == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "alphabet"),
    [
        ("GTR+FO+I+G4", DNA),
        ("HKY+I{0.2}+G4", DNA),
        ("GTR+FE+I+G4{0.5}", DNA),
        ("JC+IO", DNA),
        ("JC", DNA),
        ("SYM", DNA),
        ("LG+G4", PROTEIN),
        ("LG+FO+I", PROTEIN),
        ("HKY+FO+I+R4", DNA),
        ("LG+R3", PROTEIN),
        ("JC+I{0.1}+R2{1/2}", DNA),
        ("PROTGTR+FE+G2", PROTEIN),
    ],
)
def test_arrays_at_many_points_are_those_of_each(text: str, alphabet: Alphabet) -> None:
    model = parse_model(text, alphabet)
    ends = np.array(parameters.bounds(model)).reshape(-1, 2).T
    points = np.random.default_rng(1).uniform(*ends, size=(3, ends.shape[1]))
    (together,) = arrays_of([model], [points], [np.ones(3)], alone(model).shapes)
    for arrays, point in zip(together, points, strict=True):
        one = with_vector(model, point).arrays()
        for name, values in vars(one).items():
            np.testing.assert_allclose(getattr(arrays, name), values, rtol=1e-12, err_msg=name)


def test_a_vector_of_the_wrong_length_is_a_bug() -> None:
    with pytest.raises(ValueError, match="free parameters"):
        with_vector(parse_model("GTR", DNA), np.zeros(3))


def test_the_model_that_is_moved_stays_as_it_was() -> None:
    model = parse_model("GTR+G4", DNA)
    with_vector(model, parameters.vector(model) + 0.5)
    assert model.rates.tolist() == [1.0] * 6
    assert model.heterogeneity == Gamma(4, 1.0)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("JC", 0), ("JC+G4", 1), ("K80", 1), ("F81", 3), ("HKY+FC", 4), ("HKY+FE", 1),
        ("TN93", 5), ("TIM2+FE+I", 4), ("SYM", 5), ("GTR", 8), ("GTR+FC+I+G4", 10),
        ("GTR+FO+R4", 14), ("GTR+FC+I+R3", 13), ("GTR+FC+R10", 26),
        ("GTR{1/2/3/4/5/6}+FC+G4{0.5}", 3), ("GTR{1/2/3/4/5/6}+FU{0.1/0.2/0.3/0.4}+G4", 1),
        ("JC+R2{1/2}+I{0.2}", 0),
    ],
)  # fmt: skip
def test_free_parameters_are_counted_as_iqtree_does(text: str, count: int) -> None:
    assert parameters.free_parameters(parse_model(text, DNA)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [("LG", 0), ("LG+F", 19), ("LG+FO+I+G4", 21), ("WAG+R5", 8), ("PROTGTR+FE", 189),
     ("PROTGTR+G4", 209)],
)  # fmt: skip
def test_free_parameters_of_proteins(text: str, count: int) -> None:
    assert parameters.free_parameters(parse_model(text, PROTEIN)) == count


def test_no_scale_is_missed_where_all_exchangeabilities_vary() -> None:
    """Twice as large, they are the same model, and print as the same matrix."""
    model = parse_model("PROTGTR+FE", PROTEIN)
    x = parameters.vector(model)
    points = np.array([x, x + math.log(2.0)])
    (found,) = arrays_of([model], [points], [np.ones(2)], alone(model).shapes)
    one, other = found
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-12)
