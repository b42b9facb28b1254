"""NEXUS, Clustal and Stockholm as FASTA's lines, each with its number in the file.

What follows (names, lengths, characters, and where a fault lies) is then the same for all formats.
"""

from __future__ import annotations

from collections.abc import Callable

from mltree.alignment.clustal import clustal_rows
from mltree.alignment.nexus import nexus_rows
from mltree.alignment.reading import Lines
from mltree.alignment.rows import Rows
from mltree.alignment.stockholm import stockholm_rows

__all__ = ["as_records"]

CLUSTAL_PROGRAMS = (b"CLUSTAL", b"MUSCLE", b"PROBCONS", b"T-COFFEE", b"KALIGN", b"MSAPROBS")
"""First words of files in Clustal's format: its own, and those of programs that borrow it."""

READERS: tuple[tuple[tuple[bytes, ...], Callable[[Lines], Rows]], ...] = (
    ((b"#NEXUS",), nexus_rows),
    (CLUSTAL_PROGRAMS, clustal_rows),
    ((b"# STOCKHOLM",), stockholm_rows),
)


def as_records(lines: Lines) -> Lines:
    """The lines of a file in one of these formats as FASTA's; those of any other as they are.

    Raises:
        InputError: the file is not what its first line says.
    """
    first = lines.text[0].lstrip().upper()
    for starts, read in READERS:
        if first.startswith(starts):
            return read(lines).records(lines)
    return lines
