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
from mltree.treesearch.explored import Explored, Keys, Lesson

# SPR neighbourhoods: every target edge of every prune, found breadth first, wave by wave.
#
# A candidate is a pair (prune, target).  ``prune[c]`` is a half-edge at an inner node ``u`` that
# faces the subtree to move; ``target[c]`` is the near-side half-edge of the edge to regraft on
# (its far end is ``twin[target[c]]``); ``depth[c]`` counts edges from the pruning point (1 is an
# NNI); ``parent[c]`` is the candidate whose target is the previous edge on the path, or -1.
#
# Trees stand side by side: half-edges are those of a :class:`mltree.tree.forest.Forest`, so that
# a wave, a sum or a choice takes no longer for eight trees than NumPy needs for the numbers.
#
# Both sides of the pruning point are explored.  The subtree itself, and the two edges at ``u`` that
# merge into the join branch, are never targets, so no pair occurs twice.  Candidates are created
# in sibling pairs (both branches of a node), depth by depth: the pairs make all the sums below
# plain reshapes.  A wave stops at a depth; the next one continues from the survivors only, which
# is how the lnL cut acts between launches.  Loops run over depths, never over candidates.


class Neighbourhood:
    """The candidates found so far, of one tree or of several."""

    def __init__(self, trees: Tree | Trees, prunes: Int32 | None = None) -> None:
        """Stand beside every pruning point; ``prunes`` defaults to all 3T - 6 of every tree."""
        self.forest = Forest.of([trees] if isinstance(trees, Tree) else trees)
        """The trees as they were."""
        if prunes is None:
            prunes = self.forest.inner
        self._twin = self.forest.twin
        self._left, self._right = self.forest.siblings
        exits = np.stack([self._left[prunes], self._right[prunes]], axis=1)
        ends = self._twin[exits]
        self.prunes: Int32 = prunes
        """int32[prunes]: half-edges that face the pruned subtrees."""
        self.tree_of_prune: Int32 = self.forest.tree_of_half[prunes]
        """int32[prunes]: which tree."""
        self.joins: Float64 = self.forest.lengths[..., self.forest.edge[exits]].sum(axis=-1)
        """float64[..., prunes]: join branches as long as their two parts."""
        self._side_entry: Int32 = ends.ravel()
        self._side_root: Int32 = ends[:, ::-1].ravel()
        self._layers = [0]
        empty = np.empty(0, dtype=np.int32)
        self.target: Int32 = empty
        """int32[candidates]: half-edge of the target edge, on the near side."""
        self._far: Int32 = empty
        self.parent: Int32 = empty
        """int32[candidates]: the candidate one edge nearer to the pruning point, or -1."""
        self.side: Int32 = empty
        """int32[candidates]: which side of which prune; ``side >> 1`` counts prunes."""

    @property
    def size(self) -> int:
        """Number of candidates so far."""
        return int(self.target.size)

    @property
    def depth_reached(self) -> int:
        """Depth of the deepest candidates so far; 0 before the first wave."""
        return len(self._layers) - 1

    @property
    def prune(self) -> Int32:
        """int32[candidates]: half-edge that faces the pruned subtree."""
        prune: Int32 = self.prunes.take(self.side >> 1)
        return prune

    @property
    def tree(self) -> Int32:
        """int32[candidates]: which tree."""
        tree: Int32 = self.tree_of_prune.take(self.side >> 1)
        return tree

    @property
    def depth(self) -> Int32:
        """int32[candidates]: edges from the pruning point; 1 is an NNI."""
        counts = np.diff(self._layers)
        return np.repeat(np.arange(1, counts.size + 1, dtype=np.int32), counts)

    @property
    def frontier(self) -> slice:
        """The candidates of the deepest layer, from which the next wave continues."""
        if self.depth_reached == 0:
            return slice(0, 0)
        return slice(self._layers[-2], self._layers[-1])

    def extend(self, depth_limit: int, alive: Bool | None = None) -> slice:
        """Go on to ``depth_limit`` and return the slice of the new candidates.

        ``alive`` (bool[frontier]) says which frontier candidates may be passed; all by
        default.
        """
        start = self.size
        side, parent, far = self._standpoints(alive)
        targets, parents, sides = [self.target], [self.parent], [self.side]
        fars = [self._far]
        first = start
        for _ in range(self.depth_reached, depth_limit):
            inner = np.flatnonzero(self.forest.is_inner.take(far))
            side, parent, far = side.take(inner), parent.take(inner), far.take(inner)
            if far.size == 0:
                break
            target = np.empty(2 * far.size, dtype=np.int32)
            target[::2], target[1::2] = self._left.take(far), self._right.take(far)
            targets.append(target)
            sides.append(np.repeat(side, 2))
            parents.append(np.repeat(parent, 2))
            side, far = sides[-1], self._twin.take(target)
            fars.append(far)
            parent = np.arange(first, first + target.size, dtype=np.int32)
            first += target.size
            self._layers.append(first)
        self.target = np.concatenate(targets)
        self._far = np.concatenate(fars)
        self.parent = np.concatenate(parents)
        self.side = np.concatenate(sides)
        return slice(start, first)

    def survivors(self, scores: Float64, thresholds: Float64) -> Bool:
        """bool[frontier]: neither it nor one before it scored below its tree's threshold.

        ``scores`` float64[candidates], ``thresholds`` float64[trees]; natural log.
        """
        alive = scores >= thresholds[self.tree_of_prune].take(self.side >> 1)
        for layer in self._slices()[1:]:
            alive[layer] &= alive.take(self.parent[layer])
        return alive[self.frontier]

    def scan(self, selected: slice | Int32, joins: Float64 | None = None) -> ScanTasks:
        """Depth-first tasks that score the ``selected`` candidates, in that order.

        ``selected`` is a slice, or strictly rising candidate indices.  The walk passes through
        the ancestors that it needs (output -1) and through nothing else.  ``joins`` is
        float64[..., prunes]: lengths of the join branches, by default the sums of their parts.
        """
        joins = self.joins if joins is None else joins
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
            join_length=joins[..., sides >> 1],
            first_step=first_step,
            far=self._far.take(branches),
            level_in=level_in.take(order),
            level_out=np.where(below.take(branches) > 0, level_out.take(branches), np.int32(-1)),
            output=rank.take(branches),
            outputs=int(n_outputs),
        )

    def _standpoints(self, alive: Bool | None) -> tuple[Int32, Int32, Int32]:
        """(side, parent candidate, half-edge by which its node is entered) to go on from."""
        if self.depth_reached == 0:
            side = np.arange(self._side_entry.size, dtype=np.int32)
            return side, np.full(side.size, -1, dtype=np.int32), self._side_entry
        index = np.arange(self.size, dtype=np.int32)[self.frontier]
        if alive is not None:
            index = index[alive]
        return self.side[index], index, self._far[index]

    def _slices(self) -> list[slice]:
        """One slice per depth, shallowest first."""
        return [slice(a, b) for a, b in zip(self._layers, self._layers[1:], strict=False)]

    def _walk_sizes(self, selected: Bool) -> tuple[Bool, Int32, Int32, Int32]:
        """Which candidates are walked, and steps: below each, of each pair, of each side.

        A step arrives at a node, whose two branches are a pair of candidates.
        """
        is_walked, below = selected, np.zeros(self.size, dtype=np.int32)
        steps = np.empty(self.size >> 1, dtype=np.int32)
        side_steps = np.zeros(self._side_entry.size, dtype=np.int32)
        for layer in reversed(self._slices()):
            left, right = (slice(layer.start + n, layer.stop, 2) for n in (0, 1))
            is_met = is_walked[left] | is_walked[right]
            own = steps[layer.start >> 1 : layer.stop >> 1]
            np.add(below[left], below[right], out=own)
            own += is_met
            if layer.start == 0:
                side_steps[self.side[left]] = own
            else:
                up = self.parent[left]
                below[up] = own
                is_walked[up] |= is_met
        return is_walked, below, steps, side_steps

    def _walk_order(
        self, is_walked: Bool, below: Int32, side_start: Int32
    ) -> tuple[Int32, Bool, Int32, Int32]:
        """Where every pair's step is in the walk, and whether that goes left first.

        And the stack levels that it reads, and that its branches write.
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
    looks = parallel_map(look, shares, likelihood.planners)
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
