"""FASTA: ``>name`` and any number of sequence lines for each taxon.

The name ends at the first white space; the rest of its line is a description and ignored, and so
are lines that begin with ``;``, the comments of Pearson's first format.
"""

from __future__ import annotations

from mltree.alignment.reading import Lines, Reading
from mltree.alignment.source import fold

__all__ = ["read_fasta"]


def read_fasta(lines: Lines) -> Reading:
    """Every record of the file, rows of any length.

    Raises:
        InputError: something else comes before the first record.
    """
    kept = [n for n, line in enumerate(lines.text) if not line.startswith(b";")]
    starts = [place for place, n in enumerate(kept) if lines.text[n].startswith(b">")]
    if not starts or starts[0] > 0:
        raise lines.error("no '>' with a name before it", kept[0] if kept else 0)
    pieces = [kept[a:b] for a, b in zip(starts, [*starts[1:], len(kept)], strict=True)]
    heads = [lines.text[head] for head, *_ in pieces]
    return Reading(
        file_format=lines.file_format,
        names=[(head[1:].split(None, 1) or [b""])[0] for head in heads],
        rows=[fold([lines.text[n] for n in rest]) for _, *rest in pieces],
        pieces=list(pieces),
        name_width=[len(head) for head in heads],
    )
