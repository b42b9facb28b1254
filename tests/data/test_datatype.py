"""DNA or protein: by the letters, by the model, by the user."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.datatype import Letters
from mltree.system.errors import InputError

LG_FREQUENCIES = {
    "A": 7.9, "R": 5.6, "N": 4.2, "D": 5.3, "C": 1.3, "Q": 4.1, "E": 7.2, "G": 5.7, "H": 2.2,
    "I": 6.2, "L": 9.9, "K": 6.5, "M": 2.3, "F": 4.2, "P": 4.4, "S": 6.1, "T": 5.3, "W": 1.2,
    "Y": 3.4, "V": 6.9,
}  # fmt: skip
"""Per cent (Le and Gascuel 2008): other proteins than those that detection was made from."""

KINDS: dict[str, tuple[Alphabet, dict[str, float]]] = {
    "protein": (PROTEIN, LG_FREQUENCIES | {"X": 1.0, "-": 10.0, "B": 0.1}),
    "protein with stops": (PROTEIN, LG_FREQUENCIES | {"*": 5.0}),
    "DNA": (DNA, dict.fromkeys("ACGT", 24.0) | {"N": 4.0}),
    "DNA of one base mostly": (DNA, {"A": 70.0, "T": 28.0, "C": 1.0, "G": 1.0}),
    "RNA with gaps": (DNA, dict.fromkeys("ACGU", 10.0) | {"-": 60.0}),
    "60 % ambiguous": (DNA, dict.fromkeys("ACGT", 10.0) | dict.fromkeys("RYSWKMBDHV", 6.0)),
    "RY-coded": (DNA, {"R": 45.0, "Y": 45.0, "-": 5.0, "N": 5.0}),
    "SW-coded": (DNA, {"S": 50.0, "W": 50.0}),
    "protein without EFILPQ": (
        PROTEIN,
        {aa: share for aa, share in LG_FREQUENCIES.items() if aa not in "EFILPQ"},
    ),
    "30 % heterozygous": (DNA, dict.fromkeys("ACGT", 17.5) | dict.fromkeys("RYSWKM", 5.0)),
    "genotypes": (DNA, dict.fromkeys("ACGT", 12.0) | dict.fromkeys("RYSWKM", 8.0)),
}


def relatives(kind: str, taxa: int, sites: int, seed: int) -> np.ndarray:
    """u8 [taxa, sites] that differ from one sequence in a tenth of the sites."""
    rng = random.Random(f"{kind} {seed}")
    letters, weights = list(KINDS[kind][1]), list(KINDS[kind][1].values())
    ancestor = rng.choices(letters, weights, k=sites)
    rows = [
        [rng.choices(letters, weights)[0] if rng.random() < 0.1 else letter for letter in ancestor]
        for _ in range(taxa)
    ]
    return np.array([list("".join(row).encode()) for row in rows], np.uint8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(3, 60)
def test_every_kind_of_data_is_told_by_its_letters(kind: str, case: int) -> None:
    expected = KINDS[kind][0]
    for taxa, sites in ((4, 120), (6, 150), (30, 300)):
        letters = Letters.of(relatives(kind, taxa, sites, case))
        assert letters.looks_like is expected, letters.odds
    assert not letters.doubtful


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(3, 60)
def test_a_wrong_guess_about_few_letters_comes_with_a_doubt(kind: str, case: int) -> None:
    expected = KINDS[kind][0]
    letters = Letters.of(relatives(kind, 4, 1 + case % 12, case))
    wrong = letters.looks_like is not expected
    assert not wrong or letters.doubtful or letters.share("ACGTU") >= 0.9 or letters.odds == 0


def matrix(*rows: str) -> np.ndarray:
    return np.array([list(row.encode()) for row in rows], np.uint8)


def test_one_stop_does_not_make_a_protein() -> None:
    assert Letters.of(matrix("ACGTA", "ACGTT", "ACG*A", "AGGTA")).looks_like is DNA


def test_gaps_tell_nothing() -> None:
    letters = Letters.of(matrix("NX-?", "N.O-", "----", "NNNN"))
    assert letters.looks_like is DNA
    assert not letters.doubtful


def test_what_was_seen() -> None:
    letters = Letters.of(matrix("ACGT", "ACGR", "AC-N", "YCGT"))
    assert letters.seen(DNA) == "85.7% ACGT, 2 ambiguity codes"
    assert Letters.of(matrix("ACGU", "ACGU")).seen(DNA) == "100% ACGU"
    assert Letters.of(matrix("MEAL", "MECI")).seen(PROTEIN) == "50% EFILPQ, 25% ACGT"


def saved(folder: Path, *rows: str) -> Path:
    path = folder / "a.fa"
    path.write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows)))
    return path


def test_a_model_decides_where_the_data_can_be_that(tmp_path: Path) -> None:
    path = saved(tmp_path, "MKV", "MKV", "MRV", "MKV")
    found = read_alignment(path)
    assert found.doubtful
    for alphabet in (DNA, PROTEIN):
        told = read_alignment(path, model_alphabet=alphabet)
        assert told.alphabet is alphabet
        assert not told.doubtful


def test_a_model_does_not_make_proteins_of_nucleotides_or_the_reverse(tmp_path: Path) -> None:
    dna = saved(tmp_path, "ACGTN", "ACGTA", "ACGTA", "ACGTC")
    assert read_alignment(dna, model_alphabet=PROTEIN).alphabet is DNA
    assert read_alignment(dna, "protein", model_alphabet=DNA).alphabet is PROTEIN
    protein = saved(tmp_path, "MKELV", "MKELV", "MKELI", "MKELV")
    assert read_alignment(protein, model_alphabet=DNA).alphabet is PROTEIN


def test_a_stop_in_dna_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"site 4: '\*' is not a DNA character") as caught:
        read_alignment(saved(tmp_path, "ACGTA", "ACGTT", "ACG*A", "AGGTA"))
    assert "--data-type protein" in str(caught.value.hint)
