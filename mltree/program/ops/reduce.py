"""REDUCE: sum[s + n] = the partial sums of cell c + n over the chunks of some parts.

They are added in one fixed order; or, on a shard, the strided sums that this order is made of are
left, one for each reduction lane of the shard.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mltree.program.contract import RELL_TILE, Function
from mltree.program.ops.operation import Counts, Kernel, LaunchShape, Records, Row, SumStage, record
from mltree.program.ops.state import ReferenceState
from mltree.system.arrays import Int32
from mltree.system.errors import NumericalError

REDUCTION = record("cell sum count first_part:first parts:parts", "REDUCTION")
"""With w reduction lanes of a shard, strided sum v of the n-th cell is sum[w sum + v count + n]."""

REDUCERS = 32
"""Work-items of a GPU that sum a cell together."""


class Reduce(SumStage):
    """Sums of cells over the chunks of some parts."""

    name = "REDUCE"
    number = 2
    layouts = (REDUCTION,)
    function = Function.OPTIMISE
    line = "sum[{sum}...] = {count} cells from cell[{cell}] on, {parts} parts from {first_part} on"

    def formula(self, state: ReferenceState, row: Row) -> None:
        parts = slice(row.first_part, row.first_part + row.parts)
        cells = state.cells[row.cell : row.cell + row.count, parts]
        state.sums[row.sum : row.sum + row.count] = cells.sum(axis=1)
        if not np.isfinite(cells).all():
            raise NumericalError("a log-likelihood came out as NaN or infinite")
        cells[:] = 0.0  # a FLOW that follows adds to them

    def counts(self) -> Iterator[Counts]:
        """None: its time counts, its work is not worth counting."""
        return iter(())

    def sums(self) -> Int32:
        return np.asarray(self.records["count"])

    def jobs(self, shape: LaunchShape) -> int:
        return -(-int(self.records["count"].sum()) // max(1, shape.items // REDUCERS))

    def aux(self, cases: Records) -> int:
        """The most sums of a record."""
        return int(self.records["count"].max(initial=1))


# RELL: sum[s + t W + w] = sum over patterns of site lnL[row t] * weights[row w].
#
# Resampled estimated log-likelihoods (Kishino, Miyata, Hasegawa 1990) of many trees under many rows
# of weights.

RELL = record("first_row rows first_weights weights sum first_part:first parts:parts", "RELL")


class Rell(SumStage):
    """Products of kept lnL and rows of weights."""

    name = "RELL"
    number = 8
    layouts = (RELL,)
    kernel = Kernel("rell")
    function = Function.RELL
    line = (
        "sum[{sum}...] = {rows} rows from {first_row} on * {weights} rows of weights from "
        "{first_weights} on"
    )

    def formula(self, state: ReferenceState, block: Row) -> None:
        patterns = state.patterns(block.first_part, block.parts)
        lnl = state.site_lnl[block.first_row :][: block.rows, patterns]
        products = lnl @ state.weights[block.first_weights :][: block.weights, patterns].T
        state.sums[block.sum :][: products.size] = products.ravel()

    def counts(self) -> Iterator[Counts]:
        yield self.function, (int(self.sums().sum()), 0, 0)

    def sums(self) -> Int32:
        return np.asarray(self.records["rows"] * self.records["weights"])

    def jobs(self, shape: LaunchShape) -> int:
        high = 2 * RELL_TILE  # tiles of a patch: rell.cl
        wide = high if shape.lanes == 1 else shape.items // high
        tall = -(-self.records["rows"] // (RELL_TILE * high))
        patches = tall * -(-self.records["weights"] // (RELL_TILE * wide))
        return int(patches.sum()) * max(1, shape.reduction_lanes)
