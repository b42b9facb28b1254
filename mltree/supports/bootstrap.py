"""Supports of branches by replicates (FBP, TBE), and the test for enough replicates (autoMRE)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from mltree.supports.consensus import (
    SplitTable,
    canonical,
    conflicts,
    greedy,
    members,
    percentages,
    sides,
    split_table,
    unit_bits,
)
from mltree.system.arrays import Bool, Float64, Index, UInt64
from mltree.system.events import BootstopChecked, SupportsDrawn
from mltree.tree.clades import Clades, write_clades
from mltree.tree.splits import splits_of
from mltree.tree.topology import GOLDEN, Tree, mixed

# FBP and TBE: supports of one tree's inner branches from replicates.

NARROW = np.iinfo(np.int16).max
"""Taxa up to which counts are int16: a vector instruction takes more of them."""


def occurrences(tree: Clades, replicates: Clades) -> Index:
    """Number of replicates that have each inner clade's split (Felsenstein's proportions, 1985).

    tree  one tree; its inner clades are those with ``is_inner``, in order
    """
    table = split_table(Clades.joined(tree.taxa, [tree, replicates]))
    return table.counts[table.of_clade[: tree.is_inner.sum()]] - 1


def transfer_expectations(tree: Clades, replicates: Clades) -> Float64:
    """The transfer bootstrap expectation, 0 to 1, of each inner clade (Lemoine et al. 2018).

        TBE(b) = 1 - mean over replicates of min over their branches c of d(b, c) / (p - 1)

    d: taxa that have to change sides to make the split of c that of b; p: taxa on the smaller side
    of b. A branch to a tip of that side is p - 1 away, so that the mean is never above 1.
    """
    n_tips = tree.n_tips
    inner = tree.only(tree.is_inner)
    inside = members(sides(inner, unit_bits(n_tips)), n_tips)
    size = inside.sum(axis=1)
    farthest = np.minimum(size, n_tips - size) - 1
    total = np.zeros(size.size)
    count = np.int16 if n_tips <= NARROW else np.int32
    sign = np.where(inside.T, count(-1), count(1))
    others = replicates.only(replicates.is_inner)
    bounds = others.bounds
    running = np.zeros((n_tips + 1, size.size), count)
    for k, order in enumerate(others.order):
        clades = slice(*bounds[k : k + 2])
        if clades.start == clades.stop:
            total += farthest
            continue
        # Hamming distance of b and c as sets: |b| + |c| - 2 |b & c| = |b| + sum of signs over c.
        np.cumsum(sign[order], axis=0, out=running[1:])
        excess = running[others.last[clades]] - running[others.first[clades]]
        nearest = np.minimum(size + excess.min(axis=0), n_tips - size - excess.max(axis=0))
        total += np.minimum(nearest, farthest)
    return np.asarray(1 - total / (farthest * replicates.n_trees))


NAMES = {"fbp": "FBP", "tbe": "TBE", "ufboot": "UFBoot"}
"""Names of supports; an ultrafast bootstrap is counted as FBP is."""


def drawn_supports(
    tree: Clades, replicates: Clades, metric: str, before: Sequence[str] = ()
) -> SupportsDrawn:
    """Draw the supports of a metric on the first of the trees, as labels.

    metric  of :data:`NAMES`
    before  of every clade the label that its support goes behind; none where empty
    """
    if metric != "tbe":
        count = occurrences(tree, replicates)
        support = count / replicates.n_trees
        labels = percentages(count, replicates.n_trees)
    else:
        support = transfer_expectations(tree, replicates)
        labels = [f"{value:.6f}" for value in support]
    branches, once = np.unique(split_table(tree).of_clade, return_index=True)
    mean = float(support[once].mean()) if once.size else None
    return SupportsDrawn(NAMES[metric], branches.size, mean, labelled(tree, before, labels))


def labelled(tree: Clades, before: Sequence[str], labels: Iterable[str]) -> str:
    """A tree in Newick with labels of its inner clades, behind those that it had, if any."""
    every = np.full(tree.tree.size, "", dtype=object)
    every[tree.is_inner] = labels
    if before:
        every[:] = ["/".join(filter(None, pair)) for pair in zip(before, every, strict=True)]
    return write_clades(tree, every)


# autoMRE: the test for enough replicates (Pattengale et al. 2010, "How many bootstrap replicates
# are necessary?"), with the thresholds of RAxML and RAxML-NG. The replicates are halved at random
# many times, and the supports of the halves' extended majority consensus trees are compared.

STEP = 50
"""Replicates between two tests: RAxML's and RAxML-NG's."""

HALVINGS = 1000
"""Random halvings a test: RAxML's and RAxML-NG's."""

CUTOFF = 0.03
"""Share of the largest weighted distance up to which two halves agree: RAxML's and RAxML-NG's."""

PASSED = 0.99
"""Share of halvings that must agree: RAxML's and RAxML-NG's."""

REMEMBERED = 1 << 27
"""Pairs of splits, a byte each, whose conflict is cached."""


def bootstop(
    table: SplitTable, seed: int, cutoff: float = CUTOFF, halvings: int = HALVINGS
) -> BootstopChecked:
    """Test if the trees of a table, an even number, are enough replicates (autoMRE).

    They are if 99 % of the halvings pass, and the mean distance is within the mean cutoff. The
    distance (wRF) is the sum over the splits of the halves' consensus trees of the difference in
    replicates that have them. The same seed gives the same halves for a number of trees, whatever
    was tested before.
    """
    halves, n_trees = _Halves(table), table.n_trees
    rng = np.random.Generator(np.random.PCG64((seed, n_trees)))
    distance, largest = np.empty(halvings), np.empty(halvings)
    for k in range(halvings):
        one, other = halves.supports(rng)
        distance[k] = np.abs(one - other).sum()
        largest[k] = n_trees / 2 * (np.count_nonzero(one) + np.count_nonzero(other))
    passed = int((distance <= cutoff * largest).sum())
    agree = passed >= PASSED * halvings and distance.mean() <= cutoff * largest.mean()
    return BootstopChecked(
        replicates=n_trees,
        wrf=float(distance.mean()),
        wrf_error=float(distance.std() / np.sqrt(halvings)),
        share=float((distance / np.maximum(largest, 1)).mean()),
        passed=passed,
        halvings=halvings,
        converged=bool(agree),
    )


class _Halves:
    """Extended majority consensus of any half of the trees.

    A split in more than 3/4 of all trees is in more than half of any half: every consensus has it,
    and none has a split that it excludes. Only the other splits are looked at for each half.
    """

    def __init__(self, table: SplitTable) -> None:
        splits = canonical(table)
        counts = table.counts[splits]
        certain = 4 * counts > 3 * table.n_trees
        self._open = np.flatnonzero(~certain)
        for split in splits[certain]:
            fits = ~conflicts(table.bits, split, splits[self._open])
            self._open = self._open[fits]
        rank = np.empty_like(splits)
        rank[splits] = np.arange(splits.size)
        self._tree, self._split = table.tree, rank[table.split]
        self._n_trees, self._counts, self._certain = table.n_trees, counts, certain
        self._bits = table.bits[splits[self._open]]
        self._excluded: dict[int, Bool] = {}

    def supports(self, rng: np.random.Generator) -> tuple[Index, Index]:
        """Trees of a random half that have each split, and trees of the other half, intp [S] each.

        Splits that a half's consensus lacks have 0. Equally frequent splits are ranked at random,
        in both halves alike: another order in each half would make the halves less alike than the
        trees are.
        """
        chosen = np.zeros(self._n_trees, dtype=np.bool_)
        chosen[rng.permutation(self._n_trees)[: self._n_trees // 2]] = True
        ties = rng.permutation(self._open.size)
        counts = np.bincount(self._split[chosen[self._tree]], minlength=self._counts.size)
        return self._consensus(counts, ties), self._consensus(self._counts - counts, ties)

    def _consensus(self, counts: Index, ties: Index) -> Index:
        supports = np.where(self._certain, counts, 0)
        uncertain = counts[self._open]
        ranked = ties[np.argsort(-uncertain[ties], kind="stable")]
        ranked = ranked[: np.count_nonzero(uncertain)]
        taken = self._open[greedy(ranked, self._excludes)]
        supports[taken] = counts[taken]
        return supports

    def _excludes(self, split: np.intp, others: Index) -> Bool:
        row = self._excluded.get(int(split))
        if row is None:
            if len(self._excluded) * len(self._bits) > REMEMBERED:
                return conflicts(self._bits, split, others)
            row = conflicts(self._bits, split, np.arange(len(self._bits)))
            self._excluded[int(split)] = row
        return row[others]


# The ultrafast bootstrap: every replicate keeps the best tree among those that a search meets.
#
# A tree is offered with its site log-likelihoods, which under a replicate's weights give the tree's
# resampled lnL (RELL). The replicate takes the tree if that exceeds its best by more than EPSILON;
# within EPSILON it takes the tree with probability 1 / (number of trees as good so far + 1). Trees
# whose lnL is more than MARGIN below that of the worst tree that any replicate holds are not
# offered. (UFBoot2: Minh, Nguyen, von Haeseler 2013; Hoang et al. 2018.)
#
# Letters: B replicates, n trees offered, T taxa.

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
        self, keys: UInt64, lnl: Float64, resampled: Float64, make: Callable[[int], Tree]
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

    def _takers(self, key: np.uint64, resampled: Float64) -> Index:
        """Numbers of the replicates that take a tree.

        Chance depends on the tree's key, the replicate's number and how often the tree was met.
        """
        lead = resampled - self.best
        able = np.flatnonzero(lead > -EPSILON)
        met = mixed(np.array([self._met[int(key)]], np.uint64))
        bits = mixed(mixed(able.astype(np.uint64) * GOLDEN) + key + met)
        chance = (bits >> np.uint64(11)) * 2.0**-53
        return able[(lead[able] > EPSILON) | (chance * (self._counts[able] + 1) <= 1)]

    def holders(self) -> list[tuple[int, int]]:
        """Keys of the held trees and the number of their replicates, most first, then by lnL."""
        keys, first, counts = np.unique(self.held, return_index=True, return_counts=True)
        order = np.lexsort((keys, -self.lnl[first], -counts))
        return [(int(keys[n]), int(counts[n])) for n in order]

    def correlation(self) -> float | None:
        """Correlation of all splits' supports with those half as many calls ago; None at first.

        Pearson's, over the splits of either time; 1 if they are equal, 0 if one does not vary.
        """
        self._snapshots.append(self._supports())
        number = len(self._snapshots)
        if number < 2:
            return None
        rows = _side_by_side(self._snapshots[number // 2 - 1], self._snapshots[-1])
        if np.array_equal(rows[0], rows[1]):
            return 1.0
        if (rows == rows[:, :1]).all(axis=1).any():
            return 0.0
        return float(np.asarray(np.corrcoef(rows))[0, 1])

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


def _side_by_side(one: Supports, other: Supports) -> Float64:
    """f64[2, n]: supports of the splits that either has."""
    keys = np.union1d(one[0], other[0])
    rows = np.zeros((2, keys.size))
    for row, (split_keys, supports) in zip(rows, (one, other), strict=True):
        row[np.searchsorted(keys, split_keys)] = supports
    return rows
