"""Batched SPR rounds: score every move of every tree, apply many at once, halve what fails."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.likelihood import Likelihood, dealt, in_batches
from mltree.likelihood.requests import (
    Answers,
    Request,
    Steps,
    shape_keys,
    smoothed,
)
from mltree.program.cases import Case
from mltree.program.planner import ScanTasks
from mltree.system.arrays import Bool, Float64, Int32
from mltree.system.process import parallel_map
from mltree.system.values import Value
from mltree.tree.moves import SprLengths, apply_sprs, spr
from mltree.tree.topology import Forest, Tree, Trees
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.move_cache import CacheUpdate, MoveCache, MoveKeys

# s0 of an insertion is the lnL with the target edge halved, the pendant length kept and the merged
# branch as long as its two parts: a ranking, cheap enough for every insertion.  The few that rank
# high are re-scored with the merged branch and the three branches around the insertion optimised.

# SPR neighbourhoods: every target edge of every prune, found breadth first, wave by wave.
#
# An insertion is a pair (prune, target).  ``prune[c]`` is a half-edge at an inner node ``u`` that
# faces the subtree to move; ``target[c]`` is the proximal half-edge of the edge to regraft on
# (its distal half is ``twin[target[c]]``); ``depth[c]`` counts edges from the pruning point (1 is
# an NNI); ``parent[c]`` is the insertion whose target is the previous edge on the path, or -1.
#
# Half-edges are those of a Forest: waves, sums and choices are for all of its trees at once.
# Both sides of the pruning point are explored.  The subtree itself, and the two edges at ``u`` that
# become the merged branch, are never targets, so no pair occurs twice.  Insertions are created
# in sibling pairs (both branches of a node), depth by depth: the pairs make all the sums below
# plain reshapes.  A wave stops at a depth; the next one continues from the survivors of the cut.


class Neighbourhood:
    """SPR neighbourhoods as far as they were explored, of one tree or of several."""

    def __init__(self, trees: Tree | Trees, prunes: Int32 | None = None) -> None:
        """Stand beside every pruning point; ``prunes`` defaults to all 3T - 6 of every tree."""
        self.forest = Forest.of([trees] if isinstance(trees, Tree) else trees)
        """The trees as they were when the neighbourhood was begun."""
        if prunes is None:
            prunes = self.forest.inner
        self._twin = self.forest.twin
        self._left, self._right = self.forest.siblings
        exits = np.stack([self._left[prunes], self._right[prunes]], axis=1)
        ends = self._twin[exits]
        self.prunes: Int32 = prunes
        """int32[prunes]: half-edges that face the pruned subtrees."""
        self.tree_of_prune: Int32 = self.forest.tree_of_half[prunes]
        """int32[prunes]: number of the tree."""
        self.merged: Float64 = self.forest.lengths[..., self.forest.edge[exits]].sum(axis=-1)
        """float64[..., prunes]: merged branches as long as their two parts."""
        self._side_entry: Int32 = ends.ravel()
        self._side_root: Int32 = ends[:, ::-1].ravel()
        self._layers = [0]
        empty = np.empty(0, dtype=np.int32)
        self.target: Int32 = empty
        """int32[insertions]: half-edge of the target edge, on its proximal side."""
        self._distal: Int32 = empty
        self.parent: Int32 = empty
        """int32[insertions]: the insertion one edge nearer to the pruning point, or -1."""
        self.side: Int32 = empty
        """int32[insertions]: side of the pruning point; ``side >> 1`` is the prune."""

    @property
    def size(self) -> int:
        """Number of insertions so far."""
        return int(self.target.size)

    @property
    def depth_reached(self) -> int:
        """Depth of the deepest insertions so far; 0 before the first wave."""
        return len(self._layers) - 1

    @property
    def prune(self) -> Int32:
        """int32[insertions]: half-edge that faces the pruned subtree."""
        prune: Int32 = self.prunes.take(self.side >> 1)
        return prune

    @property
    def tree(self) -> Int32:
        """int32[insertions]: number of the tree."""
        tree: Int32 = self.tree_of_prune.take(self.side >> 1)
        return tree

    @property
    def depth(self) -> Int32:
        """int32[insertions]: edges from the pruning point; 1 is an NNI."""
        counts = np.diff(self._layers)
        return np.repeat(np.arange(1, counts.size + 1, dtype=np.int32), counts)

    @property
    def frontier(self) -> slice:
        """The insertions of the deepest layer, from which the next wave continues."""
        if self.depth_reached == 0:
            return slice(0, 0)
        return slice(self._layers[-2], self._layers[-1])

    def extend(self, depth_limit: int, alive: Bool | None = None) -> slice:
        """Go on to ``depth_limit`` and return the slice of the new insertions.

        ``alive`` (bool[frontier]) says which frontier insertions may be passed; all by
        default.
        """
        start = self.size
        side, parent, distal = self._standpoints(alive)
        targets, parents, sides = [self.target], [self.parent], [self.side]
        distals = [self._distal]
        first = start
        for _ in range(self.depth_reached, depth_limit):
            inner = np.flatnonzero(self.forest.is_inner.take(distal))
            side, parent, distal = side.take(inner), parent.take(inner), distal.take(inner)
            if distal.size == 0:
                break
            target = np.empty(2 * distal.size, dtype=np.int32)
            target[::2], target[1::2] = self._left.take(distal), self._right.take(distal)
            targets.append(target)
            sides.append(np.repeat(side, 2))
            parents.append(np.repeat(parent, 2))
            side, distal = sides[-1], self._twin.take(target)
            distals.append(distal)
            parent = np.arange(first, first + target.size, dtype=np.int32)
            first += target.size
            self._layers.append(first)
        self.target = np.concatenate(targets)
        self._distal = np.concatenate(distals)
        self.parent = np.concatenate(parents)
        self.side = np.concatenate(sides)
        return slice(start, first)

    def survivors(self, scores: Float64, thresholds: Float64) -> Bool:
        """bool[frontier]: True if no insertion on the path scored below its tree's threshold.

        ``scores`` float64[insertions], ``thresholds`` float64[trees]; natural log.
        """
        alive = scores >= thresholds[self.tree_of_prune].take(self.side >> 1)
        for layer in self._slices()[1:]:
            alive[layer] &= alive.take(self.parent[layer])
        return alive[self.frontier]

    def scan(self, selected: slice | Int32, merged: Float64 | None = None) -> ScanTasks:
        """Depth-first tasks that score the ``selected`` insertions, in that order.

        ``selected`` is a slice, or strictly rising insertion indices.  The walk passes through
        the ancestors that it needs (output -1) and through nothing else.  ``merged`` is
        float64[..., prunes]: lengths of the merged branches, by default the sums of their parts.
        """
        merged = self.merged if merged is None else merged
        rank = np.full(self.size, -1, dtype=np.int32)
        n_outputs = rank[selected].size
        rank[selected] = np.arange(n_outputs, dtype=np.int32)
        is_walked, below, steps, side_steps = self._walk_sizes(rank >= 0)
        sides = np.argsort(-side_steps, kind="stable")[: np.count_nonzero(side_steps)]
        first_step = np.zeros(sides.size + 1, dtype=np.int32)
        np.cumsum(side_steps[sides], out=first_step[1:])
        side_start = np.zeros(side_steps.size, dtype=np.int32)
        side_start[sides] = first_step[:-1]
        position, left_first, level_in, level_out = self._walk_order(is_walked, below, side_start)
        walked = np.flatnonzero(steps)
        order = np.empty(walked.size, dtype=np.int32)
        order[position[walked]] = walked
        first = 2 * order + ~left_first.take(order)
        branches = np.stack([first, first ^ 1])
        return ScanTasks(
            tree=self.tree_of_prune[sides >> 1],
            prune=self.prunes[sides >> 1],
            root=self._side_root[sides],
            join_length=merged[..., sides >> 1],
            first_step=first_step,
            far=self._distal.take(branches),
            level_in=level_in.take(order),
            level_out=np.where(below.take(branches) > 0, level_out.take(branches), np.int32(-1)),
            output=rank.take(branches),
            outputs=int(n_outputs),
        )

    def _standpoints(self, alive: Bool | None) -> tuple[Int32, Int32, Int32]:
        """(side, parent insertion, half-edge by which its node is entered) to go on from."""
        if self.depth_reached == 0:
            side = np.arange(self._side_entry.size, dtype=np.int32)
            return side, np.full(side.size, -1, dtype=np.int32), self._side_entry
        index = np.arange(self.size, dtype=np.int32)[self.frontier]
        if alive is not None:
            index = index[alive]
        return self.side[index], index, self._distal[index]

    def _slices(self) -> list[slice]:
        """One slice per depth, shallowest first."""
        return [slice(a, b) for a, b in zip(self._layers, self._layers[1:], strict=False)]

    def _walk_sizes(self, selected: Bool) -> tuple[Bool, Int32, Int32, Int32]:
        """Return the walked insertions, and steps: below each, of each pair, of each side.

        A step arrives at a node, whose two branches are a pair of insertions.
        """
        is_walked, below = selected, np.zeros(self.size, dtype=np.int32)
        steps = np.empty(self.size >> 1, dtype=np.int32)
        side_steps = np.zeros(self._side_entry.size, dtype=np.int32)
        for layer in reversed(self._slices()):
            left, right = (slice(layer.start + n, layer.stop, 2) for n in (0, 1))
            is_met = is_walked[left] | is_walked[right]
            pair_steps = steps[layer.start >> 1 : layer.stop >> 1]
            np.add(below[left], below[right], out=pair_steps)
            pair_steps += is_met
            if layer.start == 0:
                side_steps[self.side[left]] = pair_steps
            else:
                up = self.parent[left]
                below[up] = pair_steps
                is_walked[up] |= is_met
        return is_walked, below, steps, side_steps

    def _walk_order(
        self, is_walked: Bool, below: Int32, side_start: Int32
    ) -> tuple[Int32, Bool, Int32, Int32]:
        """Return every pair's place in the walk, whether it goes left first, and stack levels.

        The levels are the one that the step reads, and those that its branches write.
        """
        position = np.empty(self.size >> 1, dtype=np.int32)
        level_in = np.zeros_like(position)
        left_first = np.empty(position.size, dtype=np.bool_)
        after, level_out = np.empty_like(below), np.empty_like(below)
        for layer in self._slices():
            pairs = slice(layer.start >> 1, layer.stop >> 1)
            left, right = (slice(layer.start + n, layer.stop, 2) for n in (0, 1))
            if layer.start == 0:
                position[pairs] = side_start[self.side[left]]
            else:
                up = self.parent[left]
                position[pairs] = after.take(up)
                level_in[pairs] = level_out.take(up)
            both = is_walked[left] & is_walked[right]
            is_left = np.where(both, below[left] <= below[right], is_walked[left])
            left_first[pairs] = is_left
            next_step, level = position[pairs] + 1, level_in[pairs]
            after[left] = next_step + below[right] * ~is_left
            after[right] = next_step + below[left] * is_left
            level_out[left] = level + (both & is_left)
            level_out[right] = level + (both & ~is_left)
        return position, left_first, level_in, level_out


LEAST_SHARE = 8192
"""Prunes of a share at least: enough to pay for a launch. Searches on an H200 with its 16
cores, seconds as a whole / in shares of 8,192 / of 512 prunes: 1,288 taxa 8.1 / 7.5 / 17.2, 218
taxa 4.3 / 3.7 / 6.3, 50 replicates of 47 taxa 4.8 / 5.5 / 9.7."""


class RescoredMoves(NamedTuple):
    """Re-scored insertions of one tree, as arrays of equal length."""

    prune: Int32
    """int32[n]: half-edge that faces the pruned subtree."""
    target: Int32
    """int32[n]: half-edge of the target edge, on its proximal side."""
    lnl: Float64
    """float64[n]: lnL of the tree after the move, natural log."""
    lengths: Float64
    """float64[n, 4]: proximal, distal, pendant, merged; [n, 4, parts] if parts have their own."""

    @classmethod
    def of(cls, shares: Sequence[RescoredMoves]) -> RescoredMoves:
        """Concatenate the moves of all shares."""
        some = [moves for moves in shares if moves.prune.size] or shares[:1]
        return cls(*map(np.concatenate, zip(*some, strict=True)))

    def at(self, index: slice | NDArray[np.intp]) -> RescoredMoves:
        """Select moves, in the order of the indices."""
        return RescoredMoves(
            self.prune[index], self.target[index], self.lnl[index], self.lengths[index]
        )


class MoveRules(NamedTuple):
    """Rules by which moves are scored: phase, round settings, constraint."""

    phase: PhaseSettings
    settings: RoundSettings
    constraint: Constraint | None = None


class PruneShare(NamedTuple):
    """A share of the prunes: the ``number``-th of every ``of``."""

    number: int = 0
    of: int = 1


ALL_PRUNES = PruneShare()


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
        updates = (
            np.concatenate(keys) for keys in zip(*(one.update for one in shares), strict=True)
        )
        return cls(
            RescoredMoves.of([one.moves for one in shares]),
            sum(one.insertions for one in shares),
            CacheUpdate(*updates),
        )


def score_moves(
    likelihood: Likelihood,
    trees: Sequence[Tree],
    cases: Sequence[Case],
    lnls: Sequence[float],
    caches: Sequence[MoveCache],
    rules: MoveRules,
    share: PruneShare = ALL_PRUNES,
) -> list[ScoredMoves]:
    """Score the moves around every tree, as many trees at once as is best.

    ``caches``: the move cache of each tree's search.
    """
    order = dealt(cases).tolist()
    trees, cases = [trees[n] for n in order], [cases[n] for n in order]
    lnls, caches = [lnls[n] for n in order], [caches[n] for n in order]

    def at_once(first: int) -> int:
        return likelihood.trees_at_once(trees[first:], cases[first:])

    def score(batch: slice) -> list[ScoredMoves]:
        return _scored(
            likelihood, trees[batch], cases[batch], lnls[batch], caches[batch], rules, share
        )

    scored = list(chain.from_iterable(in_batches(len(trees), at_once, score)))
    return [scored[place] for place in np.argsort(order)]


def _scored(
    likelihood: Likelihood,
    trees: Sequence[Tree],
    cases: Sequence[Case],
    lnls: Sequence[float],
    caches: Sequence[MoveCache],
    rules: MoveRules,
    share: PruneShare,
) -> list[ScoredMoves]:
    """Score the moves of trees side by side, some prunes at a time."""
    phase, settings, constraint = rules
    forest = Forest(trees)
    keys = MoveKeys(forest)
    prunes = keys.open_prunes(caches)[share.number :: share.of]
    floors = [lnl - phase.breadth * settings.window for lnl in lnls]
    rejected, goals = np.asarray(lnls) - settings.rejection, np.asarray(lnls) + settings.min_gain

    def look(some: Int32) -> tuple[list[RescoredMoves], NDArray[np.intp]]:
        region, s0 = scan(likelihood, forest, cases, lnls, phase, settings, some)
        allowed = _masked(trees, region, s0, constraint)
        selected = shortlist(region, allowed, floors, round(phase.breadth * settings.keep))
        is_open = keys.open_moves(caches, region.prune[selected], region.target[selected])
        rescored = rescore(likelihood, cases, region, selected[is_open], rejected)
        return rescored, np.bincount(region.tree, minlength=len(trees))

    shares = np.array_split(prunes, max(1, prunes.size // LEAST_SHARE))
    looks = parallel_map(look, shares, likelihood.planners)
    rescored = [
        RescoredMoves.of(moves) for moves in zip(*(moves for moves, _ in looks), strict=True)
    ]
    insertions = np.sum([counts for _, counts in looks], axis=0)
    updates = keys.updates(prunes, rescored, rejected, goals)
    return [ScoredMoves(*all_) for all_ in zip(rescored, insertions.tolist(), updates, strict=True)]


def _masked(
    trees: Sequence[Tree], region: Neighbourhood, s0: Float64, constraint: Constraint | None
) -> Float64:
    """Set the scores of moves that the constraint forbids to -inf."""
    if constraint is None:
        return s0
    forest = region.forest
    ends = np.searchsorted(region.tree_of_prune, np.arange(1, len(trees)))
    prunes = np.split(forest.in_tree(region.prunes), ends)
    forbidden = np.concatenate(
        [constraint.forbidden(tree, of_tree) for tree, of_tree in zip(trees, prunes, strict=True)]
    )
    edges = forest.edge[region.target] - forest.first_edge[region.tree]
    return np.where(forbidden[region.side >> 1, edges], -np.inf, s0)


def scan(
    likelihood: Likelihood,
    trees: Trees,
    cases: Sequence[Case],
    lnls: Sequence[float],
    phase: PhaseSettings,
    settings: RoundSettings,
    prunes: Int32 | None = None,
) -> tuple[Neighbourhood, Float64]:
    """Return the neighbourhoods of all trees up to the radius, and s0 of their insertions.

    Scored in waves; each goes on where s0 stayed above the tree's lnL less the cut.  ``prunes``
    int32[prunes]: half-edges of the forest; all where None.
    """
    region = Neighbourhood(trees, prunes)
    scores = np.empty(0)
    for depth in _wave_ends(phase.radius, settings.waves):
        alive = region.survivors(scores, np.asarray(lnls) - phase.cut)
        new = region.extend(depth, alive)
        if new.start == new.stop:
            break
        s0 = likelihood.insertions(region.forest, cases, region.scan(new))
        scores = np.concatenate([scores, s0])
    return region, scores


def _wave_ends(radius: int, waves: Sequence[int]) -> list[int]:
    return [*(depth for depth in waves if depth < radius), radius]


def shortlist(region: Neighbourhood, s0: Float64, floors: Sequence[float], keep: int) -> Int32:
    """Return rising indices of the ``keep`` best insertions of every prune, s0 above its floor."""
    prune = region.side >> 1
    insertion = np.flatnonzero(s0 > np.asarray(floors)[region.tree_of_prune].take(prune))
    prune = prune[insertion]
    counts = np.bincount(prune, minlength=len(region.prunes))
    crowded = np.flatnonzero((counts > keep).take(prune))
    best_first = crowded[_falling(s0[insertion[crowded]])]
    together = best_first[np.argsort(_narrow(prune[best_first], len(region.prunes)), kind="stable")]
    counts[counts <= keep] = 0
    place = np.arange(together.size) - np.repeat(np.cumsum(counts) - counts, counts)
    is_kept = np.ones(insertion.size, np.bool_)
    is_kept[together[place >= keep]] = False
    return insertion[is_kept].astype(np.int32)


def _falling(values: Float64) -> NDArray[np.intp]:
    """Return indices in the order of falling values, rising among equal ones.

    A sort that keeps the order of equal values takes five times as long.
    """
    order = np.argsort(-values)
    values = values[order]
    is_tied = values[1:] == values[:-1]
    if is_tied.any():
        tied = np.flatnonzero(np.append(is_tied, False) | np.append(False, is_tied))
        which = np.cumsum(np.append(False, ~is_tied))[tied]
        ties = order[tied]
        order[tied] = ties[np.lexsort((ties, which))]
    return order


def _narrow(numbers: Int32, end: int) -> NDArray[Any]:
    """Return numbers below ``end`` in 16 bits if they fit, which sort much faster."""
    return numbers.astype(np.uint16) if end <= 1 << 16 else numbers


def rescore(
    likelihood: Likelihood,
    cases: Sequence[Case],
    region: Neighbourhood,
    selected: Int32,
    rejected: Float64 | None = None,
) -> list[RescoredMoves]:
    """Score the selected insertions by joint Newton steps, tree by tree.

    Scores may be rough below the lnL ``rejected`` f64[trees].
    """
    lnl, lengths = np.empty(0), np.empty((0, 4))
    if selected.size:
        merged = _merged_lengths(likelihood, cases, region, selected)
        floors = None if rejected is None else rejected[region.tree[selected]]
        lnl, three = likelihood.refine(region.forest, cases, region.scan(selected, merged), floors)
        own_merged = merged[..., region.side[selected] >> 1, None]
        lengths = np.concatenate([three, own_merged], axis=-1)
        lengths = np.moveaxis(lengths, (-2, -1), (0, 1))
    prune, target = (region.forest.in_tree(of[selected]) for of in (region.prune, region.target))
    every, tree = RescoredMoves(prune, target, lnl, lengths), region.tree[selected]
    return [every.at(np.flatnonzero(tree == n)) for n in range(len(region.forest))]


def _merged_lengths(
    likelihood: Likelihood, cases: Sequence[Case], region: Neighbourhood, selected: Int32
) -> Float64:
    """f64[..., prunes]: merged branches, optimised for prunes with a selected target."""
    used = np.flatnonzero(np.bincount(region.side[selected] >> 1))
    merged = region.merged.copy()
    merged[..., used] = likelihood.join_lengths(region.forest, cases, region.prunes[used])
    return merged


class ScoreMoves(Request, eq=False):
    """Request the scored moves around every tree."""

    lnls: Sequence[float]
    """lnL of each tree."""
    caches: Sequence[MoveCache]
    """Move cache of each tree's search."""
    rules: MoveRules
    share: PruneShare = ALL_PRUNES
    by_tree = (*Request.by_tree, "lnls", "caches")

    @property
    def kind(self) -> Hashable:
        """Requests with the same rules can be joined."""
        return super().kind, self.rules

    def answer(self, likelihood: Likelihood) -> list[ScoredMoves]:
        """RescoredMoves, tree by tree."""
        return score_moves(
            likelihood, self.trees, self.cases, self.lnls, self.caches, self.rules, self.share
        )

    def shares(self, count: int) -> Sequence[Request]:
        """Deal the prunes of all trees out to ``count`` requests."""
        return [replace(self, share=PruneShare(n, count)) for n in range(count)]

    def whole(self, answers: Sequence[Answers]) -> Answers:
        """RescoredMoves, tree by tree."""
        return [ScoredMoves.of(shares) for shares in zip(*answers, strict=True)]


