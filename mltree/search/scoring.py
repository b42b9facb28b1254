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

from mltree.likelihood.scan_tasks import ScanTasks, concatenate
from mltree.model.eigen import ModelArrays
from mltree.search.neighbourhood import Neighbourhood
from mltree.settings import PhaseSettings, RoundSettings
from mltree.tree.topology import Tree

__all__ = ["Moves", "SearchLikelihood", "rescore", "scan", "shortlist"]

Int = NDArray[np.int32]
Float = NDArray[np.float64]


class SearchLikelihood(Protocol):
    """What the search needs of a likelihood; see :class:`mltree.likelihood.api.Likelihood`."""

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
) -> tuple[list[Neighbourhood], list[Float]]:
    """Neighbourhoods of the trees up to the radius, and s0 of their candidates.

    Scored in waves; between them walks end where s0 fell below the tree's lnL less the cut.
    """
    found = [Neighbourhood(tree) for tree in trees]
    scores = [np.empty(0) for _ in trees]
    for depth in _wave_ends(phase.radius, settings.waves):
        scans = []
        for neighbourhood, s0, lnl in zip(found, scores, lnls, strict=True):
            alive = neighbourhood.survivors(s0, lnl - phase.cut)
            scans.append(neighbourhood.scan(neighbourhood.extend(depth, alive)))
        joined = concatenate(scans)
        if joined.outputs == 0:
            break
        answer = likelihood.insertions(trees, models, joined)
        parts = np.split(answer, np.cumsum([part.outputs for part in scans])[:-1])
        scores = [np.concatenate(pair) for pair in zip(scores, parts, strict=True)]
    return found, scores


def _wave_ends(radius: int, waves: Sequence[int]) -> list[int]:
    return [*(depth for depth in waves if depth < radius), radius]


def shortlist(neighbourhood: Neighbourhood, s0: Float, floor: float, keep: int) -> Int:
    """Rising indices of the ``keep`` best candidates of every prune with s0 above ``floor``."""
    candidate = np.flatnonzero(s0 > floor)
    prune = neighbourhood.side[candidate] >> 1
    order = np.lexsort((candidate, -s0[candidate], prune))
    prune = prune[order]
    first = np.searchsorted(prune, prune)
    best = candidate[order[np.arange(prune.size) - first < keep]]
    return np.sort(best).astype(np.int32)


def rescore(
    likelihood: SearchLikelihood,
    trees: Sequence[Tree],
    models: Sequence[ModelArrays],
    neighbourhoods: Sequence[Neighbourhood],
    selections: Sequence[Int],
) -> list[Moves]:
    """Joint Newton scores of the selected candidates of every tree."""
    counts = [selected.size for selected in selections]
    if sum(counts) == 0:
        return [_no_moves() for _ in trees]
    joins = _join_lengths(likelihood, trees, models, neighbourhoods, selections)
    scans = [
        neighbourhood.scan(selected, join)
        for neighbourhood, selected, join in zip(neighbourhoods, selections, joins, strict=True)
    ]
    lnl, lengths = likelihood.refine(trees, models, concatenate(scans))
    ends = np.cumsum(counts)[:-1]
    results = zip(np.split(lnl, ends), np.split(lengths, ends), strict=True)
    return [
        Moves(
            prune=neighbourhood.prune[selected],
            target=neighbourhood.target[selected],
            lnl=part,
            lengths=np.column_stack([three, join[neighbourhood.side[selected] >> 1]]),
        )
        for neighbourhood, selected, join, (part, three) in zip(
            neighbourhoods, selections, joins, results, strict=True
        )
    ]


def _join_lengths(
    likelihood: SearchLikelihood,
    trees: Sequence[Tree],
    models: Sequence[ModelArrays],
    neighbourhoods: Sequence[Neighbourhood],
    selections: Sequence[Int],
) -> list[Float]:
    """Per tree f64[prunes]: the optimised join branch of every prune with a selected target."""
    wanted = [
        np.unique(neighbourhood.side[selected] >> 1)
        for neighbourhood, selected in zip(neighbourhoods, selections, strict=True)
    ]
    counts = [part.size for part in wanted]
    number = np.repeat(np.arange(len(trees), dtype=np.int32), counts)
    prunes = np.concatenate([n.prunes[w] for n, w in zip(neighbourhoods, wanted, strict=True)])
    answer = likelihood.join_lengths(trees, models, number, prunes)
    joins = [neighbourhood.plain_joins() for neighbourhood in neighbourhoods]
    for join, part, values in zip(
        joins, wanted, np.split(answer, np.cumsum(counts)[:-1]), strict=True
    ):
        join[part] = values
    return joins


def _no_moves() -> Moves:
    none = np.empty(0, dtype=np.int32)
    return Moves(none, none, np.empty(0), np.empty((0, 4)))
