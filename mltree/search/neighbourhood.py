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

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mltree.likelihood.scan_tasks import ScanTasks
from mltree.tree.forest import Forest
from mltree.tree.topology import Tree

__all__ = ["Neighbourhood"]

Int = NDArray[np.int32]
Bool = NDArray[np.bool_]
Float = NDArray[np.float64]


class Neighbourhood:
    """The candidates found so far, of one tree or of several."""

    def __init__(self, trees: Tree | Sequence[Tree] | Forest, prunes: Int | None = None) -> None:
        """Stand beside every pruning point; ``prunes`` defaults to all 3T - 6 of every tree."""
        if isinstance(trees, Tree):
            trees = [trees]
        self.forest = trees if isinstance(trees, Forest) else Forest(trees)
        """The trees as they were."""
        if prunes is None:
            prunes = self.forest.inner
        self._twin = self.forest.twin
        self._left, self._right = self.forest.siblings
        exits = np.stack([self._left[prunes], self._right[prunes]], axis=1)
        ends = self._twin[exits]
        self.prunes: Int = prunes
        """int32[prunes]: half-edges that face the pruned subtrees."""
        self.tree_of_prune: Int = self.forest.tree_of_half[prunes]
        """int32[prunes]: which tree."""
        self.joins: Float = self.forest.lengths[..., self.forest.edge[exits]].sum(axis=-1)
        """float64[..., prunes]: join branches as long as their two parts."""
        self._side_entry: Int = ends.ravel()
        self._side_root: Int = ends[:, ::-1].ravel()
        self._layers = [0]
        empty = np.empty(0, dtype=np.int32)
        self.target: Int = empty
        """int32[candidates]: half-edge of the target edge, on the near side."""
        self._far: Int = empty
        self.parent: Int = empty
        """int32[candidates]: the candidate one edge nearer to the pruning point, or -1."""
        self.side: Int = empty
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
    def prune(self) -> Int:
        """int32[candidates]: half-edge that faces the pruned subtree."""
        prune: Int = self.prunes[self.side >> 1]
        return prune

    @property
    def tree(self) -> Int:
        """int32[candidates]: which tree."""
        tree: Int = self.tree_of_prune[self.side >> 1]
        return tree

    @property
    def depth(self) -> Int:
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
            inner = np.flatnonzero(self.forest.is_inner[far])
            side, parent, far = side[inner], parent[inner], far[inner]
            if far.size == 0:
                break
            target = np.empty(2 * far.size, dtype=np.int32)
            target[::2], target[1::2] = self._left[far], self._right[far]
            targets.append(target)
            sides.append(np.repeat(side, 2))
            parents.append(np.repeat(parent, 2))
            side, far = sides[-1], self._twin[target]
            fars.append(far)
            parent = np.arange(first, first + target.size, dtype=np.int32)
            first += target.size
            self._layers.append(first)
        self.target = np.concatenate(targets)
        self._far = np.concatenate(fars)
        self.parent = np.concatenate(parents)
        self.side = np.concatenate(sides)
        return slice(start, first)

    def survivors(self, scores: Float, thresholds: Float) -> Bool:
        """bool[frontier]: neither it nor one before it scored below its tree's threshold.

        ``scores`` float64[candidates], ``thresholds`` float64[trees]; natural log.
        """
        alive = scores >= thresholds[self.tree]
        for layer in self._slices()[1:]:
            alive[layer] &= alive[self.parent[layer]]
        return alive[self.frontier]

    def scan(self, selected: slice | Int, joins: Float | None = None) -> ScanTasks:
        """Depth-first tasks that score the ``selected`` candidates, in that order.

        ``selected`` is a slice, or strictly rising candidate indices.  The walk passes through
        the ancestors that it needs (output -1) and through nothing else.  ``joins`` is
        float64[..., prunes]: lengths of the join branches, by default the sums of their parts.
        """
        joins = self.joins if joins is None else joins
        rank = np.full(self.size, -1, dtype=np.int32)
        n_outputs = rank[selected].size
        rank[selected] = np.arange(n_outputs, dtype=np.int32)
        size, side_size = self._walk_sizes(rank >= 0)
        sides = np.argsort(-side_size, kind="stable")[: np.count_nonzero(side_size)]
        first_step = np.zeros(sides.size + 1, dtype=np.int32)
        np.cumsum(side_size[sides], out=first_step[1:])
        side_start = np.zeros(side_size.size, dtype=np.int32)
        side_start[sides] = first_step[:-1]
        position, level_in, level_out = self._walk_order(size, side_start)
        walked = np.flatnonzero(size)
        order = np.empty(walked.size, dtype=np.int32)
        order[position[walked]] = walked
        across = order ^ 1
        return ScanTasks(
            tree=self.tree_of_prune[sides >> 1],
            prune=self.prunes[sides >> 1],
            root=self._side_root[sides],
            join_length=joins[..., sides >> 1],
            first_step=first_step,
            near=self.target.take(order),
            far=self._far.take(order),
            sibling=self._far.take(across),
            level_in=level_in.take(order),
            level_out=np.where(size > 1, level_out, np.int32(-1)).take(order),
            partner=np.where(size > 0, position, np.int32(-1)).take(across),
            output=rank.take(order),
            outputs=int(n_outputs),
        )

    def _standpoints(self, alive: Bool | None) -> tuple[Int, Int, Int]:
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

    def _walk_sizes(self, selected: Bool) -> tuple[Int, Int]:
        """Steps at and below each candidate (0: not walked), and steps of each side."""
        size = selected.astype(np.int32)
        side_size = np.zeros(self._side_entry.size, dtype=np.int32)
        for layer in reversed(self._slices()):
            here = size[layer]
            pair = here[::2] + here[1::2]
            up = self.parent[layer][::2]
            if layer.start == 0:
                side_size[self.side[layer][::2]] = pair
            else:
                size[up] = pair + np.maximum(size[up], pair > 0)
        return size, side_size

    def _walk_order(self, size: Int, side_start: Int) -> tuple[Int, Int, Int]:
        """Preorder position and stack levels (read, written) of every walked candidate."""
        position = np.empty(self.size, dtype=np.int32)
        level_in = np.zeros(self.size, dtype=np.int32)
        level_out = np.zeros(self.size, dtype=np.int32)
        for layer in self._slices():
            up = self.parent[layer][::2]
            if layer.start == 0:
                start = side_start[self.side[layer][::2]]
                level = np.zeros_like(start)
            else:
                start, level = position[up] + 1, level_out[up]
            here = size[layer]
            left, right = here[::2], here[1::2]
            left_first = left <= right
            place = position[layer]
            place[::2] = start + right * ~left_first
            place[1::2] = start + left * left_first
            read = level_in[layer]
            read[::2] = read[1::2] = level
            both = (left > 0) & (right > 0)
            written = level_out[layer]
            written[::2] = level + (both & left_first)
            written[1::2] = level + (both & ~left_first)
        return position, level_in, level_out
