"""Where device time went: OpenCL events for the launches, marks inside them for the functions.

Where the device's clock runs in nanoseconds (NVIDIA) the marks say everything, and the queue
goes without profiling: on an H200 that saves 15 us a launch.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.contract import Function, Mark

__all__ = ["DeviceTimes"]

_NANOSECOND = 1e-9


class DeviceTimes:
    """Seconds and launches per worker, from profiling events."""

    def __init__(self, from_events: bool) -> None:
        self.from_events = from_events
        self.seconds: dict[str, float] = defaultdict(float)
        self.launches: dict[str, int] = defaultdict(int)
        self._pending: list[tuple[str, cl.Event]] = []

    def launched(self, worker: str, event: cl.Event) -> None:
        """Remember a launch until its event can be read."""
        self.launches[worker] += 1
        if self.from_events:
            self._pending.append((worker, event))

    def settle(self) -> None:
        """Read the events of finished launches; call after a blocking read."""
        for worker, event in self._pending:
            self.seconds[worker] += (event.profile.end - event.profile.start) * _NANOSECOND
        self._pending.clear()

    def by_function(self, marks: dict[str, npt.NDArray[np.uint64]]) -> dict[Function, float]:
        """Seconds per function: each worker's time, shared out by its work-groups' ticks.

        ``marks``: u64 words of each worker (:class:`mltree.contract.Mark`).
        """
        total = np.zeros(len(Function))
        for worker, words in marks.items():
            books = words[Mark.BOOKS :].reshape(-1, len(Function)).sum(axis=0, dtype=np.float64)
            seconds = self.seconds[worker]
            if not self.from_events:
                seconds = float(words[Mark.ELAPSED]) * _NANOSECOND
            total += seconds * books / max(books.sum(), 1.0)
        return {function: float(total[function]) for function in Function}
