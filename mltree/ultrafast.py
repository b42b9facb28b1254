"""The ultrafast bootstrap of a search that has ended: which trees its replicates are offered.

Those are the best trees that the search met, the trees that replicates hold, those of most first,
and of each of them both neighbours across every inner branch, with five branches optimised: what
IQ-TREE offers on its way from one perturbed tree to the next. A tree that is held leads to others
that would be, so that few have to be looked around. It goes on until more of them leave the
supports as they are (:data:`.ultrafast.CORRELATION`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mltree.events import Emit, Notice, ignore
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.interchanges import interchanged, neighbours
from mltree.likelihood.site_rows import optimised_quartets, rows_of_quartets
from mltree.run import TreeSearch
from mltree.search.driver import SearchResult
from mltree.supports.resampling import Resampling
from mltree.supports.ultrafast import CORRELATION, Ultrafast
from mltree.tree.split_sums import SplitSums
from mltree.tree.topology import Float64Array, Tree
from mltree.tree_events import TreesOffered

__all__ = ["FEWEST", "NAME", "Outcome", "ultrafast"]

FEWEST = 1000
"""Replicates: with fewer supports are too coarse for how alike they are; IQ-TREE's bound."""

NAME = "ultrafast"
"""Of what is drawn."""

CENTRES = 8
"""Trees that are looked around before it is asked again which."""

LEAST_CENTRES, MOST_CENTRES = 32, 1000
"""Trees that are looked around at least and at most, where there are so many."""

SMOOTHING = 0.1
"""lnL: the branch lengths of a tree are optimised so far before it is looked around."""

FIRST_PASSES, PASSES = 2, 3
"""Newton steps on the five branches of a neighbour: at first, and more where it may be offered."""

WITHIN_REACH = 5.0
"""lnL below the cutoff up to which it may."""


@dataclass(frozen=True)
class Outcome:
    """The trees of an ultrafast bootstrap, without copies of sequences."""

    replicates: Ultrafast
    correlation: float
    looked_around: int
    """Trees whose neighbours were offered."""

    @property
    def converged(self) -> bool:
        """Whether more trees would leave the supports as they are."""
        return self.correlation >= CORRELATION

    @property
    def trees(self) -> list[Tree]:
        """One of each replicate."""
        own = self.replicates
        return [own.trees[key] for key in own.held.tolist()]


def weight_rows(search: TreeSearch, replicates: int, seed: int) -> Float64Array:
    """f64[1 + B, L]: the data's own weights and those of the replicates, part by part."""
    groups = search.distinct.groups
    rows = Resampling.of(groups, seed, NAME).rows(range(1, replicates + 1))
    return np.concatenate([np.concatenate([own.weights for own in groups])[None], rows])


def ultrafast(
    search: TreeSearch, found: SearchResult, replicates: int, seed: int, emit: Emit = ignore
) -> Outcome:
    """Offer trees until the supports stay as they are."""
    likelihood = search.computation.likelihood
    rows = weight_rows(search, replicates, seed)
    likelihood.load_weights(rows)
    try:
        offers = _Offers(likelihood, Case(found.model.arrays()), rows[0], Ultrafast(replicates))
        outcome = _offered(offers, found, emit)
    finally:
        likelihood.load_weights(rows[:1])
    if not outcome.converged:
        emit(Notice(f"{outcome.looked_around:,} trees were looked around, and supports still "
                    f"change: a correlation of {outcome.correlation:.3f}"))  # fmt: skip
    return outcome


def _offered(offers: _Offers, found: SearchResult, emit: Emit) -> Outcome:
    """Go from tree to tree."""
    own = offers.replicates
    offers.around([found.tree])
    offers.around([entry.tree for entry in found.pool.trees])
    while True:
        correlation = own.correlation() or 0.0
        done = len(offers.around_keys)
        emit(TreesOffered(done, own.offered, len(own.trees), correlation))
        rest = [key for key, _ in own.holders() if key not in offers.around_keys]
        if not rest:
            return Outcome(own, 1.0, done)
        if (correlation >= CORRELATION and done >= LEAST_CENTRES) or done >= MOST_CENTRES:
            return Outcome(own, correlation, done)
        offers.around([own.trees[key] for key in rest[:CENTRES]])


class _Offers:
    """Offers trees, and remembers which it was around of."""

    def __init__(
        self, likelihood: Likelihood, case: Case, weights: Float64Array, replicates: Ultrafast
    ) -> None:
        self.replicates = replicates
        self.around_keys: set[int] = set()
        self._likelihood, self._case, self._weights = likelihood, case, weights

    def around(self, trees: list[Tree]) -> None:
        """Offer trees, branch lengths optimised, and their neighbours."""
        fresh: dict[int, tuple[Tree, SplitSums]] = {}
        for tree in trees:
            sums = SplitSums(tree)
            if sums.topology not in self.around_keys:
                fresh.setdefault(sums.topology, (tree.copy(), sums))
        if not fresh:
            return
        own = [tree for tree, _ in fresh.values()]
        lnl = self._likelihood.smooth(own, [self._case] * len(own), SMOOTHING)
        for (tree, sums), of_tree in zip(fresh.values(), lnl.tolist(), strict=True):
            self._around(tree, sums, of_tree)
        self.around_keys |= fresh.keys()

    def _around(self, tree: Tree, sums: SplitSums, of_tree: float) -> None:
        best = neighbours(tree, sums.edges)
        best, lnl = optimised_quartets(self._likelihood, tree, self._case, best, FIRST_PASSES)
        near = np.flatnonzero(lnl >= self.replicates.cutoff - WITHIN_REACH)
        if near.size:
            fine = optimised_quartets(self._likelihood, tree, self._case, best.part(near), PASSES)
            best.lengths[..., near, :], lnl[near] = fine[0].lengths, fine[1]
        keys = sums.interchanges()
        wanted = self.replicates.wanted(keys, lnl)
        some = best.part(wanted)
        rows = rows_of_quartets(self._likelihood, tree, self._case, some, self._weights)
        resampled = rows.resampled_by(1, self.replicates.replicates)
        keys = np.append(keys[wanted], np.uint64(sums.topology))

        def make(n: int) -> Tree:
            return tree if n == wanted.size else interchanged(tree, best, int(wanted[n]))

        self.replicates.offer(keys, np.append(lnl[wanted], of_tree), resampled, make)
