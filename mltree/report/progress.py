"""Progress of a run, event by event, in the terminal, the log file, or as JSON lines."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from mltree.report.lines import (
    Ending,
    brief_memory,
    clock_time,
    describe,
    replicates_text,
    result,
    stamp,
)
from mltree.report.record import Record
from mltree.system import events
from mltree.system.errors import InputError
from mltree.system.events import Event
from mltree.system.files import discard, sanitised
from mltree.system.process import before_exit, cancel_before_exit, cpu_seconds
from mltree.system.values import plain

# Terminals: consoles that report a closed pipe to their user, and the status line.

PLAIN = "NO_COLOR"
"""Environment variable that turns escape sequences off (no-color.org)."""


class Terminal(Console):
    """A console whose user handles a closed pipe; rich's own ends the program.

    The cursor is never hidden: a run that is killed could not bring it back.
    """

    def on_broken_pipe(self) -> None:
        """Raise the error; rich calls this while it handles it."""
        raise  # noqa: PLE0704

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
        """Leave the cursor as it is."""
        return False

    def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
        """Strip control characters from names; rich's own codes come later."""
        for segment in super().render(*args, **options):
            text = segment.text if segment.control else sanitised(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)

    @property
    def is_lively(self) -> bool:
        """True if lines can be redrawn."""
        return self.is_terminal and not self.is_dumb_terminal and self.color_system is not None


_LABELLED = re.compile(r"(\S+(?: \S+)? {2,})?(?!.*  )\S.*")
"""A line of words, with or without a label: no row of a table, no tree."""

LEAST_WIDTH = 20
"""Least columns for folding."""


def folded(text: str, width: int) -> str:
    """A text with its lines broken at blanks to fit a width.

    Continuation lines are indented to the text behind a label and two blanks. Lines with a word of
    half a line or more (models) stay whole, and so do rows of tables and drawings.
    """
    lines = []
    for line in text.split("\n"):
        words = _LABELLED.fullmatch(line) if len(line) > width else None
        indent = " " * len(words[1] or "") if words else ""
        room = width - len(indent)
        if words is None or room < LEAST_WIDTH or 2 * max(map(len, line.split())) > room:
            lines.append(line)
        else:
            lines += textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def result_terminal() -> Terminal:
    """A terminal for results: standard output."""
    return _terminal(stderr=False)


def progress_terminal() -> Terminal:
    """A terminal for progress: standard error."""
    return _terminal(stderr=True)


def _terminal(stderr: bool) -> Terminal:
    """A terminal without emoji: ``:cat:`` is a name, and rich's table takes 3 ms to load."""
    colours: Literal["auto"] | None = None if os.environ.get(PLAIN) else "auto"
    return Terminal(stderr=stderr, highlight=False, emoji=False, color_system=colours)


# The status line: one line on a terminal, redrawn as the run goes on.

FRAMES, PLAIN_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"
"""Frames of the spinner, and those for terminals without braille."""

REDRAWS = 8.0
"""Redraws a second."""

REPLICATES_APART = 10.0
"""Seconds between lines of replicates where there is no status line."""

LEAST_GAIN = 0.0005
"""lnL below which a gain is not shown."""

STEPS: dict[type[Event], str] = {
    events.AlignmentLoaded: "preparing",
    events.DeviceChosen: "starting trees",
    events.StartTree: "model",
    events.SearchResumed: "resumed",
    events.ModelOptimised: "model and branch lengths",
    events.TreeScored: "model and branch lengths",
    events.SearchFinished: "final score",
    events.TreesOffered: "ultrafast bootstrap",
}
"""The step that begins after an event."""

OF_OTHERS = (events.ModelChosen, events.ReplicateDone)
"""Events whose lnL is not that of the tree searched for."""


