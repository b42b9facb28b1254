"""FASTA: ``>name`` and any number of sequence lines for each taxon.

The name ends at the first white space; the rest of its line is a description and ignored.
"""

from __future__ import annotations

from mltree.alignment.reading import Lines, Reading
from mltree.alignment.source import fold

__all__ = ["read_fasta"]


def read_fasta(lines: Lines) -> Reading:
    """Every record of the file, rows of any length."""
    heads = [index for index, line in enumerate(lines.text) if line.startswith(b">")]
    spans = [
        range(head, end) for head, end in zip(heads, [*heads[1:], len(lines.text)], strict=True)
    ]
    return Reading(
        layout="FASTA",
        names=[(lines.text[head][1:].split(None, 1) or [b""])[0] for head in heads],
        rows=[fold(lines.text[span.start + 1 : span.stop]) for span in spans],
        pieces=list(spans),
        name_width=[len(lines.text[head]) for head in heads],
    )
