"""The ultrafast bootstrap: every replicate keeps the best tree among those that a search meets.

A tree is offered with its site log-likelihoods, which under a replicate's weights give the tree's
resampled lnL (RELL). The replicate takes the tree if that exceeds its best by more than EPSILON;
within EPSILON it takes the tree with probability 1 / (number of trees as good so far + 1). Trees
whose lnL is more than MARGIN below that of the worst tree that any replicate holds are not offered.
(UFBoot2: Minh, Nguyen, von Haeseler 2013; Hoang et al. 2018.)

Letters: B replicates, n trees offered, T taxa.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mltree.system.arrays import Float64, UInt64
from mltree.tree.forest import GOLDEN, mixed
from mltree.tree.splits import splits_of
from mltree.tree.topology import Tree

EPSILON = 0.5
"""Difference in lnL up to which resampled trees are equally good: IQ-TREE's."""

MARGIN = 1.0
"""lnL below the worst held tree down to which trees are offered: IQ-TREE's."""

CORRELATION = 0.99
"""Correlation of all splits' supports with those after half as many trees, at which the bootstrap
has converged: IQ-TREE's."""


Supports: TypeAlias = tuple[UInt64, Float64]
"""Keys of splits, ascending, and the share of replicates that have each."""


class Ultrafast:
    """The trees that B replicates hold."""

    def __init__(self, replicates: int) -> None:
        self.replicates = replicates
        self.best: Float64 = np.full(replicates, -np.inf)
        """f64[B]: the largest resampled lnL so far."""
        self.lnl: Float64 = np.full(replicates, -np.inf)
        """f64[B]: lnL of the held trees, under the data's weights."""
        self.held: UInt64 = np.zeros(replicates, np.uint64)
        """uint64[B]: topology keys of the held trees."""
        self.trees: dict[int, Tree] = {}
        """The held trees, by key."""
        self._counts = np.zeros(replicates)
        self._met: dict[int, int] = {}
        self._splits: dict[int, UInt64] = {}
        self._snapshots: list[Supports] = []

    @property
    def offered(self) -> int:
        """Number of different topologies offered so far."""
        return len(self._met)

    @property
    def cutoff(self) -> float:
        """Least lnL of a tree worth offering."""
        return float(self.lnl.min()) - MARGIN

    def offer(
        self,
        keys: UInt64,
        lnl: Float64,
        resampled: Float64,
        make: Callable[[int], Tree],
    ) -> None:
        """Offer trees, one after the other.

        keys       uint64[n]: their topologies' keys
        lnl        f64[n]: lnL under the data's weights
        resampled  f64[n, B]
        make       gives the n-th tree, not to be changed afterwards
        """
        for key in keys.tolist():
            self._met[key] = self._met.get(key, 0) + 1
        hopeful = (resampled > self.best - EPSILON).any(axis=1)
        fresh: dict[int, int] = {}
        for n in np.flatnonzero(hopeful).tolist():
            taken = self._takers(keys[n], resampled[n])
            if not taken.size:
                continue
            is_better = resampled[n, taken] > self.best[taken] + EPSILON
            self._counts[taken] = np.where(is_better, 1, self._counts[taken] + 1)
            self.best[taken] = np.maximum(self.best[taken], resampled[n, taken])
            self.lnl[taken], self.held[taken] = lnl[n], keys[n]
            fresh[int(keys[n])] = n
        self.trees = {
            key: make(fresh[key]) if key in fresh else self.trees[key]
            for key in sorted(set(self.held.tolist()))
        }

    def _takers(self, key: np.uint64, resampled: Float64) -> NDArray[np.intp]:
        """Numbers of the replicates that take a tree.

        Chance depends on the tree's key, the replicate's number and how often the tree was met.
        """
        lead = resampled - self.best
        near = np.flatnonzero(lead > -EPSILON)
        met = mixed(np.array([self._met[int(key)]], np.uint64))
        bits = mixed(mixed(near.astype(np.uint64) * GOLDEN) + key + met)
        chance = (bits >> np.uint64(11)) * 2.0**-53
        return near[(lead[near] > EPSILON) | (chance * (self._counts[near] + 1) <= 1)]

    def holders(self) -> list[tuple[int, int]]:
        """Keys of the held trees and the number of their replicates, most first, then by lnL."""
        keys, first, counts = np.unique(self.held, return_index=True, return_counts=True)
        order = np.lexsort((keys, -self.lnl[first], -counts))
        return [(int(keys[n]), int(counts[n])) for n in order]

    def correlation(self) -> float | None:
        """Correlation of all splits' supports with those half as many calls ago; None at first."""
        self._snapshots.append(self._supports())
        number = len(self._snapshots)
        if number < 2:
            return None
        return _correlation(self._snapshots[number // 2 - 1], self._snapshots[-1])

    def moved(self, calls: int) -> float:
        """Largest change of a split's support since ``calls`` calls of :meth:`correlation` ago.

        Infinity if there were none before them.
        """
        if len(self._snapshots) <= calls:
            return np.inf
        now, before = _side_by_side(self._snapshots[-1], self._snapshots[-1 - calls])
        return float(np.abs(now - before).max())

    def _supports(self) -> Supports:
        """Supports of the splits of the held trees."""
        holders = dict(self.holders())
        new = [key for key in holders if key not in self._splits]
        if new:
            rows = splits_of([self.trees[key] for key in new])
            self._splits.update(zip(new, rows, strict=True))
        self._splits = {key: self._splits[key] for key in holders}
        keys = np.concatenate(list(self._splits.values()))
        counts = np.repeat(list(holders.values()), len(keys) // len(holders))
        distinct, of_key = np.unique(keys, return_inverse=True)
        return distinct, np.bincount(of_key, counts) / self.replicates


def _correlation(one: Supports, other: Supports) -> float:
    """Pearson's correlation over the splits that either has; 1 if neither varies."""
    rows = _side_by_side(one, other)
    if np.array_equal(rows[0], rows[1]):
        return 1.0
    if (rows == rows[:, :1]).all(axis=1).any():
        return 0.0
    return float(np.asarray(np.corrcoef(rows))[0, 1])


def _side_by_side(one: Supports, other: Supports) -> Float64:
    """f64[2, n]: supports of the splits that either has."""
    keys = np.union1d(one[0], other[0])
    rows = np.zeros((2, keys.size))
    for row, (split_keys, supports) in zip(rows, (one, other), strict=True):
        row[np.searchsorted(keys, split_keys)] = supports
    return rows
