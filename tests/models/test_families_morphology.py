"""Models of binary and multistate characters, against closed forms and against nucleotides'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mltree.data.alphabet import BINARY, DNA, MAX_STATES, Alphabet, multistate
from mltree.models.eigen import p_matrices
from mltree.models.families import MORPHOLOGY
from mltree.models.grammar import format_model, parse_model
from mltree.models.names import default_model_name
from mltree.models.parameters import free_parameters
from mltree.models.partitioned import model_alphabet
from mltree.program.cases import Case
from mltree.system.errors import ModelError

_TWO = multistate(2)


@pytest.mark.parametrize("states", [2, 3, 64])
def test_mk_is_lewis_s_formula(states: int) -> None:
    arrays = parse_model("MK", multistate(states)).arrays()
    as_in_help = parse_model("MULTIx_MK", multistate(states))
    assert as_in_help.name == parse_model("MK", multistate(states)).name == f"MULTI{states}_MK"
    lengths = np.array([1e-6, 0.1, 3.0])
    stay = 1 / states + (1 - 1 / states) * np.exp(-states / (states - 1) * lengths)
    p = p_matrices(arrays, lengths)[:, 0]
    np.testing.assert_allclose(np.diagonal(p, axis1=1, axis2=2), stay[:, None] + 0 * p[:, 0])
    np.testing.assert_allclose(p[:, 0, 1], (1 - stay) / (states - 1))


def test_ordered_characters_change_step_by_step() -> None:
    p = p_matrices(parse_model("MULTI5_ORDERED", multistate(5)).arrays(), np.array([1e-5]))[0, 0]
    distance = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    assert p[distance == 1].min() > 1e-6
    assert p[distance > 1].max() < 1e-8


@pytest.mark.parametrize("alphabet", [BINARY, multistate(3), multistate(MAX_STATES)])
def test_every_name_is_read_and_written(alphabet: Alphabet) -> None:
    for name in [*MORPHOLOGY.names_of(alphabet), default_model_name(alphabet)]:
        model = parse_model(name, alphabet)
        assert model_alphabet(name) is alphabet
        counted = replace(model, frequency_mode="FE") if "+FC" in name else model
        assert parse_model(format_model(counted), alphabet).name == model.name


def test_free_parameters() -> None:
    expected = {"BIN": 1, "BIN+FE": 0, "MK": 0, "MK+F": 5, "ORDERED": 0, "GTR": 19, "GTR+FE": 14}
    for name, free in expected.items():
        alphabet = BINARY if name.startswith("BIN") else multistate(6)
        assert free_parameters(parse_model(name, alphabet)) == free, name


@pytest.mark.parametrize("kind", ["MK", "ORDERED", "GTR"])
def test_binary_data_take_the_models_of_two_states(kind: str) -> None:
    binary, of_two = (replace(parse_model(kind, a), frequency_mode="FE") for a in (BINARY, _TWO))
    written = format_model(binary)
    assert model_alphabet(written) is _TWO
    assert written == format_model(of_two)
    lengths = np.array([0.1, 2.0])
    np.testing.assert_array_equal(*(p_matrices(m.arrays(), lengths) for m in (binary, of_two)))


def test_models_of_other_data() -> None:
    with pytest.raises(ModelError, match="is for MULTI6, but .* is MULTI4"):
        parse_model("MULTI6_MK", multistate(4))
    with pytest.raises(ModelError, match=r"is for BIN, but .* is DNA"):
        parse_model("BIN", DNA)
    with pytest.raises(ModelError, match="nearest known is MULTI4_MK"):
        parse_model("MK4", multistate(4))


def test_four_states_are_computed_as_nucleotides_are(
    open_engine: Callable[..., Any], make_problem: Callable[..., Any], likelihood: Any
) -> None:
    """The same data under two alphabets: A, C, G, T without ambiguities, and 0, 1, 2, 3."""
    problem = make_problem(9, 70)
    codes = problem.patterns.codes
    known = replace(problem.patterns, codes=np.where(np.isin(codes, (1, 2, 4, 8)), codes, 15))
    recoded = np.array([4, 0, 1, 4, 2, 4, 4, 4, 3, *[4] * 7], np.uint8)[known.codes]
    as_states = replace(known, codes=recoded, alphabet=multistate(4))
    text = "GTR{1.5/3/0.7/1.2/4/1}+FU{0.3/0.25/0.2/0.25}+G4{0.6}"
    lnls = []
    for patterns in (known, as_states):
        case = Case((parse_model(text, patterns.alphabet).arrays(),))
        used = likelihood(open_engine, replace(problem, patterns=patterns))
        lnls.append(used.log_likelihoods([problem.tree], [case])[0])
    assert lnls[1] == pytest.approx(lnls[0], rel=1e-12)


@pytest.mark.parametrize("states", [2, 3, 64])
def test_any_number_of_states(
    states: int, open_native: Callable[..., Any], make_problem: Callable[..., Any], reference: Any,
    likelihood: Any,
) -> None:  # fmt: skip
    problem = make_problem(5, 12, states=states)
    expected = reference(problem).log_likelihoods([problem.tree], [problem.case])
    found = likelihood(open_native, problem).log_likelihoods([problem.tree], [problem.case])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
