"""Near misses given a second look: whole trees smoothed side by side.

Near the optimum the joint score of three branches undervalues a move by a few tenths of lnL: on the
47-taxon set the two moves that improve the tree score -0.32 and -0.17 and end at +0.27 and +0.11
once all branches follow.  So when a round finds nothing to apply, its best near misses are
applied to copies of the tree, one each, and smoothed in one launch.

Where inner branches have no length, the nearest misses by far are those that only put them in
another order, and end where the tree is: trees that differ so are not tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.likelihood.cases import Case
from mltree.search.acceptance import best_moves
from mltree.search.requests import Steps, shape_keys, smoothed
from mltree.search.scoring import Moves
from mltree.search.state import Lineage
from mltree.settings import RoundSettings
from mltree.tree.moves import SprLengths, spr
from mltree.tree.topology import Tree

__all__ = ["Trials", "tried_moves"]


class Trials(NamedTuple):
    """How near misses are tried."""

    limit: int
    """Trees smoothed for a lineage, at most."""
    settings: RoundSettings
    free_length: float = 0.0
    """Inner branches up to here say nothing about the order of their neighbours."""


def tried_moves(
    lineages: Sequence[Lineage], case: Case, rescored: Sequence[Moves], trials: Trials
) -> Steps[list[Moves]]:
    """Of every lineage's near misses the one that gains most once all branches are smoothed.

    What is tried differs from the tree, and from each other, in shape.  Only one move is
    returned, or none: together, two such moves gained less than either (R_Laurasiatherian).
    """
    settings, chosen, trees = trials.settings, [], []
    for lineage, moves in zip(lineages, rescored, strict=True):
        near = best_moves(moves, lineage.lnl, -settings.trial_margin)
        index, moved = yield from _different(lineage.tree, case, near, trials)
        chosen.append(near.at(index))
        trees += moved
    if not trees:
        return chosen
    floors = np.repeat(
        [lineage.lnl + settings.min_gain for lineage in lineages],
        [moves.prune.size for moves in chosen],
    )
    lnls = yield from smoothed(trees, [case] * len(trees), settings.trial_epsilon, floors.tolist())
    ends = np.cumsum([moves.prune.size for moves in chosen])[:-1]
    parts = np.split(np.array(lnls), ends)
    return [
        best_moves(moves._replace(lnl=part), lineage.lnl, settings.min_gain).at(slice(1))
        for lineage, moves, part in zip(lineages, chosen, parts, strict=True)
    ]


def _different(
    tree: Tree, case: Case, moves: Moves, trials: Trials
) -> Steps[tuple[NDArray[np.intp], list[Tree]]]:
    """The first moves that lead to different shapes: their indices, and the trees."""
    limit, free_length = trials.limit, trials.free_length
    seen: dict[int, tuple[int, Tree]] = {}
    every = moves.prune.size
    for first in range(0, every, 2 * limit):
        span = range(first, min(first + 2 * limit, every))
        trees = [_moved(tree, moves, n) for n in span]
        own, *keys = yield from shape_keys([tree, *trees], [case] * (1 + len(trees)), free_length)
        for n, moved, key in zip(span, trees, keys, strict=True):
            if key != own:
                seen.setdefault(key, (n, moved))
        if len(seen) >= limit:
            break
    chosen = list(seen.values())[:limit]
    return np.array([n for n, _ in chosen], dtype=np.intp), [moved for _, moved in chosen]


def _moved(tree: Tree, moves: Moves, n: int) -> Tree:
    """A copy of the tree after the n-th move."""
    moved = tree.copy()
    lengths = SprLengths(*moves.lengths[n])
    spr(moved, int(moves.prune[n]), int(moves.target[n]), lengths)
    return moved
