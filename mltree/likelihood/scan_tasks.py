"""The insertion scan as the search asks for it: depth-first walks over regraft targets.

A *prune* is a half-edge ``h`` at an inner node ``u`` (the pruning point) that faces the
subtree to move.  Taking the subtree away joins the two other branches of ``u`` into one, the
*join* branch, between the neighbours ``a`` and ``b``.  A *task* is one side of one prune: it
stands at ``a`` and walks every target edge on that side, depth first, carrying on a stack the
vector A: the conditional likelihood, at the node reached, of all that lies behind the walker (the
pruned subtree left out).  A *step* arrives at a node, and makes the *near vector* N of those of its
two branches that are targets.

    task start      A_0 = P(join) . CLA[root]             at node a;  root = half-edge at b
    one step        N   = A  o  P(len(sibling)) . CLA[sibling]     the sibling: the other branch
                    s0  = lnL of  SUM_i pi_i (P(t/2) N)_i (P(t/2) F)_i (P(pendant) S)_i
                          with t = len(far), F = CLA[far], S = CLA[twin(prune)]
                    A'  = P(t) . N                         stored for the steps below the branch

Every name is a half-edge of ``Tree``, or of a :class:`mltree.tree.forest.Forest` where trees stand
side by side; ``CLA[h]`` of a tip's half-edge is its tip vector.  Levels number the stack entries of
one task; level 0 is written by the task start.  The smaller of two branches is walked first and the
larger one overwrites its parent's entry, so a task needs at most ``1 + log2(steps)`` levels,
whatever the depth of the walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from mltree.arrays import Float64, Int32
from mltree.likelihood.cases import Cases
from mltree.values import Value

__all__ = ["ScanTasks", "split"]


class ScanTasks(Value):
    """Depth-first steps of many tasks; steps of task k are first_step[k] : first_step[k + 1]."""

    tree: Int32
    """int32[tasks]: index into the launch's list of trees (and models); 0 for one tree."""
    prune: Int32
    """int32[tasks]: half-edge at the pruning point that faces the pruned subtree; the subtree's
    own CLA is that of ``twin[prune]``, its pendant branch is ``edge[prune]``."""
    root: Int32
    """int32[tasks]: half-edge at the far end of the join branch, whose CLA starts the walk."""
    join_length: Float64
    """float64[tasks]: length of the join branch (expected substitutions per site)."""
    first_step: Int32
    """int32[tasks + 1]: offsets into the step arrays."""
    far: Int32
    """int32[2, steps]: half-edges at the far ends of the node's two branches, F = CLA[far]; each is
    the sibling of the other, whose branch its near vector is made from."""
    level_in: Int32
    """int32[steps]: stack level of A, read before anything is written."""
    level_out: Int32
    """int32[2, steps]: stack level that receives ``P(t) . N`` of a branch; -1 where no step lies
    below. That of the second may equal level_in."""
    output: Int32
    """int32[2, steps]: index of a branch's score in the answer, 0 .. outputs - 1; -1 where the step
    only remakes the vector A for those below, or does not go there."""
    outputs: int
    """Number of scores."""

    @cached_property
    def far_of_output(self) -> Int32:
        """int32[outputs]: the half-edge at the far end of every output's branch."""
        return self._by_output(self.far)

    @cached_property
    def task_of_output(self) -> Int32:
        """int32[outputs]: the task of every output."""
        tasks = np.arange(len(self.prune), dtype=np.int32)
        of_steps = np.repeat(tasks, np.diff(self.first_step))
        return self._by_output(np.broadcast_to(of_steps, self.output.shape))

    def _by_output(self, values: Int32) -> Int32:
        """int32[outputs]: of int32[2, steps]."""
        is_wanted = self.output >= 0
        in_order = np.empty(self.outputs, np.int32)
        in_order[self.output[is_wanted]] = values[is_wanted]
        return in_order

    @cached_property
    def tree_of_output(self) -> Int32:
        """int32[outputs]: the tree of every output."""
        if not self.tree.any():
            return np.zeros(self.outputs, np.int32)
        trees: Int32 = self.tree[self.task_of_output]
        return trees

    @property
    def levels(self) -> int:
        """Stack entries that the deepest task needs (level 0 included)."""
        return 1 + max(int(self.level_out.max(initial=-1)), 0)


