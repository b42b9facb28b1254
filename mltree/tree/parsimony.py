"""Parsimony scores, trees by randomised stepwise addition, and the engines that compute both.

Who does the work is an engine: NumPy here, or a device (:mod:`mltree.device.parsimony`). All
numbers are whole, so that every engine finds the same trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.data.patterns import Patterns
from mltree.system.arrays import Bool, Float64, Int32
from mltree.tree.fitch import InformativeSites, PackedSites, Sets, pack_sites
from mltree.tree.moves import apply_sprs, compatible, rewire
from mltree.tree.topology import DEFAULT_LENGTH, NONE, Forest, Tree, ring


class DirectionalSets:
    """Fitch sets behind every half-edge of trees side by side, kept up as the trees change.

    The set behind half-edge h is that of the subtree which its neighbour sees across h; it is made
    from those behind the twins of h's siblings. After a change of ``twin``, :meth:`refresh`
    recomputes sets outwards as far as they change, which is not far.

    The trees have the same taxa: half-edge h of tree k is ``k * 3N + h``. Letters: T tips, N nodes,
    F words of all planes (see fitch).
    """

    def __init__(self, twin: Int32, n_trees: int, sites: PackedSites) -> None:
        """``twin``: int32[n * 3N], NONE where a tree has no such half-edge yet."""
        self.twin = twin
        self.sites = sites
        self.n_trees = n_trees
        self.n_halves = twin.size // n_trees
        """3N, of one tree."""
        self.n_tips = sites.n_tips
        self.siblings = ring(twin.size)
        halves = np.arange(self.n_halves, dtype=np.int32)
        inner = halves >= 3 * self.n_tips
        self.is_inner: Bool = np.tile(inner, n_trees)
        """bool[n * 3N]: half-edges at inner nodes."""
        # Of a tree the sets of its tips, then those of its inner half-edges.
        n_rows = 4 * self.n_tips - 6
        rows = np.where(inner, halves - 2 * self.n_tips, halves // 3)
        offset = n_rows * np.arange(n_trees, dtype=np.int32)[:, None]
        self.row_of: Int32 = (rows + offset).astype(np.int32).ravel()
        n_words = len(sites.tips)
        self.sets: Sets = np.zeros((n_words, n_trees * n_rows), dtype=np.uint64)
        tips = sites.tips.reshape(n_words, -1, self.n_tips)
        self.sets.reshape(n_words, n_trees, n_rows)[:, :, : self.n_tips] = tips
        self._place = np.empty(twin.size, dtype=np.int32)

    @classmethod
    def of_trees(cls, forest: Forest, sites: PackedSites) -> DirectionalSets:
        """The sets of whole trees."""
        self = cls(forest.twin, forest.n_trees, sites)
        level = forest.levels
        order = forest.inner[np.argsort(level[forest.inner], kind="stable")]
        for wave in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
            self.sets[:, self.row_of[wave]] = self._joined(wave)
        return self

    def behind(self, halves: Int32) -> Sets:
        """[F, n]: the sets behind some half-edges."""
        return self.sets.take(self.row_of[halves], axis=1)

    def refresh(self, halves: Int32) -> Int32:
        """Recompute sets, and all sets made from them, outwards until none changes.

        Returns: the half-edges whose sets have changed, some more than once.
        """
        changed = [halves[:0]]
        while halves.size:
            sets, here = self._joined(halves), self.row_of[halves]
            differs = np.flatnonzero((sets != self.sets.take(here, axis=1)).any(axis=0))
            changed.append(halves[differs])
            self.sets[:, here[differs]] = sets[:, differs]
            halves = self.made_from(self.twin[changed[-1]])
        return np.concatenate(changed)

    def made_from(self, halves: Int32) -> Int32:
        """The half-edges, each once, whose sets are made from those behind these ones' twins."""
        halves = halves[self.is_inner[halves]]
        due: Int32 = np.concatenate([side[halves] for side in self.siblings])
        place = np.arange(due.size, dtype=np.int32)
        self._place[due] = place  # of those that are equal the last stays
        is_last: Bool = self._place[due] == place
        return due[is_last]

    def scores(self, facing: Int32, trees: Int32) -> Float64:
        """f64[n]: changes on some trees, unavoidable ones included; other entries mean nothing.

        facing: all their half-edges that face tip 0 (:meth:`mltree.tree.topology.Forest.facing`)
        """
        one, other = (self.behind(self.twin[side[facing]]) for side in self.siblings)
        changes = self.sites.misses(one, other)
        scores: Float64 = np.zeros(self.n_trees) + self.sites.constant
        scores += np.bincount(facing // self.n_halves, changes, minlength=self.n_trees)
        roots = trees * np.int32(self.n_halves)
        scores[trees] += self.sites.misses(self.behind(roots), self.behind(self.twin[roots]))
        return scores

    def _joined(self, halves: Int32) -> Sets:
        one, other = (self.behind(self.twin[side[halves]]) for side in self.siblings)
        return self.sites.join(one, other)


CHUNK_WORDS = 1 << 18
"""64-bit words of one wave's sets: 2 MB; with fewer NumPy calls count."""

STEPS = 8
"""Number of slices of the words in which the costs of a tip are counted."""

FEW_LEFT = 32
"""Once at most this share, 1 in 32, of the edges is left, their other words are counted at once."""

LEAST_WORDS = 1 << 16
"""64-bit words of all edges' sets from which on counting in slices pays."""

WALKS = 8
"""Expected number of walks of a prune at a time; more only cost memory."""


class ReferenceParsimony:
    """The engine with NumPy, which every other :class:`ParsimonyEngine` must equal to the bit.

    On edge {g, h} a new tip costs the sites where its set misses join(set[g], set[h]). For a pruned
    subtree with set P, and a target edge with the sets N (near side, without the subtree) and D
    (far side), the tree costs

            constant + sites where join(N, D) misses P

    so a prune's gain is that count at the edge it came from less the count at the target. D is a
    directional set of the tree as it is; N is carried along while walking away from the attachment
    node, for all prunes of a chunk at once. Letters: C walks.
    """

    grove_bytes = 1 << 26
    """Bytes of sets from which on more trees side by side gain nothing: NumPy's calls cost
    little."""

    def grow(self, sites: PackedSites, orders: Int32, draws: NDArray[np.uint32]) -> list[Tree]:
        """Build trees by stepwise addition."""
        growth = StepwiseAddition(sites, len(orders))
        growth.star(orders.T[:3])
        for tips, draw in zip(orders.T[3:], draws.T[3:].astype(np.uint64), strict=True):
            costs = growth.costs_or_bounds(tips)
            least = costs == costs.min(axis=1, keepdims=True)
            picked = (draw * least.sum(axis=1, dtype=np.uint64)) >> np.uint64(32)
            is_picked = least & (np.cumsum(least, axis=1) == picked[:, None] + np.uint64(1))
            growth.insert(tips, is_picked.argmax(axis=1))
        return growth.trees()

    def grove(self, forest: Forest, sites: PackedSites) -> ReferenceGrove:
        """Whole trees with their sets."""
        return ReferenceGrove(forest, sites)


class StepwiseAddition:
    """Trees that gain a tip each at a time, with the Fitch sets of all half-edges and edges.

    Half-edge h of tree k is ``k * 3N + h``, edge e is ``k * E + e``, as in a Forest. All trees
    have the same nodes and edges at any time; they differ in the tips, and where those went.
    """

    def __init__(self, sites: PackedSites, count: int = 1) -> None:
        self.sites, self.n_tips = sites, sites.n_tips
        n_halves, n_edges = 3 * (2 * self.n_tips - 2), 2 * self.n_tips - 3
        self.first_half = n_halves * np.arange(count, dtype=np.int32)
        self.first_edge = n_edges * np.arange(count, dtype=np.int32)
        self.twin = np.full(count * n_halves, NONE, dtype=np.int32)
        self.edge = np.full(count * n_halves, NONE, dtype=np.int32)
        self.sets = DirectionalSets(self.twin, count, sites)
        self.edge_sets: Sets = np.empty((len(sites.tips), count, n_edges), dtype=np.uint64)
        self.edge_half = np.empty(count * n_edges, dtype=np.int32)
        self.next_node, self.n_edges = self.n_tips, 0

    def trees(self) -> list[Tree]:
        """The trees, once every tip is placed."""
        count, n_edges = self.edge_sets.shape[1:]
        used = self.twin >= 0
        twin = np.where(used, self.twin - np.repeat(self.first_half, self.twin.size // count), NONE)
        edge = np.where(used, self.edge - np.repeat(self.first_edge, self.edge.size // count), NONE)
        halves = zip(twin.reshape(count, -1), edge.reshape(count, -1), strict=True)
        return [Tree(t.copy(), e.copy(), np.zeros(n_edges), self.n_tips) for t, e in halves]

    def star(self, tips: Int32) -> None:
        """The trees of the first three tips, int [3, trees]."""
        base = self.first_half + 3 * self.next_node
        for slot, tip in enumerate(tips):
            self._link(base + slot, self.first_half + 3 * tip, self.first_edge + slot)
        self.next_node, self.n_edges = self.next_node + 1, 3
        self.sets.refresh(np.concatenate([base, base + 1, base + 2]))
        self._refresh_edges((self.first_edge + np.arange(3)[:, None]).ravel())

    def costs(self, tips: Int32) -> Float64:
        """float64 [trees, edges so far]: the changes that each tree's tip adds on each edge."""
        new = self.sets.behind(self.first_half + 3 * tips)
        return self.sites.misses(self.edge_sets[:, :, : self.n_edges], new[:, :, None])

    def costs_or_bounds(self, tips: Int32) -> Float64:
        """:meth:`costs`, or less for edges that cannot be best, but more than the least cost.

        The first words tell most edges from the best: their cost there exceeds already the whole
        cost of the edge that is best there.
        """
        sets, sites = self.edge_sets[:, :, : self.n_edges], self.sites
        n_words = sites.widths[0]
        if sets.size < LEAST_WORDS:
            return self.costs(tips)
        new = self.sets.behind(self.first_half + 3 * tips)
        costs: Float64 = np.zeros(sets.shape[1:])
        step = -(-n_words // STEPS)
        for begin in range(0, n_words, step):
            costs += sites.misses_within(sets, new[:, :, None], begin, min(begin + step, n_words))
            best = self._flat_edge_sets.take(self.first_edge + costs.argmin(axis=1), axis=1)
            tree, edge = np.nonzero(costs <= sites.misses(best, new)[:, None])
            if tree.size < costs.size // FEW_LEFT:
                left = self._flat_edge_sets.take(self.first_edge[tree] + edge, axis=1)
                costs[tree, edge] = sites.misses(left, new.take(tree, axis=1))
                break
        return costs

    def insert(self, tips: Int32, edges: Int32) -> None:
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
        self._refresh_edges(np.unique(self.edge[touched]))

    @property
    def _flat_edge_sets(self) -> Sets:
        return self.edge_sets.reshape(len(self.edge_sets), -1)

    def _link(self, one: Int32, other: Int32, edge: Int32) -> None:
        self.twin[one], self.twin[other] = other, one
        self.edge[one] = self.edge[other] = edge
        self.edge_half[edge] = one

    def _refresh_edges(self, edges: Int32) -> None:
        halves = self.edge_half[edges]
        one, other = self.sets.behind(halves), self.sets.behind(self.twin[halves])
        self._flat_edge_sets[:, edges] = self.sites.join(one, other)


class ReferenceGrove:
    """Implementation of :class:`Grove` with NumPy."""

    def __init__(self, forest: Forest, sites: PackedSites) -> None:
        self._forest = forest
        self._sets = DirectionalSets.of_trees(forest, sites)
        self._twin = forest.twin.copy()
        """Twins of the half-edges when the sets were made."""

    def scores(self) -> Float64:
        """f64[trees]: the changes on every tree."""
        trees = np.arange(self._forest.n_trees, dtype=np.int32)
        facing, _ = self._forest.facing(trees)
        return self._sets.scores(facing, trees)

    def renew(self, trees: Int32, facing: Int32) -> Float64:
        """f64[trees of all]: the changes on some trees; only sets that differ are made again."""
        moved = np.flatnonzero(self._forest.twin != self._twin).astype(np.int32)
        self._twin[moved] = self._forest.twin[moved]
        self._sets.refresh(self._sets.made_from(moved))
        return self._sets.scores(facing, trees)

    def best_targets(self, prunes: Int32, cuts: Float64) -> tuple[Int32, Int32, Float64]:
        """Best targets of all prunes, in chunks; see :class:`Grove`."""
        step = max(1, CHUNK_WORDS // (len(self._sets.sets) * WALKS))
        firsts = range(0, prunes.size, step)
        chunks = [self._best_targets(prunes[n : n + step], cuts[n : n + step]) for n in firsts]
        prune, target, gain = (np.concatenate(columns) for columns in zip(*chunks, strict=True))
        return prune, target, gain

    def _best_targets(self, prunes: Int32, cuts: Float64) -> tuple[Int32, Int32, Float64]:
        """The prunes of a chunk that gain, their best targets, and the gains."""
        subtrees = self._sets.behind(self._sets.twin[prunes])
        here = self._costs_here(prunes, subtrees)
        wave = self._start(prunes)
        waves = [(prunes[:0], prunes[:0], here[:0], here[:0])]
        depth = 0
        while wave.at.size:
            targets, costs, wave = self._advance(wave, subtrees)
            gain = here[wave.prune] - costs
            better = np.flatnonzero(gain > 0)
            far = np.full(better.size, float(depth))
            waves.append((wave.prune[better], targets[better], gain[better], far))
            wave = self._kept(wave, gain >= -cuts[wave.prune])
            depth += 1
        prune, target, gain, far = (np.concatenate(columns) for columns in zip(*waves, strict=True))
        order = np.lexsort((target, far, -gain, prune))
        first = order[np.flatnonzero(np.diff(prune[order], prepend=-1))]
        return prunes[prune[first]], target[first], gain[first]

    def _costs_here(self, prunes: Int32, subtrees: Sets) -> Float64:
        sets = self._sets
        left, right = (sets.behind(sets.twin[side[prunes]]) for side in sets.siblings)
        return sets.sites.misses(sets.sites.join(left, right), subtrees)

    def _start(self, prunes: Int32) -> _Wave:
        """Walks in both directions from every attachment node, with the other subtree behind."""
        left, right = (self._sets.twin[side[prunes]] for side in self._sets.siblings)
        ahead, behind = np.concatenate((left, right)), np.concatenate((right, left))
        index = np.tile(np.arange(prunes.size, dtype=np.int32), 2)
        wave = _Wave(index, ahead, self._sets.behind(behind))
        return self._kept(wave, np.ones(ahead.size, dtype=np.bool_))

    def _kept(self, wave: _Wave, keep: Bool) -> _Wave:
        on = np.flatnonzero(keep & self._sets.is_inner[wave.at])
        return _Wave(wave.prune[on], wave.at[on], wave.near.take(on, axis=1))

    def _advance(self, wave: _Wave, subtrees: Sets) -> tuple[Int32, Float64, _Wave]:
        """Cross both edges ahead of every walk.

        Returns: the edges crossed, by their near halves, what the subtree costs there, the walks.
        """
        sets, sites, n_walks = self._sets, self._sets.sites, wave.at.size
        targets = np.concatenate([side[wave.at] for side in sets.siblings])
        ahead = sets.twin[targets]
        far = sets.behind(ahead)
        near = np.empty_like(far)
        near[:, :n_walks] = sites.join(wave.near, far[:, n_walks:])
        near[:, n_walks:] = sites.join(wave.near, far[:, :n_walks])
        prune = np.concatenate((wave.prune, wave.prune))
        costs = sites.misses(sites.join(near, far), subtrees.take(prune, axis=1))
        return targets, costs, _Wave(prune, ahead, near)


@dataclass
class _Wave:
    """State of the walks of a chunk of prunes: each has just crossed an edge."""

    prune: Int32
    """int32 [C]: the prune's number in the chunk"""
    at: Int32
    """int32 [C]: the half-edge by which the walk arrives"""
    near: Sets
    """[F, C]: the set of all that lies behind the walk, without the subtree"""


SETS_A_TIP = 5
"""Fitch sets of half-edges and edges that a growing tree keeps for every tip."""


class Grove(Protocol):
    """Trees side by side, with the Fitch sets of all their half-edges."""

    def scores(self) -> Float64:
        """f64[trees]: changes on every tree, with those that any tree needs."""

    def renew(self, trees: Int32, facing: Int32) -> Float64:
        """Follow the forest, in which some trees have changed.

        facing   all half-edges of those trees that face tip 0, nearest first
        Returns: f64[trees]: as :meth:`scores`; of other trees they mean nothing.
        """

    def best_targets(self, prunes: Int32, cuts: Float64) -> tuple[Int32, Int32, Float64]:
        """Prunes that gain, the best target of each, and the changes saved.

        Targets with the largest gain, then the nearest, then the first half-edge. ``cuts``
        f64[prunes]: a walk ends where the subtree would cost more than here by more than this.
        """


class ParsimonyEngine(Protocol):
    """Engine that builds and improves trees by parsimony."""

    grove_bytes: int
    """Bytes of the sets of trees that are best worked on side by side."""

    def grow(self, sites: PackedSites, orders: Int32, draws: NDArray[np.uint32]) -> list[Tree]:
        """Build trees by stepwise addition, with lengths 0.

        orders  int32[trees, T]: the tips as they come
        draws   uint32[trees, T]: of n branches where a tip costs least, number draw * n / 2^32
        """

    def grove(self, forest: Forest, sites: PackedSites) -> Grove:
        """Sets of whole trees, which the caller changes in place."""


REFERENCE: ParsimonyEngine = ReferenceParsimony()


def parsimony_score(tree: Tree, patterns: Patterns | PackedSites) -> float:
    """The least number of state changes on the tree, site weights included (Fitch 1971)."""
    return float(REFERENCE.grove(Forest([tree]), packed(patterns)).scores()[0])


def stepwise_additions(
    patterns: Patterns | PackedSites,
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine = REFERENCE,
) -> list[Tree]:
    """A tree for every rng, under its row of weights if any: tips are added in random order.

    A tip goes at random onto one of the edges of least cost. All branches have
    :data:`DEFAULT_LENGTH`. The same rng several times gives the trees that it gives one by one.

    patterns  or ``pack_sites`` of them, to pack once for several calls
    """
    sites = packed(patterns)
    orders, draws = [], []
    for rng in rngs:
        orders.append(rng.permutation(sites.n_tips))
        draws.append(rng.integers(1 << 32, size=sites.n_tips, dtype=np.uint32))
    all_orders, all_draws = np.array(orders, np.int32), np.array(draws)
    trees: list[Tree] = []
    for some, rows in groves(sites, len(rngs), engine):
        trees += engine.grow(rows, all_orders[some], all_draws[some])
    for tree in trees:
        tree.lengths[:] = DEFAULT_LENGTH
    return trees


def groves(
    sites: PackedSites, count: int, engine: ParsimonyEngine
) -> Iterator[tuple[slice, PackedSites]]:
    """Slices of ``count`` trees, each as many as are best side by side, and their sites."""
    size = trees_at_once(sites.n_tips, len(sites.tips) * sites.tips.itemsize, engine)
    for first in range(0, count, size):
        some = slice(first, first + size)
        yield some, sites.rows(some) if sites.tips.ndim > 2 else sites


def trees_at_once(n_tips: int, set_bytes: int, engine: ParsimonyEngine) -> int:
    """Number of trees that are best worked on side by side, by the bytes of a set."""
    return max(1, engine.grove_bytes // (SETS_A_TIP * n_tips * set_bytes))


def packed(patterns: Patterns | PackedSites) -> PackedSites:
    """The packed sites of patterns; packed sites are returned unchanged."""
    return patterns if isinstance(patterns, PackedSites) else pack_sites(patterns)


# SPR in batches: every subtree is tried at every place, and many moves are made at once. Gains are
# exact for single moves: moves go in together under the loose rule (docs/search.md, "Loose
# acceptance"), and where the sum falls short the better half is tried again.

NEAR_CUT = 0.5
"""A walk ends where the subtree would cost more than here by this many mean changes a branch, as
long as that finds moves: 97 of 100, in a third of the time (218, 714 taxa)."""

LOSS_CUT = 2.0
"""The cut after that. Measured against no cut (12..200 taxa) and a cut of 4 (1,000..5,000 simulated
taxa), mean score: equal up to 2,000 taxa and 0.1 % above it at 5,000, in a tenth to half of the
time; a cut of 1 is 0.2..0.5 % above it from 2,000 taxa on. A radius of 20 edges, as in RAxML, in
place of the cut is 0.4 % above it at 2,000 taxa."""

CUTS = (NEAR_CUT, LOSS_CUT)

MOST_CHARACTERS = 1 << 26
"""Largest product of starts, taxa and patterns of the longest alignment, in alignments whose starts
are made side by side; bytes before packing."""


def parsimony_trees(
    patterns: Patterns | PackedSites,
    count: int,
    rng: np.random.Generator,
    engine: ParsimonyEngine = REFERENCE,
) -> list[Tree]:
    """``count`` starting trees: randomised stepwise addition, then SPR until no move helps.

    Where SPR leads to a tree that another start has reached, as happens on small data, the tree by
    addition is the start: two equal starts gain nothing.

    patterns  or ``pack_sites`` of them, to pack once for several calls
    Returns: trees with all branches of :data:`DEFAULT_LENGTH`; the same for the same state of rng.
    """
    sites = packed(patterns)
    (starts,) = _starts(sites, [count], [rng], engine)
    return starts


def parsimony_trees_of_each(
    alignments: Sequence[Sequence[Patterns]],
    counts: Sequence[int],
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine = REFERENCE,
) -> list[list[Tree]]:
    """:func:`parsimony_trees` of each alignment, alignments of equally many taxa side by side.

    alignments  each the patterns of one data type, or of several, over its taxa
    """
    starts: dict[int, list[Tree]] = {}
    for alike in _side_by_side(alignments, counts):
        counts_here, rngs_here = [counts[n] for n in alike], [rngs[n] for n in alike]
        sites = _sites_of_rows([alignments[n] for n in alike], counts_here)
        starts |= zip(alike, _starts(sites, counts_here, rngs_here, engine), strict=True)
    return [starts[n] for n in range(len(alignments))]


def _side_by_side(
    alignments: Sequence[Sequence[Patterns]], counts: Sequence[int]
) -> Iterator[list[int]]:
    """Numbers of alignments with equally many taxa, within :data:`MOST_CHARACTERS`."""
    n_tips = [groups[0].n_tips for groups in alignments]
    some: list[int] = []
    n_rows = longest = 0
    for n in sorted(range(len(alignments)), key=n_tips.__getitem__):
        length = sum(patterns.n_patterns for patterns in alignments[n])
        is_much = (n_rows + counts[n]) * n_tips[n] * max(longest, length) > MOST_CHARACTERS
        if some and (is_much or n_tips[n] != n_tips[some[0]]):
            yield some
            some, n_rows, longest = [], 0, 0
        some.append(n)
        n_rows, longest = n_rows + counts[n], max(longest, length)
    if some:
        yield some


def _sites_of_rows(alignments: Sequence[Sequence[Patterns]], counts: Sequence[int]) -> PackedSites:
    """The sites of alignments side by side as rows of weights, ``counts`` rows of each.

    A row counts the sites of its own alignment alone.
    """
    if len(alignments) == 1:
        return pack_sites(*alignments[0])
    sites = InformativeSites.of(*chain.from_iterable(alignments))
    widths = [sum(patterns.n_patterns for patterns in groups) for groups in alignments]
    return sites.apart(np.repeat(np.arange(len(alignments)), counts), np.cumsum(widths))


def _starts(
    sites: PackedSites,
    counts: Sequence[int],
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine,
) -> list[list[Tree]]:
    """``counts`` starting trees by each rng; see :func:`parsimony_trees`."""
    rng_of_row = [rng for rng, count in zip(rngs, counts, strict=True) for _ in range(count)]
    added = stepwise_additions(sites, rng_of_row, engine)
    improved = [tree.copy() for tree in added]
    improve(improved, sites, engine=engine)
    ends = np.cumsum([0, *counts]).tolist()
    return [_unlike(added[one:end], improved[one:end]) for one, end in pairwise(ends)]


def _unlike(added: Sequence[Tree], improved: Sequence[Tree]) -> list[Tree]:
    """The improved trees; a tree that occurred before is replaced by the tree by addition."""
    keys = Forest(improved).topology_keys()
    rows = enumerate(zip(added, improved, keys, strict=True))
    return [before if key in keys[:n] else tree for n, (before, tree, key) in rows]


def reweighted_trees(
    sites: InformativeSites,
    weights: Float64,
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine = REFERENCE,
    improved: bool = True,
) -> list[Tree]:
    """A starting tree for every row of weights f64[n, L], by its rng; none depends on the others.

    :func:`parsimony_trees` with short walks: long walks improve the score by 0.03 %, for half of
    the time (218 taxa).

    improved  by SPR; otherwise as stepwise addition leaves them
    """
    size = trees_at_once(sites.n_tips, sites.set_bytes, engine)
    trees: list[Tree] = []
    for first in range(0, len(rngs), size):
        some = slice(first, first + size)
        rows = sites.reweighted(weights[some])
        added = stepwise_additions(rows, rngs[some], engine)
        if improved:
            improve(added, rows, (NEAR_CUT,), engine)
        trees += added
    return trees


def improve(
    trees: Sequence[Tree],
    patterns: Patterns | PackedSites,
    cuts: Sequence[float] = CUTS,
    engine: ParsimonyEngine = REFERENCE,
) -> Float64:
    """SPR rounds in place until no move within the last cut helps. Returns: f64[trees], the scores.

    Lengths stay with the edges' ids, because they mean nothing to parsimony. Where sites have rows
    of weights, every tree is improved under its row.
    """
    scores = []
    for some, sites in groves(packed(patterns), len(trees), engine):
        rounds = _Rounds(trees[some], sites, cuts, engine)
        while rounds.step():
            pass
        scores.append(rounds.scores)
        for number, tree in enumerate(trees[some]):
            improved = rounds.forest.tree(number)
            tree.twin[:], tree.edge[:] = improved.twin, improved.edge
    return np.concatenate(scores)


class _Rounds:
    """SPR rounds on trees side by side."""

    def __init__(
        self,
        trees: Sequence[Tree],
        sites: PackedSites,
        cuts: Sequence[float],
        engine: ParsimonyEngine,
    ) -> None:
        self.forest = Forest(trees)
        self.grove = engine.grove(self.forest, sites)
        self.scores = self.grove.scores()
        """f64[trees]: the present scores."""
        self.cuts = np.asarray(cuts)
        self.phase = np.zeros(len(trees), np.int8)
        """int8[trees]: number of each tree's cut; the number of cuts once the tree is done."""

    def step(self) -> bool:
        """Do a round on the trees that are not done; False without any."""
        is_on = self.phase < self.cuts.size
        if not is_on.any():
            return False
        prunes = self.forest.inner.reshape(is_on.size, -1)[is_on].ravel()
        before = self.scores.copy()
        self._make_moves(*self._best_moves(prunes))
        self.phase = np.where(self.scores < before, 0, self.phase + is_on).astype(np.int8)
        return True

    def _best_moves(self, prunes: Int32) -> tuple[Int32, Int32]:
        number = self.forest.tree_of_half
        a_branch = self.scores / self.forest.n_edges
        cuts = self.cuts.take(self.phase, mode="clip") * a_branch
        prune, target, gain = self.grove.best_targets(prunes, cuts[number[prunes]])
        order = np.lexsort((-gain, number[prune]))
        return prune[order], target[order]

    def _make_moves(self, prune: Int32, target: Int32) -> None:
        """Apply the moves, best first, fewer and fewer until a tree's score falls."""
        forest = self.forest
        kept = np.flatnonzero(self._loosely(prune, target))
        while kept.size:
            prune, target = prune[kept], target[kept]
            number = forest.tree_of_half[prune]
            fell = self._try_moves(prune, target, number)
            place = np.arange(number.size) - np.searchsorted(number, number)
            half = np.bincount(number, minlength=forest.n_trees) // 2
            kept = np.flatnonzero(~fell[number] & (place < half[number]))

    def _loosely(self, prune: Int32, target: Int32) -> Bool:
        """bool[moves]: moves that the loose rule lets through, tree by tree."""
        forest = self.forest
        sides = (prune, *(side[prune] for side in forest.siblings), target)
        chosen = compatible(forest.edge[np.stack(sides, axis=1)])
        number = forest.tree_of_half[prune]
        links = rewire(forest.twin, forest.edge, prune[chosen], target[chosen])
        _, whole = forest.facing(_present(number[chosen]))
        links.restore(forest.twin, forest.edge)
        # Where they make a circle one by one, for some targets come to lie inside their subtrees.
        for tree in _present(number[chosen & ~whole[number]]).tolist():
            moves = np.flatnonzero(number == tree)
            halves = forest.in_tree(prune[moves]), forest.in_tree(target[moves])
            chosen[moves] = apply_sprs(forest.tree(tree), *halves)
        return chosen

    def _try_moves(self, prune: Int32, target: Int32, number: Int32) -> Bool:
        """Make moves of trees ``number``; take them back in trees that are no better.

        Returns: bool[trees], those whose scores fell.
        """
        forest = self.forest
        links = rewire(forest.twin, forest.edge, prune, target)
        trees = _present(number)
        facing, whole = forest.facing(trees)
        circles = ~whole[number]  # through which sets would be renewed for ever
        links.at(circles).restore(forest.twin, forest.edge)
        trees, facing = trees[whole[trees]], facing[whole[forest.tree_of_half[facing]]]
        scores = self.grove.renew(trees, facing)
        fell: Bool = whole & (scores < self.scores)
        self.scores[fell] = scores[fell]
        back = links.at(~circles & ~fell[number])
        if back.halves.size:
            back.restore(forest.twin, forest.edge)
            trees = trees[~fell[trees]]
            self.grove.renew(trees, forest.facing(trees)[0])
        return fell


def _present(numbers: Int32) -> Int32:
    return np.flatnonzero(np.bincount(numbers)).astype(np.int32)
