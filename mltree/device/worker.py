"""One built worker: how many work-groups a launch of it has, and what it is given."""

from __future__ import annotations

import math
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyopencl as cl

from mltree.device.build import (
    BUILT,
    COMPILED,
    build_kernels,
    build_worker,
    context_on,
    is_nvidia,
    kernels_mark,
    local_memory,
    mark,
    resident_groups,
)
from mltree.device.discovery import DeviceInfo, choose_device
from mltree.device.layout import Layout
from mltree.device.memory import BUFFER_SHARE, LEAST, Memory
from mltree.program import contract
from mltree.program.contract import StateLayout
from mltree.program.ops.operation import LaunchShape, kernels
from mltree.program.program import Program
from mltree.system.errors import DeviceError
from mltree.system.process import isolated_command, threads
from mltree.system.ranks import local_rank
from mltree.system.values import Value

Dispatch = Literal["auto", "persistent", "launch"]
"""All stages of a program in one launch, or a launch per stage; by the work at hand where auto."""

BUFFERS = tuple(buffer.name for buffer in contract.BUFFERS if buffer.name != "marks")
"""The buffers that every worker is given; its marks are its own."""

LONE_CORE_WORK = 1 << 20
"""Multiplications that one core has done (in 0.1 ms) by the time that others have started."""

MOST_GROUPS = 32
"""Work-groups of a GPU's compute unit in a launch without barriers: the most that any holds."""

CPU_GROUPS = 8
"""Work-groups of a CPU's core in such a launch: few enough to cost nothing, for even shares."""

STACK_SHARE = 0.125
"""Share of a device's memory that stacks may take which find no room in local memory: 530
work-groups of an H200 take 10 GiB under C60+G4, as many as ever run at a time."""

LEAST_RUN = 4096
"""Bytes of every buffer that are enough for a work-group's counters and books."""

MOST_LOCAL = 48 * 1024
"""Bytes of local memory of a work-group; more would leave a compute unit few of them."""


class Launch(NamedTuple):
    """Stages ``first .. last - 1`` of a program, and the work-groups that run them."""

    first: int
    last: int
    groups: int


class Plan(Value, eq=False):
    """Arguments and launches of a program, as long as nothing moves in the device's memory."""

    program: Program
    worker: Worker
    arguments: list[Any]
    launches: list[Launch]
    """One for all stages, or one for each."""
    generation: int
    """Generation of the memory that the arguments point into."""
    state: StateLayout
    products: float
    """Multiplications at most."""


