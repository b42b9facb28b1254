import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.tree.moves import nni
from mltree.tree.topology import NONE, Forest, Tree, random_topology, siblings, tree_from_edges

SEEDS = st.integers(0, 2**32 - 1)


def ladder(n_tips: int) -> Tree:
    inner = list(range(n_tips, 2 * n_tips - 2))
    ends = [(0, inner[0]), (n_tips - 1, inner[-1])]
    ends += [(tip, inner[tip - 1]) for tip in range(1, n_tips - 1)]
    ends += list(itertools.pairwise(inner))
    return tree_from_edges(ends, 0.1, n_tips)


def slow_level(tree: Tree, half: int) -> int:
    if half < 3 * tree.n_tips:
        return 0
    return 1 + max(slow_level(tree, int(tree.twin[s])) for s in siblings(half))


@given(st.integers(3, 60), SEEDS)
def test_random_trees_are_valid_and_levels_match_the_definition(n_tips: int, seed: int) -> None:
    tree = random_topology(n_tips, np.random.default_rng(seed))
    tree.validate()
    levels = Forest([tree]).levels
    assert levels.tolist() == [slow_level(tree, half) for half in range(3 * tree.n_nodes)]


@given(st.integers(3, 60), SEEDS, st.integers(0, 10**6))
def test_postorder_computes_before_use_and_faces_the_edge(n: int, seed: int, pick: int) -> None:
    tree = random_topology(n, np.random.default_rng(seed))
    edge = pick % tree.n_edges
    order = tree.postorder(edge).tolist()
    assert len({half // 3 for half in order}) == len(order) == n - 2
    done = {3 * tip for tip in range(n)}
    for half in order:
        assert {int(tree.twin[s]) for s in siblings(half)} <= done
        done.add(half)
    assert set(tree.edge_halves[edge].tolist()) <= done


def test_edge_halves_and_inner_edges() -> None:
    tree = random_topology(9, np.random.default_rng(1))
    halves = tree.edge_halves
    assert np.array_equal(tree.twin[halves[:, 0]], halves[:, 1])
    assert np.array_equal(tree.edge[halves[:, 1]], np.arange(tree.n_edges))
    assert np.all(halves[:, 0] < halves[:, 1])
    assert tree.inner_edges.size == 9 - 3
    assert np.all(halves[tree.inner_edges] >= 27)


def test_a_ladder_of_5000_tips_has_its_full_height() -> None:
    tree = ladder(5000)
    assert Forest([tree]).levels.max() == 4998
    assert tree.postorder(0).size == 4998


def test_copy_is_independent_and_assign_restores() -> None:
    tree = random_topology(6, np.random.default_rng(1))
    other = tree.copy()
    other.lengths[:] = 7
    other.twin[0] = 99
    assert tree.lengths.max() < 7
    other.assign(tree)
    other.validate()
    assert np.array_equal(other.lengths, tree.lengths)


def break_twin(tree: Tree) -> None:
    tree.twin[0] = 3


def break_loop(tree: Tree) -> None:
    base = 3 * tree.n_tips
    a, b = tree.twin[base], tree.twin[base + 1]
    tree.twin[[a, b, base, base + 1]] = b, a, base + 1, base


def break_unused(tree: Tree) -> None:
    tree.twin[1] = 0


def break_ids(tree: Tree) -> None:
    tree.edge[0] = tree.edge[3]


def break_pairs(tree: Tree) -> None:
    tree.edge[tree.edge == 1] = 0


def break_length(tree: Tree) -> None:
    tree.lengths[2] = np.nan


def break_negative(tree: Tree) -> None:
    tree.lengths[2] = -1e-9


def break_dtype(tree: Tree) -> None:
    tree.twin = tree.twin.astype(np.int64)  # type: ignore[assignment]


def break_shape(tree: Tree) -> None:
    tree.lengths = tree.lengths[1:]


def break_size(tree: Tree) -> None:
    tree.n_tips = 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_twin, "twin"),
        (break_loop, "itself|ends"),
        (break_unused, "more than"),
        (break_ids, "different edge ids"),
        (break_pairs, "0..E-1"),
        (break_length, "edge 2 has length nan"),
        (break_negative, "edge 2 has length"),
        (break_dtype, "twin must be int32"),
        (break_shape, "lengths must be float64"),
        (break_size, "at least 3"),
    ],
)
def test_validate_names_what_is_broken(damage, message: str) -> None:  # type: ignore[no-untyped-def]
    tree = random_topology(8, np.random.default_rng(2))
    damage(tree)
    with pytest.raises(ValueError, match=message):
        tree.validate()


def test_two_components_with_a_cycle_are_no_tree() -> None:
    # 6 tips, inner nodes 6..9: the star (0, 1, 2) apart from the cycle 7-8-9 with a tip each.
    ends = [(0, 6), (1, 6), (2, 6), (3, 7), (4, 8), (5, 9), (7, 8), (8, 9), (9, 7)]
    with pytest.raises(ValueError, match="one tree"):
        tree_from_edges(ends, 0.1, 6)


@pytest.mark.parametrize(
    "ends",
    [
        [(0, 4), (1, 4), (2, 5), (3, 5)],
        [(0, 4), (1, 4), (2, 5), (3, 5), (0, 5)],
        [(0, 4), (1, 4), (2, 5), (3, 5), (4, 6)],
    ],
)
def test_tree_from_edges_refuses_what_is_not_binary(ends: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="edges|neighbours|node numbers"):
        tree_from_edges(ends, 0.1, 4)


def test_every_topology_of_five_tips_is_equally_likely() -> None:
    rng = np.random.default_rng(5)
    trees = [random_topology(5, rng) for _ in range(1500)]
    keys = [tuple(sorted(_cherry_sets(tree))) for tree in trees]
    counts = np.unique(keys, axis=0, return_counts=True)[1]
    assert counts.size == 15
    # Chi-square with 14 degrees of freedom exceeds 36 with probability 0.001; the seed is fixed.
    assert float(((counts - 100.0) ** 2 / 100).sum()) < 36


def _cherry_sets(tree: Tree) -> list[tuple[int, int]]:
    owner: dict[int, list[int]] = {}
    for tip in range(tree.n_tips):
        owner.setdefault(int(tree.twin[3 * tip]) // 3, []).append(tip)
    return [(pair[0], pair[1]) for pair in owner.values() if len(pair) == 2]


def test_unused_half_edges_of_tips_hold_none() -> None:
    tree = random_topology(4, np.random.default_rng(1))
    assert tree.twin[1] == tree.twin[2] == tree.edge[1] == NONE


@pytest.mark.parametrize("artificial", [0, 2])
def test_a_tree_under_many_lengths_is_that_under_each(artificial: int) -> None:
    rng = np.random.default_rng(3)
    tree = random_topology(7, rng)
    tree.n_artificial = artificial
    rows = rng.exponential(size=(4, tree.n_edges))
    before = rows.copy()
    for made, row in zip(tree.with_each(rows), rows, strict=True):
        assert made.is_same(tree.with_lengths(row))
        assert made.lengths[tree.n_branches :].sum() == 0.0
        assert made.twin is tree.twin
    np.testing.assert_array_equal(rows, before)


def test_trees_are_the_same_only_with_their_lengths_and_numbering() -> None:
    tree = random_topology(7, np.random.default_rng(1))
    assert tree.is_same(tree.copy())
    longer, joined = tree.copy(), tree.copy()
    longer.lengths[3] += 1e-9
    nni(joined, int(tree.inner_edges[0]), 0)
    assert not tree.is_same(longer)
    assert not tree.is_same(joined)