class Status:
    """State of a run, summed up from its events."""

    def __init__(self) -> None:
        self.step = "starting"
        self._plan: events.SearchPlanned | None = None
        self._phase: events.PhaseStarted | None = None
        self._is_busy = False
        self._trees = 0
        self._round = 0
        self._lnl: float | None = None
        self._gain = 0.0
        self._failures = 0
        self._batches: list[float] = []
        self._replicates: list[tuple[float, events.ReplicateDone]] = []

    def update(self, event: Event, now: float) -> None:
        """Update the state by an event; ``now``: seconds since the run began."""
        lnl = None if isinstance(event, OF_OTHERS) else getattr(event, "lnl", None)
        if isinstance(lnl, float):
            self._gain = 0.0 if self._lnl is None else lnl - self._lnl
            self._lnl = lnl if self._lnl is None else max(lnl, self._lnl)
        busy_with = self.step if self._is_busy and not isinstance(lnl, float) else None
        self._is_busy = isinstance(event, events.Busy) or busy_with is not None
        self.step = STEPS.get(type(event), self.step)
        self._take(event, now)
        if busy_with is not None and not isinstance(event, events.Busy):
            self.step = busy_with  # kernels are built while a search begins

    def _take(self, event: Event, now: float) -> None:
        """Update the state by one kind of event; most kinds change nothing."""
        match event:
            case events.Busy():
                self.step = event.what
            case events.SearchPlanned():
                self._plan, self._trees = event, event.starts
                self.step = f"smoothing {_trees(event.starts)}"
            case events.SearchResumed():
                self._round = event.rounds
            case events.PhaseStarted():
                self._phase, self._trees, self._batches = event, event.trees, []
                self._name_round()
            case events.RoundDone():
                self._round = event.round
                is_repair = self._phase is not None and event.radius != self._phase.radius
                self._batches = self._batches or [now] * is_repair
                self._name_round()
            case events.TreesCulled():
                self._trees = event.kept
                self.step = f"smoothing {_trees(event.kept)}"
            case events.TreePerturbed():
                self._failures = 0 if event.better else self._failures + 1
                self._batches.append(now)
                self._name_round()
            case events.CandidatesScored():
                parts = f" of {event.parts} parts" if event.parts > 1 else ""
                self.step = f"model choice, {event.candidates:,} fitted{parts}, best {event.best}"
            case events.ReplicateDone():
                self._replicates.append((now, event))
                self.step = f"bootstrap, replicate {replicates_text(event)}"

    def text(self, now: float, load: str = "") -> str:
        """The line: step, best lnL with its last gain, time, time left, load."""
        parts = [self.step]
        if self._lnl is not None:
            gain = f" (+{self._gain:.3f})" if self._gain > LEAST_GAIN else ""
            parts.append(f"lnL {self._lnl:.3f}{gain}")
        parts.append(clock_time(now))
        if (left := self._left(now)) is not None:
            parts.append(left)
        return " · ".join([*parts, *([load] if load else [])])

    def _name_round(self) -> None:
        """Set the step to the round that begins; rounds do not name themselves."""
        if self._batches:
            self.step = f"perturbation {len(self._batches)}, round {self._round + 1}"
        elif self._phase is not None:
            of = f" of {self._plan.phases}" if self._plan else ""
            self.step = f"phase {self._phase.phase}{of}, round {self._round + 1}"
            self.step += f", {_trees(self._trees)}"

    def _left(self, now: float) -> str | None:
        """Time until a bootstrap ends at its pace so far, or the least time until a search ends."""
        if self._replicates:
            word = "at most" if self._replicates[-1][1].may_converge else "about"
            seconds = self._replicates_left(now)
        else:
            word, seconds = "at least", self._batches_left(now)
        return f"{word} {clock_time(seconds)} left" if seconds >= 1 else None

    def _replicates_left(self, now: float) -> float:
        (began, first), (last, event) = self._replicates[0], self._replicates[-1]
        done = event.done - first.done
        return (last - began) / done * (event.wanted - event.done) - (now - last) if done else 0.0

    def _batches_left(self, now: float) -> float:
        """Seconds of the least number of further perturbations, at their mean time so far."""
        if self._plan is None or len(self._batches) < 2:
            return 0.0
        mean = (self._batches[-1] - self._batches[0]) / (len(self._batches) - 1)
        more = self._plan.patience - self._failures
        return mean * more - (now - self._batches[-1])


def _trees(number: int) -> str:
    return "1 tree" if number == 1 else f"{number} trees"


