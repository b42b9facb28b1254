"""Parsimony SPR in batches: every subtree is tried everywhere, many moves are made at once.

For a pruned subtree with set P, and a target edge with the sets N (near side, without the
subtree) and D (far side), the tree costs

    constant + sites where join(N, D) misses P

so a prune's gain is that count at the edge it came from less the count at the target. D is a
directional set of the tree as it is; N is carried along while walking away from the attachment
node, for all prunes of a chunk at once. Gains are exact one by one, not together: the moves go in
under the loose rule (SEARCH.md), and where the sum falls short the better half is tried again.

Letters: T tips, C candidates, F words of all planes (see fitch).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.tree.fitch import PackedSites, Sets
from mltree.tree.moves import apply_sprs, undo_all
from mltree.tree.parsimony import DirectionalSets, packed, stepwise_addition
from mltree.tree.topology import DEFAULT_LENGTH, Float64Array, Int32Array, Tree, siblings

__all__ = ["improve", "parsimony_tree"]

RADIUS = 20
"""Edges between the pruning point and a target: what RAxML's parsimony start uses."""

CHUNK_WORDS = 1 << 18
"""64-bit words of one wave's sets: 2 MB stay in the second-level cache."""


def parsimony_tree(
    patterns: Patterns | PackedSites,
    rng: np.random.Generator,
    radius: int = RADIUS,
    length: float = DEFAULT_LENGTH,
) -> Tree:
    """Randomised stepwise addition, then SPR until no move helps: the usual starting tree."""
    sites = packed(patterns)
    tree = stepwise_addition(sites, rng, length)
    improve(tree, sites, radius)
    tree.lengths[:] = length
    return tree


def improve(tree: Tree, patterns: Patterns | PackedSites, radius: int = RADIUS) -> float:
    """SPR rounds in place until no move of up to ``radius`` edges helps; the score at the end.

    Lengths follow the lazy insertion; they mean nothing to parsimony.
    """
    state = DirectionalSets(tree, packed(patterns))
    score = state.score()
    while True:
        prunes, targets = _better_places(state, radius)
        lower = _make_moves(state, prunes, targets, score)
        if lower >= score:
            return score
        score = lower


def _make_moves(
    state: DirectionalSets, prunes: Int32Array, targets: Int32Array, score: float
) -> float:
    """Apply the moves, best first, fewer and fewer until the score falls; the score then."""
    while prunes.size:
        applied, records = apply_sprs(state.tree, prunes, targets)
        state.update()
        lower = state.score()
        if lower < score:
            return lower
        undo_all(state.tree, records)
        kept = np.flatnonzero(applied)[: len(records) // 2]
        prunes, targets = prunes[kept], targets[kept]
    state.update()
    return score


@dataclass
class _Wave:
    """Where the walks of a chunk of prunes stand: just across an edge, at half-edge ``at``."""

    prune: Int32Array
    """int32 [C]: the half-edge that faces the pruned subtree"""
    at: Int32Array
    """int32 [C]: the half-edge by which the walk arrives"""
    near: Sets
    """[C, F]: the set of all that lies behind the walk, without the subtree"""


def _better_places(state: DirectionalSets, radius: int) -> tuple[Int32Array, Int32Array]:
    """The best target of every prune that has one, by falling gain."""
    tree = state.tree
    prunes = np.arange(3 * tree.n_tips, 3 * tree.n_nodes, dtype=np.int32)
    # A wave rarely holds more than a quarter of the edges for each prune.
    step = max(1, CHUNK_WORDS // (state.sets.shape[1] * max(1, tree.n_edges // 4)))
    best = [_best_targets(state, prunes[i : i + step], radius) for i in range(0, prunes.size, step)]
    prune, target, gain = (np.concatenate(columns) for columns in zip(*best, strict=True))
    order = np.argsort(-gain, kind="stable")
    return prune[order], target[order]


def _best_targets(
    state: DirectionalSets, prunes: Int32Array, radius: int
) -> tuple[Int32Array, Int32Array, Float64Array]:
    """For a chunk of prunes: those that gain, their nearest best target, and the gain."""
    here = _costs_here(state, prunes)
    wave = _start(state, prunes)
    found = [(prunes[:0], prunes[:0], here[:0])]
    for _ in range(radius):
        targets, costs, wave = _advance(state, wave)
        gain = here[wave.prune - prunes[0]] - costs
        better = gain > 0
        found.append((wave.prune[better], targets[better], gain[better]))
        wave = _inner(wave, state.tree.n_tips)
        if not wave.at.size:
            break
    prune, target, gain = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.lexsort((-gain, prune))
    first = order[np.unique(prune[order], return_index=True)[1]]
    return prune[first], target[first], gain[first]


def _costs_here(state: DirectionalSets, prunes: Int32Array) -> Float64Array:
    """The changes that each subtree costs where it is."""
    twin = state.tree.twin
    left, right = siblings(prunes)
    joined, _ = state.sites.join(state.behind(twin[left]), state.behind(twin[right]))
    return state.sites.misses(joined, state.behind(twin[prunes]))


def _start(state: DirectionalSets, prunes: Int32Array) -> _Wave:
    """Both ways out of every attachment node, with the other way's subtree behind."""
    twin = state.tree.twin
    left, right = siblings(prunes)
    ahead = twin[np.concatenate((left, right))]
    behind = twin[np.concatenate((right, left))]
    wave = _Wave(np.concatenate((prunes, prunes)), ahead, state.behind(behind))
    return _inner(wave, state.tree.n_tips)


def _inner(wave: _Wave, n_tips: int) -> _Wave:
    """The walks that have not come to a tip."""
    on = wave.at >= 3 * n_tips
    return _Wave(wave.prune[on], wave.at[on], wave.near[on])


def _advance(state: DirectionalSets, wave: _Wave) -> tuple[Int32Array, Float64Array, _Wave]:
    """Cross both edges ahead of every walk.

    Returns: the edges crossed, by their near halves, what the subtree costs there, and the walks.
    """
    twin, sites = state.tree.twin, state.sites
    left, right = siblings(wave.at)
    targets, others = np.concatenate((left, right)), np.concatenate((right, left))
    prune = np.concatenate((wave.prune, wave.prune))
    near, _ = sites.join(np.concatenate((wave.near, wave.near)), state.behind(twin[others]))
    there, _ = sites.join(near, state.behind(twin[targets]))
    costs = sites.misses(there, state.behind(twin[prune]))
    return targets, costs, _Wave(prune, twin[targets], near)
