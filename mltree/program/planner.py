"""From trees to record tables: which slot, matrix and cell every operation works on.

Trees of one launch lie side by side, each in its case, of whatever taxa. Those on the same parts
have their slots one after the other, 3(T-2) each: the CLA of inner half-edge h is slot ``h - 3T``
of its tree. Half-edges and branches are those of a :class:`mltree.tree.topology.Forest`. Everything
here is vectorised over nodes and candidates; loops run over tree levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.program import contract
from mltree.program.cases import Cases, offsets
from mltree.program.contract import NO_CELL, ROOT_LEVEL, Control, GroupKind
from mltree.program.ops.edges import EDGE
from mltree.program.ops.newview import NEWVIEW, PMATRIX, Newview, PMatrices
from mltree.program.ops.operation import RUNS, Records, Role, Run, fields, joined, table
from mltree.program.ops.optimise import GROUP
from mltree.program.ops.scan import SCAN_STEP, SCAN_TASK
from mltree.program.ops.sites import RUN, STREAM, Sites
from mltree.system.arrays import Bool, Float64, Index, Int32, longest_first, rising
from mltree.system.values import Value
from mltree.tree.topology import Forest, Tree

# The insertion scan as the search asks for it: depth-first walks over regraft targets.
#
# A *prune* is a half-edge ``h`` at an inner node ``u`` (the pruning point) that faces the subtree
# to move.  Taking the subtree away joins the two other branches of ``u`` into one, the *join*
# branch, between the neighbours ``a`` and ``b``.  A *task* is one side of one prune: it stands at
# ``a`` and walks every target edge on that side, depth first, carrying on a stack the vector A: the
# conditional likelihood, at the node reached, of all that lies behind the walker (the pruned
# subtree left out).  A *step* arrives at a node, and makes the *near vector* N of those of its two
# branches that are targets.
#
#     task start      A_0 = P(join) . CLA[root]             at node a;  root = half-edge at b
#     one step        N   = A  o  P(len(sibling)) . CLA[sibling]     the sibling: the other branch
#                     s0  = lnL of  SUM_i pi_i (P(t/2) N)_i (P(t/2) F)_i (P(pendant) S)_i
#                           with t = len(far), F = CLA[far], S = CLA[twin(prune)]
#                     A'  = P(t) . N                         stored for the steps below the branch
#
# Every name is a half-edge of ``Tree``, or of a :class:`mltree.tree.topology.Forest` where trees
# stand side by side; ``CLA[h]`` of a tip's half-edge is its tip vector.  Levels number the stack
# entries of one task; level 0 is written by the task start.  The smaller of two branches is walked
# first and the larger one overwrites its parent's entry, so a task needs at most ``1 +
# log2(steps)`` levels, whatever the depth of the walk.


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
    level_in: NDArray[np.int8]
    """int8[steps]: stack level of A, read before anything is written."""
    level_out: NDArray[np.int8]
    """int8[2, steps]: stack level that receives ``P(t) . N`` of a branch; -1 where no step lies
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
        in_order = np.empty(self.outputs + 1, np.int32)  # with a last place for what is not asked
        in_order[self.output] = values
        return in_order[:-1]

    @cached_property
    def tree_of_output(self) -> Int32:
        """int32[outputs]: the tree of every output."""
        if not self.tree.any():
            return np.zeros(self.outputs, np.int32)
        trees: Int32 = self.tree[self.task_of_output]
        return trees

    def chosen(self, tasks: slice | Index, steps: slice | Index, **others: Any) -> ScanTasks:
        """Some tasks and some steps; ``others``: the fields that do not follow from them."""
        return replace(
            self,
            tree=self.tree[tasks],
            prune=self.prune[tasks],
            root=self.root[tasks],
            join_length=self.join_length[..., tasks],
            far=self.far[:, steps],
            level_in=self.level_in[steps],
            level_out=self.level_out[:, steps],
            **others,
        )

    @property
    def levels(self) -> int:
        """Stack entries that the deepest task needs (level 0 included)."""
        return 1 + max(int(self.level_out.max(initial=-1)), 0)


