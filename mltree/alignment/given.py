"""An alignment that is handed over, not read: names and rows from another program's memory.

It goes through the same checks as a file does. What is wrong with it has no line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from mltree.alignment.reading import Lines, Reading
from mltree.alignment.source import fold
from mltree.errors import InputError
from mltree.values import Value

__all__ = ["Given", "Source"]


class Given(Value):
    """Sequences and what they are called."""

    names: tuple[str, ...]
    """T taxon names."""
    rows: tuple[bytes, ...]
    """T sequences, in ASCII."""
    title: str = "the alignment"
    """What stands for a file's path."""

    def __str__(self) -> str:
        return self.title

    @property
    def lines(self) -> Lines:
        """As if it were a file: a line for a name, a line for its sequence."""
        pairs = zip(self.names, self.rows, strict=True)
        text = [line for name, row in pairs for line in (name.encode(), row)]
        return Lines(self.title, text, [0] * len(text), file_format="memory")

    @property
    def reading(self) -> Reading:
        """Its names and rows.

        Raises:
            InputError: there are none.
        """
        if not self.names:
            raise InputError("there are no sequences", file=self.title)
        return Reading(
            file_format="memory",
            names=[name.encode() for name in self.names],
            rows=[fold([row]) for row in self.rows],
            pieces=[(n, n + 1) for n in range(0, 2 * len(self.names), 2)],
            name_width=[len(name.encode()) for name in self.names],
        )

    def fasta(self) -> str:
        """As a file has it; names end at the first blank there."""
        pairs = zip(self.names, self.rows, strict=True)
        return "".join(f">{name}\n{row.decode('ascii')}\n" for name, row in pairs)


Source: TypeAlias = str | Path | Given
"""Where an alignment comes from: a file, ``-`` for standard input, or memory."""
