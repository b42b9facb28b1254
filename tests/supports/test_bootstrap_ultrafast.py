"""What replicates take of the trees that they are offered, one tree and one replicate at a time."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.supports.bootstrap import EPSILON, MARGIN, Ultrafast
from mltree.tree.splits import SplitSums
from mltree.tree.topology import random_topology

B = 400


def offered(rng: np.random.Generator, count: int) -> tuple[list, np.ndarray]:
    """Trees of different topology, and their keys."""
    made = {}
    while len(made) < count:
        tree = random_topology(9, rng)
        made[SplitSums(tree).topology] = tree
    return list(made.values()), np.array(list(made), np.uint64)


@pytest.mark.cases(3, 100)
def test_replicates_keep_their_best_tree(case: int) -> None:
    """Scores are far apart: chance has no say, nor has how trees come in batches."""
    rng = np.random.default_rng(case)
    trees, keys = offered(rng, 30)
    lnl = -100 * rng.random(30)
    resampled = 3.0 * rng.permuted(np.tile(np.arange(30.0), (B, 1)), axis=1).T
    one, other = Ultrafast(B), Ultrafast(B)
    one.offer(keys, lnl, resampled, trees.__getitem__)
    for part in np.array_split(np.arange(30), 4):
        other.offer(keys[part], lnl[part], resampled[part], lambda n, part=part: trees[part[n]])
    best = resampled.argmax(axis=0)
    for own in (one, other):
        np.testing.assert_array_equal(own.held, keys[best])
        np.testing.assert_array_equal(own.best, resampled.max(axis=0))
        assert own.cutoff == pytest.approx(lnl[best].min() - MARGIN)
        assert {key: own.trees[key] for key in own.trees} == {
            int(keys[n]): trees[n] for n in np.unique(best)
        }
        assert sum(count for _, count in own.holders()) == B
        assert own.holders()[0][1] == np.bincount(best).max()


def test_trees_that_are_as_good_are_held_by_as_many() -> None:
    """A tree that ties takes a replicate with a chance of 1 / (taken so far + 1)."""
    trees, keys = offered(np.random.default_rng(1), 2)
    own = Ultrafast(20_000)
    lnl = np.array([-5.0, -6.0])
    resampled = np.broadcast_to(np.array([[0.0], [-EPSILON / 2]]), (2, 20_000))
    own.offer(keys, lnl, resampled, trees.__getitem__)
    assert (own.held == keys[1]).mean() == pytest.approx(0.5, abs=0.015)
    np.testing.assert_array_equal(own.best, 0.0)
    worse = resampled[:1] - 1.01 * EPSILON
    own.offer(keys[:1] + np.uint64(1), lnl[:1], worse, trees.__getitem__)
    assert set(own.held.tolist()) == set(keys.tolist())


def test_it_tells_by_how_much_supports_have_moved() -> None:
    trees, keys = offered(np.random.default_rng(3), 2)
    own = Ultrafast(B)
    resampled = np.zeros((1, B))
    assert own.moved(1) == np.inf
    for share in (0, 4, 0):
        own.offer(keys[:1], np.zeros(1), resampled, lambda _: trees[0])
        if share:
            better = np.where(np.arange(B) < B // share, 9.0, -9.0)[None]
            own.offer(keys[1:], np.zeros(1), better, lambda _: trees[1])
        own.correlation()
    assert (own.moved(1), own.moved(3)) == (0.0, np.inf)
    assert own.moved(2) == pytest.approx((B // 4) / B)


def test_a_tree_that_is_met_again_has_another_chance() -> None:
    trees, keys = offered(np.random.default_rng(7), 2)
    own = Ultrafast(20_000)
    for n in (0, 1, 1):
        own.offer(keys[n : n + 1], np.zeros(1), np.zeros((1, 20_000)), lambda _, n=n: trees[n])
    share = 1 / 2 + 1 / 2 * 1 / 2
    assert (own.held == keys[1]).mean() == pytest.approx(share, abs=0.015)
    assert own.offered == 2


def test_it_counts_what_was_offered_and_says_how_far_below_the_rest_may_be() -> None:
    trees, keys = offered(np.random.default_rng(2), 3)
    own = Ultrafast(B)
    assert (own.offered, own.cutoff) == (0, -np.inf)
    resampled = np.zeros((2, B))
    resampled[1, : B // 2] = 9.0
    own.offer(keys[:2], np.array([-10.0, -12.0]), resampled, trees.__getitem__)
    assert own.cutoff == -12.0 - MARGIN
    assert own.offered == 2


def test_correlation_is_pearsons_over_all_splits() -> None:
    """With the supports of the snapshot that is half as old."""
    trees, keys = offered(np.random.default_rng(4), 4)
    own = Ultrafast(B)
    rng = np.random.default_rng(5)
    tables = []
    for n in range(4):
        resampled = np.full((1, B), -1e9)
        resampled[0, rng.random(B) < (1.0 if n == 0 else 0.3)] = 10.0 * n
        own.offer(keys[n : n + 1], np.zeros(1), resampled, lambda _, n=n: trees[n])
        found = own.correlation()
        support: dict[int, float] = {}
        for key, count in own.holders():
            for split in SplitSums(own.trees[key]).splits.tolist():
                support[split] = support.get(split, 0.0) + count / B
        tables.append(support)
        if n == 0:
            assert found is None
            continue
        before = tables[(n + 1) // 2 - 1]
        every = sorted(before.keys() | support.keys())
        rows = [[table.get(key, 0.0) for key in every] for table in (before, support)]
        expected = np.corrcoef(rows)[0, 1] if np.ptp(rows[0]) else 0.0
        assert found == pytest.approx(expected)
