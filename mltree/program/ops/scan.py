"""SCAN: depth-first walks that score, or store, the insertion of a pruned subtree into edges."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mltree.program.contract import NO_CELL, ROOT_LEVEL, Function
from mltree.program.ops.operation import (
    Counts,
    Kernel,
    Records,
    Role,
    Row,
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

    def columns(self, role: Role) -> list[Int32]:
        return super().columns(Role.OUTPUT if role is Role.WRITES and self.stores else role)

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
