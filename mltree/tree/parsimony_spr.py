"""Parsimony SPR in batches: every subtree is tried everywhere, many moves are made at once.

For a pruned subtree with set P, and a target edge with the sets N (near side, without the
subtree) and D (far side), the tree costs

    constant + sites where join(N, D) misses P

so a prune's gain is that count at the edge it came from less the count at the target. D is a
directional set of the tree as it is; N is carried along while walking away from the attachment
node, for all prunes of a chunk at once. Gains are exact one by one, not together: the moves go in
under the loose rule (docs/search.md, "Loose acceptance"), and where the sum falls short the better
half is tried again.

Trees stand side by side, as in a Forest, and do their rounds together; none depends on another.
Letters: T tips, N nodes, C candidates, F words of all planes (see fitch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns
from mltree.threads import threads
from mltree.tree.directional_sets import DirectionalSets
from mltree.tree.fitch import InformativeSites, PackedSites, Sets
from mltree.tree.forest import Forest
from mltree.tree.moves import apply_sprs, compatible, rewire
from mltree.tree.parsimony import groves, packed, stepwise_additions, trees_at_once
from mltree.tree.topology import DEFAULT_LENGTH, Float64Array, Int32Array, Tree

__all__ = ["improve", "parsimony_trees", "reweighted_trees"]

NEAR_CUT = 0.5
"""A walk ends where the subtree would cost more than here by this many mean changes a branch, as
long as that finds moves: 97 of 100, in a third of the time (218, 714 taxa)."""

LOSS_CUT = 2.0
"""The cut after that. Measured against no cut (12..200 taxa) and a cut of 4 (1,000..5,000 simulated
taxa), mean score: equal up to 2,000 taxa and 0.1 % above it at 5,000, in a tenth to half of the
time; a cut of 1 is 0.2..0.5 % above it from 2,000 taxa on. A radius of 20 edges, as in RAxML, in
place of the cut is 0.4 % above it at 2,000 taxa."""

CUTS = (NEAR_CUT, LOSS_CUT)

CHUNK_WORDS = 1 << 18
"""64-bit words of one wave's sets: 2 MB; with fewer NumPy calls count."""

WALKS = 8
"""Walks under way that one prune is expected to have; more only cost memory."""

Bool = NDArray[np.bool_]


def parsimony_trees(
    patterns: Patterns | PackedSites,
    count: int,
    rng: np.random.Generator,
    length: float = DEFAULT_LENGTH,
) -> list[Tree]:
    """``count`` usual starts: randomised stepwise addition, then SPR until no move helps.

    Where SPR leads to a tree that is there already, as it does on small data, the tree by addition
    is the start: the same place twice is no insurance.

    patterns  or ``pack_sites`` of them, to pack once for several calls
    Returns: trees with all branches of the given length; the same for the same state of rng.
    """
    sites = packed(patterns)
    added = stepwise_additions(sites, [rng] * count, length)
    improved = [tree.copy() for tree in added]
    improve(improved, sites)
    found: set[int] = set()
    starts = []
    for before, tree, key in zip(added, improved, Forest(improved).topology_keys(), strict=True):
        starts.append(before if key in found else tree)
        found.add(key)
    return starts