def split(
    scan: ScanTasks, most: int, alike: int, cases: Cases, limit: int = 0
) -> list[tuple[ScanTasks, Int32 | slice]]:
    """The scan in parts of at most ``most`` outputs, each with its outputs' indices in the whole.

    ``alike``: outputs on the same parts of the data; as many as the largest task has where that is
    more, but within ``limit``. A task with more still is walked several times, with some of its
    outputs each time.
    """
    if scan.outputs <= min(most, alike):
        return [(scan, slice(None))]
    scan = _in_turns(scan, cases)
    per_step = np.concatenate([[0], np.cumsum((scan.output >= 0).sum(axis=0))])
    size = np.diff(per_step[scan.first_step]).astype(np.int32)
    alike = max(alike, min(limit, int(size.max(initial=0))))
    parts: list[tuple[ScanTasks, Int32 | slice]] = []
    first = 0
    while first < len(scan.prune):
        left = size[first : first + most]
        within = cases.before(scan.tree[first : first + most], left) + left
        together = np.maximum.accumulate(within) <= alike
        last = first + int(np.count_nonzero(together & (np.cumsum(left) <= most)))
        if last > first:
            parts.append(_part(scan, first, last))
        else:
            last = first + 1
            parts += _walks(*_part(scan, first, last), min(most, alike))
        first = last
    return parts


