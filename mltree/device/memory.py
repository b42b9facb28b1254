"""The device's buffers, by name; they grow as programs ask for more."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.device.channel import Channel
from mltree.errors import DeviceError

__all__ = ["Memory", "cla_memory"]

MEMORY_SHARE = 0.8
"""Share of the device's memory that CLAs may take."""

LEAST = 64
"""Bytes of the smallest buffer: a kernel takes no empty one."""


class Memory:
    """Named buffers on one device."""

    def __init__(
        self, context: cl.Context, queue: cl.CommandQueue, waiting: AbstractContextManager[object]
    ) -> None:
        """``waiting`` is entered whenever the host waits for the device."""
        self._context = context
        self._queue = queue
        self._most = int(queue.device.max_mem_alloc_size)
        self._channel = Channel(queue, waiting)
        self.expect = self._channel.expect
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
        """Of all buffers together."""
        return sum(buffer.size for buffer in self._buffers.values())

    def reserve(self, name: str, size: int, keep: bool = False) -> None:
        """Make a buffer at least so many bytes large; ``keep`` copies what it held.

        Raises:
            DeviceError: the device has no room for it.
        """
        old = self._buffers.get(name)
        if old is not None and old.size >= size:
            return
        self.generation += 1
        if old is not None and not keep:
            old = None
            del self._buffers[name]
        try:
            if size > self._most:  # some drivers fail on first use only
                raise cl.MemoryError("larger than the device's largest buffer")
            new = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(size, LEAST))
            if old is not None:
                cl.enqueue_copy(self._queue, new, old)
        except cl.Error as error:
            device = self._queue.device.name
            raise DeviceError(
                f"{device}: cannot allocate {size / 2**20:.0f} MiB for {name}: {error}",
                hint="fewer starting trees, --precision mixed, or a device with more memory",
            ) from error
        self._buffers[name] = new

    def put(self, name: str, array: npt.NDArray[Any]) -> None:
        """Fill a buffer with an array."""
        self.reserve(name, array.nbytes)
        self.write(name, np.ascontiguousarray(array))

    def write(self, name: str, array: npt.NDArray[Any], offset: int = 0) -> None:
        """Write an array, which must not change before the next read; ``offset``: bytes."""
        self._channel.write(self._buffers[name], array, offset)

    def ask(self, name: str, size: int, offset: int = 0) -> None:
        """Let the device begin, and fetch so many bytes when all that it was sent is done."""
        self._channel.ask(self._buffers[name], size, offset)

    def read(self, name: str, array: npt.NDArray[Any], offset: int = 0) -> None:
        """Fill an array once the device has done all that it was sent; ``offset``: bytes.

        Raises:
            DeviceError: the device does not answer.
        """
        self._channel.read(array, self._buffers[name], offset)

    def take(self, names: Iterable[str]) -> dict[str, cl.Buffer]:
        """Buffers that the names let go of."""
        self.generation += 1
        return {name: self._buffers.pop(name) for name in names if name in self._buffers}

    def give(self, buffers: dict[str, cl.Buffer]) -> None:
        """Buffers that their names stand for from now on."""
        self.generation += 1
        self._buffers.update(buffers)


def cla_memory(device: cl.Device) -> int:
    """Bytes that CLAs may take: a share of the memory, within one buffer."""
    return min(device.max_mem_alloc_size, int(MEMORY_SHARE * device.global_mem_size))
