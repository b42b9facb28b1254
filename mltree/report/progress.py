"""Progress of a run, event by event, in the terminal, the log file, or as JSON lines."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from mltree.report.lines import Ending, describe, result, stamp
from mltree.report.record import Record
from mltree.report.terminal import Status, StatusLine, Terminal, folded
from mltree.system.errors import InputError
from mltree.system.events import (
    AlignmentWritten,
    BootstopChecked,
    BootstrapFinished,
    Busy,
    CheckpointWritten,
    CommandEnded,
    ConsensusBuilt,
    DistancesMeasured,
    Event,
    LociFinished,
    MemoryPlanned,
    ModelOptimised,
    Notice,
    PhaseStarted,
    ReplicateDone,
    ResourcesSpent,
    ResultWritten,
    RoundDone,
    RunDescribed,
    SearchFinished,
    SearchPlanned,
    StartsEnded,
    StartTree,
    StoppedShort,
    SupportsDrawn,
    TimeSpent,
    TreePerturbed,
    TreeScored,
    TreesCulled,
    TreesWritten,
    Unsaved,
)
from mltree.system.files import harmless, turn_away
from mltree.system.process import cpu_seconds
from mltree.system.signals import before_leaving, no_longer
from mltree.system.values import plain


class Verbosity(IntEnum):
    """Amount shown in the terminal; the log file has everything."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_VERBOSE_ONLY = (
    CheckpointWritten, CommandEnded, ResourcesSpent, RunDescribed, SearchPlanned, StartsEnded,
)  # fmt: skip
"""Events of little news: routine, or repeated by the result."""

_IN_STATUS = (
    Busy, MemoryPlanned, ModelOptimised, PhaseStarted, ReplicateDone, RoundDone, SearchFinished,
    StartTree, TreePerturbed, TreeScored, TreesCulled,
)  # fmt: skip
"""Events that the status line shows; lines of their own where there is no status line."""

_ANSWERS = (
    AlignmentWritten, BootstopChecked, BootstrapFinished, ConsensusBuilt, DistancesMeasured,
    LociFinished, ResultWritten, SupportsDrawn, TreesWritten,
)  # fmt: skip
"""Events that answer a command: lines on standard output, without the time."""

_UNLOGGED = (CommandEnded, RunDescribed)
"""Events that a log omits: no news, or already in its head."""


class Log(Protocol):
    """Receiver of a run's lines, beside the terminal."""

    def write(self, text: str, /) -> object:
        """Add lines. Raises InputError if they have to wait for the next ones."""


