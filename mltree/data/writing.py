"""Alignments as text: PHYLIP of three kinds, FASTA and NEXUS.

Everything here is read back by :func:`mltree.data.alignments.read_alignment` and by the programs
that the formats come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.formats import STRICT_NAME_WIDTH
from mltree.system.arrays import UInt8
from mltree.system.errors import InputError

LINE = 60
"""Characters of a sequence in a line of FASTA, interleaved PHYLIP and NEXUS; a multiple of ten."""

ENDINGS = {
    ".phy": "phylip",
    ".phylip": "phylip",
    ".fasta": "fasta",
    ".fas": "fasta",
    ".fa": "fasta",
    ".faa": "fasta",
    ".fna": "fasta",
    ".nex": "nexus",
    ".nexus": "nexus",
}
"""The format that a file's name ends in."""

_NEXUS_WORD = re.compile(r"[A-Za-z0-9_.]+")
"""Names that are one word in NEXUS without quotes; - and others are marks there."""

Rows = Sequence[tuple[str, bytes]]
"""Names and sequences, all of one length."""


def write_alignment(
    names: Sequence[str], characters: UInt8, alphabet: Alphabet, file_format: str
) -> bytes:
    """The text of an alignment, u8 [T, sites] of ASCII, in one of :data:`FORMATS`.

    Raises: InputError: the format cannot have its names.
    """
    rows = [(name, row.tobytes()) for name, row in zip(names, characters, strict=True)]
    return b"\n".join(FORMATS[file_format](rows, alphabet)) + b"\n"


def format_of(path: str) -> str:
    """The format for a path's ending, compression aside.

    Raises: InputError: it stands for none.
    """
    for ending, file_format in ENDINGS.items():
        if path.lower().removesuffix(".gz").endswith(ending):
            return file_format
    hint = f"known: {' '.join(ENDINGS)}, and .gz behind them; or name it with --format"
    raise InputError(f"{path}: the name does not tell the format", hint=hint)


def _header(rows: Rows) -> bytes:
    return b"%d %d" % (len(rows), len(rows[0][1]))


def _padded(rows: Rows) -> list[bytes]:
    """The names, all as wide as the widest and two blanks."""
    names = [name.encode() for name, _ in rows]
    width = max(map(len, names)) + 2
    return [name.ljust(width) for name in names]


def _relaxed(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    """A line a taxon: the name, blanks, the sequence."""
    yield _header(rows)
    for name, (_name, sequence) in zip(_padded(rows), rows, strict=True):
        yield name + sequence


def _interleaved(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    """Blocks of :data:`LINE` sites; the names are in the first."""
    names = _padded(rows)
    yield _header(rows)
    for start in range(0, len(rows[0][1]), LINE):
        if start:
            yield b""
        for name, (_name, sequence) in zip(names, rows, strict=True):
            head = name if start == 0 else b" " * len(names[0])
            yield head + b" ".join(_cut(sequence[start : start + LINE], 10))


def _strict(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    """Names of just ten characters, as PHYLIP's own programs want them."""
    for name, _sequence in rows:
        if len(name.encode()) > STRICT_NAME_WIDTH:
            raise InputError(
                f"{name!r} is longer than the {STRICT_NAME_WIDTH} characters of a strict PHYLIP "
                "name",
                taxon=name,
                hint="write relaxed PHYLIP, or rename the taxon",
            )
    yield _header(rows)
    for name, sequence in rows:
        yield name.encode().ljust(STRICT_NAME_WIDTH) + sequence


def _fasta(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    return chain.from_iterable((b">" + name.encode(), *_cut(row, LINE)) for name, row in rows)


def _nexus(rows: Rows, alphabet: Alphabet) -> Iterator[bytes]:
    """A DATA block, which every program that reads NEXUS knows."""
    sequences = ((b"DNA", DNA), (b"PROTEIN", PROTEIN))
    datatype = next((word for word, of in sequences if alphabet.is_spelled_as(of)), b"STANDARD")
    words = [(_nexus_word(name), sequence) for name, sequence in rows]
    yield b"#NEXUS"
    yield b"BEGIN DATA;"
    yield b"  DIMENSIONS NTAX=%d NCHAR=%d;" % (len(rows), len(rows[0][1]))
    yield b"  FORMAT DATATYPE=%s MISSING=? GAP=-;" % datatype
    yield b"  MATRIX"
    for name, (_name, sequence) in zip(_padded(words), rows, strict=True):
        yield b"    " + name + sequence
    yield b"  ;"
    yield b"END;"


def _nexus_word(name: str) -> str:
    return name if _NEXUS_WORD.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _cut(sequence: bytes, width: int) -> Iterator[bytes]:
    return (sequence[start : start + width] for start in range(0, len(sequence), width))


FORMATS: dict[str, Callable[[Rows, Alphabet], Iterator[bytes]]] = {
    "phylip": _relaxed,
    "phylip-strict": _strict,
    "phylip-interleaved": _interleaved,
    "fasta": _fasta,
    "nexus": _nexus,
}
"""Writers by name. ``phylip`` is relaxed and sequential: names of any length, a line a taxon."""
