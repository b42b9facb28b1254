"""Trees under which an alignment cannot have come about: their lnL is minus infinity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mltree.alignment.patterns import Patterns
from mltree.arrays import Bool
from mltree.tree.topology import Tree

__all__ = ["Conflict", "find_conflict"]


class Conflict(NamedTuple):
    """Tips that no length lies between, though no state is possible for them all."""

    tips: tuple[int, ...]
    """The first of them that exclude each other."""
    site: int
    """The first where that is so, counted from 0."""


def find_conflict(tree: Tree, patterns: Patterns) -> Conflict | None:
    """The first conflict among tips that branches of length zero join; None where there is none.

    P(0) is the identity: such tips show one and the same state.
    """
    group = _joined(tree)[: tree.n_tips]
    allowed = patterns.alphabet.tip_table > 0
    for first in np.flatnonzero(np.bincount(group) > 1):
        tips = np.flatnonzero(group == first)
        shown: Bool = allowed[patterns.codes[tips]]
        left = np.asarray(np.logical_and.accumulate(shown).any(axis=2))
        impossible = ~left[-1][patterns.site_pattern]
        if impossible.any():
            site = int(impossible.argmax())
            count = 1 + int(left[:, patterns.site_pattern[site]].sum())
            return Conflict(tuple(tips[:count].tolist()), site)
    return None


def _joined(tree: Tree) -> npt.NDArray[np.intp]:
    """intp[nodes]: the lowest node that branches of length zero lead to from each."""
    half = np.flatnonzero(tree.twin > np.arange(tree.twin.size))
    half = half[tree.lengths[tree.edge[half]] == 0]
    one, other = half // 3, tree.twin[half] // 3
    lowest = np.arange(tree.twin.size // 3)
    while not np.array_equal(lowest[one], lowest[other]):
        both = np.minimum(lowest[one], lowest[other])
        np.minimum.at(lowest, one, both)
        np.minimum.at(lowest, other, both)
    return lowest
