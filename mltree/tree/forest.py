"""Trees side by side, of any taxa: gone through together, a wave of all trees at a time.

NumPy's calls cost more than the few half-edges of a wave, so that the way through eight trees
takes hardly longer than that through a single one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from mltree.system.arrays import Bool, Float64, Int32, UInt64
from mltree.tree.topology import NONE, Tree, siblings


class Forest:
    """n trees as one set of half-edges, edges and lengths, tree after tree.

    Half-edge h of tree k has number ``first_half[k] + h``, edge e of it ``first_edge[k] + e``.
    A copy: later changes of the trees do not matter.
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.n_trees = len(trees)
        self.n_tips: Int32 = np.array([tree.n_tips for tree in trees], np.int32)
        """int32[n]: T of every tree; and so on."""
        self.n_edges: Int32 = 2 * self.n_tips - 3
        self.n_branches: Int32 = np.array([tree.n_branches for tree in trees], np.int32)
        self.n_halves: Int32 = 6 * self.n_tips - 6
        self.first_edge: Int32 = np.cumsum(self.n_edges, dtype=np.int32) - self.n_edges
        self.first_half: Int32 = np.cumsum(self.n_halves, dtype=np.int32) - self.n_halves
        self.twin: Int32 = np.concatenate([tree.twin for tree in trees])
        """int32[3N of all]; without meaning where a tip has no half-edge."""
        self.twin += np.repeat(self.first_half, self.n_halves)
        self.edge: Int32 = np.concatenate([tree.edge for tree in trees])
        """int32[3N of all]; without meaning where a tip has no half-edge."""
        self.edge += np.repeat(self.first_edge, self.n_halves)
        self.lengths: Float64 = np.concatenate([tree.lengths for tree in trees], axis=-1)
        """float64[E of all], or float64[parts, E of all]"""
        first_inner = np.repeat(self.first_half + 3 * self.n_tips, self.n_halves)
        self.is_inner: Bool = np.arange(self.twin.size) >= first_inner
        """bool[3N of all]: half-edges at inner nodes."""
        self.siblings: tuple[Int32, Int32] = ring(self.twin.size)
        """The other two half-edges of the same inner node, int32[3N of all] each."""

    @classmethod
    def of(cls, trees: Trees) -> Forest:
        """The forest of the trees; a forest is returned unchanged."""
        return trees if isinstance(trees, Forest) else cls(trees)

    def __len__(self) -> int:
        """Number of trees."""
        return self.n_trees

    def is_as_large(self, other: Forest) -> bool:
        """True where every tree has as many tips as its counterpart."""
        return np.array_equal(self.n_tips, other.n_tips)

    def is_same(self, other: Forest) -> bool:
        """True where all trees are equal, numbering and lengths included."""
        return self is other or all(
            np.array_equal(mine, theirs)
            for mine, theirs in zip(self._fields, other._fields, strict=True)
        )

    @property
    def _fields(self) -> tuple[Int32 | Float64, ...]:
        """Arrays that tell a forest from others."""
        return self.n_tips, self.n_branches, self.twin, self.edge, self.lengths

    @cached_property
    def inner(self) -> Int32:
        """int32[3(T-2) of all]: every half-edge at an inner node, rising."""
        return np.flatnonzero(self.is_inner).astype(np.int32)

    @cached_property
    def tips(self) -> Int32:
        """int32[T of all]: the half-edge of every tip, rising."""
        return np.flatnonzero(~self.is_inner)[::3].astype(np.int32)

    @cached_property
    def tree_of_half(self) -> Int32:
        """int32[3N of all]: number of the tree of each half-edge."""
        return np.repeat(np.arange(self.n_trees, dtype=np.int32), self.n_halves)

    @cached_property
    def tree_of_edge(self) -> Int32:
        """int32[E of all]: number of the tree of each edge."""
        return np.repeat(np.arange(self.n_trees, dtype=np.int32), self.n_edges)

    @cached_property
    def behind(self) -> tuple[Int32, Int32]:
        """The two half-edges whose CLAs make the CLA of each inner one, int32[3N of all] each."""
        one, other = self.siblings
        return self.twin[one], self.twin[other]

    def tree(self, number: int) -> Tree:
        """A copy of one tree, with the arrays' present values."""
        halves = slice(self.first_half[number], self.first_half[number] + self.n_halves[number])
        edges = slice(self.first_edge[number], self.first_edge[number] + self.n_edges[number])
        is_used = self.is_inner[halves] | (np.arange(self.n_halves[number]) % 3 == 0)
        twin = np.where(is_used, self.twin[halves] - self.first_half[number], np.int32(NONE))
        edge = np.where(is_used, self.edge[halves] - self.first_edge[number], np.int32(NONE))
        n_tips, n_edges = int(self.n_tips[number]), int(self.n_edges[number])
        n_artificial = n_edges - int(self.n_branches[number])
        return Tree(twin, edge, self.lengths[..., edges].copy(), n_tips, n_artificial)

    def of_trees(self, half: int) -> Int32:
        """int32[n]: the half-edge with this number of every tree."""
        return self.first_half + np.int32(half)

    def in_tree(self, halves: Int32) -> Int32:
        """int32[...]: the numbers of half-edges within their trees."""
        numbers: Int32 = halves - self.first_half[self.tree_of_half[halves]]
        return numbers

    def central_tips(self) -> Int32:
        """int32[n]: half-edge of each tree's tip with the least distance to its farthest tip.

        The first of several, independent of the numbering of inner nodes.
        """
        levels = np.split(self.levels()[self.twin[self.tips]], np.cumsum(self.n_tips)[:-1])
        tip = np.array([of_tree.argmin() for of_tree in levels], np.int32)
        return self.of_trees(0) + 3 * tip

    def waves(self, roots: Int32 | None = None) -> list[Int32]:
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

    def facing(self, trees: Int32) -> tuple[Int32, Bool]:
        """The inner half-edges of some trees that face tip 0, nearest first.

        Returns: them, and bool[n]: which of those are trees, with no branches in a circle.
        """
        wave = self.twin[self.first_half[trees]]
        waves = [wave[:0]]
        count = np.zeros(self.n_trees, np.intp)
        while (wave := wave[self.is_inner[wave]]).size:
            waves.append(wave)
            count += np.bincount(self.tree_of_half[wave], minlength=self.n_trees)
            wave = np.concatenate([self.twin[side[wave]] for side in self.siblings])
            # In circles they would go on for ever, and where those cross become more with each.
            wave = wave[(count < self.n_tips)[self.tree_of_half[wave]]]
        facing = np.concatenate(waves)
        return facing, count == self.n_tips - 2

    def levels(self) -> Int32:
        """int32[3N of all]: 1 + the highest level of what a half-edge is made from; tips are 0.

        All half-edges of one level can be computed together once the lower levels are.
        """
        across = self.twin
        level = np.zeros(across.size, dtype=np.int32)
        met = np.zeros(across.size, dtype=np.bool_)
        ready = self.tips
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
        """64 bits of every tree that equal topologies share, under any numbering and lengths.

        A hash of the tree rooted at tip 0: key(inner node) = mix(key(left) + key(right)), unmixed
        where the node is one with that above it.
        Different topologies collide with a probability of about 2^-64 a pair.
        """
        one, other = self.behind
        key = self._tip_keys()
        in_tree = np.arange(self.tree_of_edge.size) - self.first_edge[self.tree_of_edge]
        is_branch = (in_tree < self.n_branches[self.tree_of_edge])[self.edge]
        for wave in reversed(self.waves()):
            both = key[one[wave]] + key[other[wave]]
            key[wave] = np.where(is_branch[wave], mixed(both), both)
        keys: list[int] = key[self.twin[self.of_trees(0)]].tolist()
        return keys

    @cached_property
    def tip_sets(self) -> UInt64:
        """uint64[3N of all]: hash of the set of tips that a half-edge's neighbour sees across it.

        Equal for equal sets, in any tree; the sum of two disjoint sets' hashes is that of their
        union.
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
            key[self.twin[below]] = whole[self.tree_of_half[below]] - key[below]
        return key

    def shape_keys(self, shortest: float | Float64) -> list[int]:
        """64 bits of every tree that equal shapes share: all splits by branches that are longer.

        Topologies that differ in the order of shorter branches alone are of one shape.
        ``shortest``: for all trees, or float64[n].  A branch with lengths for several parts is as
        long as the longest.
        """
        longest = self.lengths.reshape(-1, self.lengths.shape[-1]).max(axis=0)
        sides = mixed(self.tip_sets)
        inner = self.inner
        least = np.broadcast_to(shortest, self.n_trees)[self.tree_of_half[inner]]
        shown = inner[longest[self.edge[inner]] > least]
        split = mixed(sides[shown] + sides[self.twin[shown]])
        keys = np.zeros(self.n_trees, np.uint64)
        np.add.at(keys, self.tree_of_half[shown], split)
        shapes: list[int] = keys.tolist()
        return shapes

    def _tip_keys(self) -> UInt64:
        """uint64[3N of all]: 64 random bits of every tip, at its half-edge; zeros elsewhere."""
        key = np.zeros(self.twin.size, dtype=np.uint64)
        key[self.tips] = mixed((self.in_tree(self.tips) // 3 + 1).astype(np.uint64) * GOLDEN)
        return key


Trees: TypeAlias = Sequence[Tree] | Forest
"""Trees side by side: a sequence with their present state, or a forest with an earlier one."""


@lru_cache(maxsize=16)
def ring(half_edges: int) -> tuple[Int32, Int32]:
    """Next and next-but-one half-edge around its node, for every half-edge; read-only."""
    around = siblings(np.arange(half_edges, dtype=np.int32))
    for array in around:
        array.setflags(write=False)
    return around


# splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


def mixed(value: UInt64) -> UInt64:
    """splitmix64's finaliser of every number: a permutation that makes close numbers unlike."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_A
    value = (value ^ (value >> np.uint64(27))) * _MIX_B
    return value ^ (value >> np.uint64(31))
