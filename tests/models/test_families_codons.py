"""Names and terms of codon models: read, written, counted, refused."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.codons import codon_alphabet
from mltree.data.patterns import Patterns
from mltree.models.families import CODONS
from mltree.models.grammar import format_model, parse_model
from mltree.models.names import default_model_name, from_iq_tree, in_iq_tree
from mltree.models.partitioned import model_alphabet
from mltree.system.errors import InputError, ModelError


@pytest.mark.parametrize("number", [1, 2, 11])
def test_every_name_is_read_and_written(number: int) -> None:
    alphabet = codon_alphabet(number)
    every = [*CODONS.names_of(alphabet), default_model_name(alphabet)]
    assert len(every) == 4 + (number != 2)
    for name in every:
        model = parse_model(name, alphabet)
        assert model_alphabet(name) is alphabet
        assert format_model(parse_model(format_model(model), alphabet)) == format_model(model)
        assert parse_model(name.removeprefix(f"CODON{number}_"), alphabet).name == model.name


@pytest.mark.parametrize(
    "text",
    [
        "GY{0.200000/2.500000}+FC",
        "GY{0.200000/2.500000}+FE+G4m{0.500000}",
        "MG{0.200000}+F1X4",
        "ECMK07+F1X4{0.100000/0.200000/0.300000/0.400000}+G4m{0.500000}",
        "MGK{0.200000/2.500000}+F1X4{0.100000/0.200000/0.300000/0.400000}+IU{0.100000}",
        "GY{1.000000/2.000000}+F3X4{" + "/".join(["0.250000"] * 12) + "}",
    ],
)
def test_values_are_read_and_written(text: str) -> None:
    assert format_model(parse_model(text, codon_alphabet(1))) == text


def test_frequencies_are_counted_as_the_term_says() -> None:
    alphabet = codon_alphabet(1)
    rng = np.random.default_rng(5)
    codes = rng.choice(alphabet.n_states, (6, 50), p=rng.dirichlet(np.ones(61))).astype(np.uint8)
    codes[0] = alphabet.gap_code
    patterns = Patterns(
        tuple("abcdef"), codes, np.ones(50), np.arange(50, dtype=np.int32), alphabet
    )
    counted = np.bincount(codes[1:].ravel(), minlength=61) / codes[1:].size
    for term in ("", "+F", "+FC"):
        model = parse_model(f"GY{term}", alphabet).with_empirical_frequencies(patterns)
        np.testing.assert_allclose(model.frequencies, counted)
    by_position = [
        [
            sum(f for f, c in zip(counted, alphabet.states, strict=True) if c[at] == base)
            for base in "ACGT"
        ]
        for at in range(3)
    ]
    for term, rows in (("+F3X4", by_position), ("+F1X4", [np.mean(by_position, axis=0)] * 3)):
        expected = np.array(
            [np.prod([rows[p]["ACGT".index(b)] for p, b in enumerate(c)]) for c in alphabet.states]
        )
        for name in ("GY", "MG", "ECMK07"):
            model = parse_model(name + term, alphabet).with_empirical_frequencies(patterns)
            np.testing.assert_allclose(model.frequencies, expected / expected.sum(), rtol=1e-4)
    given = parse_model("MG+F1X4{0.1/0.2/0.3/0.4}", alphabet)
    assert np.array_equal(given.with_empirical_frequencies(patterns).frequencies, given.frequencies)
    with pytest.raises(ModelError, match="the frequencies of GY\\+F3X4 are not known") as raised:
        parse_model("GY+F3X4", alphabet).arrays()
    assert "+F3X4{...}" in str(raised.value.hint)


def test_the_empirical_matrix_is_the_authors() -> None:
    """TTT to TTC is the table's first number, GGA to GGG its last."""
    model = parse_model("ECMK07", codon_alphabet(1))
    states = list(model.alphabet.states)
    rates = np.zeros((61, 61))
    rates[np.triu_indices(61, 1)] = model.rates
    assert rates[states.index("TTC"), states.index("TTT")] == 16.011531
    assert rates[states.index("GGA"), states.index("GGG")] == 25.640860
    assert model.frequencies[states.index("TTT")] == pytest.approx(0.021414, abs=1e-6)
    of_nucleotides = parse_model("ECMK07+F1X4{0.1/0.2/0.3/0.4}", codon_alphabet(1))
    np.testing.assert_array_equal(of_nucleotides.rates, model.rates)
    assert of_nucleotides.frequencies[states.index("GGA")] == pytest.approx(
        0.3 * 0.3 * 0.1 / (1.0 - 0.4 * (0.1 * 0.1 + 2 * 0.1 * 0.3))
    )
    with pytest.raises(ModelError, match="nearest known is"):
        parse_model("CODON2_ECMK08", codon_alphabet(2))


@pytest.mark.parametrize(
    ("text", "number", "message"),
    [
        ("GTR", 1, "model GTR is for nucleotides, but the alignment's data type is CODON1"),
        ("CODON2_GY", 1, "model CODON2_GY is for CODON2, but the alignment's data type is CODON1"),
        ("ECMK07", 2, "model ECMK07 is for the standard genetic code"),
        ("GY94", 1, "nearest known is GY"),
        ("KOSI07", 1, "nearest known is ECMK07"),
        ("MH", 1, "nearest known is MG"),
        ("GY{0.2}", 1, "model GY: needs omega and kappa above 0, in braces"),
        ("MG{0.2/2}", 1, "model MG: needs omega alone above 0, in braces"),
        ("MGK{0/2}", 1, "omega and kappa above 0"),
        ("MG+F", 1, "the rates of MG go by frequencies of nucleotides"),
        ("GY+F3X4{0.1/0.2/0.3/0.4}", 1, "expected 12 frequencies, not 4"),
        ("GY+F1X4{0.1/0.2/0.3/0.5}", 1, "frequencies of nucleotides must be above 0 and sum to 1"),
        ("GY+F2X4", 1, "cannot read the frequencies +F2X4"),
    ],
)
def test_what_is_refused(text: str, number: int, message: str) -> None:
    with pytest.raises(ModelError) as raised:
        parse_model(text, codon_alphabet(number))
    assert message in raised.value.message


def test_models_of_other_data() -> None:
    for alphabet in (DNA, PROTEIN):
        with pytest.raises(ModelError, match="model GY is for codons, but"):
            parse_model("GY", alphabet)
        with pytest.raises(ModelError, match="is not a codon model"):
            parse_model("POISSON+F3X4" if alphabet is PROTEIN else "JC+F1X4", alphabet)
        assert CODONS.model_of("GY", alphabet) is None
    assert CODONS.data_of("LG") is None
    with pytest.raises(InputError, match="'7' is not a genetic code"):
        model_alphabet("CODON7_GY")


def test_iq_tree_s_words() -> None:
    assert in_iq_tree("CODON2_GY+F3X4+G4") == "GY+F3X4+G4"
    assert in_iq_tree("GY+FC+I") == "GY+F+I"
    assert from_iq_tree("GY+FQ+G4") == "GY+FE+G4"


def test_codons_have_no_mixtures_yet() -> None:
    with pytest.raises(ModelError, match="no mixtures of models with omega yet"):
        parse_model("MIX{GY+FE,MG+FE}", codon_alphabet(1))
    with pytest.raises(ModelError, match=r"model GY has omega: \+FMIX cannot be added yet"):
        parse_model("GY+FMIX{FC,FE}", codon_alphabet(1))
