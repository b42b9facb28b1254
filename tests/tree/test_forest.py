"""Trees side by side are walked as each alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.tree.forest import Forest
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree, siblings


def some_trees(n_tips: int, seed: int, count: int = 3) -> list[Tree]:
    rng = np.random.default_rng(seed)
    return [random_topology(n_tips, rng) for _ in range(count)]


@given(tips=st.integers(3, 40), seed=st.integers(0, 10**6))
def test_waves_are_those_of_every_tree(tips: int, seed: int) -> None:
    trees = some_trees(tips, seed)
    together = [set(wave.tolist()) for wave in Forest(trees).waves()]
    alone = [list(tree.waves_from(int(tree.edge[0]))) for tree in trees]
    assert len(together) == max(map(len, alone))
    for distance, wave in enumerate(together):
        expected = set()
        for n, waves in enumerate(alone):
            here = waves[distance].tolist() if distance < len(waves) else []
            expected |= {n * trees[0].twin.size + half for half in here}
        assert wave == expected


@given(tips=st.integers(3, 40), seed=st.integers(0, 10**6))
def test_from_a_central_tip_the_waves_are_fewest(tips: int, seed: int) -> None:
    trees = some_trees(tips, seed)
    forest = Forest(trees)
    for tree, root in zip(trees, forest.in_tree(forest.central_tips()), strict=True):
        own = Forest([tree])
        distances = [len(own.waves(np.array([3 * tip], np.int32))) for tip in range(tips)]
        assert root == 3 * int(np.argmin(distances))
    together = forest.waves(forest.central_tips())
    assert np.concatenate(together).size == len(trees) * (tips - 2)


@given(tips=st.integers(3, 40), seed=st.integers(0, 10**6))
def test_levels_are_one_above_what_they_are_made_from(tips: int, seed: int) -> None:
    forest = Forest(some_trees(tips, seed))
    level, inner = forest.levels(), forest.inner
    one, other = forest.behind
    assert (level[~forest.is_inner] == 0).all()
    np.testing.assert_array_equal(level[inner], 1 + np.maximum(level[one], level[other])[inner])


@pytest.mark.parametrize("tips", [4, 5, 30])
def test_keys_tell_topologies_apart_in_any_company(tips: int) -> None:
    trees = some_trees(tips, 5, count=4)
    keys = Forest(trees).topology_keys()
    assert Forest(trees[::-1]).topology_keys() == keys[::-1]
    assert Forest([*trees, trees[1].copy()]).topology_keys()[-1] == keys[1]


def test_numbers_count_on_from_tree_to_tree() -> None:
    trees = some_trees(6, 2)
    forest = Forest(trees)
    for n, tree in enumerate(trees):
        used = np.flatnonzero(tree.twin >= 0)
        at = n * tree.twin.size + used
        np.testing.assert_array_equal(forest.twin[at], n * tree.twin.size + tree.twin[used])
        np.testing.assert_array_equal(
            forest.lengths[forest.edge[at]], tree.lengths[tree.edge[used]]
        )
        np.testing.assert_array_equal(forest.is_inner[at], used >= 3 * tree.n_tips)
    half = 3 * trees[0].n_tips
    assert forest.of_trees(half).tolist() == [n * trees[0].twin.size + half for n in range(3)]
    for made_from, sibling in zip(forest.behind, siblings(half), strict=True):
        assert made_from[half] == trees[0].twin[sibling]
