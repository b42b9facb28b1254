"""Shards: the patterns that each device of a process computes of an alignment that is shared out.

The engine (:mod:`mltree.device.shards`) speaks to groups of shards alone: to that of its
process and to those of other ranks, in calls that can be sent and answers that can be sent back.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.data.patterns import Patterns
from mltree.device.discovery import DeviceInfo, choose_devices
from mltree.device.layout import Blocks, Layout, longest_walk, patterns_of, share_out, whole_sums
from mltree.device.memory import cla_memory, limit_on
from mltree.device.session import Resident, Session, Writer
from mltree.device.timing import Breakdown
from mltree.device.worker import Dispatch
from mltree.models.eigen import ModelArrays
from mltree.program.contract import CONTROL_WORDS, HEADER_WORDS, Control, Function, StateLayout
from mltree.program.engine import NO_CONTROL, Result, Room, Weights
from mltree.program.program import Program
from mltree.system.arrays import Float64
from mltree.system.errors import DeviceError, DeviceMemoryError, InputError, MltreeError
from mltree.system.ranks import ALIKE_HINT, LONE, Ranks
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


class ShardOptions(NamedTuple):
    """Options that all shards of an alignment have in common."""

    vw: int
    chunk_blocks: int
    length_bounds: tuple[float, float]
    dispatch: Dispatch
    slots: int
    """CLAs to make room for at first."""


class ShardSlice(NamedTuple):
    """Patterns of a shard that are computed together."""

    patterns: Patterns
    where: slice
    """Their columns among those of the shard."""
    first_chunk: int
    """Their first chunk among those of the shard."""


class Shard:
    """A device with the patterns of its reduction lanes, in slices that take turns."""

    def __init__(
        self, spec: DeviceSpec, patterns: Patterns, reduction_lanes: int, options: ShardOptions
    ) -> None:
        """``patterns``: those of the chunks of as many reduction lanes."""
        self.reduction_lanes = reduction_lanes
        self._patterns = patterns
        self._chunk_blocks = options.chunk_blocks
        self._blocks = Blocks.of(patterns, options.vw, options.chunk_blocks)
        self._weights: Weights = self._patterns.weights[None]
        self._layout = spec.layout
        self._limit = cla_memory(spec.device, spec.memory_limit)
        self.slices = self._split(options.slots, spec.device.name.strip())
        self.session = Session(
            spec.device, self.slices[0].patterns, spec.layout, options.length_bounds,
            options.dispatch,
            memory_limit=self._limit, chunk_blocks=options.chunk_blocks, slots=options.slots,
            reduction_lanes=reduction_lanes,
        )  # fmt: skip

    @property
    def fit(self) -> int:
        """CLA slots that fit for the largest slice, which is the first."""
        return self._limit // self._layout.cla_bytes(self.slices[0].patterns.n_patterns)

    @property
    def notice(self) -> str:
        """Notice of the patterns that the device takes, and why in several slices."""
        patterns = f"{self.session.device.name.strip()} takes {self._patterns.n_patterns} patterns"
        if len(self.slices) == 1:
            return patterns
        return (
            f"{patterns} in {len(self.slices)} slices, one after the other: its memory for CLAs is "
            f"{self._limit / 2**20:.0f} MiB"
        )

    def make_room(self, slots: int) -> None:
        """Make smaller slices where so many CLAs of one do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        if slots <= self.fit:
            return
        try:
            self.slices = self._split(GROWTH * slots, self.session.name)
        except DeviceError:
            self.slices = self._split(slots, self.session.name)
        self.turn_to(self.slices[0])
        self.expect_less()
        if self._weights.shape[0] > 1:
            self.load_weights(self._weights)

    def expect_less(self) -> None:
        """Free all CLAs, and make room for no more of them than are asked for."""
        self.session.close()
        self.session.expected_slots = 0

    def retreat(self, slots: int) -> None:
        """Make smaller slices, for so many CLAs of those that there are do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        self.session.close()
        self._limit = (
            max(1, slots) * self._layout.cla_bytes(self.slices[0].patterns.n_patterns) // 2
        )
        self.make_room(max(slots, self.fit + 1))

    def _split(self, slots: int, name: str) -> list[ShardSlice]:
        blocks = self._blocks
        chunk = min(self._chunk_blocks * blocks.vw, blocks.width)
        least = max(1, slots) * self._layout.cla_bytes(chunk)
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
            ShardSlice(self._patterns.take(np.arange(*span)), slice(*span), first)
            for span, first in zip(pairwise(patterns.tolist()), ends, strict=False)
        ]

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, patterns]."""
        self._weights = rows
        for piece in self.slices:
            self.turn_to(piece)
            self.session.load_weights(rows[:, piece.where])

    def load_patterns(self, first_part: int, patterns: Patterns, first: int) -> None:
        """Replace the patterns of as many parts; ``first``: the first column, among the shard's."""
        self._patterns.put(first, patterns)
        end = first + patterns.n_patterns
        for piece in self.slices:
            start, stop = max(first, piece.where.start), min(end, piece.where.stop)
            if start < stop:
                some = patterns.take(np.arange(start - first, stop - first))
                piece.patterns.put(start - piece.where.start, some)
                self.turn_to(piece)
                self.session.load_patterns(first_part, some)

    def turn_to(self, piece: ShardSlice) -> None:
        """Work on a slice."""
        self.session.turn_to(piece.patterns, piece.first_chunk)

    def site_lnl(self, rows: int) -> Float64:
        """f64[rows, patterns] of all slices."""
        lnl = []
        for piece in self.slices:
            self.turn_to(piece)
            lnl.append(self.session.site_log_likelihoods(rows))
        return np.concatenate(lnl, axis=1)


