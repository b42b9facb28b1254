"""Copies of the best tree, moved away from it."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.fit.settings import PerturbationSettings
from mltree.tree.moves import random_nnis
from mltree.tree.splits import robinson_foulds, same_topology, splits, topology_key
from mltree.tree.topology import random_topology
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.constraint import tips_behind_edges
from mltree.treesearch.search_context import fallen_back, next_fraction, perturbed_copies


def candidate(n_tips: int = 33, seed: int = 1) -> CandidateTree:
    return CandidateTree(random_topology(n_tips, np.random.default_rng(seed)), -5.0, "parsimony 1")


@pytest.mark.parametrize(("fraction", "crossed"), [(0.1, 3), (0.3, 9), (0.001, 1)])
def test_every_copy_leaves_the_tree_by_a_share_of_its_edges(fraction: float, crossed: int) -> None:
    best = candidate()
    before = best.tree.copy()
    settings = PerturbationSettings(copies=12)
    copies = perturbed_copies(best, settings, fraction, np.random.default_rng(2))
    assert [copy.origin for copy in copies] == [f"copy {n}" for n in range(1, 13)]
    for copy in copies:
        copy.tree.validate()
        assert robinson_foulds(copy.tree, best.tree) == 2 * crossed
        assert copy.lnl == -np.inf
    assert len({topology_key(copy.tree) for copy in copies}) > 6
    assert same_topology(best.tree, before)
    np.testing.assert_array_equal(best.tree.lengths, before.lengths)


def test_edges_without_length_are_crossed_in_every_copy_and_no_more_others() -> None:
    """Of the splits of other edges a copy misses no more than it was to cross."""
    best = candidate()
    inner = best.tree.inner_edges
    free = inner[::3]
    best.tree.lengths[free] = 1e-6
    firm = [
        frozenset(np.flatnonzero(tips_behind_edges(best.tree)[edge]))
        for edge in np.setdiff1d(inner, free)
    ]
    settings = PerturbationSettings(copies=20)
    copies = perturbed_copies(best, settings, 1 / 30, np.random.default_rng(4))
    for copy in copies:
        copy.tree.validate()
        shown = {frozenset(np.flatnonzero(side)) for side in tips_behind_edges(copy.tree)}
        assert sum(side not in shown for side in firm) <= 1
    distances = [robinson_foulds(copy.tree, best.tree) for copy in copies]
    assert min(distances) > 2
    assert len({topology_key(copy.tree) for copy in copies}) == 20


def test_copies_that_fell_back_are_counted() -> None:
    """Other trees that are just as good are nothing new either."""
    best = candidate()
    lnls = (-5.0, -4.995, -5.005, -4.98, -5.02, -np.inf, -7.0)
    copies = [CandidateTree(best.tree, lnl, "copy") for lnl in lnls]
    assert fallen_back(copies, [False] * 7, best, 0.01) == 3
    assert fallen_back(copies, [True, *[False] * 5, True], best, 0.01) == 4


@pytest.mark.parametrize(("fell_back", "expected"), [(0, 0.2), (8, 0.2), (9, 0.3), (10, 0.3)])
def test_the_share_grows_when_most_fall_back(fell_back: int, expected: float) -> None:
    settings = PerturbationSettings(
        copies=10, fall_back_share=0.8, strengthen=1.5, max_fraction=0.35
    )
    assert next_fraction(0.2, fell_back, settings) == pytest.approx(expected)
    assert next_fraction(0.3, 10, settings) == 0.35


@pytest.mark.cases(5, 60)
def test_every_other_copy_is_resolved_anew_where_another_tree_differs_and_nowhere_else(
    case: int,
) -> None:
    rng = np.random.default_rng(case)
    best = candidate(20, case)
    best.landscape = 3
    other = best.tree.copy()
    random_nnis(other, 0.3, rng)
    settings = PerturbationSettings(copies=20, resolves=True)
    copies = perturbed_copies(best, settings, 0.15, rng, unlike=[other])
    common = {row.tobytes() for row in splits(best.tree)} & {row.tobytes() for row in splits(other)}
    for copy in copies:
        copy.tree.validate()
        assert copy.landscape == 3
    resolved, interchanged = copies[::2], copies[1::2]
    for copy in resolved:
        assert common <= {row.tobytes() for row in splits(copy.tree)}
    assert any(not same_topology(copy.tree, best.tree) for copy in resolved)
    for copy in interchanged:
        assert robinson_foulds(copy.tree, best.tree) == 2 * round(0.15 * 17)


def test_copies_without_another_tree_are_made_by_interchanges() -> None:
    best, settings = candidate(), PerturbationSettings(copies=3, resolves=True)
    for copy in perturbed_copies(best, settings, 0.1, np.random.default_rng(2)):
        assert robinson_foulds(copy.tree, best.tree) == 6
