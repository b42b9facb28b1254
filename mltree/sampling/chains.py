"""Chains: trees as the words that a device sweeps over, and back."""

from __future__ import annotations

import numpy as np

from mltree.program.ops.sweeps import ChainTree, chain_words
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree, siblings, tree_from_edges


def hang_tree(words: Float64, tree: Tree) -> None:
    """Write a tree into a chain's words f64[n], as it hangs from tip 0."""
    chain, first_inner = ChainTree(words), 3 * tree.n_tips
    chain.parent[:] = chain.left[:] = chain.right[:] = 0
    waiting = [int(tree.twin[0])]
    while waiting:
        half = waiting.pop()
        node, twin = half // 3, int(tree.twin[half])
        chain.lengths[node] = tree.lengths[tree.edge[half]]
        chain.parent[node] = twin // 3
        if twin // 3 == 0:
            chain.left[0] = node
        if half >= first_inner:
            left, right = (int(tree.twin[side]) for side in siblings(half))
            chain.left[node], chain.right[node] = left // 3, right // 3
            waiting += [right, left]


def tree_of(words: Float64) -> Tree:
    """The tree of a chain's words f64[n]."""
    chain = ChainTree(words)
    nodes = np.arange(1, chain.nodes)
    ends = np.column_stack([nodes, chain.parent[1:].astype(np.int64)])
    return tree_from_edges(ends, chain.lengths[1:].copy(), chain.tips)


def empty_words(chains: int, tips: int) -> Float64:
    """f64[chains, words]: states of chains, all zero."""
    return np.zeros((chains, chain_words(tips)))
