"""The genetic codes, by what NCBI's tables are known for."""

from __future__ import annotations

import pytest

from mltree.data.codons import GENETIC_CODES, STANDARD, STOP, genetic_code
from mltree.system.errors import InputError

STOPS = {
    1: "TAA TAG TGA", 2: "AGA AGG TAA TAG", 3: "TAA TAG", 4: "TAA TAG", 5: "TAA TAG", 6: "TGA",
    9: "TAA TAG", 10: "TAA TAG", 11: "TAA TAG TGA", 12: "TAA TAG TGA", 13: "TAA TAG", 14: "TAG",
    15: "TAA TGA", 16: "TAA TGA", 21: "TAA TAG", 22: "TAA TCA TGA", 23: "TAA TAG TGA TTA",
    24: "TAA TAG", 25: "TAA TAG", 26: "TAA TAG TGA", 27: "", 28: "", 29: "TGA", 30: "TGA", 31: "",
    32: "TAA TGA", 33: "TAG",
}  # fmt: skip
"""Of each code, in NCBI's version 4.6; codons that may be an amino acid are none."""


def test_stop_codons() -> None:
    found = {
        number: " ".join(codon for codon, acid in code.amino_acids.items() if acid == STOP)
        for number, code in GENETIC_CODES.items()
    }
    assert found == STOPS
    for code in GENETIC_CODES.values():
        assert list(code.amino_acids) == sorted(STANDARD.amino_acids)
        assert len(code.codons) == 64 - len(STOPS[code.number].split())


def test_amino_acids() -> None:
    """Code 1 in NCBI's order, and codons that tell others from it."""
    order = sorted(STANDARD.amino_acids, key=lambda codon: ["TCAG".index(base) for base in codon])
    assert (
        "".join(STANDARD.amino_acids[codon] for codon in order)
        == "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
    )
    others = {
        2: "ATA M",
        3: "CTA T",
        9: "AAA N",
        10: "TGA C",
        12: "CTG S",
        24: "AGG K",
        30: "TAA E",
    }
    for number, told in others.items():
        codon, acid = told.split()
        assert GENETIC_CODES[number].amino_acids[codon] == acid


def test_codes_have_numbers_and_names() -> None:
    assert genetic_code("") is genetic_code("1") is genetic_code("Standard") is STANDARD
    assert genetic_code("vertebrate_mito") is genetic_code(" 2") is GENETIC_CODES[2]
    assert genetic_code("alternative-yeast nuclear").number == 12
    for text in ("7", "0", "34", "99999999999999999999", "martian"):
        with pytest.raises(InputError, match="is not a genetic code") as raised:
            genetic_code(text)
        assert "2 vertebrate mitochondrial" in str(raised.value.hint)
    with pytest.raises(InputError, match="several genetic codes begin 'alternative'"):
        genetic_code("alternative")