_STEP_FIELDS = ("far", "level_in", "level_out")


def split(
    scan: ScanTasks, most: int, alike: int, cases: Cases, limit: int = 0
) -> list[tuple[ScanTasks, Int32]]:
    """The scan in parts of at most ``most`` outputs, each with its outputs' indices in the whole.

    ``alike``: outputs on the same parts of the data; as many as the largest task has where that is
    more, but within ``limit``. A task with more still is walked several times, with some of its
    outputs each time.
    """
    if scan.outputs <= min(most, alike):
        return [(scan, np.arange(scan.outputs, dtype=np.int32))]
    scan = _in_turns(scan, cases)
    per_step = np.concatenate([[0], np.cumsum((scan.output >= 0).sum(axis=0))])
    size = np.diff(per_step[scan.first_step]).astype(np.int32)
    alike = max(alike, min(limit, int(size.max(initial=0))))
    parts: list[tuple[ScanTasks, Int32]] = []
    first = 0
    while first < len(scan.prune):
        left = size[first : first + most]
        own = cases.before(scan.tree[first : first + most], left) + left
        together = np.maximum.accumulate(own) <= alike
        last = first + int(np.count_nonzero(together & (np.cumsum(left) <= most)))
        if last > first:
            parts.append(_part(scan, first, last))
        else:
            last = first + 1
            parts += _walks(*_part(scan, first, last), min(most, alike))
        first = last
    return parts


def _in_turns(scan: ScanTasks, cases: Cases) -> ScanTasks:
    """The same tasks, those on different parts of the data in turns.

    Of any of them that follow one another, all parts have about as much of their own.
    """
    ranges, streams = cases.streams
    if len(ranges) == 1:
        return scan
    steps = np.diff(scan.first_step)
    stream = streams[scan.tree]
    place = cases.before(scan.tree, steps) + steps / 2
    order = np.argsort(place / np.bincount(stream, steps)[stream], kind="stable")
    first = np.append(0, np.cumsum(steps[order]))
    index = np.arange(first[-1]) + np.repeat(scan.first_step[:-1][order] - first[:-1], steps[order])
    return replace(
        scan,
        tree=scan.tree[order],
        prune=scan.prune[order],
        root=scan.root[order],
        join_length=scan.join_length[..., order],
        first_step=first.astype(np.int32),
        output=scan.output[:, index],
        **{name: getattr(scan, name)[..., index] for name in _STEP_FIELDS},
    )


def _walks(task: ScanTasks, outputs: Int32, room: int) -> Iterator[tuple[ScanTasks, Int32]]:
    """One task as walks with ``room`` outputs each, as far as the last of them."""
    for first in range(0, task.outputs, room):
        is_wanted = (task.output >= first) & (task.output < first + room)
        steps = int(np.flatnonzero(is_wanted.any(axis=0))[-1]) + 1
        walk = replace(
            task,
            first_step=np.array([0, steps], np.int32),
            output=np.where(is_wanted, task.output - first, np.int32(-1))[:, :steps],
            outputs=int(is_wanted.sum()),
            **{name: getattr(task, name)[..., :steps] for name in _STEP_FIELDS},
        )
        yield walk, outputs[first : first + room]


def _part(scan: ScanTasks, first: int, last: int) -> tuple[ScanTasks, Int32]:
    """Some tasks, whose outputs are numbered as they are met."""
    tasks, steps = slice(first, last), slice(scan.first_step[first], scan.first_step[last])
    output = scan.output[:, steps]
    is_scored = output >= 0
    met = np.cumsum(is_scored.sum(axis=0, dtype=np.int32), dtype=np.int32)
    number = np.stack([met - is_scored[1] - 1, met - 1])
    number[0, ~is_scored[0]] = number[1, ~is_scored[1]] = -1
    outputs = np.empty(int(met[-1]), np.int32)
    outputs[number[is_scored]] = output[is_scored]
    part = replace(
        scan,
        tree=scan.tree[tasks],
        prune=scan.prune[tasks],
        root=scan.root[tasks],
        join_length=scan.join_length[..., tasks],
        first_step=scan.first_step[first : last + 1] - scan.first_step[first],
        output=number,
        outputs=len(outputs),
        **{name: getattr(scan, name)[..., steps] for name in _STEP_FIELDS},
    )
    return part, outputs