Acc = npt.NDArray[Any]


class ShardPatterns(NamedTuple):
    """Patterns of a shard, and how many reduction lanes they are of."""

    patterns: Patterns
    reduction_lanes: int


class ProgramRef(NamedTuple):
    """A program that groups keep by a number."""

    number: int
    program: Program | None
    """The program itself the first time it is sent; None from then on."""


class Rerun(NamedTuple):
    """A program that slices which take turns run again, on f64[lengths], for its CLAs are gone."""

    program: ProgramRef
    lengths: Float64


class GroupStatus(NamedTuple):
    """Room, slices and notices of a group's shards, in order."""

    rooms: tuple[Room, ...]
    slices: tuple[int, ...]
    """Slices of each shard."""
    notices: tuple[str, ...]


class RemoteCall(NamedTuple):
    """A method of :class:`ShardGroup`, and what to call it with."""

    do: Callable[..., Any]
    values: tuple[Any, ...] = ()


class RemoteError(NamedTuple):
    """An error of a remote call, as it is sent back."""

    kind: type[MltreeError]
    message: str
    hint: str | None

    def error(self) -> MltreeError:
        """The exception, to be raised here."""
        return self.kind(self.message, hint=self.hint)


Handler: TypeAlias = Callable[[RemoteCall], Any]
"""A group's :meth:`ShardGroup.answer`."""