class Reporter:
    """Receives events and draws them, each behind the time since the run began.

    Progress and results have a console each. A run with a log goes on when a console fails: closed
    pipe, full disk.
    """

    def __init__(
        self,
        console: Console,
        verbosity: Verbosity = Verbosity.NORMAL,
        json_lines: bool = False,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = cpu_seconds,
        results: Console | None = None,
    ) -> None:
        """``results``: where results go; to ``console`` where None."""
        self.console = console
        self.results = results or console
        self._log: Log | None = None
        self._record = Record()
        self._gone: set[Console] = set()
        self._is_logging = True
        self._has_checkpoint = False
        self._verbosity = verbosity
        self._json_lines = json_lines
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._began = clock()
        self._cpu_began = cpu_clock()
        self._ending = Ending()
        self._status = Status()
        self._line: StatusLine | None = None

    def __enter__(self) -> Reporter:
        """Show a status line from now on, if the terminal can."""
        is_wanted = self._verbosity > Verbosity.QUIET and not self._json_lines
        if is_wanted and isinstance(self.console, Terminal) and self.console.is_lively:
            self._line = StatusLine(self.console, self._status, lambda: self.elapsed)
            before_leaving(self._take_line_away)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Remove the status line."""
        self._take_line_away()
        no_longer(self._take_line_away)

    def _take_line_away(self) -> None:
        if self._line is not None:
            with suppress(OSError):
                self._line.stop()
            self._line = None

    @property
    def elapsed(self) -> float:
        """Seconds since the reporter was made."""
        return self._clock() - self._began

    @property
    def busy(self) -> float:
        """CPU seconds of the host since the reporter was made: this thread and its helpers."""
        return self._cpu_clock() - self._cpu_began

    def log_to(self, log: Log | None) -> None:
        """Write to a log as well from now on; None ends that."""
        self._log = log

    def watch(self, load: Callable[[], str]) -> None:
        """Set the function that tells the device's load, for the status line."""
        if self._line is not None:
            self._line.load = load

    def record_to(self, path: Path, append: bool) -> None:
        """Write all events, earlier ones included, to a file of JSON lines from now on."""
        self._record.begin(path, append)

    def __call__(self, event: Event) -> None:
        """Draw one event: as a line, or as :func:`.lines.result` draws it."""
        elapsed = self.elapsed
        self._record.write(as_json(event, elapsed))
        self._ending.heed(event)
        self._status.heed(event, elapsed)
        if self._json_lines:
            self._show(self.results, lambda: self._print_json(event, elapsed))
        answer = result(event, self.results.height, self._ending)
        if isinstance(event, Unsaved):
            self.say(describe(event), Verbosity.QUIET)
        elif answer is not None:
            is_extra = isinstance(event, TimeSpent)
            self.say(answer, Verbosity.VERBOSE if is_extra else Verbosity.NORMAL)
        elif isinstance(event, _ANSWERS):
            self.say(describe(event))
        elif not self._repeats(event):
            self._draw(event, elapsed)

    def say(self, renderable: Any, verbosity: Verbosity = Verbosity.NORMAL) -> None:
        """Show a table or a text after the events: on standard output and in the log.

        ``verbosity``: least verbosity at which it is shown.
        """
        is_text = isinstance(renderable, str)
        if not self._json_lines and self._verbosity >= verbosity:
            self._take_line_away()
            shown = _fitted(renderable, self.results) if is_text else renderable
            draw = lambda: self.results.print(shown, soft_wrap=is_text, markup=False)  # noqa: E731
            self._show(self.results, draw)
        if self._log is not None:
            page = Console(
                file=io.StringIO(), width=100, color_system=None, emoji=False, highlight=False
            )
            with page.capture() as text:
                page.print(renderable, soft_wrap=is_text, markup=False)
            self._write_log(text.get())

    def finish(self, command: str, values: Mapping[str, Any]) -> None:
        """Write the result of a command, as JSON has it."""
        self(CommandEnded(command, values))

    def _draw(self, event: Event, elapsed: float) -> None:
        if not self._json_lines and self._is_shown(event):
            text = _styled(event, elapsed, self.console)
            draw = lambda: self.console.print(text, soft_wrap=True)  # noqa: E731
            self._show(self.console, draw)
        if not isinstance(event, _UNLOGGED):
            self._write_log(f"{stamp(elapsed)} {describe(event)}\n")

    def _repeats(self, event: Event) -> bool:
        """Tell if an event only repeats the first of its kind."""
        if not isinstance(event, CheckpointWritten):
            return False
        repeats, self._has_checkpoint = self._has_checkpoint, True
        return repeats

    def _is_shown(self, event: Event) -> bool:
        if isinstance(event, _VERBOSE_ONLY):
            return self._verbosity >= Verbosity.VERBOSE
        if isinstance(event, _IN_STATUS) and self._line is not None:
            return self._verbosity >= Verbosity.VERBOSE
        return self._verbosity >= Verbosity.NORMAL

    def _print_json(self, event: Event, elapsed: float) -> None:
        self.results.file.write(as_json(event, elapsed) + "\n")
        self.results.file.flush()

    def _show(self, console: Console, draw: Callable[[], None]) -> None:
        """Draw on a console while it works.

        A closed standard output ends a command that keeps no log; closed progress is ignored.
        """
        if console in self._gone:
            return
        try:
            draw()
        except OSError as error:
            if self._log is None and console is self.results:
                raise
            self._gone.add(console)
            if console is self.console:
                self._take_line_away()
            turn_away(console.file)
            name = "standard output" if console is self.results else "standard error"
            who = "the run goes on" if self._log is None else "the run and its log go on"
            self._note(f"{name}: {error.strerror}; {who}")

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
        """Report a failed output to the remaining ones."""
        line = f"{stamp(self.elapsed)} note: {problem}\n"
        with suppress(OSError, AttributeError):  # closed, or never there
            sys.stderr.write(harmless(line))
            sys.stderr.flush()
        if self._is_logging:
            self._write_log(line)


JSON_NAMES: dict[type[Event], str] = {CommandEnded: "result"}
"""Names of events in JSON where they differ; an error is ``error`` (:mod:`mltree.cli.exits`)."""


def as_json(event: Event, elapsed: float) -> str:
    """One JSON line: the event's kind, the time (seconds) and its fields."""
    fields = plain(dataclasses.asdict(event))
    if isinstance(event, CommandEnded):
        fields = {"command": event.command, **fields["values"]}
    name = JSON_NAMES.get(type(event), type(event).__name__)
    return json.dumps({"event": name, "elapsed": round(elapsed, 3), **fields})


def _styled(event: Event, elapsed: float, console: Console) -> Text:
    style = "yellow" if isinstance(event, Notice | StoppedShort) else ""
    lead = f"{stamp(elapsed)} "
    line = _fitted(describe(event), console, len(lead)).replace("\n", "\n" + " " * len(lead))
    return Text.assemble((lead, "dim"), (line, style))


def _fitted(text: str, console: Console, lead: int = 0) -> str:
    """A text behind ``indent`` columns, folded in a terminal."""
    is_seen = isinstance(console, Terminal) and console.is_lively
    return folded(text, console.width - lead) if is_seen else text
