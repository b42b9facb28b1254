"""WALK: lnL of trees by depth-first walks, of whole trees or of pieces that others go on from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mltree.program.contract import NO_CELL, RESULT, Function
from mltree.program.ops.operation import Counts, Kernel, Records, Row, WalkStage, operands, record
from mltree.program.ops.state import ReferenceState, ScaledCla

WALK = record(
    "tip:tip p:matrix case:case model:model weights:weights cell:cell slot:writes first_step steps",
    "WALK",
)
"""A walk's last result is scored across the branch of a tip, or kept where there is a slot."""
WALK_STEP = record("left:takes left_p:matrix right:takes right_p:matrix")
"""One newview of a walk in post-order, which kernels read as a vector of four words. An operand
RESULT is the result of a step before: the right one of the last step, the left one of the last step
that no other has taken."""


class Walk(WalkStage):
    """Depth-first walks of trees, or of pieces of them that later ones go on from.

    ``levels``: results that wait at most for their sibling, beside the last one; ``sites``: True
    where lnL of every pattern are kept.
    """

    name = "WALK"
    number = 7
    layouts = (WALK, WALK_STEP)
    kernel = Kernel("walk", has_stack=True)
    function = Function.NEWVIEW
    line = "{cell} or {slot} from {steps} steps from {first_step} on, to {p} {tip}, {case}"
    cells = 1

    levels: int
    sites: bool = False

    def formula(self, state: ReferenceState, walk: Row) -> None:
        waiting: list[ScaledCla] = []
        steps = self.steps[walk.first_step :][: walk.steps]
        for left, left_p, right, right_p in steps.tolist():
            b = waiting.pop() if right == RESULT else state.operand(right)
            a = waiting.pop() if left == RESULT else state.operand(left)
            waiting.append(state.across(a, left_p).times(state.across(b, right_p)))
        root = waiting.pop()
        if walk.slot != NO_CELL:
            state.cla[walk.slot, state.part] = root
            return
        tip = state.across(state.operand(walk.tip), walk.p)
        lnl = state.lnl_across(root, tip, walk.model)
        state.cells[walk.cell, state.part] = state.add_up(walk.weights, lnl)
        if self.sites:
            state.site_lnl[walk.case, state.range] = lnl

    @property
    def stack_levels(self) -> int:
        return self.levels

    @property
    def keeps_sites(self) -> bool:
        return self.sites

    def counts(self) -> Iterator[Counts]:
        clas, tips = operands(self.records, self.steps)
        scored = int(np.count_nonzero(self.records["slot"] == NO_CELL))
        yield self.function, (len(self.steps), clas, tips + scored)

    def aux(self, cases: Records) -> int:
        """1 where the lnL of every pattern is kept."""
        return int(self.sites)
