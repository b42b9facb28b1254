"""The parsimony score, and trees by randomised stepwise addition.

Every directional Fitch set is kept (:mod:`mltree.tree.directional_sets`), so a new tip is tried on
all edges at once: on edge {g, h} it costs the sites where its set misses join(set[g], set[h]).

Letters: T tips, E edges, F words of all planes (see fitch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns
from mltree.tree.directional_sets import DirectionalSets
from mltree.tree.fitch import PackedSites, Sets, pack_sites
from mltree.tree.forest import Forest
from mltree.tree.topology import DEFAULT_LENGTH, NONE, Int32Array, Tree

__all__ = [
    "groves",
    "packed",
    "parsimony_score",
    "stepwise_addition",
    "stepwise_additions",
    "trees_at_once",
]

SETS_A_TIP = 5
"""Fitch sets of half-edges and edges that a growing tree keeps for every tip."""

GROVE_BYTES = 1 << 26
"""Sets of trees that stand side by side: for more of them, NumPy's calls cost little anyway."""


def parsimony_score(tree: Tree, patterns: Patterns | PackedSites) -> float:
    """The least number of state changes on the tree, site weights included (Fitch 1971)."""
    return float(DirectionalSets.of_trees(Forest([tree]), packed(patterns)).scores()[0])


def stepwise_addition(
    patterns: Patterns | PackedSites, rng: np.random.Generator, length: float = DEFAULT_LENGTH
) -> Tree:
    """Tips in random order, each onto an edge where it costs least; ties are broken at random.

    patterns  or ``pack_sites`` of them, to pack once for several trees
    Returns: a tree with all branches of the given length; the same for the same state of rng.
    """
    (tree,) = stepwise_additions(patterns, [rng], length)
    return tree


def stepwise_additions(
    patterns: Patterns | PackedSites,
    rngs: Sequence[np.random.Generator],
    length: float = DEFAULT_LENGTH,
) -> list[Tree]:
    """A tree by stepwise addition for every rng, and for every row of weights where sites have any.

    They grow side by side: the same rng several times gives several trees, which differ from those
    that it would give one by one.
    """
    trees: list[Tree] = []
    for some, sites in groves(packed(patterns), len(rngs)):
        trees += _grown(sites, rngs[some], length)
    return trees


def groves(sites: PackedSites, count: int) -> Iterator[tuple[slice, PackedSites]]:
    """Some of ``count`` trees at a time, with their sites: as many as are best side by side."""
    size = trees_at_once(sites.n_tips, len(sites.tips) * sites.tips.itemsize)
    for first in range(0, count, size):
        some = slice(first, first + size)
        yield some, sites.rows(some) if sites.tips.ndim > 2 else sites


