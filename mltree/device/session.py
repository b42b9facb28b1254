"""A device session: every CLA and tip on the device for the whole run, programs in one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.data.patterns import Patterns
from mltree.device.build import build_kernels, context_on, is_nvidia, queue_on, worker_of
from mltree.device.layout import Blocks, Layout, longest_walk, splits_lanes, whole_products
from mltree.device.memory import LEAST, Memory, NamingDevice, raise_fault, room_on
from mltree.device.timing import Breakdown, DeviceTimes
from mltree.device.worker import BUFFERS, BackgroundBuild, Dispatch, Launch, Plan, Worker
from mltree.models.eigen import ModelArrays
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
from mltree.program.engine import Result, Weights
from mltree.program.ops.operation import Stage
from mltree.program.ops.state import model_rows, series_rows
from mltree.program.program import Program
from mltree.system.arrays import Float64, Int32
from mltree.system.errors import DeviceError, DeviceMemoryError, WorkerFault
from mltree.system.values import Value

# Pattern buffers: codes, weights, eigen systems, and the blocks of parts.

OF_BLOCKS = ("block_part", "chunk_block", "part_chunk")
"""Buffers that say where parts lie."""

GROUP = 128
"""Work-items of a group that makes weights."""


def put_patterns(
    memory: Memory, blocks: Blocks, patterns: Patterns, real: np.dtype[Any], acc: np.dtype[Any]
) -> None:
    """Fill the buffers with patterns that lie in these blocks.

    real, acc  what systems and sums are of
    """
    memory.put("tips", blocks.padded(patterns.codes, patterns.alphabet.gap_code))
    memory.put("tip_table", patterns.alphabet.tip_table.astype(real))
    for table in OF_BLOCKS:
        memory.put(table, getattr(blocks, table))
    memory.put("site_system", blocks.systems(patterns.systems).astype(real))
    if patterns.systems is not None:
        memory.put("series", patterns.systems.exchangeabilities.astype(acc))
    memory.put("weights", blocks.padded(patterns.weights[None], kind=acc))
    memory.reserve("site_lnl", blocks.width * acc.itemsize)


def write_patterns(
    memory: Memory,
    blocks: Blocks,
    first_part: int,
    patterns: Patterns,
    real: np.dtype[Any],
    acc: np.dtype[Any],
) -> None:
    """Write over the patterns of the parts from ``first_part`` on, under the one row of weights.

    Raises: ValueError: they are not as many.
    """
    laid_out, first = Blocks.of(patterns, blocks.vw, blocks.count), blocks.first_of(first_part)
    if not np.array_equal(
        blocks.block_part[first : first + laid_out.count], first_part + laid_out.block_part
    ):
        raise ValueError("parts of other sizes")
    codes = laid_out.padded(patterns.codes, patterns.alphabet.gap_code)
    for tip, row in enumerate(np.ascontiguousarray(codes)):
        memory.write("tips", row, tip * blocks.width + first * laid_out.vw)
    weights = laid_out.padded(patterns.weights, kind=acc)
    memory.write("weights", weights, first * laid_out.vw * acc.itemsize)
    if patterns.systems is not None:
        systems = np.ascontiguousarray(laid_out.systems(patterns.systems), real)
        memory.write("site_system", systems, first * systems[0].nbytes)


def put_weights(memory: Memory, blocks: Blocks, rows: Weights, widening: Widening) -> None:
    """Fill the buffer with rows of weights [R, L]."""
    size = blocks.width * widening.acc.itemsize
    if widening.is_for(rows):
        memory.put_rows("weights", rows, size, blocks.padded, widening)
    else:
        memory.put_rows("weights", rows, size, lambda slab: blocks.padded(slab, kind=widening.acc))


class Widening:
    """Weights of 16 bits on their way to a GPU, which makes whole ones of them (opencl/widen.cl).

    So a quarter of the bytes is sent. Where the host is the device nothing is, and it makes them.
    """

    def __init__(self, context: cl.Context, queue: cl.CommandQueue, acc: np.dtype[Any]) -> None:
        """``acc``: what weights are of. Nothing is built before it is needed."""
        self.acc = acc
        self._context, self._queue = context, queue

    def is_for(self, rows: Weights) -> bool:
        """True for rows that it serves."""
        return rows.dtype == np.uint16 and bool(self._queue.device.type & cl.device_type.GPU)

    def __call__(self, narrow: cl.Buffer, wide: cl.Buffer, offset: int, count: int) -> None:
        """Make so many; ``offset``: bytes in the wide buffer."""
        items, first = -(-count // GROUP) * GROUP, offset // self.acc.itemsize
        numbers = np.uint64(first), np.uint64(count)
        self._kernel(self._queue, (items,), (GROUP,), narrow, wide, *numbers)

    @cached_property
    def _kernel(self) -> cl.Kernel:
        device, is_double = self._queue.device, self.acc == np.float64
        program = build_kernels(self._context, device, "widen", FP64=int(is_double))
        return cl.Kernel(program, "widen")


# Where slices share one CLA pool, a slice's CLAs are gone when its turn comes again. A
# :class:`Resident` remembers the programs that wrote them, and lists those that a program needs.

_CACHE = "_written"


class Writer(Value, eq=False):
    """The part of a program that writes CLAs, on the f64[lengths] that it ran with."""

    program: Program
    lengths: Float64
    reads: Int32
    """Slots that it needs from programs before it."""
    writes: Int32


class Resident:
    """The writers of the CLAs that a client counts on, oldest first."""

    def __init__(self) -> None:
        self._writers: list[Writer] = []

    def needed(self, program: Program) -> list[Writer]:
        """Programs that must run before this one, oldest first, where no CLA is left.

        Raises:
            WorkerFault: the program reads a CLA that no program has written.
        """
        missing, _ = _slots(program.stages)
        writers = []
        for writer in reversed(self._writers):
            written = np.isin(missing, writer.writes)
            if written.any():
                writers.append(writer)
                missing = np.union1d(missing[~written], writer.reads)
        if missing.size:
            raise WorkerFault(
                f"reads cla[{missing[0]}], which nothing has written",
                hint="please report this with the log",
            )
        return writers[::-1]

    def record(self, program: Program, lengths: Float64) -> None:
        """A program ran, at last with these f64[lengths]; writers it has overwritten go."""
        part, reads, writes = _written(program)
        if writes.size == 0:
            return
        held = [w for w in self._writers if not _covers(writes, w.writes)]
        self._writers = [*held, Writer(part, lengths.copy(), reads, writes)]


def slots_needed(program: Program) -> Int32:
    """Slots that a program reads and has not written before; rising."""
    return _slots(program.stages)[0]


def _covers(writes: Int32, others: Int32) -> bool:
    """True if all the others are among the slots; the same program's are the same array."""
    return writes is others or bool(np.isin(others, writes).all())


