"""A device session: every CLA and tip on the device for the whole run, programs in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.alignment.patterns import Patterns
from mltree.contract import (
    CONTROL_WORDS,
    HEADER_WORDS,
    Control,
    Fault,
    Function,
    Mark,
    Sync,
)
from mltree.device.build import build_worker, is_nvidia, worker_of
from mltree.device.faults import naming_device, raise_fault
from mltree.device.layout import Layout
from mltree.device.timing import DeviceTimes
from mltree.errors import DeviceError
from mltree.likelihood.engine import Result
from mltree.likelihood.program import Program, Repeat, Scan, Stage, Tripods

__all__ = ["Dispatch", "Session", "cla_memory"]

Float64 = npt.NDArray[np.float64]
Dispatch = Literal["auto", "persistent", "launch"]
"""All stages of a program in one launch, or a launch per stage; by the work at hand where auto."""

MANY_ROUNDS = 2
"""Rounds of work-groups that surely fit together, above which every stage gets a launch of its
own: the device then holds as many as really fit."""

LONE_CORE_WORK = 1 << 20
"""Multiplications that one core has done (in 0.1 ms) by the time that others have started."""

GPU_GROUPS = 32
"""Work-groups of a compute unit in a launch without barriers: the most that any holds."""

MEMORY_SHARE = 0.8
"""Share of the device's memory that CLAs may take."""


