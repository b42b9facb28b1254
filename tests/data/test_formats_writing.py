"""Written alignments are read back as they were; NEXUS is what its readers want."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.alphabet import BINARY, DNA, PHASED, PROTEIN, Alphabet
from mltree.data.codons import codon_alphabet
from mltree.data.formats import ENDINGS, FORMATS, format_of, write_alignment
from mltree.system.errors import InputError

LAYOUTS = {
    "phylip": "PHYLIP",
    "phylip-strict": "PHYLIP, strict names",
    "phylip-interleaved": "PHYLIP interleaved",
    "fasta": "FASTA",
}


def random_alignment(case: int, alphabet: Alphabet) -> tuple[list[str], np.ndarray]:
    rng = random.Random(case)
    characters = [c for c in alphabet.symbols if c not in "?."]
    sites, taxa = rng.choice([1, 9, 60, 61, 200]), rng.choice([4, 11])
    names = [f"{rng.choice(['t', 'Taxon_', 'é'])}{n}" for n in range(taxa)]
    rows = [[ord(rng.choice(characters)) for _ in range(sites)] for _ in names]
    return names, np.array(rows, np.uint8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.cases(12, 1500)
def test_what_is_written_is_read_back(tmp_path: Path, layout: str, case: int) -> None:
    alphabet = PROTEIN if case % 3 == 0 else DNA
    names, characters = random_alignment(case, alphabet)
    path = tmp_path / "a"
    path.write_bytes(write_alignment(names, characters, alphabet, layout))
    found = read_alignment(path, alphabet.name)
    assert found.names == tuple(names)
    np.testing.assert_array_equal(found.characters, characters)
    if characters.shape[1] > 60 and layout != "phylip-strict":
        assert found.file_format == LAYOUTS[layout]


def test_strict_names_have_ten_characters() -> None:
    names, rows = ["abcdefghij", "b", "c", "d"], np.full((4, 3), ord("A"), np.uint8)
    first = write_alignment(names, rows, DNA, "phylip-strict").splitlines()[1:3]
    assert first == [b"abcdefghijAAA", b"b         AAA"]
    with pytest.raises(InputError, match="'abcdefghijk' is longer than the 10 characters"):
        write_alignment(["abcdefghijk", *names[1:]], rows, DNA, "phylip-strict")


def test_nexus_has_a_data_block() -> None:
    rows = np.frombuffer(b"AC-GTR", np.uint8).reshape(2, 3)
    text = write_alignment(["Homo_sapiens", "it's-one"], rows, DNA, "nexus").decode()
    assert text.splitlines() == [
        "#NEXUS",
        "BEGIN DATA;",
        "  DIMENSIONS NTAX=2 NCHAR=3;",
        "  FORMAT DATATYPE=DNA MISSING=? GAP=-;",
        "  MATRIX",
        "    Homo_sapiens  AC-",
        "    'it''s-one'   GTR",
        "  ;",
        "END;",
    ]
    kinds = {PROTEIN: "PROTEIN", codon_alphabet(): "DNA", PHASED: "DNA", BINARY: "STANDARD"}
    for alphabet, word in kinds.items():
        text = write_alignment(["a", "b"], rows, alphabet, "nexus").decode()
        assert f"DATATYPE={word} " in text


@pytest.mark.parametrize("ending", ENDINGS)
def test_names_tell_formats(ending: str) -> None:
    for name in (f"x{ending}", f"x{ending.upper()}", f"a.b{ending}.gz"):
        assert format_of(name) in FORMATS
    with pytest.raises(InputError, match="does not show the format"):
        format_of(f"x{ending}.txt")
