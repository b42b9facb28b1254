"""An unrooted binary tree as flat arrays of half-edges.

A node has up to three half-edges: h = 3*node + i. Tips 0..T-1 use only i = 0, inner nodes
T..2T-3 use i = 0, 1, 2. The half-edge at the other end of h is ``twin[h]``; both carry the same
edge id. What lies "behind h" is the subtree that its neighbour sees across h, so the conditional
likelihoods of h are made from those of ``twin[s]`` for the two siblings s of h.

Letters: T tips, N = 2T-2 nodes, E = 2T-3 edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from mltree.system.arrays import Bool, Float64, Index, Int32, UInt64

Half = TypeVar("Half", int, Int32)

NONE = -1
"""Value of ``twin`` and ``edge`` at the two half-edges that a tip does not use."""

DEFAULT_LENGTH = 0.05
"""Expected substitutions per site of a branch of unknown length (docs/search.md, "Branch
lengths")."""

MIN_TIPS = 3
"""The smallest unrooted binary tree: one inner node."""


def siblings(half: Half) -> tuple[Half, Half]:
    """The other two half-edges of the same inner node, in ring order (scalar or array)."""
    base = half - half % 3
    return base + (half + 1) % 3, base + (half + 2) % 3


@dataclass
class Tree:
    """One unrooted binary tree; the arrays are changed in place by the moves.

    twin     int32 [3N]  the half-edge at the other end; NONE where a tip has none
    edge     int32 [3N]  edge id 0..E-1, the same at both ends; NONE where a tip has none
    lengths  float64 [E] expected substitutions per site; [parts, E] where the parts of the
             alignment have branch lengths of their own
    n_tips   T; tip i of every tree is taxon i of the patterns
    n_artificial  how many of the last edges are in no tree that was meant, but join the nodes that
             a polytomy takes here; their length is 0 and stays so
    """

    twin: Int32
    edge: Int32
    lengths: Float64
    n_tips: int
    n_artificial: int = 0

    @property
    def n_nodes(self) -> int:
        """Number of nodes, N = 2T-2."""
        return 2 * self.n_tips - 2

    @property
    def n_edges(self) -> int:
        """Number of edges, E = 2T-3."""
        return 2 * self.n_tips - 3

    @property
    def n_branches(self) -> int:
        """Number of edges that are not artificial; branches are the edges below it."""
        return self.n_edges - self.n_artificial

    @property
    def edge_halves(self) -> Int32:
        """int32 [E, 2]: the two half-edges of each edge, the lower number first."""
        lower = np.flatnonzero(self.twin > np.arange(self.twin.size)).astype(np.int32)
        halves = np.empty((self.n_edges, 2), dtype=np.int32)
        halves[self.edge[lower], 0] = lower
        halves[self.edge[lower], 1] = self.twin[lower]
        return halves

    @property
    def inner_edges(self) -> Int32:
        """int32 [T-3 or less]: ids, rising, of the branches that join two inner nodes."""
        nearer = self.edge_halves[: self.n_branches, 0]
        return np.flatnonzero(nearer >= 3 * self.n_tips).astype(np.int32)

    siblings = staticmethod(siblings)

    def is_same(self, other: Tree) -> bool:
        """True where two trees are equal, numbering and lengths included."""
        return self.is_alike(other) and self.lengths.tobytes() == other.lengths.tobytes()

    def is_alike(self, other: Tree) -> bool:
        """True where two trees are equal, numbering included, lengths aside."""
        # Thousands are compared in a round, and array_equal takes ten times as long as this.
        twins, edges = self.twin.tobytes(), self.edge.tobytes()
        alike = twins == other.twin.tobytes() and edges == other.edge.tobytes()
        return alike and self.n_artificial == other.n_artificial

    def copy(self) -> Tree:
        """An independent tree with the same numbering."""
        twin, edge, lengths = self.twin.copy(), self.edge.copy(), self.lengths.copy()
        return Tree(twin, edge, lengths, self.n_tips, self.n_artificial)

    def with_lengths(self, lengths: Float64) -> Tree:
        """A tree of the same arrays with a copy of lengths; artificial ones are 0."""
        copied = np.array(lengths)
        if self.n_artificial:
            copied[..., self.n_branches :] = 0.0
        return Tree(self.twin, self.edge, copied, self.n_tips, self.n_artificial)

    def with_each(self, lengths: Float64) -> list[Tree]:
        """Trees by :meth:`with_lengths` for every row of f64[n, ...], with views of one copy."""
        rows = np.array(lengths)
        rows[..., self.n_branches :] = 0.0
        return [Tree(self.twin, self.edge, row, self.n_tips, self.n_artificial) for row in rows]

    def resolved(self, shortest: float) -> Tree:
        """A copy with polytomies resolved as they stand, by branches of length ``shortest``."""
        tree = self.copy()
        tree.n_artificial = 0
        tree.lengths[..., self.n_branches :] = shortest
        return tree

    def assign(self, other: Tree) -> None:
        """Overwrite this tree's arrays, in place, with those of a tree of the same size."""
        self.twin[:] = other.twin
        self.edge[:] = other.edge
        self.lengths[:] = other.lengths
        self.n_artificial = other.n_artificial

    def validate(self) -> None:
        """Check every invariant. Raises: ValueError naming the first one that is broken."""
        _check_shapes(self)
        _check_twins(self)
        _check_edge_ids(self)
        _check_lengths(self)
        _check_connected(self)

    def waves_from(self, edge: int) -> Iterator[Int32]:
        """The inner half-edges that face an edge, nearest first, one array per distance.

        Half-edges of one wave do not depend on each other, only on the next wave and on tips.
        """
        wave = np.flatnonzero(self.edge == edge).astype(np.int32)
        around = ring(self.twin.size)
        while (wave := wave[wave >= 3 * self.n_tips]).size:
            yield wave
            wave = self.twin[np.concatenate([side.take(wave) for side in around])]

    def postorder(self, edge: int) -> Int32:
        """Inner half-edges that face an edge, each after those it is made from, int32 [T-2]."""
        return np.concatenate([*self.waves_from(edge)])[::-1].copy()


def tree_from_edges(
    ends: ArrayLike, lengths: ArrayLike, n_tips: int, n_artificial: int = 0
) -> Tree:
    """A tree from the two node numbers of every edge; edge ids are the row numbers.

    ends     int [E, 2]; tips 0..T-1 must occur once, inner nodes T..2T-3 three times
    lengths  float [E], [parts, E] or one number for all
    n_artificial  how many of the last rows are no branches (:class:`Tree`)
    Raises: ValueError where the rows are not an unrooted binary tree.
    """
    nodes = np.asarray(ends, dtype=np.int32)
    n_nodes, n_edges = 2 * n_tips - 2, 2 * n_tips - 3
    if nodes.shape != (n_edges, 2):
        raise ValueError(f"{n_tips} tips need {n_edges} edges, not an array of {nodes.shape}")
    _check_degrees(nodes, n_tips)
    flat = nodes.ravel()
    order = np.argsort(flat, kind="stable")
    first = np.searchsorted(flat[order], np.arange(n_nodes))
    rank = np.empty(flat.size, dtype=np.int32)
    rank[order] = np.arange(flat.size) - first[flat[order]]
    halves = (3 * flat + rank).reshape(n_edges, 2)
    twin = np.full(3 * n_nodes, NONE, dtype=np.int32)
    edge = np.full(3 * n_nodes, NONE, dtype=np.int32)
    twin[halves] = halves[:, ::-1]
    edge[halves] = np.arange(n_edges, dtype=np.int32)[:, None]
    values = np.asarray(lengths, np.float64)
    of_edges = np.broadcast_to(values, (*values.shape[:-1], n_edges)).copy()
    tree = Tree(twin, edge, of_edges, n_tips, n_artificial)
    tree.validate()
    return tree


def _check_degrees(nodes: Int32, n_tips: int) -> None:
    n_nodes = 2 * n_tips - 2
    if nodes.min() < 0 or nodes.max() >= n_nodes:
        raise ValueError(f"node numbers must lie in 0..{n_nodes - 1}")
    degree = np.bincount(nodes.ravel(), minlength=n_nodes)
    wrong = np.flatnonzero(degree != np.where(np.arange(n_nodes) < n_tips, 1, 3))
    if wrong.size:
        raise ValueError(f"node {wrong[0]} has {degree[wrong[0]]} neighbours")


def _check_shapes(tree: Tree) -> None:
    if tree.n_tips < MIN_TIPS:
        raise ValueError(f"a tree needs at least {MIN_TIPS} tips, not {tree.n_tips}")
    lengths = (*tree.lengths.shape[:-1], tree.n_edges)
    expected = {"twin": (3 * tree.n_nodes,), "edge": (3 * tree.n_nodes,), "lengths": lengths}
    for name, shape in expected.items():
        array, kind = getattr(tree, name), "float64" if name == "lengths" else "int32"
        if array.shape != shape or array.dtype != kind:
            raise ValueError(f"{name} must be {kind} {list(shape)}")


def _used(tree: Tree) -> Int32:
    halves = np.arange(3 * tree.n_nodes, dtype=np.int32)
    used: Int32 = halves[(halves >= 3 * tree.n_tips) | (halves % 3 == 0)]
    return used


def _check_twins(tree: Tree) -> None:
    used = _used(tree)
    if (np.delete(tree.twin, used) != NONE).any() or (np.delete(tree.edge, used) != NONE).any():
        raise ValueError("a tip uses more than its half-edge 0")
    twins = tree.twin[used]
    if not np.array_equal(np.sort(twins), used):
        raise ValueError("twin is not a permutation of the half-edges in use")
    if not np.array_equal(tree.twin[twins], used):
        raise ValueError("twin[twin[h]] != h")
    if np.any(twins // 3 == used // 3):
        raise ValueError("an edge joins a node to itself")


def _check_edge_ids(tree: Tree) -> None:
    used = _used(tree)
    if not np.array_equal(tree.edge[used], tree.edge[tree.twin[used]]):
        raise ValueError("the two ends of an edge carry different edge ids")
    if not np.array_equal(np.sort(tree.edge[used]), np.repeat(np.arange(tree.n_edges), 2)):
        raise ValueError("edge ids are not 0..E-1, each at one pair of half-edges")


def _check_lengths(tree: Tree) -> None:
    if tree.lengths[..., tree.n_branches :].any():
        raise ValueError("an artificial edge has a length")
    wrong = np.argwhere(~(np.isfinite(tree.lengths) & (tree.lengths >= 0)))
    if wrong.size:
        raise ValueError(f"edge {wrong[0][-1]} has length {tree.lengths[tuple(wrong[0])]}")


def _check_connected(tree: Tree) -> None:
    # E = N-1 edges, so "every node is reached once" and "no cycle" are the same statement. A
    # cycle would make the waves endless: stop as soon as they hold too many half-edges.
    reached = 0
    for wave in tree.waves_from(int(tree.edge[0])):
        reached += wave.size
        if reached > tree.n_tips - 2:
            break
    if reached != tree.n_tips - 2:
        raise ValueError("the edges do not form one tree")


# NumPy's calls cost more than the few half-edges of a wave: the way through eight trees takes
# hardly longer than that through a single one.


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

    def with_lengths(self, lengths: Float64) -> Forest:
        """Return the same trees with other lengths."""
        forest = copy(self)
        forest.lengths = lengths
        return forest

    @property
    def lengths_by_tree(self) -> list[Float64]:
        """Return views of the lengths of every tree."""
        return np.split(self.lengths, self.first_edge[1:], axis=-1)

    def __len__(self) -> int:
        """Number of trees."""
        return self.n_trees

    def is_as_large(self, other: Forest) -> bool:
        """True where every tree has as many tips as its counterpart."""
        return np.array_equal(self.n_tips, other.n_tips)

    def is_same(self, other: Forest) -> bool:
        """True where all trees are equal, numbering and lengths included."""
        arrays = ("n_tips", "n_branches", "twin", "edge", "lengths")
        return self is other or all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays
        )

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
    def lower(self) -> Int32:
        """int32[E of all]: the half-edge of each edge with the lower number."""
        first = np.flatnonzero(self.twin > np.arange(self.twin.size)).astype(np.int32)
        lower = np.empty_like(first)
        lower[self.edge[first]] = first
        return lower

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

    def in_tree(self, halves: Int32) -> Int32:
        """int32[...]: the numbers of half-edges within their trees."""
        numbers: Int32 = halves - self.first_half[self.tree_of_half[halves]]
        return numbers

    def central_tips(self) -> Int32:
        """int32[n]: half-edge of each tree's tip with the least distance to its farthest tip.

        The first of several, independent of the numbering of inner nodes.
        """
        levels = np.split(self.levels[self.twin[self.tips]], np.cumsum(self.n_tips)[:-1])
        tip = np.array([level.argmin() for level in levels], np.int32)
        return self.first_half + 3 * tip

    def waves(self, roots: Int32 | None = None) -> list[Int32]:
        """The inner half-edges that face tip 0, nearest first, an array per distance.

        ``roots``: a tip's half-edge of every tree that they face instead, int32[n].
        """
        behind = self.twin.take(np.stack(self.siblings))  # twin may have changed
        waves = []
        wave = self.twin[self.first_half if roots is None else roots]
        while (wave := wave[self.is_inner.take(wave)]).size:
            waves.append(wave)
            wave = behind.take(wave, axis=1).ravel()
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

    @cached_property
    def levels(self) -> Int32:
        """int32[3N of all]: 1 + the highest level of what a half-edge is made from; tips are 0.

        All half-edges of one level can be computed together once the lower levels are. Known once:
        a forest that is changed in place has those from before.
        """
        nodes = self._nodes
        first, second, count = nodes.first, nodes.second, nodes.facing.size
        seen = np.zeros(count + self.tips.size, np.int32)  # from nearer tip 0
        for span in reversed(nodes.spans):
            np.maximum(seen.take(first[span]), seen.take(second[span]), out=seen[span])
            seen[span] += 1
        above, beside = np.zeros((2, seen.size), np.int32)
        above[first] = above[second] = np.arange(count, dtype=np.int32)
        beside[first], beside[second] = seen.take(second), seen.take(first)
        back = np.zeros(count, np.int32)  # of what lies on the side of tip 0
        for span in nodes.spans[1:]:
            np.maximum(beside[span], back.take(above[span]), out=back[span])
            back[span] += 1
        level = np.zeros(self.twin.size, dtype=np.int32)
        level[nodes.facing] = seen[:count]
        level[nodes.left] = 1 + np.maximum(seen.take(second), back)
        level[nodes.right] = 1 + np.maximum(seen.take(first), back)
        return level

    def topology_keys(self) -> list[int]:
        """64 bits of every tree that equal topologies share, under any numbering and lengths.

        Different topologies collide with a probability of about 2^-64 a pair.
        """
        in_tree = np.arange(self.tree_of_edge.size) - self.first_edge[self.tree_of_edge]
        return self._sums_of_splits(in_tree < self.n_branches[self.tree_of_edge])

    @cached_property
    def tip_sets(self) -> UInt64:
        """uint64[3N of all]: hash of the set of tips that a half-edge's neighbour sees across it.

        Equal for equal sets, in any tree; the sum of two disjoint sets' hashes is that of their
        union.
        """
        nodes, of_tips = self._nodes, self._tip_keys()
        below = nodes.values(of_tips)
        for span in reversed(nodes.spans):
            np.add(below.take(nodes.first[span]), below.take(nodes.second[span]), out=below[span])
        key = np.zeros(self.twin.size, np.uint64)
        key[self.tips] = of_tips
        key[nodes.facing] = below[: nodes.facing.size]
        whole = of_tips[np.cumsum(self.n_tips) - self.n_tips] + below[nodes.spans[0]]
        here = whole[self.tree_of_half[nodes.facing]]
        key[nodes.left] = here - below.take(nodes.first)
        key[nodes.right] = here - below.take(nodes.second)
        return key

    def shape_keys(self, shortest: float | Float64) -> list[int]:
        """64 bits of every tree that equal shapes share: all splits by branches that are longer.

        Topologies that differ in the order of shorter branches alone are of one shape.
        ``shortest``: for all trees, or float64[n].  A branch with lengths for several parts is as
        long as the longest.
        """
        least = np.broadcast_to(shortest, self.n_trees)[self.tree_of_edge]
        return self._sums_of_splits(longest_of(self.lengths) > least)

    def _sums_of_splits(self, is_shown: Bool) -> list[int]:
        """Sums of each tree's keys of the splits by edges that are shown, bool[E of all]."""
        shown = self.lower[is_shown]
        keys = np.zeros(self.n_trees, np.uint64)
        split = split_key(self.tip_sets[shown], self.tip_sets[self.twin[shown]])
        np.add.at(keys, self.tree_of_half[shown], split)
        return list(map(int, keys))

    def shape_changes(
        self, prunes: Int32, targets: Int32, lengths: Float64, shortest: Float64
    ) -> UInt64:
        """uint64[M]: keys of what SPRs, each alone, change in their trees' shapes; 0 for nothing.

        Equal changes to a tree lead to equal shapes (:meth:`shape_keys`).

        prunes, targets  int32[M], as :func:`mltree.tree.moves.spr` takes them
        lengths, shortest  f64[M, 4], the longest of all parts; f64[M]
        """
        sets, twin, edge, start = self.tip_sets, self.twin, self.edge, prunes // 3
        longest, pruned, beyond = longest_of(self.lengths), sets[twin[prunes]], sets[twin[targets]]
        whole = sets[prunes] + pruned

        def split(tips: UInt64, length: Float64, at: Index | slice = np.s_[:]) -> UInt64:
            is_shown = length > shortest[at]
            return np.where(is_shown, split_key(tips, whole[at] - tips), np.uint64(0))

        proximal, distal, pendant, merged = lengths.T
        change = split(pruned, pendant) - split(pruned, longest[edge[prunes]])
        change += split(beyond + pruned, proximal) + split(beyond, distal)
        change -= split(beyond, longest[edge[targets]])
        up, place = np.zeros((2, twin.size // 3), np.int32)
        node = self._nodes.facing // 3  # nearest to tip 0 first
        up[node], place[node] = self._nodes.facing, np.arange(node.size)
        ends, side = np.stack([start, targets // 3]), np.empty_like(prunes)
        left = np.arange(prunes.size)
        while left.size:  # branches on the way: of its ends, the one that is farther climbs
            climber = np.argmax(place[ends[:, left]], axis=0)
            half = up[ends[climber, left]]
            near = np.where(climber, twin[half], half)  # the end of the branch nearer to the start
            ends[climber, left] = twin[half] // 3
            side[left] = np.where(near // 3 == start[left], near, side[left])
            tips, length = sets[twin[near]], longest[edge[half]]
            change[left] += split(tips + pruned[left], length, left) - split(tips, length, left)
            left = left[ends[0, left] != ends[1, left]]
        other = 9 * start + 3 - prunes - side  # half-edge of the branch that is joined to it
        rest = sets[twin[other]]
        change += split(rest, merged) - split(rest, longest[edge[other]])
        change -= split(rest, longest[edge[side]])  # which was on the way
        return change

    @cached_property
    def _nodes(self) -> _Waves:
        return _Waves.of(self)

    def _tip_keys(self) -> UInt64:
        """uint64[T of all]: 64 random bits of every tip."""
        return mixed((self.in_tree(self.tips) // 3 + 1).astype(np.uint64) * GOLDEN)


class _Waves(NamedTuple):
    """Inner nodes in the order of waves from tip 0, of which sweeps take one after the other."""

    facing: Int32
    """The half-edge of each node that faces tip 0."""
    spans: list[slice]
    """The nodes of each wave."""
    left: Int32
    """The next half-edge of each node, and the next but one."""
    right: Int32
    first: Int32
    """The place of the node that each of them leads to; tips have the places behind all nodes."""
    second: Int32

    @classmethod
    def of(cls, forest: Forest) -> _Waves:
        """Return the waves of all trees."""
        waves, twin, (one, other) = forest.waves(), forest.twin, forest.siblings
        facing = np.concatenate(waves)
        ends = np.cumsum([wave.size for wave in waves]).tolist()
        spans = [slice(*span) for span in pairwise([0, *ends])]
        left, right = one.take(facing), other.take(facing)
        place = np.zeros(twin.size, np.int32)
        place[facing] = np.arange(facing.size, dtype=np.int32)
        place[forest.tips] = np.arange(facing.size, facing.size + forest.tips.size, dtype=np.int32)
        first, second = (place.take(twin.take(side)) for side in (left, right))
        return cls(facing, spans, left, right, first, second)

    def values(self, of_tips: UInt64) -> UInt64:
        """Return uint64[nodes and tips]: values of the tips, and zeros before them."""
        return np.concatenate([np.zeros(self.facing.size, np.uint64), of_tips])


Trees: TypeAlias = Sequence[Tree] | Forest
"""Trees side by side: a sequence with their present state, or a forest with an earlier one."""


@lru_cache(maxsize=64)
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
    value = value ^ (value >> np.uint64(30))
    value *= _MIX_A
    value ^= value >> np.uint64(27)
    value *= _MIX_B
    value ^= value >> np.uint64(31)
    return value


def split_key(one: UInt64, other: UInt64) -> UInt64:
    """Keys of splits, from hashes of the sets of tips on their two sides."""
    return mixed(mixed(one) + mixed(other))


def longest_of(lengths: Float64) -> Float64:
    """float64[E]: branch lengths, the longest of all parts where each has its own."""
    return np.asarray(lengths.reshape(-1, lengths.shape[-1]).max(axis=0))


def random_topology(n_tips: int, rng: np.random.Generator, length: float = DEFAULT_LENGTH) -> Tree:
    """A topology drawn uniformly from all (2T-5)!! of them; all branches have one length.

    Tip k goes onto one of the 2k-3 edges present, each with the same probability: every topology
    arises in exactly one way.
    """
    return tree_from_edges(_random_ends(n_tips, rng), length, n_tips)


def _random_ends(n_tips: int, rng: np.random.Generator) -> Int32:
    """int32[E, 2]: the nodes that each edge of :func:`random_topology` joins."""
    near = [0, 1, 2]
    far = [n_tips] * 3
    draws = rng.random(max(n_tips, 3))
    for tip in range(3, n_tips):
        node = n_tips + tip - 2
        target = int(draws[tip] * len(near))
        near += [node, tip]
        far += [far[target], node]
        far[target] = node
    return np.column_stack((near, far)).astype(np.int32)


def uniform_tree(n_tips: int, mean_length: float, rng: np.random.Generator) -> Tree:
    """A topology drawn uniformly from all, with exponential branch lengths of that mean."""
    tree = random_topology(n_tips, rng)
    tree.lengths[:] = rng.exponential(mean_length, tree.n_edges)
    return tree


def yule_tree(n_tips: int, mean_length: float, rng: np.random.Generator) -> Tree:
    """A Yule tree (1925), grown by births alone, without its root; all tips have the same age.

    Each of k lineages splits at the same rate: the next split comes after an exponential time of
    mean 1/k, in a random lineage. Lengths are scaled to the mean ``mean_length``.
    """
    ends: list[tuple[int, int]] = []
    lengths: list[float] = []
    growing = [(0, 0.0), (0, 0.0)]  # lineages: the node each began at, and when
    now, nodes = 0.0, 1
    while True:
        now += float(rng.exponential(1.0 / len(growing)))
        if len(growing) == n_tips:
            break
        chosen = int(rng.integers(len(growing)))
        node, began = growing[chosen]
        ends.append((node, nodes))
        lengths.append(now - began)
        growing[chosen] = (nodes, now)
        growing.append((nodes, now))
        nodes += 1
    ends += [(node, nodes + tip) for tip, (node, _) in enumerate(growing)]
    lengths += [now - began for _, began in growing]
    return _unrooted(np.array(ends, np.int32), np.array(lengths), n_tips, mean_length)


def neighbour_joining(distances: Float64) -> Tree:
    """The tree by neighbour joining; branches that would be negative have length 0.

    Of n nodes the pair with the least (n-2) d_ij - Σ_k d_ik - Σ_k d_jk is joined, n-3 times
    (Saitou and Nei 1987, Mol. Biol. Evol. 4:406-425, as Studier and Keppler 1988 have it); of equal
    pairs the first.

    distances  f64 [T, T], symmetric, T at least 3
    """
    n_tips = len(distances)
    open_nodes, d = list(range(n_tips)), np.array(distances, np.float64)
    ends: list[tuple[int, int]] = []
    lengths: list[float] = []
    for node in range(n_tips, 2 * n_tips - 3):
        n, sums = len(d), d.sum(axis=1)
        gain = (n - 2) * d - sums[:, None] - sums
        np.fill_diagonal(gain, np.inf)
        i, j = sorted(divmod(int(gain.argmin()), n))
        half = (sums[i] - sums[j]) / (n - 2)
        ends += [(node, open_nodes[i]), (node, open_nodes[j])]
        lengths += [(d[i, j] + half) / 2, (d[i, j] - half) / 2]
        joined = (d[i] + d[j] - d[i, j]) / 2
        joined[i] = 0.0
        d[i], d[:, i], open_nodes[i] = joined, joined, node
        d = np.delete(np.delete(d, j, axis=0), j, axis=1)
        del open_nodes[j]
    ends += [(2 * n_tips - 3, node) for node in open_nodes]
    lengths += (d.sum(axis=1) - d.sum() / 4).tolist()  # (d_ij + d_ik - d_jk) / 2
    return tree_from_edges(np.array(ends), np.maximum(lengths, 0.0), n_tips)


def resolved_at_random(tree: Tree, edges: Int32, rng: np.random.Generator) -> Tree:
    """The tree with some inner branches contracted, and the polytomies resolved at random.

    Every resolution of a polytomy is as likely. Edge ids and lengths stay: an edge that was
    contracted is one of the same polytomy's again. Without edges it is the tree that was given.

    edges  int [n]: ids of branches that join two inner nodes
    """
    if not edges.size:
        return tree
    ends = tree.edge_halves // 3
    star = np.arange(tree.n_nodes)
    for here, there in ends[edges].tolist():
        star[star == star[there]] = star[here]
    centre, is_inside = star[ends], np.isin(np.arange(tree.n_edges), edges)[:, None]
    nodes = np.flatnonzero(np.isin(star, centre[edges]))
    nodes = nodes[np.argsort(star[nodes], kind="stable")]
    inside = np.flatnonzero(is_inside)
    inside = inside[np.argsort(centre[inside, 0], kind="stable")]
    arms = np.flatnonzero(np.isin(centre, centre[edges]) & ~is_inside)
    arms = arms[np.argsort(centre.ravel()[arms], kind="stable")]
    _, count = np.unique(centre[inside, 0], return_counts=True)  # n edges, n + 3 arms, n + 1 nodes
    joined = np.concatenate([_random_ends(n + 3, rng) for n in count.tolist()])
    number = np.repeat(np.arange(count.size), 2 * count + 3)
    first_arm, first_node = (np.cumsum(count + n) - count - n for n in (3, 1))
    near, far = np.sort(joined, axis=1).T
    is_arm, size = near < count[number] + 3, first_node[number] - count[number] - 3
    ends.ravel()[arms[(near + first_arm[number])[is_arm]]] = nodes[(far + size)[is_arm]]
    ends[inside] = nodes[np.stack([near + size, far + size], axis=1)[~is_arm]]
    return tree_from_edges(ends, tree.lengths, tree.n_tips, tree.n_artificial)


def _unrooted(ends: Int32, lengths: Float64, n_tips: int, mean: float) -> Tree:
    """The tree without its root, node 0; inner nodes are 1..T-2, tips come after them."""
    at_root = np.flatnonzero(ends[:, 0] == 0)
    others = np.flatnonzero(ends[:, 0] != 0)
    joined = np.vstack((ends[others], ends[at_root, 1][None, :]))
    merged = np.append(lengths[others], lengths[at_root].sum())
    is_tip = joined >= n_tips - 1
    numbered = np.where(is_tip, joined - (n_tips - 1), joined - 1 + n_tips)
    return tree_from_edges(numbered, merged * (mean / merged.mean()), n_tips)
