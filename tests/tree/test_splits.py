import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.tree.moves import nni, random_nnis
from mltree.tree.splits import (
    edges_apart,
    lengths_in,
    mean_distance,
    robinson_foulds,
    same_topology,
    splits,
    topology_key,
)
from mltree.tree.topology import Tree, random_topology, siblings, tree_from_edges

SEEDS = st.integers(0, 2**32 - 1)


def renumbered(tree: Tree, rng: np.random.Generator) -> Tree:
    """The same topology under other node and edge numbers and another ring order."""
    names = np.concatenate((np.arange(tree.n_tips), tree.n_tips + rng.permutation(tree.n_tips - 2)))
    ends = names[tree.edge_halves // 3]
    order = rng.permutation(tree.n_edges)
    return tree_from_edges(ends[order], tree.lengths[order], tree.n_tips)


def tips_behind(tree: Tree, half: int) -> set[int]:
    if half < 3 * tree.n_tips:
        return {half // 3}
    first, second = siblings(half)
    return tips_behind(tree, int(tree.twin[first])) | tips_behind(tree, int(tree.twin[second]))


@given(st.integers(3, 80), SEEDS)
def test_splits_are_the_sets_of_tips_behind_each_edge(n_tips: int, seed: int) -> None:
    tree = random_topology(n_tips, np.random.default_rng(seed))
    bits = np.unpackbits(splits(tree).view(np.uint8), axis=1, bitorder="little")
    for edge, (one, other) in enumerate(tree.edge_halves.tolist()):
        sides = [tips_behind(tree, one), tips_behind(tree, other)]
        assert set(np.flatnonzero(bits[edge]).tolist()) == next(s for s in sides if 0 not in s)


@given(st.integers(4, 90), SEEDS)
def test_numbering_does_not_matter(n_tips: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_topology(n_tips, rng)
    other = renumbered(tree, rng)
    assert topology_key(tree) == topology_key(other)
    assert same_topology(tree, other)


@given(st.integers(4, 90), SEEDS)
def test_one_interchange_is_a_distance_of_two(n_tips: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_topology(n_tips, rng)
    other = renumbered(tree, rng)
    nni(other, int(rng.choice(other.inner_edges)), int(rng.integers(2)))
    assert robinson_foulds(tree, other) == 2
    assert topology_key(tree) != topology_key(other)


def test_keys_of_all_random_trees_of_six_tips_tell_105_topologies_apart() -> None:
    rng = np.random.default_rng(0)
    trees = [random_topology(6, rng) for _ in range(1500)]
    assert len({topology_key(tree) for tree in trees}) == 105


def test_5000_tips_are_no_problem() -> None:
    rng = np.random.default_rng(0)
    tree = random_topology(5000, rng)
    other = tree.copy()
    made = len(random_nnis(other, 0.1, rng))
    started = time.process_time()
    assert 0 < robinson_foulds(tree, other) <= 2 * made
    assert topology_key(tree) != topology_key(other)
    assert time.process_time() - started < 2


@given(st.integers(4, 80), SEEDS)
def test_lengths_of_another_numbering_are_those_of_the_splits(n_tips: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_topology(n_tips, rng)
    tree.lengths[:] = rng.exponential(size=tree.n_edges)
    other = renumbered(tree, rng)
    np.testing.assert_array_equal(lengths_in(tree, other), tree.lengths)
    nni(other, int(other.inner_edges[0]), 0)
    with pytest.raises(ValueError, match="different topologies"):
        lengths_in(tree, other)


@given(st.integers(4, 90), SEEDS)
def test_edges_apart_show_the_splits_that_another_tree_lacks(n_tips: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, other = random_topology(n_tips, rng), random_topology(n_tips, rng)
    known = {row.tobytes() for row in splits(other)}
    lacking = [edge for edge, row in enumerate(splits(tree)) if row.tobytes() not in known]
    assert edges_apart(tree, other).tolist() == lacking
    assert not edges_apart(tree, renumbered(tree, rng)).size


@given(st.integers(4, 40), SEEDS, st.integers(2, 6))
def test_the_mean_distance_is_half_of_robinson_and_foulds(
    n_tips: int, seed: int, count: int
) -> None:
    """As a share of the inner splits, over all pairs."""
    rng = np.random.default_rng(seed)
    trees = [random_topology(n_tips, rng) for _ in range(count)]
    distances = [robinson_foulds(*pair) for pair in combinations(trees, 2)]
    expected = np.mean(distances) / 2 / (n_tips - 3)
    np.testing.assert_allclose(mean_distance(trees), expected, atol=1e-12)


def test_trees_without_another_or_without_inner_splits_do_not_differ() -> None:
    rng = np.random.default_rng(1)
    assert mean_distance([]) == mean_distance([random_topology(9, rng)]) == 0.0
    assert mean_distance([random_topology(3, rng) for _ in range(2)]) == 0.0
