"""Child processes with a clock and a deadline."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OUTPUT", "Finished", "run"]

OUTPUT = "output.txt"
"""File in the working folder with everything that a process prints."""

TAIL = 2000
"""Characters of output that are kept for a failure's report."""

GRACE = 5.0
"""Seconds between asking a late process to stop and killing it."""


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    wall: float
    """Seconds from start to end."""
    user: float
    """CPU seconds of the process and its children, in user mode."""
    status: str
    """``done``, ``failed`` or ``timeout``."""
    output: str
    """The end of what it printed."""
    system: float = 0.0
    """CPU seconds of the process and its children, in the kernel."""
    peak: int = 0
    """Bytes of memory that the process, or the largest of its children, had at most."""


def run(
    command: Sequence[str],
    cwd: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    core: int | None = None,
) -> Finished:
    """Run one process in its own group; at the deadline the whole group is stopped.

    ``core`` pins it, and everything it starts, to that core.
    """
    log = cwd / OUTPUT
    with log.open("w") as output, _pinned(core):
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    late, usage = _wait(process, timeout)
    wall = time.perf_counter() - start
    status = "timeout" if late else "failed" if process.returncode else "done"
    printed = log.read_text(errors="replace")[-TAIL:]
    peak = usage.ru_maxrss * 1024
    return Finished(wall, usage.ru_utime, status, printed, usage.ru_stime, peak)


def _wait(process: subprocess.Popen[bytes], timeout: float) -> tuple[bool, resource.struct_rusage]:
    """Wait for the process; tell if it had to be stopped, and what it and its children used.

    The wait itself blocks, so that the clock stops with the process; a thread keeps the deadline.
    Counted by process, CPU seconds stay apart when several run side by side.
    """
    ended, late = threading.Event(), threading.Event()
    timer = threading.Timer(timeout, _stop, (process.pid, ended, late))
    timer.daemon = True
    timer.start()
    try:
        _, code, usage = os.wait4(process.pid, 0)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        ended.set()
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(code)
    return late.is_set(), usage


@contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    """This process on one core, and so every child that it starts meanwhile."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _stop(group: int, ended: threading.Event, late: threading.Event) -> None:
    """End the group of a process: first by asking, then for good."""
    if ended.is_set():
        return
    late.set()
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(group, signal_number)
        if ended.wait(GRACE):
            return
