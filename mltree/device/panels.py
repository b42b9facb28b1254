"""Site panels: one alignment on several devices, or larger than a device's memory.

Patterns are independent until their sums, so each device runs every site-local part of a program,
and its sums, by itself. It has every chunk of its residues (:mod:`mltree.device.residues`), whose
strided sums, put side by side and added in order, are a lone session's to the bit. Optimisers step
on the first device, by the same code on the same numbers.

A device whose share of the patterns does not fit takes it panel by panel through one CLA pool.
Each panel goes on from the sums of the one before, and computes anew the CLAs that a program
expects (:mod:`mltree.device.resident`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.alignment.patterns import Patterns
from mltree.contract import CONTROL_WORDS, HEADER_WORDS, Control, Function
from mltree.device.layout import Layout
from mltree.device.memory import cla_memory
from mltree.device.resident import Resident
from mltree.device.residues import ordered_sum, patterns_of, share_out
from mltree.device.session import Dispatch, Session, longest_walk
from mltree.device.timing import Breakdown
from mltree.errors import DeviceError, DeviceMemoryError
from mltree.likelihood.engine import NO_CONTROL, Result, Room
from mltree.likelihood.program import Optimise, Program, Reduce, Repeat

__all__ = ["PanelEngine", "Place"]

Float64 = npt.NDArray[np.float64]
Acc = npt.NDArray[Any]

GROWTH = 2
"""CLA slots for which room is made, over those that a program asks for: the next asks for more."""


@dataclass(frozen=True)
class Place:
    """A device that takes part, and how."""

    device: cl.Device
    layout: Layout
    share: float = 1.0
    """Of the patterns, relative to the other devices' shares."""
    memory_limit: int | None = None
    """Bytes that CLAs may take; the device's own limits where None."""


