"""Loci side by side: the patterns of alignments of different taxa, as parts of one table of tips.

Tip i of a locus' tree is row i of the table, whatever its name; the rows behind the taxa that a
locus has are gaps, which nobody looks at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltree.alignment.patterns import Patterns

__all__ = ["table_of_tips"]


def table_of_tips(loci: Sequence[Patterns]) -> Patterns:
    """The patterns of loci of one alphabet, a part each, in their order; none with ``unseen``.

    Those of one genetic code may have codes for other ambiguous triplets.
    """
    alphabets = dict.fromkeys(locus.alphabet for locus in loci)
    written = [own.decode(np.arange(own.n_codes, dtype=np.uint8)[None]) for own in alphabets]
    alphabet = loci[0].alphabet.covering(written)
    tips = max(locus.n_tips for locus in loci)
    ends = np.cumsum([locus.n_patterns for locus in loci]).tolist()
    codes = np.full((tips, ends[-1]), alphabet.gap_code, np.uint8)
    sites, first = [], 0
    for locus, end in zip(loci, ends, strict=True):
        own = locus.alphabet
        recoded = locus.codes if own is alphabet else alphabet.encode(own.decode(locus.codes))
        codes[: locus.n_tips, first:end] = recoded
        sites.append(locus.site_pattern + np.int32(first))
        first = end
    return Patterns(
        taxa=tuple(f"tip {number}" for number in range(1, tips + 1)),
        codes=codes,
        weights=np.concatenate([locus.weights for locus in loci]),
        site_pattern=np.concatenate(sites),
        alphabet=alphabet,
        ends=tuple(ends) if len(ends) > 1 else (),
    )
