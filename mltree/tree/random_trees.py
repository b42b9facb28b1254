"""Random trees: uniform topologies, Yule trees, and random resolutions of polytomies."""

from __future__ import annotations

import numpy as np

from mltree.system.arrays import Float64, Int32
from mltree.tree.topology import DEFAULT_LENGTH, Tree, tree_from_edges


def random_topology(n_tips: int, rng: np.random.Generator, length: float = DEFAULT_LENGTH) -> Tree:
    """A topology drawn uniformly from all (2T-5)!! of them; all branches have one length.

    Tip k goes onto one of the 2k-3 edges present, each with the same probability: every topology
    arises in exactly one way.
    """
    near = [0, 1, 2]
    far = [n_tips] * 3
    draws = rng.random(max(n_tips, 3))
    for tip in range(3, n_tips):
        node = n_tips + tip - 2
        target = int(draws[tip] * len(near))
        near += [node, tip]
        far += [far[target], node]
        far[target] = node
    return tree_from_edges(np.column_stack((near, far)), length, n_tips)


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
    for near, far in ends[edges]:
        star[star == star[far]] = star[near]
    is_inside = np.zeros(tree.n_edges, np.bool_)
    is_inside[edges] = True
    for centre in np.unique(star[ends[edges, 0]]):
        nodes = np.flatnonzero(star == centre)
        touching = star[ends] == centre
        inside = np.flatnonzero(touching[:, 0] & is_inside)
        rows, sides = np.nonzero(touching & ~is_inside[:, None])
        resolution = random_topology(rows.size, rng)
        joined = resolution.edge_halves // 3
        is_arm = joined[:, 0] < rows.size
        ends[rows[joined[is_arm, 0]], sides[joined[is_arm, 0]]] = nodes[
            joined[is_arm, 1] - rows.size
        ]
        ends[inside] = nodes[joined[~is_arm] - rows.size]
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
