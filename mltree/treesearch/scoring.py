"""Lazy scores of whole neighbourhoods, and joint re-scoring of their best insertions.

s0 of an insertion is the lnL with the target edge halved, the pendant length kept and the merged
branch as long as its two parts: a ranking, cheap enough for every insertion.  The few that rank
high are re-scored with the merged branch and the three branches around the insertion optimised.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.likelihood import dealt, in_batches
from mltree.likelihood.requests import Answers, Request, SearchLikelihood, Steps
from mltree.program.cases import Case
from mltree.program.planner import ScanTasks
from mltree.system.arrays import Bool, Float64, Int32
from mltree.system.process import parallel_map
from mltree.tree.forest import Forest, Trees
from mltree.tree.topology import Tree
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.move_cache import CacheUpdate, MoveCache, MoveKeys

# SPR neighbourhoods: every target edge of every prune, found breadth first, wave by wave.
#
# An insertion is a pair (prune, target).  ``prune[c]`` is a half-edge at an inner node ``u`` that
# faces the subtree to move; ``target[c]`` is the proximal half-edge of the edge to regraft on
# (its distal half is ``twin[target[c]]``); ``depth[c]`` counts edges from the pruning point (1 is
# an NNI); ``parent[c]`` is the insertion whose target is the previous edge on the path, or -1.
#
# Trees stand side by side: half-edges are those of a :class:`mltree.tree.forest.Forest`, so that
# a wave, a sum or a choice takes no longer for eight trees than NumPy needs for the numbers.
#
# Both sides of the pruning point are explored.  The subtree itself, and the two edges at ``u`` that
# become the merged branch, are never targets, so no pair occurs twice.  Insertions are created
# in sibling pairs (both branches of a node), depth by depth: the pairs make all the sums below
# plain reshapes.  A wave stops at a depth; the next one continues from the survivors only, which
# is how the lnL cut acts between launches.  Loops run over depths, never over insertions.


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
    likelihood: SearchLikelihood,
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
    likelihood: SearchLikelihood,
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
    likelihood: SearchLikelihood,
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
    likelihood: SearchLikelihood,
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
    likelihood: SearchLikelihood, cases: Sequence[Case], region: Neighbourhood, selected: Int32
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

    def answer(self, likelihood: SearchLikelihood) -> list[ScoredMoves]:
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
