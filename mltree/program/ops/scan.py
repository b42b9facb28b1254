"""SCAN: depth-first walks that score, or store, the insertion of a pruned subtree into edges."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mltree.program.contract import NO_CELL, ROOT_LEVEL, TRIPLET_CELLS, Function
from mltree.program.ops.operation import (
    Counts,
    Kernel,
    LaunchShape,
    Records,
    Role,
    Row,
    TableStage,
    WalkStage,
    operands,
    record,
)
from mltree.program.ops.state import LN_SCALE, ReferenceState, ScaledCla, over_categories
from mltree.system.arrays import Int32

SCAN_TASK = record(
    "pendant:reads pendant_p:matrix root:reads merged_p:matrix case:case model:model "
    "weights:weights first_step steps",
    "SCAN_TASK",
)
SCAN_STEP = record(
    "level_in left:reads left_p:matrix left_half_p:matrix left_level left_output:output "
    "right:reads right_p:matrix right_half_p:matrix right_level right_output:output padding",
    "SCAN_STEP",
)
"""A walk's arrival at a node, whose two other branches are both targets: a side's near vector N is
made from the other side's operand, gets a score (or a slot), and is pushed on a level as it is seen
from the far end of the side's branch (see :mod:`mltree.program.planner`). The half length's
matrix applied twice is as good as the full length's."""


class Scan(WalkStage):
    """Insertion walks, whose outputs are cells for scores, or slots for near vectors."""

    name = "SCAN"
    number = 5
    layouts = (SCAN_TASK, SCAN_STEP)
    kernel = Kernel("scan", has_stack=True, registers=168, rounds=(math.inf, 2))
    """Work-groups hand out its uneven tasks by themselves."""
    function = Function.SCAN
    line = (
        "behind {merged_p} {root}, pruned {pendant_p} {pendant}, {steps} steps from {first_step} "
        "on, {case}"
    )

    stores: bool = False
    """True where outputs are slots."""

    def formula(self, state: ReferenceState, task: Row) -> None:
        subtree = state.across(state.operand(task.pendant), task.pendant_p)
        stack = {ROOT_LEVEL: state.across(state.operand(task.root), task.merged_p)}
        for level_in, *step in self.steps[task.first_step :][: task.steps].tolist():
            above, left, right = stack[level_in], step[:5], step[5:10]
            for target, other in ((left, right), (right, left)):
                far, full_p, half_p, level, output = target
                near = above.times(state.across(state.operand(other[0]), other[1]))
                if output != NO_CELL and self.stores:
                    state.cla[output, state.part] = near
                elif output != NO_CELL:
                    far_half = state.across(state.operand(far), half_p)
                    three = state.across(near, half_p), far_half, subtree
                    state.cells[output, state.part] = _insertion(state, three, task)
                if level >= 0:
                    stack[level] = state.across(near, full_p)

    @property
    def stack_levels(self) -> int:
        levels = (self.steps[name] for name in ("left_level", "right_level"))
        return 1 + max(int(level.max(initial=ROOT_LEVEL)) for level in levels)

    def columns(self, *roles: Role) -> list[Int32]:
        written = Role.OUTPUT if self.stores else Role.WRITES
        return super().columns(*(written if role is Role.WRITES else role for role in roles))

    def counts(self) -> Iterator[Counts]:
        outputs = sum(int(np.count_nonzero(of >= 0)) for of in self.columns(Role.OUTPUT))
        clas, tips = operands(self.records, self.steps)
        yield self.function, (outputs, clas + outputs * self.stores, tips)

    def aux(self, cases: Records) -> int:
        """1 where outputs are slots, not cells."""
        return int(self.stores)


def _insertion(
    state: ReferenceState, three: tuple[ScaledCla, ScaledCla, ScaledCla], task: Row
) -> float:
    """LnL where three branches meet, from what is seen along each."""
    row = state.model(task.model)
    a, b, c = (cla.values for cla in three)
    terms = np.einsum("k,lki,lki->lk", row.weights, row.frequencies, a * (b * c))
    (likelihood,), least = over_categories(terms[None], sum(cla.counts for cla in three))
    return float(state.add_up(task.weights, np.log(likelihood) - least * LN_SCALE))


# TRIPLET: lnL, gradient and Hessian in the three lengths around an insertion point.

TRIPLET = record(
    "proximal:reads distal:reads pendant:reads proximal_p:matrix distal_p:matrix pendant_p:matrix "
    "case:case model:model weights:weights cell:cell group:group",
    "TRIPLET",
)
"""Left out of a pass once its ``group`` moves no more."""

_ORDERS = (
    (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1),
    (2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1), (0, 1, 1),
)  # fmt: skip
"""How often each of the three vectors is derived, cell by cell."""
_HESSIAN_PAIRS = ((1, 1), (2, 2), (3, 3), (1, 2), (1, 3), (2, 3))

assert len(_ORDERS) == TRIPLET_CELLS


class Triplets(TableStage):
    """Sums around insertion points: proximal, distal and pendant branch."""

    name = "TRIPLET"
    number = 6
    layouts = (TRIPLET,)
    kernel = Kernel("triplet", registers=255, rounds=(64, 64))
    """In more launches passes would cost a wait each."""
    function = Function.TRIPLET
    line = (
        "{cell}... at {proximal_p} {proximal}, {distal_p} {distal}, {pendant_p} {pendant}, {case}, "
        "group {group}"
    )
    cells = TRIPLET_CELLS

    def formula(self, state: ReferenceState, point: Row) -> None:
        """Leaving out a group that has settled would only save work."""
        row = state.model(point.model)
        three = [
            state.across(state.operand(point.proximal), point.proximal_p),
            state.across(state.operand(point.distal), point.distal_p),
            state.across(state.operand(point.pendant), point.pendant_p),
        ]
        flow = row.rates[:, None, None] * row.generator
        orders = []
        for cla in three:
            first = np.einsum("lkij,lkj->lki", flow, cla.values)
            orders.append((cla.values, first, np.einsum("lkij,lkj->lki", flow, first)))
        terms = np.stack(
            [
                np.einsum("k,lki,lki->lk", row.weights, row.frequencies,
                          orders[0][d1] * (orders[1][d2] * orders[2][d3]))
                for d1, d2, d3 in _ORDERS
            ]
        )  # fmt: skip
        total, least = over_categories(terms, sum(cla.counts for cla in three))
        ratio = total / total[0]
        sums = [np.log(total[0]) - least * LN_SCALE, *ratio[1:4]]
        sums += [ratio[4 + h] - ratio[a] * ratio[b] for h, (a, b) in enumerate(_HESSIAN_PAIRS)]
        of_patterns = np.stack(sums, axis=1)
        state.cells[point.cell :][:TRIPLET_CELLS, state.part] = state.add_up(
            point.weights, of_patterns
        )

    def jobs(self, shape: LaunchShape) -> int:
        return len(self.records) * shape.spans
