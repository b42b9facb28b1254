"""A device session: every CLA and tip on the device for the whole run, programs in one launch."""

from __future__ import annotations

from dataclasses import dataclass
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
from mltree.device.build import is_nvidia, worker_of
from mltree.device.faults import naming_device, raise_fault
from mltree.device.layout import Layout
from mltree.device.memory import LEAST, Memory, room_on
from mltree.device.resident import slots_read
from mltree.device.timing import Breakdown, DeviceTimes
from mltree.device.worker import BUFFERS, Launch, Worker
from mltree.errors import DeviceError, DeviceMemoryError
from mltree.likelihood.engine import Result
from mltree.likelihood.program import Program, Repeat
from mltree.likelihood.work import most_steps

__all__ = ["Dispatch", "Session", "longest_walk"]

Float64 = npt.NDArray[np.float64]
Dispatch = Literal["auto", "persistent", "launch"]
"""All stages of a program in one launch, or a launch per stage; by the work at hand where auto."""

PLANS = 16
"""Programs whose launches are remembered: more than a search repeats in turn."""

PIECE = 24
"""Steps of subtrees that are walked apart where whole trees would leave compute units idle."""

WALKS_A_UNIT = 1.5
"""Walks for each compute unit, below which that is so."""

RETREAT = 0.75
"""Of the CLA slots that a device had no room for, the share that is tried next."""

_GROWING = ("cla", "scaler", "pmatrix", "tip_pmatrix", "partial", "stack")
_OF_PANEL = ("tips", "weights", "block_partition", "site_lnl")


