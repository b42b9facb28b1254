"""Supports of one tree's inner branches by many others: FBP and TBE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64
from mltree.supports.table import members, sides, split_table, unit_bits
from mltree.tree.clades import Clades

__all__ = ["occurrences", "transfer_expectations"]

NARROW = np.iinfo(np.int16).max
"""Taxa up to which counts of taxa are int16: a vector instruction takes more of them."""


def occurrences(tree: Clades, replicates: Clades) -> NDArray[np.intp]:
    """How many replicates have the split of each inner clade (Felsenstein's proportions, 1985).

    tree  one tree; its inner clades are those with ``is_inner``, in order
    """
    table = split_table(Clades.joined(tree.taxa, [tree, replicates]))
    counts: NDArray[np.intp] = table.counts[table.of_clade[: tree.is_inner.sum()]]
    return counts - 1


def transfer_expectations(tree: Clades, replicates: Clades) -> Float64:
    """The transfer bootstrap expectation, 0 to 1, of each inner clade (Lemoine et al. 2018).

        TBE(b) = 1 - mean over replicates of min over their branches c of d(b, c) / (p - 1)

    d: taxa that have to change sides to make the split of c that of b; p: taxa on the smaller side
    of b. A branch to a tip of that side is p - 1 away, so that the mean is never above 1.
    """
    n_tips = tree.n_tips
    inner = tree.only(tree.is_inner)
    inside = members(sides(inner, unit_bits(n_tips)), n_tips)
    size = inside.sum(axis=1)
    farthest = np.minimum(size, n_tips - size) - 1
    total = np.zeros(size.size)
    count = np.int16 if n_tips <= NARROW else np.int32
    sign = np.where(inside.T, count(-1), count(1))
    others = replicates.only(replicates.is_inner)
    bounds = others.bounds
    running = np.zeros((n_tips + 1, size.size), count)
    for k, order in enumerate(others.order):
        clades = slice(*bounds[k : k + 2])
        if clades.start == clades.stop:
            total += farthest
            continue
        # Hamming distance of b and c as sets: |b| + |c| - 2 |b & c| = |b| + sum of signs over c.
        np.cumsum(sign[order], axis=0, out=running[1:])
        excess = running[others.last[clades]] - running[others.first[clades]]
        nearest = np.minimum(size + excess.min(axis=0), n_tips - size - excess.max(axis=0))
        total += np.minimum(nearest, farthest)
    expectation: Float64 = 1 - total / (farthest * replicates.n_trees)
    return expectation
