"""Bipartitions as packed bits: what two numberings of one topology have in common.

Every edge splits the tips in two; a split is written as the side that does not hold tip 0, one
bit a tip. Letters: T tips, E = 2T-3 edges, B = ceil(T/64) words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from mltree.system.arrays import Float64, Index, Int32, UInt64
from mltree.tree.topology import Forest, Tree, mixed, siblings, split_key


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
    """The half-edge at an inner node that faces exactly these tips; None without such a branch."""
    if len(tips) == 1:
        return int(tree.twin[3 * tips[0]])
    size = np.zeros(tree.twin.size, dtype=np.int32)
    n_chosen = np.zeros(tree.twin.size, dtype=np.int32)
    size[: 3 * tree.n_tips : 3] = 1
    n_chosen[3 * np.asarray(tips)] = 1
    level = Forest([tree]).levels
    inner = np.arange(3 * tree.n_tips, tree.twin.size, dtype=np.int32)
    for depth in range(1, int(level.max()) + 1):
        half = inner[level[inner] == depth]
        left, right = siblings(half)
        for count in (size, n_chosen):
            count[half] = count[tree.twin[left]] + count[tree.twin[right]]
    clade = np.flatnonzero((size == len(tips)) & (n_chosen == len(tips)) & (tree.twin >= 0))
    faces = tree.twin[clade]
    faces = faces[faces >= 3 * tree.n_tips]
    return int(faces[0]) if faces.size else None


def robinson_foulds(first: Tree, second: Tree) -> int:
    """Splits that only one of two trees over the same tips has (Robinson & Foulds 1981)."""
    return int(np.setxor1d(_inner_rows(first), _inner_rows(second), assume_unique=True).size)


def edges_apart(tree: Tree, other: Tree) -> Int32:
    """int32[n]: the inner edges of a tree whose splits another one lacks, rising."""
    own, others = splits_of([tree, other])
    edges = tree.inner_edges
    return edges[~np.isin(own[: edges.size], others[: other.inner_edges.size])]


def mean_distance(trees: Sequence[Tree]) -> float:
    """Mean over all pairs of trees of the share of inner splits that one has and the other lacks.

    0 for fewer than two trees, and for trees of three tips.
    """
    rows = np.sort(splits_of(trees), axis=1) if trees else np.empty((0, 0))
    if len(rows) < 2 or not rows.shape[1]:
        return 0.0
    shared = [np.intersect1d(*pair, assume_unique=True).size for pair in combinations(rows, 2)]
    return 1.0 - sum(shared) / len(shared) / int(rows.shape[1])


def same_topology(first: Tree, second: Tree) -> bool:
    """True where two trees over the same tips have exactly the same splits."""
    return robinson_foulds(first, second) == 0


def lengths_in(tree: Tree, other: Tree) -> Float64:
    """f64 [E]: the lengths of another tree of the same topology, by the edge ids of this one.

    Raises: ValueError where the topologies differ.
    """
    splits_here, splits_there = splits(tree)[: tree.n_branches], splits(other)[: other.n_branches]
    order, place = np.lexsort(splits_there.T), np.lexsort(splits_here.T)
    if not np.array_equal(splits_here[place], splits_there[order]):
        raise ValueError("trees of different topologies")
    lengths = np.zeros(tree.n_edges)
    lengths[place] = other.lengths[order]
    return lengths


def topology_key(tree: Tree) -> int:
    """64 bits that equal topologies share; see :meth:`.Forest.topology_keys`."""
    return Forest([tree]).topology_keys()[0]


def _inner_rows(tree: Tree) -> NDArray[np.void]:
    """The splits of the inner edges, each row as one comparable item."""
    rows = np.ascontiguousarray(splits(tree)[tree.inner_edges])
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()


class SplitSums:
    """Split keys of one tree, from which keys of its neighbours follow by additions.

    A set of tips is a sum of random numbers (``Forest.tip_sets``), a split a symmetric hash of its
    sides, and a topology the sum of its inner splits. Different topologies share a key with a
    probability of about 2^-64 a pair.
    """

    def __init__(self, tree: Tree) -> None:
        near = Forest([tree]).tip_sets
        self._faced: UInt64 = near[tree.twin]
        """uint64[3N]: the tips that a half-edge faces."""
        self._all: UInt64 = near[:1] + self._faced[:1]  # no scalars: their sums may overflow
        self.edges: Int32 = tree.inner_edges
        self._ends = tree.edge_halves[self.edges]
        self.splits: UInt64 = self._key(self._faced[self._ends[:, 0]])
        """uint64[T - 3]: the keys of the inner splits, by rising edge."""
        self.topology = int(self.splits.sum(dtype=np.uint64))
        """The key of the tree."""

    def interchanges(self) -> UInt64:
        """uint64[2(T - 3)]: the keys of both neighbours across each inner edge (:func:`.nni`)."""
        near, far = self._ends.T
        stays = self._faced[siblings(near)[1]]
        joined = [stays + self._faced[half] for half in siblings(far)]
        without = np.uint64(self.topology) - self.splits
        return np.stack([without + self._key(side) for side in joined], axis=1).ravel()

    def quartets(self, halves: Int32) -> tuple[UInt64, Index]:
        """Keys of subtrees joined two and two, uint64[n], the same in any tree; and an order.

        halves  int32[n, 4]: half-edges that face them, those that are joined beside each other
        The order, int[n, 4], puts them in the same places whatever tree they are in.
        """
        tips = self._faced[halves]
        pairs = mixed(mixed(tips).reshape(-1, 2, 2).sum(axis=2, dtype=np.uint64))
        inside = np.argsort(tips.reshape(-1, 2, 2), axis=2)
        inside[:, 1] += 2
        order = np.take_along_axis(inside, np.argsort(pairs, axis=1)[:, :, None], axis=1)
        return mixed(pairs.sum(axis=1, dtype=np.uint64)), order.reshape(-1, 4)

    def _key(self, side: UInt64) -> UInt64:
        return split_key(side, self._all - side)


def splits_of(trees: Sequence[Tree]) -> UInt64:
    """uint64[n, T - 3]: keys of inner splits by rising edge, of trees with equally many tips."""
    forest = Forest(trees)
    halves = forest.lower[forest.is_inner[forest.lower]]
    keys = split_key(forest.tip_sets[halves], forest.tip_sets[forest.twin[halves]])
    return keys.reshape(len(trees), -1)
