"""What a ``.`` means: a gap, or the character of the first sequence at that site.

PHYLIP, PhyML and PAML take it for the latter, and refuse it in the first sequence; RAxML-NG and
IQ-TREE take it for a gap, as profile and rRNA alignments write it. No file says which. But
programs that write dots for repeated characters write one for every such character: a sequence
with dots then never repeats the first one's letter itself, while sequences with gaps do all the
time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mltree.errors import InputError
from mltree.values import Value

__all__ = ["Dots", "spelled_out"]

CHANCE = 0.05
"""Share of letters that two unrelated proteins have in common; DNA has a quarter. Fewer, but some,
and dots mean neither throughout."""

_DOT = ord(".")


class Dots(Value):
    """Dots that stood for the first sequence's characters, and where the first one is."""

    count: int
    taxon: int
    """Its row."""
    site: int
    """From 0."""


def spelled_out(characters: NDArray[np.uint8], path: str) -> tuple[NDArray[np.uint8], Dots | None]:
    """u8 [T, sites] with the first sequence's characters for dots, if that is what they mean.

    Raises:
        InputError: they could mean either.
    """
    first = characters[0]
    rows = [n for n, row in enumerate(characters) if (row == _DOT).any()]
    if not rows or rows[0] == 0:
        return characters, None
    alike = different = 0
    for row in characters[rows]:
        both = _is_letter(first) & _is_letter(row)
        alike += int(np.count_nonzero(both & (row == first)))
        different += int(np.count_nonzero(both & (row != first)))
    if alike > CHANCE * (alike + different):
        return characters, None
    if alike:
        raise InputError(
            "'.' can be read as a gap and as the first sequence's character",
            file=path,
            hint="write '-' for gaps, or the letters themselves",
        )
    dots = characters == _DOT
    taxon, site = divmod(int(dots.argmax()), len(first))
    return np.where(dots, first, characters), Dots(int(np.count_nonzero(dots)), taxon, site)


def _is_letter(row: NDArray[np.uint8]) -> NDArray[np.bool_]:
    letters: NDArray[np.bool_] = (row >= ord("A")) & (row <= ord("Z"))
    return letters
