"""Site panels: one alignment on several devices, or larger than a device's memory.

Patterns are independent until their sums, so each panel of patterns runs every site-local part
of a program by itself. Panels are whole chunks of the whole alignment: their partial sums, joined
in chunk order and added as ``opencl/optimise.h`` adds them, are a lone session's to the bit.
Optimisers step on the first device, by the same code on the same numbers.

A device whose share of the patterns does not fit takes it panel by panel through one CLA pool,
and computes anew, for each panel, the CLAs that a program expects (:mod:`mltree.device.resident`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.alignment.patterns import Patterns
from mltree.contract import CONTROL_WORDS, HEADER_WORDS, REDUCE_WIDTH, Control, Function
from mltree.device.layout import Layout
from mltree.device.memory import cla_memory
from mltree.device.resident import Resident
from mltree.device.session import Dispatch, Session, pays_to_walk
from mltree.device.timing import Breakdown
from mltree.errors import DeviceError, NumericalError
from mltree.likelihood.engine import NO_CONTROL, Result
from mltree.likelihood.program import (
    Optimise,
    PMatrices,
    Program,
    Reduce,
    Repeat,
    Scan,
    Sites,
    Tripods,
    Walk,
)

__all__ = ["PanelEngine", "Place", "ordered_sum"]

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

    Its layouts must have one VW for results to have the bits of a lone session.
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
        whole = self._n_patterns = patterns.n_patterns
        chunk = max(place.layout.chunk_blocks(whole) * place.layout.vw for place in places)
        ends = _shared_out(-(-whole // chunk), [place.share for place in places])
        self._seats = [
            _Seat(place, _columns(patterns, first * chunk, last * chunk), chunk, length_bounds,
                  dispatch, slots)
            for place, first, last in zip(places, ends[:-1], ends[1:], strict=True)
            if last > first
        ]  # fmt: skip
        self._resident = Resident()
        self._acc = np.dtype(np.float64 if places[0].layout.fp64 else np.float32)

    @property
    def name(self) -> str:
        """The devices and how many panels each has."""
        return "; ".join(seat.name for seat in self._seats)

    @property
    def notice(self) -> str:
        """How many panels there are, and why."""
        return "; ".join(seat.notice for seat in self._seats)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The devices' layouts."""
        return tuple(seat.session.layout for seat in self._seats)

    @property
    def n_panels(self) -> int:
        """Panels of all devices."""
        return sum(len(seat.panels) for seat in self._seats)

    @property
    def max_slots(self) -> int:
        """CLA slots that fit beside one another; see :class:`mltree.likelihood.engine.Engine`."""
        return min(seat.room for seat in self._seats)

    def walks(self, trees: int) -> bool:
        """As a lone session on the first device would, so that results have its bits."""
        session = self._seats[0].session
        return pays_to_walk(session.layout, session.device, trees, self._n_patterns)

    def load_models(self, rows: Float64) -> None:
        """Take model rows f64[M, words]."""
        for seat in self._seats:
            seat.session.load_models(rows)

    def site_log_likelihoods(self) -> Float64:
        """f64[L] of the last EVALUATE_SITES."""
        return np.concatenate([part for seat in self._seats for part in seat.site_lnl()])

    def timings(self) -> dict[Function, float]:
        """Seconds per likelihood function on the device that took longest."""
        all_timings = [seat.session.timings() for seat in self._seats]
        return max(all_timings, key=lambda timings: sum(timings.values()))

    def breakdown(self) -> Breakdown:
        """Where the time went, on the device that took longest, and the work of all of them."""
        return Breakdown.side_by_side([seat.session.breakdown() for seat in self._seats])

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.likelihood.engine.Engine`."""
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


class _Seat:
    """One device with its share of the patterns, in one panel or several that take turns."""

    def __init__(
        self,
        place: Place,
        patterns: Patterns,
        chunk: int,
        length_bounds: tuple[float, float],
        dispatch: Dispatch,
        slots: int,
    ) -> None:
        self._patterns = patterns
        self._chunk = chunk
        self._layout = place.layout
        self._limit = place.memory_limit or cla_memory(place.device)
        self.panels = self._split(slots, place.device.name.strip())
        self.session = Session(
            place.device, self.panels[0], place.layout, length_bounds, dispatch,
            memory_limit=self._limit, chunk_blocks=chunk // place.layout.vw,
        )  # fmt: skip

    @property
    def room(self) -> int:
        """CLA slots that fit for the largest panel, which is the first."""
        return self._limit // self._layout.cla_bytes(self.panels[0].n_patterns)

    @property
    def name(self) -> str:
        panels = f", {len(self.panels)} panels" if len(self.panels) > 1 else ""
        return f"{self.session.name}{panels}"

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
        if slots <= self.room:
            return
        try:
            self.panels = self._split(GROWTH * slots, self.session.name)
        except DeviceError:
            self.panels = self._split(slots, self.session.name)
        self.session.turn_to(self.panels[0])
        self.session.forget_panels()

    def _split(self, slots: int, name: str) -> list[Patterns]:
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
        ends = _shared_out(chunks, [1.0] * -(-chunks // fit))
        return [
            _columns(self._patterns, first * self._chunk, last * self._chunk)
            for first, last in pairwise(ends)
        ]

    def site_lnl(self) -> list[Float64]:
        """f64[patterns] of every panel."""
        found = []
        for panel in self.panels:
            self.session.turn_to(panel)
            found.append(self.session.site_log_likelihoods())
        return found


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
        self._seats = seats
        self._program = program
        self._sums = _StridedSums(0, state.words.dtype)
        self._parts: dict[int, Program] = {}
        streamed = any(len(seat.panels) > 1 for seat in seats)
        self._before = resident.needed(program) if streamed else []

    def all_stages(self) -> None:
        """Run the stages in order, the repeats among them."""
        stages = self._program.stages
        at = repeats = 0
        while at < len(stages):
            match stages[at]:
                case PMatrices() | Sites() | Scan() | Tripods() | Walk():
                    at = self._sites(at)
                    continue
                case Reduce(first, count):
                    self._reduce(slice(first, first + count), at)
                case Optimise():
                    self._optimise(at)
                case Repeat(to, times, _) if repeats < times and self.state.is_active:
                    repeats += 1
                    at = to
                    continue
            at += 1

    def _sites(self, at: int) -> int:
        """Run the site-local stages from ``at`` on every panel; returns the stage after them."""
        stages = self._program.stages
        end = at
        while end < len(stages) and isinstance(
            stages[end], PMatrices | Sites | Scan | Tripods | Walk
        ):
            end += 1
        part = self._part(at, end)
        self.lengths_seen = self.state.lengths.astype(np.float64)
        order = [
            (n, turn) for n, seat in enumerate(self._seats) for turn in range(len(seat.panels))
        ]
        found: dict[tuple[int, int], Acc] = {}
        self._sums = _StridedSums(self._program.cells, self.state.words.dtype)
        for turn in range(max(len(seat.panels) for seat in self._seats)):
            here = [n for n, seat in enumerate(self._seats) if turn < len(seat.panels)]
            for n in here:
                self._seats[n].session.turn_to(self._seats[n].panels[turn])
            for writer in self._before:
                for n in here:
                    self._start(n, writer.program, writer.lengths)
            for n in here:
                self._start(n, part, self.lengths_seen)
            for n in here:
                found[n, turn] = self._seats[n].session.partials(part, len(self.lengths_seen))
                while order and order[0] in found:
                    self._sums.add(found.pop(order.pop(0)))
        return end

    def _start(self, n: int, part: Program, lengths: Float64) -> None:
        session = self._seats[n].session
        session.start(part, lengths, NO_CONTROL)
        session.flush()

    def _part(self, first: int, last: int) -> Program:
        """Some stages as a program of its own; the same object in every pass."""
        if first not in self._parts:
            self._parts[first] = Program(self._program.stages[first:last], self._program.cells)
        return self._parts[first]

    def _reduce(self, cells: slice, stage: int) -> None:
        self.state.sums[cells] = self._sums.total(cells)
        if not np.isfinite(self.state.sums[cells]).all():
            raise NumericalError(
                f"a sum of stage {stage} (Reduce) came out as NaN or infinite",
                hint="check the model's parameters and the alignment with `mltree check`",
            )

    def _optimise(self, at: int) -> None:
        """A step of every group, by the first device: the same code as in a lone session."""
        state = self.state
        self._seats[0].session.advance(
            self._program, self._part(at, at + 1), state.words, len(state.lengths),
            len(state.control),
        )  # fmt: skip


class _StridedSums:
    """Sums over chunks that come piece by piece, in ``reduce_stage``'s order (``optimise.h``)."""

    def __init__(self, cells: int, acc: np.dtype[Any]) -> None:
        self._strided: Acc = np.zeros((cells, REDUCE_WIDTH), acc)
        self._chunks = 0

    def add(self, partials: Acc) -> None:
        """Take acc[cells, chunks] of the chunks that follow."""
        at = 0
        while at < partials.shape[1]:
            first = self._chunks % REDUCE_WIDTH
            width = min(REDUCE_WIDTH - first, partials.shape[1] - at)
            self._strided[:, first : first + width] += partials[:, at : at + width]
            self._chunks += width
            at += width

    def total(self, cells: slice) -> Acc:
        """acc[cells]: the strided sums, added in order."""
        strided = self._strided[cells]
        total: Acc = strided[:, 0].copy()
        for v in range(1, REDUCE_WIDTH):
            total += strided[:, v]
        return total


def ordered_sum(partials: Acc) -> Acc:
    """acc[cells]: sums of acc[cells, chunks], in the order of ``reduce_stage`` (``optimise.h``)."""
    sums = _StridedSums(len(partials), partials.dtype)
    sums.add(partials)
    return sums.total(slice(None))


def _shared_out(chunks: int, shares: Sequence[float]) -> list[int]:
    """Where each share of the chunks ends, from 0 on; equal shares differ by one, larger first."""
    wanted = np.cumsum(shares) / np.sum(shares) * chunks
    return [0, *np.ceil(wanted - 1e-9).astype(int).tolist()]


def _columns(patterns: Patterns, first: int, last: int) -> Patterns:
    """A panel: patterns ``first .. last - 1`` (or as many as there are)."""
    return replace(
        patterns, codes=patterns.codes[:, first:last], weights=patterns.weights[first:last]
    )
