"""The queue of a device: transfers in order, with a deadline for every wait."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.system.errors import DeviceError
from mltree.system.process import is_mapping

# Timeouts: every wait of the host has a deadline.
#
# OpenCL knows no wait with a time limit. A GPU's driver spins while it waits, so the host may as
# well poll: short waits cost nothing that way. A CPU device wants the core for itself: there, and
# in long waits, a thread waits as the driver likes best, and the host waits for the thread, which
# costs one thread's wake-up (12 us beside PoCL's 90 us for the smallest program; polling cost 30).

LEAST_PATIENCE = 600.0
"""Seconds that any command is given: a CPU may be compiling its kernel first."""

SLOWEST = 1e6
"""Multiplications a second below which a device counts as lost: one slow core does 100 times
as many."""

SPIN = 0.1
"""Seconds of polling on a GPU; a thread's wake-up is little beside a longer wait."""

OUT = 0.01
"""Seconds between two looks whether all threads are back, at the very end."""

_COMPLETE = int(cl.command_execution_status.COMPLETE)


_process: int | None = None
"""The process that loaded the drivers."""


def check_process() -> None:
    """Make sure that drivers are loaded in this process, or not loaded yet.

    A fork leaves their threads behind: PoCL would never answer the forked process.

    Raises:
        DeviceError: this process was forked from the one that loaded them.
    """
    global _process  # noqa: PLW0603
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise DeviceError(
            "this process was forked from one that has used OpenCL, whose devices do not answer it",
            hint="start processes with multiprocessing.get_context('spawn'), or make the first "
            "call of mltree in the forked process",
        )


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
        self._device = device
        self._spin = spin
        self._is_lost = False

    @property
    def spins(self) -> bool:
        """True if it polls at first."""
        return self._spin > 0

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
        end = time.perf_counter() + (0.0 if is_mapping() else self._spin)
        while event.command_execution_status > _COMPLETE:
            if time.perf_counter() >= end:
                return False
        event.wait()
        return True


class _Waiter:
    """A thread that waits for one event after the other on behalf of another thread."""

    def __init__(self) -> None:
        self._box = _Box()
        self._asked, self._answered = threading.Lock(), threading.Lock()
        self._asked.acquire()
        self._answered.acquire()
        self.is_stuck = False
        """True while a wait is under way, and for ever after one that did not end in time."""
        arguments = (self._box, self._asked, self._answered)
        threading.Thread(target=_serve, args=arguments, name="device wait", daemon=True).start()

    def wait(self, event: Waitable, limit: float) -> bool:
        """True if the event came within so many seconds; raises what its command raised."""
        self.is_stuck = True
        self._box.content, self._box.is_out = event, True
        self._asked.release()
        if not self._answered.acquire(timeout=limit):
            _boxes.discard(self._box)
            return False
        self.is_stuck = False
        problem, self._box.content = self._box.content, None
        if isinstance(problem, BaseException):
            raise problem
        return True

    def __del__(self) -> None:
        self._box.content = None
        self._asked.release()


class _Box:
    """The exchange of a waiter and its thread."""

    def __init__(self) -> None:
        self.content: Waitable | BaseException | None = None
        self.is_out = False
        """True while the thread is in OpenCL, or about to be."""
        _boxes.add(self)


_boxes: WeakSet[_Box] = WeakSet()
"""Boxes of all waits that may still come to an end."""


def _serve(box: _Box, asked: threading.Lock, answered: threading.Lock) -> None:
    """Wait for what is put into the box; an empty box is the end.

    A thread that is stuck keeps its event, which matters: pyopencl lets an event go by waiting
    for it.
    """
    while True:
        asked.acquire()
        event = box.content
        if event is None or isinstance(event, BaseException):
            return
        box.content = None
        try:
            event.wait()
        except cl.Error as error:
            box.content = error
        del event
        box.is_out = False
        answered.release()


_local = threading.local()

os.register_at_fork(after_in_child=_boxes.clear)
"""Threads that wait in the parent will never be back in the child."""


@atexit.register
def _see_them_out() -> None:
    """Let no thread come back from OpenCL into an interpreter that is shutting down.

    Python would end it there by unwinding its stack, which C++ answers with ``terminate``. One is
    still there where an exception ended the wait for it: a notebook's interrupt, a rank's end.
    """
    deadline = time.monotonic() + LEAST_PATIENCE
    while any(box.is_out for box in _boxes) and time.monotonic() < deadline:
        time.sleep(OUT)


def _waiter() -> _Waiter:
    """This thread's waiter."""
    waiter: _Waiter | None = getattr(_local, "waiter", None)
    if waiter is None or waiter.is_stuck:
        waiter = _local.waiter = _Waiter()
    return waiter


PINNED_BYTES = 1 << 20
"""Bytes of the largest answer that a GPU puts into the host's memory by itself."""


class Transfers:
    """Transfers to a device and back through one in-order queue."""

    def __init__(self, queue: cl.CommandQueue, stopwatch: AbstractContextManager[object]) -> None:
        """``stopwatch``: entered whenever the host waits."""
        self._queue = queue
        self._stopwatch = stopwatch
        self._watch = Watch.over(queue.device)
        self._pinned = PinnedBuffer(queue) if self._watch.spins else None
        self._products = 0.0
        self._writes: list[cl.Event] = []
        self._asked: _Fetch | None = None

    def expect(self, products: float) -> None:
        """So many multiplications were sent, which a read will have to wait for."""
        self._products += products
        self._forget()

    def write(self, buffer: cl.Buffer, array: npt.NDArray[Any], offset: int = 0) -> None:
        """Send an array, which must not change before the next read; ``offset``: bytes."""
        check_process()
        # pyopencl lets an event of a transfer go by waiting for it, so that it is kept.
        self._writes.append(
            cl.enqueue_copy(self._queue, buffer, array, dst_offset=offset, is_blocking=False)
        )
        self._forget()

    def ask(self, buffer: cl.Buffer, size: int, offset: int = 0) -> None:
        """Let the device begin, and fetch so many bytes when everything sent before is done."""
        check_process()
        self._forget()
        pinned = self._pinned if size <= PINNED_BYTES else None
        done = pinned.fetch(buffer, size, offset) if pinned else cl.enqueue_marker(self._queue)
        self._queue.flush()
        self._asked = _Fetch(buffer, size, offset, done, pinned)

    def read(self, array: npt.NDArray[Any], buffer: cl.Buffer, offset: int = 0) -> None:
        """Fill an array, once everything sent before is done; ``offset``: bytes.

        What :meth:`ask` asked for last is not asked for again.

        Raises:
            DeviceError: the device does not answer.
        """
        if self._asked is None or self._asked[:3] != (buffer, array.nbytes, offset):
            self.ask(buffer, array.nbytes, offset)
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
                cl.enqueue_copy(self._queue, array, buffer, src_offset=offset)
        self._asked = None
        self._writes.clear()
        self._products = 0.0

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
    pinned: PinnedBuffer | None
    """The pinned buffer that receives it, if any."""


class PinnedBuffer:
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
        """Fill an array with what came."""
        array.reshape(-1).view(np.uint8)[:] = self._bytes[: array.nbytes]


def _keep_for_ever(things: list[object]) -> None:
    """Leak events that would be waited for when they are let go, at the interpreter's end too."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))
