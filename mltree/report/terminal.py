"""Terminals: consoles that report a closed pipe to their user, and the status line."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable, Iterable
from functools import singledispatchmethod
from typing import Any

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from mltree.report.lines import clock_time
from mltree.system.events import (
    AlignmentLoaded,
    Busy,
    CandidatesScored,
    DeviceChosen,
    Event,
    ModelChosen,
    ModelOptimised,
    PhaseStarted,
    ReplicateDone,
    RoundDone,
    SearchFinished,
    SearchPlanned,
    SearchResumed,
    StartTree,
    TreePerturbed,
    TreeScored,
    TreesCulled,
)
from mltree.system.files import harmless

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
            text = segment.text if segment.control else harmless(segment.text)
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
    """Standard output."""
    return _terminal(stderr=False)


def progress_terminal() -> Terminal:
    """Standard error."""
    return _terminal(stderr=True)


def _terminal(stderr: bool) -> Terminal:
    """A terminal without emoji: ``:cat:`` is a name, and rich's table takes 3 ms to load."""
    plain = bool(os.environ.get(PLAIN))
    return Terminal(
        stderr=stderr, highlight=False, emoji=False, color_system=None if plain else "auto"
    )


# The status line: one line on a terminal, redrawn as the run goes on.

FRAMES, PLAIN_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"
"""Frames of the spinner, and those for terminals without braille."""

REDRAWS = 8.0
"""Redraws a second."""

LEAST_GAIN = 0.0005
"""lnL below which a gain is not shown."""

STEPS: dict[type[Event], str] = {
    AlignmentLoaded: "preparing",
    DeviceChosen: "starting trees",
    StartTree: "model",
    SearchResumed: "resumed",
    ModelOptimised: "model and branch lengths",
    TreeScored: "model and branch lengths",
    SearchFinished: "final score",
}
"""The step that begins after an event."""

OF_OTHERS = (ModelChosen, ReplicateDone)
"""Events whose lnL is not that of the tree searched for."""


class Status:
    """State of a run, summed up from its events."""

    def __init__(self) -> None:
        self.step = "starting"
        self._plan: SearchPlanned | None = None
        self._phase: PhaseStarted | None = None
        self._is_busy = False
        self._trees = 0
        self._round = 0
        self._lnl: float | None = None
        self._gain = 0.0
        self._failures = 0
        self._batches: list[float] = []
        self._replicates: list[tuple[float, ReplicateDone]] = []

    def heed(self, event: Event, now: float) -> None:
        """Update the state by an event; ``now``: seconds since the run began."""
        lnl = None if isinstance(event, OF_OTHERS) else getattr(event, "lnl", None)
        if isinstance(lnl, float):
            self._gain = 0.0 if self._lnl is None else lnl - self._lnl
            self._lnl = lnl if self._lnl is None else max(lnl, self._lnl)
        busy_with = self.step if self._is_busy and not isinstance(lnl, float) else None
        self._is_busy = isinstance(event, Busy) or busy_with is not None
        self.step = STEPS.get(type(event), self.step)
        self._take(event, now)
        if busy_with is not None and not isinstance(event, Busy):
            self.step = busy_with  # kernels are built while a search begins

    @singledispatchmethod
    def _take(self, event: Event, now: float) -> None:
        """Update the state by one kind of event; most kinds change nothing."""

    @_take.register
    def _(self, event: Busy, _: float) -> None:
        self.step = event.what

    @_take.register
    def _(self, event: SearchPlanned, _: float) -> None:
        self._plan, self._trees = event, event.starts
        self.step = f"smoothing {_trees(event.starts)}"

    @_take.register
    def _(self, event: SearchResumed, _: float) -> None:
        self._round = event.rounds

    @_take.register
    def _(self, event: PhaseStarted, _: float) -> None:
        self._phase, self._trees, self._batches = event, event.trees, []
        self._name_round()

    @_take.register
    def _(self, event: RoundDone, now: float) -> None:
        self._round = event.round
        is_repair = self._phase is not None and event.radius != self._phase.radius
        if is_repair and not self._batches:
            self._batches = [now]
        self._name_round()

    @_take.register
    def _(self, event: TreesCulled, _: float) -> None:
        self._trees = event.kept
        self.step = f"smoothing {_trees(event.kept)}"

    @_take.register
    def _(self, event: TreePerturbed, now: float) -> None:
        self._failures = 0 if event.better else self._failures + 1
        self._batches.append(now)
        self._name_round()

    @_take.register
    def _(self, event: CandidatesScored, _: float) -> None:
        parts = f" of {event.parts} parts" if event.parts > 1 else ""
        self.step = f"model choice, {event.candidates:,} fitted{parts}, best {event.best}"

    @_take.register
    def _(self, event: ReplicateDone, now: float) -> None:
        self._replicates.append((now, event))
        self.step = f"bootstrap, {event.done:,} of {event.wanted:,} replicates"

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
            word, seconds = "about", self._replicates_left(now)
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
