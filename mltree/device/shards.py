"""Shards: the patterns that each device of a process computes of an alignment that is shared out.

The engine (:mod:`mltree.device.sharded_engine`) speaks to groups of shards alone: to that of its
process and to those of other ranks, in calls that can be sent and answers that can be sent back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.data.patterns import Patterns
from mltree.device.discovery import DeviceInfo, choose_devices
from mltree.device.layout import Blocks, Layout
from mltree.device.memory import cla_memory, limit_on
from mltree.device.session import Session
from mltree.device.timing import Breakdown
from mltree.device.worker import Dispatch
from mltree.models.eigen import ModelArrays
from mltree.program.contract import HEADER_WORDS, Function
from mltree.program.engine import NO_CONTROL, Room, Weights
from mltree.program.program import Program
from mltree.system.arrays import Float64
from mltree.system.errors import DeviceError, InputError, MltreeError
from mltree.system.ranks import ALIKE_HINT
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
