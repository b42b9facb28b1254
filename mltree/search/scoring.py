"""Lazy scores of whole neighbourhoods, and joint re-scoring of their best candidates.

s0 of a candidate is the lnL with the target edge halved, the pendant length kept and the join
branch as long as its two parts: a ranking, cheap enough for every candidate.  The few that rank
high are re-scored with the join branch and the three branches around the insertion optimised.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64, Int32
from mltree.likelihood.batches import dealt, in_batches
from mltree.likelihood.cases import Case
from mltree.search.constraint import Constraint
from mltree.search.explored import Explored, Keys, Lesson
from mltree.search.neighbourhood import Neighbourhood
from mltree.search.requests import Answers, Request, SearchLikelihood, Steps
from mltree.settings import PhaseSettings, RoundSettings
from mltree.shares import in_shares
from mltree.tree.forest import Forest, Trees
from mltree.tree.topology import Tree

__all__ = [
    "ALL",
    "Moves",
    "Rules",
    "ScoreMoves",
    "ScoredMoves",
    "Share",
    "rescore",
    "scan",
    "score_moves",
    "scored_moves",
    "shortlist",
]


LEAST_SHARE = 8192
"""Prunes of a share: enough for what a launch costs beside them. Searches on an H200 with its 16
cores, seconds as a whole / in shares of 8,192 / of 512 prunes: 1,288 taxa 8.1 / 7.5 / 17.2, 218
taxa 4.3 / 3.7 / 6.3, 50 replicates of 47 taxa 4.8 / 5.5 / 9.7."""


class Moves(NamedTuple):
    """Re-scored candidates of one tree, as arrays of equal length."""

    prune: Int32
    """int32[n]: half-edge that faces the pruned subtree."""
    target: Int32
    """int32[n]: half-edge of the target edge, on the near side."""
    lnl: Float64
    """float64[n]: lnL of the tree after the move, natural log."""
    lengths: Float64
    """float64[n, 4]: near, far, pendant, join; [n, 4, parts] where parts have their own."""

    @classmethod
    def of(cls, shares: Sequence[Moves]) -> Moves:
        """Those of all shares, one after the other."""
        some = [moves for moves in shares if moves.prune.size] or shares[:1]
        return cls(*map(np.concatenate, zip(*some, strict=True)))

    def at(self, index: slice | NDArray[np.intp]) -> Moves:
        """Some of the moves, in the order of the indices."""
        return Moves(self.prune[index], self.target[index], self.lnl[index], self.lengths[index])


class Rules(NamedTuple):
    """By which moves are looked for."""

    phase: PhaseSettings
    settings: RoundSettings
    constraint: Constraint | None = None


class Share(NamedTuple):
    """Some of what is looked at: the ``number``-th prune of every so many."""

    number: int = 0
    of: int = 1


ALL = Share()


class ScoredMoves(NamedTuple):
    """What was found around one tree."""

    moves: Moves
    """Of the shortlist, re-scored."""
    candidates: int
    """Insertions scored."""
    lesson: Lesson
    """What need not be looked at again."""

    @classmethod
    def of(cls, shares: Sequence[ScoredMoves]) -> ScoredMoves:
        """All that was found around a tree; the order of its prunes decides nothing."""
        lessons = (np.concatenate(own) for own in zip(*(one.lesson for one in shares), strict=True))
        return cls(
            Moves.of([one.moves for one in shares]),
            sum(one.candidates for one in shares),
            Lesson(*lessons),
        )


def score_moves(
    likelihood: SearchLikelihood,
    trees: Sequence[Tree],
    cases: Sequence[Case],
    lnls: Sequence[float],
    explored: Sequence[Explored],
    rules: Rules,
    share: Share = ALL,
) -> list[ScoredMoves]:
    """The moves around every tree that are worth a look, as many trees at once as is best.

    ``explored``: what is known already of every tree's surroundings.
    """
    order = dealt(cases).tolist()
    trees, cases = [trees[n] for n in order], [cases[n] for n in order]
    lnls, explored = [lnls[n] for n in order], [explored[n] for n in order]

    def at_once(first: int) -> int:
        return likelihood.trees_at_once(trees[first:], cases[first:])

    def score(batch: slice) -> list[ScoredMoves]:
        return _scored(
            likelihood, trees[batch], cases[batch], lnls[batch], explored[batch], rules, share
        )

    found = list(chain.from_iterable(in_batches(len(trees), at_once, score)))
    return [found[place] for place in np.argsort(order)]


def _scored(
    likelihood: SearchLikelihood,
    trees: Sequence[Tree],
    cases: Sequence[Case],
    lnls: Sequence[float],
    explored: Sequence[Explored],
    rules: Rules,
    share: Share,
) -> list[ScoredMoves]:
    """The re-scored moves of trees that stand side by side, of some prunes at a time."""
    phase, settings, constraint = rules
    forest = Forest(trees)
    keys = Keys(forest)
    prunes = keys.worthwhile(explored)[share.number :: share.of]
    floors = [lnl - phase.breadth * settings.window for lnl in lnls]
    near, better = np.asarray(lnls) - settings.hopeless, np.asarray(lnls) + settings.min_gain

    def look(some: Int32) -> tuple[list[Moves], NDArray[np.intp]]:
        found, s0 = scan(likelihood, forest, cases, lnls, phase, settings, some)
        allowed = _masked(trees, found, s0, constraint)
        selected = shortlist(found, allowed, floors, round(phase.breadth * settings.keep))
        hopeful = keys.hopeful(explored, found.prune[selected], found.target[selected])
        rescored = rescore(likelihood, cases, found, selected[hopeful], near)
        return rescored, np.bincount(found.tree, minlength=len(trees))

    shares = np.array_split(prunes, max(1, prunes.size // LEAST_SHARE))
    looks = in_shares(look, shares, likelihood.planners)
    rescored = [Moves.of(own) for own in zip(*(moves for moves, _ in looks), strict=True)]
    candidates = np.sum([counts for _, counts in looks], axis=0)
    lessons = keys.lessons(prunes, rescored, near, better)
    return [ScoredMoves(*all_) for all_ in zip(rescored, candidates.tolist(), lessons, strict=True)]


def _masked(
    trees: Sequence[Tree], found: Neighbourhood, s0: Float64, constraint: Constraint | None
) -> Float64:
    """Scores with -inf for the moves that the constraint forbids."""
    if constraint is None:
        return s0
    forest = found.forest
    ends = np.searchsorted(found.tree_of_prune, np.arange(1, len(trees)))
    prunes = np.split(forest.in_tree(found.prunes), ends)
    forbidden = np.concatenate(
        [constraint.forbidden(tree, own) for tree, own in zip(trees, prunes, strict=True)]
    )
    edges = forest.edge[found.target] - forest.first_edge[found.tree]
    return np.where(forbidden[found.side >> 1, edges], -np.inf, s0)


def scan(
    likelihood: SearchLikelihood,
    trees: Trees,
    cases: Sequence[Case],
    lnls: Sequence[float],
    phase: PhaseSettings,
    settings: RoundSettings,
    prunes: Int32 | None = None,
) -> tuple[Neighbourhood, Float64]:
    """Neighbourhoods of all trees up to the radius, and s0 of their candidates.

    Scored in waves; each goes on where s0 stayed above the tree's lnL less the cut.  ``prunes``
    int32[prunes]: half-edges of the forest; all where None.
    """
    found = Neighbourhood(trees, prunes)
    scores = np.empty(0)
    for depth in _wave_ends(phase.radius, settings.waves):
        alive = found.survivors(scores, np.asarray(lnls) - phase.cut)
        new = found.extend(depth, alive)
        if new.start == new.stop:
            break
        s0 = likelihood.insertions(found.forest, cases, found.scan(new))
        scores = np.concatenate([scores, s0])
    return found, scores


def _wave_ends(radius: int, waves: Sequence[int]) -> list[int]:
    return [*(depth for depth in waves if depth < radius), radius]


def shortlist(found: Neighbourhood, s0: Float64, floors: Sequence[float], keep: int) -> Int32:
    """Rising indices of the ``keep`` best candidates of every prune, s0 above its tree's floor."""
    prune = found.side >> 1
    candidate = np.flatnonzero(s0 > np.asarray(floors)[found.tree_of_prune].take(prune))
    prune = prune[candidate]
    counts = np.bincount(prune, minlength=len(found.prunes))
    crowded = np.flatnonzero((counts > keep).take(prune))
    best_first = crowded[_falling(s0[candidate[crowded]])]
    together = best_first[np.argsort(_narrow(prune[best_first], len(found.prunes)), kind="stable")]
    counts[counts <= keep] = 0
    place = np.arange(together.size) - np.repeat(np.cumsum(counts) - counts, counts)
    is_kept = np.ones(candidate.size, np.bool_)
    is_kept[together[place >= keep]] = False
    return candidate[is_kept].astype(np.int32)


