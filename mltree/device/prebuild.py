"""Kernels built side by side, each in a process of its own.

Drivers do one build at a time in a process, whatever its threads, and one takes PoCL 1 to 5 s and
NVIDIA's compiler 3 to 12. What a process has built, the next finds in the driver's cache or ours.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

from mltree.threads import threads

__all__ = ["prebuild"]

MOST = 16
"""Builds at a time: each takes some 0.5 GB of the host's memory, and as much of a GPU's."""


def prebuild(
    build: Callable[..., object], jobs: Sequence[tuple[Any, ...]], tell: Callable[[str], None]
) -> None:
    """Call a function of a module with each job's arguments; ``tell`` takes lines of progress.

    What fails is left to whoever needs it.
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed  # all commands load this file
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    most = min(MOST, threads().number, len(jobs))
    if most < 2:
        return
    tell(f"building {len(jobs)} kernels, {most} at a time")
    try:
        with ProcessPoolExecutor(most, get_context("spawn"), _leave_interrupts) as pool:
            running = [pool.submit(build, *job) for job in jobs]
            for done, _ in enumerate(as_completed(running), 1):
                tell(f"built {done} of {len(jobs)} kernels")
    except (OSError, BrokenProcessPool):  # no processes, or no shared memory for them
        return


def _leave_interrupts() -> None:
    """Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
