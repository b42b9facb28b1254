"""Trees against trees: distances between them, and supports of one by others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.api.calls import in_turn, one_of
from mltree.api.trees import PhyloTree, TreeLike, newick_of, newicks_of
from mltree.commands.trees import METRICS, support_kinds, support_texts
from mltree.errors import InputError
from mltree.events import ignore
from mltree.supports.distances import distances, weighted_distances
from mltree.supports.table import split_table
from mltree.tree.clades import Clades
from mltree.tree.newick_clades import read_clades

__all__ = ["rf", "support"]


def rf(
    trees: TreeLike | Iterable[TreeLike], other: TreeLike | None = None, *, weighted: bool = False
) -> float | NDArray[Any]:
    """Robinson-Foulds distance of two trees; a matrix [n, n] of several, where ``other`` is None.

    weighted  by branch lengths (the branch score of Robinson and Foulds 1979)

    Raises:
        InputError: a tree is broken, or of other taxa.
    """
    with in_turn():
        first = read_clades(newicks_of(trees))
        if other is not None:
            first = first.part(0, 1)
            second = read_clades(newick_of(other), like=first, origin="the first tree").part(0, 1)
            first = Clades.joined(first.taxa, [first, second])
        table = split_table(first, with_tips=weighted)
        if weighted and np.isnan(table.lengths).any():
            raise InputError("weighted=True: a tree has a branch without a length")
        rows = first.n_trees - 1
        found = weighted_distances(table, rows) if weighted else distances(table, rows)
        matrix = np.zeros((first.n_trees, first.n_trees), float if weighted else int)
        for number, row in enumerate(found):
            matrix[number, number + 1 :] = matrix[number + 1 :, number] = row
        if other is None:
            return matrix
        return float(matrix[0, 1]) if weighted else int(matrix[0, 1])


def support(
    tree: TreeLike, trees: TreeLike | Iterable[TreeLike], *, metric: str = "fbp"
) -> PhyloTree:
    """The tree with its branches' supports by others as labels.

    metric  ``"fbp"``, percentages of the trees that have a branch, or ``"tbe"``, the transfer
            bootstrap expectation, 0 to 1

    Raises:
        InputError: a tree is broken, or of other taxa.
    """
    one_of("metric", metric, METRICS)
    with in_turn():
        target = read_clades(newick_of(tree)).part(0, 1)
        others = read_clades(newicks_of(trees), like=target, origin="the tree")
        (text,) = support_texts(target, others, support_kinds(metric), ignore)[0].values()
        return PhyloTree(text.strip())
