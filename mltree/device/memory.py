"""The device's buffers, by name; they grow as programs ask for more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.device.discovery import DeviceInfo
from mltree.device.layout import Layout
from mltree.device.queue import Transfers
from mltree.program.contract import Fault
from mltree.program.engine import Room
from mltree.program.program import Program
from mltree.system.errors import DeviceError, DeviceMemoryError, NumericalError, WorkerFault

MEMORY_SHARE = 0.8
"""Share of the device's memory that CLAs may take."""

BUFFER_SHARE = 0.9
"""Share of the device's largest buffer that they may take: an H200 with 139 GiB free, whose largest
is 35 GiB, refused one at the first use that was hardly larger."""

CPU_BATCH = 1 << 24
"""Bytes of CLAs of a launch on a CPU, where they are best still in a cache when they are read
again; one tree's at least. Searches of 71 taxa x 352 patterns took 0.8 of the CPU time that they
took with all trees and near vectors at once."""

CORE_BATCH = 1 << 21
"""Bytes of it for each core where there are many: as much as a level-2 cache."""

CPU_MATRICES = 1 << 23
"""Bytes of P matrices of a launch on a CPU, which 250 trees of 30 taxa fill: 50 ms of work. A limit
four times as high saved no time, with 30 parts of DNA, with 24 of proteins, or with one part."""

GPU_BATCH = 1 << 25
"""Bytes of near vectors for each compute unit of a GPU: 4 GiB of an H200. Passes over them take
some 10 ms, beside which their launches and what the host does meanwhile are little."""

NEAR_SHARE = 1 / 3
"""Share of a GPU's memory for CLAs that is kept for near vectors at most."""

LEAST_BATCH = 8
"""Near vectors of a launch at least, however long: each of such has work for a whole device."""

MEMORY_HINT = "--precision mixed takes half as much, --device picks a device with more memory"
"""Hint where one tree is too much."""

PARTIAL_SUMS = 1 << 25
"""Bytes of partial sums of a launch, which two classes of amino acids fill on a GPU: it has most
chunks. All 60 classes of C60 would take 0.8 GB."""

CPU_SCORES, GPU_SCORES = 1 << 26, 1 << 30
"""Bytes of the cells of insertions scored at a time: of 4,000 patterns, 500,000 on a CPU. All
that a wide look at 8,192 prunes of 1,000 taxa scores took 14 GB beside 25 replicates, on a GPU
that four ranks share."""

SLAB = 1 << 24
"""Bytes of the rows that are laid out at a time: so few that the allocator keeps their memory."""

LEAST = 64
"""Bytes of the smallest buffer: a kernel takes no empty one."""

RowArray: TypeAlias = npt.NDArray[Any]

Widen: TypeAlias = Callable[[cl.Buffer, cl.Buffer, int, int], None]
"""From one buffer into another from a byte on, so many numbers."""


