"""Walks visit every node after what it is made from, and few results wait."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.likelihood.walks import walk_records
from mltree.tree.random_trees import random_topology


@pytest.mark.parametrize("tips", [4, 5, 17, 200])
def test_a_walk_is_in_post_order_with_few_results_waiting(tips: int) -> None:
    tree = random_topology(tips, np.random.default_rng(tips))
    plan = walk_records([tree])
    assert len(plan.steps) == tips - 2
    waiting, most = 0, 0
    tips_seen, lengths_seen = [0], [int(plan.walks["length"][0])]
    for left, left_p, right, right_p in plan.steps.tolist():
        assert left >= 0 or right < 0, "a lone result is the left operand"
        taken = (left >= 0) + (right >= 0)
        assert waiting >= taken
        waiting += 1 - taken
        most = max(most, waiting)
        tips_seen += [~x for x in (left, right) if x < 0]
        lengths_seen += [left_p, right_p]
    assert waiting == 1
    assert most == 1 + plan.levels <= 1 + np.log2(tips)
    assert sorted(tips_seen) == list(range(tips))
    assert sorted(lengths_seen) == list(range(tree.n_edges))


def test_trees_with_one_topology_differ_in_their_lengths_only() -> None:
    tree = random_topology(9, np.random.default_rng(1))
    plan = walk_records([tree, tree, tree.copy()])
    np.testing.assert_array_equal(plan.walks["length"], tree.edge[0] + np.arange(3) * tree.n_edges)
    one, *others = np.split(plan.steps, 3)
    for number, other in enumerate(others, 1):
        np.testing.assert_array_equal(other["left"], one["left"])
        np.testing.assert_array_equal(other["left_p"], one["left_p"] + number * tree.n_edges)
