"""The distinct best trees of a search, and the best of those on their way."""

from __future__ import annotations

import numpy as np

from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.checkpoint import CandidateTree, Pool, best_of


def trees(count: int) -> list[Tree]:
    rng = np.random.default_rng(3)
    return [random_topology(10, rng) for _ in range(count)]


def test_the_pool_keeps_distinct_trees_best_first() -> None:
    a, b, c = trees(3)
    pool = Pool(2)
    for tree, lnl in ((a, -5.0), (b, -3.0), (a, -4.0), (a, -9.0), (c, -8.0)):
        pool.add([tree], [lnl])
    assert [entry.lnl for entry in pool.trees] == [-3.0, -4.0]
    a.lengths[:] = 9.0
    assert pool.trees[1].tree.lengths.max() < 9.0


def test_the_best_is_the_first_of_equals() -> None:
    lnls = {"x": -2.0, "y": -1.0, "z": -1.5, "w": -1.0}
    candidates = [
        CandidateTree(tree, lnl, origin)
        for tree, (origin, lnl) in zip(trees(4), lnls.items(), strict=True)
    ]
    assert best_of(candidates).origin == "y"
