"""A run as it goes: one line an event, on the terminal, in the log file, or as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from enum import IntEnum
from functools import singledispatch
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from mltree.events import (
    AlignmentLoaded,
    CheckpointWritten,
    DeviceChosen,
    Event,
    MemoryPlanned,
    ModelOptimised,
    Notice,
    PhaseStarted,
    RoundDone,
    RunStarted,
    SearchFinished,
    SearchResumed,
    StartTree,
    StoppedShort,
    TreePerturbed,
    TreesCulled,
)

__all__ = ["Reporter", "Verbosity", "describe"]


class Verbosity(IntEnum):
    """How much of a run the terminal shows; the log file has all of it."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_VERBOSE_ONLY = (CheckpointWritten,)
"""Events that say that all is well, too often to be read."""


class Reporter:
    """Receives events and draws them with the time since the run began in front."""

    def __init__(
        self,
        console: Console,
        verbosity: Verbosity = Verbosity.NORMAL,
        json_lines: bool = False,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.console = console
        self._log: TextIO | None = None
        self._backlog: list[str] = []
        self._verbosity = verbosity
        self._json_lines = json_lines
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._began = clock()
        self._cpu_began = cpu_clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the reporter was made."""
        return self._clock() - self._began

    @property
    def busy(self) -> float:
        """CPU seconds of the host's thread since then."""
        return self._cpu_clock() - self._cpu_began

    def __call__(self, event: Event) -> None:
        """Draw one event."""
        elapsed = self.elapsed
        if self._json_lines:
            self.console.file.write(as_json(event, elapsed) + "\n")
            self.console.file.flush()
        elif self._is_shown(event):
            self.console.print(_styled(event, elapsed), soft_wrap=True)
        self._write_log(f"{stamp(elapsed)} {describe(event)}")

    def say(self, renderable: Any) -> None:
        """Show a table or a text after the events: on the terminal and in the log."""
        if not self._json_lines and self._verbosity > Verbosity.QUIET:
            self.console.print(renderable, soft_wrap=isinstance(renderable, str))
        if self._log is not None:
            plain = Console(file=self._log, width=100, color_system=None)
            plain.print(renderable, soft_wrap=isinstance(renderable, str))
            self._log.flush()

    def _is_shown(self, event: Event) -> bool:
        if isinstance(event, _VERBOSE_ONLY):
            return self._verbosity >= Verbosity.VERBOSE
        return self._verbosity >= Verbosity.NORMAL

    def log_to(self, file: TextIO | None) -> None:
        """Write the log to a file from now on, and first what it has missed; None: to none."""
        self._log = file
        if file is not None:
            file.writelines(self._backlog)
            file.flush()
            self._backlog.clear()

    def _write_log(self, line: str) -> None:
        if self._log is None:
            self._backlog.append(line + "\n")
            return
        self._log.write(line + "\n")
        self._log.flush()


def stamp(elapsed: float) -> str:
    """``[00:01:02]`` for 62 seconds."""
    minutes, seconds = divmod(int(elapsed), 60)
    hours, minutes = divmod(minutes, 60)
    return f"[{hours:02d}:{minutes:02d}:{seconds:02d}]"


def as_json(event: Event, elapsed: float) -> str:
    """One line: the event's kind, the time (seconds) and its fields; infinities as text."""
    fields = {name: _plain(value) for name, value in dataclasses.asdict(event).items()}
    return json.dumps({"event": type(event).__name__, "elapsed": round(elapsed, 3), **fields})


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _styled(event: Event, elapsed: float) -> Text:
    style = "yellow" if isinstance(event, Notice | StoppedShort) else ""
    return Text.assemble((stamp(elapsed), "dim"), " ", (describe(event), style))


@singledispatch
def describe(event: Event) -> str:
    """The event as one line of text."""
    return f"{type(event).__name__} {dataclasses.asdict(event)}"


@describe.register
def _(event: Notice) -> str:
    return f"note: {event.text}"


@describe.register
def _(event: RunStarted) -> str:
    seed = "" if event.seed is None else f", seed {event.seed}"
    return f"mltree {event.version}{seed}: {event.command}"


@describe.register
def _(event: AlignmentLoaded) -> str:
    return (
        f"{event.path}: {event.data_type}, {event.taxa} taxa x {event.sites:,} sites, "
        f"{event.patterns:,} patterns, {event.gap_share:.1%} gaps ({event.layout})"
    )


@describe.register
def _(event: MemoryPlanned) -> str:
    mib = 2**20
    trees = "a tree" if event.trees == 1 else f"{event.trees} trees"
    return (
        f"memory: {event.clas / mib:,.1f} MiB for the CLAs of {trees}, {event.slots} each, "
        f"{event.matrices / mib:,.1f} MiB of P matrices, {event.tips / mib:,.1f} MiB of tips; "
        f"{event.device} has {event.available / mib:,.0f} MiB ({event.layout})"
    )


@describe.register
def _(event: DeviceChosen) -> str:
    return f"engine: {event.name}"


@describe.register
def _(event: StartTree) -> str:
    return f"start {event.origin:<20}  lnL {event.lnl:.3f}"


@describe.register
def _(event: PhaseStarted) -> str:
    trees = "1 tree" if event.trees == 1 else f"{event.trees} trees"
    cut = "no cut" if math.isinf(event.cut) else f"cut {event.cut:g}"
    return f"phase {event.phase}: SPR to radius {event.radius}, {cut}, {trees}"


@describe.register
def _(event: RoundDone) -> str:
    return (
        f"SPR round {event.round} (radius {event.radius})  lnL {event.lnl:.3f}  "
        f"{event.candidates:,} insertions, {_count(event.moves, 'move')}"
    )


@describe.register
def _(event: ModelOptimised) -> str:
    return f"model  lnL {event.lnl:.3f}  {event.model}"


@describe.register
def _(event: StoppedShort) -> str:
    return f"warning: the optimisation of {event.what} stopped short of a maximum"


@describe.register
def _(event: TreesCulled) -> str:
    return f"{_count(event.kept, 'start')} kept, {event.dropped} dropped"


@describe.register
def _(event: TreePerturbed) -> str:
    return (
        f"perturbation {event.batch}  lnL {event.lnl:.3f}  "
        f"{event.better} of {event.copies} copies better"
    )


@describe.register
def _(event: CheckpointWritten) -> str:
    return f"checkpoint {event.path}"


@describe.register
def _(event: SearchResumed) -> str:
    return f"resumed from {event.path} after round {event.rounds}  lnL {event.lnl:.3f}"


@describe.register
def _(event: SearchFinished) -> str:
    return (
        f"search done  lnL {event.lnl:.3f}  {_count(event.rounds, 'round')}, "
        f"{event.candidates:,} insertions, {_count(event.moves, 'move')}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
