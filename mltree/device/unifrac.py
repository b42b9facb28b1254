"""UniFrac on a device: opencl/unifrac.cl, and what goes to its kernels and back.

Branches that many samples have are common: a tile's columns lie in a dense panel of them. Of rare
ones a tile has lists of the columns that have them. Both sum the same integers.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from mltree.device.build import build_kernels, context_on
from mltree.device.memory import Memory, NamingDevice
from mltree.diversity.unifrac import GENERALISED, UnifracProblem, tile_side
from mltree.system.arrays import Float64, Int32, Int64
from mltree.system.errors import DeviceError
from mltree.tree.topology import NONE

VECTORS = 8
"""Vectors of columns that a CPU's work-item takes side by side (``opencl/unifrac.cl``)."""


class _Build(NamedTuple):
    """How a device's work-groups cut a tile."""

    items: int
    rows: int
    """Rows of a group, and on a GPU columns."""
    chunk: int
    span: int
    common: float
    """Share of samples from which on a branch is common."""
    panel: int
    """Bytes of a panel at most."""


CPU = _Build(items=1, rows=32, chunk=64, span=4096, common=0.12, panel=1 << 28)
GPU = _Build(items=256, rows=64, chunk=16, span=1024, common=0.3, panel=1 << 32)
RARE_ITEMS = 32
"""Work-items of a GPU's group that goes through lists: a warp, whose barriers cost nothing."""
FLAT_ITEMS = 64
"""Work-items of a group where each has an element of its own."""


