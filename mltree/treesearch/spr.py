"""Batched SPR rounds: score every move of every tree, apply many at once, halve what fails.

s0 of an insertion is the lnL with the target edge halved, the pendant length kept and the merged
branch as long as its two parts: a ranking, cheap enough for every insertion.  The few that rank
high are re-scored with the merged branch and the three branches around the insertion optimised.
Of these the best are applied (:func:`spr_round`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain, compress, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.likelihood import TreeLikelihood, dealt, in_batches
from mltree.likelihood.requests import Answers, Request, ShapeChanges, Steps, smoothed
from mltree.program.cases import Case
from mltree.program.planner import ScanTasks
from mltree.system.arrays import Bool, Float64, Index, Int32, UInt64, longest_first, rising
from mltree.system.process import parallel_map
from mltree.tree.moves import SprLengths, apply_sprs, spr
from mltree.tree.topology import Forest, Tree, Trees
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.move_cache import CacheUpdate, MoveCache, MoveKeys, RescoredMoves


class RoundOutcome(NamedTuple):
    """The outcome of an SPR round for one candidate tree."""

    moves: int
    """Moves applied and kept."""
    insertions: int
    """Insertions scored."""
    rescored: int
    """Insertions optimised jointly."""


def spr_round(
    candidates: Sequence[CandidateTree],
    cases: Sequence[Case],
    phase: PhaseSettings,
    settings: RoundSettings,
    constraint: Constraint | None = None,
    caches: Sequence[MoveCache] | None = None,
    free_length: float = 0.0,
) -> Steps[list[RoundOutcome]]:
    """Do an SPR round on all candidates; their trees and lnLs change in place.

    A candidate stays active while its rounds gain enough.  ``caches``: a cache for each candidate,
    or one that several share; read, and added to.
    ``free_length``: trees that differ in branches up to here alone are one.
    """
    caches = [MoveCache()] * len(candidates) if caches is None else caches
    before, trees = [one.lnl for one in candidates], [one.tree for one in candidates]
    rules = MoveRules(phase, settings, constraint)
    answer = yield ScoreMoves(trees, cases, before, caches, rules)
    scored: list[ScoredMoves] = list(answer)
    better = [
        best_moves(around.moves, lnl, settings.min_gain)
        for around, lnl in zip(scored, before, strict=True)
    ]
    epsilon, least_gain = settings.smooth_epsilon, phase.min_round_gain
    if phase.fully_smoothed:
        epsilon, least_gain = settings.full_epsilon, settings.min_gain
        stalled = [n for n, moves in enumerate(better) if moves.prune.size == 0]
        redeemed = yield from fully_smoothed_moves(
            [candidates[n] for n in stalled],
            [cases[n] for n in stalled],
            [scored[n].moves for n in stalled],
            phase.fully_smoothed,
            settings,
            free_length,
        )
        for n, moves in zip(stalled, redeemed, strict=True):
            better[n] = moves
    counts = yield from _apply_guarded(candidates, cases, better, epsilon, constraint)
    for cache in {id(cache): cache for cache in caches}.values():
        known = [n for n, one in enumerate(caches) if one is cache]
        updates = [scored[n].update for n in known]
        counting = [phase.skips_stalled or counts[n] == 0 for n in known]
        cache.add(updates, stalled=list(compress(updates, counting)))
    for candidate, lnl, count in zip(candidates, before, counts, strict=True):
        candidate.rounds += 1
        gains = count > 0 and candidate.lnl - lnl >= least_gain
        candidate.active = gains and candidate.rounds < settings.max_rounds
    return [
        RoundOutcome(count, around.insertions, int(around.moves.prune.size))
        for count, around in zip(counts, scored, strict=True)
    ]


def _apply_guarded(
    candidates: Sequence[CandidateTree],
    cases: Sequence[Case],
    better: Sequence[RescoredMoves],
    epsilon: float,
    constraint: Constraint | None,
) -> Steps[list[int]]:
    """Apply moves and smooth; a tree whose lnL did not rise retries with the better half.

    Returns the number of moves kept for each candidate.
    """
    kept = [0] * len(candidates)
    pending = {n: moves for n, moves in enumerate(better) if moves.prune.size}
    before = {n: candidates[n].tree.copy() for n in pending}
    while pending:
        applied = {}
        for n, moves in pending.items():
            applied[n] = apply_moves(candidates[n].tree, moves, constraint)
        trees = [candidates[n].tree for n in pending]
        lnls = yield from smoothed(trees, [cases[n] for n in pending], epsilon)
        failed = {}
        for (n, moves), lnl in zip(applied.items(), lnls, strict=True):
            if moves.prune.size and lnl > candidates[n].lnl:
                candidates[n].lnl = lnl
                kept[n] = int(moves.prune.size)
                continue
            candidates[n].tree.assign(before[n])
            half = better_half(moves)
            if half.prune.size:
                failed[n] = half
        pending = failed
    return kept


# Choosing and applying moves.


def best_moves(moves: RescoredMoves, lnl: float, min_gain: float) -> RescoredMoves:
    """Select the best target of every prune that gains ``min_gain`` or more, best moves first.

    ``lnl`` is that of the tree before any move.
    """
    good = np.flatnonzero(moves.lnl >= lnl + min_gain)
    good = good[np.lexsort((-moves.lnl[good], moves.prune[good]))]
    best = good[np.flatnonzero(np.diff(moves.prune[good], prepend=-1))]
    best = best[np.argsort(-moves.lnl[best], kind="stable")]
    return moves.at(best)


def apply_moves(
    tree: Tree, moves: RescoredMoves, constraint: Constraint | None = None
) -> RescoredMoves:
    """Apply the moves that the loose rule lets through, in order, and return those.

    Moves that satisfy the constraint one by one but not together are left out.
    """
    before = tree.copy()
    done = _applied(tree, moves)
    if constraint is None or constraint.satisfied(tree):
        return done
    kept = np.empty(0, dtype=np.intp)
    for move in range(done.prune.size):
        tree.assign(before)
        _applied(tree, done.at(np.append(kept, move)))
        if constraint.satisfied(tree):
            kept = np.append(kept, move)
    tree.assign(before)
    return _applied(tree, done.at(kept))


def better_half(moves: RescoredMoves) -> RescoredMoves:
    """Return the better half of moves sorted by gain; none of a single one."""
    return moves.at(slice(moves.prune.size // 2))


def _applied(tree: Tree, moves: RescoredMoves) -> RescoredMoves:
    applied = apply_sprs(tree, moves.prune, moves.target, moves.lengths)
    return moves.at(np.flatnonzero(applied))


# Fully smoothed candidates: the trees of near misses, smoothed whole and side by side.
#
# Near the optimum the joint score of three branches undervalues a move by a few tenths of lnL: on
# the 47-taxon set the two moves that improve the tree score -0.32 and -0.17 and end at +0.27 and
# +0.11 once all branches follow.  Where inner branches have no length, the nearest misses only put
# them in another order, and end where the tree is: trees that differ only so are not smoothed.


def fully_smoothed_moves(
    candidates: Sequence[CandidateTree],
    cases: Sequence[Case],
    rescored: Sequence[RescoredMoves],
    limit: int,
    settings: RoundSettings,
    free_length: float = 0.0,
) -> Steps[list[RescoredMoves]]:
    """Return each candidate's near miss that gains most once all its branches are smoothed.

    At most ``limit`` trees are smoothed for a candidate.  They differ from it, and from each other,
    in shape: by more than inner branches up to ``free_length``.  One move is returned for each
    candidate, or none: together, two such moves gained less than either (R_Laurasiatherian).
    """
    if not candidates:
        return []
    chosen = []
    for candidate, moves in zip(candidates, rescored, strict=True):
        chosen.append(best_moves(moves, candidate.lnl, -settings.smoothing_margin))
    moved = [(m.prune, m.target, np.atleast_3d(m.lengths).max(axis=2)) for m in chosen]
    around = [candidate.tree for candidate in candidates]
    changes = yield ShapeChanges(around, cases, moved, [free_length] * len(candidates))
    chosen = [
        moves.at(_first_unlike(keys)[:limit]) for moves, keys in zip(chosen, changes, strict=True)
    ]
    every = [(n, move) for n, moves in enumerate(chosen) for move in range(moves.prune.size)]
    if not every:
        return chosen
    trees = [_moved(candidates[n].tree, chosen[n], move) for n, move in every]
    floors = [candidates[n].lnl + settings.min_gain for n, _ in every]
    under = [cases[n] for n, _ in every]
    lnls = yield from smoothed(trees, under, settings.full_epsilon, floors)
    parts = np.split(np.array(lnls), np.cumsum([moves.prune.size for moves in chosen])[:-1])
    return [
        best_moves(moves._replace(lnl=lnl), candidate.lnl, settings.min_gain).at(slice(1))
        for candidate, moves, lnl in zip(candidates, chosen, parts, strict=True)
    ]


def _first_unlike(keys: UInt64) -> Index:
    """Indices, rising, of the first of each key but 0."""
    _, first = np.unique(np.append(np.uint64(0), keys), return_index=True)
    return np.sort(first)[1:] - 1


def _moved(tree: Tree, moves: RescoredMoves, n: int) -> Tree:
    """Return a copy of the tree after the n-th move."""
    moved = tree.copy()
    spr(moved, int(moves.prune[n]), int(moves.target[n]), SprLengths(*moves.lengths[n]))
    return moved


# Scoring the moves around trees: s0 of all insertions, then joint scores of a shortlist.

LEAST_SHARE = 4096
"""Prunes of a share at least: enough to pay for a launch. Searches on an H200 with its 16 cores,
seconds in shares of 8,192 / 4,096 / 1,024 prunes: 1,000 taxa 8.5 / 6.9 / 7.6, 714 taxa 14.7 / 15.1
/ 16.1, 218 taxa 4.3 / 4.5 / 4.2; replicates as long in shares of 8,192 as of 4,096."""


class MoveRules(NamedTuple):
    """Rules by which moves are scored: phase, round settings, constraint."""

    phase: PhaseSettings
    settings: RoundSettings
    constraint: Constraint | None = None


class ScoredMoves(NamedTuple):
    """The moves around one tree."""

    moves: RescoredMoves
    """The shortlist, re-scored."""
    insertions: int
    """Insertions scored."""
    update: CacheUpdate
    """Keys of moves and prunes that need no second look."""

    @classmethod
    def of(cls, shares: Sequence[ScoredMoves]) -> ScoredMoves:
        """Put the shares of a tree's prunes together; the order of prunes decides nothing."""
        moves, insertions, updates = zip(*shares, strict=True)
        update = CacheUpdate(*map(np.concatenate, zip(*updates, strict=True)))
        return cls(RescoredMoves.of(moves), sum(insertions), update)