class ShardGroup:
    """The shards of a process, one on each of its devices."""

    def __init__(self, specs: Sequence[DeviceSpec]) -> None:
        self.specs = tuple(specs)
        self.shards: list[Shard] = []
        self._programs: dict[int, Program] = {}

    def answer(self, call: RemoteCall) -> Any:
        """The result of a call, or a :class:`RemoteError`."""
        try:
            return call.do(self, *call.values)
        except MltreeError as error:
            return RemoteError(type(error), error.message, error.hint)

    def open(self, shares: Sequence[ShardPatterns | None], options: ShardOptions) -> GroupStatus:
        """Open a shard on every device that gets a share.

        Raises:
            DeviceError: a device cannot be used.
        """
        self.shards = [
            Shard(spec, *share, options)
            for spec, share in zip(self.specs, shares, strict=True)
            if share is not None
        ]
        return self.status()

    def status(self) -> GroupStatus:
        """Return the status of the shards."""
        return GroupStatus(
            tuple(shard.session.room._replace(most=shard.fit) for shard in self.shards),
            tuple(len(shard.slices) for shard in self.shards),
            tuple(shard.notice for shard in self.shards),
        )

    def make_room(self, slots: int) -> GroupStatus:
        """Have room for so many CLAs of every slice; see :meth:`Shard.make_room`."""
        for shard in self.shards:
            shard.make_room(slots)
        return self.status()

    def expect_less(self) -> None:
        """Make room for no more CLAs than are asked for; see :meth:`Shard.expect_less`."""
        for shard in self.shards:
            shard.expect_less()

    def retreat(self, slots: int) -> GroupStatus:
        """Make smaller slices; see :meth:`Shard.retreat`."""
        for shard in self.shards:
            shard.retreat(slots)
        return self.status()

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        for shard in self.shards:
            shard.session.load_models(models)

    def load_weights(self, rows: Sequence[Weights]) -> None:
        """Take rows of weights [R, patterns], of every shard's patterns."""
        for shard, weights in zip(self.shards, rows, strict=True):
            shard.load_weights(weights)

    def load_patterns(self, first_part: int, shares: Sequence[tuple[int, Patterns]]) -> None:
        """Take other patterns for those of some parts; see :meth:`Shard.load_patterns`."""
        for shard, (first, patterns) in zip(self.shards, shares, strict=True):
            shard.load_patterns(first_part, patterns, first)

    def close(self) -> None:
        """Free the CLAs, and what slices left."""
        for shard in self.shards:
            shard.session.close()

    def site_lnl(self, rows: int) -> list[Float64]:
        """f64[rows, patterns] of the last EVALUATE_SITES, of every shard's patterns."""
        return [shard.site_lnl(rows) for shard in self.shards]

    def run(
        self,
        program: ProgramRef,
        words: Acc,
        lengths: int,
        again: Sequence[Rerun],
        spent: Sequence[int],
    ) -> list[Acc]:
        """The sums that a program without optimisers leaves behind on every shard, all slices done.

        words  acc[words]: what it starts from, its header and so many lengths
        again  what slices that take turns run before it
        spent  numbers of programs that will not be spoken of any more
        """
        part = self._known(program)
        writers = [(self._known(one.program), one.lengths) for one in again]
        for number in spent:
            del self._programs[number]
        states = [words] * len(self.shards)
        for turn in range(max((len(shard.slices) for shard in self.shards), default=0)):
            here = [i for i, shard in enumerate(self.shards) if turn < len(shard.slices)]
            self._turn_to(turn, [self.shards[i] for i in here], writers)
            for i in here:
                self.shards[i].session.send(part, states[i], lengths)
            for i in here:  # only then: no device waits for another's answer to be asked for
                self.shards[i].session.ask(part, lengths)
            for i in here:  # the next piece goes on from these words
                states[i] = self.shards[i].session.receive(part, lengths)
        return [state[HEADER_WORDS + lengths :] for state in states]

    def _known(self, ref: ProgramRef) -> Program:
        if ref.program is not None:
            self._programs[ref.number] = ref.program
        return self._programs[ref.number]

    def _turn_to(
        self, turn: int, shards: Sequence[Shard], writers: Sequence[tuple[Program, Float64]]
    ) -> None:
        """Work on other slices, and have their CLAs written where they are not there any more."""
        for shard in shards:
            shard.turn_to(shard.slices[turn])
        for program, lengths in writers:
            sessions = [shard.session for shard in shards if len(shard.slices) > 1]
            for session in sessions:
                session.start(program, lengths, NO_CONTROL)
                session.ask(program, len(lengths))
            for session in sessions:  # raises what went wrong
                session.receive(program, len(lengths))

    def timings(self) -> list[dict[Function, float]]:
        """Seconds per likelihood function, of every shard."""
        return [shard.session.timings() for shard in self.shards]

    def breakdowns(self) -> list[Breakdown]:
        """Breakdown of every shard, without devices, which are this process's own."""
        return [replace(shard.session.breakdown(), devices=()) for shard in self.shards]


