"""An alignment's patterns in a device's buffers: codes, weights, systems, and where parts lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.device.blocks import Blocks
from mltree.device.memory import Memory

__all__ = ["OF_BLOCKS", "put_patterns", "write_patterns"]

OF_BLOCKS = ("block_part", "chunk_block", "part_chunk")
"""Buffers that say where parts lie."""


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
    memory.put("weights", blocks.padded(patterns.weights[None].astype(acc)))
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
    weights = own.padded(patterns.weights.astype(acc))
    memory.write("weights", weights, first * own.vw * acc.itemsize)
    if patterns.systems is not None:
        systems = np.ascontiguousarray(own.systems(patterns.systems), real)
        memory.write("site_system", systems, first * systems[0].nbytes)
