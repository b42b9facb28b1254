"""The Fitch sets behind every half-edge of trees that stand side by side, kept up as those change.

The set behind half-edge h is that of the subtree which its neighbour sees across h; it is made from
those behind the twins of h's siblings. A change of a tree travels outwards from where it was made
only as far as it makes a difference, which for sets of states is not far.

The trees have the same taxa: half-edge h of tree k is ``k * 3N + h``. Letters: T tips, N nodes,
F words of all planes (see fitch).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64, Int32
from mltree.tree.fitch import PackedSites, Sets
from mltree.tree.forest import Forest, ring

__all__ = ["DirectionalSets"]


class DirectionalSets:
    """The sets of some trees; ``twin`` is theirs, and whoever changes it calls :meth:`refresh`."""

    def __init__(self, twin: Int32, n_trees: int, sites: PackedSites) -> None:
        """``twin``: int32[n * 3N], NONE where a tree has no such half-edge yet."""
        self.twin = twin
        self.sites = sites
        self.n_trees = n_trees
        self.n_halves = twin.size // n_trees
        """3N, of one tree."""
        self.n_tips = sites.n_tips
        self.siblings = ring(twin.size)
        halves = np.arange(self.n_halves, dtype=np.int32)
        inner = halves >= 3 * self.n_tips
        self.is_inner: NDArray[np.bool_] = np.tile(inner, n_trees)
        """bool[n * 3N]: half-edges at inner nodes."""
        # Of a tree the sets of its tips, then those of its inner half-edges.
        n_rows = 4 * self.n_tips - 6
        rows = np.where(inner, halves - 2 * self.n_tips, halves // 3)
        offset = n_rows * np.arange(n_trees, dtype=np.int32)[:, None]
        self.row_of: Int32 = (rows + offset).astype(np.int32).ravel()
        n_words = len(sites.tips)
        self.sets: Sets = np.zeros((n_words, n_trees * n_rows), dtype=np.uint64)
        tips = sites.tips.reshape(n_words, -1, self.n_tips)
        self.sets.reshape(n_words, n_trees, n_rows)[:, :, : self.n_tips] = tips
        self._place = np.empty(twin.size, dtype=np.int32)

    @classmethod
    def of_trees(cls, forest: Forest, sites: PackedSites) -> DirectionalSets:
        """Those of whole trees."""
        self = cls(forest.twin, forest.n_trees, sites)
        level = forest.levels()
        order = forest.inner[np.argsort(level[forest.inner], kind="stable")]
        for wave in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
            self.sets[:, self.row_of[wave]] = self._joined(wave)
        return self

    def behind(self, halves: Int32) -> Sets:
        """[F, n]: the sets behind half-edges."""
        return self.sets.take(self.row_of[halves], axis=1)

    def refresh(self, halves: Int32) -> Int32:
        """Recompute sets and whatever is made from them, outwards until nothing changes.

        Returns: the half-edges whose sets have changed, some more than once.
        """
        changed = [halves[:0]]
        while halves.size:
            sets, here = self._joined(halves), self.row_of[halves]
            differs = np.flatnonzero((sets != self.sets.take(here, axis=1)).any(axis=0))
            changed.append(halves[differs])
            self.sets[:, here[differs]] = sets[:, differs]
            halves = self.made_from(self.twin[changed[-1]])
        return np.concatenate(changed)

    def made_from(self, halves: Int32) -> Int32:
        """The half-edges, each once, whose sets are made from those behind the twins of these."""
        halves = halves[self.is_inner[halves]]
        due: Int32 = np.concatenate([side[halves] for side in self.siblings])
        place = np.arange(due.size, dtype=np.int32)
        self._place[due] = place  # of those that are equal the last stays
        is_last: NDArray[np.bool_] = self._place[due] == place
        return due[is_last]

    def scores(self, facing: Int32, trees: Int32) -> Float64:
        """f64[n]: changes on some trees, with those that any tree needs; others' mean nothing.

        facing: all their half-edges that face tip 0 (:meth:`mltree.tree.forest.Forest.facing`)
        """
        one, other = (self.behind(self.twin[side[facing]]) for side in self.siblings)
        changes = self.sites.misses(one, other)
        scores: Float64 = np.zeros(self.n_trees) + self.sites.constant
        scores += np.bincount(facing // self.n_halves, changes, minlength=self.n_trees)
        roots = trees * np.int32(self.n_halves)
        scores[trees] += self.sites.misses(self.behind(roots), self.behind(self.twin[roots]))
        return scores

    def _joined(self, halves: Int32) -> Sets:
        one, other = (self.behind(self.twin[side[halves]]) for side in self.siblings)
        return self.sites.join(one, other)