def device_specs(
    devices: Sequence[DeviceInfo],
    layouts: Sequence[Layout],
    memory_limit: int | None,
    speeds: Sequence[float],
) -> list[DeviceSpec]:
    """Specs of devices; ``memory_limit``: bytes of CLAs on each, of all ranks together."""
    return [
        DeviceSpec(info.handle, layout, speed, limit_on(info, memory_limit))
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


# Shards: one alignment on several devices and ranks, or larger than a device's memory.
#
# Patterns are independent until their sums, so each device computes a *shard* of them: it runs
# every site-local part of a program, and its sums, by itself. It has every chunk of its reduction
# lanes (:mod:`mltree.device.layout`), whose strided sums, put side by side and added in order, are
# a lone session's to the bit. Optimisers step on the first device, by the same code on the same
# numbers.
#
# Each process has a group of shards (:mod:`mltree.device.shards`), which knows no patterns but its
# own. A shard that does not fit into its device's memory is computed slice by slice through one CLA
# pool. Each slice goes on from the sums of the one before, and computes anew the CLAs that a
# program expects (:mod:`mltree.device.session`).


class HostState:
    """A program's numbers on the host, as they lie in a session's buffer (``session.h``)."""

    def __init__(self, acc: np.dtype[Any], program: Program, lengths: Float64, control: Float64):
        layout = StateLayout(len(lengths), len(control), program.sums)
        self.words: Acc = np.zeros(layout.words, acc)
        self.header = self.words[layout["HEADER"]]
        self.control = self.words[layout["CONTROL"]].reshape(-1, CONTROL_WORDS)
        self.lengths = self.words[layout["LENGTHS"]]
        self.sums = self.words[layout["SUMS"]]
        self.control[:] = control
        self.lengths[:] = lengths

    @property
    def head(self) -> Acc:
        """Header and lengths: what the site-local stages start from."""
        return np.concatenate([self.header, self.lengths])

    @property
    def is_active(self) -> bool:
        """True while a group still moves."""
        return bool(self.control[:, Control.ACTIVE].any())


PROGRAMS = 16
"""Programs that shard groups keep: more than a search repeats in turn."""

_numbers = itertools.count(1)
"""Numbers of engines among ranks, each of which keeps a shard group by it."""


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
        dispatch: Dispatch = "auto",
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
        self._ranks, self._number = ranks, next(_numbers)
        if elsewhere is not None:
            ranks.everywhere(elsewhere, self._number)
            weakref.finalize(self, ranks.forget, self._number).atexit = False
        self._acc = np.dtype(np.float64 if specs[0].layout.fp64 else np.float32)
        suited = chunked_as or patterns.n_patterns
        chunk = max(spec.layout.chunk_blocks(suited) for spec in specs)
        options = ShardOptions(specs[0].layout.vw, chunk, length_bounds, dispatch, slots)
        self._blocks = Blocks.of(patterns, options.vw, chunk)
        self._reduction_lanes = share_out(
            self._blocks.chunks, [spec.share for spec in specs] * ranks.size
        )
        self._where = [
            patterns_of(lanes, self._blocks.chunk_of) for lanes in self._reduction_lanes if lanes
        ]
        self._resident, self._is_hopeful = Resident(), True
        self._programs: dict[int, tuple[int, Program]] = {}
        self._refs = itertools.count()
        self._statuses = self._open(options)

    def _open(self, options: ShardOptions) -> list[GroupStatus]:
        """Open every group on its shares of the patterns."""
        where = iter(self._where)
        shares = [
            self._share(next(where), n) if n else None for n in map(len, self._reduction_lanes)
        ]
        calls = [(rank_shares, options) for rank_shares in self._by_rank(shares)]
        statuses: list[GroupStatus] = self._ask_each(ShardGroup.open, calls)
        return statuses

    def _share(self, where: npt.NDArray[np.int64], reduction_lanes: int) -> ShardPatterns:
        has_all = len(where) == self._whole.n_patterns
        return ShardPatterns(self._whole if has_all else self._whole.take(where), reduction_lanes)

    def _by_rank(self, values: Sequence[Any]) -> list[list[Any]]:
        """Values of the devices of all ranks, rank by rank."""
        width = len(self._specs)
        return [list(values[n * width : (n + 1) * width]) for n in range(self._ranks.size)]

    def _ask(self, do: Callable[..., Any], *values: Any) -> list[Any]:
        """The answers of all groups to the same call."""
        return self._ask_each(do, [values] * self._ranks.size)

    def _ask_each(self, do: Callable[..., Any], values: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers of all groups to a call of their own each.

        Raises:
            MltreeError: the error of the first group that has one.
        """
        calls = [RemoteCall(do, arguments) for arguments in values]
        answers = self._ranks.gather(calls, self._group.answer, self._number)
        for answer in answers:
            if isinstance(answer, RemoteError):
                raise answer.error()
        return answers

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
        texts = [text for status in self._statuses for text in status.notices] + idle
        alike = Counter(texts) if self._ranks.size > 1 else dict.fromkeys(texts, 1)
        among = [f"{self._ranks.size} ranks share the patterns"] if self._ranks.size > 1 else []
        each = [f"{n} x {text}" if n > 1 else text for text, n in alike.items()]
        return "; ".join(among + each)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Layouts of this process's devices."""
        return tuple(shard.session.layout for shard in self._group.shards)

    @property
    def n_slices(self) -> int:
        """Slices of all devices."""
        return sum(sum(status.slices) for status in self._statuses)

    @property
    def room(self) -> Room:
        """The room on the device that has least; see :class:`mltree.program.engine.Engine`."""
        rooms = [room for status in self._statuses for room in status.rooms]
        return Room(*map(min, zip(*rooms, strict=True)))

    def longest_walk(self, trees: int) -> int:
        """As of a lone session on the first device, so that results have its bits."""
        session = self._group.shards[0].session
        return longest_walk(session.layout, session.device.max_compute_units, self._whole, trees)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        self._ask(ShardGroup.load_models, models)

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        self._ask_each(
            ShardGroup.load_weights,
            [([rows[:, where] for where in group],) for group in self._by_group(self._where)],
        )

    def _by_group(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        """Values of the shards of all groups, group by group."""
        ends = np.cumsum([0, *(len(status.slices) for status in self._statuses)])
        return [values[first:end] for first, end in pairwise(ends.tolist())]

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.program.engine.ReplicateEngine.load_patterns`."""
        parts = self._whole.parts[first_part : first_part + len(patterns.parts)]
        first = parts[0].start
        if [part.stop - first for part in parts] != [part.stop for part in patterns.parts]:
            raise ValueError("parts of other sizes")
        calls = []
        for shards in self._by_group(self._where):
            shares = []
            for where in shards:
                low, high = np.searchsorted(where, [first, first + patterns.n_patterns]).tolist()
                shares.append((low, patterns.take(where[low:high] - first)))
            calls.append((first_part, shares))
        self._ask_each(ShardGroup.load_patterns, calls)

    def close(self) -> None:
        """Free the CLAs, and what slices left."""
        self._resident = Resident()
        self._ask(ShardGroup.close)

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        lnl = np.empty((rows, self._whole.n_patterns))
        shards = itertools.chain.from_iterable(self._ask(ShardGroup.site_lnl, rows))
        for where, shard_lnl in zip(self._where, shards, strict=True):
            lnl[:, where] = shard_lnl
        return lnl

    def timings(self) -> dict[Function, float]:
        """Seconds per likelihood function on the device that took longest."""
        every: list[dict[Function, float]] = [
            timings for answer in self._ask(ShardGroup.timings) for timings in answer
        ]
        return max(every, key=lambda timings: sum(timings.values()))

    def breakdown(self) -> Breakdown:
        """Time on the device that took longest, and the work of all of them."""
        every = [breakdown for answer in self._ask(ShardGroup.breakdowns) for breakdown in answer]
        devices = tuple({spec.device.int_ptr: spec.device for spec in self._specs}.values())
        return replace(Breakdown.side_by_side(every), devices=devices)

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
            self._ask(ShardGroup.expect_less)
            raise error
        try:
            self._statuses = self._ask(ShardGroup.retreat, program.slots)
        except DeviceError as too_many:
            self._resident, self._statuses = Resident(), self._ask(ShardGroup.status)
            if program.slots <= 3 * (self._whole.n_tips - 2) + 1:
                raise too_many from error
            raise error from too_many

    def _run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        if program.slots > self.room.most:
            self._statuses = self._ask(ShardGroup.make_room, program.slots)
        state = HostState(self._acc, program, lengths, control)
        run = _Run(self, program, state)
        run.all_stages()
        self._resident.record(program, run.lengths_seen)
        return Result(
            sums=state.sums.astype(np.float64),
            lengths=state.lengths.astype(np.float64),
            control=state.control.astype(np.float64),
        )

    def needed(self, program: Program) -> list[Writer]:
        """Programs that must run before this one where slices take turns."""
        if max(max(status.slices, default=0) for status in self._statuses) == 1:
            return []
        return self._resident.needed(program)

    def sums(
        self, program: Program, words: Acc, lengths: int, writers: Sequence[Writer]
    ) -> list[Acc]:
        """The sums that a program without optimisers leaves behind on every shard of all ranks."""
        ref = self._ref(program)
        again = [Rerun(self._ref(writer.program), writer.lengths) for writer in writers]
        spent = self._spent(1 + len(writers))
        answers = self._ask(ShardGroup.run, ref, words, lengths, again, spent)
        return [sums for answer in answers for sums in answer]

    def _ref(self, program: Program) -> ProgramRef:
        """Reference to a program: with itself the first time, by its number from then on."""
        number, known = self._programs.pop(id(program), (next(self._refs), None))
        self._programs[id(program)] = number, program
        return ProgramRef(number, program if known is None else None)

    def _spent(self, used: int) -> list[int]:
        """Numbers of the programs that were spoken of longest ago, beyond those that are kept.

        ``used``: those spoken of just now, of which none is.
        """
        spent = []
        while len(self._programs) > max(PROGRAMS, used):
            number, _ = self._programs.pop(next(iter(self._programs)))
            spent.append(number)
        return spent

    def add_up(self, record: np.void, count: int, strided: Sequence[Acc]) -> Acc:
        """Whole sums from the strided sums of all shards."""
        widths = [len(lanes) for lanes in self._reduction_lanes if lanes]
        return whole_sums(record, count, strided, widths, self._blocks.part_chunk)

    def step(self, program: Program, at: int, state: HostState) -> None:
        """A step of every group, by the first device: the same code as in a lone session."""
        self._group.shards[0].session.advance(
            program, program.part(at, at + 1), state.words, len(state.lengths), len(state.control)
        )


class _Run:
    """One program on its way through the groups."""

    def __init__(self, engine: ShardedEngine, program: Program, state: HostState) -> None:
        self.lengths_seen: Float64 = state.lengths.astype(np.float64)
        """Lengths that the site-local stages ran with last."""
        self._engine, self._program, self._state = engine, program, state
        self._writers = engine.needed(program)

    def all_stages(self) -> None:
        """Run the stages in order, the repeats among them."""
        self._program.drive(self)

    def step(self, at: int) -> None:
        """Step every group of branch lengths."""
        self._engine.step(self._program, at, self._state)

    def is_active(self, groups: int) -> bool:  # noqa: ARG002
        """Return whether a group still moves."""
        return self._state.is_active

    def run(self, first: int, end: int) -> None:
        """Run the stages up to an optimiser on every slice."""
        state = self._state
        self.lengths_seen = state.lengths.astype(np.float64)
        part = self._program.part(first, end)
        strided = self._engine.sums(part, state.head, len(state.lengths), self._writers)
        for record, count in part.sum_records():
            start = int(record["sum"])
            state.sums[start : start + count] = self._engine.add_up(record, count, strided)
