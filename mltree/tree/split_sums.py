"""Topologies, and those of their neighbours, as 64 bits each, without making the neighbours.

A set of tips is a sum of random numbers (:attr:`.forest.Forest.tip_sets`), a split a hash of both
its sides that does not tell them apart, and a topology the sum of its inner splits. So an
interchange, which replaces one split, costs an addition. Different topologies share a key with a
probability of about 2^-64 a pair. Letters: T tips.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Int32, UInt64
from mltree.tree.forest import Forest, mixed
from mltree.tree.topology import Tree, siblings

__all__ = ["SplitSums", "splits_of"]


class SplitSums:
    """Of one tree, as it is now."""

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

    def quartets(self, halves: Int32) -> tuple[UInt64, NDArray[np.intp]]:
        """Keys of subtrees joined two and two, uint64[n], the same in any tree; and their order.

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
        return _split(side, self._all - side)


def splits_of(trees: Sequence[Tree]) -> UInt64:
    """uint64[n, T - 3]: the keys of the inner splits of many trees of as many tips, in no order."""
    forest = Forest(trees)
    inner = forest.inner
    twin = forest.twin[inner]
    halves = inner[(inner < twin) & forest.is_inner[twin]]
    keys = _split(forest.tip_sets[halves], forest.tip_sets[forest.twin[halves]])
    return keys.reshape(len(trees), -1)


def _split(one: UInt64, other: UInt64) -> UInt64:
    """The keys of splits, of the sums of their sides."""
    return mixed(mixed(one) + mixed(other))
