"""Robinson-Foulds distances between many trees, plain and weighted by branch lengths.

The distance of two trees is the sum over all splits of |a - b|, where a and b are what a split
weighs in each of them: 1 or, weighted, the length of its branch; 0 where a tree lacks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from mltree.arrays import Bool, Float64, Index
from mltree.supports.table import SplitTable

__all__ = ["distances", "largest", "topologies", "weighted_distances"]

COMMON = 0.25
"""Share of the trees from which a split is worth a column of its own: eight bytes a tree against
sixteen for each that has it, and no detour through indices."""


def distances(table: SplitTable, rows: int) -> Iterator[Index]:
    """For each of the first so many trees its distances from the trees behind it, intp [n-1-k]."""
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
    """For each of the first so many trees those from the trees behind it, float64 [n-1-k]."""
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
    """How much the chosen splits, bool [S], weigh in each tree, float64 [n]."""
    there = chosen[table.split]
    magnitude = np.abs(table.lengths[there])
    return np.bincount(table.tree[there], magnitude, table.n_trees).astype(np.float64)


def topologies(table: SplitTable, start: int = 0) -> int:
    """How many different trees there are, from tree ``start`` on."""
    return len({table.split[i:j].tobytes() for i, j in pairwise(table.bounds[start:])})


def largest(n_tips: int) -> int:
    """The largest distance of two trees over T taxa, 2(T - 3): none of their splits is shared."""
    return max(2 * (n_tips - 3), 0)
