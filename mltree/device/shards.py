"""Stations: what one process computes of an alignment that is shared out, on its devices.

An engine over panels (:mod:`mltree.device.panels`) speaks to stations alone: to its own process's
and to those of other ranks, in orders that can be sent and answers that can be sent back.
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

# Seats: a device each, with the patterns that it has of an alignment, in one panel or several.

GROWTH = 2
"""CLA slots for which room is made, over those that a program asks for: the next asks for more."""


class Place(Value):
    """A device that takes part, and how."""

    device: cl.Device
    layout: Layout
    share: float = 1.0
    """Of the patterns, relative to the other devices' shares."""
    memory_limit: int | None = None
    """Bytes that CLAs may take; the device's own limits where None."""


class Rules(NamedTuple):
    """What all seats of an alignment have in common."""

    vw: int
    chunk_blocks: int
    length_bounds: tuple[float, float]
    dispatch: Dispatch
    slots: int
    """CLAs to make room for at first."""


class Panel(NamedTuple):
    """Patterns of a seat that are computed together."""

    patterns: Patterns
    where: slice
    """Among the seat's."""
    first_chunk: int
    """Likewise."""


class Seat:
    """One device with the patterns of its residues, in one panel or several that take turns."""

    def __init__(self, place: Place, patterns: Patterns, residues: int, rules: Rules) -> None:
        """``patterns``: those of so many residues."""
        self.residues = residues
        self._patterns = patterns
        self._chunk_blocks = rules.chunk_blocks
        self._blocks = Blocks.of(patterns, rules.vw, rules.chunk_blocks)
        self._weights: Weights = self._patterns.weights[None]
        self._layout = place.layout
        self._limit = cla_memory(place.device, place.memory_limit)
        self.panels = self._split(rules.slots, place.device.name.strip())
        self.session = Session(
            place.device, self.panels[0].patterns, place.layout, rules.length_bounds,
            rules.dispatch,
            memory_limit=self._limit, chunk_blocks=rules.chunk_blocks, slots=rules.slots,
            residues=residues,
        )  # fmt: skip

    @property
    def fit(self) -> int:
        """CLA slots that fit for the largest panel, which is the first."""
        return self._limit // self._layout.cla_bytes(self.panels[0].patterns.n_patterns)

    @property
    def notice(self) -> str:
        """What the device takes, and why in several panels."""
        patterns = f"{self.session.device.name.strip()} takes {self._patterns.n_patterns} patterns"
        if len(self.panels) == 1:
            return patterns
        return (
            f"{patterns} in {len(self.panels)} panels, one after the other: its memory for CLAs is "
            f"{self._limit / 2**20:.0f} MiB"
        )

    def make_room(self, slots: int) -> None:
        """Make smaller panels where so many CLAs of one do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        if slots <= self.fit:
            return
        try:
            self.panels = self._split(GROWTH * slots, self.session.name)
        except DeviceError:
            self.panels = self._split(slots, self.session.name)
        self.turn_to(self.panels[0])
        self.expect_less()
        if self._weights.shape[0] > 1:
            self.load_weights(self._weights)

    def expect_less(self) -> None:
        """Free all CLAs, and make room for no more of them than are asked for."""
        self.session.close()
        self.session.expected_slots = 0

    def retreat(self, slots: int) -> None:
        """Make smaller panels, for so many CLAs of those that there are do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        self.session.close()
        self._limit = (
            max(1, slots) * self._layout.cla_bytes(self.panels[0].patterns.n_patterns) // 2
        )
        self.make_room(max(slots, self.fit + 1))

    def _split(self, slots: int, name: str) -> list[Panel]:
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
        panels = -(-blocks.chunks // fit)
        ends = [-(-n * blocks.chunks // panels) for n in range(panels + 1)]
        # A pattern's chunk rises with its number, so that a panel's follow one another.
        patterns = np.searchsorted(blocks.chunk_of, ends)
        return [
            Panel(self._patterns.take(np.arange(*span)), slice(*span), first)
            for span, first in zip(pairwise(patterns.tolist()), ends, strict=False)
        ]

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, patterns]."""
        self._weights = rows
        for panel in self.panels:
            self.turn_to(panel)
            self.session.load_weights(rows[:, panel.where])

    def load_patterns(self, first_part: int, patterns: Patterns, first: int) -> None:
        """Take these for those of as many parts; ``first``: of those, among all of the seat's."""
        self._patterns.put(first, patterns)
        end = first + patterns.n_patterns
        for panel in self.panels:
            start, stop = max(first, panel.where.start), min(end, panel.where.stop)
            if start < stop:
                some = patterns.take(np.arange(start - first, stop - first))
                panel.patterns.put(start - panel.where.start, some)
                self.turn_to(panel)
                self.session.load_patterns(first_part, some)

    def turn_to(self, panel: Panel) -> None:
        """Work on a panel."""
        self.session.turn_to(panel.patterns, panel.first_chunk)

    def site_lnl(self, rows: int) -> Float64:
        """f64[rows, patterns] of all panels."""
        found = []
        for panel in self.panels:
            self.turn_to(panel)
            found.append(self.session.site_log_likelihoods(rows))
        return np.concatenate(found, axis=1)


Acc = npt.NDArray[Any]


class Share(NamedTuple):
    """What a seat gets of an alignment."""

    patterns: Patterns
    residues: int


class Held(NamedTuple):
    """A program that stations keep, by a number."""

    number: int
    program: Program | None
    """The first time that it is spoken of."""


class Again(NamedTuple):
    """A program that panels which take turns run again, on f64[lengths], for its CLAs are gone."""

    program: Held
    lengths: Float64


class Standing(NamedTuple):
    """How a station's seats stand, in order."""

    rooms: tuple[Room, ...]
    panels: tuple[int, ...]
    """That each has."""
    notices: tuple[str, ...]


class Order(NamedTuple):
    """A method of :class:`Station`, and what to call it with."""

    do: Callable[..., Any]
    values: tuple[Any, ...] = ()


class Refusal(NamedTuple):
    """Why nothing came of an order."""

    kind: type[MltreeError]
    message: str
    hint: str | None

    def error(self) -> MltreeError:
        """What was raised there."""
        return self.kind(self.message, hint=self.hint)


Answer: TypeAlias = Callable[[Order], Any]
"""A station's :meth:`Station.answer`."""


class Station:
    """The devices of a process, each in a seat of its own."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        self.seats: list[Seat] = []
        self._programs: dict[int, Program] = {}

    def answer(self, order: Order) -> Any:
        """What comes of an order, or a :class:`Refusal`."""
        try:
            return order.do(self, *order.values)
        except MltreeError as error:
            return Refusal(type(error), error.message, error.hint)

    def open(self, shares: Sequence[Share | None], rules: Rules) -> Standing:
        """Take a seat with every device that gets a share.

        Raises:
            DeviceError: a device cannot be used.
        """
        self.seats = [
            Seat(place, *share, rules)
            for place, share in zip(self.places, shares, strict=True)
            if share is not None
        ]
        return self.standing()

    def standing(self) -> Standing:
        """How the seats stand."""
        return Standing(
            tuple(seat.session.room._replace(most=seat.fit) for seat in self.seats),
            tuple(len(seat.panels) for seat in self.seats),
            tuple(seat.notice for seat in self.seats),
        )

    def make_room(self, slots: int) -> Standing:
        """Have room for so many CLAs of every panel; see :meth:`Seat.make_room`."""
        for seat in self.seats:
            seat.make_room(slots)
        return self.standing()

    def expect_less(self) -> None:
        """Make room for no more CLAs than are asked for; see :meth:`Seat.expect_less`."""
        for seat in self.seats:
            seat.expect_less()

    def retreat(self, slots: int) -> Standing:
        """Make smaller panels; see :meth:`Seat.retreat`."""
        for seat in self.seats:
            seat.retreat(slots)
        return self.standing()

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        for seat in self.seats:
            seat.session.load_models(models)

    def load_weights(self, rows: Sequence[Weights]) -> None:
        """Take rows of weights [R, patterns], of every seat's patterns."""
        for seat, own in zip(self.seats, rows, strict=True):
            seat.load_weights(own)

    def load_patterns(self, first_part: int, shares: Sequence[tuple[int, Patterns]]) -> None:
        """Take other patterns for those of some parts; see :meth:`Seat.load_patterns`."""
        for seat, (first, patterns) in zip(self.seats, shares, strict=True):
            seat.load_patterns(first_part, patterns, first)

    def close(self) -> None:
        """Free the CLAs, and what panels left."""
        for seat in self.seats:
            seat.session.close()

    def site_lnl(self, rows: int) -> list[Float64]:
        """f64[rows, patterns] of the last EVALUATE_SITES, of every seat's patterns."""
        return [seat.site_lnl(rows) for seat in self.seats]

    def run(
        self,
        program: Held,
        words: Acc,
        lengths: int,
        again: Sequence[Again],
        spent: Sequence[int],
    ) -> list[Acc]:
        """The sums that a program without optimisers leaves behind on every seat, all panels done.

        words  acc[words]: what it starts from, its header and so many lengths
        again  what panels that take turns run before it
        spent  numbers of programs that will not be spoken of any more
        """
        part = self._known(program)
        writers = [(self._known(one.program), one.lengths) for one in again]
        for number in spent:
            del self._programs[number]
        states = [words] * len(self.seats)
        for turn in range(max((len(seat.panels) for seat in self.seats), default=0)):
            here = [i for i, seat in enumerate(self.seats) if turn < len(seat.panels)]
            self._turn_to(turn, [self.seats[i] for i in here], writers)
            for i in here:
                self.seats[i].session.send(part, states[i], lengths)
            for i in here:  # only then: no device waits for another's answer to be asked for
                self.seats[i].session.ask(part, lengths)
            for i in here:  # the next panel goes on from these words
                states[i] = self.seats[i].session.receive(part, lengths)
        return [own[HEADER_WORDS + lengths :] for own in states]

    def _known(self, held: Held) -> Program:
        if held.program is not None:
            self._programs[held.number] = held.program
        return self._programs[held.number]

    def _turn_to(
        self, turn: int, seats: Sequence[Seat], writers: Sequence[tuple[Program, Float64]]
    ) -> None:
        """Work on other panels, and have their CLAs written where they are not there any more."""
        for seat in seats:
            seat.turn_to(seat.panels[turn])
        for program, lengths in writers:
            sessions = [seat.session for seat in seats if len(seat.panels) > 1]
            for session in sessions:
                session.start(program, lengths, NO_CONTROL)
                session.ask(program, len(lengths))
            for session in sessions:  # raises what went wrong
                session.receive(program, len(lengths))

    def timings(self) -> list[dict[Function, float]]:
        """Seconds per likelihood function, of every seat."""
        return [seat.session.timings() for seat in self.seats]

    def breakdowns(self) -> list[Breakdown]:
        """Where the time went, of every seat; its device is this process's own."""
        return [replace(seat.session.breakdown(), devices=()) for seat in self.seats]


def places_on(
    devices: Sequence[DeviceInfo],
    layouts: Sequence[Layout],
    memory_limit: int | None,
    speeds: Sequence[float],
) -> list[Place]:
    """Where devices take part; ``memory_limit``: bytes that CLAs may take on each, all ranks'."""
    return [
        Place(info.handle, layout, speed, limit_on(info, memory_limit))
        for info, layout, speed in zip(devices, layouts, speeds, strict=True)
    ]


def elsewhere(
    wanted: str | None, names: Sequence[str], layouts: Sequence[Layout], memory_limit: int | None
) -> Answer:
    """What answers for another rank, on the devices that are wanted there.

    Raises:
        InputError: they are not those of these names, which the first rank has.
        DeviceError: they cannot be used.
    """
    devices = choose_devices(wanted)
    if [info.name for info in devices] != list(names):
        raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
    return Station(places_on(devices, layouts, memory_limit, [1.0] * len(devices))).answer
