"""Bipartitions as packed bits: what two numberings of one topology have in common.

Every edge splits the tips in two; a split is written as the side that does not hold tip 0, one
bit a tip. Letters: T tips, E = 2T-3 edges, B = ceil(T/64) words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import UInt64
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree, siblings

__all__ = ["facing", "lengths_in", "robinson_foulds", "same_topology", "splits", "topology_key"]


def splits(tree: Tree) -> UInt64:
    """uint64 [E, B]: for every edge id the tips on the side without tip 0; tip t is bit t."""
    n_words = -(-tree.n_tips // 64)
    behind = np.zeros((tree.n_nodes, n_words), dtype=np.uint64)
    tips = np.arange(tree.n_tips)
    behind[tips, tips // 64] = np.uint64(1) << (tips % 64).astype(np.uint64)
    edge_of = np.empty(tree.n_nodes, dtype=np.int32)
    edge_of[tips] = tree.edge[3 * tips]
    for wave in reversed(list(tree.waves_from(int(tree.edge[0])))):
        first, second = siblings(wave)
        behind[wave // 3] = behind[tree.twin[first] // 3] | behind[tree.twin[second] // 3]
        edge_of[wave // 3] = tree.edge[wave]
    # The node next to tip 0 owns tip 0's edge, so tip 0 itself must not write there.
    result = np.empty((tree.n_edges, n_words), dtype=np.uint64)
    result[edge_of[1:]] = behind[1:]
    return result


def facing(tree: Tree, tips: Sequence[int]) -> int | None:
    """The half-edge at an inner node that faces exactly these tips; None where no branch does."""
    if len(tips) == 1:
        return int(tree.twin[3 * tips[0]])
    size = np.zeros(tree.twin.size, dtype=np.int32)
    wanted = np.zeros(tree.twin.size, dtype=np.int32)
    size[: 3 * tree.n_tips : 3] = 1
    wanted[3 * np.asarray(tips)] = 1
    level = Forest([tree]).levels()
    inner = np.arange(3 * tree.n_tips, tree.twin.size, dtype=np.int32)
    for depth in range(1, int(level.max()) + 1):
        half = inner[level[inner] == depth]
        left, right = siblings(half)
        for count in (size, wanted):
            count[half] = count[tree.twin[left]] + count[tree.twin[right]]
    clade = np.flatnonzero((size == len(tips)) & (wanted == len(tips)) & (tree.twin >= 0))
    faces = tree.twin[clade]
    faces = faces[faces >= 3 * tree.n_tips]
    return int(faces[0]) if faces.size else None


def robinson_foulds(first: Tree, second: Tree) -> int:
    """Splits that only one of two trees over the same tips has (Robinson & Foulds 1981)."""
    return int(np.setxor1d(_inner_rows(first), _inner_rows(second), assume_unique=True).size)


def same_topology(first: Tree, second: Tree) -> bool:
    """Whether two trees over the same tips have exactly the same splits."""
    return robinson_foulds(first, second) == 0


def lengths_in(tree: Tree, other: Tree) -> NDArray[np.float64]:
    """f64 [E]: the lengths of another tree of the same topology, by the edge ids of this one.

    Raises: ValueError where the topologies differ.
    """
    own, others = splits(tree)[: tree.n_branches], splits(other)[: other.n_branches]
    order, place = np.lexsort(others.T), np.lexsort(own.T)
    if not np.array_equal(own[place], others[order]):
        raise ValueError("trees of different topologies")
    lengths = np.zeros(tree.n_edges)
    lengths[place] = other.lengths[order]
    return lengths


def topology_key(tree: Tree) -> int:
    """64 bits that equal topologies share; see :meth:`mltree.tree.forest.Forest.topology_keys`."""
    return Forest([tree]).topology_keys()[0]


def _inner_rows(tree: Tree) -> NDArray[np.void]:
    """The splits of the inner edges, each row as one comparable item."""
    rows = np.ascontiguousarray(splits(tree)[tree.inner_edges])
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
