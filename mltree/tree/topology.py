"""An unrooted binary tree as flat arrays of half-edges.

A node has up to three half-edges: h = 3*node + i. Tips 0..T-1 use only i = 0, inner nodes
T..2T-3 use i = 0, 1, 2. The half-edge at the other end of h is ``twin[h]``; both carry the same
edge id. What lies "behind h" is the subtree that its neighbour sees across h, so the conditional
likelihoods of h are made from those of ``twin[s]`` for the two siblings s of h.

Letters: T tips, N = 2T-2 nodes, E = 2T-3 edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from mltree.system.arrays import Float64, Int32

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


def inner_halves(halves: Int32, n_tips: int) -> Int32:
    """The half-edges at inner nodes, order kept."""
    return halves[halves >= 3 * n_tips]


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
        check_tree(self)

    def waves_from(self, edge: int) -> Iterator[Int32]:
        """The inner half-edges that face an edge, nearest first, one array per distance.

        Half-edges of one wave do not depend on each other, only on the next wave and on tips.
        """
        half = int(np.flatnonzero(self.edge == edge)[0])
        ends = np.array([half, self.twin[half]], dtype=np.int32)
        wave = inner_halves(ends, self.n_tips)
        while wave.size:
            yield wave
            wave = inner_halves(self.twin[np.concatenate(siblings(wave))], self.n_tips)

    def postorder(self, edge: int) -> Int32:
        """Inner half-edges that face an edge, each after those it is made from, int32 [T-2]."""
        waves = list(self.waves_from(edge))
        return np.concatenate(waves)[::-1].copy()


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
    all_lengths = np.asarray(lengths, np.float64)
    tree = Tree(twin, edge, np.empty((*all_lengths.shape[:-1], n_edges)), n_tips, n_artificial)
    tree.lengths[:] = all_lengths
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


def check_tree(tree: Tree) -> None:
    """Check every invariant of the arrays. Raises: ValueError naming the first broken one."""
    _check_shapes(tree)
    _check_twins(tree)
    _check_edge_ids(tree)
    _check_lengths(tree)
    _check_connected(tree)


def _check_shapes(tree: Tree) -> None:
    if tree.n_tips < MIN_TIPS:
        raise ValueError(f"a tree needs at least {MIN_TIPS} tips, not {tree.n_tips}")
    expected = (
        ("twin", tree.twin, (3 * tree.n_nodes,), np.int32),
        ("edge", tree.edge, (3 * tree.n_nodes,), np.int32),
        ("lengths", tree.lengths, (*tree.lengths.shape[:-1], tree.n_edges), np.float64),
    )
    for name, array, shape, kind in expected:
        if array.shape != shape or array.dtype != kind:
            raise ValueError(f"{name} must be {np.dtype(kind).name} {list(shape)}")


def _used(tree: Tree) -> Int32:
    halves = np.arange(3 * tree.n_nodes, dtype=np.int32)
    used: Int32 = halves[(halves >= 3 * tree.n_tips) | (halves % 3 == 0)]
    return used


def _check_twins(tree: Tree) -> None:
    used = _used(tree)
    unused = np.delete(np.arange(tree.twin.size), used)
    if np.any(tree.twin[unused] != NONE) or np.any(tree.edge[unused] != NONE):
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