class ScoreMoves(Request, eq=False):
    """Request the scored moves around every tree."""

    lnls: Sequence[float]
    """lnL of each tree."""
    caches: Sequence[MoveCache]
    """Move cache of each tree's search."""
    rules: MoveRules
    first_prune: int = 0
    prune_step: int = 1
    """The prunes to score are every so many from the first on."""
    by_tree = (*Request.by_tree, "lnls", "caches")

    @property
    def kind(self) -> Hashable:
        """Requests with the same rules can be joined."""
        return super().kind, self.rules

    def shares(self, count: int) -> Sequence[Request]:
        """Deal the prunes of all trees out to ``count`` requests."""
        return [replace(self, first_prune=n, prune_step=count) for n in range(count)]

    def whole(self, answers: Sequence[Answers]) -> Answers:
        """ScoredMoves, tree by tree."""
        return [ScoredMoves.of(shares) for shares in zip(*answers, strict=True)]

    def answer(self, likelihood: TreeLikelihood) -> list[ScoredMoves]:
        """Score the moves around every tree, as many trees at once as is best."""
        order = dealt(self.cases).tolist()
        in_order = self._of(order)

        def at_once(first: int) -> int:
            return likelihood.trees_at_once(in_order.trees[first:], in_order.cases[first:])

        def score(batch: slice) -> list[ScoredMoves]:
            return self._of(order[batch])._side_by_side(likelihood)

        scored = list(chain.from_iterable(in_batches(len(order), at_once, score)))
        return [scored[place] for place in np.argsort(order)]

    def _of(self, numbers: Sequence[int]) -> ScoreMoves:
        """Return the request for some of the trees, in the order of their numbers."""
        chosen: dict[str, Any] = {
            name: [getattr(self, name)[n] for n in numbers] for name in self.by_tree
        }
        return replace(self, **chosen)

    def _side_by_side(self, likelihood: TreeLikelihood) -> list[ScoredMoves]:
        """Score the moves of all trees side by side, some prunes at a time."""
        phase, settings, _ = self.rules
        lnls, forest = np.asarray(self.lnls), Forest(self.trees)
        keys = MoveKeys(forest)
        prunes = keys.open_prunes(self.caches)[self.first_prune :: self.prune_step]
        windows = _in_proportion(settings.window, settings.window_share, lnls)
        floors, keep = lnls - phase.breadth * windows, round(phase.breadth * settings.keep)
        rejected, goals = lnls - settings.rejection, lnls + settings.min_gain

        def look(some: Int32) -> tuple[list[RescoredMoves], NDArray[np.intp]]:
            region, s0 = scan(likelihood, forest, self.cases, lnls, phase, settings, some)
            selected = shortlist(region, self._allowed(region, s0), floors, keep)
            _, prune, target = region.moves(selected)
            is_open = keys.open_moves(self.caches, prune, target)
            rescored = rescore(likelihood, self.cases, region, selected[is_open], rejected)
            return rescored, region.sizes

        shares = np.array_split(prunes, max(1, prunes.size // LEAST_SHARE))
        moves, counts = zip(*parallel_map(look, shares, likelihood.planners), strict=True)
        rescored = [RescoredMoves.of(of_tree) for of_tree in zip(*moves, strict=True)]
        insertions = np.sum(counts, axis=0).tolist()
        updates = keys.updates(prunes, rescored, rejected, goals)
        return list(map(ScoredMoves, rescored, insertions, updates))

    def _allowed(self, region: Neighbourhood, s0: Float64) -> Float64:
        """Set the scores of moves that the constraint forbids to -inf."""
        constraint, forest = self.rules.constraint, region.forest
        if constraint is None:
            return s0
        ends = np.searchsorted(region.tree_of_prune, np.arange(1, len(forest)))
        prunes = np.split(forest.in_tree(region.prunes), ends)
        forbidden = np.concatenate(list(map(constraint.forbidden, self.trees, prunes)))
        edges = forest.edge[region.target] - forest.first_edge[region.tree]
        return np.where(forbidden[region.number, edges], -np.inf, s0)


def scan(
    likelihood: TreeLikelihood,
    trees: Trees,
    cases: Sequence[Case],
    lnls: Float64 | Sequence[float],
    phase: PhaseSettings,
    settings: RoundSettings,
    prunes: Int32 | None = None,
) -> tuple[Neighbourhood, Float64]:
    """Return the neighbourhoods of all trees up to the radius, and s0 of their insertions.

    Scored in waves; each goes on where s0 stayed above the tree's lnL less the cut.  ``prunes``
    int32[prunes]: half-edges of the forest; all where None.
    """
    region, lnls = Neighbourhood(trees, prunes), np.asarray(lnls)
    scores, cuts = np.empty(0), _in_proportion(phase.cut, settings.cut_share, lnls)
    for depth in (*(depth for depth in settings.waves if depth < phase.radius), phase.radius):
        alive = region.survivors(scores, lnls - cuts)
        new = region.extend(depth, alive)
        if new.start == new.stop:
            break
        s0 = likelihood.insertions(region.forest, cases, region.scan(new))
        scores = np.concatenate([scores, s0])
    return region, scores


LEAST_PART = 0.25
"""Part of a loss that is left of it however small lnL is."""


def _in_proportion(loss: float, share: float, lnls: Float64) -> Float64:
    """Return a loss for each tree, cut to a share of its lnL; an infinite one stays."""
    if not np.isfinite(loss):
        return np.full(lnls.shape, loss)
    return np.clip(share * np.abs(lnls), LEAST_PART * loss, loss)


LEVELS = 16
"""Levels of s0 by which a shortlist counts: few of a prune's insertions are in the one cut."""


def shortlist(
    region: Neighbourhood, s0: Float64, floors: Float64 | Sequence[float], keep: int
) -> Int32:
    """Return rising indices of the ``keep`` best insertions of every prune, s0 above its floor.

    Levels between a prune's best and its floor are counted; only the one that is cut is sorted.
    """
    prune, floor = region.number, np.asarray(floors)[region.tree_of_prune]
    insertion = np.flatnonzero(s0 > floor.take(prune))
    prune, s0 = prune.take(insertion), s0.take(insertion)
    floor = np.maximum(floor, s0.min(initial=0.0) - 1.0)  # a finite one
    best = floor.copy()
    np.maximum.at(best, prune, s0)
    share = (best.take(prune) - s0) / (best - floor).take(prune)
    level = LEVELS * prune + np.minimum(LEVELS * share, LEVELS - 1).astype(np.int32)
    counts = np.bincount(level, minlength=LEVELS * best.size).reshape(-1, LEVELS)
    places = keep - np.cumsum(counts, axis=1)  # that each level leaves, or lacks
    is_cut = (places < 0) & (places + counts > 0)
    is_kept = (places >= 0).ravel().take(level)
    cut = np.flatnonzero(is_cut.ravel().take(level))
    best_first = cut[np.argsort(-s0[cut], kind="stable")]
    together = best_first[rising(prune[best_first], best.size)]
    places, counts = places[is_cut], counts[is_cut]
    place = np.arange(together.size) - np.repeat(np.cumsum(counts) + places, counts)
    is_kept[together[place < 0]] = True
    kept: Int32 = insertion[is_kept].astype(np.int32)
    return kept


def rescore(
    likelihood: TreeLikelihood,
    cases: Sequence[Case],
    region: Neighbourhood,
    selected: Int32,
    rejected: Float64 | None = None,
) -> list[RescoredMoves]:
    """Score the selected insertions by joint Newton steps, tree by tree.

    Scores may be rough below the lnL ``rejected`` f64[trees].
    """
    lnl, lengths = np.empty(0), np.empty((0, 4))
    number, *halves = region.moves(selected)
    tree = region.tree_of_prune.take(number)
    if selected.size:
        merged = region.merged.copy()
        used = np.flatnonzero(np.bincount(number))
        merged[..., used] = likelihood.join_lengths(region.forest, cases, region.prunes[used])
        floors = None if rejected is None else rejected[tree]
        lnl, three = likelihood.refine(region.forest, cases, region.scan(selected, merged), floors)
        lengths = np.concatenate([three, merged[..., number, None]], axis=-1)
        lengths = np.moveaxis(lengths, (-2, -1), (0, 1))
    prune, target = map(region.forest.in_tree, halves)
    every = RescoredMoves(prune, target, lnl, lengths).at(rising(tree, len(region.forest)))
    ends = np.cumsum(np.bincount(tree, minlength=len(region.forest))).tolist()
    return [every.at(slice(*span)) for span in pairwise([0, *ends])]


# SPR neighbourhoods: every target edge of every prune, found breadth first, wave by wave.
#
# An insertion is a pair (prune, target).  ``prune[c]`` is a half-edge at an inner node ``u`` that
# faces the subtree to move; ``target[c]`` is the proximal half-edge of the edge to regraft on
# (its distal half is ``twin[target[c]]``); ``up[c >> 1]`` is the insertion whose target is the
# previous edge on the path, or -1.  Both sides of the pruning point are explored.  The subtree
# itself, and the two edges at ``u`` that become the merged branch, are never targets, so no pair
# occurs twice.
#
# Half-edges are those of a Forest: waves, sums and choices are for all of its trees at once.
# Insertions are created in sibling pairs (both branches of a node), depth by depth, in edges from
# the pruning point (1 is an NNI): the pairs make all the sums below plain reshapes.  A wave stops
# at a depth; the next one continues from the survivors of the cut.


class Neighbourhood:
    """SPR neighbourhoods as far as they were explored, of one tree or of several."""

    def __init__(self, trees: Tree | Trees, prunes: Int32 | None = None) -> None:
        """Stand beside every pruning point; ``prunes`` defaults to all 3T - 6 of every tree."""
        self.forest = Forest.of([trees] if isinstance(trees, Tree) else trees)
        """The trees as they were when the neighbourhood was begun."""
        prunes = self.forest.inner if prunes is None else prunes
        self._twin = self.forest.twin
        one, other = self.forest.behind
        self._far = np.stack([one, other, other, one], axis=1).reshape(-1, 2)
        """int32[2 half-edges, 2]: far ends of the other branches of a node, in both orders."""
        ends = self._far[2 * prunes]
        self.prunes: Int32 = prunes
        """int32[prunes]: half-edges that face the pruned subtrees."""
        self.tree_of_prune: Int32 = self.forest.tree_of_half[prunes]
        """int32[prunes]: number of the tree."""
        self.merged: Float64 = self.forest.lengths[..., self.forest.edge[ends]].sum(axis=-1)
        """float64[..., prunes]: merged branches as long as their two parts."""
        self._side_entry: Int32 = ends.ravel()
        self._side_root: Int32 = ends[:, ::-1].ravel()
        self._layers = [0]
        empty = np.empty(0, dtype=np.int32)
        self._entry: Int32 = empty
        """int32[pairs]: half-edge by which the node of the two target edges is entered."""
        self.up: Int32 = empty
        """int32[pairs]: the insertion one edge nearer to the pruning point, or -1."""
        self._side: Int32 = empty
        """int32[pairs]: side of the pruning point; ``side >> 1`` is the prune."""

    @property
    def size(self) -> int:
        """Number of insertions so far."""
        return 2 * int(self.up.size)

    @property
    def depth_reached(self) -> int:
        """Depth of the deepest insertions so far; 0 before the first wave."""
        return len(self._layers) - 1

    @property
    def number(self) -> Int32:
        """int32[insertions]: number of the prune."""
        return np.repeat(self._side >> 1, 2)

    @property
    def prune(self) -> Int32:
        """int32[insertions]: half-edge that faces the pruned subtree."""
        return self.prunes.take(self.number)

    @property
    def target(self) -> Int32:
        """int32[insertions]: half-edge of the target edge, on its proximal side."""
        return self._twin.take(self._far.take(2 * self._entry, axis=0).ravel())

    @property
    def tree(self) -> Int32:
        """int32[insertions]: number of the tree."""
        return self.tree_of_prune.take(self.number)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """int[trees]: number of insertions of each."""
        of_prunes = 2 * np.bincount(self._side >> 1, minlength=len(self.prunes))
        return np.bincount(self.tree_of_prune, of_prunes, len(self.forest)).astype(np.intp)

    def moves(self, selected: Int32) -> tuple[Int32, Int32, Int32]:
        """Number of the prune, its half-edge, and target of some insertions, int32[n] each."""
        number = self._side.take(selected >> 1) >> 1
        distal = self._far.take(4 * self._entry.take(selected >> 1) + (selected & 1))
        return number, self.prunes.take(number), self._twin.take(distal)

    @property
    def frontier(self) -> slice:
        """The insertions of the deepest layer, from which the next wave continues."""
        if self.depth_reached == 0:
            return slice(0, 0)
        return slice(self._layers[-2], self._layers[-1])

    def extend(self, depth_limit: int, alive: Bool | None = None) -> slice:
        """Go on to ``depth_limit`` and return the slice of the new insertions.

        ``alive`` bool[frontier]: frontier insertions that may be passed; all by default.
        """
        start = first = self.size
        side, up, distal = self._standpoints(alive)
        sides, ups, entries = [self._side], [self.up], [self._entry]
        for _ in range(self.depth_reached, depth_limit):
            inner = np.flatnonzero(self.forest.is_inner.take(distal))
            if inner.size == 0:
                break
            sides.append(side.take(inner))
            ups.append(up.take(inner))
            entries.append(distal.take(inner))
            distal = self._far.take(2 * entries[-1], axis=0).ravel()
            side = np.repeat(sides[-1], 2)
            up = np.arange(first, first + distal.size, dtype=np.int32)
            first += distal.size
            self._layers.append(first)
        self._side = np.concatenate(sides)
        self.up = np.concatenate(ups)
        self._entry = np.concatenate(entries)
        return slice(start, first)

    def survivors(self, scores: Float64, thresholds: Float64) -> Bool:
        """bool[frontier]: True if no insertion on the path scored below its tree's threshold.

        ``scores`` float64[insertions], ``thresholds`` float64[trees]; natural log.
        """
        least = thresholds[self.tree_of_prune].take(self._side >> 1)
        pairs = scores.reshape(-1, 2) >= least[:, None]
        alive = pairs.ravel()
        for start, stop in pairwise(self._layers[1:]):
            some = slice(start >> 1, stop >> 1)
            pairs[some] &= alive.take(self.up[some])[:, None]
        return alive[self.frontier]

    def scan(self, selected: slice | Int32, merged: Float64 | None = None) -> ScanTasks:
        """Depth-first tasks that score the ``selected`` insertions, in that order.

        ``selected`` is a slice, or strictly rising insertion indices.  The walk passes through
        the ancestors that it needs (output -1) and through nothing else.  ``merged`` is
        float64[..., prunes]: lengths of the merged branches, by default the sums of their parts.
        """
        merged = self.merged if merged is None else merged
        output = np.full(self.size, -1, dtype=np.int32)
        n_outputs = output[selected].size
        output[selected] = np.arange(n_outputs, dtype=np.int32)
        start, stop, _ = selected.indices(self.size) if isinstance(selected, slice) else (0, -1, 1)
        walk = self._walk(output >= 0, start if stop == self.size else self.size)
        of_sides = walk.below[2 * walk.pairs.size :]
        sides = longest_first(of_sides)[: np.count_nonzero(of_sides)]
        first_step = np.zeros(sides.size + 1, dtype=np.int32)
        np.cumsum(of_sides[sides], out=first_step[1:])
        steps = walk.ordered(sides, first_step, self._entry, output.reshape(-1, 2))
        levels = steps.view(np.int8)[:, 12:]
        return ScanTasks(
            tree=self.tree_of_prune[sides >> 1],
            prune=self.prunes[sides >> 1],
            root=self._side_root[sides],
            join_length=merged[..., sides >> 1],
            first_step=first_step,
            far=self._far.take(steps[:, 0], axis=0).T,
            level_in=levels[:, 0],
            level_out=levels[:, 1:3].T,
            output=steps[:, 1:3].T,
            outputs=n_outputs,
        )

    def _standpoints(self, alive: Bool | None) -> tuple[Int32, Int32, Int32]:
        """(side, parent insertion, half-edge by which its node is entered) to go on from."""
        if self.depth_reached == 0:
            side = np.arange(self._side_entry.size, dtype=np.int32)
            return side, np.full(side.size, -1, dtype=np.int32), self._side_entry
        index = np.arange(self.size, dtype=np.int32)[self.frontier]
        if alive is not None:
            index = index[alive]
        distal = self._far.take(4 * self._entry.take(index >> 1) + (index & 1))
        return self._side.take(index >> 1), index, distal

    def _walk(self, is_walked: Bool, whole: int) -> _Walk:
        """Return the walk through the insertions marked; those on the way are marked too.

        ``whole``: the insertion from which on all are marked.
        """
        found, either = [], is_walked.view(np.uint16)  # of the two of a pair
        for depth in reversed(range(self.depth_reached)):
            start, stop = self._layers[depth : depth + 2]
            pairs = np.arange(start >> 1, stop >> 1)
            if start < whole:
                pairs = pairs[either[start >> 1 : stop >> 1] > 0]
            found.append(pairs)
            if depth and self._layers[depth - 1] < whole:
                is_walked[self.up.take(pairs)] = True
        spans = [slice(*span) for span in pairwise(np.cumsum([0, *map(len, found[::-1])]).tolist())]
        pairs = np.concatenate(found[::-1])
        place = np.empty(self.size >> 1, dtype=np.intp)
        place[pairs] = np.arange(pairs.size)
        up = self.up.take(pairs)
        above = place.take(up >> 1)
        branch = above + pairs.size * (up & 1)
        branch[spans[0]] = 2 * pairs.size + self._side.take(pairs[spans[0]])
        below = np.zeros(2 * pairs.size + self._side_entry.size, dtype=np.int32)
        left, right = below[: 2 * pairs.size].reshape(2, -1)
        for span in reversed(spans):
            below[branch[span]] = left[span] + right[span] + 1
        return _Walk(spans, pairs, above, branch, below)


LEVEL_BITS = 32
"""Bits below those of a level, for a number of steps: both are added at once."""


class _Walk(NamedTuple):
    """The pairs of insertions that a scan walks through, a step each.

    Their left branches have the numbers of the pairs, the right ones follow, then sides.
    """

    spans: list[slice]
    """The pairs of each layer."""
    pairs: Index
    """Their numbers, rising."""
    above: Index
    """index[pairs]: the place of the pair before each."""
    branch: Index
    """index[pairs]: the branch, or side, that each lies behind."""
    below: Int32
    """int32[branches and sides]: steps below each."""

    def ordered(self, sides: Index, first_step: Int32, entry: Int32, output: Int32) -> Int32:
        """int32[steps, 4]: the steps in the order of the walk, the smaller branch before the other.

        Twice the half-edge by which a step arrives, or one more where the right branch is walked
        first; outputs of the first branch and of the other; levels, int8 each, that the step reads
        and that they write. ``entry``, ``output``: of all pairs; ``first_step``: of the ``sides``.
        """
        count = self.pairs.size
        below = self.below[: 2 * count].reshape(2, -1)
        # No choices here but by arithmetic: a processor guesses half of them wrong.
        is_later = np.stack([below[1] < below[0], below[1] >= below[0]])
        moves = np.empty(self.below.size, dtype=np.int64)  # on to a branch: steps, and levels
        moves[: 2 * count] = ((~is_later).astype(np.int64) << LEVEL_BITS).ravel()
        moves[: 2 * count] += (below[::-1] * is_later + 1).ravel()
        moves[2 * count + sides] = first_step[:-1]
        at = moves.take(self.branch)
        for span in self.spans[1:]:
            at[span] += at.take(self.above[span])
        outputs, leads_on = output.take(self.pairs, axis=0).T.copy(), below > 0
        is_left, is_right = (outputs >= 0) | leads_on
        swap, level = is_right & (is_later[0] | ~is_left), (at >> LEVEL_BITS).astype(np.int8)
        outputs ^= (outputs[0] ^ outputs[1]) * swap
        leads_on ^= (leads_on[0] ^ leads_on[1]) & swap
        rows = np.empty((count, 4), dtype=np.int32)  # NumPy takes rows of 4 as fast as numbers
        rows[:, 0] = 2 * entry.take(self.pairs) + swap
        rows[:, 1], rows[:, 2] = outputs
        levels = rows.view(np.int8)[:, 12:]
        levels[:, 0] = level
        levels[:, 1] = leads_on[0] * (level + (is_left & is_right) + np.int8(1)) - np.int8(1)
        levels[:, 2] = leads_on[1] * (level + np.int8(1)) - np.int8(1)
        order = np.empty(count, dtype=np.intp)
        order[at & ((1 << LEVEL_BITS) - 1)] = np.arange(count)
        return rows.take(order, axis=0)
