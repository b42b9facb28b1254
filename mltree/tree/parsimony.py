"""The parsimony score, and trees by randomised stepwise addition.

Who does the work is an engine: NumPy here, or a device (:mod:`mltree.device.parsimony`). All
numbers are whole, so that every engine finds the same trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64, Int32
from mltree.tree.fitch import PackedSites, pack_sites
from mltree.tree.forest import Forest
from mltree.tree.reference_parsimony import ReferenceParsimony
from mltree.tree.topology import DEFAULT_LENGTH, Tree

__all__ = [
    "REFERENCE",
    "Grove",
    "ParsimonyEngine",
    "groves",
    "packed",
    "parsimony_score",
    "stepwise_addition",
    "stepwise_additions",
    "trees_at_once",
]

SETS_A_TIP = 5
"""Fitch sets of half-edges and edges that a growing tree keeps for every tip."""


class Grove(Protocol):
    """Trees that stand side by side, with the Fitch sets of all their half-edges."""

    def scores(self) -> Float64:
        """f64[trees]: changes on every tree, with those that any tree needs."""

    def renew(self, trees: Int32, facing: Int32) -> Float64:
        """Follow the forest, in which some trees have changed.

        facing   all half-edges of those trees that face tip 0, nearest first
        Returns: f64[trees]: as :meth:`scores`; of other trees they mean nothing.
        """

    def best_targets(self, prunes: Int32, cuts: Float64) -> tuple[Int32, Int32, Float64]:
        """Of the prunes that gain, the branch each is best put on, and the changes that saves.

        The most gain, then the nearest, then the first half-edge. ``cuts`` f64[prunes]: a walk ends
        where the subtree would cost more than here by more than this.
        """


class ParsimonyEngine(Protocol):
    """What makes trees by parsimony."""

    grove_bytes: int
    """Of the sets of trees that are best worked on side by side."""

    def grow(self, sites: PackedSites, orders: Int32, draws: NDArray[np.uint32]) -> list[Tree]:
        """Trees by stepwise addition, all lengths 0.

        orders  int32[trees, T]: the tips as they come
        draws   uint32[trees, T]: of n branches where a tip costs least, number draw * n / 2^32
        """

    def grove(self, forest: Forest, sites: PackedSites) -> Grove:
        """Whole trees, which the caller changes in place."""


REFERENCE: ParsimonyEngine = ReferenceParsimony()


def parsimony_score(tree: Tree, patterns: Patterns | PackedSites) -> float:
    """The least number of state changes on the tree, site weights included (Fitch 1971)."""
    return float(REFERENCE.grove(Forest([tree]), packed(patterns)).scores()[0])


def stepwise_addition(patterns: Patterns | PackedSites, rng: np.random.Generator) -> Tree:
    """Tips in random order, each onto an edge where it costs least; ties are broken at random.

    patterns  or ``pack_sites`` of them, to pack once for several trees
    Returns: a tree with all branches of :data:`DEFAULT_LENGTH`; the same for the same state of rng.
    """
    (tree,) = stepwise_additions(patterns, [rng])
    return tree


def stepwise_additions(
    patterns: Patterns | PackedSites,
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine = REFERENCE,
) -> list[Tree]:
    """A tree by stepwise addition for every rng, and for every row of weights where sites have any.

    The same rng several times gives several trees, those that it would give one by one.
    """
    sites = packed(patterns)
    orders, draws = [], []
    for rng in rngs:
        orders.append(rng.permutation(sites.n_tips))
        draws.append(rng.integers(1 << 32, size=sites.n_tips, dtype=np.uint32))
    all_orders, all_draws = np.array(orders, np.int32), np.array(draws)
    trees: list[Tree] = []
    for some, own in groves(sites, len(rngs), engine):
        trees += engine.grow(own, all_orders[some], all_draws[some])
    for tree in trees:
        tree.lengths[:] = DEFAULT_LENGTH
    return trees


def groves(
    sites: PackedSites, count: int, engine: ParsimonyEngine
) -> Iterator[tuple[slice, PackedSites]]:
    """Some of ``count`` trees at a time, with their sites: as many as are best side by side."""
    size = trees_at_once(sites.n_tips, len(sites.tips) * sites.tips.itemsize, engine)
    for first in range(0, count, size):
        some = slice(first, first + size)
        yield some, sites.rows(some) if sites.tips.ndim > 2 else sites


def trees_at_once(n_tips: int, set_bytes: int, engine: ParsimonyEngine) -> int:
    """Trees that are best worked on side by side, by the bytes of a set."""
    return max(1, engine.grove_bytes // (SETS_A_TIP * n_tips * set_bytes))


def packed(patterns: Patterns | PackedSites) -> PackedSites:
    """The packed sites of either."""
    return patterns if isinstance(patterns, PackedSites) else pack_sites(patterns)
