"""A device's memory: named buffers that grow, transfers in order, a deadline for every wait."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.device import check_process
from mltree.device.layout import Layout
from mltree.program.contract import Fault
from mltree.program.engine import Room
from mltree.program.program import Program
from mltree.system.errors import DeviceError, DeviceMemoryError, NumericalError, WorkerFault
from mltree.system.process import is_mapping

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

CPU_SPREAD = 8
"""Times as much of a launch on a CPU where trees are on different parts, each of which is gone
through by itself. Searches of loci on one core, CPU seconds without / with, and with four times as
many loci at a time: 60 of 24 taxa x 200 sites 32.9 / 25.9, 10 of 50 x 500 18.0 / 15.1; replicates:
60 of 12 x 898 6.7 / 5.3, 40 of 24 x 200 10.4 / 8.7, 8 of 64 x 1,976 22.8 / 22.5."""

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

PINNED_BYTES = 1 << 20
"""Bytes of the largest answer that a GPU puts into the host's memory by itself."""


class Memory:
    """Named buffers on one device, and transfers through its in-order queue."""

    def __init__(
        self,
        context: cl.Context,
        queue: cl.CommandQueue,
        stopwatch: AbstractContextManager[object],
        *,
        polls: bool = True,
    ) -> None:
        """``stopwatch``: entered whenever the host waits for the device.

        ``polls``: the host has nothing else to do meanwhile.
        """
        self._context, self.queue, self._stopwatch = context, queue, stopwatch
        self._most = int(queue.device.max_mem_alloc_size)
        self._buffers: dict[str, cl.Buffer] = {}
        self.generation = 0
        """Counts up whenever a name comes to stand for another buffer."""
        self._watch = Watch.over(queue.device)
        self._pinned = _PinnedBuffer(queue) if self._watch.spin else None
        self._watch.spin *= polls
        self._products = 0.0
        self._writes: list[cl.Event] = []
        self._asked: _Fetch | None = None

    def __getitem__(self, name: str) -> cl.Buffer:
        return self._buffers[name]

    def several(self, *names: str) -> list[cl.Buffer]:
        """The buffers of these names."""
        return [self._buffers[name] for name in names]

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
                cl.enqueue_copy(self.queue, new, old)
        except cl.Error as error:
            device = self.queue.device.name.strip()
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

    def take(self, names: Iterable[str]) -> dict[str, cl.Buffer]:
        """Take buffers away from their names."""
        self.generation += 1
        return {name: self._buffers.pop(name) for name in names if name in self._buffers}

    def give(self, buffers: dict[str, cl.Buffer]) -> None:
        """Give buffers to their names."""
        self.generation += 1
        self._buffers.update(buffers)

    def expect(self, products: float) -> None:
        """So many multiplications were sent, which a read will have to wait for."""
        self._products += products
        self._forget()

    def write(self, name: str, array: npt.NDArray[Any], offset: int = 0) -> None:
        """Send an array, which must not change before the next read; ``offset``: bytes."""
        check_process()
        # pyopencl lets an event of a transfer go by waiting for it, so that it is kept.
        buffer = self._buffers[name]
        self._writes.append(
            cl.enqueue_copy(self.queue, buffer, array, dst_offset=offset, is_blocking=False)
        )
        self._forget()

    def ask(self, name: str, size: int, offset: int = 0) -> None:
        """Let the device begin, and fetch so many bytes when all that it was sent is done."""
        check_process()
        self._forget()
        buffer, pinned = self._buffers[name], self._pinned if size <= PINNED_BYTES else None
        done = pinned.fetch(buffer, size, offset) if pinned else cl.enqueue_marker(self.queue)
        self.queue.flush()
        self._asked = _Fetch(buffer, size, offset, done, pinned)

    def read(self, name: str, array: npt.NDArray[Any], offset: int = 0) -> None:
        """Fill an array once the device has done all that it was sent; ``offset``: bytes.

        What :meth:`ask` asked for last is not asked for again.

        Raises:
            DeviceError: the device does not answer.
        """
        buffer = self._buffers[name]
        if self._asked is None or self._asked[:3] != (buffer, array.nbytes, offset):
            self.ask(name, array.nbytes, offset)
        assert self._asked is not None
        with self._stopwatch:
            try:
                self._watch.wait(self._asked.done, patience(self._products))
            except DeviceError:
                _keep_for_ever([self._writes, self._asked])
                raise
            if self._asked.pinned:
                self._asked.pinned.copy_to(array)
            else:
                # NVIDIA takes 0.3 ms longer for a read into ordinary memory that does not block.
                cl.enqueue_copy(self.queue, array, buffer, src_offset=offset)
        self._asked = None
        self._writes.clear()
        self._products = 0.0

    def fetch(
        self, name: str, shape: int | tuple[int, ...], kind: npt.DTypeLike, offset: int = 0
    ) -> npt.NDArray[Any]:
        """A new array from a buffer; see :meth:`read`."""
        array = np.empty(shape, kind)
        self.read(name, array, offset)
        return array

    def _forget(self) -> None:
        """Drop what was asked for; its event stays until the next read."""
        if self._asked is not None:
            self._writes.append(self._asked.done)
        self._asked = None


