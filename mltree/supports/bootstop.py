"""autoMRE: whether more replicates would change the supports.

Pattengale et al. (2010), "How many bootstrap replicates are necessary?"; thresholds of RAxML and
RAxML-NG. The replicates are halved at random, again and again; the extended majority consensus of
each half is made, and the supports of their splits are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mltree.supports.consensus import canonical, conflicts, greedy
from mltree.supports.table import Bool, Index, SplitTable

__all__ = ["CUTOFF", "HALVINGS", "STEP", "Verdict", "bootstop"]

STEP = 50
"""Replicates after which it is asked again: RAxML's and RAxML-NG's."""

HALVINGS = 1000
"""Random halvings each time: theirs."""

CUTOFF = 0.03
"""Share of the largest weighted distance up to which two halves agree: theirs."""

PASSED = 0.99
"""Share of halvings that must agree: theirs."""


@dataclass(frozen=True)
class Verdict:
    """What the halves of so many replicates say."""

    replicates: int
    distance: float
    """Mean weighted Robinson-Foulds distance (wRF) of the halves' consensus trees: the sum over
    their splits of the difference in replicates that have them."""
    share: float
    """Mean of that distance as a share of the largest possible, 0 to 1."""
    passed: int
    """Halvings whose distance is within the cutoff."""
    halvings: int
    cutoff: float

    @property
    def is_converged(self) -> bool:
        """Whether so many replicates are enough."""
        return self.passed >= PASSED * self.halvings and self.share <= self.cutoff


def bootstop(
    table: SplitTable, seed: int, cutoff: float = CUTOFF, halvings: int = HALVINGS
) -> Verdict:
    """Whether the trees of a table, an even number, are enough replicates.

    The same seed gives the same halves of so many trees, whatever was asked before.
    """
    halves = _Halves(table)
    n_trees = table.n_trees
    rng = np.random.Generator(np.random.PCG64((seed, n_trees)))
    distance, share = np.empty(halvings), np.empty(halvings)
    for k in range(halvings):
        one, other = halves.supports(rng.permutation(n_trees)[: n_trees // 2])
        largest = n_trees / 2 * (np.count_nonzero(one) + np.count_nonzero(other))
        distance[k] = np.abs(one - other).sum()
        share[k] = distance[k] / max(largest, 1)
    passed = int((share <= cutoff).sum())
    return Verdict(n_trees, float(distance.mean()), float(share.mean()), passed, halvings, cutoff)


class _Halves:
    """The extended majority consensus of any half of the trees.

    A split of more than 3/4 of all trees is in more than half of any half, so that it is in every
    consensus, and what it excludes in none: only the others are looked at for each half.
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

    def supports(self, half: Index) -> tuple[Index, Index]:
        """intp [S] each: the trees that have a split, of the half and of the others; 0 where the
        consensus lacks it.
        """
        chosen = np.zeros(self._n_trees, dtype=np.bool_)
        chosen[half] = True
        counts = np.bincount(self._split[chosen[self._tree]], minlength=self._counts.size)
        return self._consensus(counts), self._consensus(self._counts - counts)

    def _consensus(self, counts: Index) -> Index:
        supports = np.where(self._certain, counts, 0)
        open_counts = counts[self._open]
        ranked = np.argsort(-open_counts, kind="stable")
        ranked = ranked[: np.count_nonzero(open_counts)]
        taken = self._open[greedy(ranked, self._excludes)]
        supports[taken] = counts[taken]
        return supports

    def _excludes(self, split: np.intp, others: Index) -> Bool:
        row = self._excluded.get(int(split))
        if row is None:
            row = conflicts(self._bits, split, np.arange(len(self._bits)))
            self._excluded[int(split)] = row
        return row[others]
