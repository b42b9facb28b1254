"""The rows of an alignment as a format's reader finds them, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field

from mltree.alignment.reading import Lines

__all__ = ["Rows"]


@dataclass
class Rows:
    """Pieces of sequence by taxon, in the order of the file."""

    file_format: str
    datatype: str | None = None
    """``"DNA"`` or ``"AA"`` where the file says so."""
    pieces: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=dict)
    """For each name the index of each line with a piece of its sequence, and the piece."""
    has_parts: bool = False
    """True if the file also names parts of the alignment."""

    def add(self, name: bytes, line: int, piece: bytes) -> None:
        """Append a piece to a taxon's sequence."""
        self.pieces.setdefault(name, []).append((line, piece))

    def records(self, lines: Lines) -> Lines:
        """The rows as lines of FASTA, numbered as in the file.

        Raises:
            InputError: a piece of sequence would be something else there.
        """
        text: list[bytes] = []
        numbers: list[int] = []
        for name, pieces in self.pieces.items():
            text.append(b">" + b"_".join(name.split()))
            numbers.append(lines.numbers[pieces[0][0]])
            for line, piece in pieces:
                if piece.startswith((b">", b";")):
                    shown = piece[:1].decode()
                    raise lines.error(f"{shown!r} where a sequence is expected", line)
                if piece:
                    text.append(piece)
                    numbers.append(lines.numbers[line])
        if not text:
            raise lines.error("no sequences", 0, hint="is it truncated?")
        return Lines(
            lines.path, text, numbers, self.file_format, self.datatype, has_parts=self.has_parts
        )