class Session:
    """Implements :class:`mltree.likelihood.engine.Engine` on one OpenCL device."""

    def __init__(
        self,
        device: cl.Device,
        patterns: Patterns,
        layout: Layout,
        length_bounds: tuple[float, float],
        dispatch: Dispatch = "auto",
        memory_limit: int | None = None,
        chunk_blocks: int | None = None,
    ) -> None:
        self.device = device
        self.layout = layout
        self._is_cpu = bool(device.type & cl.device_type.CPU)
        self.dispatch = dispatch
        self.name = f"{device.name.strip()}, {layout}"
        self.times = DeviceTimes(from_events=not is_nvidia(device))
        self._context = cl.Context([device])
        self._queue = self._open_queue()
        self._acc = np.dtype(np.float64 if layout.fp64 else np.float32)
        self._real = np.dtype(np.float32 if layout.single else np.float64)
        self._chunk_blocks = chunk_blocks or layout.chunk_blocks(patterns.n_patterns)
        self._bounds = length_bounds
        limit = memory_limit or cla_memory(device)
        self.max_slots = max(1, limit // layout.cla_bytes(patterns.n_patterns))
        self._buffers: dict[str, cl.Buffer] = {}
        self._kernels: dict[str, cl.Kernel] = {}
        self._resident: dict[str, int] = {}
        self._persistent = False
        self._arguments: dict[str, tuple[Any, ...]] = {}
        self._ranges: dict[str, tuple[int, int]] = {}
        self._program: Program | None = None
        self._started = 0
        self._panel = patterns
        self._panels: dict[Patterns, dict[str, cl.Buffer]] = {}
        self._upload_patterns(patterns)
        for name in ("cla", "scaler", "pmatrix", "tip_pmatrix", "stack", "stack_scaler", "partial"):
            self._reserve(name, 64)
        self._constant("sync", np.zeros(len(Sync), np.uint32))

    def _open_queue(self) -> cl.CommandQueue:
        if not self.times.from_events:
            return cl.CommandQueue(self._context, self.device)
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        return cl.CommandQueue(self._context, self.device, profiling)

    def load_models(self, rows: Float64) -> None:
        """Take model rows f64[M, words]."""
        self._constant("model", rows.astype(self._acc))
        self._constant("model_real", rows.astype(self._real))

    def site_log_likelihoods(self) -> Float64:
        """f64[L] of the last EVALUATE_SITES."""
        lnl = np.empty(self._blocks * self.layout.vw, self._acc)
        cl.enqueue_copy(self._queue, lnl, self._buffers["site_lnl"])
        return lnl[: self._n_patterns].astype(np.float64)

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.likelihood.engine.Engine`."""
        with naming_device(self.device):
            head = self.start(program, lengths, control)
            back = np.empty(head + program.cells, self._acc)
            self._read_state(program, back)
        end = HEADER_WORDS + control.size
        return Result(
            sums=back[head:].astype(np.float64, copy=False),
            lengths=back[end:head].astype(np.float64, copy=False),
            control=back[HEADER_WORDS:end].reshape(-1, CONTROL_WORDS).astype(np.float64),
        )

    def start(self, program: Program, lengths: Float64, control: Float64) -> int:
        """Send a program on its way; returns the words of state in front of its sums."""
        worker = worker_of(program)
        kernel = self._prepare(worker, program, len(lengths), len(control))
        offset = 2 * len(lengths)
        head = np.concatenate([np.zeros(HEADER_WORDS), control.ravel(), lengths]).astype(self._acc)
        start = offset * self._acc.itemsize
        cl.enqueue_copy(
            self._queue, self._buffers["state"], head, dst_offset=start, is_blocking=False
        )
        self._set_arguments(worker, kernel, program, len(control), len(lengths))
        self._launch(worker, kernel, program, len(lengths))
        self._started = offset
        return head.size

    def flush(self) -> None:
        """Have the device begin what it was sent, though nobody waits for it yet."""
        self._queue.flush()

    def partials(self, program: Program) -> npt.NDArray[Any]:
        """acc[cells, chunks]: the partial sums of the program that was started."""
        self._read_state(program, np.empty(HEADER_WORDS, self._acc))
        partial = np.empty((program.cells, self._chunks), self._acc)
        cl.enqueue_copy(self._queue, partial, self._buffers["partial"])
        return partial

    def advance(
        self, program: Program, part: Program, state: npt.NDArray[Any], lengths: int, groups: int
    ) -> None:
        """Run a part of a program on its whole state acc[words], which changes in place."""
        worker = worker_of(program)
        kernel = self._prepare(worker, part, lengths, groups)
        cl.enqueue_copy(self._queue, self._buffers["state"], state)
        self._set_arguments(worker, kernel, part, groups, lengths)
        self._launch(worker, kernel, part, lengths)
        cl.enqueue_copy(self._queue, state, self._buffers["state"])
        self.times.settle()
        self._check(part, state[2 * lengths :])

    def turn_to(self, panel: Patterns) -> None:
        """Work on another panel of patterns; tips stay on the device, CLAs lose their meaning."""
        if panel is self._panel:
            return
        self._panels[self._panel] = {name: self._buffers.pop(name) for name in _OF_PANEL}
        self._panel = panel
        if panel in self._panels:
            self._buffers.update(self._panels.pop(panel))
            self._count_blocks(panel)
        else:
            self._upload_patterns(panel)

    def forget_panels(self) -> None:
        """Free the CLAs, and what panels but the present one left on the device."""
        self._panels.clear()
        for name in ("cla", "scaler"):
            self._buffers.pop(name, None)
        self._arguments.clear()

    def _read_state(self, program: Program, back: npt.NDArray[Any]) -> None:
        """Wait for the program; ``back`` acc[words] of its state from the header on."""
        start = self._started * self._acc.itemsize
        cl.enqueue_copy(self._queue, back, self._buffers["state"], src_offset=start)
        self.times.settle()
        self._check(program, back)

    def timings(self) -> dict[Function, float]:
        """Seconds on the device per likelihood function so far, from events and marks."""
        marks = {}
        for name in self._kernels:
            ticks = np.zeros(self._buffers[f"marks.{name}"].size // 8, np.uint64)
            cl.enqueue_copy(self._queue, ticks, self._buffers[f"marks.{name}"])
            marks[name] = ticks
        return self.times.by_function(marks)

    def _prepare(self, worker: str, program: Program, lengths: int, groups: int) -> cl.Kernel:
        """The worker's kernel, with room for the program and the program in its buffer."""
        kernel = self._kernel(worker)
        self._persistent = self._is_persistent(worker, program)
        self._make_room(program, lengths, groups)
        if program is not self._program:
            self._reserve("program", program.words.nbytes)
            cl.enqueue_copy(self._queue, self._buffers["program"], program.words, is_blocking=False)
            self._program = program
        return kernel

    def _count_blocks(self, patterns: Patterns) -> None:
        self._n_patterns = patterns.n_patterns
        self._blocks = self.layout.blocks(patterns.n_patterns)
        self._chunks = -(-self._blocks // self._chunk_blocks)

    def _upload_patterns(self, patterns: Patterns) -> None:
        self._count_blocks(patterns)
        width = self._blocks * self.layout.vw
        tips = np.full((patterns.n_tips, width), patterns.alphabet.gap_code, np.uint8)
        tips[:, : patterns.n_patterns] = patterns.codes
        weights = np.zeros(width, self._acc)
        weights[: patterns.n_patterns] = patterns.weights
        self._constant("tips", tips)
        self._constant("weights", weights)
        self._constant("tip_table", patterns.alphabet.tip_table.astype(self._real))
        self._constant("block_partition", np.zeros(self._blocks, np.int32))
        self._reserve("site_lnl", width * self._acc.itemsize)

    def _constant(self, name: str, array: npt.NDArray[Any]) -> None:
        self._reserve(name, array.nbytes)
        cl.enqueue_copy(self._queue, self._buffers[name], np.ascontiguousarray(array))

    def _reserve(self, name: str, size: int, keep: bool = False) -> None:
        """Make a buffer at least this large; ``keep`` copies what it held."""
        old = self._buffers.get(name)
        if old is not None and old.size >= size:
            return
        if old is not None and not keep:
            old = None
            del self._buffers[name]
            self._arguments.clear()  # which hold buffers too
        try:
            new = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(size, 64))
            if old is not None:
                cl.enqueue_copy(self._queue, new, old)
        except cl.Error as error:
            raise DeviceError(
                f"{self.device.name}: cannot allocate {size / 2**20:.0f} MiB for {name}: {error}",
                hint="fewer starting trees, --precision mixed, or a device with more memory",
            ) from error
        self._buffers[name] = new

    def _make_room(self, program: Program, lengths: int, groups: int) -> None:
        layout, real = self.layout, self._real.itemsize
        slot = layout.cla_bytes(self._n_patterns)
        counts = self._blocks * layout.vw * layout.categories * 2
        keep = not self._panels
        self._reserve("cla", program.slots * (slot - counts), keep)
        self._reserve("scaler", program.slots * counts, keep)
        row = layout.categories * (layout.states**2 + layout.states)
        self._reserve("pmatrix", lengths * row * real)
        if layout.tip_lookup:
            table = layout.categories * layout.codes * layout.states
            self._reserve("tip_pmatrix", lengths * table * real)
        self._reserve("partial", program.cells * self._chunks * self._acc.itemsize)
        words = 3 * lengths + HEADER_WORDS + groups * CONTROL_WORDS + program.cells
        self._reserve("state", words * self._acc.itemsize)
        if worker_of(program) == "scan":
            rows = self._groups("scan") * program.stack_levels * layout.categories * layout.vw
            self._reserve("stack", rows * layout.states * real)
            self._reserve("stack_scaler", rows * 2)

    def _is_persistent(self, worker: str, program: Program) -> bool:
        """Whether the program goes in one launch.

        A launch per stage lets the device choose how many work-groups it holds, which pays once
        there are far more of them than surely fit together. On a CPU one launch is one core.
        """
        if self.dispatch != "auto":
            return self.dispatch == "persistent"
        if self._is_cpu:
            work = self._n_patterns * self.layout.categories * self.layout.states**2
            lone = self.device.max_compute_units == 1
            return lone or work * program.site_steps <= LONE_CORE_WORK
        jobs = self._chunks * max(_jobs(stage) for stage in program.stages)
        resident = self.device.max_compute_units * self._resident[worker]
        return jobs <= MANY_ROUNDS * resident

    def _groups(self, worker: str) -> int:
        """Work-groups of a launch: all resident where a barrier joins them.

        A CPU runtime may run one work-group after another on one thread, so that only a lone
        group is sure not to wait for itself.
        """
        units = self.device.max_compute_units
        if self._persistent:
            return 1 if self._is_cpu else units * self._resident[worker]
        if self._is_cpu:
            return self._chunks if worker == "sites" else 8 * units
        return min(self._chunks, GPU_GROUPS * units) if worker == "sites" else GPU_GROUPS * units

    def _kernel(self, worker: str) -> cl.Kernel:
        if worker not in self._kernels:
            kernel, resident = build_worker(self._context, self.device, worker, self.layout)
            self._kernels[worker], self._resident[worker] = kernel, resident
            most = max(self._chunks, GPU_GROUPS * self.device.max_compute_units)
            words = Mark.BOOKS + most * len(Function)
            self._constant(f"marks.{worker}", np.zeros(words, np.uint64))
        return self._kernels[worker]

    def _launch(self, worker: str, kernel: cl.Kernel, program: Program, lengths: int) -> None:
        if self._persistent:
            self._enqueue(worker, kernel, 0, len(program.stages))
            return
        at = repeats = 0
        while at < len(program.stages):
            stage = program.stages[at]
            if isinstance(stage, Repeat):
                if repeats < stage.times and self._any_active(lengths, stage.groups):
                    repeats += 1
                    at = stage.to
                    continue
            else:
                self._enqueue(worker, kernel, at, at + 1)
            at += 1

    def _any_active(self, lengths: int, groups: int) -> bool:
        control = np.empty((groups, CONTROL_WORDS), self._acc)
        start = (2 * lengths + HEADER_WORDS) * self._acc.itemsize
        cl.enqueue_copy(self._queue, control, self._buffers["state"], src_offset=start)
        return bool(control[:, Control.ACTIVE].any())

    def _enqueue(self, worker: str, kernel: cl.Kernel, first: int, last: int) -> None:
        layout = self.layout
        if self._ranges.get(worker) != (first, last):
            kernel.set_arg(_STAGE_ARGUMENT, np.int32(first))
            kernel.set_arg(_STAGE_ARGUMENT + 1, np.int32(last))
            self._ranges[worker] = (first, last)
        local = (layout.lanes, layout.category_items, layout.rows if worker == "sites" else 1)
        size = (local[0] * self._groups(worker), *local[1:])
        event = cl.enqueue_nd_range_kernel(self._queue, kernel, size, local)
        self.times.launched(worker, event)

    def _set_arguments(
        self, worker: str, kernel: cl.Kernel, program: Program, groups: int, lengths: int
    ) -> None:
        tiles = self.layout.tile_blocks(self._chunk_blocks, program.slots)
        numbers = [
            self._blocks, self._chunk_blocks, tiles, 1, lengths, groups, lengths,
            program.stack_levels,
        ]  # fmt: skip
        arguments = (
            *(self._buffers[name] for name in _BUFFER_ARGUMENTS),
            self._buffers[f"marks.{worker}"],
            *(np.int32(number) for number in numbers),
            *(self._acc.type(bound) for bound in self._bounds),
        )
        previous = self._arguments.get(worker, (None,) * len(arguments))
        for index, (new, old) in enumerate(zip(arguments, previous, strict=True)):
            if new is not old and (isinstance(new, cl.Buffer) or new != old):
                kernel.set_arg(index, new)
        self._arguments[worker] = arguments

    def _check(self, program: Program, back: npt.NDArray[Any]) -> None:
        fault, stage = int(back[0]), int(back[1])
        if fault not in (Fault.NONE, Fault.NOT_FINITE):
            self._constant("sync", np.zeros(len(Sync), np.uint32))
        raise_fault(self.device, program, fault, stage)


_BUFFER_ARGUMENTS: Sequence[str] = (
    "program", "state", "cla", "scaler", "pmatrix", "tip_pmatrix", "stack", "stack_scaler",
    "partial", "site_lnl", "tips", "tip_table", "model", "model_real", "weights",
    "block_partition", "sync",
)  # fmt: skip
_OF_PANEL = ("tips", "weights", "block_partition", "site_lnl")
_STAGE_ARGUMENT = len(_BUFFER_ARGUMENTS) + 1 + 8 + 2


def cla_memory(device: cl.Device) -> int:
    """Bytes that CLAs may take: a share of the memory, within one buffer."""
    return min(device.max_mem_alloc_size, int(MEMORY_SHARE * device.global_mem_size))


def _jobs(stage: Stage) -> int:
    """Independent jobs of a stage per chunk of patterns."""
    match stage:
        case Scan(tasks, _):
            return len(tasks)
        case Tripods(records):
            return len(records)
        case _:
            return 1