def _falling(values: Float64) -> NDArray[np.intp]:
    """Indices in the order of falling values, rising among equal ones.

    A sort that keeps the order of equal values takes five times as long.
    """
    order = np.argsort(-values)
    values = values[order]
    is_tied = values[1:] == values[:-1]
    if is_tied.any():
        tied = np.flatnonzero(np.append(is_tied, False) | np.append(False, is_tied))
        which = np.cumsum(np.append(False, ~is_tied))[tied]
        own = order[tied]
        order[tied] = own[np.lexsort((own, which))]
    return order


def _narrow(numbers: Int32, end: int) -> NDArray[Any]:
    """Numbers below ``end`` in 16 bits if they fit: those are sorted in as good as no time."""
    return numbers.astype(np.uint16) if end <= 1 << 16 else numbers


def rescore(
    likelihood: SearchLikelihood,
    cases: Sequence[Case],
    found: Neighbourhood,
    selected: Int32,
    near: Float64 | None = None,
) -> list[Moves]:
    """Joint Newton scores of the selected candidates, tree by tree.

    They may be rough below ``near`` f64[trees].
    """
    lnl, lengths = np.empty(0), np.empty((0, 4))
    if selected.size:
        joins = _join_lengths(likelihood, cases, found, selected)
        floors = None if near is None else near[found.tree[selected]]
        lnl, three = likelihood.refine(found.forest, cases, found.scan(selected, joins), floors)
        join = joins[..., found.side[selected] >> 1, None]
        lengths = np.concatenate([three, join], axis=-1)
        lengths = np.moveaxis(lengths, (-2, -1), (0, 1))
    prune, target = (found.forest.in_tree(of[selected]) for of in (found.prune, found.target))
    every, tree = Moves(prune, target, lnl, lengths), found.tree[selected]
    return [every.at(np.flatnonzero(tree == n)) for n in range(len(found.forest))]


