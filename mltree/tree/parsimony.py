"""The parsimony score, and trees by randomised stepwise addition.

Every directional Fitch set is kept (that of half-edge h is the set behind h), so a new tip is
tried on all edges at once: on edge {g, h} it costs the sites where its set misses
join(set[g], set[h]).

Letters: T tips, E edges, F words of all planes (see fitch).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns
from mltree.tree.fitch import PackedSites, ReweightedSites, Sets, pack_sites
from mltree.tree.forest import Forest, ring
from mltree.tree.topology import DEFAULT_LENGTH, NONE, Int32Array, Tree, siblings

__all__ = [
    "DirectionalSets",
    "packed",
    "parsimony_score",
    "reweighted_additions",
    "stepwise_addition",
    "stepwise_additions",
]

SETS_A_TIP = 5
"""Fitch sets of half-edges and edges that a growing tree keeps for every tip."""

GROVE_BYTES = 1 << 26
"""Sets of trees that grow side by side: for more of them, NumPy's calls cost little anyway."""


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
    (tree,) = stepwise_additions(patterns, 1, rng, length)
    return tree


def stepwise_additions(
    patterns: Patterns | PackedSites,
    count: int,
    rng: np.random.Generator,
    length: float = DEFAULT_LENGTH,
) -> list[Tree]:
    """``count`` trees by stepwise addition, grown side by side; see :func:`stepwise_addition`."""
    sites = packed(patterns)
    together = _together(sites)
    trees: list[Tree] = []
    while len(trees) < count:
        trees += _grown(sites, [rng] * min(together, count - len(trees)), length)
    return trees


def reweighted_additions(
    sites: ReweightedSites, rngs: Sequence[np.random.Generator], length: float = DEFAULT_LENGTH
) -> list[Tree]:
    """A tree by stepwise addition for every row of weights, each by its own rng."""
    trees: list[Tree] = []
    together = _together(sites)
    for first in range(0, len(rngs), together):
        rows = slice(first, first + together)
        trees += _grown(sites.rows(rows), rngs[rows], length)
    return trees


def _together(sites: PackedSites) -> int:
    """Trees that grow side by side."""
    n_tips, n_words = sites.tips.shape
    return int(max(1, GROVE_BYTES // (SETS_A_TIP * n_tips * n_words * sites.tips.itemsize)))


def _grown(sites: PackedSites, rngs: Sequence[np.random.Generator], length: float) -> list[Tree]:
    """A tree by each generator; the same one again where all draw from one stream."""
    growth = _Growth(sites, len(rngs))
    orders = [rng.permutation(len(sites.tips)) for rng in rngs]
    order = np.stack(orders, axis=1).astype(np.int32)
    growth.star(order[:3])
    for tips in order[3:]:
        costs = growth.costs(tips)
        cheapest = [np.flatnonzero(own == own.min()) for own in costs]
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
        levels = Forest([self.tree]).levels()
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
    """Trees that gain one tip each at a time, with the sets of all half-edges and edges kept up.

    Half-edge h of tree k is ``k * 3N + h``, edge e is ``k * E + e``, as in a Forest. All trees
    have the same nodes and edges at any time; they differ in the tips, and where those went.
    """

    def __init__(self, sites: PackedSites, count: int = 1) -> None:
        self.sites = sites
        self.n_tips, n_words = sites.tips.shape
        n_halves, n_edges = 3 * (2 * self.n_tips - 2), 2 * self.n_tips - 3
        self.first_half = n_halves * np.arange(count, dtype=np.int32)
        self.first_edge = n_edges * np.arange(count, dtype=np.int32)
        self.twin = np.full(count * n_halves, NONE, dtype=np.int32)
        self.edge = np.full(count * n_halves, NONE, dtype=np.int32)
        self.siblings = ring(count * n_halves)
        inner = np.arange(n_halves) >= 3 * self.n_tips
        self.is_inner = np.tile(inner, count)
        # Rows of sets: the tips, which all trees share, then the inner half-edges of every tree.
        rows = set_rows(np.arange(n_halves, dtype=np.int32), self.n_tips)
        offset = np.arange(count, dtype=np.int32)[:, None] * np.int32(3 * (self.n_tips - 2))
        self.row_of: Int32Array = (rows + inner * offset).ravel()
        self.sets: Sets = np.zeros(
            (self.n_tips + count * 3 * (self.n_tips - 2), n_words), dtype=np.uint64
        )
        self.sets[: self.n_tips] = sites.tips
        self.edge_sets: Sets = np.empty((count, n_edges, n_words), dtype=np.uint64)
        self.edge_half = np.empty(count * n_edges, dtype=np.int32)
        self.next_node = self.n_tips
        self.n_edges = 0

    def trees(self) -> list[Tree]:
        """The trees, once every tip is there."""
        count, n_edges = self.edge_sets.shape[:2]
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
        self._refresh(np.concatenate([base, base + 1, base + 2]))
        self._refresh_edges((self.first_edge + np.arange(3)[:, None]).ravel())

    def costs(self, tips: Int32Array) -> NDArray[np.float64]:
        """float64 [trees, edges so far]: the changes that each tree's tip adds on each edge."""
        return self.sites.misses(self.edge_sets[:, : self.n_edges], self.sets[tips][:, None])

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
        rows = self.row_of
        self.sets[rows[base]], self.sets[rows[base + 1]] = (
            self.sets[rows[far]],
            self.sets[rows[near]],
        )
        self.sets[rows[base + 2]] = self._set_of_edges(old)
        changed = self._refresh(np.concatenate([base, base + 1]))
        touched = np.concatenate([changed, base, base + 1, base + 2])
        self._refresh_edges(np.flatnonzero(np.bincount(self.edge[touched])).astype(np.int32))

    def _set_of_edges(self, edges: Int32Array) -> Sets:
        sets: Sets = self.edge_sets.reshape(-1, self.sets.shape[1])[edges]
        return sets

    def _link(self, one: Int32Array, other: Int32Array, edge: Int32Array) -> None:
        self.twin[one], self.twin[other] = other, one
        self.edge[one] = self.edge[other] = edge
        self.edge_half[edge] = one

    def _refresh(self, halves: Int32Array) -> Int32Array:
        """Recompute sets and whatever is made from them, outwards until nothing changes.

        A change travels away from where it began, so each half-edge is met at most once.
        """
        twin, rows = self.twin, self.row_of
        changed = [halves[:0]]
        while halves.size:
            left, right = (rows[twin[side[halves]]] for side in self.siblings)
            sets, _ = self.sites.join(self.sets[left], self.sets[right])
            here = rows[halves]
            differs = np.flatnonzero((sets != self.sets[here]).any(axis=1))
            changed.append(halves[differs])
            self.sets[here[differs]] = sets[differs]
            across = twin[changed[-1]]
            across = across[self.is_inner[across]]
            halves = np.concatenate([side[across] for side in self.siblings])
        return np.concatenate(changed)

    def _refresh_edges(self, edges: Int32Array) -> None:
        halves = self.edge_half[edges]
        one = self.sets[self.row_of[halves]]
        other = self.sets[self.row_of[self.twin[halves]]]
        self.edge_sets.reshape(-1, self.sets.shape[1])[edges] = self.sites.join(one, other)[0]
