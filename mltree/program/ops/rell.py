"""RELL: sum[s + t W + w] = sum over patterns of site lnL[row t] * weights[row w].

Resampled estimated log-likelihoods (Kishino, Miyata, Hasegawa 1990) of many trees under many rows
of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from mltree.program.contract import RELL_TILE, Function
from mltree.program.ops.operation import Counts, LaunchShape, Records, TableStage, record
from mltree.program.ops.state import ReferenceState
from mltree.system.arrays import Int32

RELL = record(
    "first_row rows first_weights weights sum first_part:first parts:parts", "RELL"
)  # fmt: skip


class Rell(TableStage):
    """Products of kept lnL and rows of weights."""

    name: ClassVar = "RELL"
    number: ClassVar = 8
    layouts: ClassVar = (RELL,)
    worker: ClassVar = "rell"
    is_product: ClassVar = True
    function: ClassVar = Function.RELL
    line: ClassVar = (
        "sum[{sum}...] = {rows} rows from {first_row} on * {weights} rows of weights from "
        "{first_weights} on"
    )

    @staticmethod
    def formula(
        state: ReferenceState, row: int, rows: int, first: int, weights: int, at: int,
        first_part: int, parts: int,
    ) -> None:  # fmt: skip
        span = state.patterns(first_part, parts)
        lnl = state.site_lnl[row : row + rows, span]
        products = lnl @ state.weights[first : first + weights, span].T
        state.sums[at : at + rows * weights] = products.ravel()

    def compute(self, state: ReferenceState) -> None:
        for fields_of_record in self.records.tolist():
            self.formula(state, *fields_of_record)

    def counts(self) -> Iterator[Counts]:
        yield self.function, (int(self.sums()[1].sum()), 0, 0)

    def sums(self) -> tuple[Records, Int32]:
        return self.records, self.records["rows"] * self.records["weights"]

    def jobs(self, shape: LaunchShape) -> int:
        high = 2 * RELL_TILE  # tiles of a patch: rell.cl
        wide = high if shape.lanes == 1 else shape.items // high
        tall = -(-self.records["rows"] // (RELL_TILE * high))
        patches = tall * -(-self.records["weights"] // (RELL_TILE * wide))
        return int(patches.sum()) * max(1, shape.reduction_lanes)