def reweighted_trees(
    sites: InformativeSites,
    weights: Float64Array,
    rngs: Sequence[np.random.Generator],
    length: float = DEFAULT_LENGTH,
) -> list[Tree]:
    """A start for every row of weights f64[n, L], by its rng; none depends on the others.

    As :func:`parsimony_trees`, but that walks stay near: going far brings 0.03 % of the score, for
    half of the time (218 taxa).
    """
    from concurrent.futures import ThreadPoolExecutor  # a start without replicates goes without

    count, workers = len(rngs), threads().number
    size = min(trees_at_once(sites.n_tips, sites.set_bytes), -(-count // workers))

    def grove(first: int) -> list[Tree]:
        some = slice(first, first + size)
        own = sites.reweighted(weights[some])
        trees = stepwise_additions(own, rngs[some], length)
        improve(trees, own, cuts=(NEAR_CUT,))
        return trees

    with ThreadPoolExecutor(workers) as pool:
        return list(chain.from_iterable(pool.map(grove, range(0, count, size))))


def improve(
    trees: Sequence[Tree], patterns: Patterns | PackedSites, cuts: Sequence[float] = CUTS
) -> Float64Array:
    """SPR rounds in place until no move within the last cut helps; f64[trees]: the scores then.

    Lengths stay with the edges' ids, for they mean nothing to parsimony. Where sites have rows of
    weights, every tree is improved under its own.
    """
    scores = [
        _improve(trees[some], sites, cuts) for some, sites in groves(packed(patterns), len(trees))
    ]
    return np.concatenate(scores)


def _improve(trees: Sequence[Tree], sites: PackedSites, cuts: Sequence[float]) -> Float64Array:
    """As :func:`improve`, all side by side."""
    rounds = _Rounds(trees, sites, cuts)
    while rounds.step():
        pass
    for number, tree in enumerate(trees):
        improved = rounds.forest.tree(number)
        tree.twin[:], tree.edge[:] = improved.twin, improved.edge
    return rounds.scores


class _Rounds:
    """Rounds on trees side by side."""

    def __init__(self, trees: Sequence[Tree], sites: PackedSites, cuts: Sequence[float]) -> None:
        self.forest = Forest(trees)
        self.sets = DirectionalSets.of_trees(self.forest, sites)
        self.scores = self.sets.scores()
        """f64[trees]"""
        self.cuts = np.asarray(cuts)
        self.phase = np.zeros(len(trees), np.int8)
        """Of every tree the number of its cut; that of all cuts once it is done."""

    def step(self) -> bool:
        """A round on the trees that are not done; whether there was any."""
        is_on = self.phase < self.cuts.size
        if not is_on.any():
            return False
        prunes = self.forest.inner.reshape(is_on.size, -1)[is_on].ravel()
        before = self.scores.copy()
        self._make_moves(*self._best_moves(prunes))
        self.phase = np.where(self.scores < before, 0, self.phase + is_on).astype(np.int8)
        return True

    def _best_moves(self, prunes: Int32Array) -> tuple[Int32Array, Int32Array]:
        """The prunes that gain, and their best targets; tree by tree, best first."""
        step = max(1, CHUNK_WORDS // (len(self.sets.sets) * WALKS))
        chunks = [prunes[first : first + step] for first in range(0, prunes.size, step)]
        best = [self._best_targets(chunk) for chunk in chunks]
        prune, target, gain = (np.concatenate(columns) for columns in zip(*best, strict=True))
        order = np.lexsort((-gain, self.forest.tree_of_half[prune]))
        return prune[order], target[order]

    def _best_targets(self, prunes: Int32Array) -> tuple[Int32Array, Int32Array, Float64Array]:
        """For a chunk of prunes: those that gain, their nearest best target, and the gain."""
        subtrees = self.sets.behind(self.sets.twin[prunes])
        here = self._costs_here(prunes, subtrees)
        a_branch = self.scores / self.forest.n_edges
        cut = (self.cuts.take(self.phase, mode="clip") * a_branch)[self.forest.tree_of_half[prunes]]
        wave = self._start(prunes)
        found = [(prunes[:0], prunes[:0], here[:0])]
        while wave.at.size:
            targets, costs, wave = self._advance(wave, subtrees)
            gain = here[wave.prune] - costs
            better = np.flatnonzero(gain > 0)
            found.append((wave.prune[better], targets[better], gain[better]))
            wave = self._kept(wave, gain >= -cut[wave.prune])
        prune, target, gain = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = np.lexsort((-gain, prune))
        first = order[np.flatnonzero(np.diff(prune[order], prepend=-1))]
        return prunes[prune[first]], target[first], gain[first]

    def _costs_here(self, prunes: Int32Array, subtrees: Sets) -> Float64Array:
        """The changes that each subtree costs where it is."""
        sets = self.sets
        left, right = (sets.behind(sets.twin[side[prunes]]) for side in sets.siblings)
        return sets.sites.misses(sets.sites.join(left, right), subtrees)

    def _start(self, prunes: Int32Array) -> _Wave:
        """Both ways out of every attachment node, with the other way's subtree behind."""
        left, right = (self.sets.twin[side[prunes]] for side in self.sets.siblings)
        ahead, behind = np.concatenate((left, right)), np.concatenate((right, left))
        index = np.tile(np.arange(prunes.size, dtype=np.int32), 2)
        wave = _Wave(index, ahead, self.sets.behind(behind))
        return self._kept(wave, np.ones(ahead.size, dtype=np.bool_))

    def _kept(self, wave: _Wave, keep: Bool) -> _Wave:
        """The walks to keep, but for those that have come to a tip."""
        on = np.flatnonzero(keep & self.sets.is_inner[wave.at])
        return _Wave(wave.prune[on], wave.at[on], wave.near.take(on, axis=1))

    def _advance(self, wave: _Wave, subtrees: Sets) -> tuple[Int32Array, Float64Array, _Wave]:
        """Cross both edges ahead of every walk.

        Returns: the edges crossed, by their near halves, what the subtree costs there, the walks.
        """
        sets, sites, n_walks = self.sets, self.sets.sites, wave.at.size
        targets = np.concatenate([side[wave.at] for side in sets.siblings])
        ahead = sets.twin[targets]
        far = sets.behind(ahead)
        near = np.empty_like(far)
        near[:, :n_walks] = sites.join(wave.near, far[:, n_walks:])
        near[:, n_walks:] = sites.join(wave.near, far[:, :n_walks])
        prune = np.concatenate((wave.prune, wave.prune))
        costs = sites.misses(sites.join(near, far), subtrees.take(prune, axis=1))
        return targets, costs, _Wave(prune, ahead, near)

    def _make_moves(self, prune: Int32Array, target: Int32Array) -> None:
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

    def _loosely(self, prune: Int32Array, target: Int32Array) -> Bool:
        """bool[moves]: which the loose rule lets through, tree by tree."""
        forest = self.forest
        sides = (prune, *(side[prune] for side in forest.siblings), target)
        chosen = compatible(forest.edge[np.stack(sides, axis=1)])
        number = forest.tree_of_half[prune]
        links = rewire(forest.twin, forest.edge, prune[chosen], target[chosen])
        _, whole = self.sets.towards_tips(_present(number[chosen]))
        links.restore(forest.twin, forest.edge)
        # Where they make a circle one by one, for some targets come to lie inside their subtrees.
        for tree in _present(number[chosen & ~whole[number]]).tolist():
            own = np.flatnonzero(number == tree)
            moves = forest.in_tree(prune[own]), forest.in_tree(target[own])
            chosen[own], _ = apply_sprs(forest.tree(tree), *moves)
        return chosen

    def _try_moves(self, prune: Int32Array, target: Int32Array, number: Int32Array) -> Bool:
        """Make the moves of some prunes, of trees ``number``; take back those of trees no better.

        Returns: which trees' scores fell, bool[trees].
        """
        forest, sets = self.forest, self.sets
        links = rewire(forest.twin, forest.edge, prune, target)
        trees = _present(number)
        facing, whole = sets.towards_tips(trees)
        circles = ~whole[number]  # through which sets would be renewed for ever
        links.at(circles).restore(forest.twin, forest.edge)
        sets.refresh(sets.made_from(links.at(~circles).halves.ravel()))
        scores = sets.scores(facing, trees)
        fell: Bool = whole & (scores < self.scores)
        self.scores[fell] = scores[fell]
        back = links.at(~circles & ~fell[number])
        back.restore(forest.twin, forest.edge)
        sets.refresh(sets.made_from(back.halves.ravel()))
        return fell


@dataclass
class _Wave:
    """Where the walks of a chunk of prunes stand: just across an edge, at half-edge ``at``."""

    prune: Int32Array
    """int32 [C]: the prune's number in the chunk"""
    at: Int32Array
    """int32 [C]: the half-edge by which the walk arrives"""
    near: Sets
    """[F, C]: the set of all that lies behind the walk, without the subtree"""


def _present(numbers: Int32Array) -> Int32Array:
    """The numbers that occur, rising."""
    return np.flatnonzero(np.bincount(numbers)).astype(np.int32)
