"""Consensus trees: the splits of all trees, of most, or as many of the commonest as go together."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

import numpy as np

from mltree.arrays import Bool, Index, UInt64
from mltree.supports.table import SplitTable, members

__all__ = ["Consensus", "canonical", "conflicts", "consensus", "greedy"]


class Consensus(str, Enum):
    """Which splits a consensus has."""

    STRICT = "strict"
    """Those of all trees."""
    MAJORITY = "majority"
    """Those of more than half of the trees."""
    EXTENDED = "extended"
    """Those, and then the commonest others that fit those before them (greedy consensus)."""


def consensus(table: SplitTable, kind: Consensus) -> Index:
    """The splits that a consensus has, the commonest first.

    Of splits that as many trees have the one with more taxa on its smaller side goes first, and of
    those the one whose smaller side comes first by its taxa's names in their order: neither the
    order of the trees matters nor that of the taxa in them.
    """
    ranked = canonical(table)
    ranked = ranked[np.argsort(-table.counts[ranked], kind="stable")]
    counts = table.counts[ranked]
    if kind is Consensus.STRICT:
        ranked = ranked[counts == table.n_trees]
    elif kind is Consensus.MAJORITY:
        ranked = ranked[2 * counts > table.n_trees]
    else:
        ranked = greedy(ranked, partial(conflicts, table.bits))
    return ranked


def canonical(table: SplitTable) -> Index:
    """The splits, intp [S], in an order that depends on nothing but the names of their taxa."""
    n_tips = len(table.taxa)
    by_name = np.array(sorted(range(n_tips), key=table.taxa.__getitem__), dtype=np.intp)
    inside = members(table.bits, n_tips)[:, by_name]
    size = inside.sum(axis=1)
    # The smaller side; of two halves the one with the first name.
    flip = (2 * size > n_tips) | ((2 * size == n_tips) & ~inside[:, :1].any(axis=1))
    inside ^= flip[:, None]
    smaller = np.minimum(size, n_tips - size)
    words = np.packbits(inside, axis=1)
    return np.lexsort((*(255 - words).T[::-1], -smaller))


def greedy(ranked: Index, excludes: Callable[[np.intp, Index], Bool]) -> Index:
    """Those of the splits, in their order, that none excludes that was taken before.

    excludes(split, others): bool, whether the others are excluded by a split
    """
    taken = []
    rest = ranked
    while rest.size:
        first, rest = rest[0], rest[1:]
        taken.append(first)
        rest = rest[~excludes(first, rest)]
    return np.array(taken, dtype=np.intp)


def conflicts(bits: UInt64, split: np.intp, others: Index) -> Bool:
    """bool: the others that no tree has together with a split.

    As sides without the same taxon, two go together if they are apart or one is inside the other.
    """
    mine, theirs = bits[split], bits[others]
    shared = mine & theirs
    both: Bool = shared.any(axis=1)
    both &= (shared != mine).any(axis=1)
    both &= (shared != theirs).any(axis=1)
    return both
