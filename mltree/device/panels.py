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
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.alignment.patterns import Patterns
from mltree.contract import (
    CONTROL_WORDS,
    HEADER_WORDS,
    REDUCE_WIDTH,
    Control,
    Function,
)
from mltree.device.blocks import Blocks
from mltree.device.layout import Layout, longest_walk
from mltree.device.resident import Resident
from mltree.device.residues import ordered_sum, share_out
from mltree.device.seats import Place, Seat
from mltree.device.session import Dispatch
from mltree.device.timing import Breakdown
from mltree.errors import DeviceError, DeviceMemoryError
from mltree.launch import StateLayout
from mltree.likelihood.engine import NO_CONTROL, Result, Room
from mltree.likelihood.program import Program
from mltree.likelihood.stages import Optimise, Reduce, Rell, Repeat
from mltree.model.eigen import ModelArrays

__all__ = ["PanelEngine"]

Float64 = npt.NDArray[np.float64]
Acc = npt.NDArray[Any]


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
        chunked_as: int = 0,
    ) -> None:
        """``slots``: CLAs to make room for at first; more panels are made where more is asked.

        ``chunked_as``: patterns that chunks suit, if not these.
        """
        self._whole = patterns
        self.parts = len(patterns.parts)
        vw = places[0].layout.vw
        chunk = max(
            place.layout.chunk_blocks(chunked_as or patterns.n_patterns) for place in places
        )
        self._blocks = Blocks.of(patterns, vw, chunk)
        residues = share_out(self._blocks.chunks, [place.share for place in places])
        self._seats = [
            Seat(place, patterns, own, self._blocks, chunk, length_bounds, dispatch, slots)
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
        return longest_walk(session.layout, session.device.max_compute_units, self._whole, trees)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        for seat in self._seats:
            seat.session.load_models(models)

    def load_weights(self, rows: Float64) -> None:
        """Take rows of weights f64[R, L]."""
        for seat in self._seats:
            seat.load_weights(rows[:, seat.where])

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.likelihood.engine.BerthEngine.load_patterns`."""
        own = self._whole.parts[first_part : first_part + len(patterns.parts)]
        first = own[0].start
        if [part.stop - first for part in own] != [part.stop for part in patterns.parts]:
            raise ValueError("parts of other sizes")
        for seat in self._seats:
            seat.load_patterns(first_part, patterns, first)

    def close(self) -> None:
        """Free the CLAs, and what panels left."""
        self._resident = Resident()
        for seat in self._seats:
            seat.session.close()

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        lnl = np.empty((rows, self._whole.n_patterns))
        for seat in self._seats:
            lnl[:, seat.where] = seat.site_lnl(rows)
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
        run = _Run(self._seats, self._blocks, self._resident, program, state)
        run.all_stages()
        self._resident.record(program, run.lengths_seen)
        return Result(
            sums=state.sums.astype(np.float64),
            lengths=state.lengths.astype(np.float64),
            control=state.control.astype(np.float64),
        )


class _State:
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
        """Whether a group still moves."""
        return bool(self.control[:, Control.ACTIVE].any())


class _Run:
    """One program on its way through the panels."""

    def __init__(
        self,
        seats: list[Seat],
        blocks: Blocks,
        resident: Resident,
        program: Program,
        state: _State,
    ) -> None:
        self.state = state
        self._blocks = blocks
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
        found = self._side_by_side(self._program.part(at, end))
        for stage in stages[at:end]:
            match stage:
                case Reduce(records):
                    counts = records["count"]
                case Rell(records):
                    counts = records["rows"] * records["weights"]
                case _:
                    continue
            for record, count in zip(records, counts.tolist(), strict=True):
                self._add_up(record, count, found)
        return end

    def _side_by_side(self, part: Program) -> list[Acc]:
        """The sums that a part leaves behind on each seat once all its panels had their turn."""
        n = len(self.state.lengths)
        words = [self.state.head] * len(self._seats)
        for turn in range(self._turns):
            here = [i for i, seat in enumerate(self._seats) if turn < len(seat.panels)]
            self._turn_to(turn, [self._seats[i] for i in here])
            for i in here:
                self._seats[i].session.send(part, words[i], n)
            for i in here:  # only then: no device waits for another's answer to be asked for
                self._seats[i].session.ask(part, n)
            for i in here:  # the next panel goes on from these words
                words[i] = self._seats[i].session.receive(part, n)
        return [own[HEADER_WORDS + n :] for own in words]

    def _turn_to(self, turn: int, seats: list[Seat]) -> None:
        """Work on other panels, and have their CLAs written where they are not there any more."""
        for seat in seats:
            seat.turn_to(seat.panels[turn])
        for writer in self._writers:
            sessions = [seat.session for seat in seats if len(seat.panels) > 1]
            for session in sessions:
                session.start(writer.program, writer.lengths, NO_CONTROL)
                session.ask(writer.program, len(writer.lengths))
            for session in sessions:  # raises what went wrong
                session.receive(writer.program, len(writer.lengths))

    def _add_up(self, record: np.void, count: int, found: list[Acc]) -> None:
        """Whole sums from the strided sums of all seats, whose residues follow one another.

        A lone session begins with the residue of the first chunk of the record's parts.
        """
        first, end = int(record["sum"]), int(record["sum"]) + count
        strided = [
            sums[seat.residues * first : seat.residues * end].reshape(-1, count)
            for seat, sums in zip(self._seats, found, strict=True)
        ]
        first_chunk = int(self._blocks.part_chunk[record["first_part"]])
        in_order = np.roll(np.concatenate(strided), -(first_chunk % REDUCE_WIDTH), axis=0)
        self.state.sums[first:end] = ordered_sum(in_order)

    def _optimise(self, at: int) -> None:
        """A step of every group, by the first device: the same code as in a lone session."""
        state = self.state
        self._seats[0].session.advance(
            self._program, self._program.part(at, at + 1), state.words, len(state.lengths),
            len(state.control),
        )  # fmt: skip