def scored_moves(
    trees: Sequence[Tree],
    cases: Sequence[Case],
    lnls: Sequence[float],
    caches: Sequence[MoveCache],
    rules: MoveRules,
) -> Steps[Sequence[ScoredMoves]]:
    """Request the moves around every tree (:func:`score_moves`)."""
    answer = yield ScoreMoves(trees, cases, lnls, caches, rules)
    return list(answer)


class Allowed(Protocol):
    """A rule that trees must satisfy; see :class:`mltree.treesearch.constraint.Constraint`."""

    def satisfied(self, tree: Tree) -> bool:
        """Return True if the tree is allowed."""


def best_moves(moves: RescoredMoves, lnl: float, min_gain: float) -> RescoredMoves:
    """Select the best target of every prune that gains ``min_gain`` or more, best moves first.

    ``lnl`` is that of the tree before any move.
    """
    good = np.flatnonzero(moves.lnl >= lnl + min_gain)
    good = good[np.lexsort((-moves.lnl[good], moves.prune[good]))]
    best = good[np.flatnonzero(np.diff(moves.prune[good], prepend=-1))]
    best = best[np.argsort(-moves.lnl[best], kind="stable")]
    return moves.at(best)


def apply_moves(tree: Tree, moves: RescoredMoves, allowed: Allowed | None = None) -> RescoredMoves:
    """Apply the moves that the loose rule lets through, in order, and return those.

    Moves that satisfy the constraint one by one but not together are left out.
    """
    if allowed is None:
        return _applied(tree, moves)
    before = tree.copy()
    done = _applied(tree, moves)
    if allowed.satisfied(tree):
        return done
    kept = np.empty(0, dtype=np.intp)
    for move in range(done.prune.size):
        tree.assign(before)
        _applied(tree, done.at(np.append(kept, move)))
        if allowed.satisfied(tree):
            kept = np.append(kept, move)
    tree.assign(before)
    return _applied(tree, done.at(kept))