class _Fetch(NamedTuple):
    """The transfer asked for last."""

    buffer: cl.Buffer
    size: int
    offset: int
    done: cl.Event
    pinned: _PinnedBuffer | None
    """The pinned buffer that receives it, if any."""


class _PinnedBuffer:
    """Host memory that a GPU writes into by itself (pinned: 5 us less than a read that blocks)."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self._buffer = cl.Buffer(queue.context, flags, PINNED_BYTES)
        self._bytes, _ = cl.enqueue_map_buffer(
            queue, self._buffer, cl.map_flags.READ, 0, (PINNED_BYTES,), np.dtype(np.uint8)
        )

    def fetch(self, buffer: cl.Buffer, size: int, offset: int) -> cl.Event:
        """Have the GPU write bytes here; the event comes when they are there."""
        return cl.enqueue_copy(
            self._queue, self._bytes[:size], buffer, src_offset=offset, is_blocking=False
        )

    def copy_to(self, array: npt.NDArray[Any]) -> None:
        array.reshape(-1).view(np.uint8)[:] = self._bytes[: array.nbytes]


def _keep_for_ever(things: list[object]) -> None:
    """Leak events that would be waited for when they are let go, at the interpreter's end too."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))


# Timeouts: every wait of the host has a deadline.
#
# OpenCL knows no wait with a time limit. A GPU's driver spins while it waits, so the host may as
# well poll. A CPU device wants the core for itself: there, and in long waits, a thread waits, and
# the host waits for the thread, which costs its wake-up (12 us beside PoCL's 90 for the smallest
# program; polling cost 30).

LEAST_PATIENCE = 600.0
"""Seconds that any command is given: a CPU may be compiling its kernel first."""

SLOWEST = 1e6
"""Multiplications a second below which a device counts as lost: a slow core does 100 times more."""

SPIN = 0.1
"""Seconds of polling on a GPU; a thread's wake-up is little beside a longer wait."""

OUT = 0.01
"""Seconds between two looks whether all threads are back, at the very end."""

_COMPLETE = int(cl.command_execution_status.COMPLETE)


class Waitable(Protocol):
    """The part of an OpenCL event that waits need."""

    @property
    def command_execution_status(self) -> int:
        """COMPLETE (0) when the command is done, negative when it failed."""

    def wait(self) -> object:
        """Return once the command is done."""


def patience(products: float) -> float:
    """Seconds that a command with so many multiplications may take before the device is lost."""
    return LEAST_PATIENCE + products / SLOWEST


class Watch:
    """Waits for the commands of one device."""

    def __init__(self, device: str, spin: float = 0.0) -> None:
        """``device``: its name; ``spin``: seconds of polling before a thread takes over."""
        self._device, self.spin = device, spin
        self._is_lost = False

    @classmethod
    def over(cls, device: cl.Device) -> Watch:
        """The watch that suits a device."""
        is_cpu = bool(device.type & cl.device_type.CPU)
        return cls(device.name.strip(), 0.0 if is_cpu else SPIN)

    def wait(self, event: Waitable, limit: float = LEAST_PATIENCE) -> None:
        """Return once the event's command, already flushed, is done.

        ``limit``: seconds; see :func:`patience`.

        Raises:
            DeviceError: it was not done in time, or another one before it.
        """
        if not self._is_lost and (self._polled(event) or _waiter().wait(event, limit)):
            return
        self._is_lost = True
        raise DeviceError(
            f"{self._device}: no answer within {limit:.0f} s",
            hint="it or its driver hangs, and the system's log may say why; a search goes on from "
            "its checkpoint, on another device with --device",
        )

    def _polled(self, event: Waitable) -> bool:
        """True if the event came while polled for; raises what its command raised."""
        end = time.perf_counter() + (0.0 if is_mapping() else self.spin)
        while event.command_execution_status > _COMPLETE:
            if time.perf_counter() >= end:
                return False
            time.sleep(0)  # another thread may have work for another device
        event.wait()
        return True


