"""What characters mean."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN, UNKNOWN, Alphabet

# IUPAC-IUB 1984, Nucleic Acids Res. 13:3021.
IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "U": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT",
    "K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
    "O": "ACGT", "X": "ACGT", "-": "ACGT", "?": "ACGT", ".": "ACGT",
}  # fmt: skip


def codes_of(alphabet: Alphabet, text: str) -> list[int]:
    return [int(code) for code in alphabet.encode(np.frombuffer(text.encode(), np.uint8))]


def meaning(alphabet: Alphabet, character: str) -> str:
    (code,) = codes_of(alphabet, character)
    row = alphabet.tip_table[code]
    return "".join(state for state, possible in zip(alphabet.states, row, strict=True) if possible)


@pytest.mark.parametrize(("character", "states"), IUPAC.items())
def test_dna_characters_mean_what_iupac_says_in_either_case(character: str, states: str) -> None:
    assert meaning(DNA, character) == meaning(DNA, character.lower()) == states


def test_a_dna_code_is_the_set_of_its_states() -> None:
    assert codes_of(DNA, "ACGTRN-") == [1, 2, 4, 8, 5, 15, 15]
    assert DNA.gap_code == 15
    assert DNA.n_codes == 16
    assert (DNA.tip_table[0] == 1).all()


def test_other_characters_are_unknown() -> None:
    known = set("ACGTUNOXRYSWKMBDHV-?.")
    for byte in range(256):
        expected = chr(byte).upper() in known and byte < 128
        assert (DNA.code_of[byte] != UNKNOWN) == expected


def test_every_amino_acid_is_its_own_state() -> None:
    assert codes_of(PROTEIN, "ARNDCQEGHILKMFPSTWYV") == list(range(20))
    assert (PROTEIN.tip_table[:20] == np.eye(20)).all()


@pytest.mark.parametrize(
    ("character", "states"),
    [("B", "ND"), ("Z", "QE"), ("J", "IL"), *((gap, PROTEIN.states) for gap in "X*-?.")],
)
def test_protein_ambiguities(character: str, states: str) -> None:
    assert meaning(PROTEIN, character) == meaning(PROTEIN, character.lower()) == states


@pytest.mark.parametrize("character", "UO1_@")
def test_protein_without_a_state(character: str) -> None:
    assert codes_of(PROTEIN, character) == [UNKNOWN]


@pytest.mark.parametrize("alphabet", [DNA, PROTEIN])
def test_decode_undoes_encode(alphabet: Alphabet) -> None:
    symbols = alphabet.symbols.replace("?", "")
    raw = np.frombuffer(symbols.encode(), np.uint8)
    assert (alphabet.decode(alphabet.encode(raw)) == raw).all()


def test_state_masks_are_the_tip_table_as_bits() -> None:
    assert (DNA.state_masks[1:] == np.arange(1, 16)).all()
    assert int(PROTEIN.state_masks[PROTEIN.gap_code]) == (1 << 20) - 1


def test_an_alphabet_of_any_size() -> None:
    binary = Alphabet.of_states("binary", "01", gaps="-?.")
    assert codes_of(binary, "01-?.2") == [0, 1, 2, 2, 2, UNKNOWN]
    codons = Alphabet.of_states("codons", "".join(chr(48 + state) for state in range(61)), gaps="~")
    assert (codons.n_states, codons.n_codes, codons.gap_code) == (61, 62, 61)
    assert (codons.tip_table[61] == 1).all()


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        DNA.tip_table[0, 0] = 2
