"""TRIPLET: lnL, gradient and Hessian in the three lengths around an insertion point."""

from __future__ import annotations

import numpy as np

from mltree.program.contract import TRIPLET_CELLS, Function
from mltree.program.ops.operation import Kernel, LaunchShape, Row, TableStage, record
from mltree.program.ops.state import LN_SCALE, ReferenceState, over_categories

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
