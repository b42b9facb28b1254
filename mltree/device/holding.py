"""An alignment's patterns in a device's buffers: codes, weights, systems, and where parts lie."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyopencl as cl

from mltree.alignment.patterns import Patterns
from mltree.device.blocks import Blocks
from mltree.device.build import build_kernels
from mltree.device.memory import Memory
from mltree.likelihood.engine import Weights

__all__ = ["OF_BLOCKS", "Widening", "put_patterns", "put_weights", "write_patterns"]

OF_BLOCKS = ("block_part", "chunk_block", "part_chunk")
"""Buffers that say where parts lie."""

GROUP = 128
"""Work-items of a group that makes weights."""


def put_patterns(
    memory: Memory, blocks: Blocks, patterns: Patterns, real: np.dtype[Any], acc: np.dtype[Any]
) -> None:
    """Fill the buffers with patterns that lie in these blocks.

    real, acc  what systems and sums are of
    """
    memory.put("tips", blocks.padded(patterns.codes, patterns.alphabet.gap_code))
    memory.put("tip_table", patterns.alphabet.tip_table.astype(real))
    for table in OF_BLOCKS:
        memory.put(table, getattr(blocks, table))
    memory.put("site_system", blocks.systems(patterns.systems).astype(real))
    if patterns.systems is not None:
        memory.put("series", patterns.systems.exchangeabilities.astype(acc))
    memory.put("weights", blocks.padded(patterns.weights[None], kind=acc))
    memory.reserve("site_lnl", blocks.width * acc.itemsize)


def write_patterns(
    memory: Memory,
    blocks: Blocks,
    first_part: int,
    patterns: Patterns,
    real: np.dtype[Any],
    acc: np.dtype[Any],
) -> None:
    """Write over the patterns of the parts from ``first_part`` on, under the one row of weights.

    Raises: ValueError: they are not as many.
    """
    own, first = Blocks.of(patterns, blocks.vw, blocks.count), blocks.first_of(first_part)
    if not np.array_equal(
        blocks.block_part[first : first + own.count], first_part + own.block_part
    ):
        raise ValueError("parts of other sizes")
    codes = own.padded(patterns.codes, patterns.alphabet.gap_code)
    for tip, row in enumerate(np.ascontiguousarray(codes)):
        memory.write("tips", row, tip * blocks.width + first * own.vw)
    weights = own.padded(patterns.weights, kind=acc)
    memory.write("weights", weights, first * own.vw * acc.itemsize)
    if patterns.systems is not None:
        systems = np.ascontiguousarray(own.systems(patterns.systems), real)
        memory.write("site_system", systems, first * systems[0].nbytes)


def put_weights(memory: Memory, blocks: Blocks, rows: Weights, widening: Widening) -> None:
    """Fill the buffer with rows of weights [R, L]."""
    size = blocks.width * widening.acc.itemsize
    if widening.is_for(rows):
        memory.put_rows("weights", rows, size, blocks.padded, widening)
    else:
        memory.put_rows("weights", rows, size, lambda own: blocks.padded(own, kind=widening.acc))


class Widening:
    """Weights of 16 bits on their way to a GPU, which makes whole ones of them (opencl/widen.cl).

    So a quarter of the bytes is sent. Where the host is the device nothing is, and it makes them.
    """

    def __init__(self, context: cl.Context, queue: cl.CommandQueue, acc: np.dtype[Any]) -> None:
        """``acc``: what weights are of. Nothing is built before it is needed."""
        self.acc = acc
        self._context, self._queue = context, queue

    def is_for(self, rows: Weights) -> bool:
        """Whether it serves these rows."""
        return rows.dtype == np.uint16 and bool(self._queue.device.type & cl.device_type.GPU)

    def __call__(self, narrow: cl.Buffer, wide: cl.Buffer, offset: int, count: int) -> None:
        """Make so many; ``offset``: bytes in the wide buffer."""
        items, first = -(-count // GROUP) * GROUP, offset // self.acc.itemsize
        numbers = np.uint64(first), np.uint64(count)
        self._kernel(self._queue, (items,), (GROUP,), narrow, wide, *numbers)

    @cached_property
    def _kernel(self) -> cl.Kernel:
        device, is_double = self._queue.device, self.acc == np.float64
        program = build_kernels(self._context, device, "widen", FP64=int(is_double))
        return cl.Kernel(program, "widen")
