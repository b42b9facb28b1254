"""A run as it goes: one line an event, on the terminal, in the log file, or as JSON."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import singledispatch
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from mltree.errors import InputError
from mltree.events import (
    AlignmentLoaded,
    BootstopChecked,
    CheckpointWritten,
    ConsensusBuilt,
    DeviceChosen,
    DistancesMeasured,
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
    SupportsDrawn,
    TreePerturbed,
    TreesCulled,
    TreesLoaded,
    Unsaved,
)
from mltree.report.results import result
from mltree.report.terminal import turn_away

__all__ = ["Log", "Reporter", "Verbosity", "describe"]


class Verbosity(IntEnum):
    """How much of a run the terminal shows; the log file has all of it."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_VERBOSE_ONLY = (CheckpointWritten,)
"""Events that say that all is well, too often to be read."""


class Log(Protocol):
    """Where the lines of a run go, beside the terminal."""

    def write(self, text: str, /) -> object:
        """Add lines; raises InputError where they have to wait for the next ones."""


class Reporter:
    """Receives events and draws them with the time since the run began in front.

    With a log, the run goes on where the terminal does not: nobody listens, or its file is full.
    """

    def __init__(
        self,
        console: Console,
        verbosity: Verbosity = Verbosity.NORMAL,
        json_lines: bool = False,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.console = console
        self._log: Log | None = None
        self._has_terminal = self._is_logging = True
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

    def log_to(self, log: Log | None) -> None:
        """Write to a log as well from now on; None: to none."""
        self._log = log

    def __call__(self, event: Event) -> None:
        """Draw one event: as a line, or as what :func:`.results.result` makes of it."""
        elapsed = self.elapsed
        if self._json_lines:
            self._show(lambda: self._print_json(event, elapsed))
        if (found := result(event, self.console.height)) is not None:
            self.say(found)
            return
        if not self._json_lines and self._is_shown(event):
            self._show(lambda: self.console.print(_styled(event, elapsed), soft_wrap=True))
        self._write_log(f"{stamp(elapsed)} {describe(event)}\n")

    def say(self, renderable: Any) -> None:
        """Show a table or a text after the events: on the terminal and in the log."""
        is_text = isinstance(renderable, str)
        if not self._json_lines and self._verbosity > Verbosity.QUIET:
            self._show(lambda: self.console.print(renderable, soft_wrap=is_text))
        plain = Console(file=io.StringIO(), width=100, color_system=None)
        with plain.capture() as text:
            plain.print(renderable, soft_wrap=is_text)
        self._write_log(text.get())

    def _is_shown(self, event: Event) -> bool:
        if isinstance(event, Unsaved):
            return True
        if isinstance(event, _VERBOSE_ONLY):
            return self._verbosity >= Verbosity.VERBOSE
        return self._verbosity >= Verbosity.NORMAL

    def _print_json(self, event: Event, elapsed: float) -> None:
        self.console.file.write(as_json(event, elapsed) + "\n")
        self.console.file.flush()

    def _show(self, draw: Callable[[], None]) -> None:
        """Draw on the terminal, as long as there is one."""
        if not self._has_terminal:
            return
        try:
            draw()
        except OSError as error:
            if self._log is None:
                raise
            self._has_terminal = False
            turn_away(self.console.file)
            self._note(f"standard output: {error.strerror}; the run and its log go on")

    def _write_log(self, text: str) -> None:
        if self._log is None:
            return
        try:
            self._log.write(text)
        except InputError as error:
            if self._is_logging:
                self._is_logging = False
                self._note(f"{error.message}; the run goes on")
        else:
            self._is_logging = True

    def _note(self, problem: str) -> None:
        """What has happened to one way of telling, by the others."""
        line = f"{stamp(self.elapsed)} note: {problem}\n"
        with suppress(OSError, AttributeError):  # closed, or never there
            sys.stderr.write(line)
            sys.stderr.flush()
        if self._is_logging:
            self._write_log(line)


def stamp(elapsed: float) -> str:
    """``[00:01:02]`` for 62 seconds."""
    minutes, seconds = divmod(int(elapsed), 60)
    hours, minutes = divmod(minutes, 60)
    return f"[{hours:02d}:{minutes:02d}:{seconds:02d}]"


def as_json(event: Event, elapsed: float) -> str:
    """One line: the event's kind, the time (seconds) and its fields; infinities as text."""
    fields = _plain(dataclasses.asdict(event))
    return json.dumps({"event": type(event).__name__, "elapsed": round(elapsed, 3), **fields})


def _plain(value: Any) -> Any:
    """As strict JSON takes it, whatever it is inside of."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
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
def _(event: Unsaved) -> str:
    return f"not written, {event.path}: {event.content.strip()}"


@describe.register
def _(event: RunStarted) -> str:
    seed = "" if event.seed is None else f", seed {event.seed}"
    return f"mltree {event.version}{seed}: {event.command}"


@describe.register
def _(event: AlignmentLoaded) -> str:
    return (
        f"{event.path}: {event.data_type} ({event.data_seen}), {event.taxa} taxa x "
        f"{event.sites:,} sites, {event.patterns:,} patterns, {event.gap_share:.1%} gaps "
        f"({event.layout})"
    )


@describe.register
def _(event: MemoryPlanned) -> str:
    mib = 2**20
    trees = "a tree" if event.trees == 1 else f"{event.trees} trees"
    near = f"{event.near / mib:,.1f} MiB for insertions, " if event.near else ""
    return (
        f"memory: the process will take about {event.process / mib:,.0f} MiB; "
        f"{event.clas / mib:,.1f} MiB for the CLAs of {trees}, {event.slots} each, {near}"
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


@describe.register
def _(event: TreesLoaded) -> str:
    return f"{event.path}: {_count(event.trees, 'tree')}, {event.taxa:,} taxa"


@describe.register
def _(event: SupportsDrawn) -> str:
    mean = "" if event.mean is None else f", mean {event.mean:.1%}"
    return f"{event.metric}  {_count(event.branches, 'inner branch', 'es')}{mean}"


@describe.register
def _(event: ConsensusBuilt) -> str:
    return f"{event.kind} consensus  {event.branches:,} of {event.largest:,} inner branches"


@describe.register
def _(event: DistancesMeasured) -> str:
    weighted = "" if event.weighted is None else f", weighted {event.weighted:.6f}"
    topologies = "1 topology" if event.topologies == 1 else f"{event.topologies:,} topologies"
    return (
        f"{_count(event.pairs, 'pair')} of trees, {topologies}  "
        f"mean Robinson-Foulds distance {event.mean:.3f} ({event.relative:.2%}){weighted}"
    )


@describe.register
def _(event: BootstopChecked) -> str:
    verdict = "converged" if event.converged else "not converged"
    return (
        f"{event.replicates:,} replicates  wRF {event.wrf:.3f} ± {event.wrf_error:.3f} "
        f"({event.share:.3%}), {event.passed:,} of {event.halvings:,} halvings pass: {verdict}"
    )


def _count(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"