@dataclass(frozen=True, eq=False)
class _Plan:
    """How a program goes to the device, as long as nothing moves in its memory."""

    program: Program
    worker: Worker
    arguments: list[Any]
    launches: list[Launch]
    """One for all stages, or one for each."""
    generation: int
    """Of the memory that the arguments point into."""
    offset: int
    """Numbers of the state in front of its header."""
    products: float
    """Multiplications at most."""


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
        slots: int = 0,
    ) -> None:
        """``slots``: CLAs to make room for as soon as there are any, so that none move later."""
        self.device = device
        self.layout = layout
        self.dispatch = dispatch
        self.name = f"{device.name.strip()}, {layout}"
        self.times = DeviceTimes(from_events=not is_nvidia(device))
        self._context = cl.Context([device])
        self._queue = self._open_queue()
        self._acc = np.dtype(np.float64 if layout.fp64 else np.float32)
        self._real = np.dtype(np.float32 if layout.single else np.float64)
        self._chunk_blocks = chunk_blocks or layout.chunk_blocks(patterns.n_patterns)
        self._bounds = length_bounds
        self.room = room_on(device, layout, patterns.n_patterns, memory_limit)
        self._expected_slots = min(slots, self.room.most)
        self._least_slots = 3 * (patterns.n_tips - 2) + 1
        self.memory = Memory(self._context, self._queue, self.times.waiting)
        self._workers: dict[str, Worker] = {}
        self._plans: dict[tuple[int, int, int], _Plan] = {}
        self._program: Program | None = None
        self._panel = patterns
        self._first_chunk = 0
        self._panels: dict[Patterns, dict[str, cl.Buffer]] = {}
        self._upload_patterns(patterns)
        for name in BUFFERS:
            self.memory.reserve(name, LEAST)
        self.memory.put("sync", np.zeros(len(Sync), np.uint32))

    def _open_queue(self) -> cl.CommandQueue:
        if not self.times.from_events:
            return cl.CommandQueue(self._context, self.device)
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        return cl.CommandQueue(self._context, self.device, profiling)

    def longest_walk(self, trees: int) -> int:
        """See :func:`longest_walk`."""
        return longest_walk(self.layout, self.device, self._panel, trees)

    def load_models(self, rows: Float64) -> None:
        """Take model rows f64[M, words]."""
        self.memory.put("model", rows.astype(self._acc))
        self.memory.put("model_real", rows.astype(self._real))

    def site_log_likelihoods(self) -> Float64:
        """f64[L] of the last EVALUATE_SITES."""
        lnl = np.empty(self._blocks * self.layout.vw, self._acc)
        self.memory.read("site_lnl", lnl)
        return lnl[: self._n_patterns].astype(np.float64)

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.likelihood.engine.Engine`."""
        try:
            return self._run(program, lengths, control)
        except DeviceMemoryError as error:
            self._retreat(program, error)
            raise

    def _run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        self.start(program, lengths, control)
        back = self.receive(program, len(lengths), len(control))
        end = HEADER_WORDS + control.size
        head = end + len(lengths)
        result = Result(
            sums=back[head:].astype(np.float64, copy=False),
            lengths=back[end:head].astype(np.float64, copy=False),
            control=back[HEADER_WORDS:end].reshape(-1, CONTROL_WORDS).astype(np.float64),
        )
        self.times.repeated(program, self._n_patterns, result.control)
        return result

    def start(self, program: Program, lengths: Float64, control: Float64) -> None:
        """Send a program on its way."""
        head = np.concatenate([np.zeros(HEADER_WORDS), control.ravel(), lengths]).astype(self._acc)
        self.send(program, head, len(lengths), len(control))

    def send(
        self, program: Program, words: npt.NDArray[Any], lengths: int, groups: int = 0
    ) -> None:
        """Send a program on its way, with the numbers [words] of its state from the header on."""
        with naming_device(self.device):
            plan = self._plan(program, lengths, groups)
            own = words.astype(self._acc, copy=False)
            self.memory.write("state", own, plan.offset * self._acc.itemsize)
            self._launch(plan)

    def ask(self, program: Program, lengths: int, groups: int = 0) -> None:
        """Have the device begin, and its answer fetched, though nobody waits for it yet."""
        size = HEADER_WORDS + groups * CONTROL_WORDS + lengths + program.sums
        with naming_device(self.device):
            self.memory.ask("state", size * self._acc.itemsize, 2 * lengths * self._acc.itemsize)

    def receive(self, program: Program, lengths: int, groups: int = 0) -> npt.NDArray[Any]:
        """Wait for the program that was sent; acc[words] of its state from the header on."""
        head = HEADER_WORDS + groups * CONTROL_WORDS + lengths
        back = np.empty(head + program.sums, self._acc)
        with naming_device(self.device):
            self.memory.read("state", back, 2 * lengths * self._acc.itemsize)
            self.times.settle()
        self._check(program, back)
        return back

    def advance(
        self, program: Program, part: Program, state: npt.NDArray[Any], lengths: int, groups: int
    ) -> None:
        """Run a part of a program on its whole state acc[words], which changes in place."""
        with naming_device(self.device):
            plan = self._plan(part, lengths, groups, worker_of(program))
            self.memory.write("state", state)
            self._launch(plan)
            self.memory.read("state", state)
            self.times.settle()
        self._check(part, state[2 * lengths :])

    def turn_to(self, panel: Patterns, first_chunk: int) -> None:
        """Work on another panel of patterns; tips stay on the device, CLAs lose their meaning.

        ``first_chunk``: chunks of the panels before it, whose strided sums it goes on from.
        """
        if panel is self._panel:
            return
        self._panels[self._panel] = self.memory.take(_OF_PANEL)
        self._panel = panel
        self._first_chunk = first_chunk
        if panel in self._panels:
            self.memory.give(self._panels.pop(panel))
            self._count_blocks(panel)
        else:
            self._upload_patterns(panel)

    def forget_panels(self) -> None:
        """Free the CLAs, what panels but the present one left, and what programs made room for."""
        self._panels.clear()
        self._let_go()
        self.memory.take(_GROWING)
        for name in _GROWING:
            self.memory.reserve(name, LEAST)

    def timings(self) -> dict[Function, float]:
        """Seconds on the device per likelihood function so far, from events and marks."""
        marks = {}
        for name in self._workers:
            ticks = np.zeros(self.memory[f"marks.{name}"].size // 8, np.uint64)
            self.memory.read(f"marks.{name}", ticks)
            marks[name] = ticks
        return self.times.by_function(marks)

    def breakdown(self) -> Breakdown:
        """Where the time went so far, with the work that was done in it."""
        return self.times.breakdown(self.timings(), self.layout.pattern_bytes, self.device)

    def _retreat(self, program: Program, error: DeviceMemoryError) -> None:
        """Free the CLAs, and count on fewer slots than a program has asked for in vain.

        Those are taken all at once, for a buffer that grows needs room for the old one too.

        Raises:
            DeviceError: one tree's are too many.
        """
        least = self._least_slots
        asked = min(self.room.most, max(program.slots, least))
        if asked == least <= self._expected_slots:
            raise DeviceError(error.message, hint=error.hint) from error
        self._expected_slots = max(least, int(RETREAT * asked))
        self.room = self.room._replace(most=self._expected_slots)
        self.forget_panels()

    def _let_go(self) -> None:
        """Keep no buffer alive that is about to be replaced."""
        self._plans.clear()
        for worker in self._workers.values():
            worker.let_go()

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
        self.memory.put("tips", tips)
        self.memory.put("weights", weights)
        self.memory.put("tip_table", patterns.alphabet.tip_table.astype(self._real))
        self.memory.put("block_partition", np.zeros(self._blocks, np.int32))
        self.memory.reserve("site_lnl", width * self._acc.itemsize)

    def _worker(self, name: str) -> Worker:
        if name not in self._workers:
            with self.times.building:
                worker = Worker(self._context, self.device, name, self.layout.of_worker(name))
            words = Mark.BOOKS + worker.most_groups * len(Function)
            self.memory.put(f"marks.{name}", np.zeros(words, np.uint64))
            self._workers[name] = worker
        return self._workers[name]

    def _plan(self, program: Program, lengths: int, groups: int, worker: str = "") -> _Plan:
        """The program's launches, with room for all it needs and its words on the device."""
        key = (id(program), lengths, groups)
        plan = self._plans.pop(key, None)
        if plan is None or plan.generation != self.memory.generation:
            plan = self._new_plan(
                program, lengths, groups, self._worker(worker or worker_of(program))
            )
        self._plans[key] = plan
        if len(self._plans) > PLANS:
            del self._plans[next(iter(self._plans))]
        if program is not self._program:
            self.memory.write("program", program.words)
            self._program = program
        return plan

    def _new_plan(self, program: Program, lengths: int, groups: int, worker: Worker) -> _Plan:
        self._make_room(program, lengths, groups, worker)
        numbers = [
            self._blocks, self._chunk_blocks, self._first_chunk,
            self.layout.tile_blocks(self._chunk_blocks, program.slots), groups, lengths,
            program.stack_levels, worker.local_levels(program),
        ]  # fmt: skip
        arguments = worker.arguments(
            self.memory, program,
            [*map(np.int32, numbers), *map(self._acc.type, self._bounds)],
        )  # fmt: skip
        persistent = self.dispatch == "persistent" or (
            self.dispatch == "auto"
            and worker.is_persistent(program, self._n_patterns, self._chunks)
        )
        return _Plan(
            program, worker, arguments,
            launches=worker.launches(program, self._chunks, persistent),
            generation=self.memory.generation,
            offset=2 * lengths,
            products=self.layout.products(self._n_patterns) * most_steps(program),
        )  # fmt: skip

    def _make_room(self, program: Program, lengths: int, groups: int, worker: Worker) -> None:
        layout, real, reserve = self.layout, self._real.itemsize, self.memory.reserve
        slot = layout.cla_bytes(self._n_patterns)
        counts = self._blocks * layout.vw * layout.categories * 2
        slots = program.slots
        if self.memory.size("cla") < slots * (slot - counts):
            slots = max(slots, self._expected_slots)
            keep = not self._panels and slots_read(program).size > 0
            if not keep:
                self._let_go()
            reserve("cla", slots * (slot - counts), keep)
            reserve("scaler", slots * counts, keep)
        row = layout.categories * (layout.states**2 + layout.states)
        reserve("pmatrix", lengths * row * real)
        if layout.tip_lookup:
            table = layout.categories * layout.codes * layout.states
            reserve("tip_pmatrix", lengths * table * real)
        reserve("partial", program.cells * self._chunks * self._acc.itemsize)
        words = 3 * lengths + HEADER_WORDS + groups * CONTROL_WORDS + program.sums
        reserve("state", words * self._acc.itemsize)
        reserve("stack", worker.spilled_bytes(program))
        reserve("program", program.words.nbytes)

    def _launch(self, plan: _Plan) -> None:
        stages = plan.program.stages
        self.memory.expect(plan.products)
        self.times.sent(plan.program, self._n_patterns)
        if len(plan.launches) < len(stages):
            self._enqueue(plan, plan.launches[0])
            return
        at = repeats = 0
        while at < len(stages):
            stage = stages[at]
            if isinstance(stage, Repeat):
                if repeats < stage.times and self._any_active(plan.offset, stage.groups):
                    repeats += 1
                    at = stage.to
                    continue
            else:
                self._enqueue(plan, plan.launches[at])
            at += 1

    def _any_active(self, offset: int, groups: int) -> bool:
        control = np.empty((groups, CONTROL_WORDS), self._acc)
        start = (offset + HEADER_WORDS) * self._acc.itemsize
        self.memory.read("state", control, start)
        return bool(control[:, Control.ACTIVE].any())

    def _enqueue(self, plan: _Plan, launch: Launch) -> None:
        event = plan.worker.launch(self._queue, plan.arguments, launch)
        self.times.launched(plan.worker.name, event)

    def _check(self, program: Program, back: npt.NDArray[Any]) -> None:
        fault, stage = int(back[0]), int(back[1])
        if fault not in (Fault.NONE, Fault.NOT_FINITE):
            self.memory.put("sync", np.zeros(len(Sync), np.uint32))
        raise_fault(self.device, program, fault, stage)


def longest_walk(layout: Layout, device: cl.Device, patterns: Patterns, trees: int) -> int:
    """See :meth:`mltree.likelihood.engine.Engine.longest_walk`.

    On an H200 walks take as long as levels side by side for 15 taxa x 1,024 patterns, 0.75 of it
    for 15 x 65,536, in pieces 0.53 for 1,000 x 1,024 and 0.27 for proteins of 50 x 1,777. CPUs keep
    a tile's CLAs in their caches anyway.
    """
    spans = -(-layout.blocks(patterns.n_patterns) // layout.of_worker("walk").span)
    if layout.lanes == 1:
        return 0
    is_busy = trees * spans >= WALKS_A_UNIT * device.max_compute_units
    return patterns.n_tips if is_busy else PIECE