class Worker:
    """A front file's kernel, built for one device and layout."""

    def __init__(self, context: cl.Context, device: cl.Device, name: str, layout: Layout) -> None:
        self.name = name
        self._front = kernels()[name]
        self.group = layout.group(name)
        """Work-items of a work-group in its three dimensions."""
        self._kernel = build_worker(context, device, name, layout)
        self._device = device
        self._layout = layout
        self._units = int(device.max_compute_units)
        self._is_cpu = bool(device.type & cl.device_type.CPU)
        self._local = local_memory(self._kernel, device)
        self._most_local = min(int(device.local_mem_size), MOST_LOCAL)
        self._most_spilled = min(
            int(STACK_SHARE * device.global_mem_size), int(BUFFER_SHARE * device.max_mem_alloc_size)
        )
        self._items = math.prod(self.group)
        self._stacks: dict[int, cl.LocalMemory] = {}
        self._arguments: list[Any] = []
        """The arguments of the last launch."""
        self._plan: list[Any] | None = None
        """Arguments of the last launch but for its stages."""
        self._stages: tuple[int, int] | None = None

    @property
    def most_groups(self) -> int:
        """Work-groups of its largest launch."""
        return self._units * (CPU_GROUPS if self._is_cpu else MOST_GROUPS)

    def local_levels(self, program: Program) -> int:
        """Levels of a work-group's stack that find room in local memory."""
        if not self._front.has_stack:
            return program.stack_levels
        room = self._most_local - self._local
        return max(0, min(program.stack_levels, room // self._layout.stack_bytes()))

    def spilled_bytes(self, program: Program) -> int:
        """Bytes of the levels that do not, of a work-group."""
        spilled = program.stack_levels - self.local_levels(program)
        return spilled * self._layout.stack_bytes()

    def groups_with_stacks(self, program: Program) -> int:
        """Work-groups of a launch for whose stacks there is room; one at least."""
        spilled = self.spilled_bytes(program)
        return max(1, self._most_spilled // spilled) if spilled else self.most_groups

    def is_persistent(self, program: Program, patterns: int, jobs: int) -> bool:
        """True if a program, with stages of so many jobs at most, is best sent in one launch.

        A launch per stage lets the device choose how many work-groups it holds, which pays once
        there are far more of them than surely fit together. On a CPU one launch is one core.
        """
        if self._is_cpu:
            work = self._layout.products(patterns) * program.site_steps
            return self._units == 1 or work <= LONE_CORE_WORK
        rounds = self._front.rounds[0 if is_nvidia(self._device) else 1]
        return jobs <= rounds * self.resident(program)

    def resident(self, program: Program) -> int:
        """Most work-groups of a launch with barriers: all that surely run at the same time.

        A CPU runtime may run one work-group after another on one thread, so that only a lone
        group is sure not to wait for itself.
        """
        if self._is_cpu:
            return 1
        if not is_nvidia(self._device):
            return self._units
        local = self._local + self._stack_bytes(program)
        return self._units * resident_groups(self._device, self.name, self._layout, local)

    def launches(
        self, program: Program, dispatch: Dispatch, patterns: int, chunks: int, reduction_lanes: int
    ) -> list[Launch]:
        """All stages at once, or one by one."""
        shape = LaunchShape(
            chunks=chunks,
            spans=-(-chunks // self._layout.span),
            items=self._items,
            lanes=self._layout.lanes,
            matrix_items=self._layout.categories * self._layout.matrix_items,
            reduction_lanes=reduction_lanes,
        )
        jobs = [max(1, stage.jobs(shape)) for stage in program.stages]
        persistent = len(jobs) > 1 and (
            dispatch == "persistent"
            or (dispatch == "auto" and self.is_persistent(program, patterns, max(jobs)))
        )
        most = self.groups_with_stacks(program)
        if persistent:
            groups = min(max(jobs), self.resident(program), most)
            return [Launch(0, len(jobs), groups)]
        most = min(most, self.most_groups)
        if any(stage.is_joint for stage in program.stages):
            most = min(most, self.resident(program))
        return [Launch(n, n + 1, min(count, most)) for n, count in enumerate(jobs)]

    def arguments(
        self, memory: Memory, program: Program, values: Mapping[str, np.generic]
    ) -> list[Any]:
        """The kernel's :data:`mltree.program.contract.ARGUMENTS` but for its stages."""
        names = (*BUFFERS, f"marks.{self.name}")
        size = max(LEAST, self._stack_bytes(program))
        stack = self._stacks.setdefault(size, cl.LocalMemory(size))
        numbers = [values[argument.name] for argument in contract.ARGUMENTS]
        return [*memory.several(*names), stack, *numbers]

    def launch(self, queue: cl.CommandQueue, arguments: list[Any], launch: Launch) -> cl.Event:
        """Run some stages of the program among the arguments."""
        self._give(arguments, launch.first, launch.last)
        size = (self.group[0] * launch.groups, *self.group[1:])
        return cl.enqueue_nd_range_kernel(queue, self._kernel, size, self.group)

    def rehearse(self, context: cl.Context) -> None:
        """Run no stage at all: CPUs do not compile a kernel before it first runs."""
        buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE, LEAST_RUN) for _ in contract.BUFFERS]
        acc = np.float64 if self._layout.fp64 else np.float32
        numbers = [(acc if n.type == "acc" else np.int32)(0) for n in contract.ARGUMENTS]
        queue = cl.CommandQueue(context, self._device)
        self.launch(queue, [*buffers, cl.LocalMemory(LEAST), *numbers], Launch(0, 0, 1))
        queue.finish()

    def let_go(self) -> None:
        """Hold no buffer until the next launch."""
        self._arguments, self._plan, self._stages = [], None, None

    def _give(self, plan: list[Any], first: int, last: int) -> None:
        """Set the kernel's arguments where they are not what they were."""
        if plan is not self._plan:
            self._set(0, plan)
            self._plan = plan
        if (first, last) != self._stages:
            self._set(len(plan), [np.int32(first), np.int32(last)])
            self._stages = first, last

    def _set(self, start: int, arguments: list[Any]) -> None:
        """Set arguments from a number on; a number that is equal, and the same buffer, stay."""
        before = self._arguments[start:] or [None] * len(arguments)
        for index, (new, old) in enumerate(zip(arguments, before, strict=False), start):
            if new is not old and not (isinstance(new, np.generic) and new == old):
                self._kernel.set_arg(index, new)
        self._arguments[start : start + len(arguments)] = arguments

    def _stack_bytes(self, program: Program) -> int:
        """Local memory of a work-group's stack."""
        has_stack = self._front.has_stack
        return self.local_levels(program) * self._layout.stack_bytes() if has_stack else 0


# Background builds: in processes of their own, while the host prepares a search.
#
# Drivers do one build at a time in a process, whatever its threads. What one process has built, the
# next finds in the driver's cache or ours; a mark beside them says that it is there, so that
# nothing is started for nothing. There are as many processes as the run has threads, and of ranks
# on a host the first starts them, for all. A process that fails leaves its builds to whoever needs
# them.

LOOK = 0.01
"""Seconds between two looks for a build's mark."""
MOST_BUILDERS = 8
"""Processes at a time: each takes half a GB where it builds for a GPU."""

SEARCHING = ("sites", "walk", "scan", "triplet")
"""Workers of a search, in the order in which it needs them."""


class Build(NamedTuple):
    """A build that will be needed."""

    name: str
    """The front file."""
    layout: Layout | None = None
    """A worker's layout; None for kernels that know none."""
    items: int = 0
    """Work-items in a group of those kernels."""

    def mark(self, device: cl.Device) -> Path:
        """File that says that it is done; CPUs compile a worker when it first runs."""
        if self.layout is None:
            return kernels_mark(device, self.name, ITEMS=self.items)
        kind = COMPILED if device.type & cl.device_type.CPU else BUILT
        return mark(kind, device, self.name, self.layout.of_worker(self.name))

    def build(self, context: cl.Context, device: cl.Device) -> None:
        """Build it, and leave the mark."""
        if self.layout is None:
            build_kernels(context, device, self.name, ITEMS=self.items)
        else:
            layout = self.layout.of_worker(self.name)
            Worker(context, device, self.name, layout).rehearse(context)
        self.mark(device).touch()


def _end(running: dict[Path, subprocess.Popen[bytes]]) -> None:
    for process in set(running.values()):
        process.kill()
        process.wait()


class BackgroundBuilds:
    """The builds of this process's workers that others do."""

    def __init__(self) -> None:
        """Begin without a build."""
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        """The process of each build, by its mark."""
        weakref.finalize(self, _end, self._running)

    def start(self, device: DeviceInfo, wanted: Sequence[Build]) -> None:
        """Start the builds that no process has done before, the first ones first.

        None where there is one thread only, or as many processes as threads.
        """
        with suppress(OSError, DeviceError):
            for builds in self._shared_out(device, wanted):
                process = _start(device, list(builds.values()))
                self._running.update(dict.fromkeys(builds, process))

    def wait(self, device: cl.Device, build: Build) -> None:
        """Return when no process is at work on a build any more."""
        while self.is_under_way(device, build):
            time.sleep(LOOK)

    def is_under_way(self, device: cl.Device, build: Build) -> bool:
        """True while a process is at work on a build."""
        if not self._running:
            return False
        path = build.mark(device)
        process = self._running.get(path)
        return process is not None and process.poll() is None and not path.exists()

    def processes(self, device: DeviceInfo, wanted: Sequence[Build]) -> int:
        """Processes at work once these were started."""
        try:
            return len(self._at_work) + len(self._shared_out(device, wanted))
        except (OSError, DeviceError):
            return 0

    @property
    def _at_work(self) -> set[subprocess.Popen[bytes]]:
        return {process for process in self._running.values() if process.poll() is None}

    def _shared_out(self, device: DeviceInfo, wanted: Sequence[Build]) -> list[dict[Path, Build]]:
        """Share the missing builds out among as many processes as may be started."""
        most = threads().number
        if most < 2 or not sys.executable or local_rank()[0] > 0:
            return []
        free = min(most, MOST_BUILDERS) - len(self._at_work)
        marks = {one.mark(device.handle): one for one in wanted}
        missing = [path for path in marks if not (path in self._running or path.exists())]
        shares = (missing[first::free] for first in range(min(free, len(missing))))
        return [{path: marks[path] for path in own} for own in shares]


BUILDS = BackgroundBuilds()
"""Builds that this process has started."""


def is_used(worker: str, layout: Layout) -> bool:
    """True unless it is a walk's of a CPU, which takes trees level by level."""
    return layout.lanes > 1 or worker != "walk"


def build(index: int, wanted: Sequence[tuple[str, dict[str, Any] | None, int]]) -> None:
    """Do builds for a device, given by the fields of each, and of its layout."""
    device = choose_device(str(index)).handle
    context = context_on(device)
    for name, numbers, items in wanted:
        Build(name, Layout(**numbers) if numbers else None, items).build(context, device)


def _start(device: DeviceInfo, wanted: Sequence[Build]) -> subprocess.Popen[bytes]:
    fields = [(one.name, one.layout and asdict(one.layout), one.items) for one in wanted]
    command = isolated_command(build, device.index, fields)
    silent = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)
