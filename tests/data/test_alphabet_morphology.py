"""Binary and multistate characters: symbols, detection, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.data import alphabet
from mltree.data.alignments import read_alignment
from mltree.data.alphabet import (
    BINARY,
    DNA,
    MAX_STATES,
    PROTEIN,
    SYMBOLS,
    UNKNOWN,
    Alphabet,
    multistate,
)
from mltree.data.datatype import Letters, alphabet_named
from mltree.data.formats import write_alignment
from mltree.system.errors import InputError


def matrix(*rows: str) -> np.ndarray:
    return np.array([list(row.encode()) for row in rows], np.uint8)


def written(folder: Path, text: str) -> Path:
    path = folder / "characters"
    path.write_text(text)
    return path


def test_symbols_are_distinct_and_no_gaps() -> None:
    assert len(set(SYMBOLS)) == MAX_STATES == 64
    assert not set(SYMBOLS) & set("-?.")


@pytest.mark.parametrize("states", [2, 6, 36, 64])
def test_codes(states: int) -> None:
    alphabet = multistate(states)
    codes = alphabet.encode(matrix(SYMBOLS[:states].lower())[0])
    assert codes.tolist() == list(range(states))
    assert (alphabet.tip_table[codes] == np.eye(states)).all()
    assert alphabet.encode(matrix("-?.")[0]).tolist() == [alphabet.gap_code] * 3
    assert (alphabet.encode(matrix(SYMBOLS[states:])[0]) == UNKNOWN).all() if states < 64 else True
    assert multistate(states) is alphabet


KINDS: dict[str, tuple[Alphabet, tuple[str, ...]]] = {
    "binary": (BINARY, ("0101-", "1?010", "00000")),
    "one state only": (BINARY, ("00", "00", "00")),
    "four states": (multistate(4), ("0123", "0?23", "0-00")),
    "digits and a few letters": (multistate(12), ("0123B", "01236", "0000-")),
    "DNA with a typing error": (DNA, ("ACGT0", "ACGTA", "ACCTA")),
    "protein with a typing error": (PROTEIN, ("MEFIL0PQ", "MEFILPPQ", "MEFILPPQ")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_characters_tell(kind: str) -> None:
    alphabet, rows = KINDS[kind]
    assert Letters.of(matrix(*rows)).looks_like is alphabet


def test_a_model_s_states_are_as_many_as_it_says() -> None:
    letters = Letters.of(matrix("012", "110"))
    assert letters.alphabet(multistate(6)) is multistate(6)
    assert letters.alphabet(PROTEIN) is multistate(3)
    assert letters.sure
    assert not letters.doubtful
    assert Letters.of(matrix("ABC", "BCA")).alphabet(multistate(13)) is multistate(13)


def test_words_for_data_types() -> None:
    assert alphabet_named("bin") is alphabet_named("binary") is BINARY
    assert alphabet_named("MULTI6") is multistate(6)
    assert alphabet_named("morph", matrix("0213")) is multistate(4)
    with pytest.raises(InputError, match="2 to 64 states"):
        alphabet_named("MULTI65")
    with pytest.raises(InputError, match="unknown data type 'multistate'"):
        alphabet_named("multistate")


NEXUS = """#NEXUS
BEGIN DATA;
  DIMENSIONS NTAX=4 NCHAR=3;
  FORMAT DATATYPE=STANDARD SYMBOLS="0 1 2" MISSING=? GAP=-;
  MATRIX
    a 012
    b 1{1}0
    c %s
    d ?-1
  ;
END;
"""


def test_standard_data_of_nexus(tmp_path: Path) -> None:
    path = written(tmp_path, NEXUS % "000")
    assert read_alignment(path).alphabet is multistate(3)
    assert read_alignment(path, model_alphabet=multistate(5)).alphabet is multistate(5)
    alignment = read_alignment(written(tmp_path, NEXUS % "0(01)0"))
    code = alignment.alphabet.encode(alignment.characters)[2, 1]
    assert alignment.alphabet.tip_table[code].tolist() == [1, 1, 0]


def test_a_state_that_the_data_cannot_have(tmp_path: Path) -> None:
    path = written(tmp_path, "4 3\na 010\nb 021\nc 110\nd 000\n")
    with pytest.raises(InputError, match="taxon b, site 2: '2' is not a BIN character") as raised:
        read_alignment(path, "binary")
    assert "states are 0 to 1" in str(raised.value.hint)
    assert alphabet.characters_named("GTR") is None


SETS = ("01{02}1", "1(2 1)0?", "{0,1,2}120", "2{0?}{1}2")
"""Sets of states: ambiguous, of all states, with an unknown one, of one."""


@pytest.mark.parametrize("form", ["FASTA", "PHYLIP", "interleaved", "NEXUS"])
def test_sets_of_states_are_one_character(tmp_path: Path, form: str) -> None:
    rows = dict(zip("abcd", SETS, strict=True))
    text = "".join(f">{name}\n{row}\n" for name, row in rows.items())
    if form == "PHYLIP":
        text = "4 4\n" + "".join(f"{name}(1)  {row}\n" for name, row in rows.items())
    elif form == "interleaved":
        cut = {"a": ("01", "{02}1"), "b": ("1(21)", "0?"), "c": ("{012}1", "20"), "d": ("2?", "12")}
        text = "4 4\n" + "".join(f"{name} {one}\n" for name, (one, _) in cut.items())
        text += "\n" + "".join(f"{two}\n" for _, two in cut.values())
    elif form == "NEXUS":
        body = "".join(f"{name} {row}\n" for name, row in rows.items())
        text = NEXUS.replace("NCHAR=3", "NCHAR=4")
        text = text[: text.index("    a ")] + body + ";\nEND;\n"
    alignment = read_alignment(written(tmp_path, text))
    vectors = alignment.alphabet.tip_table[alignment.alphabet.encode(alignment.characters)]
    masks = (vectors @ [1, 2, 4]).astype(int)
    assert masks.tolist() == [[1, 2, 5, 2], [2, 6, 1, 7], [7, 2, 4, 1], [4, 7, 2, 4]]
    back = write_alignment(alignment.names, alignment.characters, alignment.alphabet, "fasta")
    again = read_alignment(written(tmp_path, back.decode()))
    assert (again.characters == alignment.characters).all()
    assert again.alphabet is alignment.alphabet


def test_sets_in_binary_data_and_in_dna(tmp_path: Path) -> None:
    binary = read_alignment(written(tmp_path, ">a\n01{01}\n>b\n110\n>c\n000\n"))
    assert binary.alphabet is BINARY
    assert BINARY.encode(binary.characters)[0].tolist() == [0, 1, BINARY.gap_code]
    dna = read_alignment(written(tmp_path, ">a\nAC{AG}T\n>b\nACGT\n>c\nACG(ct)\n"))
    assert dna.alphabet is DNA
    assert bytes(DNA.decode(DNA.encode(dna.characters))[:, 2:].ravel()) == b"RTGTGY"
    with pytest.raises(InputError, match=r"taxon a, site 3: the set \{AE\} is not a DNA character"):
        read_alignment(written(tmp_path, ">a\nAC{AE}T\n>b\nACGT\n>c\nACGT\n"), "DNA")
