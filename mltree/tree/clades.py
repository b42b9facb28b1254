"""Trees as they are written: every subtree is an interval of the tips in the order of the text.

For whatever looks at many trees and needs none of them binary: rooted or unrooted, with polytomies
and nodes of a single child. Whole files are read at once, without a loop over nodes.

Letters: n trees, T taxa, C clades, B = ceil(T/64) words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64, Int32
from mltree.tree.newick_text import branch, quoted
from mltree.values import Value

__all__ = ["Clades", "nested", "write_clades"]


class Clades(Value):
    """The clades of n trees over the same T taxa, tree after tree, each after what it holds."""

    taxa: tuple[str, ...]
    order: Int32
    """int32 [n, T]: the taxa of a tree as they are written, from left to right."""
    tip_lengths: Float64
    """float64 [n, T]: of the branches above them, in that order; NaN where there is none."""
    tree: Int32
    """int32 [C], rising: every inner node is a clade, but those that hold all taxa."""
    first: Int32
    """int32 [C]: a clade's first tip, a column of ``order``."""
    last: Int32
    """int32 [C]: the column after its last tip."""
    lengths: Float64
    """float64 [C]: of the branch above it; NaN where there is none."""

    @property
    def n_trees(self) -> int:
        """How many, n."""
        return len(self.order)

    @property
    def n_tips(self) -> int:
        """T."""
        return len(self.taxa)

    @property
    def bounds(self) -> NDArray[np.intp]:
        """The clades of tree k, intp [n+1]: those from ``bounds[k]`` up to ``bounds[k + 1]``."""
        return np.searchsorted(self.tree, np.arange(self.n_trees + 1))

    @property
    def is_inner(self) -> NDArray[np.bool_]:
        """Whether two taxa or more are in a clade, and two or more outside of it, bool [C]."""
        size = self.last - self.first
        return (size >= 2) & (size <= self.n_tips - 2)

    def part(self, start: int, stop: int) -> Clades:
        """The trees from ``start`` up to ``stop``."""
        begin, end = self.bounds[[start, stop]]
        return Clades(
            self.taxa,
            self.order[start:stop],
            self.tip_lengths[start:stop],
            self.tree[begin:end] - np.int32(start),
            self.first[begin:end],
            self.last[begin:end],
            self.lengths[begin:end],
        )

    def only(self, chosen: NDArray[np.bool_]) -> Clades:
        """These of the clades; bool [C]."""
        return replace(
            self,
            tree=self.tree[chosen],
            first=self.first[chosen],
            last=self.last[chosen],
            lengths=self.lengths[chosen],
        )

    def with_tips(self) -> Clades:
        """The tips as clades of their own, behind the others of their tree."""
        n_trees, n_tips = self.order.shape
        if n_tips == 1:
            return self  # all taxa are no clade
        tree, first = np.divmod(np.arange(n_trees * n_tips, dtype=np.int32), np.int32(n_tips))
        by_tree = np.argsort(np.concatenate((self.tree, tree)), kind="stable")

        def both(clades: NDArray[Any], tips: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate((clades, tips))[by_tree]

        return replace(
            self,
            tree=both(self.tree, tree),
            first=both(self.first, first),
            last=both(self.last, first + np.int32(1)),
            lengths=both(self.lengths, self.tip_lengths.ravel()),
        )

    @classmethod
    def joined(cls, taxa: tuple[str, ...], pieces: Sequence[Clades]) -> Clades:
        """The trees of several, one after another, whose taxa have the same numbers."""
        before = np.cumsum([0, *(piece.n_trees for piece in pieces[:-1])], dtype=np.int32)
        trees = [piece.tree + skip for piece, skip in zip(pieces, before, strict=True)]
        return cls(
            taxa,
            np.concatenate([piece.order for piece in pieces]),
            np.concatenate([piece.tip_lengths for piece in pieces]),
            np.concatenate(trees),
            np.concatenate([piece.first for piece in pieces]),
            np.concatenate([piece.last for piece in pieces]),
            np.concatenate([piece.lengths for piece in pieces]),
        )


def nested(taxa: tuple[str, ...], members: NDArray[np.bool_]) -> tuple[Clades, NDArray[np.intp]]:
    """The one tree that has just these clades, without lengths, and which row each of them was.

    members  bool [C, T], pairwise one inside the other or apart
    """
    by_size = np.argsort(-members.sum(axis=1), kind="stable")
    members = members[by_size]
    # Sorted by whether they are in the largest clade, then in the next, ...: the taxa of a clade
    # agree about all larger ones, which hold it or lie apart, and nobody else is in it.
    rows = members.T.astype(np.uint8)
    order = np.array(sorted(range(len(taxa)), key=lambda taxon: rows[taxon].tobytes()))
    written = members[:, order]
    first = written.argmax(axis=1)
    last = first + written.sum(axis=1)
    after_what_it_holds = np.lexsort((-first, last))
    tree = Clades(
        taxa,
        order[None, :].astype(np.int32),
        np.full((1, len(taxa)), np.nan),
        np.zeros(len(members), dtype=np.int32),
        first[after_what_it_holds].astype(np.int32),
        last[after_what_it_holds].astype(np.int32),
        np.full(len(members), np.nan),
    )
    return tree, by_size[after_what_it_holds]


def write_clades(tree: Clades, labels: Iterable[str]) -> str:
    """The first of the trees as one line of Newick, with a label for each of its clades.

    Everything else is as it was read: the order, the root, polytomies, the values of the lengths.
    """
    n_clades = int(tree.bounds[1])
    first, last = tree.first[:n_clades], tree.last[:n_clades]
    opened = np.bincount(first, minlength=tree.n_tips).tolist()
    closed: list[list[str]] = [[] for _ in range(tree.n_tips + 1)]
    for end, label, length in zip(last, labels, tree.lengths[:n_clades], strict=True):
        closed[end].append(f"){label}{branch(length)}")
    tips = []
    for column, (taxon, length) in enumerate(
        zip(tree.order[0].tolist(), tree.tip_lengths[0].tolist(), strict=True)
    ):
        name = quoted(tree.taxa[taxon])
        tips.append("(" * opened[column] + name + branch(length) + "".join(closed[column + 1]))
    return f"({','.join(tips)});"
