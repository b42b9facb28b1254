"""Child processes with a clock and a deadline."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finished", "run"]

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
    log = cwd / "output.txt"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
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
        try:
            code = process.wait(timeout)
            status = "done" if code == 0 else "failed"
        except subprocess.TimeoutExpired:
            status = "timeout"
            _stop(process)
        except BaseException:
            _stop(process)
            raise
        wall = time.perf_counter() - start
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return Finished(wall, user, status, log.read_text(errors="replace")[-TAIL:])


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


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the group that this process leads."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            pass
        return
