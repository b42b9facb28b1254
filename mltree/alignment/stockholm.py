"""Stockholm (Pfam, Rfam, HMMER): ``name sequence`` lines in one block or more, then ``//``.

Lines that begin with ``#`` are annotation and say nothing about the characters. ``.`` is a gap
here, never a repeated character (HMMER's manual: gaps in columns of insertions).
"""

from __future__ import annotations

from mltree.alignment.reading import Lines
from mltree.alignment.rows import Rows

__all__ = ["stockholm_rows"]

END = b"//"


def stockholm_rows(lines: Lines) -> Rows:
    """The one alignment of a file.

    Raises:
        InputError: it does not end, another one follows, or a line is neither row nor annotation.
    """
    rows = Rows("Stockholm")
    ends = [n for n, line in enumerate(lines.text) if line.strip() == END]
    if not ends:
        raise lines.error("the alignment does not end with //", -1, hint="is it truncated?")
    if ends[0] + 1 < len(lines.text):
        hint = "give one alignment a file"
        raise lines.error("another alignment begins", ends[0] + 1, hint=hint)
    for n, line in enumerate(lines.text[: ends[0]]):
        if line.startswith(b"#"):
            continue
        fields = line.split()
        if len(fields) != 2:
            raise lines.error("neither a name and a sequence nor annotation (#=G…)", n)
        name, piece = fields
        rows.add(name, n, piece.replace(b".", b"-"))
    return rows
