"""Sequences from memory are read as those of a file."""

from __future__ import annotations

import pytest

from mltree.data.alignments import MemoryAlignment, read_sequences
from mltree.system.errors import InputError

GIVEN = MemoryAlignment(("a b", "c"), (b"ac-T", b"ACGT"), "what was given")


def test_names_and_rows_are_kept() -> None:
    found = read_sequences(GIVEN, lambda _: 2)
    assert found.names == ("a b", "c")
    assert found.characters.tobytes() == b"AC-TACGT"
    assert (found.lines.path, found.reading.file_format) == ("what was given", "memory")
    assert str(GIVEN) == "what was given"
    assert GIVEN.fasta() == ">a b\nac-T\n>c\nACGT\n"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (MemoryAlignment((), ()), "the alignment: there are no sequences"),
        (MemoryAlignment(("a", "a"), (b"A", b"C")), "the alignment: taxon a occurs twice"),
        (MemoryAlignment(("a", "b"), (b"A", b"CC")), "the alignment: taxon b has 2 sites"),
        (MemoryAlignment(("a", ""), (b"A", b"C")), "the alignment: 1 taxon has no name"),
        (MemoryAlignment(("a", "b"), (b"", b"")), "the alignment: the alignment has no sites"),
    ],
)
def test_faults_have_no_line(given: MemoryAlignment, line: str) -> None:
    with pytest.raises(InputError) as raised:
        read_sequences(given, lambda _: 2)
    assert line in str(raised.value)
    assert "line" not in str(raised.value)