class StatusLine:
    """The status line of a terminal, below all other output."""

    def __init__(self, terminal: Terminal, status: Status, elapsed: Callable[[], float]) -> None:
        self._status = status
        self._elapsed = elapsed
        self.load: Callable[[], str] = str
        """Function that tells the device's load in a word or two."""
        braille = terminal.encoding.lower().startswith("utf")
        self._frames = FRAMES if braille else PLAIN_FRAMES
        from rich.live import Live  # on terminals alone

        self._live = Live(
            console=terminal, transient=True, refresh_per_second=REDRAWS, get_renderable=self._draw,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._live.start()

    def stop(self) -> None:
        """Remove the line."""
        self._live.stop()

    def _draw(self) -> Text:
        frame = self._frames[int(time.monotonic() * REDRAWS) % len(self._frames)]
        text = self._status.text(self._elapsed(), self.load())
        return Text.assemble((frame, "cyan"), " ", text, no_wrap=True, overflow="ellipsis")


class Verbosity(IntEnum):
    """Amount shown in the terminal; the log file has everything."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_VERBOSE_ONLY = (
    events.CheckpointWritten, events.CommandEnded, events.ResourcesSpent, events.RunDescribed,
    events.SearchPlanned, events.StartsEnded,
)  # fmt: skip
"""Events of little news: routine, or repeated by the result."""

_IN_STATUS = (
    events.Busy, events.MemoryPlanned, events.ModelOptimised, events.PhaseStarted,
    events.ReplicateDone, events.RoundDone, events.SearchFinished, events.StartTree,
    events.TimeLeft, events.TreePerturbed, events.TreeScored, events.TreesCulled,
)  # fmt: skip
"""Events that the status line shows; lines of their own where there is no status line."""

_ANSWERS = (
    events.AlignmentWritten, events.BootstopChecked, events.BootstrapFinished,
    events.ConsensusBuilt, events.DistancesMeasured, events.LociFinished, events.ResultWritten,
    events.SupportsDrawn, events.TreesWritten,
)  # fmt: skip
"""Events that answer a command: lines on standard output, without the time."""

_UNLOGGED = (events.CommandEnded, events.RunDescribed)
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
        self._has_line = False
        self._load: Callable[[], str] = str
        self._replicate_shown = -REPLICATES_APART

    def __enter__(self) -> Reporter:
        """Show a status line from now on, if the terminal can."""
        is_wanted = self._verbosity > Verbosity.QUIET and not self._json_lines
        if is_wanted and isinstance(self.console, Terminal) and self.console.is_lively:
            self._has_line = True
            self._show_line()
            before_exit(self._take_line_away)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Remove the status line."""
        self._has_line = False
        self._take_line_away()
        cancel_before_exit(self._take_line_away)

    def _show_line(self) -> None:
        assert isinstance(self.console, Terminal), "a status line is drawn on terminals"
        self._line = StatusLine(self.console, self._status, lambda: self.elapsed)
        self._line.load = self._load

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
        self._load = load
        if self._line is not None:
            self._line.load = load

    def record_to(self, path: Path, append: bool) -> None:
        """Write all events, earlier ones included, to a file of JSON lines from now on."""
        self._record.begin(path, append)

    def __call__(self, event: Event) -> None:
        """Draw one event: as a line, or as :func:`.lines.result` draws it."""
        elapsed = self.elapsed
        self._record.write(as_json(event, elapsed))
        self._ending.update(event)
        self._status.update(event, elapsed)
        if self._has_line and self._line is None and isinstance(event, _IN_STATUS):
            self._show_line()
        if self._json_lines:
            self._show(self.results, lambda: self._print_json(event, elapsed))
        answer = result(event, self.results.height, self._ending)
        if isinstance(event, events.Unsaved):
            self.say(describe(event), Verbosity.QUIET)
        elif answer is not None:
            is_extra = isinstance(event, events.TimeSpent)
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
            page = io.StringIO()
            sheet = Console(file=page, width=100, color_system=None, emoji=False, highlight=False)
            sheet.print(renderable, soft_wrap=is_text, markup=False)
            self._write_log(page.getvalue())

    def finish(self, command: str, values: Mapping[str, Any]) -> None:
        """Write the result of a command, as JSON has it."""
        self(events.CommandEnded(command, values))

    def _draw(self, event: Event, elapsed: float) -> None:
        if not self._json_lines and self._is_shown(event, elapsed):
            text = _styled(event, self._line_of(event), elapsed, self.console)
            draw = lambda: self.console.print(text, soft_wrap=True)  # noqa: E731
            self._show(self.console, draw)
        if not isinstance(event, _UNLOGGED):
            self._write_log(f"{stamp(elapsed)} {describe(event)}\n")

    def _repeats(self, event: Event) -> bool:
        """True for a checkpoint after the first."""
        if not isinstance(event, events.CheckpointWritten):
            return False
        repeats, self._has_checkpoint = self._has_checkpoint, True
        return repeats

    def _line_of(self, event: Event) -> str:
        """The text of an event for the terminal."""
        if isinstance(event, events.MemoryPlanned) and self._verbosity < Verbosity.VERBOSE:
            return brief_memory(event)
        return describe(event)

    def _is_shown(self, event: Event, elapsed: float) -> bool:
        if isinstance(event, _VERBOSE_ONLY):
            return self._verbosity >= Verbosity.VERBOSE
        if isinstance(event, _IN_STATUS) and self._line is not None:
            return self._verbosity >= Verbosity.VERBOSE
        if isinstance(event, events.ReplicateDone) and self._verbosity < Verbosity.VERBOSE:
            is_due = elapsed - self._replicate_shown >= REPLICATES_APART
            if not is_due and event.done < event.wanted:
                return False
            self._replicate_shown = elapsed
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
                self._has_line = False
                self._take_line_away()
            discard(console.file)
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
            sys.stderr.write(sanitised(line))
            sys.stderr.flush()
        if self._is_logging:
            self._write_log(line)


def as_json(event: Event, elapsed: float) -> str:
    """One JSON line: the event's kind, the time (seconds) and its fields.

    A command's last event is ``result``; an error's is ``error`` (:mod:`mltree.cli.exits`).
    """
    name, fields = type(event).__name__, plain(dataclasses.asdict(event))
    if isinstance(event, events.CommandEnded):
        name, fields = "result", {"command": event.command, **fields["values"]}
    return json.dumps({"event": name, "elapsed": round(elapsed, 3), **fields})


def _styled(event: Event, line: str, elapsed: float, console: Console) -> Text:
    style = "yellow" if isinstance(event, events.Notice | events.StoppedShort) else ""
    lead = f"{stamp(elapsed)} "
    line = _fitted(line, console, len(lead)).replace("\n", "\n" + " " * len(lead))
    return Text.assemble((lead, "dim"), (line, style))


def _fitted(text: str, console: Console, lead: int = 0) -> str:
    """A text behind ``lead`` columns, folded in a terminal."""
    is_seen = isinstance(console, Terminal) and console.is_lively
    return folded(text, console.width - lead) if is_seen else text