def _join_lengths(
    likelihood: SearchLikelihood, cases: Sequence[Case], found: Neighbourhood, selected: Int32
) -> Float64:
    """f64[..., prunes]: the join branch, optimised where a prune has a selected target."""
    wanted = np.flatnonzero(np.bincount(found.side[selected] >> 1))
    joins = found.joins.copy()
    joins[..., wanted] = likelihood.join_lengths(found.forest, cases, found.prunes[wanted])
    return joins


class ScoreMoves(Request, eq=False):
    """The moves around every tree that are worth a look."""

    lnls: Sequence[float]
    """Of the trees."""
    explored: Sequence[Explored]
    """What is known of the surroundings of each tree."""
    rules: Rules
    share: Share = ALL
    """Of the prunes."""
    by_tree = (*Request.by_tree, "lnls", "explored")

    @property
    def kind(self) -> Hashable:
        """Of the same rules."""
        return super().kind, self.rules

    def answer(self, likelihood: SearchLikelihood) -> list[ScoredMoves]:
        """Moves, tree by tree."""
        return score_moves(
            likelihood, self.trees, self.cases, self.lnls, self.explored, self.rules, self.share
        )

    def shares(self, count: int) -> Sequence[Request]:
        """Every so many subtrees that are moved, of all trees."""
        return [replace(self, share=Share(n, count)) for n in range(count)]

    def whole(self, answers: Sequence[Answers]) -> Answers:
        """Moves, tree by tree."""
        return [ScoredMoves.of(shares) for shares in zip(*answers, strict=True)]


def scored_moves(
    trees: Sequence[Tree],
    cases: Sequence[Case],
    lnls: Sequence[float],
    explored: Sequence[Explored],
    rules: Rules,
) -> Steps[Sequence[ScoredMoves]]:
    """The moves around every tree that are worth a look."""
    scored: Any = yield ScoreMoves(trees, cases, lnls, explored, rules)
    found: Sequence[ScoredMoves] = scored
    return found
