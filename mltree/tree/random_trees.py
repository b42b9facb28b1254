"""Random topologies, every one equally likely."""

from __future__ import annotations

import numpy as np

from mltree.tree.topology import DEFAULT_LENGTH, Tree, tree_from_edges

__all__ = ["random_topology"]


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
