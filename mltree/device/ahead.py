"""Kernels built ahead of their use: in processes of their own, while the host prepares a search.

Drivers do one build at a time in a process, whatever its threads. What one process has built, the
next finds in the driver's cache or ours; a mark beside them says that it is there, so that nothing
is started for nothing. A process that fails leaves its build to whoever needs it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mltree.clean_start import clean_start
from mltree.device.build import context_on, source_hash
from mltree.device.cache import cache_folder, write_whole
from mltree.device.discovery import choose_device
from mltree.device.info import DeviceInfo
from mltree.device.layout import Layout
from mltree.device.worker import Worker
from mltree.errors import DeviceError

__all__ = ["Ahead", "build"]


class Ahead:
    """Builds of workers for one device and layout, each in a process of its own."""

    def __init__(self, device: DeviceInfo, layout: Layout, workers: Sequence[str]) -> None:
        """Start those that no process has done before; none where there is one core only."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        weakref.finalize(self, _end, self._running)
        if (os.cpu_count() or 1) < 2 or not sys.executable:
            return
        with suppress(OSError, DeviceError):
            for worker in workers:
                if not _mark(device, layout, worker).exists():
                    self._running[worker] = _start(device, layout, worker)

    @classmethod
    def of_search(cls, device: DeviceInfo, layout: Layout) -> Ahead:
        """Those that every search needs, in the order in which it does."""
        return cls(device, layout, ("sites", "tripod", "scan", *(["walk"] * (layout.lanes > 1))))

    def wait(self, worker: str) -> None:
        """Return when nobody is at work on it any more."""
        if worker in self._running:
            self._running[worker].wait()


def build(index: int, worker: str, numbers: dict[str, Any]) -> None:
    """Build a worker for a device and a layout's fields, and leave the mark."""
    device, layout = choose_device(str(index)), Layout(**numbers)
    context = context_on(device.handle)
    built = Worker(context, device.handle, worker, layout.of_worker(worker))
    built.rehearse(context)
    write_whole(_mark(device, layout, worker), b"")


def _start(device: DeviceInfo, layout: Layout, worker: str) -> subprocess.Popen[bytes]:
    command, silent = clean_start(build, device.index, worker, asdict(layout)), subprocess.DEVNULL
    return subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)


def _mark(device: DeviceInfo, layout: Layout, worker: str) -> Path:
    """A file that is there once the worker has been built."""
    parts = (device.platform, device.name, device.driver, source_hash(), worker, repr(layout))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return cache_folder() / f"built-{digest[:16]}"


def _end(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Leave no process behind."""
    for process in running.values():
        process.kill()
        process.wait()
