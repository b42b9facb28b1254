"""What a format's reader makes of a file, before anyone asks whether it is a good alignment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from mltree.alignment.source import WHITESPACE
from mltree.errors import InputError
from mltree.values import Value

__all__ = ["Lines", "Reading"]


class Lines(Value):
    """The non-blank lines of a file and where they stand in it."""

    path: str
    text: list[bytes]
    numbers: Sequence[int]
    """Line numbers, from 1."""
    file_format: str = "FASTA"
    """The file's format, where its lines were made FASTA's (:mod:`mltree.alignment.records`)."""
    datatype: str | None = None
    """``"DNA"`` or ``"AA"`` where the file itself says so."""
    has_parts: bool = False
    """True if the file also names parts of the alignment; the reader passes them over."""

    @classmethod
    def of(cls, path: str, text: bytes) -> Lines:
        """The lines of `text`, blank ones left out."""
        lines = text.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        if all(lines) and not any(map(bytes.isspace, lines)):
            return cls(path, lines, range(1, len(lines) + 1))
        kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip(WHITESPACE)]
        return cls(path, [line for _, line in kept], [number for number, _ in kept])

    def error(self, message: str, line: int, *, hint: str | None = None) -> InputError:
        """An InputError at the line with this index."""
        return InputError(message, file=self.path, line=self.numbers[line], hint=hint)


class Reading(Value):
    """One way to read a file: T names and rows, and where each row came from."""

    file_format: str
    """``"FASTA"``, ``"PHYLIP interleaved"``, …"""
    names: list[bytes]
    rows: list[bytes]
    """Sequences in upper case without white space, of any length so far."""
    pieces: list[Sequence[int]]
    """For each row the indices of its lines; the first of a PHYLIP row starts with the name."""
    name_width: list[int]
    """Bytes at the start of a row's first line that are no sequence."""

    def piece_lengths(self, lines: Lines, row: int) -> list[int]:
        """Sequence characters on each of a row's lines."""
        first, *rest = (lines.text[line] for line in self.pieces[row])
        parts = [first[self.name_width[row] :], *rest]
        return [len(part.translate(None, WHITESPACE)) for part in parts]

    def line_of(self, lines: Lines, row: int, site: int) -> int:
        """Index of the line that holds the character of a row at a site (from 0)."""
        ends = accumulate(self.piece_lengths(lines, row))
        return next(line for line, end in zip(self.pieces[row], ends, strict=True) if site < end)

    def end_of(self, row: int) -> int:
        """Index of a row's last line."""
        return self.pieces[row][-1]
