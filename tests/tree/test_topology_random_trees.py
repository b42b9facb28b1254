"""Random trees: whether all are as likely that should be."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mltree.tree.splits import splits
from mltree.tree.topology import Tree, random_topology, resolved_at_random

CHI_SQUARE = {2: 13.8, 14: 36.1}
"""What chance exceeds once in a thousand times, by degrees of freedom."""


def split_set(tree: Tree) -> frozenset[tuple[int, ...]]:
    return frozenset(map(tuple, splits(tree)[tree.inner_edges].tolist()))


@pytest.mark.cases(4, 100)
def test_contracted_branches_are_resolved_anew_and_nothing_else(case: int) -> None:
    rng = np.random.default_rng(case)
    tree = random_topology(int(rng.integers(4, 40)), rng)
    tree.lengths[:] = rng.random(tree.n_edges)
    chosen = rng.random(tree.inner_edges.size) < rng.random()
    found = resolved_at_random(tree, tree.inner_edges[chosen], rng)
    found.validate()
    before, after = splits(tree), splits(found)
    kept = np.setdiff1d(np.arange(tree.n_edges), tree.inner_edges[chosen])
    assert (before[kept] == after[kept]).all()
    assert (tree.lengths == found.lengths).all()


@pytest.mark.parametrize("contracted", [1, 2])
def test_every_resolution_is_as_likely(contracted: int) -> None:
    rng = np.random.default_rng(7)
    tree = random_topology(8, rng)
    ends = tree.edge_halves[tree.inner_edges] // 3
    nodes = [np.intersect1d(ends[0], pair).size for pair in ends]
    edges = tree.inner_edges[np.argsort(nodes, kind="stable")[::-1][:contracted]]
    counts = Counter(split_set(resolved_at_random(tree, edges, rng)) for _ in range(3000))
    resolutions = {1: 3, 2: 15}[contracted]
    assert len(counts) == resolutions
    expected = 3000 / resolutions
    chi_square = sum((n - expected) ** 2 / expected for n in counts.values())
    assert chi_square < CHI_SQUARE[resolutions - 1]


def test_nothing_is_drawn_without_branches() -> None:
    rng, same = np.random.default_rng(3), np.random.default_rng(3)
    tree = random_topology(9, np.random.default_rng(1))
    assert resolved_at_random(tree, tree.inner_edges[:0], rng).is_same(tree)
    assert rng.random() == same.random()
