"""Topologies, and those of their neighbours, as 64 bits each, without making the neighbours.

Every tip has a random number, and a side of a branch the sum s of those on it, modulo 2^64. With K
the sum of all tips, a split has the key

    h(s) = mix(s) + mix(K - s)

which does not depend on the side, and a topology the sum of the keys of its inner splits. So an
interchange, which replaces one split, costs two additions. Different topologies share a key with a
probability of about 2^-64 a pair. Letters: T tips, N nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mltree.tree.forest import GOLDEN, mix
from mltree.tree.topology import Int32Array, Tree, siblings

__all__ = ["SplitSums"]

UInt64Array = NDArray[np.uint64]


class SplitSums:
    """Of one tree, as it is now."""

    def __init__(self, tree: Tree) -> None:
        own = mix(np.arange(1, tree.n_tips + 1, dtype=np.uint64) * GOLDEN)
        self._all = own.sum(dtype=np.uint64)
        below = np.zeros(tree.n_nodes, dtype=np.uint64)
        below[: tree.n_tips] = own
        across = tree.twin // 3
        waves = list(tree.waves_from(int(tree.edge[0])))
        for wave in reversed(waves):
            one, other = siblings(wave)
            below[wave // 3] = below[across[one]] + below[across[other]]
        self._faced: UInt64Array = below[across]
        """uint64[3N]: of the tips that a half-edge faces."""
        for wave in waves:
            self._faced[wave] = self._all - below[wave // 3]
        self.edges: Int32Array = tree.inner_edges
        self._ends = tree.edge_halves[self.edges]
        self.splits: UInt64Array = self._key(self._faced[self._ends[:, 0]])
        """uint64[T - 3]: the keys of the inner splits, by rising edge."""
        self.topology = int(self.splits.sum(dtype=np.uint64))
        """The key of the tree."""

    def interchanges(self) -> UInt64Array:
        """uint64[2(T - 3)]: the keys of both neighbours across each inner edge (:func:`.nni`)."""
        near, far = self._ends.T
        stays = self._faced[siblings(near)[1]]
        joined = [stays + self._faced[half] for half in siblings(far)]
        without = np.uint64(self.topology) - self.splits
        return np.stack([without + self._key(side) for side in joined], axis=1).ravel()

    def _key(self, side: UInt64Array) -> UInt64Array:
        return mix(side) + mix(self._all - side)
