"""Diploid genotypes: the two nucleotides that a cell has at a site, as IUPAC's letters tell them.

``A`` is A/A, ``M`` A/C, and so on. Of GT10 states are pairs without an order. Those of GT16 have
one, a nucleotide for either chromosome; no letter tells which is where, so that ``M`` may be A|C or
C|A. States and letters are RAxML-NG's and CellPhy's (``pll_map_gt10`` and ``pll_map_gt16`` of
libpll-2, src/maps.c); letters for three nucleotides are none here.
"""

from __future__ import annotations

import re

from mltree.alignment.alphabet import DNA, Alphabet

__all__ = ["HETEROZYGOTES", "PHASED", "UNPHASED", "hint", "named"]

HETEROZYGOTES = {"M": "AC", "R": "AG", "W": "AT", "S": "CG", "Y": "CT", "K": "GT"}
"""The nucleotides of each letter."""

_GAPS = "-.?NOX"
_NAME = re.compile(r"(?:GT|DIPLOID)(10|16)")


def _alphabet(name: str, *, phased: bool) -> Alphabet:
    same = {base: [2 * base] for base in DNA.states}
    different = {
        letter: [pair, pair[::-1]] if phased else [pair] for letter, pair in HETEROZYGOTES.items()
    }
    letters = same | different
    states = [pair for of_letter in letters.values() for pair in of_letter[:1]]
    states += [pair for of_letter in letters.values() for pair in of_letter[1:]]
    return Alphabet.of_characters(name, states, letters, gaps=_GAPS, aliases={"U": "T"})


UNPHASED = _alphabet("GT10", phased=False)
"""AA CC GG TT AC AG AT CG CT GT; codes are those, then the gap."""

PHASED = _alphabet("GT16", phased=True)
"""The same, and CA GA TA GC TC TG; codes are those of `UNPHASED`."""


def named(word: str) -> Alphabet | None:
    """The alphabet of ``GT10`` or ``GT16``, in capitals; None for other words."""
    match = _NAME.fullmatch(word)
    return match and (UNPHASED if match[1] == "10" else PHASED)


def hint() -> str:
    """What is said of a letter that is no genotype."""
    pairs = " ".join(f"{letter}={pair[0]}/{pair[1]}" for letter, pair in HETEROZYGOTES.items())
    return f"genotypes are A C G T and {pairs}; unknown ones {' '.join(_GAPS)}"