def trees_at_once(n_tips: int, set_bytes: int) -> int:
    """Trees that are best worked on side by side, by the bytes of a set."""
    return max(1, GROVE_BYTES // (SETS_A_TIP * n_tips * set_bytes))


def _grown(sites: PackedSites, rngs: Sequence[np.random.Generator], length: float) -> list[Tree]:
    """A tree by each generator; the same one again where all draw from one stream."""
    growth = _Growth(sites, len(rngs))
    orders = [rng.permutation(growth.n_tips) for rng in rngs]
    order = np.stack(orders, axis=1).astype(np.int32)
    growth.star(order[:3])
    for tips in order[3:]:
        costs = growth.costs(tips)
        cheapest = [np.flatnonzero(own) for own in costs == costs.min(axis=1, keepdims=True)]
        growth.insert(
            tips,
            np.array(
                [own[rng.integers(own.size)] for own, rng in zip(cheapest, rngs, strict=True)]
            ),
        )
    trees = growth.trees()
    for tree in trees:
        tree.lengths[:] = length
    return trees


def packed(patterns: Patterns | PackedSites) -> PackedSites:
    """The packed sites of either."""
    return patterns if isinstance(patterns, PackedSites) else pack_sites(patterns)


class _Growth:
    """Trees that gain one tip each at a time, with the sets of all half-edges and edges kept up.

    Half-edge h of tree k is ``k * 3N + h``, edge e is ``k * E + e``, as in a Forest. All trees
    have the same nodes and edges at any time; they differ in the tips, and where those went.
    """

    def __init__(self, sites: PackedSites, count: int = 1) -> None:
        self.sites = sites
        self.n_tips = sites.n_tips
        n_halves, n_edges = 3 * (2 * self.n_tips - 2), 2 * self.n_tips - 3
        self.first_half = n_halves * np.arange(count, dtype=np.int32)
        self.first_edge = n_edges * np.arange(count, dtype=np.int32)
        self.twin = np.full(count * n_halves, NONE, dtype=np.int32)
        self.edge = np.full(count * n_halves, NONE, dtype=np.int32)
        self.sets = DirectionalSets(self.twin, count, sites)
        self.edge_sets: Sets = np.empty((len(sites.tips), count, n_edges), dtype=np.uint64)
        self.edge_half = np.empty(count * n_edges, dtype=np.int32)
        self.next_node = self.n_tips
        self.n_edges = 0

    def trees(self) -> list[Tree]:
        """The trees, once every tip is there."""
        count, n_edges = self.edge_sets.shape[1:]
        used = self.twin >= 0
        twin = np.where(used, self.twin - np.repeat(self.first_half, self.twin.size // count), NONE)
        edge = np.where(used, self.edge - np.repeat(self.first_edge, self.edge.size // count), NONE)
        halves = zip(twin.reshape(count, -1), edge.reshape(count, -1), strict=True)
        return [Tree(t.copy(), e.copy(), np.zeros(n_edges), self.n_tips) for t, e in halves]

    def star(self, tips: Int32Array) -> None:
        """The trees of the first three tips, int [3, trees]."""
        base = self.first_half + 3 * self.next_node
        for slot, tip in enumerate(tips):
            self._link(base + slot, self.first_half + 3 * tip, self.first_edge + slot)
        self.next_node, self.n_edges = self.next_node + 1, 3
        self.sets.refresh(np.concatenate([base, base + 1, base + 2]))
        self._refresh_edges((self.first_edge + np.arange(3)[:, None]).ravel())

    def costs(self, tips: Int32Array) -> NDArray[np.float64]:
        """float64 [trees, edges so far]: the changes that each tree's tip adds on each edge."""
        new = self.sets.behind(self.first_half + 3 * tips)
        return self.sites.misses(self.edge_sets[:, :, : self.n_edges], new[:, :, None])

    def insert(self, tips: Int32Array, edges: Int32Array) -> None:
        """Put a tip onto an edge of every tree; its near half keeps the edge's id."""
        old = self.first_edge + edges
        near = self.edge_half[old]
        far = self.twin[near]
        base = self.first_half + 3 * self.next_node
        self._link(near, base, old)
        self._link(base + 1, far, self.first_edge + self.n_edges)
        self._link(base + 2, self.first_half + 3 * tips, self.first_edge + self.n_edges + 1)
        self.next_node, self.n_edges = self.next_node + 1, self.n_edges + 2
        # The neighbours saw each other until now; behind the tip's half-edge is the old edge.
        rows, sets = self.sets.row_of, self.sets.sets
        sets[:, rows[base]], sets[:, rows[base + 1]] = sets[:, rows[far]], sets[:, rows[near]]
        sets[:, rows[base + 2]] = self._flat_edge_sets[:, old]
        changed = self.sets.refresh(np.concatenate([base, base + 1]))
        touched = np.concatenate([changed, base, base + 1, base + 2])
        self._refresh_edges(np.flatnonzero(np.bincount(self.edge[touched])).astype(np.int32))

    @property
    def _flat_edge_sets(self) -> Sets:
        """[F, n * E]: the edges of all trees."""
        return self.edge_sets.reshape(len(self.edge_sets), -1)

    def _link(self, one: Int32Array, other: Int32Array, edge: Int32Array) -> None:
        self.twin[one], self.twin[other] = other, one
        self.edge[one] = self.edge[other] = edge
        self.edge_half[edge] = one

    def _refresh_edges(self, edges: Int32Array) -> None:
        halves = self.edge_half[edges]
        one, other = self.sets.behind(halves), self.sets.behind(self.twin[halves])
        self._flat_edge_sets[:, edges] = self.sites.join(one, other)
