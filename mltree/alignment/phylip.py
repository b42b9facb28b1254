"""PHYLIP: a header with the numbers of taxa and sites, then names and sequences.

The format never says which of its dialects a file is in, so each is tried, and every reading that
gives each row the promised number of sites is handed on:

* interleaved (a block of T lines, then more blocks without names) or sequential (each taxon's
  lines together); with one line per taxon the two are the same. An ``I`` or ``S`` behind the two
  numbers, as old PHYLIP programs want it, decides;
* relaxed names (up to the first white space), strict ones (the first ten characters), or PAML's
  (up to two blanks or a tab). Blanks inside a name become ``_``, as in Newick.

Readings that find the same names and sequences are one. White space inside sequences never counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mltree.alignment.reading import Lines, Reading
from mltree.alignment.source import WHITESPACE, fold
from mltree.values import Value

__all__ = [
    "Header",
    "Splitter",
    "interleaved",
    "phylip_readings",
    "relaxed_name",
    "sequential_spans",
    "strict_name",
]

STRICT_NAME_WIDTH = 10

Splitter = Callable[[bytes], tuple[bytes, int]]
"""A taxon's first line → its name and the bytes that the name takes up."""

_HEADER = re.compile(rb"\s*(\d{1,11})\s+(\d{1,11})\s*([ISis]?)\s*")
_SPACED_NAME = re.compile(rb"\s*(\S+(?: \S+)*)(?:  |\s*\t|\s*$)")
_LAYOUTS = {b"I": "interleaved", b"S": "sequential"}


class Header(Value):
    """What the first line promises."""

    taxa: int
    sites: int
    file_format: str | None = None
    """``"interleaved"`` or ``"sequential"`` where an ``I`` or ``S`` says so."""

    @classmethod
    def of(cls, line: bytes) -> Header | None:
        """The header that a line is; None if it is none."""
        match = _HEADER.fullmatch(line)
        if match is None:
            return None
        return cls(int(match[1]), int(match[2]), _LAYOUTS.get(match[3].upper()))


def relaxed_name(line: bytes) -> tuple[bytes, int]:
    """The name up to the first white space."""
    fields = line.split(None, 1)
    rest = len(fields[1]) if len(fields) > 1 else 0
    return fields[0], len(line) - rest


def strict_name(line: bytes) -> tuple[bytes, int]:
    """The name in the first ten characters."""
    return b"_".join(line[:STRICT_NAME_WIDTH].split()), min(STRICT_NAME_WIDTH, len(line))


def spaced_name(line: bytes) -> tuple[bytes, int]:
    """The name up to two blanks, a tab or the line's end; single blanks belong to it (PAML)."""
    match = _SPACED_NAME.match(line)
    if match is None:
        return relaxed_name(line)
    return b"_".join(match[1].split()), match.end()


_STYLES: tuple[tuple[str, Splitter], ...] = (
    ("relaxed", relaxed_name),
    ("strict names", strict_name),
    ("names with blanks", spaced_name),
)


class _Guess(Value):
    """A way to read a file: the lines of each taxon, and what its name takes of the first."""

    file_format: str
    style: str
    spans: list[range]
    heads: list[tuple[bytes, int]]
    """Name and width of each taxon's first line."""
    skipped: list[int]
    """Characters in that width, white space not counted."""

    def fits(self, lengths: list[int], sites: int) -> bool:
        """Whether every row has the promised number of sites."""
        rows = zip(self.spans, self.skipped, strict=True)
        return all(sum(lengths[line] for line in span) - skip == sites for span, skip in rows)

    def finds(self) -> object:
        """Equal for guesses that find the same names and sequences."""
        names = tuple(name for name, _ in self.heads)
        return tuple(map(tuple, self.spans)), names, tuple(self.skipped)


def phylip_readings(lines: Lines, header: Header) -> list[Reading]:
    """The different readings that give every row as many sites as the header promises."""
    if not 0 < header.taxa < len(lines.text):
        return []
    lengths = _lengths(lines)
    guesses = [
        guess for guess in _guesses(lines, lengths, header) if guess.fits(lengths, header.sites)
    ]
    different: dict[object, _Guess] = {}
    for guess in guesses:
        different.setdefault(guess.finds(), guess)
    return [_assemble(lines, guess) for guess in different.values()]


def _guesses(lines: Lines, lengths: list[int], header: Header) -> Iterator[_Guess]:
    for style, split in _STYLES:
        if header.file_format != "sequential" and (len(lines.text) - 1) % header.taxa == 0:
            yield _plan(lines, _blocks(lines, header), split, "interleaved", style)
        if header.file_format != "interleaved":
            spans, left = _runs(lines, lengths, header, split)
            if left == 0 and len(spans) == header.taxa and spans[-1].stop == len(lines.text):
                yield _plan(lines, spans, split, "sequential", style)


def _plan(
    lines: Lines, spans: list[range], split: Splitter, file_format: str, style: str = "relaxed"
) -> _Guess:
    firsts = [lines.text[span.start] for span in spans]
    heads = [split(line) for line in firsts]
    skipped = [_length(line[:width]) for line, (_, width) in zip(firsts, heads, strict=True)]
    return _Guess(file_format, style, spans, heads, skipped)


def _blocks(lines: Lines, header: Header) -> list[range]:
    """Line i of every block belongs to taxon i."""
    return [range(1 + row, len(lines.text), header.taxa) for row in range(header.taxa)]


def _runs(
    lines: Lines, lengths: list[int], header: Header, split: Splitter
) -> tuple[list[range], int]:
    """The lines of each taxon, which takes lines until it has all its sites.

    Also how many sites the last taxon still lacks; negative if its last line has too many, and
    then the reading ends there.
    """
    spans: list[range] = []
    line, missing = 1, 0
    while line < len(lines.text) and len(spans) < header.taxa and missing == 0:
        start = line
        width = split(lines.text[line])[1]
        missing = header.sites + _length(lines.text[line][:width])
        while line < len(lines.text) and (missing > 0 or line == start):
            missing -= lengths[line]
            line += 1
        spans.append(range(start, line))
    return spans, missing


def interleaved(lines: Lines, header: Header) -> Reading:
    """The file read as blocks with relaxed names, whether that fits or not."""
    return _assemble(lines, _plan(lines, _blocks(lines, header), relaxed_name, "interleaved"))


def sequential_spans(lines: Lines, header: Header) -> tuple[list[range], int]:
    """The lines of each taxon with relaxed names, and what the last one lacks; see `_runs`."""
    return _runs(lines, _lengths(lines), header, relaxed_name)


def _lengths(lines: Lines) -> list[int]:
    return [_length(line) for line in lines.text]


def _length(text: bytes) -> int:
    """Characters but for white space."""
    return len(text.translate(None, WHITESPACE))


def _assemble(lines: Lines, guess: _Guess) -> Reading:
    rows = [
        fold([lines.text[span.start][width:], *lines.text[_after_first(span)]])
        for span, (_, width) in zip(guess.spans, guess.heads, strict=True)
    ]
    one_line = all(len(span) == 1 for span in guess.spans)
    return Reading(
        file_format=("PHYLIP" if one_line else f"PHYLIP {guess.file_format}")
        + ("" if guess.style == "relaxed" else f", {guess.style}"),
        names=[name for name, _ in guess.heads],
        rows=rows,
        pieces=list(guess.spans),
        name_width=[width for _, width in guess.heads],
    )


def _after_first(span: range) -> slice:
    """The indices of a span but the first, as a slice."""
    return slice(span.start + span.step, span.stop, span.step)