class _Waiter:
    """A thread that waits for one event after the other on behalf of another thread."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Waitable | None] = SimpleQueue()
        self._answers: SimpleQueue[cl.Error | None] = SimpleQueue()
        self.is_stuck = False
        """True while a wait is under way, and for ever after one that did not end in time."""
        self._thread = threading.Thread(
            target=_serve, args=(self._asked, self._answers), name="device wait", daemon=True
        )
        self._thread.start()

    def wait(self, event: Waitable, limit: float) -> bool:
        """True if the event came within so many seconds; raises what its command raised."""
        self.is_stuck = True
        _inside.add(self._thread)
        self._asked.put(event)
        try:
            problem = self._answers.get(timeout=limit)
        except Empty:
            _inside.discard(self._thread)
            return False
        self.is_stuck = False
        if problem is not None:
            raise problem
        return True

    def __del__(self) -> None:
        self._asked.put(None)


_inside: set[threading.Thread] = set()
"""Threads that are in OpenCL, or about to be, and may still come back."""


def _serve(asked: SimpleQueue[Waitable | None], answers: SimpleQueue[cl.Error | None]) -> None:
    """Wait for one event after the other, up to None.

    A thread that is stuck keeps its event: pyopencl lets an event go by waiting for it.
    """
    while (event := asked.get()) is not None:
        problem = None
        try:
            event.wait()
        except cl.Error as error:
            problem = error
        del event
        _inside.discard(threading.current_thread())
        answers.put(problem)


_local = threading.local()

os.register_at_fork(after_in_child=_inside.clear)
"""Threads that wait in the parent will never be back in the child."""


@atexit.register
def _see_them_out() -> None:
    """Let no thread come back from OpenCL into an interpreter that is shutting down.

    Python would end it there by unwinding its stack, which C++ answers with ``terminate``. One is
    still there where an exception ended the wait for it: a notebook's interrupt, a rank's end.
    """
    deadline = time.monotonic() + LEAST_PATIENCE
    while any(thread.is_alive() for thread in list(_inside)) and time.monotonic() < deadline:
        time.sleep(OUT)


def _waiter() -> _Waiter:
    waiter: _Waiter | None = getattr(_local, "waiter", None)
    if waiter is None or waiter.is_stuck:
        waiter = _local.waiter = _Waiter()
    return waiter


MATRICES_A_SLOT = 4
"""Branch lengths of the largest launch for every CLA, a P matrix a part each: a scan has 3.3, and
re-scoring 3 for every near vector."""


def cla_memory(device: cl.Device, limit: int | None = None) -> int:
    """Bytes that CLAs may take: a share of the memory, within one buffer and the user's limit."""
    largest = int(BUFFER_SHARE * device.max_mem_alloc_size)
    most = min(largest, int(MEMORY_SHARE * device.global_mem_size))
    return most if limit is None else min(most, limit)


def slot_bytes(layout: Layout, n_patterns: int, parts: int = 1) -> int:
    """Bytes of a CLA slot, with its share of the P matrices where there are several parts."""
    size = layout.cla_bytes(n_patterns)
    return size + MATRICES_A_SLOT * parts * layout.matrix_bytes if parts > 1 else size


def room_on(
    device: cl.Device, layout: Layout, n_patterns: int, limit: int | None = None, parts: int = 1
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
        near = max(LEAST_BATCH, cached)
        return Room(most, cached, near, CPU_MATRICES, cells, scores, CPU_SPREAD)
    near = max(LEAST_BATCH, units * GPU_BATCH // slot)
    trees = most - min(near, int(NEAR_SHARE * most))
    return Room(most, trees, near, cells=cells, scores=GPU_SCORES // cell)


# A device's errors, as mltree's own.


class NamingDevice:
    """Context in which a runtime's error becomes a DeviceError that names the device.

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
