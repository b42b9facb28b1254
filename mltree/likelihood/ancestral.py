"""Marginal ancestral states: how probable each state is at an inner node, given all of the data.

At a node v with neighbours x, summed over the rate categories k,

    P(s | data)  ~  Σ_k w_k π_ks Π_x Σ_u P_k(t_vx)[s, u] L_x(u)

L_x: likelihoods of what lies behind x (Yang, Kumar & Nei 1995). All directed edges are computed in
NumPy, some patterns at a time, so that memory does not grow with the alignment.

Letters: T tips, L patterns, K categories, S states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import compress

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64
from mltree.model.eigen import ModelArrays, p_matrices
from mltree.tree.topology import Tree

__all__ = ["inner_nodes", "marginal_states"]

AT_ONCE = 1 << 26
"""Bytes that the messages of some patterns take: 200 taxa with DNA under +G4 go 800 patterns at a
time, within a processor's caches by a node."""


def inner_nodes(tree: Tree) -> list[int]:
    """Half-edges at the N' inner nodes that face tip 0, from the node next to it outwards.

    N' is T-2; less by the artificial edges of the tree, whose two nodes are one.
    """
    return [half for half in _inner_nodes(tree) if tree.edge.item(half) < tree.n_branches]


def marginal_states(tree: Tree, patterns: Patterns, arrays: ModelArrays) -> Float64:
    """f64 [N', L, S]: probabilities of sum 1, nodes as :func:`inner_nodes` has them.

    The tree has one length a branch; the patterns are of one part.
    """
    systems = _systems(arrays)
    p = np.concatenate([p_matrices(system, tree.lengths) for system in systems], axis=1)
    pi = np.concatenate([np.tile(one.frequencies, (one.n_categories, 1)) for one in systems])
    nodes = _inner_nodes(tree)
    wanted = np.isin(nodes, inner_nodes(tree))
    found = np.empty((int(wanted.sum()), patterns.n_patterns, arrays.n_states))
    bytes_each = 8 * arrays.n_categories * arrays.n_states * 3 * len(nodes)
    step = max(1, AT_ONCE // bytes_each)
    for start in range(0, patterns.n_patterns, step):
        some = slice(start, start + step)
        codes = patterns.codes[:, some]
        every = _posteriors(
            tree, nodes, patterns.alphabet.tip_table[codes], p, arrays.weights[:, None] * pi
        )
        for n, posterior in enumerate(compress(every, wanted)):
            found[n, some] = posterior
    return found


def _inner_nodes(tree: Tree) -> list[int]:
    """Likewise, those behind artificial edges too."""
    return [half for wave in tree.waves_from(int(tree.edge[0])) for half in wave.tolist()]


def _posteriors(
    tree: Tree, nodes: list[int], tips: Float64, p: Float64, prior: Float64
) -> Iterator[Float64]:
    """f64 [L, S] of each node; ``tips`` f64 [T, L, S]; ``prior`` f64 [K, S]: w_k π_s."""
    messages = _Messages(tree, tips, p)
    for half in reversed(nodes):
        for sibling in tree.siblings(half):
            messages.take(sibling)
    messages.take(nodes[0])
    for half in nodes:
        for sibling in tree.siblings(half):
            if int(tree.twin[sibling]) >= 3 * tree.n_tips:
                messages.take(int(tree.twin[sibling]))
    for half in nodes:
        values, logs = messages.product([half, *tree.siblings(half)])
        scale = np.exp(logs - logs.max(axis=1, keepdims=True))
        joint = np.einsum("ks,lk,lks->ls", prior, scale, values)
        yield joint / joint.sum(axis=1, keepdims=True)


def _systems(arrays: ModelArrays) -> list[ModelArrays]:
    """The classes of a mixture, each with its categories; of any other model the model itself."""
    if arrays.eigenvalues.ndim == 1:
        return [arrays]
    each = arrays.n_categories // arrays.n_systems
    rates, weights = arrays.rates.reshape(-1, each), arrays.weights.reshape(-1, each)
    return replace(arrays, rates=rates, weights=weights).unstacked()


class _Messages:
    """What comes into inner nodes through their half-edges: P · (what lies behind the twin)."""

    def __init__(self, tree: Tree, tips: Float64, p: Float64) -> None:
        self._tree, self._tips, self._p = tree, tips, p
        self._values: dict[int, Float64] = {}
        """f64 [L, K, S], of largest element 1 by pattern and category ..."""
        self._logs: dict[int, Float64] = {}
        """... times exp(f64 [L, K])."""

    def take(self, half: int) -> None:
        """Compute what comes in, once all that it is made from is there."""
        tree = self._tree
        twin, p = int(tree.twin[half]), self._p[tree.edge[half]]
        if twin < 3 * tree.n_tips:
            values = np.einsum("kij,lj->lki", p, self._tips[twin // 3])
            logs = np.zeros(values.shape[:2])
        else:
            behind, logs = self.product(list(tree.siblings(twin)))
            values = np.matmul(behind.swapaxes(0, 1), p.swapaxes(1, 2)).swapaxes(0, 1)
        self._values[half], self._logs[half] = _scaled(values, logs)

    def product(self, halves: list[int]) -> tuple[Float64, Float64]:
        """Of what comes in through some half-edges of a node."""
        first, *others = halves
        values, logs = self._values[first], self._logs[first]
        for half in others:
            values, logs = _scaled(values * self._values[half], logs + self._logs[half])
        return values, logs


def _scaled(values: Float64, logs: Float64) -> tuple[Float64, Float64]:
    """With a largest element of 1; a category that cannot be stays at 0, and counts for nothing."""
    largest = values.max(axis=2)
    possible = largest > 0
    divisor = np.where(possible, largest, 1.0)
    return values / divisor[:, :, None], np.where(possible, logs + np.log(divisor), -np.inf)
