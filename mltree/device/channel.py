"""What goes to a device and comes back, in order and with a deadline."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.device.waiting import Watch, check_process, patience
from mltree.errors import DeviceError

__all__ = ["MAILBOX", "Channel", "Mailbox"]

MAILBOX = 1 << 20
"""Bytes of the largest answer that a GPU puts into the host's memory by itself."""


class Channel:
    """What goes to a device and comes back through one in-order queue."""

    def __init__(self, queue: cl.CommandQueue, waiting: AbstractContextManager[object]) -> None:
        """``waiting`` is entered whenever the host waits: a stopwatch, say."""
        self._queue = queue
        self._waiting = waiting
        self._watch = Watch.over(queue.device)
        self._mailbox = Mailbox(queue) if self._watch.spins else None
        self._products = 0.0
        self._writes: list[cl.Event] = []
        self._asked: _Asked | None = None

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
        box = self._mailbox if size <= MAILBOX else None
        done = box.order(buffer, size, offset) if box else cl.enqueue_marker(self._queue)
        self._queue.flush()
        self._asked = _Asked(buffer, size, offset, done, box)

    def read(self, array: npt.NDArray[Any], buffer: cl.Buffer, offset: int = 0) -> None:
        """Fill an array, once everything sent before is done; ``offset``: bytes.

        What :meth:`ask` asked for last is not asked for again.

        Raises:
            DeviceError: the device does not answer.
        """
        if self._asked is None or self._asked[:3] != (buffer, array.nbytes, offset):
            self.ask(buffer, array.nbytes, offset)
        assert self._asked is not None
        with self._waiting:
            try:
                self._watch.wait(self._asked.done, patience(self._products))
            except DeviceError:
                _keep_for_ever([self._writes, self._asked])
                raise
            if self._asked.box:
                self._asked.box.empty(array)
            else:
                # NVIDIA takes 0.3 ms longer for a read into ordinary memory that does not block.
                cl.enqueue_copy(self._queue, array, buffer, src_offset=offset)
        self._asked = None
        self._writes.clear()
        self._products = 0.0

    def _forget(self) -> None:
        """What was asked for is no longer of interest; its event stays until the next read."""
        if self._asked is not None:
            self._writes.append(self._asked.done)
        self._asked = None


class _Asked(NamedTuple):
    """What was asked for last."""

    buffer: cl.Buffer
    size: int
    offset: int
    done: cl.Event
    box: Mailbox | None
    """Where it comes by itself."""


class Mailbox:
    """Host memory that a GPU writes into by itself (pinned: 5 us less than a read that blocks)."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self._buffer = cl.Buffer(queue.context, flags, MAILBOX)
        self._bytes, _ = cl.enqueue_map_buffer(
            queue, self._buffer, cl.map_flags.READ, 0, (MAILBOX,), np.dtype(np.uint8)
        )

    def order(self, buffer: cl.Buffer, size: int, offset: int) -> cl.Event:
        """Have bytes put in; the event comes when they are there."""
        return cl.enqueue_copy(
            self._queue, self._bytes[:size], buffer, src_offset=offset, is_blocking=False
        )

    def empty(self, array: npt.NDArray[Any]) -> None:
        """Fill an array with what came."""
        array.reshape(-1).view(np.uint8)[:] = self._bytes[: array.nbytes]


def _keep_for_ever(things: list[object]) -> None:
    """Leak events that would be waited for when they are let go, at the interpreter's end too."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))
