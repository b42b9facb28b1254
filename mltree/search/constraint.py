"""Topological constraints: splits that every tree of the search must show.

A constraint split divides some of the taxa in two sides; the others are free.  A tree satisfies
it if an edge has one side's taxa behind it and the other's before it.  Moving a subtree S keeps a
satisfied split satisfied unless S holds taxa of one side only and lands inside the span of the
other (the span of a set is the union of the paths between its taxa):

    forbidden[S, e] = some split has S within side 1 (or free) and e in the span of side 2, or
                      the other way round

which for all prunes and edges is one product of 0/1 matrices.  Letters: T tips, E edges, C splits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mltree.tree.splits import splits
from mltree.tree.topology import Tree, siblings

__all__ = ["Constraint", "tips_behind_edges"]

Bool = NDArray[np.bool_]
Int = NDArray[np.int32]


def tips_behind_edges(tree: Tree) -> Bool:
    """bool[E, T]: the tips on the side of each edge that does not hold tip 0."""
    words = splits(tree)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    return bits[:, : tree.n_tips].astype(np.bool_)


@dataclass(frozen=True, eq=False)
class Constraint:
    """C splits; ``one`` and ``other`` are bool[C, T], disjoint, both sides of two taxa or more."""

    one: Bool
    other: Bool

    @property
    def n_splits(self) -> int:
        """C."""
        return len(self.one)

    def satisfied(self, tree: Tree) -> bool:
        """Whether the tree shows every split."""
        return bool(self.shown_by(tree).any(axis=1).all())

    def shown_by(self, tree: Tree) -> Bool:
        """bool[C, E]: whether the edge has one side's taxa behind it and the other's before it."""
        behind = tips_behind_edges(tree)
        one, other = self._counts(behind)
        ones, others = self._sizes()
        shown: Bool = ((one == ones) & (other == 0)) | ((one == 0) & (other == others))
        return shown

    def forbidden(self, tree: Tree, prunes: Int) -> Bool:
        """bool[prunes, E]: regrafting what the prune faces onto the edge breaks a split.

        The tree must satisfy the constraint.
        """
        behind = tips_behind_edges(tree)
        one, other = self._counts(behind)
        ones, others = self._sizes()
        span_one = ((one > 0) & (one < ones)).astype(np.float32)
        span_other = ((other > 0) & (other < others)).astype(np.float32)
        flipped = _holds_first_tip(tree, prunes)
        moved_one = np.where(flipped, ones - one[:, tree.edge[prunes]], one[:, tree.edge[prunes]])
        moved_other = np.where(
            flipped, others - other[:, tree.edge[prunes]], other[:, tree.edge[prunes]]
        )
        only_one = ((moved_one > 0) & (moved_other == 0)).astype(np.float32)
        only_other = ((moved_other > 0) & (moved_one == 0)).astype(np.float32)
        broken = only_one.T @ span_other + only_other.T @ span_one
        forbidden: Bool = broken > 0
        return forbidden

    def _counts(self, behind: Bool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """float32[C, E]: taxa of each side behind each edge."""
        columns = behind.T.astype(np.float32)
        return self.one.astype(np.float32) @ columns, self.other.astype(np.float32) @ columns

    def _sizes(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """float32[C, 1]: taxa of each side."""
        ones = self.one.sum(axis=1, keepdims=True, dtype=np.float32)
        return ones, self.other.sum(axis=1, keepdims=True, dtype=np.float32)


def _holds_first_tip(tree: Tree, prunes: Int) -> Bool:
    """bool[prunes]: whether the subtree that the prune faces holds tip 0.

    Walks from tip 0 outwards: every half-edge entered on the way looks back at it.
    """
    looks_back = np.zeros(tree.twin.size, dtype=np.bool_)
    wave = tree.twin[:1]
    while wave.size:
        looks_back[wave] = True
        inner = wave[wave >= 3 * tree.n_tips]
        wave = tree.twin[np.concatenate(siblings(inner))]
    return looks_back[prunes]
