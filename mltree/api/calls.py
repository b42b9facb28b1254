"""What surrounds every call: its turn among threads, what it shows meanwhile, where it computes.

Calls take turns: OpenCL's kernels belong to one thread at a time, and two runs on one device take
no less time side by side. Ctrl-C, and a notebook's interrupt, end a call as Python has it, by a
KeyboardInterrupt; the next call starts afresh.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from mltree.data.source import forget_pipes
from mltree.device.pocl.environment import for_a_call
from mltree.report.progress import Reporter, Verbosity
from mltree.report.terminal import Status, progress_terminal
from mltree.runs.engines import Resources
from mltree.system.errors import InputError
from mltree.system.events import Event, ignore

Progress: TypeAlias = bool | Callable[[Event], None]
"""Whether to show what a call does, on a terminal or in a notebook; or who is told of it."""

Heard = TypeVar("Heard", bound=Event)

PAUSE = 0.25
"""Seconds between two updates of a notebook's line."""

_turn = threading.RLock()


def _begin_turns() -> None:
    """Let a forked process begin anew: whichever thread had its turn is not there."""
    global _turn  # noqa: PLW0603
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_begin_turns)


@contextmanager
def in_turn() -> Iterator[None]:
    """Wait for the calls of other threads to end, and leave the environment as it was."""
    with _turn, for_a_call():
        yield


class Call(Reporter):
    """Receives the events of a call: remembers, shows, passes on."""

    def __init__(self, verbosity: Verbosity, tell: Callable[[Event], None] = ignore) -> None:
        super().__init__(progress_terminal(), verbosity)
        self._tell = tell
        self._last: dict[type[Event], Event] = {}

    def __call__(self, event: Event) -> None:
        """Receive an event."""
        self._last[type(event)] = event
        super().__call__(event)
        self._tell(event)

    def last(self, kind: type[Heard]) -> Heard | None:
        """The last event of a kind; None where there was none."""
        found = self._last.get(kind)
        return found if isinstance(found, kind) else None


@contextmanager
def calling(progress: Progress = False) -> Iterator[Call]:
    """A call, in its turn: who receives its events."""
    with in_turn(), _call(progress) as call:
        forget_pipes()
        assert isinstance(call, Call)
        yield call


def _call(progress: Progress) -> Call:
    if callable(progress):
        return Call(Verbosity.QUIET, progress)
    if not progress:
        return Call(Verbosity.QUIET)
    display = _notebook()
    return Call(Verbosity.QUIET, _Line(display)) if display else Call(Verbosity.NORMAL)


class _Line:
    """A line of a notebook's output that says where a run stands."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._status = Status()
        self._began = time.monotonic()
        self._drawn = -PAUSE
        self._handle = display(self._bundle("starting"), raw=True, display_id=True)

    def __call__(self, event: Event) -> None:
        elapsed = time.monotonic() - self._began
        self._status.update(event, elapsed)
        if elapsed - self._drawn >= PAUSE:
            self._drawn = elapsed
            self._handle.update(self._bundle(self._status.text(elapsed)), raw=True)

    @staticmethod
    def _bundle(text: str) -> dict[str, str]:
        return {"text/plain": text}


def _notebook() -> Callable[..., Any] | None:
    """IPython's ``display`` where a notebook shows what it is given; None anywhere else."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if ipython is None or getattr(shell, "kernel", None) is None:
        return None
    display: Callable[..., Any] = ipython.display.display
    return display


def resources_of(
    device: str | int | None, precision: str, memory_limit: str | int | None
) -> Resources:
    """Where a call computes.

    Raises:
        InputError: there is no such precision, or a size is none.
    """
    one_of("precision", precision, ("double", "mixed"))
    if isinstance(memory_limit, str):
        from mltree.cli.options import size_of

        memory_limit = size_of(memory_limit)
    device = None if device is None else str(device)
    return Resources(device=device, mixed=precision == "mixed", memory_limit=memory_limit)


def one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Make sure that a word is one of those known; raises InputError."""
    words = list(known)
    if value not in words:
        raise InputError(f"{name}={value!r} is none of {', '.join(words)}")
