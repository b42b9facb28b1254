"""Lazy scores of whole neighbourhoods, and joint re-scoring of their best candidates.

s0 of a candidate is the lnL with the target edge halved, the pendant length kept and the join
branch as long as its two parts: a ranking, cheap enough for every candidate.  The few that rank
high are re-scored with the join branch and the three branches around the insertion optimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.likelihood.scan_tasks import ScanTasks
from mltree.model.eigen import ModelArrays
from mltree.search.neighbourhood import Neighbourhood
from mltree.settings import PhaseSettings, RoundSettings
from mltree.tree.topology import Tree

__all__ = ["Moves", "SearchLikelihood", "rescore", "scan", "shortlist"]

Int = NDArray[np.int32]
Float = NDArray[np.float64]


class SearchLikelihood(Protocol):
    """What the search needs of a likelihood; see :class:`mltree.likelihood.api.Likelihood`."""

    def trees_at_once(self, tree: Tree) -> int:
        """How many trees like this one are best searched side by side."""

    def log_likelihoods(self, trees: Sequence[Tree], models: Sequence[ModelArrays]) -> Float:
        """f64[n]: lnL of every tree under its model."""

    def smooth(self, trees: Sequence[Tree], models: Sequence[ModelArrays], epsilon: float) -> Float:
        """f64[n]: lnL after optimising all lengths in place; never worse than before."""

    def insertions(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], scan: ScanTasks
    ) -> Float:
        """f64[outputs]: s0 of every insertion."""

    def refine(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], scan: ScanTasks
    ) -> tuple[Float, Float]:
        """Best lnL f64[outputs], and lengths f64[outputs, 3] near, far, pendant."""

    def join_lengths(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], number: Int, prunes: Int
    ) -> Float:
        """f64[n]: optimised length of the branch that each prune of tree ``number`` leaves."""


class Moves(NamedTuple):
    """Re-scored candidates of one tree, as arrays of equal length."""

    prune: Int
    """int32[n]: half-edge that faces the pruned subtree."""
    target: Int
    """int32[n]: half-edge of the target edge, on the near side."""
    lnl: Float
    """float64[n]: lnL of the tree after the move, natural log."""
    lengths: Float
    """float64[n, 4]: near, far, pendant, join."""

    def at(self, index: slice | NDArray[np.intp]) -> Moves:
        """Some of the moves, in the order of the indices."""
        return Moves(self.prune[index], self.target[index], self.lnl[index], self.lengths[index])


def scan(
    likelihood: SearchLikelihood,
    trees: Sequence[Tree],
    models: Sequence[ModelArrays],
    lnls: Sequence[float],
    phase: PhaseSettings,
    settings: RoundSettings,
) -> tuple[Neighbourhood, Float]:
    """Neighbourhoods of all trees up to the radius, and s0 of their candidates.

    Scored in waves; each goes on where s0 stayed above the tree's lnL less the cut.
    """
    found = Neighbourhood(trees)
    scores = np.empty(0)
    for depth in _wave_ends(phase.radius, settings.waves):
        alive = found.survivors(scores, np.asarray(lnls) - phase.cut)
        new = found.extend(depth, alive)
        if new.start == new.stop:
            break
        s0 = likelihood.insertions(trees, models, found.scan(new))
        scores = np.concatenate([scores, s0])
    return found, scores


def _wave_ends(radius: int, waves: Sequence[int]) -> list[int]:
    return [*(depth for depth in waves if depth < radius), radius]


def shortlist(found: Neighbourhood, s0: Float, floors: Sequence[float], keep: int) -> Int:
    """Rising indices of the ``keep`` best candidates of every prune, s0 above its tree's floor."""
    candidate = np.flatnonzero(s0 > np.asarray(floors)[found.tree])
    prune = found.side[candidate] >> 1
    order = np.lexsort((candidate, -s0[candidate], prune))
    prune = prune[order]
    first = np.searchsorted(prune, prune)
    best = candidate[order[np.arange(prune.size) - first < keep]]
    return np.sort(best).astype(np.int32)


def rescore(
    likelihood: SearchLikelihood,
    trees: Sequence[Tree],
    models: Sequence[ModelArrays],
    found: Neighbourhood,
    selected: Int,
) -> list[Moves]:
    """Joint Newton scores of the selected candidates, tree by tree."""
    lnl, lengths = np.empty(0), np.empty((0, 4))
    if selected.size:
        joins = _join_lengths(likelihood, trees, models, found, selected)
        lnl, three = likelihood.refine(trees, models, found.scan(selected, joins))
        lengths = np.column_stack([three, joins[found.side[selected] >> 1]])
    halves, tree = found.forest.n_halves, found.tree[selected]
    every = Moves(found.prune[selected] % halves, found.target[selected] % halves, lnl, lengths)
    return [every.at(np.flatnonzero(tree == n)) for n in range(len(trees))]


def _join_lengths(
    likelihood: SearchLikelihood,
    trees: Sequence[Tree],
    models: Sequence[ModelArrays],
    found: Neighbourhood,
    selected: Int,
) -> Float:
    """f64[prunes]: the join branch, optimised where a prune has a selected target."""
    wanted = np.unique(found.side[selected] >> 1)
    prunes = found.prunes[wanted] % found.forest.n_halves
    joins = found.joins.copy()
    joins[wanted] = likelihood.join_lengths(trees, models, found.tree_of_prune[wanted], prunes)
    return joins
