"""Trees over the same taxa, side by side: gone through together, a wave of all trees at a time.

NumPy's calls cost more than the few half-edges of a wave, so that the way through eight trees
takes hardly longer than that through a single one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from mltree.tree.topology import Float64Array, Int32Array, Tree, siblings

__all__ = ["Forest", "mixed", "ring"]


class Forest:
    """n trees as one set of half-edges, edges and lengths, tree after tree.

    Half-edge h of tree k has number ``k * 3N + h``, edge e of tree k has number ``k * E + e``.
    A copy: later changes of the trees do not matter.
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        first, count = trees[0], len(trees)
        self.n_tips = first.n_tips
        self.n_edges = first.n_edges
        """E, of one tree."""
        self.n_halves = first.twin.size
        """3N, of one tree."""
        self.n_trees = count
        number = np.arange(count, dtype=np.int32)[:, None]
        self.twin: Int32Array = (
            np.array([tree.twin for tree in trees]) + number * np.int32(self.n_halves)
        ).ravel()
        """int32[n * 3N]; without meaning where a tip has no half-edge."""
        self.edge: Int32Array = (
            np.array([tree.edge for tree in trees]) + number * np.int32(self.n_edges)
        ).ravel()
        """int32[n * 3N]; without meaning where a tip has no half-edge."""
        self.lengths: Float64Array = np.concatenate([tree.lengths for tree in trees], axis=-1)
        """float64[n * E], or float64[parts, n * E]"""
        inner = np.arange(self.n_halves) >= 3 * self.n_tips
        self.is_inner: NDArray[np.bool_] = np.tile(inner, count)
        """bool[n * 3N]: half-edges at inner nodes."""
        self.siblings: tuple[Int32Array, Int32Array] = ring(self.twin.size)
        """The other two half-edges of the same inner node, int32[n * 3N] each."""

    @cached_property
    def inner(self) -> Int32Array:
        """int32[n * 3(T-2)]: every half-edge at an inner node, rising."""
        return np.flatnonzero(self.is_inner).astype(np.int32)

    @cached_property
    def behind(self) -> tuple[Int32Array, Int32Array]:
        """The two half-edges, int32[n * 3N] each, whose CLAs make that of an inner half-edge."""
        one, other = self.siblings
        return self.twin[one], self.twin[other]

    def of_trees(self, half: int) -> Int32Array:
        """int32[n]: a half-edge of every tree."""
        return np.arange(half, self.twin.size, self.n_halves, dtype=np.int32)

    def central_tips(self) -> Int32Array:
        """int32[n]: of every tree the half-edge of the tip that is least far from all others.

        The first of several, whatever the numbering of the inner nodes.
        """
        facing = self.twin.reshape(self.n_trees, -1)[:, : 3 * self.n_tips : 3]
        tip: Int32Array = self.levels()[facing].argmin(axis=1).astype(np.int32)
        return self.of_trees(0) + 3 * tip

    def waves(self, roots: Int32Array | None = None) -> list[Int32Array]:
        """The inner half-edges that face tip 0, nearest first, an array per distance.

        ``roots``: a tip's half-edge of every tree that they face instead, int32[n].
        """
        one, other = self.behind
        waves = []
        wave = self.twin[self.of_trees(0) if roots is None else roots]
        while (wave := wave[self.is_inner[wave]]).size:
            waves.append(wave)
            wave = np.concatenate([one[wave], other[wave]])
        return waves

    def levels(self) -> Int32Array:
        """int32[n * 3N]: 1 + the highest level of what a half-edge is made from; tips are 0.

        All half-edges of one level can be computed together once the lower levels are.
        """
        across = self.twin
        level = np.zeros(across.size, dtype=np.int32)
        met = np.zeros(across.size, dtype=np.bool_)
        ready = np.flatnonzero(~self.is_inner).astype(np.int32)
        ready = ready[ready % 3 == 0]
        wave = 0
        while ready.size:
            level[ready] = wave
            wave += 1
            facing = across[ready]
            facing = facing[self.is_inner[facing]]
            last = []
            # A half-edge is ready when it is met from its second side.
            for beside in self.siblings:
                side = beside[facing]
                last.append(side[met[side]])
                met[side] = True
            ready = np.concatenate(last)
        return level

    def topology_keys(self) -> list[int]:
        """64 bits of every tree that equal topologies share, whatever their numbering and lengths.

        A hash of the tree rooted at tip 0: key(inner node) = mix(key(left) + key(right)).
        Different topologies collide with a probability of about 2^-64 a pair.
        """
        one, other = self.behind
        key = self._tip_keys()
        for wave in reversed(self.waves()):
            key[wave] = mixed(key[one[wave]] + key[other[wave]])
        keys: list[int] = key[self.twin[self.of_trees(0)]].tolist()
        return keys

    @cached_property
    def tip_sets(self) -> NDArray[np.uint64]:
        """uint64[n * 3N]: of the tips that a half-edge's neighbour sees across it.

        Equal for equal sets, in any tree; of two sets without a common tip the sum is that of both.
        """
        one, other = self.behind
        key = self._tip_keys()
        facing = self.waves()
        for wave in reversed(facing):
            key[wave] = key[one[wave]] + key[other[wave]]
        roots = self.of_trees(0)
        whole = key[roots] + key[self.twin[roots]]
        nodes = np.concatenate(facing)
        for below in (one[nodes], other[nodes]):
            key[self.twin[below]] = whole[below // self.n_halves] - key[below]
        return key

    def shape_keys(self, shortest: float) -> list[int]:
        """64 bits of every tree that equal shapes share: all splits by branches that are longer.

        Topologies that differ in the order of shorter branches alone are of one shape.  A branch
        with lengths for several parts is as long as the longest.
        """
        longest = self.lengths.reshape(-1, self.n_trees * self.n_edges).max(axis=0)
        sides = mixed(self.tip_sets)
        inner = self.inner
        shown = inner[longest[self.edge[inner]] > shortest]
        split = mixed(sides[shown] + sides[self.twin[shown]])
        keys = np.zeros(self.n_trees, np.uint64)
        np.add.at(keys, shown // self.n_halves, split)
        shapes: list[int] = keys.tolist()
        return shapes

    def _tip_keys(self) -> NDArray[np.uint64]:
        """uint64[n * 3N]: 64 bits of every tip, at its half-edge; zeros elsewhere."""
        tips = np.arange(1, self.n_tips + 1, dtype=np.uint64) * _GOLDEN
        key = np.zeros(self.twin.size, dtype=np.uint64)
        key.reshape(self.n_trees, -1)[:, : 3 * self.n_tips : 3] = mixed(tips)
        return key


@lru_cache(maxsize=16)
def ring(half_edges: int) -> tuple[Int32Array, Int32Array]:
    """Next and next-but-one half-edge around its node, for every half-edge; read-only."""
    around = siblings(np.arange(half_edges, dtype=np.int32))
    for array in around:
        array.setflags(write=False)
    return around


# splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


def mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser of every number, a permutation: like numbers become unlike."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_A
    value = (value ^ (value >> np.uint64(27))) * _MIX_B
    return value ^ (value >> np.uint64(31))
