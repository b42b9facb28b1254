"""Kernels built ahead of their use: in processes of their own, while the host prepares a search.

Drivers do one build at a time in a process, whatever its threads. What one process has built, the
next finds in the driver's cache or ours; a mark beside them says that it is there, so that nothing
is started for nothing. There are as many processes as the run has threads. A process that fails
leaves its builds to whoever needs them.
"""

from __future__ import annotations

import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mltree.clean_start import clean_start
from mltree.device.build import context_on, mark
from mltree.device.cache import write_whole
from mltree.device.discovery import choose_device
from mltree.device.info import DeviceInfo
from mltree.device.layout import Layout
from mltree.device.worker import Worker
from mltree.errors import DeviceError
from mltree.threads import threads

__all__ = ["Ahead", "build", "builders", "search_workers"]


LOOK = 0.01
"""Seconds between two looks for a build's mark."""


class Ahead:
    """Builds of workers for one device and layout, in processes of their own."""

    def __init__(self, device: DeviceInfo, layout: Layout, workers: Sequence[str]) -> None:
        """Start those that no process has done before; none where there is one thread only."""
        self._device, self._layout = device, layout
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        weakref.finalize(self, _end, self._running)
        with suppress(OSError, DeviceError):
            for own in _shared_out(device, layout, workers):
                self._running.update(dict.fromkeys(own, _start(device, layout, own)))

    @classmethod
    def of_search(cls, device: DeviceInfo, layout: Layout) -> Ahead:
        """Start the builds that every search needs."""
        return cls(device, layout, search_workers(layout))

    def wait(self, worker: str) -> None:
        """Return when nobody is at work on it any more."""
        process = self._running.get(worker)
        while process and process.poll() is None and not self._mark(worker).exists():
            time.sleep(LOOK)

    def _mark(self, worker: str) -> Path:
        """A file that is there once the worker has been built."""
        return _mark(self._device, self._layout, worker)


def search_workers(layout: Layout) -> tuple[str, ...]:
    """The workers that every search needs, in the order in which it does."""
    return ("sites", "tripod", "scan", *(["walk"] * (layout.lanes > 1)))


def builders(device: DeviceInfo, layout: Layout) -> int:
    """Processes that a search would start to build its workers."""
    try:
        return len(_shared_out(device, layout, search_workers(layout)))
    except (OSError, DeviceError):
        return 0


def _shared_out(device: DeviceInfo, layout: Layout, workers: Sequence[str]) -> list[list[str]]:
    """Share the missing builds out among as many processes as threads; none for one thread."""
    most = threads().number
    if most < 2 or not sys.executable:
        return []
    missing = [name for name in workers if not _mark(device, layout, name).exists()]
    return [missing[first::most] for first in range(min(most, len(missing)))]


def build(index: int, workers: Sequence[str], numbers: dict[str, Any]) -> None:
    """Build workers for a device and a layout's fields, and leave their marks."""
    device, layout = choose_device(str(index)), Layout(**numbers)
    context = context_on(device.handle)
    for worker in workers:
        built = Worker(context, device.handle, worker, layout.of_worker(worker))
        built.rehearse(context)
        write_whole(_mark(device, layout, worker), b"")


def _start(device: DeviceInfo, layout: Layout, workers: Sequence[str]) -> subprocess.Popen[bytes]:
    command, silent = clean_start(build, device.index, workers, asdict(layout)), subprocess.DEVNULL
    return subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)


def _mark(device: DeviceInfo, layout: Layout, worker: str) -> Path:
    return mark("compiled", device.handle, worker, layout.of_worker(worker))


def _end(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Leave no process behind."""
    for process in set(running.values()):
        process.kill()
        process.wait()
