"""Consensus trees and Robinson-Foulds distances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from itertools import pairwise

import numpy as np

from mltree.supports.table import SplitTable, members
from mltree.system.arrays import Bool, Float64, Index, UInt64

# Consensus trees.


class Consensus(str, Enum):
    """The splits that a consensus has."""

    STRICT = "strict"
    """Splits of all trees."""
    MAJORITY = "majority"
    """Splits of more than half of the trees."""
    EXTENDED = "extended"
    """Majority splits, then the most frequent others compatible with those before (greedy
    consensus)."""


def consensus(table: SplitTable, kind: Consensus) -> Index:
    """Splits of a consensus, intp, the most frequent first.

    Among equally frequent splits the one with more taxa on its smaller side goes first, then the
    one whose smaller side comes first by its sorted taxon names: the result depends neither on the
    order of the trees nor on that of their taxa.
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
    """All splits, intp [S], in an order that depends on the names of their taxa alone."""
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
    """Splits taken in order, without those that a split taken before excludes.

    excludes(split, others)  bool [len(others)]: others that a split excludes
    """
    taken = []
    rest = ranked
    while rest.size:
        first, rest = rest[0], rest[1:]
        taken.append(first)
        rest = rest[~excludes(first, rest)]
    return np.array(taken, dtype=np.intp)


def conflicts(bits: UInt64, split: np.intp, others: Index) -> Bool:
    """Mask of the splits ``others`` that are incompatible with a split, bool [len(others)].

    As sides without taxon 0, two splits are compatible if disjoint or one inside the other.
    """
    mine, theirs = bits[split], bits[others]
    shared = mine & theirs
    both: Bool = shared.any(axis=1)
    both &= (shared != mine).any(axis=1)
    both &= (shared != theirs).any(axis=1)
    return both


# Robinson-Foulds distances: the sum over all splits of |a - b|, a and b being the split's weight in
# the two trees: 1, or the length of its branch (weighted), or 0 where a tree lacks it.

COMMON = 0.25
"""Share of the trees from which a split gets a column of its own: eight bytes a tree against
sixteen for each tree that has the split, and no detour through indices."""


def distances(table: SplitTable, rows: int) -> Iterator[Index]:
    """For each of the first ``rows`` trees, distances from the trees behind it, intp [n-1-k]."""
    shared = table.counts > 1
    alone = np.bincount(table.tree[~shared[table.split]], minlength=table.n_trees)
    column = np.cumsum(shared) - 1
    bits = np.zeros((table.n_trees, -(-int(shared.sum()) // 64)), np.uint64)
    octets = bits.view(np.uint8)
    for k, (start, stop) in enumerate(pairwise(table.bounds)):
        mine = table.split[start:stop]
        mine = column[mine[shared[mine]]]
        octets[k] |= np.bincount(mine // 8, 1 << mine % 8, octets.shape[1]).astype(np.uint8)
    for k in range(rows):
        unlike = np.bitwise_count(bits[k + 1 :] ^ bits[k]).sum(axis=1, dtype=np.intp)
        yield unlike + alone[k + 1 :] + alone[k]


def weighted_distances(table: SplitTable, rows: int) -> Iterator[Float64]:
    """For each of the first ``rows`` trees, weighted distances from those behind, f64 [n-1-k]."""
    common = table.counts > COMMON * table.n_trees
    rare = (table.counts > 1) & ~common
    column = np.cumsum(common) - 1
    weights = np.zeros((table.n_trees, int(common.sum())))
    chosen = common[table.split]
    weights[table.tree[chosen], column[table.split[chosen]]] = table.lengths[chosen]
    tree, split, length = (x[rare[table.split]] for x in (table.tree, table.split, table.lengths))
    bounds = np.searchsorted(tree, np.arange(rows + 1))
    here = np.zeros(table.n_splits)
    apart = _sums(table, ~common)
    for k in range(rows):
        mine, behind = slice(bounds[k], bounds[k + 1]), slice(bounds[k + 1], None)
        row = np.abs(weights[k + 1 :] - weights[k]).sum(axis=1)
        row += apart[k] + apart[k + 1 :]
        # Of the rare ones those that both trees have bring them nearer.
        here[split[mine]] = length[mine]
        one, other = here[split[behind]], length[behind]
        nearer = np.abs(one) + np.abs(other) - np.abs(one - other)  # 0 where one is
        row -= np.bincount(tree[behind] - (k + 1), nearer, row.size)
        here[split[mine]] = 0
        yield row


def _sums(table: SplitTable, chosen: Bool) -> Float64:
    """Total weight of the chosen splits, bool [S], in each tree, f64 [n]."""
    there = chosen[table.split]
    magnitude = np.abs(table.lengths[there])
    return np.bincount(table.tree[there], magnitude, table.n_trees).astype(np.float64)


def topologies(table: SplitTable, start: int = 0) -> int:
    """Number of different topologies, from tree ``start`` on."""
    return len({table.split[i:j].tobytes() for i, j in pairwise(table.bounds[start:])})


def largest(n_tips: int) -> int:
    """Largest distance of two trees over T taxa, 2(T - 3): no split shared."""
    return max(2 * (n_tips - 3), 0)