def _in_turns(scan: ScanTasks, cases: Cases) -> ScanTasks:
    """The same tasks, tasks on different parts of the data in turns.

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
    return scan.chosen(
        order, index, first_step=first.astype(np.int32), output=scan.output[:, index]
    )


def _walks(task: ScanTasks, outputs: Int32, room: int) -> Iterator[tuple[ScanTasks, Int32]]:
    """One task as walks with ``room`` outputs each, as far as the last of them."""
    for first in range(0, task.outputs, room):
        is_asked = (task.output >= first) & (task.output < first + room)
        steps = int(np.flatnonzero(is_asked.any(axis=0))[-1]) + 1
        walk = task.chosen(
            slice(1),
            slice(steps),
            first_step=np.array([0, steps], np.int32),
            output=np.where(is_asked, task.output - first, np.int32(-1))[:, :steps],
            outputs=int(is_asked.sum()),
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
    first_step = scan.first_step[first : last + 1] - scan.first_step[first]
    part = scan.chosen(tasks, steps, first_step=first_step, output=number, outputs=len(outputs))
    return part, outputs


def slots_of(tree: Tree) -> int:
    """3(T-2): the CLAs of one tree, one for each inner half-edge."""
    return 3 * (tree.n_tips - 2)


def operands(tree: Tree, halves: Int32) -> Int32:
    """int32[n]: slot of each inner half-edge of a lone tree, ``~tip`` of each tip's."""
    first_inner = 3 * tree.n_tips
    operand: Int32 = np.where(halves >= first_inner, halves - first_inner, ~(halves // 3))
    return operand.astype(np.int32)


def slots_side_by_side(forest: Forest, cases: Cases) -> int:
    """Slots for trees side by side: those on the same parts have their own."""
    size = 3 * (forest.n_tips - 2)
    return int((cases.before(np.arange(len(forest), dtype=np.int32), size) + size).max())


def pmatrices(number: Int32, cases: Cases, branch: Int32 | None = None) -> PMatrices:
    """P matrices of a program's branches, of trees ``number``; of ``branch`` alone if given."""
    branches = len(number)
    if branch is None:
        branch = np.arange(branches, dtype=np.int32)
    else:
        number = number.take(branch)
    stride = branches if cases.unlinked else 0
    p = cases.matrices(branch, number)
    records = table(PMATRIX, len(branch), p=p, length=branch, stride=stride)
    if cases.unlinked:
        records["length"] -= branches * cases.records["first_part"][number]
    cases.fill(records, number)
    return PMatrices(records)


class Piece(NamedTuple):
    """Records of one kind for a SITES stage, with their trees and levels, int32[n], which rise."""

    kind: type[Run]
    records: Records
    number: Int32
    level: Int32


def sites(
    pieces: Sequence[Piece], cases: Cases, *, in_turn: bool = False, grouped: bool = False
) -> Sites:
    """One piece after the other, level by level; trees on different parts in streams of their own.

    Records of a level do not depend on each other. ``in_turn``: of the trees on the same parts
    each has all its pieces before the next one begins, and may take that one's slots. ``grouped``:
    every tree has a stream, which rests when its group of lengths does: the one of its number.
    """
    ranges, stream = cases.ranges if grouped else cases.streams
    turn = stream
    if in_turn:
        order = np.argsort(stream, kind="stable")
        turn = np.empty_like(stream)
        turn[order], stream = np.arange(len(order)), stream[order]
    else:
        stream = np.arange(len(ranges), dtype=np.int32)
    tables: dict[np.dtype[np.void], list[Records]] = {}
    rows, ends = [], dict.fromkeys((kind.layout for kind in RUNS.values()), 0)
    for place, piece in enumerate(pieces):
        kind, records, turns, level = piece._replace(number=turn[piece.number])
        record = kind.layout
        if len(stream) > 1:
            if (turns[1:] < turns[:-1]).any():
                order = np.argsort(turns, kind="stable")
                records, turns, level = records[order], turns[order], level[order]
            begins = (turns[1:] != turns[:-1]) | (level[1:] != level[:-1])
        else:
            begins = level[1:] != level[:-1]
        first = np.concatenate([[0], np.flatnonzero(begins) + 1])
        run: Int32 = np.empty((len(first), 5), np.int32)
        run[:, 0], run[:, 1], run[:, 2] = turns[first], place, kind.number
        run[:, 3] = ends[record] + first
        run[:-1, 4], run[-1, 4] = first[1:] - first[:-1], len(records) - first[-1]
        rows.append(run)
        ends[record] += len(records)
        tables.setdefault(record, []).append(records)
    every = np.concatenate(rows)
    if len(stream) > 1:
        every = every[np.lexsort((every[:, 1], every[:, 0]))]
    of_run = stream[every[:, 0]]
    streams = table(
        STREAM,
        len(ranges),
        first_run=np.searchsorted(of_run, np.arange(len(ranges))).astype(np.int32),
        runs=np.bincount(of_run, minlength=len(ranges)).astype(np.int32),
        group=stream if grouped else NO_CELL,
    )
    streams["first_part"], streams["parts"] = ranges.T
    return Sites(
        streams,
        np.ascontiguousarray(every[:, 2:]).view(RUN).ravel(),
        tuple(joined(parts) for parts in tables.values()),
    )


def operand_table(forest: Forest, cases: Cases) -> Int32:
    """int32[3N of all]: the operand of every half-edge of a forest; read-only.

    The slot of an inner one, ``~tip`` of a tip's.
    """
    number = np.arange(forest.n_trees, dtype=np.int32)
    first_slot = cases.before(number, 3 * (forest.n_tips - 2))
    return _operand_table(tuple(forest.n_tips.tolist()), tuple(first_slot.tolist()))


@lru_cache(maxsize=32)
def _operand_table(n_tips: tuple[int, ...], first_slot: tuple[int, ...]) -> Int32:
    tips, slot = np.array([n_tips, first_slot], np.int32)
    halves = 6 * tips - 6
    within = np.arange(halves.sum(), dtype=np.int32) - np.repeat(offsets(halves), halves)
    operands: Int32 = within + np.repeat(slot - 3 * tips, halves)
    is_tip = within < np.repeat(3 * tips, halves)
    operands[is_tip] = ~(within[is_tip] // 3)
    operands.setflags(write=False)
    return operands


def newviews(forest: Forest, halves: Int32, cases: Cases, *, by_tree: bool = False) -> Piece:
    """The directional CLAs of some half-edges, rising, level by level; or tree by tree first."""
    level = forest.levels.take(halves)
    key, most = level, int(level.max(initial=0)) + 1
    if by_tree:
        key, most = level + forest.tree_of_half.take(halves) * np.int32(most), most * len(forest)
    order = rising(key, most)
    return _newviews(forest, halves.take(order), level.take(order), cases)


def is_stale(before: Forest, after: Forest) -> Bool:
    """bool[3N of all]: which inner half-edges' CLAs differ once branches or nodes have changed.

    A CLA is made from what lies behind its node, so that it is stale where one of its two branches
    leads elsewhere or has another length, or where a CLA that it is made from is stale.
    """
    changed = before.twin != after.twin
    longer = before.lengths[..., before.edge] != after.lengths[..., after.edge]
    changed |= longer.reshape(-1, changed.size).any(axis=0)
    one, other = after.siblings
    stale: Bool = after.is_inner & (changed[one] | changed[other])
    level = after.levels
    order = after.inner[np.argsort(level[after.inner], kind="stable")]
    for wave in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
        stale[wave] |= stale[after.twin[one[wave]]] | stale[after.twin[other[wave]]]
    return stale


def newviews_towards(trees: Sequence[Tree], edge: int, cases: Cases) -> Piece:
    """The CLAs that face one edge, level by level: a plain post-order traversal.

    Trees that share one ``twin`` array (a tree under many models) are walked once.
    """
    walks: dict[int, tuple[Int32, Int32]] = {}
    for tree in trees:
        if id(tree.twin) not in walks:
            walks[id(tree.twin)] = _walk_towards(tree, edge)
    halves, levels = zip(*(walks[id(tree.twin)] for tree in trees), strict=True)
    forest = Forest(trees)
    starts = np.repeat(forest.first_half, [part.size for part in halves])
    level = np.concatenate(levels)
    order = np.argsort(level, kind="stable")
    return _newviews(forest, (np.concatenate(halves) + starts)[order], level[order], cases)


def _walk_towards(tree: Tree, edge: int) -> tuple[Int32, Int32]:
    """The inner half-edges that face an edge, and their level: T less the distance from it."""
    waves = list(tree.waves_from(edge))
    distance = np.arange(len(waves), dtype=np.int32)
    level = tree.n_tips - np.repeat(distance, [wave.size for wave in waves])
    return np.concatenate(waves), level.astype(np.int32)


def _newviews(forest: Forest, halves: Int32, level: Int32, cases: Cases) -> Piece:
    """The CLAs of half-edges of a forest, whose levels rise."""
    operand, number = operand_table(forest, cases), forest.tree_of_half.take(halves)
    one, other = (side.take(halves) for side in forest.siblings)
    records: Records = np.empty(halves.size, NEWVIEW)
    words = records.view(np.int32).reshape(halves.size, -1)
    words[:, 0] = operand.take(halves)
    for first, side in ((1, one), (3, other)):
        words[:, first] = operand.take(forest.twin.take(side))
        words[:, first + 1] = cases.matrices(forest.edge.take(side), number)
    return Piece(Newview, records, number, level)


def branch_records(forest: Forest, cases: Cases, branches: Int32 | None = None) -> Records:
    """EVALUATE or DERIVE at branches of the trees, or at all in order; cells are not given yet."""
    branches = np.arange(forest.tree_of_edge.size, dtype=np.int32) if branches is None else branches
    operand, number = operand_table(forest, cases), forest.tree_of_edge.take(branches)
    lower, p = forest.lower.take(branches), cases.matrices(branches, number)
    x, y = operand.take(forest.twin.take(lower)), operand.take(lower)  # y, across P, may be a tip
    records = table(EDGE, lower.size, x=x, y=y, p=p)
    cases.fill(records, number)
    return records


def sharing_slots(piece: Piece, forest: Forest, cases: Cases) -> Piece:
    """The piece with a slot for each inner node, the same ones for trees that are gone through.

    The three half-edges of a node have neighbouring slots, of which a traversal needs one: slot s
    of a lone tree becomes s // 3. See :func:`sites`, ``in_turn``.
    """
    number = np.arange(forest.n_trees, dtype=np.int32)
    first = cases.before(number, forest.n_tips - 2)[piece.number]
    for field in fields(piece.records.dtype, Role.READS, Role.WRITES):
        operand = piece.records[field]
        piece.records[field] = np.where(operand >= 0, operand // 3 - first, operand)
    return piece


def group_records(
    kind: GroupKind, first_length: Int32, count: Int32 | int, lnl_sum: Int32, first_sum: Int32
) -> Records:
    """Groups of ``count`` lengths, each or all."""
    return table(
        GROUP,
        len(first_length),
        kind=kind,
        first_length=first_length,
        count=count,
        lnl_sum=lnl_sum,
        first_sum=first_sum,
    )


def control_records(
    groups: int, epsilon: float, max_passes: int, floors: Float64 | float = -np.inf
) -> Float64:
    """f64[groups, CONTROL_WORDS] before the first pass; ``floors``: of all, or f64[groups]."""
    control = np.zeros((groups, contract.CONTROL_WORDS))
    control[:, Control.ACTIVE] = 1
    control[:, Control.STEP] = 1
    control[:, Control.EPSILON] = epsilon
    control[:, Control.MAX_PASSES] = max_passes
    control[:, Control.FLOOR] = floors
    return control


class ScanTables(Value):
    """A scan in slots and branches: f64 lengths, P matrices and the walk itself."""

    lengths: Float64
    """Full lengths of every tree, their halves, then the joins; a row a part if unlinked."""
    pmatrices: PMatrices
    tasks: Records
    """The longest first, so that short ones are left to fill the gaps at the end."""
    steps: Records


STEPS_AT_ONCE = 1 << 14
"""Steps whose records are filled in at a time, while they are in a core's cache."""


def scan_records(
    forest: Forest, scan: ScanTasks, cases: Cases, outputs: Int32 | None = None
) -> ScanTables:
    """The scan's tables; ``outputs`` int32[n]: cells, or slots, other than their numbers."""
    operand, branches = operand_table(forest, cases), np.int32(forest.tree_of_edge.size)
    merged = 2 * branches + np.arange(len(scan.prune), dtype=np.int32)
    counts = np.diff(scan.first_step)
    tasks = table(
        SCAN_TASK,
        len(scan.prune),
        pendant=operand[forest.twin[scan.prune]],
        pendant_p=cases.matrices(forest.edge[scan.prune], scan.tree),
        root=operand[scan.root],
        merged_p=cases.matrices(merged, scan.tree),
        first_step=scan.first_step[:-1],
        steps=counts,
    )
    cases.fill(tasks, scan.tree)
    # Rows of a half-edge in a step, of four words: NumPy takes those in a quarter of the time of
    # three. No result goes behind the last output.
    number, branch = forest.tree_of_half, forest.edge
    of_half: Int32 = np.empty((number.size, 4), np.int32)
    of_half[:, 0] = operand
    for column, half_edges in ((1, branch), (2, branch + branches)):
        of_half[:, column] = cases.matrices(half_edges, number)
    cell = None if outputs is None else np.append(outputs, np.int32(NO_CELL))
    steps: Records = np.empty(len(scan.level_in), SCAN_STEP)
    words = steps.view(np.int32).reshape(len(steps), -1)
    for start in range(0, len(steps), STEPS_AT_ONCE):
        some = slice(start, start + STEPS_AT_ONCE)
        words[some, 0], words[some, -1] = scan.level_in[some] + ROOT_LEVEL, 0
        for side, first in enumerate((1, 6)):
            far, level = of_half.take(scan.far[side, some], axis=0), scan.level_out[side, some]
            for column in range(3):
                words[some, first + column] = far[:, column]
            words[some, first + 3] = level + np.int8(ROOT_LEVEL) * (level >= 0)
            output = scan.output[side, some]
            words[some, first + 4] = output if cell is None else cell.take(output)
    full = forest.lengths
    joins = np.broadcast_to(scan.join_length, (*full.shape[:-1], len(scan.prune)))
    lengths = np.concatenate([full, full / 2, joins], axis=-1)
    number = np.concatenate([forest.tree_of_edge, forest.tree_of_edge, scan.tree])
    if (counts[1:] > counts[:-1]).any():
        tasks = tasks[longest_first(counts)]
    return ScanTables(lengths.ravel(), pmatrices(number, cases), tasks, steps)
