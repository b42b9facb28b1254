"""Codons: triplets as sets of codons, what is refused, and where it is said to be."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.alphabet import DNA, PROTEIN, UNKNOWN
from mltree.data.codons import GENETIC_CODES, CodonAlphabet, codon_alphabet
from mltree.data.datatype import Letters, alphabet_named
from mltree.data.partitions import Partitioned, merged, read_partitioned
from mltree.data.parts import read_partitions
from mltree.data.patterns import compress
from mltree.models.partitioned import model_alphabet
from mltree.system.errors import InputError

IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "U": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT",
    "K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT", "-": "ACGT",
    "?": "ACGT", "X": "ACGT", ".": "ACGT", "O": "ACGT",
}  # fmt: skip


def matrix(*rows: str) -> np.ndarray:
    return np.array([list(row.encode()) for row in rows], np.uint8)


def written(folder: Path, text: str, name: str = "codons.fa") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def fasta(*rows: str) -> str:
    return "".join(f">{name}\n{row}\n" for name, row in zip("abcdefgh", rows, strict=False))


@pytest.mark.parametrize("number", GENETIC_CODES)
def test_states_are_the_codons_of_amino_acids(number: int) -> None:
    alphabet = codon_alphabet(number)
    codons = "".join(alphabet.states)
    codes = alphabet.encode(matrix(codons.lower()))[0]
    assert (codes == np.arange(alphabet.n_states)).all()
    assert (alphabet.tip_table[codes] == np.eye(alphabet.n_states)).all()
    assert alphabet.decode(codes).tobytes().decode() == codons
    assert (alphabet.state_codes == codes).all()
    assert codon_alphabet(number) is alphabet


@pytest.mark.cases(8, 500)
def test_a_triplet_is_the_set_of_codons_that_it_may_be(case: int) -> None:
    rng = np.random.default_rng(case)
    code = GENETIC_CODES[int(rng.choice([1, 2, 6, 27]))]
    letters = np.array(list("ACGT" * 6 + "".join(IUPAC)))
    rows = ["".join(row) for row in rng.choice(letters, (5, 3 * 40))]
    alphabet = codon_alphabet(code.number).covering([matrix(*rows)])
    codes = alphabet.encode(matrix(*rows))
    for row, own in zip(rows, codes, strict=True):
        for place, found in enumerate(own):
            triplet = row[3 * place : 3 * place + 3]
            spelled = map("".join, itertools.product(*(IUPAC[letter] for letter in triplet)))
            meant = set(spelled) & set(code.codons)
            if not meant:
                assert found == UNKNOWN, triplet
                continue
            possible = alphabet.tip_table[found] == 1
            assert {c for c, has in zip(code.codons, possible, strict=True) if has} == meant
    known = np.where(codes == UNKNOWN, alphabet.gap_code, codes)
    assert (alphabet.encode(alphabet.decode(known)) == known).all()
    assert alphabet.covering([matrix(*rows)]) is alphabet


def test_more_sets_than_codes() -> None:
    certain = codon_alphabet(1)
    triplets = ["".join(t) for t in itertools.product("CGTYSK", "ACGTRYSWKM", "ACGTRYSWKM")]
    with pytest.raises(InputError, match="different ambiguous codons, but there is room for 193"):
        certain.covering([matrix("".join(triplets))])
    some = certain.covering([matrix("".join(triplets[:150]))])
    assert certain.n_codes < some.n_codes <= UNKNOWN
    assert some.encode(matrix("NNN---"))[0].tolist() == [some.gap_code] * 2


def test_words_for_codons() -> None:
    assert alphabet_named("codon") is alphabet_named("CODON1") is codon_alphabet(1)
    assert alphabet_named("codon:2") is alphabet_named("codon:vertebrate mito") is codon_alphabet(2)
    with pytest.raises(InputError, match="'17' is not a genetic code"):
        alphabet_named("codon:17")


def test_the_model_makes_nucleotides_codons(tmp_path: Path) -> None:
    wanted = model_alphabet("GY+F3X4")
    assert wanted is codon_alphabet(1)
    assert model_alphabet("CODON5_MGK{0.2/2}+G4") is codon_alphabet(5)
    path = written(tmp_path, fasta("ATGGCC", "ATGGCA", "ATGGCC", "ATAGCC"))
    read = read_alignment(path, model_alphabet=wanted)
    assert (read.alphabet.name, read.n_sites, read.seen) == (
        "CODON1",
        2,
        "100% ACGT, standard code",
    )
    assert read_alignment(path).alphabet is DNA
    proteins = Letters.of(matrix("MEFILPQ", "MEFILPQ"))
    assert proteins.alphabet(wanted) is PROTEIN


def test_a_nexus_file_of_dna_has_codons_too(tmp_path: Path) -> None:
    nexus = (
        "#NEXUS\nbegin data;\ndimensions ntax=4 nchar=6;\nformat datatype=dna gap=-;\nmatrix\n"
        "a ATGGCC\nb ATGGCA\nc ATGGCC\nd ATAGCC\n;\nend;\n"
    )
    read = read_alignment(written(tmp_path, nexus), model_alphabet=codon_alphabet(1))
    assert isinstance(read.alphabet, CodonAlphabet)


@pytest.mark.parametrize(
    ("text", "word", "message", "line"),
    [
        (
            fasta("ATGGCC", "ATGTAA", "ATGGCC", "ATAGCC"),
            "codon",
            "taxon b, codon 2 (from site 4): TAA is a stop codon in the standard code",
            4,
        ),
        (
            fasta("ATGGCC", "ATGGCC", "ATGGCC", "TARGCC"),
            "codon",
            "taxon d, codon 1 (from site 1): TAR is a stop codon",
            8,
        ),
        (
            fasta("ATGGCC", "ATGGCC", "ATGAGA", "ATGGCC"),
            "codon:2",
            "AGA is a stop codon in the vertebrate mitochondrial code",
            6,
        ),
        (fasta("ATGGCC", "ATGG!C", "ATGGCC", "ATAGCC"), "codon", "'!' is not a DNA character", 4),
        (fasta("ATGGC", "ATGGC", "ATGGC", "ATAGC"), "codon", "the alignment has 5 nucleotides", 0),
    ],
)
def test_what_is_no_codon(tmp_path: Path, text: str, word: str, message: str, line: int) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as raised:
        read_alignment(path, word)
    assert message in raised.value.message
    assert (raised.value.line or 0) == line


def test_what_is_a_stop_codon_may_be_none_in_another_code(tmp_path: Path) -> None:
    path = written(tmp_path, fasta("ATGTGA", "ATGTGA", "ATGTGG", "ATATGA"))
    assert read_alignment(path, "codon:4").n_sites == 2


def parted(folder: Path, parts: str, *rows: str) -> Partitioned:
    scheme = read_partitions(written(folder, parts, "parts.txt"))
    return read_partitioned(written(folder, fasta(*rows)), scheme, model_alphabet)


ROWS = ("ATGRCCACGTGA", "ATGGCAACCTGG", "ATAGCCAC-TGA", "ATGGCCACGTRA")


def test_parts_of_codons_beside_nucleotides(tmp_path: Path) -> None:
    text = "CODON, one = 1-6\nDNA, two = 7-9\nCODON4_GY+F1X4, three = 10-12\nMG, four = 13-15\n"
    data = parted(tmp_path, text, *(row + "AAY" for row in ROWS))
    names = ["CODON1", "DNA", "CODON4", "CODON1"]
    assert [data.alphabet(n).name for n in range(4)] == names
    assert data.part_sites == (2, 3, 1, 1)
    assert data.n_sites == 7
    assert data.alphabet(0) is data.alphabet(3)
    assert [part.model for part in data.parts] == [None, None, "CODON4_GY+F1X4", "MG"]
    for number in range(4):
        own, sites = data.patterns(number), data.parts[number].sites
        alone = written(tmp_path, fasta(*((row + "AAY")[sites[0] : sites[-1] + 1] for row in ROWS)))
        whole = compress(read_alignment(alone, names[number]))
        written_out = own.alphabet.decode(own.expand()).tobytes()
        assert written_out == whole.alphabet.decode(whole.expand()).tobytes()
    both = merged(data, [(0, 3), (1,), (2,)])
    assert both.part_sites == (3, 3, 1)


def test_parts_that_are_no_codons(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="part one has 5 nucleotides, not a multiple of three"):
        parted(tmp_path, "CODON, one = 1-5\nDNA, two = 6-12\n", *ROWS)
    with pytest.raises(InputError, match=r"codon 1 \(from site 10\): TGA is a stop .*\(part two\)"):
        parted(tmp_path, "DNA, one = 1-9\nCODON, two = 10-12\n", *ROWS)
