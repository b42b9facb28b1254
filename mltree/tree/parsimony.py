"""The parsimony score, and trees by randomised stepwise addition.

Every directional Fitch set is kept (that of half-edge h is the set behind h), so a new tip is
tried on all edges at once: on edge {g, h} it costs the sites where its set misses
join(set[g], set[h]).

Letters: T tips, E edges, F words of all planes (see fitch).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns
from mltree.tree.fitch import PackedSites, Sets, pack_sites
from mltree.tree.topology import (
    DEFAULT_LENGTH,
    NONE,
    Int32Array,
    Tree,
    inner_halves,
    siblings,
)

__all__ = ["DirectionalSets", "packed", "parsimony_score", "stepwise_addition"]


def parsimony_score(tree: Tree, patterns: Patterns | PackedSites) -> float:
    """The least number of state changes on the tree, site weights included (Fitch 1971)."""
    return DirectionalSets(tree, packed(patterns)).score()


def stepwise_addition(
    patterns: Patterns | PackedSites, rng: np.random.Generator, length: float = DEFAULT_LENGTH
) -> Tree:
    """Tips in random order, each onto an edge where it costs least; ties are broken at random.

    patterns  or ``pack_sites`` of them, to pack once for several trees
    Returns: a tree with all branches of the given length; the same for the same state of rng.
    """
    sites = packed(patterns)
    growth = _Growth(sites)
    order = rng.permutation(len(sites.tips)).tolist()
    growth.star(order[:3])
    for tip in order[3:]:
        costs = growth.costs(tip)
        cheapest = np.flatnonzero(costs == costs.min())
        growth.insert(tip, int(cheapest[rng.integers(cheapest.size)]))
    tree = growth.tree
    tree.lengths[:] = length
    return tree


def packed(patterns: Patterns | PackedSites) -> PackedSites:
    """The packed sites of either."""
    return patterns if isinstance(patterns, PackedSites) else pack_sites(patterns)


def set_rows(halves: Int32Array, n_tips: int) -> Int32Array:
    """Where the Fitch sets of half-edges are: tips first, then three rows an inner node."""
    rows: Int32Array = np.where(halves < 3 * n_tips, halves // 3, halves - 2 * n_tips)
    return rows


class DirectionalSets:
    """The Fitch sets behind every half-edge of a complete tree."""

    def __init__(self, tree: Tree, sites: PackedSites) -> None:
        self.tree = tree
        self.sites = sites
        self.row_of = set_rows(np.arange(3 * tree.n_nodes, dtype=np.int32), tree.n_tips)
        self.sets: Sets = np.empty((4 * tree.n_tips - 6, sites.tips.shape[1]), dtype=np.uint64)
        self.sets[: tree.n_tips] = sites.tips
        self.changes = np.zeros(3 * tree.n_nodes)
        self.update()

    def update(self) -> None:
        """Compute all sets again, and the changes that each join takes."""
        levels = self.tree.levels()
        order = np.argsort(levels, kind="stable").astype(np.int32)
        bounds = np.searchsorted(levels[order], np.arange(1, int(levels.max()) + 2))
        for first, last in pairwise(bounds.tolist()):
            halves = order[first:last]
            left, right = siblings(halves)
            twin = self.tree.twin
            parents, change = self.sites.join(self.behind(twin[left]), self.behind(twin[right]))
            self.sets[self.row_of[halves]] = parents
            self.changes[halves] = self.sites.count(change)

    def behind(self, halves: Int32Array) -> Sets:
        """[n, F]: the sets of the subtrees behind half-edges."""
        sets: Sets = self.sets[self.row_of[halves]]
        return sets

    def score(self) -> float:
        """Changes on the whole tree, with those that every tree needs."""
        edge = self.tree.edge.item(0)
        ends = np.array([0, self.tree.twin[0]], dtype=np.int32)
        across = self.sites.misses(self.behind(ends[:1]), self.behind(ends[1:]))
        inner = self.changes[self.tree.postorder(edge)].sum()
        return float(inner + across[0]) + self.sites.constant


class _Growth:
    """A tree that gains one tip at a time, with the sets of all half-edges and edges kept up."""

    def __init__(self, sites: PackedSites) -> None:
        self.sites = sites
        self.n_tips = len(sites.tips)
        n_halves = 3 * (2 * self.n_tips - 2)
        self.tree = Tree(
            np.full(n_halves, NONE, dtype=np.int32),
            np.full(n_halves, NONE, dtype=np.int32),
            np.zeros(2 * self.n_tips - 3),
            self.n_tips,
        )
        self.row_of = set_rows(np.arange(n_halves, dtype=np.int32), self.n_tips)
        n_words = sites.tips.shape[1]
        self.sets: Sets = np.zeros((4 * self.n_tips - 6, n_words), dtype=np.uint64)
        self.sets[: self.n_tips] = sites.tips
        self.edge_sets: Sets = np.empty((2 * self.n_tips - 3, n_words), dtype=np.uint64)
        self.edge_half = np.empty(2 * self.n_tips - 3, dtype=np.int32)
        self.next_node = self.n_tips
        self.n_edges = 0

    def star(self, tips: list[int]) -> None:
        """The tree of the first three tips."""
        base = 3 * self.next_node
        for slot, tip in enumerate(tips):
            self._link(base + slot, 3 * tip, slot)
        self.next_node, self.n_edges = self.next_node + 1, 3
        self._refresh(np.arange(base, base + 3, dtype=np.int32))
        self._refresh_edges(np.arange(3, dtype=np.int32))

    def costs(self, tip: int) -> NDArray[np.float64]:
        """float64 [edges so far]: the changes that a tip adds on each edge."""
        return self.sites.misses(self.edge_sets[: self.n_edges], self.sets[tip : tip + 1])

    def insert(self, tip: int, edge: int) -> None:
        """Put a tip onto an edge; its near half keeps the edge's id."""
        near = self.edge_half.item(edge)
        far = self.tree.twin.item(near)
        base = 3 * self.next_node
        self._link(near, base, edge)
        self._link(base + 1, far, self.n_edges)
        self._link(base + 2, 3 * tip, self.n_edges + 1)
        self.next_node, self.n_edges = self.next_node + 1, self.n_edges + 2
        fresh = np.arange(base, base + 3, dtype=np.int32)
        # The neighbours saw each other until now; behind the tip's half-edge is the old edge.
        self.sets[self.row_of[fresh[:2]]] = self.sets[self.row_of[[far, near]]]
        self.sets[self.row_of[fresh[2]]] = self.edge_sets[edge]
        changed = self._refresh(fresh[:2])
        self._refresh_edges(np.unique(self.tree.edge[np.concatenate((changed, fresh))]))

    def _link(self, one: int, other: int, edge: int) -> None:
        self.tree.twin[one], self.tree.twin[other] = other, one
        self.tree.edge[one] = self.tree.edge[other] = edge
        self.edge_half[edge] = one

    def _refresh(self, halves: Int32Array) -> Int32Array:
        """Recompute sets and whatever is made from them, outwards until nothing changes.

        A change travels away from where it began, so each half-edge is met at most once.
        """
        twin, rows = self.tree.twin, self.row_of
        changed = [halves[:0]]
        while halves.size:
            left, right = siblings(halves)
            sets, _ = self.sites.join(self.sets[rows[twin[left]]], self.sets[rows[twin[right]]])
            differs = (sets != self.sets[rows[halves]]).any(axis=1)
            changed.append(halves[differs])
            self.sets[rows[changed[-1]]] = sets[differs]
            across = inner_halves(twin[changed[-1]], self.n_tips)
            halves = np.concatenate(siblings(across))
        return np.concatenate(changed)

    def _refresh_edges(self, edges: Int32Array) -> None:
        halves = self.edge_half[edges]
        one = self.sets[self.row_of[halves]]
        other = self.sets[self.row_of[self.tree.twin[halves]]]
        self.edge_sets[edges] = self.sites.join(one, other)[0]
