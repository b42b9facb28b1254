"""A device session: every CLA and tip on the device for the whole run, programs in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.data.patterns import Patterns
from mltree.device.build import build_kernels, context_on, is_nvidia, worker_of
from mltree.device.layout import Blocks, Layout, add_lanes, chain_room, longest_walk, splits_lanes
from mltree.device.memory import LEAST, Memory, NamingDevice, raise_fault, room_on
from mltree.device.timing import Breakdown, DeviceTimes
from mltree.device.worker import BUFFERS, BUILDS, Build, Dispatch, Launch, Plan, Worker
from mltree.models.eigen import ModelArrays, ModelStack
from mltree.program.contract import (
    CONTROL_WORDS,
    HEADER_WORDS,
    REDUCE_WIDTH,
    Control,
    Fault,
    Function,
    Mark,
    StateLayout,
    Sync,
)
from mltree.program.engine import ChainRoom, Result, Weights
from mltree.program.ops.operation import Stage
from mltree.program.ops.state import model_rows, series_rows
from mltree.program.program import Program
from mltree.system.arrays import Float64, Int32
from mltree.system.errors import DeviceError, DeviceMemoryError

OF_BLOCKS = ("block_part", "chunk_block", "part_chunk")
"""Buffers that say where parts lie."""

WIDEN_ITEMS = 128
"""Work-items of a group that widens weights."""


PLANS = 16
"""Programs whose launches are remembered: more than a search repeats in turn."""

RETREAT = 0.75
"""Share that is tried next of the CLA slots that a device had no room for."""

_GROWING = ("cla", "scaler", "pmatrix", "tip_pmatrix", "partial", "stack")
_OF_SLICE = (*OF_BLOCKS, "tips", "weights", "site_lnl", "site_system")


def slots_used(stages: tuple[Stage, ...]) -> tuple[Int32, Int32]:
    """Slots read before the stages write them, and all slots written; both rising."""
    nothing = [np.zeros(0, np.int32)]
    reads = np.concatenate([*nothing, *(stage.slots_read() for stage in stages)])
    writes = np.concatenate([*nothing, *(stage.slots_written() for stage in stages)])
    count = 1 + max(reads.max(initial=-1), writes.max(initial=-1))
    is_read, is_written = np.zeros((2, count), np.bool_)
    is_read[reads] = is_written[writes] = True
    needed = np.flatnonzero(is_read & ~is_written)
    return needed.astype(np.int32), np.flatnonzero(is_written).astype(np.int32)


class Session:
    """Implements :class:`mltree.program.engine.Engine` on one OpenCL device."""

    def __init__(
        self,
        device: cl.Device,
        patterns: Patterns,
        layout: Layout,
        length_bounds: tuple[float, float],
        dispatch: Dispatch = "auto",
        memory_limit: int | None = None,
        chunk_blocks: int | None = None,
        slots: int = 0,
        reduction_lanes: int = 0,
        apart: bool = False,
    ) -> None:
        """``slots``: CLAs to make room for at once, so that none move later.

        reduction_lanes  of a shard, which leaves strided sums (:mod:`mltree.device.layout`); 0 for
                         whole sums
        apart            CLAs have the patterns of a program's parts alone, and are lost to programs
                         on other parts
        """
        self.device = device
        self.parts = len(patterns.parts)
        self.layout = layout = replace(layout, parted=layout.parted or self.parts > 1)
        self.reduction_lanes = reduction_lanes
        self.dispatch = dispatch
        self.name = f"{device.name.strip()}, {layout}"
        self.times = DeviceTimes(from_events=not is_nvidia(device))
        self._naming = NamingDevice(device)
        self._context = context_on(device)
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        properties = (profiling,) if self.times.from_events else ()
        self._queue = cl.CommandQueue(self._context, device, *properties)
        self._acc = np.dtype(np.float64 if layout.fp64 else np.float32)
        self._real = np.dtype(np.float32 if layout.single else np.float64)
        self._chunk_blocks = chunk_blocks or layout.chunk_blocks(patterns.n_patterns)
        self._bounds = length_bounds
        blocks = Blocks.of(patterns, layout.vw, self._chunk_blocks)
        self.room = room_on(device, layout, blocks.width, memory_limit, self.parts)
        if apart:
            self.room = self.room._replace(starts=blocks.part_starts)
        self.expected_slots = min(slots, self.room.most)
        """CLAs to make room for with the first one."""
        self._least_slots = self.room.rows_of_any(3 * (patterns.n_tips - 2) + 1)
        self.memory = Memory(self._context, self._queue, self.times.waiting)
        self._workers: dict[str, Worker] = {}
        self._plans: dict[tuple[int, int, int], Plan] = {}
        self._program: Program | None = None
        self._first_chunk = 0
        self._others: dict[Patterns, dict[str, cl.Buffer]] = {}
        self._upload_patterns(patterns)
        for name in BUFFERS:
            self.memory.reserve(name, LEAST)
        self.memory.put("sync", np.zeros(len(Sync), np.uint32))

    def longest_walk(self, trees: int) -> int:
        """See :func:`mltree.device.layout.longest_walk`."""
        return longest_walk(self.layout, self.device.max_compute_units, self._patterns, trees)

    @property
    def chains(self) -> ChainRoom:
        """As :class:`mltree.program.engine.ChainEngine` has it."""
        is_cpu = bool(self.device.type & cl.device_type.CPU)
        units = 1 if is_cpu else self.device.max_compute_units
        return chain_room(self.layout, units, self._blocks.count)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        models = ModelStack.of(models)
        rows = model_rows(models)
        self.memory.put("model", rows.astype(self._acc))
        self.memory.put("model_real", rows.astype(self._real))
        if self.layout.site_systems:
            return  # patterns have Q of their own
        series, places = series_rows(models)
        if series.size:
            self.memory.put("series", series.astype(self._acc))
        self.memory.put("series_at", places)

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        widen, kind = (self._widen, None) if self._widens(rows) else (None, self._acc)
        size, padded = (
            self._blocks.width * self._acc.itemsize,
            partial(self._blocks.padded, kind=kind),
        )
        self.memory.put_rows("weights", rows, size, padded, widen)

    def _widens(self, rows: Weights) -> bool:
        """True for weights of 16 bits, sent in a quarter of the bytes to a GPU that widens them."""
        return rows.dtype == np.uint16 and bool(self.device.type & cl.device_type.GPU)

    def _widen(self, narrow: cl.Buffer, wide: cl.Buffer, offset: int, count: int) -> None:
        """Widen so many weights (opencl/widen.cl); ``offset``: bytes in the wide buffer."""
        items, first = -(-count // WIDEN_ITEMS) * WIDEN_ITEMS, offset // self._acc.itemsize
        numbers = np.uint64(first), np.uint64(count)
        self._widening_kernel(self._queue, (items,), (WIDEN_ITEMS,), narrow, wide, *numbers)

    @cached_property
    def _widening_kernel(self) -> cl.Kernel:
        is_double = int(self._acc == np.float64)
        program = build_kernels(self._context, self.device, "widen", FP64=is_double)
        return cl.Kernel(program, "widen")

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.program.engine.ReplicateEngine.load_patterns`."""
        blocks, write, acc = self._blocks, self.memory.write, self._acc
        laid_out = Blocks.of(patterns, blocks.vw, blocks.count)
        first = int(blocks.chunk_block[blocks.part_chunk[first_part]])
        parts = blocks.block_part[first : first + laid_out.count]
        if not np.array_equal(parts, first_part + laid_out.block_part):
            raise ValueError("parts of other sizes")
        codes = laid_out.padded(patterns.codes, patterns.alphabet.gap_code)
        for tip, row in enumerate(np.ascontiguousarray(codes)):
            write("tips", row, tip * blocks.width + first * laid_out.vw)
        weights = laid_out.padded(patterns.weights, kind=acc)
        write("weights", weights, first * laid_out.vw * acc.itemsize)
        if patterns.systems is not None:
            systems = np.ascontiguousarray(laid_out.systems(patterns.systems), self._real)
            write("site_system", systems, first * systems[0].nbytes)

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        lnl = self.memory.fetch("site_lnl", (rows, self._blocks.width), self._acc)
        return self._blocks.unpadded(lnl).astype(np.float64, copy=False)

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`."""
        try:
            return self._run(program, lengths, control)
        except DeviceMemoryError as error:
            self._retreat(program, error)
            raise

    def _run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        plan = self.start(program, lengths, control)
        self.ask(plan)
        back = self.receive(plan).astype(np.float64, copy=False)
        end = HEADER_WORDS + control.size
        head = end + len(lengths)
        after = back[HEADER_WORDS:end].reshape(-1, CONTROL_WORDS)
        self.times.repeated(program, self._blocks.patterns_of(program.cases), after)
        sums = back[head:]
        if self._lanes_of(program) > self.reduction_lanes:
            empty, part_chunk = np.empty(program.sums), self._blocks.part_chunk
            sums = add_lanes(program, [sums], [REDUCE_WIDTH], part_chunk, empty)
        return Result(sums, back[end:head], after)

    def start(self, program: Program, lengths: Float64, control: Float64) -> Plan:
        """Send a program on its way."""
        head = np.concatenate((np.zeros(HEADER_WORDS), control.ravel(), lengths), dtype=self._acc)
        return self.send(program, head, len(lengths), len(control))

    def send(
        self, program: Program, words: npt.NDArray[Any], lengths: int, groups: int = 0
    ) -> Plan:
        """Send a program on its way, with the numbers [words] of its state from the header on."""
        with self._naming:
            plan = self._plan(program, lengths, groups)
            numbers = words.astype(self._acc, copy=False)
            self.memory.write("state", numbers, plan.state["HEADER"].start * self._acc.itemsize)
            self._launch(plan)
        return plan

    def ask(self, plan: Plan) -> None:
        """Have the device begin, and its answer fetched, though nobody waits for it yet."""
        start, size = plan.state["HEADER"].start, self._acc.itemsize
        with self._naming:
            self.memory.ask("state", (plan.state.words - start) * size, start * size)
        self._count(plan.program)

    def receive(self, plan: Plan) -> npt.NDArray[Any]:
        """Wait for what was sent; acc[words] of its state from the header on."""
        start, acc = plan.state["HEADER"].start, self._acc
        with self._naming:
            back = self.memory.fetch("state", plan.state.words - start, acc, start * acc.itemsize)
            self.times.settle()
        self._check(plan.program, back)
        return back

    def advance(
        self, program: Program, part: Program, state: npt.NDArray[Any], lengths: int, groups: int
    ) -> None:
        """Run a part of a program on its whole state acc[words], which changes in place."""
        with self._naming:
            plan = self._plan(part, lengths, groups, worker_of(program))
            self.memory.write("state", state)
            self._launch(plan)
            self._count(part)
            self.memory.read("state", state)
            self.times.settle()
        self._check(part, state[plan.state["HEADER"].start :])

    def turn_to(self, patterns: Patterns, first_chunk: int) -> None:
        """Work on another slice of patterns; tips stay on the device, CLAs lose their meaning.

        ``first_chunk``: chunks of the slices before it, whose strided sums it goes on from.
        """
        if patterns is self._patterns:
            return
        self._others[self._patterns] = self.memory.take(_OF_SLICE)
        self._first_chunk = first_chunk
        if patterns in self._others:
            self.memory.give(self._others.pop(patterns))
            self._lay_out(patterns)
        else:
            self._upload_patterns(patterns)

    def close(self) -> None:
        """Free the CLAs, what slices but the present one left, and what programs made room for."""
        self._others.clear()
        self._let_go()
        self.memory.take(_GROWING)
        for name in _GROWING:
            self.memory.reserve(name, LEAST)

    def timings(self) -> dict[Function, float]:
        """Seconds on the device per likelihood function so far, from events and marks."""
        buffers = {name: f"marks.{name}" for name in self._workers}
        fetch, size = self.memory.fetch, self.memory.size
        return self.times.by_function(
            {name: fetch(marks, size(marks) // 8, np.uint64) for name, marks in buffers.items()}
        )

    def breakdown(self) -> Breakdown:
        """Breakdown of the time so far, with the work that was done in it."""
        return self.times.breakdown(self.timings(), self.layout.pattern_bytes, self.device)

    def _retreat(self, program: Program, error: DeviceMemoryError) -> None:
        """Free the CLAs, and count on fewer slots than a program has asked for in vain.

        Those are taken all at once, for a buffer that grows needs room for the old one too.

        Raises:
            DeviceError: one tree's are too many.
        """
        least = self._least_slots
        span = self._own_blocks(program)
        rows = -(-program.slots * (span.stop - span.start) // self._blocks.count)
        asked = min(self.room.most, max(rows, least))
        if asked == least <= self.expected_slots:
            raise DeviceError(error.message, hint=error.hint) from error
        self.expected_slots = max(least, int(RETREAT * asked))
        self.room = self.room._replace(most=self.expected_slots)
        self.close()

    def _state(self, program: Program, lengths: int, groups: int) -> StateLayout:
        return StateLayout(lengths, groups, program.sums * max(1, self._lanes_of(program)))

    def _lanes_of(self, program: Program) -> int:
        """Strided sums that a program leaves instead of each whole sum; 0 for whole sums."""
        is_split = not self.reduction_lanes and splits_lanes(self.layout, program)
        return REDUCE_WIDTH if is_split else self.reduction_lanes

    def _let_go(self) -> None:
        """Drop all references to buffers that are about to be replaced."""
        self._plans.clear()
        for worker in self._workers.values():
            worker.let_go()

    def _lay_out(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._blocks = Blocks.of(patterns, self.layout.vw, self._chunk_blocks)

    def _upload_patterns(self, patterns: Patterns) -> None:
        self._lay_out(patterns)
        blocks, put, real, acc = self._blocks, self.memory.put, self._real, self._acc
        put("tips", blocks.padded(patterns.codes, patterns.alphabet.gap_code))
        put("tip_table", patterns.alphabet.tip_table.astype(real))
        for table in OF_BLOCKS:
            put(table, getattr(blocks, table))
        put("site_system", blocks.systems(patterns.systems).astype(real))
        if patterns.systems is not None:
            put("series", patterns.systems.exchangeabilities.astype(acc))
        put("weights", blocks.padded(patterns.weights[None], kind=acc))
        self.memory.reserve("site_lnl", blocks.width * acc.itemsize)

    def _worker(self, name: str) -> Worker:
        if name not in self._workers:
            with self.times.building:
                BUILDS.wait(self.device, Build(name, self.layout))
                worker = Worker(self._context, self.device, name, self.layout.of_worker(name))
            words = Mark.BOOKS + worker.most_groups * len(Function)
            self.memory.put(f"marks.{name}", np.zeros(words, np.uint64))
            self._workers[name] = worker
        return self._workers[name]

    def _plan(self, program: Program, lengths: int, groups: int, worker: str = "") -> Plan:
        """The program's launches, with room for all it needs and its words on the device."""
        key = (id(program), lengths, groups)
        plan = self._plans.pop(key, None)
        if plan is None or plan.generation != self.memory.generation:
            built = self._worker(worker or worker_of(program))
            plan = self._new_plan(program, lengths, groups, built)
        self._plans[key] = plan
        if len(self._plans) > PLANS:
            del self._plans[next(iter(self._plans))]
        if program is not self._program:
            offset = 0
            for piece in program.pieces:
                self.memory.write("program", piece, offset)
                offset += piece.nbytes
            self._program = program
        return plan

    def _new_plan(self, program: Program, lengths: int, groups: int, worker: Worker) -> Plan:
        cases, blocks = program.cases, self._blocks
        chunks = blocks.most_chunks(cases)
        reduction_lanes = self._lanes_of(program)
        launches = worker.launches(
            program, self.dispatch, self._patterns.n_patterns, chunks, reduction_lanes
        )
        stacks = max(launch.groups for launch in launches) * worker.spilled_bytes(program)
        self._make_room(program, lengths, groups, stacks)
        span = self._own_blocks(program)
        numbers = {
            "blocks": blocks.count,
            "cla_blocks": span.stop - span.start,
            "cla_first": span.start,
            "chunks": blocks.chunks,
            "chunk_blocks": self._chunk_blocks,
            "first_chunk": self._first_chunk,
            "reduction_lanes": reduction_lanes,
            "tile_blocks": self.layout.tile_blocks(self._chunk_blocks, program.slots),
            "most_chunks": chunks,
            "first_case": program.first_case,
            "controls": groups,
            "lengths": lengths,
            "stack_levels": program.stack_levels,
            "local_levels": worker.local_levels(program),
        }
        bounds = zip(("min_length", "max_length"), map(self._acc.type, self._bounds), strict=True)
        values = {name: np.int32(number) for name, number in numbers.items()} | dict(bounds)
        return Plan(
            program,
            worker,
            worker.arguments(self.memory, program, values),
            launches=launches,
            generation=self.memory.generation,
            state=self._state(program, lengths, groups),
            products=self.layout.products(self._patterns.n_patterns) * program.most_steps,
        )

    def _own_blocks(self, program: Program) -> slice:
        """The blocks of the patterns that a CLA has."""
        blocks = self._blocks
        return blocks.of_cases(program.cases) if self.room.starts else slice(0, blocks.count)

    def _make_room(self, program: Program, lengths: int, groups: int, stacks: int) -> None:
        layout, real, reserve = self.layout, self._real.itemsize, self.memory.reserve
        span = self._own_blocks(program)
        width = (span.stop - span.start) * layout.vw
        slot, counts = layout.cla_bytes(width), width * layout.categories * 2
        slots = program.slots
        if self.memory.size("cla") < slots * (slot - counts):
            slots = slots if self.room.starts else max(slots, self.expected_slots)
            keep = not self._others and slots_used(program.stages)[0].size > 0
            self._let_go()
            reserve("cla", slots * (slot - counts), keep)
            reserve("scaler", slots * counts, keep)
        matrices = program.matrices * layout.categories * real
        if self.memory.size("pmatrix") < matrices * layout.matrix_words:
            self._let_go()  # of plans with buffers that would stay beside the larger ones
        reserve("pmatrix", matrices * layout.matrix_words)
        reserve("tip_pmatrix", matrices * layout.tip_words)
        acc = self._acc.itemsize
        reserve("partial", program.cells * self._blocks.chunks * acc)
        reserve("site_lnl", program.site_rows * self._blocks.width * acc, keep=True)
        reserve("state", self._state(program, lengths, groups).words * acc)
        reserve("stack", stacks)
        reserve("program", sum(piece.nbytes for piece in program.pieces))

    def _launch(self, plan: Plan) -> None:
        self.memory.expect(plan.products)
        if len(plan.launches) < len(plan.program.stages):
            self.enqueue(plan, plan.launches[0])
        else:
            plan.program.drive(_ByStage(self, plan))

    def _count(self, program: Program) -> None:
        """Count the work of a program that the device has begun."""
        self.times.sent(program, self._blocks.patterns_of(program.cases))

    def enqueue(self, plan: Plan, launch: Launch) -> None:
        """Enqueue one of the plan's launches."""
        event = plan.worker.launch(self._queue, plan.arguments, launch)
        self.times.launched(plan.worker.name, event)

    def is_active(self, state: StateLayout, groups: int) -> bool:
        """True while one of a program's groups of branch lengths still moves."""
        offset = state["CONTROL"].start * self._acc.itemsize
        control = self.memory.fetch("state", (groups, CONTROL_WORDS), self._acc, offset)
        return bool(control[:, Control.ACTIVE].any())

    def _check(self, program: Program, back: npt.NDArray[Any]) -> None:
        fault, stage = int(back[0]), int(back[1])
        if fault not in (Fault.NONE, Fault.NOT_FINITE):
            self.memory.put("sync", np.zeros(len(Sync), np.uint32))
        raise_fault(self.device, program, fault, stage)


class _ByStage(NamedTuple):
    """A launch for every stage of a program, which the host goes through."""

    session: Session
    plan: Plan

    def run(self, first: int, end: int) -> None:
        for launch in self.plan.launches[first:end]:
            self.session.enqueue(self.plan, launch)

    def step(self, at: int) -> None:
        self.run(at, at + 1)

    def is_active(self, groups: int) -> bool:
        return self.session.is_active(self.plan.state, groups)