def _written(program: Program) -> tuple[Program, Int32, Int32]:
    """The part that writes CLAs, and the slots that it reads and writes.

    Found once for each object, which may run many times.
    """
    known: tuple[Program, Int32, Int32] | None = vars(program).get(_CACHE)
    if known is None:
        stages = tuple(part for stage in program.stages if (part := stage.writing()) is not None)
        known = vars(program)[_CACHE] = Program(stages, 1, program.cases), *_slots(stages)
    return known


def _slots(stages: tuple[Stage, ...]) -> tuple[Int32, Int32]:
    """Slots read before the stages write them, and all slots written; both rising."""
    nothing = [np.zeros(0, np.int32)]
    reads = np.concatenate([*nothing, *(stage.slots_read() for stage in stages)])
    writes = np.concatenate([*nothing, *(stage.slots_written() for stage in stages)])
    count = 1 + max(reads.max(initial=-1), writes.max(initial=-1))
    is_read, is_written = np.zeros((2, count), np.bool_)
    is_read[reads] = is_written[writes] = True
    needed = np.flatnonzero(is_read & ~is_written)
    return needed.astype(np.int32), np.flatnonzero(is_written).astype(np.int32)


PLANS = 16
"""Programs whose launches are remembered: more than a search repeats in turn."""

RETREAT = 0.75
"""Share that is tried next of the CLA slots that a device had no room for."""

