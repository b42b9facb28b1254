"""Identical sequences: searched once, put back beside each other at the end.

Taxa with equal sequences have the same tip vector, and tip vectors are 0 or 1: their product over
branches of length zero is that vector again.  So the tree without the copies has the lnL of the
tree with them on zero-length branches, exactly, and the search need not see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mltree.data.alignments import MIN_TAXA
from mltree.data.patterns import Patterns, identical_taxa
from mltree.fit.settings import BranchSettings
from mltree.system.arrays import Int32
from mltree.system.values import Value
from mltree.tree.topology import Tree, tree_from_edges


class Collapsed(Value, eq=False):
    """An alignment without its copies, and the way back."""

    groups: tuple[Patterns, ...]
    """The patterns of every data type, with one taxon of every group of identical ones, in the old
    order. Columns stay distinct, since a copy never told two columns apart."""
    kept: Int32
    """int32[T']: the old tip of every new one, rising."""
    copies: Int32
    """int32[T - T']: old tips that were left out."""
    models: Int32
    """int32[T - T']: the old tip, in ``kept`` or an earlier copy, beside which each goes back."""
    alike: tuple[tuple[int, ...], ...] = ()
    """Sets of old tips whose sequences are equal, of which several are kept where too few others
    are."""

    def restore(self, tree: Tree) -> Tree:
        """Put the copies back in a tree, each beside its model on branches of length zero."""
        if self.copies.size == 0:
            return tree
        n_tips = self.kept.size + self.copies.size
        nodes = np.empty(tree.n_nodes, dtype=np.int32)
        nodes[: tree.n_tips] = self.kept
        nodes[tree.n_tips :] = n_tips + np.arange(tree.n_tips - 2)
        ends = nodes[tree.edge_halves // 3].tolist()
        pendant = {end: n for n, pair in enumerate(ends) for end in pair if end < n_tips}
        fresh = range(n_tips + tree.n_tips - 2, 2 * n_tips - 2)
        for node, copy, model in zip(
            fresh, self.copies.tolist(), self.models.tolist(), strict=True
        ):
            edge = pendant[model]
            ends[edge] = [node if end == model else end for end in ends[edge]]
            pendant[model], pendant[copy] = len(ends), len(ends) + 1
            ends += [[model, node], [copy, node]]
        none = np.zeros((*tree.lengths.shape[:-1], len(ends) - tree.n_edges))
        return tree_from_edges(ends, np.concatenate([tree.lengths, none], axis=-1), n_tips)

    def shuffled(self, rng: np.random.Generator) -> Collapsed:
        """Return a variant that puts copies back in a random order: no tree of them is preferred.

        Nothing tells the members of a group apart, so that a bootstrap replicate which joined them
        as the best tree does would support branches that have no support.
        """
        kept, copies, models = self.kept.copy(), self.copies.copy(), self.models.copy()
        for group in self.alike:
            stay = np.flatnonzero(np.isin(self.kept, group))
            copied = np.flatnonzero(np.isin(self.copies, group))
            if copied.size:
                members = rng.permutation(np.append(self.kept[stay], self.copies[copied]))
                kept[stay], copies[copied] = members[: stay.size], members[stay.size :]
                models[copied] = members[rng.integers(np.arange(copied.size) + stay.size)]
        return replace(self, kept=kept, copies=copies, models=models)

    def reduce_tree(self, tree: Tree) -> Tree:
        """Remove the copies from a tree over all taxa, polytomies resolved, as a start."""
        tree = tree.resolved(BranchSettings.minimum)
        ends, lengths = (tree.edge_halves // 3).tolist(), tree.lengths.tolist()
        return _without(ends, lengths, self.copies.tolist(), self.kept, tree.n_tips)


def collapse(groups: Sequence[Patterns]) -> Collapsed:
    """Leave out all but the first of every group of identical taxa, but never too many."""
    spare = groups[0].n_tips - MIN_TAXA
    alike = identical_taxa(groups)
    pairs = sorted((copy, group[0]) for group in alike for copy in group[1:])[: max(spare, 0)]
    copies = np.array([copy for copy, _ in pairs], dtype=np.int32)
    kept = np.delete(np.arange(groups[0].n_tips, dtype=np.int32), copies)
    reduced = groups
    if copies.size:
        reduced = [
            replace(
                patterns,
                taxa=tuple(patterns.taxa[tip] for tip in kept),
                codes=np.ascontiguousarray(patterns.codes[kept]),
            )
            for patterns in groups
        ]
    models = np.array([model for _, model in pairs], dtype=np.int32)
    return Collapsed(tuple(reduced), kept, copies, models, alike)


def _without(
    ends: list[list[int]], lengths: list[float], copies: list[int], kept: Int32, n_tips: int
) -> Tree:
    """Prune tips one by one; the two edges left at each former attachment become one."""
    around: dict[int, dict[int, float]] = {}
    for (a, b), length in zip(ends, lengths, strict=True):
        around.setdefault(a, {})[b] = length
        around.setdefault(b, {})[a] = length
    for tip in copies:
        (node,) = around.pop(tip)
        del around[node][tip]
        (left, one), (right, other) = around.pop(node).items()
        del around[left][node], around[right][node]
        around[left][right] = around[right][left] = one + other
    inner = [node for node in around if node >= n_tips]
    number = {int(tip): n for n, tip in enumerate(kept)}
    number |= {node: kept.size + n for n, node in enumerate(inner)}
    rows = [(a, b, length) for a, to in around.items() for b, length in to.items() if a < b]
    pairs = np.array([(number[a], number[b]) for a, b, _ in rows])
    return tree_from_edges(pairs, np.array([length for *_, length in rows]), kept.size)
