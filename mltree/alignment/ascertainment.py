"""Data of which sites without any change were left out: which, and what their model has to know.

Morphological characters and SNPs are collected because they vary. Their likelihood is corrected
for that with the probabilities of the patterns that cannot be among them: one constant pattern for
each state, of genotypes for each letter (:mod:`mltree.likelihood.ascertainment` has the formulas).
They stand behind the patterns of their part, with weight 0, so that nothing which counts sites sees
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mltree.errors import InputError
from mltree.values import Value

if TYPE_CHECKING:
    from mltree.alignment.patterns import Patterns

__all__ = [
    "Ascertainment",
    "Correction",
    "Unseen",
    "constant_sites",
    "refuse_constant",
    "with_unseen",
]

MOST_SITES = 10
"""Constant sites that an error names."""


class Correction(StrEnum):
    """What is known of the sites that were left out; the names are RAxML-NG's."""

    LEWIS = "LEWIS"
    """Nothing but that they were constant (Lewis 2001, Syst. Biol. 50:913-925)."""
    FELSENSTEIN = "FELS"
    """How many there were (Felsenstein, in Leaché et al. 2015, Syst. Biol. 64:1032-1047)."""
    STAMATAKIS = "STAM"
    """How many there were of each state (Stamatakis, in Leaché et al. 2015)."""


class Ascertainment(Value):
    """That constant sites were left out, and how many."""

    correction: Correction
    counts: tuple[float, ...] = ()
    """Sites: none, one number, or one for each state."""

    @property
    def text(self) -> str:
        """As a term of a model: ``+ASC_FELS{1000}``."""
        given = "/".join(f"{count:g}" for count in self.counts)
        return f"+ASC_{self.correction}" + (f"{{{given}}}" if given else "")


class Unseen(Value):
    """Where the constant patterns of a part are, one for each of its alphabet's `certain_codes`."""

    part: int
    first: int
    """The first of them; the part ends with the last."""
    ascertainment: Ascertainment


def constant_sites(patterns: Patterns) -> NDArray[np.intp]:
    """The sites, from 0, at which all taxa may have one and the same state."""
    masks = patterns.alphabet.state_masks
    common = np.bitwise_and.reduce(masks[patterns.codes], axis=0)
    return np.flatnonzero((common != 0)[patterns.site_pattern])


def refuse_constant(sites: NDArray[np.integer], path: str, part: str = "") -> None:
    """Make sure that there are none of those sites, from 0, among which no change was seen.

    Raises: InputError naming them.
    """
    if not sites.size:
        return
    named = ", ".join(f"{site + 1:,}" for site in sites[:MOST_SITES].tolist())
    more = f" and {sites.size - MOST_SITES:,} more" if sites.size > MOST_SITES else ""
    which = f"{sites.size:,} sites are" if sites.size > 1 else "1 site is"
    raise InputError(
        f"{f'part {part}: ' if part else ''}+ASC is for data without constant sites, but {which} "
        f"(or may be): {named}{more}",
        file=path,
        hint="take them out, or leave out +ASC",
    )


def with_unseen(patterns: Patterns, of_parts: Sequence[Ascertainment | None]) -> Patterns:
    """The patterns, and behind those of each part that has an ascertainment its constant ones."""
    states = patterns.alphabet.certain_codes
    constant = np.tile(states, (patterns.n_tips, 1))
    codes, weights, ends = [], [], []
    unseen: list[Unseen] = []
    shift = np.zeros(patterns.n_patterns, np.int32)
    for number, (where, own) in enumerate(zip(patterns.parts, of_parts, strict=True)):
        codes.append(patterns.codes[:, where])
        weights.append(patterns.weights[where])
        end = where.stop + len(unseen) * len(states)
        shift[where] = len(unseen) * len(states)
        if own is not None:
            unseen.append(Unseen(number, end, own))
            codes.append(constant)
            weights.append(np.zeros(len(states)))
            end += len(states)
        ends.append(end)
    return replace(
        patterns,
        codes=np.concatenate(codes, axis=1),
        weights=np.concatenate(weights),
        site_pattern=patterns.site_pattern + shift[patterns.site_pattern],
        ends=tuple(ends) if patterns.ends else (),
        unseen=tuple(unseen),
    )
