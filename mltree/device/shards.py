"""Shards: one alignment on several devices and ranks, or larger than a device's memory.

Patterns are independent until their sums, so each device computes a *shard* of them: it runs every
site-local part of a program, and its sums, by itself. It has every chunk of its reduction lanes
(:mod:`mltree.device.layout`), whose strided sums, put side by side and added in order, are a lone
session's to the bit. Optimisers step on the first device, by the same code on the same numbers.

Each process has a group of shards, which knows no patterns but its own, and is spoken to in calls
that can be sent. A shard that does not fit into its device's memory is computed slice by slice
through one CLA pool. Each slice goes on from the sums of the one before, and computes anew the CLAs
that a program expects.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyopencl as cl

from mltree.data.patterns import Patterns
from mltree.device.discovery import DeviceInfo, choose_devices
from mltree.device.layout import (
    Acc,
    Blocks,
    Layout,
    add_lanes,
    longest_walk,
    patterns_of,
    share_out,
)
from mltree.device.memory import cla_memory
from mltree.device.session import Session, slots_used
from mltree.device.timing import Breakdown
from mltree.models.eigen import ModelArrays
from mltree.program.contract import CONTROL_WORDS, HEADER_WORDS, Control, Function, StateLayout
from mltree.program.engine import NO_CONTROL, Result, Room, Weights
from mltree.program.program import Program
from mltree.system.arrays import Float64, Int32, Int64
from mltree.system.errors import (
    DeviceError,
    DeviceMemoryError,
    InputError,
    MltreeError,
    WorkerFault,
)
from mltree.system.ranks import ALIKE_HINT, LONE, Ranks, new_number
from mltree.system.values import Value

GROWTH = 2
"""CLA slots for which room is made, over those that a program asks for: the next asks for more."""


class DeviceSpec(Value):
    """A device that takes part, with its layout and its share."""

    device: cl.Device
    layout: Layout
    share: float = 1.0
    """Share of the patterns, relative to the other devices' shares."""
    memory_limit: int | None = None
    """Bytes that CLAs may take; the device's own limits where None."""


class ShardStatus(NamedTuple):
    """Room, number of slices, and notice of a shard."""

    room: Room
    slices: int
    notice: str


class ShardOptions(NamedTuple):
    """Options that all shards of an alignment have in common."""

    chunk_blocks: int
    length_bounds: tuple[float, float]
    slots: int
    """CLAs to make room for at first."""


class ShardSlice(NamedTuple):
    """Patterns of a shard that are computed together."""

    patterns: Patterns
    where: slice
    """Their columns among those of the shard."""
    first_chunk: int
    """Their first chunk among those of the shard."""


