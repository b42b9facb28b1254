"""Distinct best trees, and which starts go on."""

from __future__ import annotations

import numpy as np

from mltree.search.culling import survivors
from mltree.search.lineage import Lineage, best_of
from mltree.search.pool import Pool
from mltree.settings import SearchSettings
from mltree.tree.random_trees import random_topology


def trees(count: int) -> list:
    rng = np.random.default_rng(3)
    return [random_topology(10, rng) for _ in range(count)]


def test_the_pool_keeps_distinct_trees_best_first() -> None:
    a, b, c = trees(3)
    pool = Pool(2)
    for tree, lnl in ((a, -5.0), (b, -3.0), (a, -4.0), (a, -9.0), (c, -8.0)):
        pool.add(tree, lnl)
    assert [entry.lnl for entry in pool.trees] == [-3.0, -4.0]
    a.lengths[:] = 9.0
    assert pool.trees[1].tree.lengths.max() < 9.0


def test_starts_that_cannot_catch_up_are_dropped() -> None:
    settings = SearchSettings(cull_factor=0.5, cull_margin=2.0, max_survivors=3)
    lnls = [-100.0, -140.0, -101.0, -200.0, -103.0, -104.0]
    lineages = [Lineage(t, lnl, str(lnl)) for t, lnl in zip(trees(6), lnls, strict=True)]
    assert [x.lnl for x in survivors(lineages, settings)] == [-100.0, -101.0, -103.0]


def test_equal_topologies_go_on_once() -> None:
    a, b = trees(2)
    lineages = [Lineage(a, -2.0, "x"), Lineage(a.copy(), -1.0, "y"), Lineage(b, -1.5, "z")]
    assert [x.origin for x in survivors(lineages, SearchSettings())] == ["y", "z"]
    assert best_of(lineages).origin == "y"
