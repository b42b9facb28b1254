"""SPR neighbourhoods: every target edge of every prune, found breadth first, wave by wave.

A candidate is a pair (prune, target).  ``prune[c]`` is a half-edge at an inner node ``u`` that
faces the subtree to move; ``target[c]`` is the near-side half-edge of the edge to regraft on
(its far end is ``twin[target[c]]``); ``depth[c]`` counts edges from the pruning point (1 is an
NNI); ``parent[c]`` is the candidate whose target is the previous edge on the path, or -1.

Trees stand side by side: half-edges are those of a :class:`mltree.tree.forest.Forest`, so that
a wave, a sum or a choice takes no longer for eight trees than NumPy needs for the numbers.

Both sides of the pruning point are explored.  The subtree itself, and the two edges at ``u`` that
merge into the join branch, are never targets, so no pair occurs twice.  Candidates are created
in sibling pairs (both branches of a node), depth by depth: the pairs make all the sums below
plain reshapes.  A wave stops at a depth; the next one continues from the survivors only, which
is how the lnL cut acts between launches.  Loops run over depths, never over candidates.
"""

from __future__ import annotations

import numpy as np

from mltree.arrays import Bool, Float64, Int32
from mltree.likelihood.scan_tasks import ScanTasks
from mltree.tree.forest import Forest, Trees
from mltree.tree.topology import Tree

__all__ = ["Neighbourhood"]


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