class Shard(Session):
    """A session of the patterns of some reduction lanes, in slices that take turns."""

    def __init__(
        self, spec: DeviceSpec, patterns: Patterns, reduction_lanes: int, options: ShardOptions
    ) -> None:
        """``patterns``: those of the chunks of as many reduction lanes."""
        self.layout = spec.layout
        self._all = patterns
        self._chunk_blocks = options.chunk_blocks
        self._all_blocks = Blocks.of(patterns, spec.layout.vw, options.chunk_blocks)
        self._weights: Weights = patterns.weights[None]
        self._limit = cla_memory(spec.device, spec.memory_limit)
        self.slices = self._split(options.slots, spec.device.name.strip())
        super().__init__(
            spec.device, self.slices[0].patterns, spec.layout, options.length_bounds,
            memory_limit=self._limit, chunk_blocks=options.chunk_blocks, slots=options.slots,
            reduction_lanes=reduction_lanes,
        )  # fmt: skip

    @property
    def fit(self) -> int:
        """CLA slots that fit for the largest slice, which is the first."""
        return self._limit // self.layout.cla_bytes(self.slices[0].patterns.n_patterns)

    def status(self) -> ShardStatus:
        """Room and slices, with a notice of the patterns, and why they are in several slices."""
        count = len(self.slices)
        notice = f"{self.device.name.strip()} takes {self._all.n_patterns} patterns"
        if count > 1:
            limit = f"{self._limit / 2**20:.0f} MiB"
            notice += f" in {count} slices, one after the other: its memory for CLAs is {limit}"
        return ShardStatus(self.room._replace(most=self.fit), count, notice)

    def make_room(self, slots: int) -> ShardStatus:
        """Make smaller slices where so many CLAs of one do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        if slots > self.fit:
            try:
                self.slices = self._split(GROWTH * slots, self.name)
            except DeviceError:
                self.slices = self._split(slots, self.name)
            self.turn_to_slice(self.slices[0])
            self.expect_less()
            if self._weights.shape[0] > 1:
                self.load_weights(self._weights)
        return self.status()

    def expect_less(self) -> None:
        """Free all CLAs, and make room for no more of them than are asked for."""
        self.close()
        self.expected_slots = 0

    def retreat(self, slots: int) -> ShardStatus:
        """Make smaller slices, for so many CLAs of those that there are do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        self.close()
        slot = self.layout.cla_bytes(self.slices[0].patterns.n_patterns)
        self._limit = max(1, slots) * slot // 2
        return self.make_room(max(slots, self.fit + 1))

    def _split(self, slots: int, name: str) -> list[ShardSlice]:
        blocks = self._all_blocks
        chunk = min(self._chunk_blocks * blocks.vw, blocks.width)
        least = max(1, slots) * self.layout.cla_bytes(chunk)
        fit = self._limit // least
        if fit == 0:
            raise DeviceError(
                f"{name}: {slots} CLAs of {chunk} patterns do not fit into "
                f"{self._limit / 2**20:.1f} MiB",
                hint=f"give --memory-limit {-(-least // 2**20)}M or more, or fewer starting trees",
            )
        slices = -(-blocks.chunks // fit)
        ends = [-(-n * blocks.chunks // slices) for n in range(slices + 1)]
        # A pattern's chunk rises with its number, so that a slice's patterns are neighbours.
        patterns = np.searchsorted(blocks.chunk_of, ends)
        return [
            ShardSlice(self._all.take(np.arange(*span)), slice(*span), first)
            for span, first in zip(pairwise(patterns.tolist()), ends, strict=False)
        ]

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, patterns]."""
        self._weights = rows
        for piece in self.slices:
            self.turn_to_slice(piece)
            super().load_weights(rows[:, piece.where])

    def replace_patterns(self, first_part: int, patterns: Patterns, first: int) -> None:
        """Replace the patterns of as many parts; ``first``: the first column, among the shard's."""
        self._all.put(first, patterns)
        end = first + patterns.n_patterns
        for piece in self.slices:
            start, stop = max(first, piece.where.start), min(end, piece.where.stop)
            if start < stop:
                some = patterns.take(np.arange(start - first, stop - first))
                piece.patterns.put(start - piece.where.start, some)
                self.turn_to_slice(piece)
                self.load_patterns(first_part, some)

    def turn_to_slice(self, piece: ShardSlice) -> None:
        """Work on a slice."""
        self.turn_to(piece.patterns, piece.first_chunk)

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, patterns] of all slices."""
        lnl = []
        for piece in self.slices:
            self.turn_to_slice(piece)
            lnl.append(super().site_log_likelihoods(rows))
        return np.concatenate(lnl, axis=1)

    def breakdown(self) -> Breakdown:
        """Breakdown of the time so far, without devices, which are this process's own."""
        return replace(super().breakdown(), devices=())


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
        missing, _ = slots_used(program.stages)
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
        known = vars(program)[_CACHE] = Program(stages, 1, program.cases), *slots_used(stages)
    return known


PROGRAMS = 16
"""Programs that shard groups keep: more than a search repeats in turn."""


class ProgramRef(NamedTuple):
    """A program that groups keep by a number."""

    number: int
    program: Program | None
    """The program itself the first time it is sent; None from then on."""


class RecentPrograms(dict[int, Program]):
    """Programs that ran last, by number: an engine and its groups keep the same ones."""

    def use(self, refs: Sequence[ProgramRef]) -> list[Program]:
        """The programs of these references; they are kept, and as many others as there is room."""
        for number, program in refs:
            kept = self.pop(number, program)
            assert kept is not None, "an engine and its groups keep the same"
            self[number] = kept
        programs = [self[number] for number, _ in refs]
        while len(self) > max(PROGRAMS, len(refs)):
            del self[next(iter(self))]
        return programs


class RemoteCall(NamedTuple):
    """A method of :class:`ShardGroup`, and what to call it with."""

    do: Callable[..., Any]
    values: tuple[Any, ...] = ()


Handler: TypeAlias = Callable[[RemoteCall], Any]
"""A group's :meth:`ShardGroup.answer`."""


class ShardGroup:
    """The shards of a process, one on each of its devices."""

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self.specs = tuple(specs)
        self.shards: list[Shard] = []
        self._programs = RecentPrograms()

    def answer(self, call: RemoteCall) -> Any:
        """The result of a call, or its error, without the frames and buffers that it came from."""
        try:
            return call.do(self, *call.values)
        except MltreeError as error:
            return type(error)(error.message, hint=error.hint)

    def open(
        self, shares: Sequence[tuple[Patterns, int] | None], options: ShardOptions
    ) -> list[ShardStatus]:
        """Open a shard on every device that gets patterns, of so many reduction lanes.

        Raises:
            DeviceError: a device cannot be used.
        """
        self.shards = [
            Shard(spec, *share, options)
            for spec, share in zip(self.specs, shares, strict=True)
            if share is not None
        ]
        return [shard.status() for shard in self.shards]

    def each(self, method: Callable[..., Any], values: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Results of a method of every shard, with values for each."""
        return [method(shard, *each) for shard, each in zip(self.shards, values, strict=True)]

    def run(
        self, refs: Sequence[ProgramRef], words: Acc, lengths: int, written_on: Sequence[Float64]
    ) -> list[Acc]:
        """The sums that a program without optimisers leaves behind on every shard, all slices done.

        refs        of the program, and of those that slices which take turns run before it, for
                    their CLAs are gone
        words       acc[words]: what it starts from, its header and so many lengths
        written_on  f64[lengths] of each that runs before it
        """
        part, *programs = self._programs.use(refs)
        writers = list(zip(programs, written_on, strict=True))
        states, plans = [words] * len(self.shards), {}
        for turn in range(max((len(shard.slices) for shard in self.shards), default=0)):
            here = [i for i, shard in enumerate(self.shards) if turn < len(shard.slices)]
            self._turn_to(turn, [self.shards[i] for i in here], writers)
            for i in here:
                plans[i] = self.shards[i].send(part, states[i], lengths)
            for i in here:  # only then: no device waits for another's answer to be asked for
                self.shards[i].ask(plans[i])
            for i in here:  # the next piece goes on from these words
                states[i] = self.shards[i].receive(plans[i])
        return [state[HEADER_WORDS + lengths :] for state in states]

    def _turn_to(
        self, turn: int, shards: Sequence[Shard], writers: Sequence[tuple[Program, Float64]]
    ) -> None:
        """Work on other slices, and have their CLAs written where they are not there any more."""
        for shard in shards:
            shard.turn_to_slice(shard.slices[turn])
        for program, lengths in writers:
            sent = []
            for shard in shards:
                if len(shard.slices) > 1:
                    sent.append((shard, shard.start(program, lengths, NO_CONTROL)))
                    shard.ask(sent[-1][1])
            for shard, plan in sent:  # raises what went wrong
                shard.receive(plan)


def device_specs(
    devices: Sequence[DeviceInfo],
    layouts: Sequence[Layout],
    memory_limit: int | None,
    speeds: Sequence[float],
) -> list[DeviceSpec]:
    """Specs of devices; ``memory_limit``: bytes of CLAs on each, of all ranks together."""
    return [
        DeviceSpec(info.handle, layout, speed, info.memory_limit(memory_limit))
        for info, layout, speed in zip(devices, layouts, speeds, strict=True)
    ]


def remote_group(
    asked: str | None, names: Sequence[str], layouts: Sequence[Layout], memory_limit: int | None
) -> Handler:
    """Return the handler of another rank's calls, on the devices asked for there.

    Raises:
        InputError: they are not those of these names, which the first rank has.
        DeviceError: they cannot be used.
    """
    devices = choose_devices(asked)
    if [info.name for info in devices] != list(names):
        raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
    return ShardGroup(device_specs(devices, layouts, memory_limit, [1.0] * len(devices))).answer


class ShardedEngine:
    """Implements :class:`mltree.program.engine.Engine` over shards of an alignment.

    Its layouts must have one VW, and be GPUs' or CPUs', for results to have the bits of a lone
    session.
    """

    def __init__(
        self,
        patterns: Patterns,
        specs: Sequence[DeviceSpec],
        length_bounds: tuple[float, float],
        slots: int,
        ranks: Ranks = LONE,
        elsewhere: Callable[[], Handler] | None = None,
        chunked_as: int = 0,
    ) -> None:
        """``slots``: CLAs to make room for at first; more slices are made where more is asked.

        ``ranks``: who share the patterns, each on devices like the specs here; ``elsewhere``: sent
        to the others, and called there for what answers. ``chunked_as``: patterns that chunks suit,
        if not these.

        Raises:
            DeviceError: a device cannot be used.
            MltreeError: another rank cannot take part.
        """
        self._whole = patterns
        self.parts = len(patterns.parts)
        self._specs = tuple(specs)
        self._group = ShardGroup(specs)
        self._ranks, self._number = ranks, new_number()
        if elsewhere is not None:
            ranks.everywhere(elsewhere, self._number)
            weakref.finalize(self, ranks.forget, self._number).atexit = False
        self.acc = np.dtype(np.float64 if specs[0].layout.fp64 else np.float32)
        suited = chunked_as or patterns.n_patterns
        chunk = max(spec.layout.chunk_blocks(suited) for spec in specs)
        options = ShardOptions(chunk, length_bounds, slots)
        self._blocks = Blocks.of(patterns, specs[0].layout.vw, chunk)
        self._reduction_lanes = share_out(
            self._blocks.chunks, [spec.share for spec in specs] * ranks.size
        )
        self._where = [
            patterns_of(lanes, self._blocks.chunk_of) for lanes in self._reduction_lanes if lanes
        ]
        takes_part = [bool(lanes) for lanes in self._reduction_lanes]
        ends = np.cumsum([0, *(sum(rank) for rank in self._by_rank(takes_part))]).tolist()
        self._of_ranks = [slice(first, end) for first, end in pairwise(ends)]
        self._resident, self._is_hopeful = Resident(), True
        self._programs = RecentPrograms()
        self._statuses: list[ShardStatus] = self._open(options)

    def _open(self, options: ShardOptions) -> list[ShardStatus]:
        where = iter(self._where)
        shares = [
            self._share(next(where), n) if n else None for n in map(len, self._reduction_lanes)
        ]
        calls = [(rank_shares, options) for rank_shares in self._by_rank(shares)]
        return self._ask(ShardGroup.open, calls)

    def _share(self, where: Int64, reduction_lanes: int) -> tuple[Patterns, int]:
        has_all = len(where) == self._whole.n_patterns
        return self._whole if has_all else self._whole.take(where), reduction_lanes

    def _by_rank(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        width = len(self._specs)
        return [values[n * width : (n + 1) * width] for n in range(self._ranks.size)]

    def _each(self, method: Callable[..., Any], *values: Any) -> list[Any]:
        """Results of a method of every shard of all ranks."""
        return self._each_of(method, [values] * len(self._where))

    def _each_of(self, method: Callable[..., Any], values: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Results of a method of every shard of all ranks, with values for each."""
        return self._ask(ShardGroup.each, [(method, values[shards]) for shards in self._of_ranks])

    def _ask(self, do: Callable[..., Any], values: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers of all shards, of a call to each group with values of its own.

        Raises:
            MltreeError: the error of the first group that has one.
        """
        calls = [RemoteCall(do, arguments) for arguments in values]
        answers = self._ranks.gather(calls, self._group.answer, self._number)
        for answer in answers:
            if isinstance(answer, MltreeError):
                raise answer
        return [shard for answer in answers for shard in answer]

    @property
    def name(self) -> str:
        """Names and layouts of this process's devices, whatever their shares.

        Results depend neither on those nor on other ranks, whose devices are like them.
        """
        return "; ".join(f"{spec.device.name.strip()}, {spec.layout}" for spec in self._specs)

    @property
    def notice(self) -> str:
        """Notice of the patterns of each device, and of slices and why."""
        idle = [
            f"{spec.device.name.strip()} takes none"
            for spec, lanes in zip(
                self._specs * self._ranks.size, self._reduction_lanes, strict=True
            )
            if not lanes
        ]
        texts = [status.notice for status in self._statuses] + idle
        alike = Counter(texts) if self._ranks.size > 1 else dict.fromkeys(texts, 1)
        among = [f"{self._ranks.size} ranks share the patterns"] if self._ranks.size > 1 else []
        each = [f"{n} x {text}" if n > 1 else text for text, n in alike.items()]
        return "; ".join(among + each)

    @property
    def n_slices(self) -> int:
        """Slices of all devices."""
        return sum(status.slices for status in self._statuses)

    @property
    def room(self) -> Room:
        """The room on the device that has least; see :class:`mltree.program.engine.Engine`."""
        return Room(*map(min, zip(*(status.room for status in self._statuses), strict=True)))

    def longest_walk(self, trees: int) -> int:
        """As of a lone session on the first device, so that results have its bits."""
        first = self._group.shards[0]
        return longest_walk(first.layout, first.device.max_compute_units, self._whole, trees)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        self._each(Shard.load_models, models)

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        self._each_of(Shard.load_weights, [(rows[:, where],) for where in self._where])

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.program.engine.ReplicateEngine.load_patterns`."""
        parts = self._whole.parts[first_part : first_part + len(patterns.parts)]
        first = parts[0].start
        if [part.stop - first for part in parts] != [part.stop for part in patterns.parts]:
            raise ValueError("parts of other sizes")
        shares = []
        for where in self._where:
            low, high = np.searchsorted(where, [first, first + patterns.n_patterns]).tolist()
            shares.append((first_part, patterns.take(where[low:high] - first), low))
        self._each_of(Shard.replace_patterns, shares)

    def close(self) -> None:
        """Free the CLAs, and what slices left."""
        self._resident = Resident()
        self._each(Shard.close)

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        lnl = np.empty((rows, self._whole.n_patterns))
        shards = self._each(Shard.site_log_likelihoods, rows)
        for where, shard_lnl in zip(self._where, shards, strict=True):
            lnl[:, where] = shard_lnl
        return lnl

    def timings(self) -> dict[Function, float]:
        """Seconds per likelihood function on the device that took longest."""
        every: list[dict[Function, float]] = self._each(Shard.timings)
        return max(every, key=lambda timings: sum(timings.values()))

    def breakdown(self) -> Breakdown:
        """Time on the device that took longest, and the work of all of them."""
        devices = tuple({spec.device.int_ptr: spec.device for spec in self._specs}.values())
        return replace(Breakdown.side_by_side(self._each(Shard.breakdown)), devices=devices)

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`.

        A device that has no room for its slices gets smaller ones, and all begin anew.
        """
        try:
            return self._run(program, lengths, control)
        except DeviceMemoryError as error:
            self._retreat(program, error)
        return self.run(program, lengths, control)

    def _retreat(self, program: Program, error: DeviceMemoryError) -> None:
        """Make smaller slices, or count on fewer slots where these are too many for any.

        At first devices are asked for no more than is needed: what they held is gone then.
        """
        if self._is_hopeful:
            self._is_hopeful, self._resident = False, Resident()
            self._each(Shard.expect_less)
            raise error
        try:
            self._statuses = self._each(Shard.retreat, program.slots)
        except DeviceError as too_many:
            self._resident, self._statuses = Resident(), self._each(Shard.status)
            if program.slots <= 3 * (self._whole.n_tips - 2) + 1:
                raise too_many from error
            raise error from too_many

    def _run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        if program.slots > self.room.most:
            self._statuses = self._each(Shard.make_room, program.slots)
        run = _Run(self, program, lengths, control)
        program.drive(run)
        self._resident.record(program, run.lengths_seen)
        return Result(
            *(numbers.astype(np.float64) for numbers in (run.sums, run.lengths, run.control))
        )

    def needed(self, program: Program) -> list[Writer]:
        """Programs that must run before this one where slices take turns."""
        if all(status.slices == 1 for status in self._statuses):
            return []
        return self._resident.needed(program)

    def sums(
        self, program: Program, words: Acc, lengths: int, writers: Sequence[Writer]
    ) -> list[Acc]:
        """The sums that a program without optimisers leaves behind on every shard of all ranks."""
        programs = [program, *(writer.program for writer in writers)]
        refs = [ProgramRef(id(one), None if id(one) in self._programs else one) for one in programs]
        self._programs.use([ProgramRef(id(one), one) for one in programs])
        values = refs, words, lengths, [writer.lengths for writer in writers]
        return self._ask(ShardGroup.run, [values] * self._ranks.size)

    def add_up(self, program: Program, strided: Sequence[Acc], sums: Acc) -> None:
        """Fill in whole sums from the strided sums of all shards."""
        widths = [len(lanes) for lanes in self._reduction_lanes if lanes]
        add_lanes(program, strided, widths, self._blocks.part_chunk, sums)

    def step(self, program: Program, at: int, run: _Run) -> None:
        """A step of every group, by the first device: the same code as in a lone session."""
        part, sizes = program.part(at, at + 1), (len(run.lengths), len(run.control))
        self._group.shards[0].advance(program, part, run.words, *sizes)


class _Run:
    """A program on its way through the groups, with its numbers as in ``session.h``."""

    def __init__(
        self, engine: ShardedEngine, program: Program, lengths: Float64, control: Float64
    ) -> None:
        layout = StateLayout(len(lengths), len(control), program.sums)
        self.words: Acc = np.zeros(layout.words, engine.acc)
        self._header = self.words[layout["HEADER"]]
        self.control = self.words[layout["CONTROL"]].reshape(-1, CONTROL_WORDS)
        self.lengths = self.words[layout["LENGTHS"]]
        self.sums = self.words[layout["SUMS"]]
        self.control[:] = control
        self.lengths[:] = lengths
        self.lengths_seen: Float64 = self.lengths.astype(np.float64)
        """Lengths that the site-local stages ran with last."""
        self._engine, self._program = engine, program
        self._writers = engine.needed(program)

    def step(self, at: int) -> None:
        self._engine.step(self._program, at, self)

    def is_active(self, groups: int) -> bool:  # noqa: ARG002
        return bool(self.control[:, Control.ACTIVE].any())

    def run(self, first: int, end: int) -> None:
        """Run the stages up to an optimiser on every slice, from the header and the lengths on."""
        self.lengths_seen = self.lengths.astype(np.float64)
        part, words = self._program.part(first, end), np.concatenate([self._header, self.lengths])
        strided = self._engine.sums(part, words, len(self.lengths), self._writers)
        self._engine.add_up(part, strided, self.sums)