class Memory:
    """Named buffers on one device."""

    def __init__(
        self, context: cl.Context, queue: cl.CommandQueue, stopwatch: AbstractContextManager[object]
    ) -> None:
        """``stopwatch``: entered whenever the host waits for the device."""
        self._context = context
        self._queue = queue
        self._most = int(queue.device.max_mem_alloc_size)
        self._transfers = Transfers(queue, stopwatch)
        self.expect = self._transfers.expect
        self._buffers: dict[str, cl.Buffer] = {}
        self.generation = 0
        """Counts up whenever a name comes to stand for another buffer."""

    def __getitem__(self, name: str) -> cl.Buffer:
        return self._buffers[name]

    def size(self, name: str) -> int:
        """Bytes of a buffer; 0 where there is none."""
        return self._buffers[name].size if name in self._buffers else 0

    @property
    def bytes_held(self) -> int:
        """Bytes of all buffers together."""
        return sum(buffer.size for buffer in self._buffers.values())

    def reserve(self, name: str, size: int, keep: bool = False) -> None:
        """Make a buffer at least so many bytes large; ``keep`` copies what it held.

        Raises:
            DeviceMemoryError: the device has no room for it.
        """
        old = self._buffers.get(name)
        if old is not None and old.size >= size:
            return
        self.generation += 1
        if old is not None and not keep:
            old = None
            del self._buffers[name]
        try:
            new = self._allocate(max(size, LEAST))
            if old is not None:
                cl.enqueue_copy(self._queue, new, old)
        except cl.Error as error:
            device = self._queue.device.name.strip()
            raise DeviceMemoryError(
                f"{device}: cannot allocate {size / 2**20:.0f} MiB for {name}: {error}",
                hint=MEMORY_HINT,
            ) from error
        self._buffers[name] = new

    def _allocate(self, size: int) -> cl.Buffer:
        if size > self._most:  # some drivers fail on first use only
            raise cl.MemoryError("larger than the device's largest buffer")
        return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)

    def put(self, name: str, array: npt.NDArray[Any]) -> None:
        """Fill a buffer with an array."""
        self.reserve(name, array.nbytes)
        self.write(name, np.ascontiguousarray(array))

    def put_rows(
        self,
        name: str,
        rows: RowArray,
        size: int,
        laid: Callable[[RowArray], RowArray],
        widen: Widen | None = None,
    ) -> None:
        """Fill a buffer with rows as they are laid out, so many bytes each, a slab at a time.

        A slab is on the device before the next one is made: else all would lie in the host's memory
        until something is read.

        widen  makes of rows that are sent in fewer bytes what the buffer holds
        """
        self.reserve(name, len(rows) * size)
        step = max(1, SLAB // max(1, size))
        for first in range(0, len(rows), step):
            slab = np.ascontiguousarray(laid(rows[first : first + step]))
            if first:
                self.read(name, np.empty(1, slab.dtype))
            if widen is None:
                self.write(name, slab, first * size)
            else:
                self.put("slab", slab)
                widen(self["slab"], self[name], first * size, slab.size)

    def write(self, name: str, array: npt.NDArray[Any], offset: int = 0) -> None:
        """Write an array, which must not change before the next read; ``offset``: bytes."""
        self._transfers.write(self._buffers[name], array, offset)

    def ask(self, name: str, size: int, offset: int = 0) -> None:
        """Let the device begin, and fetch so many bytes when all that it was sent is done."""
        self._transfers.ask(self._buffers[name], size, offset)

    def read(self, name: str, array: npt.NDArray[Any], offset: int = 0) -> None:
        """Fill an array once the device has done all that it was sent; ``offset``: bytes.

        Raises:
            DeviceError: the device does not answer.
        """
        self._transfers.read(array, self._buffers[name], offset)

    def take(self, names: Iterable[str]) -> dict[str, cl.Buffer]:
        """Take buffers away from their names."""
        self.generation += 1
        return {name: self._buffers.pop(name) for name in names if name in self._buffers}

    def give(self, buffers: dict[str, cl.Buffer]) -> None:
        """Give buffers to their names."""
        self.generation += 1
        self._buffers.update(buffers)


MATRICES_A_SLOT = 4
"""Branch lengths of the largest launch for every CLA, a P matrix a part each: a scan has 3.3, and
re-scoring 3 for every near vector."""


def cla_memory(device: cl.Device, limit: int | None = None) -> int:
    """Bytes that CLAs may take: a share of the memory, within one buffer and the user's limit."""
    largest = int(BUFFER_SHARE * device.max_mem_alloc_size)
    most = min(largest, int(MEMORY_SHARE * device.global_mem_size))
    return most if limit is None else min(most, limit)


def limit_on(device: DeviceInfo, limit: int | None) -> int | None:
    """Bytes that CLAs of this rank may take: its part, where several share the device's memory.

    Its largest buffer is no part of that: each of them may have one.

    limit  that the user sets to all of them together; None where there is none
    """
    if device.sharers == 1:
        return limit
    whole = int(MEMORY_SHARE * device.memory)
    return (whole if limit is None else min(whole, limit)) // device.sharers


def slot_bytes(layout: Layout, n_patterns: int, parts: int = 1) -> int:
    """Bytes of a CLA slot, with its share of the P matrices where there are several parts."""
    size = layout.cla_bytes(n_patterns)
    return size + MATRICES_A_SLOT * parts * layout.matrix_bytes if parts > 1 else size


def room_on(
    device: cl.Device,
    layout: Layout,
    n_patterns: int,
    limit: int | None = None,
    parts: int = 1,
) -> Room:
    """CLA slots that fit, what a CPU's caches hold of them, and what keeps a GPU busy.

    ``limit``: bytes that CLAs may take, with the P matrices of many parts; the device's own where
    None. A GPU takes all trees that fit side by side, for few leave most of it idle, beside as many
    near vectors as keep it busy: with next to none, a round's insertions are re-scored a few at a
    time.
    """
    slot, units = slot_bytes(layout, n_patterns, parts), device.max_compute_units
    most = max(1, cla_memory(device, limit) // slot)
    cell = layout.cell_bytes(n_patterns, parts)
    cells = PARTIAL_SUMS // cell
    if device.type & cl.device_type.CPU:
        cached = max(CPU_BATCH, units * CORE_BATCH) // slot
        scores = CPU_SCORES // cell
        return Room(most, cached, max(LEAST_BATCH, cached), CPU_MATRICES, cells, scores)
    near = max(LEAST_BATCH, units * GPU_BATCH // slot)
    trees = most - min(near, int(NEAR_SHARE * most))
    return Room(most, trees, near, cells=cells, scores=GPU_SCORES // cell)


# A device's errors, as mltree's own.


class NamingDevice:
    """Inside its ``with`` blocks a runtime's error becomes a DeviceError that names the device.

    Some drivers allocate a buffer at its first use, so that any call may lack memory.
    """

    def __init__(self, device: cl.Device) -> None:
        self._device = device

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, cl.Error):
            return
        message = f"{self._device.name.strip()}: {error}"
        if isinstance(error, cl.MemoryError):
            raise DeviceMemoryError(message, hint=MEMORY_HINT) from error
        raise DeviceError(
            message, hint="`mltree devices` tests every device; --device picks another"
        ) from error


def raise_fault(device: cl.Device, program: Program, fault: int, stage: int) -> None:
    """Raise what the worker reported in its header; returns where it reported nothing.

    Raises:
        NumericalError: a sum came out as NaN or infinite.
        WorkerFault: the worker stopped inside the program.
    """
    if fault == Fault.NONE:
        return
    name = type(program.stages[stage]).__name__
    where = f"stage {program.first_stage + stage} ({name})"
    if fault == Fault.NOT_FINITE:
        raise NumericalError(
            f"{device.name}: a sum of {where} came out as NaN or infinite",
            hint="check the model's parameters and the alignment with `mltree check`",
        )
    raise WorkerFault(
        f"{device.name}: the worker stopped in {where}: {Fault(fault).name.lower()}",
        hint="--device picks another device, --device cpu the processor",
    )
