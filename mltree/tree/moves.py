"""Rearrangements in place.

An SPR names the half-edge h at the attachment node u that faces the pruned subtree, and a target
edge by one of its half-edges g, the one on the side nearer to u (f = twin[g] is the far one). With
s1, s2 the siblings of h and a, b their twins:

    before   a --s1 u s2-- b      g ------------ f
    after    a ----------- b      g --s1 u s2--- f

The merged edge a-b keeps the id of edge[s1], g-u keeps the id of the target edge, u-f takes the
id of edge[s2]; the pendant edge (edge[h]) stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree.system.arrays import Bool, Float64, Index, Int32, UInt64
from mltree.tree.topology import Forest, Half, Tree, mixed, siblings

Length: TypeAlias = float | Float64


class SprLengths(NamedTuple):
    """The four lengths that an SPR sets, in expected substitutions per site.

    f64[parts] each where the tree's are of every part.
    """

    proximal: Length
    """between the attachment node and the near half of the target edge"""
    distal: Length
    """between the attachment node and the far half of the target edge"""
    pendant: Length
    """of the edge that carries the pruned subtree"""
    merged: Length
    """of the edge left behind where the subtree was"""


def default_lengths(tree: Tree, prune: int, target: int) -> SprLengths:
    """Target edge halved, pendant length kept, merged length the sum: the lazy insertion."""
    first, second = siblings(prune)
    across, one, other, pendant = (
        tree.lengths[..., tree.edge.item(half)] for half in (target, first, second, prune)
    )
    return SprLengths(across / 2, across / 2, pendant.copy(), one + other)


def is_adjacent(tree: Tree, prune: int, target: int) -> bool:
    """True where the target edge touches the attachment node, so that the move would do nothing."""
    return tree.edge.item(target) in {tree.edge.item(h) for h in (prune, *siblings(prune))}


def is_inside(tree: Tree, prune: int, target: int) -> bool:
    """True where the target edge lies inside the subtree that would be pruned.

    Both sides are searched step by step in turn, so the cost is that of the smaller one.
    """
    # A memoryview hands out plain integers three times faster than the array does.
    twin, edge, first_inner = tree.twin.data, tree.edge.data, 3 * tree.n_tips
    target_id = edge[target]
    root = twin[prune]
    subtree = list(siblings(root)) if root >= first_inner else []
    rest = list(siblings(prune))
    while subtree and rest:
        for stack, answer in ((subtree, True), (rest, False)):
            half = stack.pop()
            if edge[half] == target_id:
                return answer
            across = twin[half]
            if across >= first_inner:
                stack.extend(siblings(across))
    return bool(subtree)


def spr(tree: Tree, prune: int, target: int, lengths: SprLengths | None = None) -> None:
    """Prune the subtree that half-edge ``prune`` faces and regraft it onto the edge of ``target``.

    The caller makes sure that the target is not inside the subtree (``is_inside``).
    Raises: ValueError where the target touches the attachment node.
    """
    if is_adjacent(tree, prune, target):
        raise ValueError(f"half-edge {target} is next to the attachment node of {prune}")
    values = default_lengths(tree, prune, target) if lengths is None else lengths
    twin, edge = tree.twin, tree.edge
    first, second = siblings(prune)
    far = twin.item(target)
    merged_id, moved_id, pendant_id, target_id = map(edge.item, (first, second, prune, target))
    _link(twin, edge, twin.item(first), twin.item(second), merged_id)
    _link(twin, edge, target, first, target_id)
    _link(twin, edge, second, far, moved_id)
    for edge_id, length in zip((target_id, moved_id, pendant_id, merged_id), values, strict=True):
        tree.lengths[..., edge_id] = length


def nni(tree: Tree, edge: int, variant: int) -> None:
    """Interchange two subtrees across an inner edge, variant 0 or 1; lengths go with subtrees.

    Raises: ValueError where the edge ends at a tip.
    """
    near, across = np.flatnonzero(tree.edge == edge).astype(np.int32)[:, None]
    if near < 3 * tree.n_tips:
        raise ValueError(f"edge {edge} ends at a tip")
    _interchange(tree, near, across, variant)


def _interchange(tree: Tree, near: Int32, across: Int32, variants: Index | int) -> None:
    """Interchange across edges without a common node, each given by its half-edges."""
    first, second = siblings(near)[0], np.choose(variants, siblings(across))
    place = np.arange(tree.twin.size, dtype=np.int32)  # that each half-edge's branch goes to
    place[first], place[second] = second, first
    moved = np.concatenate([first, second])
    _link(tree.twin, tree.edge, place[moved], place[tree.twin[moved]], tree.edge[moved])


def apply_sprs(tree: Tree, prunes: Int32, targets: Int32, lengths: Float64 | None = None) -> Bool:
    """Apply SPRs in the given order under the loose rule (docs/search.md); the others are skipped.

    A move is skipped where one of its three edges at the attachment node or its target edge was
    used by a move before it, or where its target is adjacent or lies inside its subtree by now.

    prunes, targets  int32 [M], see ``spr``; lengths float64 [M, 4] or [M, 4, parts], the columns of
    SprLengths, or None for the lazy insertion's.
    Returns: bool [M], which were applied.
    """
    used: set[int] = set()
    applied = np.zeros(len(prunes), dtype=np.bool_)
    # Edges as they are before any move: where they are others by then, they have been used.
    edges = tree.edge[np.stack([prunes, *siblings(prunes), targets], axis=1)]
    for move, touched in enumerate(edges.tolist()):
        prune, target = prunes.item(move), targets.item(move)
        is_beside = touched[3] in touched[:3]
        if is_beside or not used.isdisjoint(touched) or is_inside(tree, prune, target):
            continue
        spr(tree, prune, target, None if lengths is None else SprLengths(*lengths[move]))
        applied[move] = True
        used.update(touched)
    return applied


def compatible(edges: Int32) -> Bool:
    """Moves that the loose rule lets through, in order, by the edges (or nodes) that they touch.

    edges  int32 [M, n]; edges of several trees have different numbers

    A move is left out where it touches an edge twice, because its target is adjacent then, or an
    edge that a move before it has touched.
    """
    in_order = np.sort(edges, axis=1)
    left = np.flatnonzero((in_order[:, 1:] != in_order[:, :-1]).all(axis=1))
    chosen = np.zeros(len(edges), dtype=np.bool_)
    first = np.zeros(int(edges.max(initial=-1)) + 1, dtype=np.intp)
    used = np.zeros(first.size, dtype=np.bool_)
    while left.size:
        backwards = left[::-1]
        first[edges[backwards].ravel()] = np.repeat(backwards, edges.shape[1])  # the last one stays
        wins = (first[edges[left]] == left[:, None]).all(axis=1)
        chosen[left[wins]] = True
        used[edges[left[wins]]] = True
        left = left[~used[edges[left]].any(axis=1)]
    return chosen


class Links(NamedTuple):
    """Twins and edge ids of some half-edges."""

    halves: Int32
    """int32[6, M]: the half-edges that each move rewires."""
    twins: Int32
    edges: Int32

    def at(self, which: Bool) -> Links:
        """The links of some moves, bool[M]."""
        return Links(*(array[:, which] for array in self))

    def restore(self, twin: Int32, edge: Int32) -> None:
        """Write the links back into the arrays of a tree or forest."""
        twin[self.halves], edge[self.halves] = self.twins, self.edges


def rewire(twin: Int32, edge: Int32, prunes: Int32, targets: Int32) -> Links:
    """Make compatible moves (see ``spr``) at once, in the arrays of a tree or of a forest.

    The caller makes sure that no target is inside its subtree, or looks for circles afterwards.
    Returns: the links before.
    """
    first, second = siblings(prunes)
    left, right, far = twin[first], twin[second], twin[targets]
    merged_id, moved_id, target_id = edge[first], edge[second], edge[targets]
    halves = np.stack([first, second, left, right, targets, far])
    before = Links(halves, twin[halves], edge[halves])
    _link(twin, edge, left, right, merged_id)
    _link(twin, edge, targets, first, target_id)
    _link(twin, edge, second, far, moved_id)
    return before


MOST_AT_ONCE = 0.35
"""Share of the inner edges that interchanges across edges without a common node may take: as many
are hardly found. SPR rounds undo those of one set, whatever its size, and seldom those of two (44
taxa, two trees: 52 of 52 copies came back, and of two sets 30 of 92)."""


def random_nnis(
    tree: Tree, fraction: float, rng: np.random.Generator, among: Int32 | None = None
) -> Int32:
    """Interchange across a random share of the inner edges, no two of which share a node.

    At least one edge is taken; fewer than asked for where no further edge is free. What goes beyond
    ``MOST_AT_ONCE`` is done to the changed tree, in sets of such edges. ``among`` int32 [M] limits
    the choice to some inner edges. Returns: the edges, int32 [n].
    """
    count = max(1, round(fraction * (tree.n_tips - 3)))
    sets = min(count, max(1, math.ceil(fraction / MOST_AT_ONCE)))
    shares = np.diff(count * np.arange(sets + 1) // sets).tolist()
    return np.concatenate([_disjoint_nnis(tree, share, rng, among) for share in shares])


def _disjoint_nnis(tree: Tree, count: int, rng: np.random.Generator, among: Int32 | None) -> Int32:
    edges = rng.permutation(tree.inner_edges if among is None else among)
    variants = rng.integers(2, size=edges.size)
    halves = tree.edge_halves[edges]
    chosen = np.flatnonzero(compatible(halves // 3))[:count]
    near, across = halves[chosen].T
    _interchange(tree, near, across, variants[chosen])
    return edges[chosen]


class Differences:
    """The parts in which two trees over the same tips differ.

    The splits that both trees have cut them into parts; some they resolve in two ways.
    """

    def __init__(self, here: RootedTree, there: RootedTree) -> None:
        self._here, self._there = here, there
        self._parts_above: Int32 = np.empty(0, np.int32)
        """int32[N - 1]: the part that the branch above each node of the other tree is in."""
        self._own_parts_above: Int32 = np.empty(0, np.int32)
        """int32[N - 1]: the same of each node of the tree."""
        self._place: Int32 = np.zeros(here.tree.n_nodes, np.int32)
        """int32[N]: node of the tree for each of the other's."""
        self.parts: Int32 = np.empty(0, np.int32)
        """int32[n]: a number of each part, rising."""
        if here.key != there.key:
            self._compare(here, there)

    @classmethod
    def of_each(cls, tree: Tree, others: Sequence[Tree]) -> list[Differences]:
        """The differences of a tree from each of some others over the same tips."""
        here, *rooted = RootedTree.of_each([tree, *others])
        return [cls(here, there) for there in rooted]

    def _compare(self, here: RootedTree, there: RootedTree) -> None:
        _, common, known = np.intersect1d(here.clades, there.clades, return_indices=True)
        (own, part), (foreign, part_there) = here.parts(common), there.parts(known)
        place = self._place
        place[known + 1] = common + 1
        place[foreign[np.argsort(place[part_there[foreign]], kind="stable")]] = own[
            np.argsort(part[own], kind="stable")
        ]
        self._parts_above = place[part_there[there.parents]]
        self._own_parts_above = part[here.parents]
        self.parts = np.unique(part[own])

    def changes(self, shortest: float) -> dict[int, int]:
        """Parts that change the shape of the tree, by a key that equal changes share.

        See :meth:`mltree.tree.topology.Forest.shape_keys`; ``shortest``: as there.
        """
        change = np.zeros(self._here.tree.n_nodes, np.uint64)
        if self.parts.size:
            np.add.at(change, self._parts_above, self._there.splits(shortest))
            np.subtract.at(change, self._own_parts_above, self._here.splits(shortest))
        keys = change[self.parts].tolist()
        return {key: part for key, part in zip(keys, self.parts.tolist(), strict=True) if key}

    def taken(self, parts: Int32 | Sequence[int] | int) -> Tree:
        """A copy of the tree with some parts as the other has them: splits and branch lengths."""
        here, there = self._here, self._there
        tree = here.tree.copy()
        is_moved = np.zeros(tree.n_nodes, np.bool_)
        is_moved[parts] = True
        moved = np.flatnonzero(is_moved.take(self._parts_above))
        moved = moved[np.argsort(self._place[there.parents[moved]], kind="stable")]
        up = here.up[self._place[moved + 1] - 1]
        # The nodes of a part keep their half-edges: those that face down are dealt out anew.
        down = np.sort(tree.twin[up])
        ids = tree.edge[up]
        _link(tree.twin, tree.edge, up, down, ids)
        tree.lengths[..., ids] = there.tree.lengths[..., there.tree.edge[there.up[moved]]]
        return tree