class DeviceUnifrac:
    """UniFrac engine of one OpenCL device; implements :class:`UnifracEngine` of the reference."""

    def __init__(self, problem: UnifracProblem, device: cl.Device) -> None:
        """Send the samples, and make the entries of their rows there.

        Raises:
            DeviceError: the device has no doubles, or no room.
        """
        if not device.double_fp_config:
            raise DeviceError(f"{device.name}: no double precision", hint="--device reference")
        self._problem, self._device = problem, device
        self._build = CPU if device.type & cl.device_type.CPU else GPU
        self._is_vector = self._build.items == 1
        self._naming = NamingDevice(device)
        self._columns: slice | None = None
        self._load()

    # The problem.

    def _load(self) -> None:
        problem, memory = self._problem, self._memory
        samples = problem.samples
        branches = samples.branches
        memory.put("indptr", samples.indptr)
        memory.put("tip", samples.tip)
        memory.put("before", np.concatenate(([0], np.cumsum(samples.counts))))
        memory.put("branch_of_tip", branches.tip)
        for name in ("parent", "first", "last"):
            memory.put(name, getattr(branches, name))
        memory.put("lengths", problem.lengths)
        memory.put("divisors", problem.divisors)
        count = samples.n_samples
        memory.reserve("touched", 4 * count)
        memory.put("prevalence", np.zeros(branches.count, np.int32))
        self._flat("touch", count, *self._tree, *memory.several("touched", "prevalence"))
        touched = memory.fetch("touched", count, np.int32)
        self._number(memory.fetch("prevalence", branches.count, np.int32))
        row: Int64 = np.concatenate(([0], np.cumsum(touched, dtype=np.int64)))
        memory.put("row", row)
        for name, size in (("branch", 4), ("value", 8)):
            memory.reserve(name, size * int(row[-1]))
        memory.reserve("common", 4 * count)
        memory.reserve("alone", 8 * count)
        self._flat(
            "fill", count, *self._tree, *memory.several("number", "divisors"),
            np.int32(problem.metric.is_plain), np.int32(problem.metric.is_presence),
            *memory.several("row", "branch", "value", "common", "alone"),
        )  # fmt: skip
        self._n_entries = int(row[-1])
        self._chunks = -(-self.n_common // self._build.chunk)
        if self.n_common and self._is_vector:
            memory.reserve("cuts", 4 * count * (self._chunks + 1))
            rows = memory.several("row", "common", "branch", "cuts")
            self._flat("cut", count, np.int32(self._chunks), *rows)
        self._alone: Int64 = memory.fetch("alone", count, np.int64)
        if not problem.metric.is_plain:
            memory.put("totals", samples.totals)

    @property
    def _tree(self) -> list[Any]:
        names = "indptr", "tip", "before", "branch_of_tip", "parent", "first", "last", "lengths"
        return self._memory.several(*names)

    def _number(self, prevalence: Int32) -> None:
        """Tell common branches from rare ones, and give either numbers of their own."""
        problem, build = self._problem, self._build
        count = problem.samples.n_samples
        is_there = (prevalence > 0) & (problem.lengths > 0)
        least = max(2.0, build.common * count) if problem.metric.is_plain else np.inf
        is_common = is_there & (prevalence >= least)
        most = build.panel // (self._bytes * self._stride(tile_side(count)))
        if is_common.sum() > most:
            least = np.partition(prevalence[is_common], -most)[-most] + 1
            is_common = is_there & (prevalence >= least)
        is_rare = is_there & ~is_common
        number = np.full(prevalence.size, NONE, np.int32)
        number[is_common] = np.arange(is_common.sum())
        number[is_rare] = -2 - np.arange(is_rare.sum())
        self.n_common, self._n_rare = int(is_common.sum()), int(is_rare.sum())
        self._memory.put("number", number)
        if not problem.metric.is_plain:
            self._memory.put("branch_lengths", problem.lengths[is_rare])

    @property
    def _bytes(self) -> int:
        """Bytes of a sum."""
        return 4 if self._problem.is_short else 8

    @property
    def _block(self) -> int:
        """Columns of a group."""
        return VECTORS * 64 // self._bytes if self._is_vector else self._build.rows

    def _stride(self, columns: int) -> int:
        """Columns of a panel: whole blocks and spans."""
        width = self._width(columns)
        return -(-columns // width) * width

    def _width(self, columns: int) -> int:
        """Columns of a list: those of a panel in as few equal shares as they may have."""
        shares = -(-columns // self._build.span)
        return -(-columns // (shares * self._block)) * self._block

    def faith(self) -> Float64:
        """Sums of each sample alone."""
        return np.asarray(self._alone * self._problem.unit, np.float64)

    # Tiles.

    def tile(self, rows: slice, columns: slice) -> NDArray[np.floating[Any]]:
        """Distances of some samples to others."""
        if self._columns != columns:
            self._prepare(columns)
        size = rows.stop - rows.start, columns.stop - columns.start
        stride = self._stride(size[1])
        problem, memory = self._problem, self._memory
        memory.reserve("distances", size[0] * size[1] * np.dtype(problem.kind).itemsize)
        if problem.metric.is_plain:
            self._plain(rows, columns, stride)
        else:
            self._general(rows, columns, stride)
        memory.expect(2.0 * self._n_entries * (size[0] / problem.samples.n_samples) * size[1])
        return memory.fetch("distances", size, problem.kind)

    def _prepare(self, columns: slice) -> None:
        """The panel of some columns, and their lists."""
        memory, start = self._memory, np.int64(columns.start)
        size = columns.stop - columns.start
        stride, width = self._stride(size), self._width(size)
        spans = stride // width
        entries = memory.several("row", "common", "branch")
        if self.n_common:
            self._spread("panel", columns, stride)
        lists = self._n_rare * spans
        self._clear("cursor", 4 * (lists + 1))
        share = np.int64(size), np.int32(spans), np.int32(width)
        self._flat("count", start, *share, *entries, memory["cursor"], items=size)
        sizes = memory.fetch("cursor", lists, np.int32)
        starts: Int32 = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int32)
        memory.put("starts", starts)
        memory.write("cursor", starts[: max(1, lists)])
        for name, bytes_ in (("list_column", 4), ("list_value", 8)):
            memory.reserve(name, bytes_ * int(starts[-1]))
        buffers = memory.several("value", "cursor", "list_column", "list_value")
        self._flat("list", start, *share, *entries, *buffers, items=size)
        self._columns = columns

    def _spread(self, name: str, samples: slice, stride: int) -> None:
        """The panel of some samples: a row of a common branch, zeros where one lacks it."""
        memory, size = self._memory, samples.stop - samples.start
        self._clear(name, self.n_common * stride * self._bytes)
        buffers = *memory.several("row", "common", "branch", "value"), memory[name]
        self._flat("spread", np.int64(samples.start), size, stride, *buffers, items=size)

    def _plain(self, rows: slice, columns: slice, stride: int) -> None:
        memory, metric = self._memory, self._problem.metric
        count, start = rows.stop - rows.start, np.int64(rows.start)
        size = columns.stop - columns.start
        self._clear("shared", count * stride * self._bytes)
        entries = memory.several("row", "common", "branch", "value")
        if self.n_common:
            self._dense(rows, stride)
        width = self._width(size)
        spans = np.int32(stride // width)
        lists = memory.several("starts", "list_column", "list_value", "shared")
        arguments = start, np.int64(stride), spans, np.int32(width), *entries, *lists
        self._grouped("rare", (int(spans), count), RARE_ITEMS, *arguments)
        arguments = start, np.int64(columns.start), np.int64(size), np.int64(stride)
        presence = np.int32(metric.is_presence)
        buffers = memory.several("alone", "shared", "distances")
        self._plane("finish", size, count, *arguments, self._unit, presence, *buffers)

    def _dense(self, rows: slice, stride: int) -> None:
        """Sums over common branches."""
        memory, build, count = self._memory, self._build, rows.stop - rows.start
        down = -(-count // build.rows)
        groups = stride // self._block, down
        sizes = np.int64(count), np.int64(stride)
        if self._is_vector:
            arguments = np.int64(rows.start), *sizes, np.int32(self._chunks)
            buffers = memory.several("row", "cuts", "branch", "value", "panel", "shared")
            self._grouped("dense", groups, build.items, *arguments, *buffers)
            return
        self._spread("row_panel", rows, down * build.rows)
        shape = np.int64(count), np.int64(down * build.rows), np.int64(stride)
        buffers = memory.several("row_panel", "panel", "shared")
        self._grouped("dense", groups, build.items, *shape, np.int32(self.n_common), *buffers)

    def _general(self, rows: slice, columns: slice, stride: int) -> None:
        memory, problem = self._memory, self._problem
        count, size = rows.stop - rows.start, columns.stop - columns.start
        width = self._width(size)
        spans, alpha = stride // width, np.float64(problem.metric.alpha)
        for name in ("apart", "together"):
            memory.reserve(name, 8 * count * stride)
        depth_of_column, column_depths = self._depths(columns)
        depth_of_row, row_depths = self._depths(rows)
        self._solo(rows, column_depths, "row_sums")
        self._solo(columns, row_depths, "column_sums")
        memory.put("depth_of_column", depth_of_column)
        memory.put("depth_of_row", depth_of_row)
        entries = memory.several(
            "row", "branch", "value", "starts", "list_column", "list_value", "divisors", "totals",
            "branch_lengths",
        )  # fmt: skip
        first = np.int64(rows.start), np.int64(columns.start)
        sizes = np.int64(size), np.int64(stride)
        shares = np.int32(spans), np.int32(width)
        sums = memory.several("apart", "together")
        arguments = *first, *sizes, *shares, *entries, alpha, np.int64(0), *sums
        self._grouped("general", (spans, count), RARE_ITEMS, *arguments)
        depths = np.int64(column_depths.size), np.int64(row_depths.size)
        names = "depth_of_column", "depth_of_row", "row_sums", "column_sums"
        buffers = [*memory.several(*names), *sums, memory["distances"]]
        self._plane("finish_general", size, count, *sizes, self._unit, *depths, *buffers)

    @property
    def _unit(self) -> np.float64:
        """Length of a unit; 0 for distances that are shares."""
        return np.float64(0.0 if self._problem.metric.is_normalised else self._problem.unit)

    def _depths(self, samples: slice) -> tuple[Int32, Float64]:
        """Depths that some samples have, and which of them each sample has."""
        totals = self._problem.samples.totals[samples].astype(np.float64)
        if not self._problem.metric.adjusted:
            return np.zeros(totals.size, np.int32), np.zeros(1)
        depths, places = np.unique(totals, return_inverse=True)
        return places.astype(np.int32), depths

    def _solo(self, samples: slice, depths: Float64, name: str) -> None:
        """Sums of samples alone, beside others of some depths."""
        memory, size = self._memory, samples.stop - samples.start
        memory.put(f"{name}_depths", depths)
        memory.reserve(name, 8 * size * depths.size)
        names = "row", "branch", "value", "divisors", "totals", f"{name}_depths", "branch_lengths"
        arguments = np.int64(samples.start), np.int64(size), np.int64(depths.size)
        alpha = np.float64(self._problem.metric.alpha)
        buffers = *memory.several(*names), alpha, np.int64(0), memory[name]
        self._plane("solo", size, depths.size, *arguments, *buffers)

    # Launches.

    def _clear(self, name: str, size: int) -> None:
        memory = self._memory
        memory.reserve(name, size)
        cl.enqueue_fill_buffer(
            memory.queue, memory[name], np.zeros(1, np.int32), 0, -(-size // 4) * 4
        )

    def _flat(self, name: str, *arguments: Any, items: int | None = None) -> None:
        """A work-item for each of so many things: by default the first argument."""
        plain = [np.int64(one) if isinstance(one, int) else one for one in arguments]
        size = int(arguments[0]) if items is None else items
        self._launch(name, (size,), (1 if self._is_vector else FLAT_ITEMS,), plain)

    def _plane(self, name: str, columns: int, rows: int, *arguments: Any) -> None:
        self._launch(name, (columns, rows), (FLAT_ITEMS, 1), arguments)

    def _grouped(self, name: str, groups: tuple[int, int], items: int, *arguments: Any) -> None:
        items = 1 if self._is_vector else items
        self._launch(name, (groups[0] * items, groups[1]), (items, 1), arguments)

    def _launch(self, name: str, size: Any, local: Any, arguments: Any) -> None:
        whole = tuple(
            -(-extent // group) * group for extent, group in zip(size, local, strict=True)
        )
        with self._naming:
            self._kernels[name].set_args(*arguments)
            cl.enqueue_nd_range_kernel(self._memory.queue, self._kernels[name], whole, local)

    @cached_property
    def _memory(self) -> Memory:
        queue = cl.CommandQueue(self._context, self._device)
        return Memory(self._context, queue, nullcontext(), polls=False)

    @cached_property
    def _context(self) -> cl.Context:
        return context_on(self._device)

    @cached_property
    def _kernels(self) -> dict[str, cl.Kernel]:
        problem, build = self._problem, self._build
        metric = problem.metric
        alpha = metric.alpha if metric.name == GENERALISED else 1.0
        power = 1 if metric.is_plain else {0.0: 0, 1.0: 1, 0.5: 2}.get(alpha, 3)
        program = build_kernels(
            self._context, self._device, "unifrac",
            ITEMS=build.items, ROWS=build.rows, CHUNK=build.chunk, SPAN=build.span,
            SHORT=int(problem.is_short), SINGLE=int(problem.single), POWER=power,
            PRESENCE=int(metric.is_presence and not metric.is_plain), ADJUSTED=int(metric.adjusted),
        )  # fmt: skip
        return {kernel.function_name: kernel for kernel in program.all_kernels()}
