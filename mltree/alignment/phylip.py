"""PHYLIP: a header with the numbers of taxa and sites, then names and sequences.

The format never says which of its dialects a file is in, so each is tried in turn and the first
that yields as many characters in every row as the header promises is taken:

* interleaved (a block of T lines, then more blocks without names) or sequential (each taxon's
  lines together); with one line per taxon the two are the same;
* relaxed names (up to the first white space) or strict ones (the first ten characters, in which
  blanks become ``_``, as in Newick).

An ``I`` or ``S`` behind the two numbers, as old PHYLIP programs want it, is accepted; white space
inside sequences never counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mltree.alignment.reading import Lines, Reading
from mltree.alignment.source import WHITESPACE, fold

__all__ = [
    "Header",
    "Splitter",
    "interleaved",
    "read_phylip",
    "relaxed_name",
    "sequential_spans",
    "strict_name",
]

STRICT_NAME_WIDTH = 10


Splitter = Callable[[bytes], tuple[bytes, int]]
"""A taxon's first line → its name and the bytes that the name takes up."""


@dataclass(frozen=True)
class Header:
    """What the first line promises."""

    taxa: int
    sites: int

    @classmethod
    def of(cls, line: bytes) -> Header | None:
        """The header that a line is; None if it is none. An ``I`` or ``S`` may follow."""
        fields = line.split()
        if len(fields) < 2 or not all(field.isdigit() and len(field) < 12 for field in fields[:2]):
            return None
        if any(option.upper() not in (b"I", b"S") for option in fields[2:]):
            return None
        return cls(int(fields[0]), int(fields[1]))


def read_phylip(lines: Lines) -> Reading | None:
    """The file in the first dialect that fits its header; None if none does."""
    header = Header.of(lines.text[0])
    if header is None or not 0 < header.taxa < len(lines.text):
        return None
    for reading in _dialects(lines, header):
        if all(len(row) == header.sites for row in reading.rows) and all(reading.names):
            return reading
    return None


def _dialects(lines: Lines, header: Header) -> Iterator[Reading]:
    for names, split in (("", relaxed_name), (", strict names", strict_name)):
        if len(lines.text) == header.taxa + 1:
            yield interleaved(lines, header, split, f"PHYLIP{names}")
            continue
        if (len(lines.text) - 1) % header.taxa == 0:
            yield interleaved(lines, header, split, f"PHYLIP interleaved{names}")
        spans, left = sequential_spans(lines, header, split)
        if left == 0 and len(spans) == header.taxa and spans[-1].stop == len(lines.text):
            yield _assemble(lines, spans, split, f"PHYLIP sequential{names}")


def relaxed_name(line: bytes) -> tuple[bytes, int]:
    """The name up to the first white space."""
    fields = line.split(None, 1)
    rest = len(fields[1]) if len(fields) > 1 else 0
    return fields[0], len(line) - rest


def strict_name(line: bytes) -> tuple[bytes, int]:
    """The name in the first ten characters, its blanks as underscores."""
    return b"_".join(line[:STRICT_NAME_WIDTH].split()), min(STRICT_NAME_WIDTH, len(line))


def interleaved(lines: Lines, header: Header, split: Splitter, layout: str) -> Reading:
    """Line i of every block belongs to taxon i."""
    spans = [range(1 + row, len(lines.text), header.taxa) for row in range(header.taxa)]
    return _assemble(lines, spans, split, layout)


def sequential_spans(lines: Lines, header: Header, split: Splitter) -> tuple[list[range], int]:
    """The lines of each taxon, which takes lines until it has all its sites.

    Also how many sites the last taxon still lacks; negative if its last line has too many, and
    then the walk ends there.
    """
    spans: list[range] = []
    line, missing = 1, 0
    while line < len(lines.text) and len(spans) < header.taxa and missing == 0:
        start, missing = line, header.sites
        skip = split(lines.text[line])[1]
        while line < len(lines.text) and (missing > 0 or line == start):
            missing -= len(lines.text[line][skip:].translate(None, WHITESPACE))
            line, skip = line + 1, 0
        spans.append(range(start, line))
    return spans, missing


def _assemble(lines: Lines, spans: list[range], split: Splitter, layout: str) -> Reading:
    heads = [split(lines.text[span.start]) for span in spans]
    rows = [
        fold([lines.text[span.start][width:], *lines.text[_after_first(span)]])
        for span, (_, width) in zip(spans, heads, strict=True)
    ]
    return Reading(
        layout=layout,
        names=[name for name, _ in heads],
        rows=rows,
        pieces=list(spans),
        name_width=[width for _, width in heads],
    )


def _after_first(span: range) -> slice:
    """The indices of a span but the first, as a slice."""
    return slice(span.start + span.step, span.stop, span.step)
