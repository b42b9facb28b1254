"""Parsimony SPR in batches: every subtree is tried at every place, many moves are made at once.

What a move gains is exact one by one, not together: the moves go in under the loose rule
(docs/search.md, "Loose acceptance"), and where the sum falls short the better half is tried again.

Trees stand side by side, as in a Forest, and do their rounds together; none depends on another.
Letters: T tips, L patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import numpy as np

from mltree.data.patterns import Patterns
from mltree.system.arrays import Bool, Float64, Int32
from mltree.tree.fitch import InformativeSites, PackedSites, pack_sites
from mltree.tree.forest import Forest
from mltree.tree.moves import apply_sprs, compatible, rewire
from mltree.tree.parsimony import (
    REFERENCE,
    ParsimonyEngine,
    groves,
    packed,
    stepwise_additions,
    trees_at_once,
)
from mltree.tree.topology import Tree

NEAR_CUT = 0.5
"""A walk ends where the subtree would cost more than here by this many mean changes a branch, as
long as that finds moves: 97 of 100, in a third of the time (218, 714 taxa)."""

LOSS_CUT = 2.0
"""The cut after that. Measured against no cut (12..200 taxa) and a cut of 4 (1,000..5,000 simulated
taxa), mean score: equal up to 2,000 taxa and 0.1 % above it at 5,000, in a tenth to half of the
time; a cut of 1 is 0.2..0.5 % above it from 2,000 taxa on. A radius of 20 edges, as in RAxML, in
place of the cut is 0.4 % above it at 2,000 taxa."""

CUTS = (NEAR_CUT, LOSS_CUT)

MOST_CHARACTERS = 1 << 26
"""Largest product of starts, taxa and patterns of the longest alignment, in alignments whose starts
are made side by side; bytes before packing."""


def parsimony_trees(
    patterns: Patterns | PackedSites,
    count: int,
    rng: np.random.Generator,
    engine: ParsimonyEngine = REFERENCE,
) -> list[Tree]:
    """``count`` starting trees: randomised stepwise addition, then SPR until no move helps.

    Where SPR leads to a tree that another start has reached, as happens on small data, the tree by
    addition is the start: two equal starts gain nothing.

    patterns  or ``pack_sites`` of them, to pack once for several calls
    Returns: trees with all branches of :data:`DEFAULT_LENGTH`; the same for the same state of rng.
    """
    sites = packed(patterns)
    (starts,) = _starts(sites, [count], [rng], engine)
    return starts


def parsimony_trees_of_each(
    alignments: Sequence[Sequence[Patterns]],
    counts: Sequence[int],
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine = REFERENCE,
) -> list[list[Tree]]:
    """:func:`parsimony_trees` of each alignment, alignments of equally many taxa side by side.

    alignments  each the patterns of one data type, or of several, over its taxa
    """
    starts: list[list[Tree]] = [[] for _ in alignments]
    for alike in _side_by_side(alignments, counts):
        own_counts, own_rngs = [counts[n] for n in alike], [rngs[n] for n in alike]
        sites = _sites_of_rows([alignments[n] for n in alike], own_counts)
        made = _starts(sites, own_counts, own_rngs, engine)
        for n, trees in zip(alike, made, strict=True):
            starts[n] = trees
    return starts


def _side_by_side(
    alignments: Sequence[Sequence[Patterns]], counts: Sequence[int]
) -> Iterator[list[int]]:
    """Numbers of alignments with equally many taxa, within :data:`MOST_CHARACTERS`."""
    n_tips = [groups[0].n_tips for groups in alignments]
    some: list[int] = []
    n_rows = longest = 0
    for n in sorted(range(len(alignments)), key=n_tips.__getitem__):
        length = sum(patterns.n_patterns for patterns in alignments[n])
        is_much = (n_rows + counts[n]) * n_tips[n] * max(longest, length) > MOST_CHARACTERS
        if some and (is_much or n_tips[n] != n_tips[some[0]]):
            yield some
            some, n_rows, longest = [], 0, 0
        some.append(n)
        n_rows, longest = n_rows + counts[n], max(longest, length)
    if some:
        yield some


def _sites_of_rows(alignments: Sequence[Sequence[Patterns]], counts: Sequence[int]) -> PackedSites:
    """The sites of alignments side by side as rows of weights, ``counts`` rows of each.

    A row counts the sites of its own alignment alone.
    """
    if len(alignments) == 1:
        return pack_sites(*alignments[0])
    sites = InformativeSites.of(*chain.from_iterable(alignments))
    widths = [sum(patterns.n_patterns for patterns in groups) for groups in alignments]
    return sites.apart(np.repeat(np.arange(len(alignments)), counts), np.cumsum(widths))


def _starts(
    sites: PackedSites,
    counts: Sequence[int],
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine,
) -> list[list[Tree]]:
    """``counts`` starting trees by each rng; see :func:`parsimony_trees`."""
    rng_of_row = [rng for rng, count in zip(rngs, counts, strict=True) for _ in range(count)]
    added = stepwise_additions(sites, rng_of_row, engine)
    improved = [tree.copy() for tree in added]
    improve(improved, sites, engine=engine)
    ends = np.cumsum([0, *counts]).tolist()
    return [_unlike(added[one:end], improved[one:end]) for one, end in pairwise(ends)]


def _unlike(added: Sequence[Tree], improved: Sequence[Tree]) -> list[Tree]:
    """The improved trees; a tree that occurred before is replaced by the tree by addition."""
    if len(improved) == 1:
        return list(improved)
    seen: set[int] = set()
    starts = []
    for before, tree, key in zip(added, improved, Forest(improved).topology_keys(), strict=True):
        starts.append(before if key in seen else tree)
        seen.add(key)
    return starts


def reweighted_trees(
    sites: InformativeSites,
    weights: Float64,
    rngs: Sequence[np.random.Generator],
    engine: ParsimonyEngine = REFERENCE,
    improved: bool = True,
) -> list[Tree]:
    """A starting tree for every row of weights f64[n, L], by its rng; none depends on the others.

    :func:`parsimony_trees` with short walks: long walks improve the score by 0.03 %, for half of
    the time (218 taxa).

    improved  by SPR; otherwise as stepwise addition leaves them
    """
    size = trees_at_once(sites.n_tips, sites.set_bytes, engine)
    trees: list[Tree] = []
    for first in range(0, len(rngs), size):
        some = slice(first, first + size)
        rows = sites.reweighted(weights[some])
        added = stepwise_additions(rows, rngs[some], engine)
        if improved:
            improve(added, rows, (NEAR_CUT,), engine)
        trees += added
    return trees


def improve(
    trees: Sequence[Tree],
    patterns: Patterns | PackedSites,
    cuts: Sequence[float] = CUTS,
    engine: ParsimonyEngine = REFERENCE,
) -> Float64:
    """SPR rounds in place until no move within the last cut helps. Returns: f64[trees], the scores.

    Lengths stay with the edges' ids, because they mean nothing to parsimony. Where sites have rows
    of weights, every tree is improved under its row.
    """
    scores = [
        _improve(trees[some], sites, cuts, engine)
        for some, sites in groves(packed(patterns), len(trees), engine)
    ]
    return np.concatenate(scores)


def _improve(
    trees: Sequence[Tree], sites: PackedSites, cuts: Sequence[float], engine: ParsimonyEngine
) -> Float64:
    """:func:`improve` for trees that fit side by side."""
    rounds = _Rounds(trees, sites, cuts, engine)
    while rounds.step():
        pass
    for number, tree in enumerate(trees):
        improved = rounds.forest.tree(number)
        tree.twin[:], tree.edge[:] = improved.twin, improved.edge
    return rounds.scores


class _Rounds:
    """SPR rounds on trees side by side."""

    def __init__(
        self,
        trees: Sequence[Tree],
        sites: PackedSites,
        cuts: Sequence[float],
        engine: ParsimonyEngine,
    ) -> None:
        self.forest = Forest(trees)
        self.grove = engine.grove(self.forest, sites)
        self.scores = self.grove.scores()
        """f64[trees]: the present scores."""
        self.cuts = np.asarray(cuts)
        self.phase = np.zeros(len(trees), np.int8)
        """int8[trees]: number of each tree's cut; the number of cuts once the tree is done."""

    def step(self) -> bool:
        """Do a round on the trees that are not done; False without any."""
        is_on = self.phase < self.cuts.size
        if not is_on.any():
            return False
        prunes = self.forest.inner.reshape(is_on.size, -1)[is_on].ravel()
        before = self.scores.copy()
        self._make_moves(*self._best_moves(prunes))
        self.phase = np.where(self.scores < before, 0, self.phase + is_on).astype(np.int8)
        return True

    def _best_moves(self, prunes: Int32) -> tuple[Int32, Int32]:
        """The prunes that gain, and their best targets; tree by tree, best first."""
        number = self.forest.tree_of_half
        a_branch = self.scores / self.forest.n_edges
        cuts = self.cuts.take(self.phase, mode="clip") * a_branch
        prune, target, gain = self.grove.best_targets(prunes, cuts[number[prunes]])
        order = np.lexsort((-gain, number[prune]))
        return prune[order], target[order]

    def _make_moves(self, prune: Int32, target: Int32) -> None:
        """Apply the moves, best first, fewer and fewer until a tree's score falls."""
        forest = self.forest
        kept = np.flatnonzero(self._loosely(prune, target))
        while kept.size:
            prune, target = prune[kept], target[kept]
            number = forest.tree_of_half[prune]
            fell = self._try_moves(prune, target, number)
            place = np.arange(number.size) - np.searchsorted(number, number)
            half = np.bincount(number, minlength=forest.n_trees) // 2
            kept = np.flatnonzero(~fell[number] & (place < half[number]))

    def _loosely(self, prune: Int32, target: Int32) -> Bool:
        """bool[moves]: moves that the loose rule lets through, tree by tree."""
        forest = self.forest
        sides = (prune, *(side[prune] for side in forest.siblings), target)
        chosen = compatible(forest.edge[np.stack(sides, axis=1)])
        number = forest.tree_of_half[prune]
        links = rewire(forest.twin, forest.edge, prune[chosen], target[chosen])
        _, whole = forest.facing(_present(number[chosen]))
        links.restore(forest.twin, forest.edge)
        # Where they make a circle one by one, for some targets come to lie inside their subtrees.
        for tree in _present(number[chosen & ~whole[number]]).tolist():
            moves = np.flatnonzero(number == tree)
            halves = forest.in_tree(prune[moves]), forest.in_tree(target[moves])
            chosen[moves], _ = apply_sprs(forest.tree(tree), *halves)
        return chosen

    def _try_moves(self, prune: Int32, target: Int32, number: Int32) -> Bool:
        """Make moves of trees ``number``; take them back in trees that are no better.

        Returns: bool[trees], those whose scores fell.
        """
        forest = self.forest
        links = rewire(forest.twin, forest.edge, prune, target)
        trees = _present(number)
        facing, whole = forest.facing(trees)
        circles = ~whole[number]  # through which sets would be renewed for ever
        links.at(circles).restore(forest.twin, forest.edge)
        trees, facing = trees[whole[trees]], facing[whole[forest.tree_of_half[facing]]]
        scores = self.grove.renew(trees, facing)
        fell: Bool = whole & (scores < self.scores)
        self.scores[fell] = scores[fell]
        back = links.at(~circles & ~fell[number])
        if back.halves.size:
            back.restore(forest.twin, forest.edge)
            trees = trees[~fell[trees]]
            self.grove.renew(trees, forest.facing(trees)[0])
        return fell


def _present(numbers: Int32) -> Int32:
    """The numbers that occur, rising."""
    return np.flatnonzero(np.bincount(numbers)).astype(np.int32)