class RootedTree(NamedTuple):
    """A tree rooted at tip 0; a row for every other node, in order."""

    tree: Tree
    up: Int32
    """int32[N - 1]: half-edge of the branch above."""
    parents: Int32
    """int32[N - 1]: node above."""
    clades: UInt64
    """uint64[N - 1]: key of the tips below."""
    key: int
    """Key that equal topologies share."""

    @classmethod
    def of_each(cls, trees: Sequence[Tree]) -> list[RootedTree]:
        """Trees over the same tips, rooted side by side."""
        forest = Forest(trees)
        facing = np.concatenate(forest.waves())
        up = np.arange(0, forest.twin.size, 3, dtype=np.int32)
        up[facing // 3] = facing
        rows = up.reshape(len(trees), -1)[:, 1:]
        clades = forest.tip_sets[rows]
        keys = mixed(clades).sum(axis=1, dtype=np.uint64).tolist()
        rows = rows - forest.first_half[:, None]
        return [
            cls(tree, row, tree.twin[row] // 3, below, key)
            for tree, row, below, key in zip(trees, rows, clades, keys, strict=True)
        ]

    def splits(self, shortest: float) -> UInt64:
        """uint64[N - 1]: keys of the splits by the branches above; 0 of those up to ``shortest``.

        A branch with lengths for several parts of the data is as long as the longest.
        """
        longest = self.tree.lengths.reshape(-1, self.tree.n_edges).max(axis=0)
        is_shown = longest[self.tree.edge[self.up]] > shortest
        return np.where(is_shown, mixed(self.clades), np.uint64(0))

    def parts(self, common: Index) -> tuple[Int32, Int32]:
        """Inner nodes that are in no row of ``common``, and int32[N]: the part below each node.

        A part is named by the node above it, whose clade is common.
        """
        top = np.append(np.int32(0), self.parents)
        top[common + 1] = common + 1
        while not np.array_equal(top, higher := top[top]):
            top = higher
        inner = np.arange(self.tree.n_tips, self.tree.n_nodes, dtype=np.int32)
        return inner[top[inner] != inner], top


def _link(twin: Int32, edge: Int32, one: Half, other: Half, edge_id: Half) -> None:
    twin[one], twin[other] = other, one
    edge[one] = edge[other] = edge_id
