"""SCAN: depth-first walks that score, or store, the insertion of a pruned subtree into edges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from mltree.program.contract import NO_CELL, ROOT_LEVEL, Function
from mltree.program.ops.operation import (
    Counts,
    LaunchShape,
    Records,
    Role,
    TableStage,
    fields,
    operands,
    record,
    slots,
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

_PUSHED = "left_level", "right_level"


class Scan(TableStage):
    """Insertion walks. ``records.first_step`` counts records of ``steps`` here, words on the wire.

    Outputs are cells that get a score or, where it ``stores``, slots that keep the near vector.
    """

    name: ClassVar = "SCAN"
    number: ClassVar = 5
    layouts: ClassVar = (SCAN_TASK, SCAN_STEP)
    worker: ClassVar = "scan"
    has_stack: ClassVar = True
    registers: ClassVar = 168
    rounds: ClassVar = (math.inf, 2)
    """Work-groups hand out its uneven tasks by themselves."""
    function: ClassVar = Function.SCAN
    line: ClassVar = (
        "behind {merged_p} {root}, pruned {pendant_p} {pendant}, {steps} steps from {first_step} "
        "on, {case}"
    )

    steps: Records
    stores: bool = False

    def formula(
        self, state: ReferenceState, pendant: int, pendant_p: int, root: int, merged_p: int, _: int,
        model: int, weights: int, first: int, count: int,
    ) -> None:  # fmt: skip
        subtree = state.across(state.operand(pendant), pendant_p)
        stack = {ROOT_LEVEL: state.across(state.operand(root), merged_p)}
        for level_in, *step in self.steps[first : first + count].tolist():
            above, left, right = stack[level_in], step[:5], step[5:10]
            for target, other in ((left, right), (right, left)):
                far, full_p, half_p, level, output = target
                near = above.times(state.across(state.operand(other[0]), other[1]))
                if output != NO_CELL and self.stores:
                    state.cla[output, state.part] = near
                elif output != NO_CELL:
                    far_half = state.across(state.operand(far), half_p)
                    three = state.across(near, half_p), far_half, subtree
                    state.cells[output, state.part] = _insertion(state, three, model, weights)
                if level >= 0:
                    stack[level] = state.across(near, full_p)

    @property
    def stack_levels(self) -> int:
        """Stack entries that its deepest task needs."""
        levels = (self.steps[name].max(initial=ROOT_LEVEL) for name in _PUSHED)
        return int(max(levels)) + 1

    @property
    def outputs(self) -> Int32:
        """int32[n]: the cells or slots that it writes."""
        output: Int32 = self.steps_outputs.ravel()
        return output[output >= 0]

    @property
    def steps_outputs(self) -> Int32:
        """int32[steps, 2]: the output of each side; NO_CELL where it has none."""
        return np.stack([self.steps[name] for name in fields(SCAN_STEP, Role.OUTPUT)], 1)

    @property
    def steps_levels(self) -> Int32:
        """int32[steps, 2]: the level that each side pushes; -1 where it pushes none."""
        return np.stack([self.steps[name] for name in _PUSHED], axis=1)

    @property
    def site_steps(self) -> int:
        return len(self.records) + len(self.steps)

    def slots_written(self) -> Int32:
        return slots([self.outputs] if self.stores else [])

    def highest_slot(self) -> int:
        highest = super().highest_slot()
        return max(highest, int(self.outputs.max(initial=-1))) if self.stores else highest

    def counts(self) -> Iterator[Counts]:
        outputs = len(self.outputs)
        clas, tips = operands(self.records, self.steps)
        yield self.function, (outputs, clas + outputs * self.stores, tips)

    def jobs(self, shape: LaunchShape) -> int:
        return len(self.records) * shape.spans

    def aux(self, cases: Records) -> int:
        """1 where outputs are slots, not cells."""
        return int(self.stores)


def _insertion(
    state: ReferenceState, three: tuple[ScaledCla, ScaledCla, ScaledCla], model: int, weights: int
) -> float:
    """LnL where three branches meet, from what is seen along each."""
    row = state.model(model)
    a, b, c = (cla.values for cla in three)
    terms = np.einsum("k,lki,lki->lk", row.weights, row.frequencies, a * (b * c))
    (likelihood,), least = over_categories(terms[None], sum(cla.counts for cla in three))
    return float(state.add_up(weights, np.log(likelihood) - least * LN_SCALE))
