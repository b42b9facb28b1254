"""The classes in the braces of MIX and FMIX."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.data.alignments import Alignment
from mltree.data.alphabet import DNA, PROTEIN, multistate
from mltree.data.patterns import compress
from mltree.models import parameters
from mltree.models.grammar import format_model, parse_model
from mltree.models.parameters import with_vector
from mltree.models.partitioned import model_alphabet
from mltree.models.substitution import Mixed
from mltree.system.errors import ModelError


def mixture_of(text: str) -> Mixed:
    mixture = parse_model(text, DNA).mixture
    assert isinstance(mixture, Mixed)
    return mixture


def test_weights_and_rates_are_given_or_free() -> None:
    free = mixture_of("MIX{JC,HKY+FE}+G4")
    assert free.free_weights == 1
    assert free.weights.tolist() == [0.5, 0.5]
    given = mixture_of("mix{JC:1:1, HKY{2}+FU{0.1,0.2,0.3,0.4}:3:3}")
    assert given.free_weights == 0
    assert given.weights.tolist() == [0.25, 0.75]
    assert given.models[1].rates.tolist() == [1, 2, 1, 1, 2, 1]
    arrays = parse_model("MIX{JC:1:1,HKY+FE:3:3}", DNA).arrays()
    assert arrays.rates == pytest.approx([0.4, 1.2])


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("MIX{JC,HKY}", 4 + 1),
        ("MIX{GTR+FO,GTR+FO}+G4", 2 * 8 + 1 + 1),
        ("GTR+FMIX{FO,FO}+G4", 5 + 2 * 3 + 1 + 1),
        ("GTR{1/2/3/4/5/6}+FMIX{FO,FE,FU{0.1/0.2/0.3/0.4}}", 3 + 2),
        ("MIX{GTR+FC:1:0.5,GTR+FC:1:0.5}", 2 * 5 + 3),
    ],
)
def test_free_parameters(text: str, free: int) -> None:
    model = parse_model(text, DNA)
    assert parameters.free_parameters(model) == free
    counted = sum(own.frequency_mode == "FC" for own in model.components) and 3
    assert len(parameters.names(model)) == len(set(parameters.names(model))) == free - counted


def test_linked_classes_share_exchangeabilities_wherever_they_are() -> None:
    model = parse_model("GTR+FMIX{FO,FE}", DNA)
    x = parameters.vector(model)
    x[0] = np.log(7.0)
    moved = with_vector(model, x)
    assert [own.rates[0] for own in moved.components] == pytest.approx([7.0, 7.0])
    again = model.with_values(moved.values())
    assert format_model(again) == format_model(moved)


def test_frequencies_are_counted_for_the_classes_that_ask() -> None:
    rows = np.array([list(b"AAAC"), list(b"AGGC")], np.uint8)
    counted = compress(Alignment(("a", "b"), rows, "made up", DNA))
    model = parse_model("MIX{HKY+FC,JC}", DNA).with_empirical_frequencies(counted)
    one, other = model.components
    assert one.frequencies == pytest.approx([0.5, 0.25, 0.25, 0.0])
    assert other.frequencies == pytest.approx([0.25] * 4)


def test_classes_are_of_any_data_type() -> None:
    assert model_alphabet("MIX{JC,HKY}") is DNA
    assert model_alphabet("MIX{LG,WAG}") is PROTEIN
    characters = multistate(3)
    assert model_alphabet("MIX{MULTI3_MK,MULTI3_GTR}+G4") == characters
    assert len(parse_model("MIX{MK,ORDERED}", characters).components) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MIX", "expected two or more classes"),
        ("MIX{GTR}", "expected two or more classes"),
        ("GTR+FMIX{FO}", "expected two or more classes"),
        ("MIX{JC:1:0.5,HKY}", "all classes have a rate and a weight, or none"),
        ("MIX{JC:0.5,HKY:0.5}", "all classes have a rate and a weight, or none"),
        ("MIX{JC:1:x,HKY:1:1}", "a class's rate and weight are numbers from 0 on, not 'x'"),
        ("MIX{JC:1:-1,HKY:1:1}", "numbers from 0 on, not '-1'"),
        ("MIX{JC:0:1,HKY:0:1}", "all rates are zero"),
        ("MIX{JC:1:0,HKY:1:0}", "weights must not be negative, nor all zero"),
        ("MIX{JC+G4,HKY}", "has more than exchangeabilities and frequencies"),
        ("MIX{JC+I,HKY}", "has more than exchangeabilities and frequencies"),
        ("MIX{JC,LG}", "model LG is for proteins"),
        ("MIX{JC,XYZ}", "unknown model 'XYZ'"),
        ("MIX{JC,HKY}+F", "have frequencies of their own"),
        ("MIX{JC,HKY", "a brace is not closed"),
        ("MIX{JC,HKY}+FMIX{FO,FE}", "has classes of its own"),
        ("GTR+FMIX{FO,C20}", "cannot read the frequencies"),
        ("GTR+FMIX{FO,FE}+FO", r"two \+F terms"),
        ("GTR+FMIX{FO,FU{0.5/0.5}}", "expected 4 frequencies"),
    ],
)
def test_what_cannot_be(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_model(text, DNA)
