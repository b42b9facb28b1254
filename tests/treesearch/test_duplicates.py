"""Leaving copies out and putting them back changes neither the tree nor its likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program.engine import ReferenceEngine
from mltree.tree.splits import robinson_foulds, splits
from mltree.tree.topology import random_topology
from mltree.treesearch.duplicates import collapse

if TYPE_CHECKING:
    from simulated import Simulated

BOUNDS = (1e-6, 100.0)


def with_copies(case: Simulated, rows: list[int]) -> Simulated:
    codes = case.patterns.codes[rows]
    taxa = tuple(f"x{n}" for n in range(len(rows)))
    return replace(case, patterns=replace(case.patterns, codes=codes, taxa=taxa))


@pytest.fixture
def doubled(make_case: Callable[..., Simulated]) -> Simulated:
    return with_copies(make_case(7, 150), [0, 1, 0, 2, 3, 3, 4, 5, 6, 3])


def test_keeps_the_first_of_every_group(doubled: Simulated) -> None:
    collapsed = collapse([doubled.patterns])
    assert collapsed.kept.tolist() == [0, 1, 3, 4, 6, 7, 8]
    assert collapsed.copies.tolist() == [2, 5, 9]
    assert collapsed.models.tolist() == [0, 4, 4]
    assert collapsed.groups[0].taxa == ("x0", "x1", "x3", "x4", "x6", "x7", "x8")
    columns = np.unique(collapsed.groups[0].codes, axis=1)
    assert columns.shape == collapsed.groups[0].codes.shape


def test_the_restored_tree_has_the_same_likelihood(doubled: Simulated) -> None:
    collapsed = collapse([doubled.patterns])
    tree = random_topology(7, np.random.default_rng(3))
    tree.lengths[:] = np.random.default_rng(4).uniform(0.01, 0.4, tree.n_edges)
    restored = collapsed.restore(tree)
    restored.validate()
    small = TreeLikelihood(ReferenceEngine(collapsed.groups[0], 2, BOUNDS), BOUNDS)
    whole = TreeLikelihood(ReferenceEngine(doubled.patterns, 2, BOUNDS), BOUNDS)
    expected = small.log_likelihoods([tree], [doubled.under])[0]
    assert whole.log_likelihoods([restored], [doubled.under])[0] == pytest.approx(
        expected, rel=1e-13
    )


def test_reducing_undoes_restoring(doubled: Simulated) -> None:
    collapsed = collapse([doubled.patterns])
    tree = random_topology(7, np.random.default_rng(5))
    again = collapsed.reduce_tree(collapsed.restore(tree))
    assert robinson_foulds(again, tree) == 0
    assert again.lengths.sum() == pytest.approx(tree.lengths.sum())


def test_at_least_four_taxa_stay(make_case: Callable[..., Simulated]) -> None:
    case = with_copies(make_case(5, 20), [0, 0, 0, 1, 1, 1])
    collapsed = collapse([case.patterns])
    assert collapsed.kept.size == 4
    collapsed.restore(random_topology(4, np.random.default_rng(1))).validate()


def test_no_member_of_a_group_is_preferred_where_four_have_to_stay(
    make_case: Callable[..., Simulated],
) -> None:
    """Copies went back beside one of them alone: others, left together, had 100 %."""
    collapsed = collapse([with_copies(make_case(5, 20), [0] * 6).patterns])
    rng, count = np.random.default_rng(2), 600
    shares = np.zeros((6, 6))
    for _ in range(count):
        tree = collapsed.shuffled(rng).restore(random_topology(4, rng))
        for (side,) in splits(tree)[tree.inner_edges].tolist():
            members = np.flatnonzero([side >> tip & 1 for tip in range(6)])
            pair = members if members.size == 2 else np.setdiff1d(np.arange(6), members)
            if pair.size == 2:
                shares[tuple(pair)] += 1
    pairs = shares[np.triu_indices(6, 1)]
    expected = pairs.mean()
    assert expected > count / 10
    assert (np.abs(pairs - expected) < 4 * np.sqrt(expected)).all()


def test_without_copies_nothing_changes(case: Simulated) -> None:
    collapsed = collapse([case.patterns])
    assert collapsed.groups[0] is case.patterns
    assert collapsed.restore(case.tree) is case.tree
