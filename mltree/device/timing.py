"""Time of a run: on the device by likelihood function, and of the host that waits for it.

OpenCL events time the launches, and marks inside share that out to the functions. On NVIDIA, whose
clock runs in nanoseconds, marks say all; a queue without profiling saves an H200 15 us a launch.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import add

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.program.contract import Function, Mark
from mltree.program.program import Count, Program, Work, no_work
from mltree.system.arrays import Int64
from mltree.system.values import Value

_NANOSECOND = 1e-9

MOST_UNCOUNTED = 1000
"""Programs sent whose work is not yet counted: that takes as long as to send a small one."""


class Cost(Value):
    """Work and time of a likelihood function."""

    seconds: float = 0.0
    """On the device."""
    operations: int = 0
    """Newviews, edges, insertions, matrices or Newton steps; counted for every slice."""
    pattern_nodes: int = 0
    """Operations times the patterns that they were for; 0 where patterns are none of its matter."""
    bytes: int = 0
    """Least that those must read and write (:mod:`mltree.program.program`)."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(add, self._values(), other._values()))


class Breakdown(Value):
    """Breakdown of an engine's time, in seconds."""

    functions: Mapping[Function, Cost]
    builds: float = 0.0
    """Seconds of building kernels, those included that a driver builds at their first launch."""
    waits: float = 0.0
    """Seconds that the host waited for the device."""
    idle_cpu: float = 0.0
    """CPU time of the host's thread within builds and waits: a driver may spin."""
    devices: tuple[cl.Device, ...] = ()

    @property
    def device_seconds(self) -> float:
        """Seconds of all functions."""
        return sum(cost.seconds for cost in self.functions.values())

    @classmethod
    def one_after_the_other(cls, parts: Sequence[Breakdown]) -> Breakdown:
        """Breakdown of engines that took turns: everything adds up."""
        devices = {device.int_ptr: device for part in parts for device in part.devices}
        return cls(
            {f: sum((part.functions[f] for part in parts), Cost()) for f in Function},
            builds=sum(part.builds for part in parts),
            waits=sum(part.waits for part in parts),
            idle_cpu=sum(part.idle_cpu for part in parts),
            devices=tuple(devices.values()),
        )

    @classmethod
    def side_by_side(cls, parts: Sequence[Breakdown]) -> Breakdown:
        """Breakdown of devices that work at once: work adds up, time is the longest one's."""
        longest = max(parts, key=lambda part: part.device_seconds).functions
        every = cls.one_after_the_other(parts)
        costs = every.functions.items()
        return replace(
            every, functions={f: replace(cost, seconds=longest[f].seconds) for f, cost in costs}
        )


class Stopwatch:
    """Wall and CPU seconds of the host's thread inside its ``with`` blocks."""

    def __init__(
        self,
        wall: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.wall = self.cpu = 0.0
        self._clocks = wall, cpu
        self._began = 0.0, 0.0

    def __enter__(self) -> None:
        wall, cpu = self._clocks
        self._began = wall(), cpu()

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._clocks
        self.wall += wall() - self._began[0]
        self.cpu += cpu() - self._began[1]


class DeviceTimes:
    """Seconds and launches per worker, the work that was sent, and the host's waiting."""

    def __init__(self, from_events: bool) -> None:
        self.from_events = from_events
        self.seconds: dict[str, float] = defaultdict(float)
        self.launches: dict[str, int] = defaultdict(int)
        self.building = Stopwatch()
        self.waiting = Stopwatch()
        self.late_builds = 0.0
        """Seconds from submission to start of first launches: PoCL builds its kernels there."""
        self._pending: list[tuple[str, cl.Event]] = []
        self._timed: set[str] = set()
        self._work: dict[int, Int64] = defaultdict(no_work)
        self._sent: list[tuple[int, Work]] = []
        """Work for so many patterns that is not yet among the other."""

    def launched(self, worker: str, event: cl.Event) -> None:
        """Remember a launch until its event can be read."""
        self.launches[worker] += 1
        if self.from_events:
            self._pending.append((worker, event))

    def settle(self) -> None:
        """Read the events of finished launches; call after a blocking read."""
        for worker, event in self._pending:
            profile = event.profile
            self.seconds[worker] += (profile.end - profile.start) * _NANOSECOND
            if worker not in self._timed:
                self._timed.add(worker)
                self.late_builds += (profile.start - profile.submit) * _NANOSECOND
        self._pending.clear()

    def sent(self, program: Program, n_patterns: int) -> None:
        """Count the work of a program that starts."""
        self._sent.append((n_patterns, program.work))
        if len(self._sent) >= MOST_UNCOUNTED:
            self._count()

    def _count(self) -> None:
        for n_patterns, work in self._sent:
            self._work[n_patterns] += work.once
        self._sent.clear()

    def repeated(self, program: Program, n_patterns: int, control: npt.NDArray[np.float64]) -> None:
        """Count the passes that it made after the first, from its f64[groups, words] at the end."""
        if len(control):
            self._work[n_patterns] += program.work.further_passes(control)

    def by_function(self, marks: dict[str, npt.NDArray[np.uint64]]) -> dict[Function, float]:
        """Seconds per function: each worker's time, shared out by its work-groups' ticks.

        ``marks``: u64 words of each worker (:class:`mltree.program.contract.Mark`).
        """
        total = np.zeros(len(Function))
        for worker, words in marks.items():
            books = words[Mark.BOOKS :].reshape(-1, len(Function)).sum(axis=0, dtype=np.float64)
            seconds = self.seconds[worker]
            if not self.from_events:
                seconds = float(words[Mark.ELAPSED]) * _NANOSECOND
            total += seconds * books / max(books.sum(), 1.0)
        return {function: float(total[function]) for function in Function}

    def breakdown(
        self, seconds: Mapping[Function, float], pattern_bytes: int, device: cl.Device
    ) -> Breakdown:
        """Everything together, from seconds by function and a CLA's bytes a pattern."""
        return Breakdown(
            {f: self._cost(f, seconds[f], pattern_bytes) for f in Function},
            builds=self.building.wall + self.late_builds,
            waits=self.waiting.wall - self.late_builds,
            idle_cpu=self.building.cpu + self.waiting.cpu,
            devices=(device,),
        )

    def _cost(self, function: Function, seconds: float, pattern_bytes: int) -> Cost:
        self._count()
        operations = nodes = moved = 0
        for n_patterns, counts in self._work.items():
            work = counts[function]
            operations += int(work[Count.OPERATIONS])
            nodes += int(work[Count.OPERATIONS]) * n_patterns
            moved += n_patterns * int(work[Count.CLAS] * pattern_bytes + work[Count.TIPS])
        return Cost(seconds, operations, nodes if moved else 0, moved)
