"""Robinson-Foulds distances between many trees, plain and weighted by branch lengths.

The distance of two trees is the sum over all splits of |a - b|, where a and b are what a split
weighs in each of them: 1 or, weighted, the length of its branch; 0 where a tree lacks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from mltree.supports.table import SplitTable
from mltree.tree.topology import Float64Array

__all__ = ["distances", "largest", "topologies"]


def distances(table: SplitTable, weights: Float64Array, rows: int) -> Iterator[Float64Array]:
    """For each of the first so many trees its distances from all of them, float64 [n].

    weights  float64 [M]: of every occurrence in the table
    """
    magnitude = np.abs(weights)
    total = np.bincount(table.tree, magnitude, table.n_trees)
    # Only splits of several trees bring two of them nearer.
    shared = table.counts[table.split] > 1
    tree, split = table.tree[shared], table.split[shared]
    weight, magnitude = weights[shared], magnitude[shared]
    bounds = np.searchsorted(tree, np.arange(rows + 1))
    here = np.full(table.n_splits, np.nan)
    for k in range(rows):
        mine = slice(*bounds[k : k + 2])
        here[split[mine]] = weight[mine]
        other = here[split]
        nearer = np.abs(other) + magnitude - np.abs(other - weight)
        nearer[np.isnan(other)] = 0
        row = total[k] + total - np.bincount(tree, nearer, table.n_trees)
        row[k] = 0
        yield row
        here[split[mine]] = np.nan


def topologies(table: SplitTable, start: int = 0) -> int:
    """How many different trees there are, from tree ``start`` on."""
    return len({table.split[i:j].tobytes() for i, j in pairwise(table.bounds[start:])})


def largest(n_tips: int) -> int:
    """The largest distance of two trees over T taxa, 2(T - 3): none of their splits is shared."""
    return max(2 * (n_tips - 3), 0)
