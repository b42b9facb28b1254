"""NEWVIEW: cla[dst] = (P[left_p] x_left) * (P[right_p] x_right), elementwise."""

from __future__ import annotations

from typing import ClassVar

from mltree.program.contract import Function
from mltree.program.ops.operation import Run, record
from mltree.program.ops.state import ReferenceState

NEWVIEW = record(
    "dst:writes left:reads left_p:matrix right:reads right_p:matrix", "NEWVIEW"
)  # fmt: skip


class Newview(Run):
    """CLAs of nodes from those of their two neighbours behind them."""

    name: ClassVar = "NEWVIEW"
    number: ClassVar = 0
    layout: ClassVar = NEWVIEW
    function: ClassVar = Function.NEWVIEW
    line: ClassVar = "{dst} = {left_p} {left} * {right_p} {right}"

    @staticmethod
    def formula(
        state: ReferenceState, dst: int, left: int, left_p: int, right: int, right_p: int
    ) -> None:
        a = state.across(state.operand(left), left_p)
        state.cla[dst, state.part] = a.times(state.across(state.operand(right), right_p))
