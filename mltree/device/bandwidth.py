"""How fast a device copies its own memory: what a likelihood function could reach at most."""

from __future__ import annotations

import time

import pyopencl as cl

from mltree.device.build import context_on

__all__ = ["copy_bandwidth"]

FIRST_BYTES = 1 << 25
MOST_BYTES = 1 << 28
"""Bytes of one copy: doubled until it is far more than any cache, or takes a while."""

LONG_ENOUGH = 2e-3
"""Seconds of a copy beside which its start is nothing; a CPU is there with 32 MiB."""

TRIES = 3
"""The fastest of so many: a limit is what is possible."""


def copy_bandwidth(device: cl.Device, tries: int = TRIES) -> float:
    """Bytes a second that a copy on the device reads and writes together; takes some 0.1 s."""
    context = context_on(device)
    queue = cl.CommandQueue(context)
    most = min(MOST_BYTES, device.max_mem_alloc_size // 4, device.global_mem_size // 16)
    size = min(FIRST_BYTES, most)
    while True:
        seconds = _copy_seconds(context, queue, size, tries)
        if seconds >= LONG_ENOUGH or 2 * size > most:
            return 2 * size / seconds
        size *= 2


def _copy_seconds(context: cl.Context, queue: cl.CommandQueue, size: int, tries: int) -> float:
    flags = cl.mem_flags.READ_WRITE
    source, target = cl.Buffer(context, flags, size), cl.Buffer(context, flags, size)
    cl.enqueue_copy(queue, source, target)  # pages that were never written are not really read
    times = []
    for _ in range(1 + tries):
        start = time.perf_counter()
        cl.enqueue_copy(queue, target, source)
        queue.finish()
        times.append(time.perf_counter() - start)
    return min(times[1:])  # the first one makes room
