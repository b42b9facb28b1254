"""Keys of topologies and of their neighbours, against trees that are really made."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.tree.forest import Forest
from mltree.tree.moves import nni, random_nnis
from mltree.tree.random_trees import random_topology
from mltree.tree.split_sums import SplitSums


@pytest.mark.cases(5, 200)
def test_keys_tell_topologies_apart_as_whole_trees_do(case: int) -> None:
    rng = np.random.default_rng(case)
    tree = random_topology(int(rng.integers(4, 40)), rng)
    keys, others = SplitSums(tree).interchanges(), []
    for edge in tree.inner_edges.tolist():
        for variant in (0, 1):
            other = tree.copy()
            nni(other, edge, variant)
            others.append(other)
    assert keys.tolist() == [SplitSums(other).topology for other in others]
    far = tree.copy()
    random_nnis(far, 0.5, rng)
    every = [tree, far, *others]
    own = np.array([SplitSums(one).topology for one in every])
    theirs = np.array(Forest(every).topology_keys())
    np.testing.assert_array_equal(own[:, None] == own, theirs[:, None] == theirs)


def test_splits_that_trees_share_have_one_key() -> None:
    tree = random_topology(12, np.random.default_rng(3))
    other = tree.copy()
    nni(other, int(tree.inner_edges[2]), 1)
    shared = np.intersect1d(SplitSums(tree).splits, SplitSums(other).splits)
    assert shared.size == len(tree.inner_edges) - 1