def better_half(moves: RescoredMoves) -> RescoredMoves:
    """Return the better half of moves sorted by gain; none of a single one."""
    return moves.at(slice(moves.prune.size // 2))


def _applied(tree: Tree, moves: RescoredMoves) -> RescoredMoves:
    applied, _ = apply_sprs(tree, moves.prune, moves.target, moves.lengths)
    return moves.at(np.flatnonzero(applied))


# Fully smoothed candidates: the trees of near misses, smoothed whole and side by side.
#
# Near the optimum the joint score of three branches undervalues a move by a few tenths of lnL: on
# the 47-taxon set the two moves that improve the tree score -0.32 and -0.17 and end at +0.27 and
# +0.11 once all branches follow.  So when a round finds nothing to apply, its best near misses are
# applied to copies of the tree, one each, and smoothed in one launch.
#
# Where inner branches have no length, the nearest misses by far are those that only put them in
# another order, and end where the tree is: trees that differ only so are not smoothed.


class FullSmoothing(NamedTuple):
    """Settings of the full smoothing of candidates."""

    limit: int
    """Trees that are smoothed for a candidate, at most."""
    settings: RoundSettings
    free_length: float = 0.0
    """Inner branches up to here say nothing about the order of their neighbours."""


def fully_smoothed_moves(
    candidates: Sequence[CandidateTree],
    case: Case,
    rescored: Sequence[RescoredMoves],
    smoothing: FullSmoothing,
) -> Steps[list[RescoredMoves]]:
    """Return each candidate's near miss that gains most once all its branches are smoothed.

    The smoothed trees differ from the candidate, and from each other, in shape.  One move is
    returned for each candidate, or none: together, two such moves gained less than either
    (R_Laurasiatherian).
    """
    settings, chosen, trees = smoothing.settings, [], []
    for candidate, moves in zip(candidates, rescored, strict=True):
        near = best_moves(moves, candidate.lnl, -settings.smoothing_margin)
        index, moved = yield from _different(candidate.tree, case, near, smoothing)
        chosen.append(near.at(index))
        trees += moved
    if not trees:
        return chosen
    floors = np.repeat(
        [candidate.lnl + settings.min_gain for candidate in candidates],
        [moves.prune.size for moves in chosen],
    )
    lnls = yield from smoothed(trees, [case] * len(trees), settings.full_epsilon, floors.tolist())
    ends = np.cumsum([moves.prune.size for moves in chosen])[:-1]
    parts = np.split(np.array(lnls), ends)
    return [
        best_moves(moves._replace(lnl=part), candidate.lnl, settings.min_gain).at(slice(1))
        for candidate, moves, part in zip(candidates, chosen, parts, strict=True)
    ]


def _different(
    tree: Tree, case: Case, moves: RescoredMoves, smoothing: FullSmoothing
) -> Steps[tuple[NDArray[np.intp], list[Tree]]]:
    """Select the first moves that lead to different shapes: their indices, and the trees."""
    limit, free_length = smoothing.limit, smoothing.free_length
    seen: dict[int, tuple[int, Tree]] = {}
    every = moves.prune.size
    for first in range(0, every, 2 * limit):
        span = range(first, min(first + 2 * limit, every))
        trees = [_moved(tree, moves, n) for n in span]
        shape, *keys = yield from shape_keys([tree, *trees], [case] * (1 + len(trees)), free_length)
        for n, moved, key in zip(span, trees, keys, strict=True):
            if key != shape:
                seen.setdefault(key, (n, moved))
        if len(seen) >= limit:
            break
    chosen = list(seen.values())[:limit]
    return np.array([n for n, _ in chosen], dtype=np.intp), [moved for _, moved in chosen]


def _moved(tree: Tree, moves: RescoredMoves, n: int) -> Tree:
    """Return a copy of the tree after the n-th move."""
    moved = tree.copy()
    lengths = SprLengths(*moves.lengths[n])
    spr(moved, int(moves.prune[n]), int(moves.target[n]), lengths)
    return moved


class RoundOutcome(Value):
    """The outcome of an SPR round for one candidate tree."""

    lnl: float
    """lnL after the round, natural log."""
    gain: float
    """Rise in lnL; 0 where nothing was applied."""
    moves: int
    """Moves applied and kept."""
    insertions: int
    """Insertions scored."""
    rescored: int
    """Insertions optimised jointly."""


def spr_round(
    candidates: Sequence[CandidateTree],
    case: Case,
    phase: PhaseSettings,
    settings: RoundSettings,
    constraint: Constraint | None = None,
    cache: MoveCache | None = None,
    free_length: float = 0.0,
) -> Steps[list[RoundOutcome]]:
    """Do an SPR round on all candidates; their trees and lnLs change in place.

    A candidate stays active while its rounds gain enough.  ``cache``: read, and added to.
    ``free_length``: trees that differ in branches up to here alone are one.
    """
    cache = MoveCache() if cache is None else cache
    before = [candidate.lnl for candidate in candidates]
    trees = [candidate.tree for candidate in candidates]
    rules = MoveRules(phase, settings, constraint)
    scored = yield from scored_moves(
        trees, [case] * len(trees), before, [cache] * len(trees), rules
    )
    rescored = [around.moves for around in scored]
    better = [
        best_moves(moves, lnl, settings.min_gain)
        for moves, lnl in zip(rescored, before, strict=True)
    ]
    epsilon, least_gain = settings.smooth_epsilon, phase.min_round_gain
    if phase.fully_smoothed:
        epsilon, least_gain = settings.full_epsilon, settings.min_gain
        smoothing = FullSmoothing(phase.fully_smoothed, settings, free_length)
        better = yield from _with_fully_smoothed(candidates, case, rescored, better, smoothing)
    counts = yield from _apply_guarded(candidates, case, better, epsilon, constraint)
    updates = [around.update for around in scored]
    counting = [phase.skips_stalled or count == 0 for count in counts]
    cache.add(updates, stalled=list(compress(updates, counting)))
    outcomes = []
    for candidate, lnl, count, around in zip(candidates, before, counts, scored, strict=True):
        gain = candidate.lnl - lnl
        candidate.rounds += 1
        candidate.active = (
            count > 0 and gain >= least_gain and candidate.rounds < settings.max_rounds
        )
        sizes = around.insertions, int(around.moves.prune.size)
        outcomes.append(RoundOutcome(candidate.lnl, gain, count, *sizes))
    return outcomes


def _with_fully_smoothed(
    candidates: Sequence[CandidateTree],
    case: Case,
    rescored: Sequence[RescoredMoves],
    better: Sequence[RescoredMoves],
    smoothing: FullSmoothing,
) -> Steps[list[RescoredMoves]]:
    """Return the moves; for a tree without any, the near miss that full smoothing redeems."""
    stalled = [n for n, moves in enumerate(better) if moves.prune.size == 0]
    near = [candidates[n] for n in stalled], case, [rescored[n] for n in stalled]
    smoothed_moves = yield from fully_smoothed_moves(*near, smoothing)
    redeemed = dict(zip(stalled, smoothed_moves, strict=True))
    return [redeemed.get(n, moves) for n, moves in enumerate(better)]


def _apply_guarded(
    candidates: Sequence[CandidateTree],
    case: Case,
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
        lnls = yield from smoothed(trees, [case] * len(trees), epsilon)
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
