"""Residues: how chunks are shared out among devices so that sums keep a lone session's bits.

A lone session adds a cell's partial sums as ``REDUCE_WIDTH`` strided sums: residue v is the sum
over the chunks c = v (mod ``REDUCE_WIDTH``), in order (``opencl/optimise.h``). A device that holds
all chunks of some residues therefore makes their sums by itself, and what is left to add are the
residues of all devices, once each and in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.contract import REDUCE_WIDTH
from mltree.device.layout import Layout
from mltree.likelihood.program import Program
from mltree.likelihood.stages import Rell

__all__ = [
    "ordered_sum",
    "patterns_of",
    "share_out",
    "splits_residues",
    "whole_products",
    "whole_sums",
]

Acc = npt.NDArray[Any]

FEW_CELLS = 64
"""Up to which one accumulation takes less time than 31 additions (1 cell: 1.2 instead of 11 us;
it keeps what it passes, so that 3,000 cells take 330 instead of 24)."""

SMALL_PRODUCT = 1 << 16
"""Sums of a product whose strided sums are soon read: 16 MiB."""


def share_out(chunks: int, shares: Sequence[float]) -> list[range]:
    """The residues that each share gets, side by side, of as many as have chunks.

    One by one to whoever is done with one more the soonest (D'Hondt's method): a device that would
    keep the others waiting with a single residue gets none.
    """
    wanted = np.asarray(shares, np.float64)
    counts = np.zeros(len(wanted), np.int64)
    for _ in range(min(chunks, REDUCE_WIDTH)):
        counts[np.argmax(wanted / (counts + 1))] += 1
    ends = np.cumsum(counts).tolist()
    return [range(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]


def patterns_of(residues: range, chunk_of: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[n]: the patterns of some residues' chunks, in order; ``chunk_of``: each one's chunk.

    The n-th of these chunks has residue ``residues[n % len(residues)]``.
    """
    residue = chunk_of % REDUCE_WIDTH
    return np.flatnonzero((residue >= residues.start) & (residue < residues.stop))


def splits_residues(layout: Layout, program: Program) -> bool:
    """Whether a lone session is best asked for strided sums, and adds them up by itself.

    A GPU's work-groups are many, and a RELL product of few sums has few patches for them.
    """
    is_product = isinstance(program.stages[0], Rell)
    return is_product and layout.lanes > 1 and program.sums <= SMALL_PRODUCT


def whole_products(program: Program, strided: Acc, part_chunk: npt.NDArray[np.int32]) -> Acc:
    """acc[sums]: of a lone session that was asked for strided sums of its products.

    part_chunk  int32[parts + 1]: the first chunk of each part
    """
    records = [row for stage in program.stages if isinstance(stage, Rell) for row in stage.records]
    sums: Acc = np.empty(program.sums, strided.dtype)
    for record in records:
        first, count = int(record["sum"]), int(record["rows"] * record["weights"])
        own = whole_sums(record, count, [strided], [REDUCE_WIDTH], part_chunk)
        sums[first : first + count] = own
    return sums


def whole_sums(
    record: np.void,
    count: int,
    found: Sequence[Acc],
    widths: Sequence[int],
    part_chunk: npt.NDArray[np.int32],
) -> Acc:
    """acc[count]: a record's sums, from the strided ones of devices that share its residues out.

    found   acc[residues x sums] of each device, a record behind the other
    widths  residues of each device

    They are added in a lone session's order, from the residue of the parts' first chunk on.
    """
    first, end = int(record["sum"]), int(record["sum"]) + count
    strided = [
        sums[width * first : width * end].reshape(-1, count)
        for width, sums in zip(widths, found, strict=True)
    ]
    first_chunk = int(part_chunk[record["first_part"]])
    return ordered_sum(np.roll(np.concatenate(strided), -(first_chunk % REDUCE_WIDTH), axis=0))


def ordered_sum(strided: Acc) -> Acc:
    """acc[cells]: strided sums acc[residues, cells] added in order, as ``reduce_stage`` does."""
    if strided.shape[1] <= FEW_CELLS:
        few: Acc = np.add.accumulate(strided)[-1]
        return few
    total: Acc = strided[0].copy()
    for row in strided[1:]:
        total += row
    return total
