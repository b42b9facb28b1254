"""Trees side by side are walked as each alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.tree.moves import SprLengths, nni, spr
from mltree.tree.splits import splits
from mltree.tree.topology import Forest, Tree, random_topology, siblings
from mltree.treesearch.spr import Neighbourhood


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
    level, inner = forest.levels, forest.inner
    one, other = forest.behind
    assert (level[~forest.is_inner] == 0).all()
    np.testing.assert_array_equal(level[inner], 1 + np.maximum(level[one], level[other])[inner])


@pytest.mark.parametrize("tips", [4, 5, 30])
def test_keys_tell_topologies_apart_in_any_company(tips: int) -> None:
    trees = some_trees(tips, 5, count=4)
    keys = Forest(trees).topology_keys()
    assert Forest(trees[::-1]).topology_keys() == keys[::-1]
    assert Forest([*trees, trees[1].copy()]).topology_keys()[-1] == keys[1]


@pytest.mark.parametrize("seed", range(5))
def test_branches_in_circles_that_cross_are_walked_no_longer_than_a_tree(seed: int) -> None:
    """Two ways on from every half-edge: 64 waves of them would be more than there is memory for."""
    rng, tips = np.random.default_rng(seed), 64
    trees = some_trees(tips, seed)
    tangled = trees[1]
    inner = np.flatnonzero(np.arange(tangled.twin.size) // 3 >= tips)
    ends = rng.permutation(inner[tangled.twin[inner] // 3 >= tips])
    tangled.twin[ends], tangled.twin[ends[::-1]] = ends[::-1], ends
    forest = Forest(trees)
    every = np.arange(3, dtype=np.int32)
    facing, whole = forest.facing(every)
    assert whole.tolist() == [True, False, True]
    assert facing.size < 5 * tips
    for number in (0, 2):
        expected, _ = Forest([trees[number]]).facing(every[:1])
        own = facing[forest.tree_of_half[facing] == number]
        np.testing.assert_array_equal(forest.in_tree(own), expected)
    assert forest.facing(every[:0])[0].size == 0


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
    assert (forest.first_half + half).tolist() == [n * trees[0].twin.size + half for n in range(3)]
    for made_from, sibling in zip(forest.behind, siblings(half), strict=True):
        assert made_from[half] == trees[0].twin[sibling]


@pytest.mark.cases(4, 400)
def test_sets_of_tips_are_equal_in_any_tree(case: int) -> None:
    """One number a set of tips, whatever the tree; disjoint sets add up."""
    trees = some_trees(4 + 3 * (case % 9), case)
    forest = Forest(trees)
    whole: dict[bytes, int] = {}
    for n, tree in enumerate(trees):
        sides = splits(tree)
        keys = np.split(forest.tip_sets, forest.first_half[1:])[n].tolist()
        all_tips = (keys[0] + keys[tree.twin[0]]) % 2**64
        for half in np.flatnonzero(tree.twin >= 0).tolist():
            assert (keys[half] + keys[tree.twin[half]]) % 2**64 == all_tips
            is_away = holds_first(tree, half)
            name = sides[tree.edge[half]].tobytes() + bytes([is_away])
            assert whole.setdefault(name, keys[half]) == keys[half]
    assert len(set(whole.values())) == len(whole)


def holds_first(tree: Tree, half: int) -> bool:
    """Whether tip 0 is on the side of a half-edge."""
    pending = [half]
    while pending:
        at = pending.pop()
        if at < 3 * tree.n_tips:
            if at == 0:
                return True
        else:
            pending += [int(tree.twin[sibling]) for sibling in siblings(at)]
    return False


def test_shapes_leave_short_branches_out() -> None:
    tree, *_ = some_trees(12, 3)
    edge = int(tree.inner_edges[2])
    other = tree.copy()
    nni(other, edge, 0)
    for length, same in ((0.5, False), (1e-3, True)):
        for one in (tree, other):
            one.lengths[edge] = length
        first, second = Forest([tree, other]).shape_keys(1e-2)
        assert (first == second) == same
    assert Forest([tree, other]).topology_keys()[0] != Forest([other]).topology_keys()[0]
    parted = tree.copy()
    parted.lengths = np.stack([tree.lengths, np.ones_like(tree.lengths)])
    assert Forest([parted]).shape_keys(1e-2) != [first]


@pytest.mark.cases(4, 100)
def test_changes_of_shape_are_those_of_the_keys(case: int) -> None:
    """Each move alone, of trees with many branches without length."""
    rng = np.random.default_rng(case)
    trees = [random_topology(int(rng.integers(4, 30)), rng) for _ in range(3)]
    for tree in trees:
        tree.lengths = rng.random((2, tree.n_edges)) * (rng.random(tree.n_edges) < 0.5)
    region = Neighbourhood(trees)
    region.extend(20)
    lengths = rng.random((region.size, 4, 2)) * (rng.random((region.size, 4, 1)) < 0.5)
    forest, short = region.forest, np.full(region.size, 1e-3)
    changes = forest.shape_changes(region.prune, region.target, lengths.max(axis=2), short)
    before = np.array(forest.shape_keys(1e-3), np.uint64)[region.tree]
    after = [tree.copy() for tree in (trees[n] for n in region.tree)]
    moves = map(forest.in_tree, (region.prune, region.target))
    for tree, prune, target, four in zip(after, *moves, lengths, strict=True):
        spr(tree, int(prune), int(target), SprLengths(*four))
    assert Forest(after).shape_keys(1e-3) == (before + changes).tolist()
    assert np.unique(changes).size > 3


def test_a_forest_is_what_its_trees_were() -> None:
    trees = [random_topology(n_tips, np.random.default_rng(n_tips)) for n_tips in (5, 9)]
    forest = Forest(trees)
    assert Forest.of(forest) is forest
    assert len(forest) == 2
    assert Forest.of(trees).is_same(forest)
    longer, other = [tree.copy() for tree in trees], [tree.copy() for tree in trees]
    longer[1].lengths[3] *= 2
    other[1] = random_topology(9, np.random.default_rng(1))
    for changed in (longer, other, trees[:1], trees[::-1]):
        assert not Forest(changed).is_same(forest)
    assert [Forest(some).is_as_large(forest) for some in (longer, trees[::-1])] == [True, False]
    trees[0].lengths[:] = 0.5
    assert forest.tree(0).is_same(longer[0])