_GROWING = ("cla", "scaler", "pmatrix", "tip_pmatrix", "partial", "stack")
_OF_SLICE = (*OF_BLOCKS, "tips", "weights", "site_lnl", "site_system")


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
        parted: bool = False,
        apart: bool = False,
        background: BackgroundBuild | None = None,
    ) -> None:
        """``slots``: CLAs to make room for at once, so that none move later.

        reduction_lanes  of a shard, which leaves strided sums (:mod:`mltree.device.layout`); 0 for
                         whole sums
        parted           look parts up even where there is but one, for programs that leave it out
        apart            CLAs have the patterns of a program's parts alone, and are lost to programs
                         on other parts
        background       processes that build workers already
        """
        self.device = device
        self.parts = len(patterns.parts)
        self.layout = layout = replace(layout, parted=parted or layout.parted or self.parts > 1)
        self.reduction_lanes = reduction_lanes
        self.dispatch = dispatch
        self.name = f"{device.name.strip()}, {layout}"
        self.times = DeviceTimes(from_events=not is_nvidia(device))
        self._naming = NamingDevice(device)
        self._background = background
        self._context = context_on(device)
        self._queue = queue_on(self._context, device, self.times.from_events)
        self._acc = np.dtype(np.float64 if layout.fp64 else np.float32)
        self._real = np.dtype(np.float32 if layout.single else np.float64)
        self._widening = Widening(self._context, self._queue, self._acc)
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
        self._patterns = patterns
        self._first_chunk = 0
        self._others: dict[Patterns, dict[str, cl.Buffer]] = {}
        self._upload_patterns(patterns)
        for name in BUFFERS:
            self.memory.reserve(name, LEAST)
        self.memory.put("sync", np.zeros(len(Sync), np.uint32))

    def longest_walk(self, trees: int) -> int:
        """See :func:`mltree.device.layout.longest_walk`."""
        return longest_walk(self.layout, self.device.max_compute_units, self._patterns, trees)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
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
        put_weights(self.memory, self._blocks, rows, self._widening)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.program.engine.ReplicateEngine.load_patterns`."""
        write_patterns(self.memory, self._blocks, first_part, patterns, self._real, self._acc)

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        lnl = np.empty((rows, self._blocks.width), self._acc)
        self.memory.read("site_lnl", lnl)
        return self._blocks.unpadded(lnl).astype(np.float64, copy=False)

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`."""
        try:
            return self._run(program, lengths, control)
        except DeviceMemoryError as error:
            self._retreat(program, error)
            raise

    def _run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        self.start(program, lengths, control)
        back = self.receive(program, len(lengths), len(control)).astype(np.float64, copy=False)
        end = HEADER_WORDS + control.size
        head = end + len(lengths)
        after = back[HEADER_WORDS:end].reshape(-1, CONTROL_WORDS)
        self.times.repeated(program, self._blocks.patterns_of(program.cases), after)
        sums = back[head:]
        if self._lanes_of(program) > self.reduction_lanes:
            sums = whole_products(program, sums, self._blocks.part_chunk)
        return Result(sums, back[end:head], after)

    def start(self, program: Program, lengths: Float64, control: Float64) -> None:
        """Send a program on its way."""
        head = np.concatenate((np.zeros(HEADER_WORDS), control.ravel(), lengths), dtype=self._acc)
        self.send(program, head, len(lengths), len(control))

    def send(
        self, program: Program, words: npt.NDArray[Any], lengths: int, groups: int = 0
    ) -> None:
        """Send a program on its way, with the numbers [words] of its state from the header on."""
        with self._naming:
            plan = self._plan(program, lengths, groups)
            numbers = words.astype(self._acc, copy=False)
            self.memory.write("state", numbers, plan.state["HEADER"].start * self._acc.itemsize)
            self._launch(plan)

    def ask(self, program: Program, lengths: int, groups: int = 0) -> None:
        """Have the device begin, and its answer fetched, though nobody waits for it yet."""
        state = self._state(program, lengths, groups)
        start, size = state["HEADER"].start, self._acc.itemsize
        with self._naming:
            self.memory.ask("state", (state.words - start) * size, start * size)

    def receive(self, program: Program, lengths: int, groups: int = 0) -> npt.NDArray[Any]:
        """Wait for the program that was sent; acc[words] of its state from the header on."""
        state = self._state(program, lengths, groups)
        start = state["HEADER"].start
        back = np.empty(state.words - start, self._acc)
        with self._naming:
            self.memory.read("state", back, start * self._acc.itemsize)
            self.times.settle()
        self._check(program, back)
        return back

    def advance(
        self, program: Program, part: Program, state: npt.NDArray[Any], lengths: int, groups: int
    ) -> None:
        """Run a part of a program on its whole state acc[words], which changes in place."""
        with self._naming:
            plan = self._plan(part, lengths, groups, worker_of(program))
            self.memory.write("state", state)
            self._launch(plan)
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
        self._patterns = patterns
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
        words = {name: self.memory[f"marks.{name}"].size // 8 for name in self._workers}
        marks = {name: np.zeros(count, np.uint64) for name, count in words.items()}
        for name, ticks in marks.items():
            self.memory.read(f"marks.{name}", ticks)
        return self.times.by_function(marks)

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
        self._n_patterns = patterns.n_patterns
        self._blocks = Blocks.of(patterns, self.layout.vw, self._chunk_blocks)

    def _upload_patterns(self, patterns: Patterns) -> None:
        self._lay_out(patterns)
        put_patterns(self.memory, self._blocks, patterns, self._real, self._acc)

    def _worker(self, name: str) -> Worker:
        if name not in self._workers:
            with self.times.building:
                if self._background is not None:
                    self._background.wait(name)
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
            self.memory.write("program", program.words)
            self._program = program
        return plan

    def _new_plan(self, program: Program, lengths: int, groups: int, worker: Worker) -> Plan:
        cases, blocks = program.cases, self._blocks
        chunks = max(1, int(blocks.chunks_of(cases["first_part"], cases["parts"]).max()))
        reduction_lanes = self._lanes_of(program)
        launches = worker.launches(
            program, self.dispatch, self._n_patterns, chunks, reduction_lanes
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
            products=self.layout.products(self._n_patterns) * program.most_steps,
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
            keep = not self._others and slots_needed(program).size > 0
            if not keep:
                self._let_go()
            reserve("cla", slots * (slot - counts), keep)
            reserve("scaler", slots * counts, keep)
        matrices = program.matrices * layout.categories * real
        reserve("pmatrix", matrices * layout.matrix_words)
        reserve("tip_pmatrix", matrices * layout.tip_words)
        acc = self._acc.itemsize
        reserve("partial", program.cells * self._blocks.chunks * acc)
        reserve("site_lnl", program.site_rows * self._blocks.width * acc, keep=True)
        reserve("state", self._state(program, lengths, groups).words * acc)
        reserve("stack", stacks)
        reserve("program", program.words.nbytes)

    def _launch(self, plan: Plan) -> None:
        self.memory.expect(plan.products)
        self._enqueue_all(plan)
        self.times.sent(plan.program, self._blocks.patterns_of(plan.program.cases))

    def _enqueue_all(self, plan: Plan) -> None:
        if len(plan.launches) < len(plan.program.stages):
            self._enqueue(plan, plan.launches[0])
        else:
            groups_move = partial(self._any_active, plan.state)
            plan.program.drive(_ByStage(partial(self._enqueue, plan), plan.launches, groups_move))

    def _any_active(self, state: StateLayout, groups: int) -> bool:
        control = np.empty((groups, CONTROL_WORDS), self._acc)
        self.memory.read("state", control, state["CONTROL"].start * self._acc.itemsize)
        return bool(control[:, Control.ACTIVE].any())

    def _enqueue(self, plan: Plan, launch: Launch) -> None:
        event = plan.worker.launch(self._queue, plan.arguments, launch)
        self.times.launched(plan.worker.name, event)

    def _check(self, program: Program, back: npt.NDArray[Any]) -> None:
        fault, stage = int(back[0]), int(back[1])
        if fault not in (Fault.NONE, Fault.NOT_FINITE):
            self.memory.put("sync", np.zeros(len(Sync), np.uint32))
        raise_fault(self.device, program, fault, stage)


class _ByStage(NamedTuple):
    """A launch for every stage of a program, which the host goes through."""

    launch: Callable[[Launch], None]
    launches: Sequence[Launch]
    is_active: Callable[[int], bool]

    def run(self, first: int, end: int) -> None:
        for launch in self.launches[first:end]:
            self.launch(launch)

    def step(self, at: int) -> None:
        self.launch(self.launches[at])