class PanelEngine:
    """Implements :class:`mltree.likelihood.engine.Engine` over panels of an alignment.

    Its layouts must have one VW, and be GPUs' or CPUs', for results to have the bits of a lone
    session.
    """

    def __init__(
        self,
        patterns: Patterns,
        places: Sequence[Place],
        length_bounds: tuple[float, float],
        slots: int,
        dispatch: Dispatch = "auto",
    ) -> None:
        """``slots``: CLAs to make room for at first; more panels are made where more is asked."""
        self._whole = patterns
        whole = patterns.n_patterns
        chunk = max(place.layout.chunk_blocks(whole) * place.layout.vw for place in places)
        residues = share_out(-(-whole // chunk), [place.share for place in places])
        self._seats = [
            _Seat(place, patterns, own, chunk, length_bounds, dispatch, slots)
            for place, own in zip(places, residues, strict=True)
            if own
        ]
        self._idle = [place for place, own in zip(places, residues, strict=True) if not own]
        self._places = tuple(places)
        self._resident = Resident()
        self._acc = np.dtype(np.float64 if self.layouts[0].fp64 else np.float32)

    @property
    def name(self) -> str:
        """The devices, whatever the shares that they have: results do not depend on those."""
        return "; ".join(f"{place.device.name.strip()}, {place.layout}" for place in self._places)

    @property
    def notice(self) -> str:
        """How many panels there are, and why."""
        idle = [f"{place.device.name.strip()} takes none" for place in self._idle]
        return "; ".join([*(seat.notice for seat in self._seats), *idle])

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The devices' layouts."""
        return tuple(seat.session.layout for seat in self._seats)

    @property
    def n_panels(self) -> int:
        """Panels of all devices."""
        return sum(len(seat.panels) for seat in self._seats)

    @property
    def room(self) -> Room:
        """Of the device that has least; see :class:`mltree.likelihood.engine.Engine`."""
        rooms = [seat.session.room._replace(most=seat.fit) for seat in self._seats]
        return Room(*map(min, zip(*rooms, strict=True)))

    def longest_walk(self, trees: int) -> int:
        """As of a lone session on the first device, so that results have its bits."""
        session = self._seats[0].session
        return longest_walk(session.layout, session.device, self._whole, trees)

    def load_models(self, rows: Float64) -> None:
        """Take model rows f64[M, words]."""
        for seat in self._seats:
            seat.session.load_models(rows)

    def site_log_likelihoods(self) -> Float64:
        """f64[L] of the last EVALUATE_SITES."""
        lnl = np.empty(self._whole.n_patterns)
        for seat in self._seats:
            lnl[seat.where] = seat.site_lnl()
        return lnl

    def timings(self) -> dict[Function, float]:
        """Seconds per likelihood function on the device that took longest."""
        all_timings = [seat.session.timings() for seat in self._seats]
        return max(all_timings, key=lambda timings: sum(timings.values()))

    def breakdown(self) -> Breakdown:
        """Where the time went, on the device that took longest, and the work of all of them."""
        return Breakdown.side_by_side([seat.session.breakdown() for seat in self._seats])

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.likelihood.engine.Engine`.

        A device that has no room for its panels gets smaller ones, and all begin anew.
        """
        try:
            return self._run(program, lengths, control)
        except DeviceMemoryError as error:
            self._retreat(program, error)
        return self.run(program, lengths, control)

    def _retreat(self, program: Program, error: DeviceMemoryError) -> None:
        """Make smaller panels, or count on fewer slots where these are too many for any."""
        try:
            for seat in self._seats:
                seat.retreat(program.slots)
        except DeviceError as too_many:
            self._resident = Resident()
            if program.slots <= 3 * (self._whole.n_tips - 2) + 1:
                raise too_many from error
            raise error from too_many

    def _run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        for seat in self._seats:
            seat.make_room(program.slots)
        state = _State(self._acc, program, lengths, control)
        run = _Run(self._seats, self._resident, program, state)
        run.all_stages()
        self._resident.record(program, run.lengths_seen)
        return Result(
            sums=state.sums.astype(np.float64),
            lengths=state.lengths.astype(np.float64),
            control=state.control.astype(np.float64),
        )


class _Panel(NamedTuple):
    """Patterns of a seat that are computed together."""

    patterns: Patterns
    first_chunk: int
    """Among the seat's."""


class _Seat:
    """One device with the patterns of its residues, in one panel or several that take turns."""

    def __init__(
        self,
        place: Place,
        patterns: Patterns,
        residues: range,
        chunk: int,
        length_bounds: tuple[float, float],
        dispatch: Dispatch,
        slots: int,
    ) -> None:
        self.residues = len(residues)
        self.where = patterns_of(residues, chunk, patterns.n_patterns)
        """int64[patterns]: its patterns among the whole alignment's."""
        has_all = len(self.where) == patterns.n_patterns
        self._patterns = patterns if has_all else _columns(patterns, self.where)
        self._chunk = chunk
        self._layout = place.layout
        self._limit = place.memory_limit or cla_memory(place.device)
        self.panels = self._split(slots, place.device.name.strip())
        self.session = Session(
            place.device, self.panels[0].patterns, place.layout, length_bounds, dispatch,
            memory_limit=self._limit, chunk_blocks=chunk // place.layout.vw,
        )  # fmt: skip

    @property
    def fit(self) -> int:
        """CLA slots that fit for the largest panel, which is the first."""
        return self._limit // self._layout.cla_bytes(self.panels[0].patterns.n_patterns)

    @property
    def notice(self) -> str:
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
        self.session.turn_to(*self.panels[0])
        self.session.forget_panels()

    def retreat(self, slots: int) -> None:
        """Make smaller panels, for so many CLAs of those that there are do not fit.

        Raises:
            DeviceError: they do not fit for a single chunk.
        """
        self._limit = (
            max(1, slots) * self._layout.cla_bytes(self.panels[0].patterns.n_patterns) // 2
        )
        self.make_room(max(slots, self.fit + 1))

    def _split(self, slots: int, name: str) -> list[_Panel]:
        whole = self._patterns.n_patterns
        chunks = -(-whole // self._chunk)
        least = max(1, slots) * self._layout.cla_bytes(min(self._chunk, whole))
        fit = self._limit // least
        if fit == 0:
            raise DeviceError(
                f"{name}: {slots} CLAs of {self._chunk} patterns do not fit into "
                f"{self._limit / 2**20:.1f} MiB",
                hint=f"give --memory-limit {-(-least // 2**20)}M or more, or fewer starting trees",
            )
        panels = -(-chunks // fit)
        ends = [-(-n * chunks // panels) for n in range(panels + 1)]
        return [
            _Panel(_columns(self._patterns, slice(first * self._chunk, last * self._chunk)), first)
            for first, last in pairwise(ends)
        ]

    def site_lnl(self) -> Float64:
        """f64[patterns] of all panels."""
        found = []
        for panel in self.panels:
            self.session.turn_to(*panel)
            found.append(self.session.site_log_likelihoods())
        return np.concatenate(found)


class _State:
    """A program's numbers on the host, as they lie in a session's buffer (``session.h``)."""

    def __init__(self, acc: np.dtype[Any], program: Program, lengths: Float64, control: Float64):
        n, words = len(lengths), HEADER_WORDS + control.size
        self.words: Acc = np.zeros(3 * n + words + program.cells, acc)
        self.control = self.words[2 * n + HEADER_WORDS : 2 * n + words].reshape(-1, CONTROL_WORDS)
        self.lengths = self.words[2 * n + words : 3 * n + words]
        self.sums = self.words[3 * n + words :]
        self.control[:] = control
        self.lengths[:] = lengths

    @property
    def head(self) -> Acc:
        """Header and lengths: what the site-local stages start from."""
        n = len(self.lengths)
        return np.concatenate([self.words[2 * n : 2 * n + HEADER_WORDS], self.lengths])

    @property
    def is_active(self) -> bool:
        """Whether a group still moves."""
        return bool(self.control[:, Control.ACTIVE].any())


class _Run:
    """One program on its way through the panels."""

    def __init__(
        self, seats: list[_Seat], resident: Resident, program: Program, state: _State
    ) -> None:
        self.state = state
        self.lengths_seen: Float64 = state.lengths.astype(np.float64)
        """That the site-local stages ran with last."""
        self._seats = seats
        self._program = program
        self._turns = max(len(seat.panels) for seat in seats)
        self._writers = resident.needed(program) if self._turns > 1 else []

    def all_stages(self) -> None:
        """Run the stages in order, the repeats among them."""
        stages = self._program.stages
        at = repeats = 0
        while at < len(stages):
            match stages[at]:
                case Optimise():
                    self._optimise(at)
                    at += 1
                case Repeat(to, times, _):
                    again = repeats < times and self.state.is_active
                    repeats += again
                    at = to if again else at + 1
                case _:
                    at = self._sites(at)

    def _sites(self, at: int) -> int:
        """Run the stages from ``at`` on up to an optimiser on every panel; returns that stage."""
        stages = self._program.stages
        end = at
        while end < len(stages) and not isinstance(stages[end], Optimise | Repeat):
            end += 1
        self.lengths_seen = self.state.lengths.astype(np.float64)
        found = self._side_by_side(
            [self._program.part(at, end, seat.residues) for seat in self._seats]
        )
        for stage in stages[at:end]:
            if isinstance(stage, Reduce):
                self._add_up(stage, found)
        return end

    def _side_by_side(self, parts: list[Program]) -> list[Acc]:
        """The sums that each seat's part leaves behind once all its panels had their turn."""
        n = len(self.state.lengths)
        words = [self.state.head] * len(parts)
        for turn in range(self._turns):
            here = [i for i, seat in enumerate(self._seats) if turn < len(seat.panels)]
            self._turn_to(turn, [self._seats[i] for i in here])
            for i in here:
                self._seats[i].session.send(parts[i], words[i], n)
            for i in here:  # only then: no device waits for another's answer to be asked for
                self._seats[i].session.ask(parts[i], n)
            for i in here:  # the next panel goes on from these words
                words[i] = self._seats[i].session.receive(parts[i], n)
        return [own[HEADER_WORDS + n :] for own in words]

    def _turn_to(self, turn: int, seats: list[_Seat]) -> None:
        """Work on other panels, and have their CLAs written where they are not there any more."""
        for seat in seats:
            seat.session.turn_to(*seat.panels[turn])
        for writer in self._writers:
            sessions = [seat.session for seat in seats if len(seat.panels) > 1]
            for session in sessions:
                session.start(writer.program, writer.lengths, NO_CONTROL)
                session.ask(writer.program, len(writer.lengths))
            for session in sessions:  # raises what went wrong
                session.receive(writer.program, len(writer.lengths))

    def _add_up(self, stage: Reduce, found: list[Acc]) -> None:
        """Whole sums from the strided sums of all seats, whose residues follow one another."""
        first, end = stage.first, stage.first + stage.count
        strided = [
            sums[seat.residues * first : seat.residues * end]
            for seat, sums in zip(self._seats, found, strict=True)
        ]
        self.state.sums[first:end] = ordered_sum(np.concatenate(strided).reshape(-1, stage.count))

    def _optimise(self, at: int) -> None:
        """A step of every group, by the first device: the same code as in a lone session."""
        state = self.state
        self._seats[0].session.advance(
            self._program, self._program.part(at, at + 1), state.words, len(state.lengths),
            len(state.control),
        )  # fmt: skip


def _columns(patterns: Patterns, which: slice | npt.NDArray[np.int64]) -> Patterns:
    """Some of the patterns."""
    return replace(patterns, codes=patterns.codes[:, which], weights=patterns.weights[which])
