"""Keys of topologies and of their neighbours, against trees that are really made."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.tree.moves import nni, random_nnis
from mltree.tree.splits import SplitSums, splits_of
from mltree.tree.topology import Forest, Tree, random_topology, siblings


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


def test_splits_of_many_trees_are_those_of_each() -> None:
    rng = np.random.default_rng(5)
    trees = [random_topology(11, rng) for _ in range(6)]
    together = splits_of(trees)
    assert together.shape == (6, 8)
    for row, tree in zip(together, trees, strict=True):
        np.testing.assert_array_equal(np.sort(row), np.sort(SplitSums(tree).splits))


@pytest.mark.cases(3, 100)
def test_quartets_have_one_key_and_one_order_in_any_tree(case: int) -> None:
    rng = np.random.default_rng(case)
    tree = random_topology(int(rng.integers(6, 24)), rng)
    other = tree.copy()
    random_nnis(other, 0.3, rng)
    seen: dict[object, tuple[int, list[frozenset[int]]]] = {}
    found = 0
    for one in (tree, other):
        near, far = one.edge_halves[one.inner_edges].T
        halves = np.stack([*siblings(near), *siblings(far)], axis=1)
        halves = np.concatenate([halves, halves[:, [3, 2, 0, 1]], halves[:, [0, 2, 1, 3]]])
        keys, order = SplitSums(one).quartets(halves)
        for key, own, row in zip(keys.tolist(), order, halves, strict=True):
            tips = [tips_beyond(one, int(half)) for half in row]
            joined = frozenset([frozenset(tips[:2]), frozenset(tips[2:])])
            ordered = [tips[place] for place in own]
            assert {frozenset(ordered[:2]), frozenset(ordered[2:])} == joined
            found += joined in seen
            assert seen.setdefault(joined, (key, ordered)) == (key, ordered)
    assert len({key for key, _ in seen.values()}) == len(seen)
    assert found > len(tree.inner_edges)


def tips_beyond(tree: Tree, half: int) -> frozenset[int]:
    """Those that a half-edge faces."""
    beyond = int(tree.twin[half])
    if beyond < 3 * tree.n_tips:
        return frozenset([beyond // 3])
    return frozenset().union(*(tips_beyond(tree, int(one)) for one in siblings(np.int32(beyond))))
