"""Calls from Python: their turn among threads, their progress, where they compute.

Calls take turns: OpenCL's kernels belong to one thread at a time, and two runs on one device take
no less time side by side. Ctrl-C, and a notebook's interrupt, end a call as Python has it, by a
KeyboardInterrupt; the next call starts afresh.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mltree.data.alignments import Source
from mltree.data.source import forget_pipes
from mltree.device.pocl.pocl import for_a_call
from mltree.runs.engines import Engines, Resources
from mltree.runs.inputs import AlignmentLike, newick_of, source_of
from mltree.runs.logged_run import breakdown_of
from mltree.runs.options import AnalysisOptions, one_of, size_of
from mltree.runs.trees import TreeResult
from mltree.system.events import Event, ignore

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


Progress: TypeAlias = bool | Callable[[Event], None]
"""True to show a call on a terminal or in a notebook; or a function that receives its events."""

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


class Call:
    """Receives the events of a call: remembers, shows, passes on."""

    def __init__(self, tell: Callable[[Event], None] = ignore) -> None:
        self.reporter: Reporter | None = None
        """Shows the events, and writes the log of a call that leaves files."""
        self._tell = tell
        self._last: dict[type[Event], Event] = {}
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Receive an event."""
        (self.reporter or self.hear)(event)

    def hear(self, event: Event) -> None:
        """Remember an event, and pass it on."""
        self._last[type(event)] = event
        self._tell(event)

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._began

    def timings(self, engines: Engines, result: TreeResult) -> dict[str, float]:
        """Seconds of the call, of the search or optimisation, and of devices."""
        spent = breakdown_of(engines)
        device = 0.0 if spent is None else spent.device_seconds
        return {"total": self.elapsed, "run": result.seconds, "device": device}

    def last(self, kind: type[Heard]) -> Heard | None:
        """The last event of a kind; None where there was none."""
        event = self._last.get(kind)
        return event if isinstance(event, kind) else None


@contextmanager
def calling(progress: Progress = False, in_files: bool = False) -> Iterator[Call]:
    """A call, in its turn: who receives its events; ``in_files``: those are logged."""
    with in_turn(), ExitStack() as stack:
        forget_pipes()
        display = _notebook() if progress and not callable(progress) else None
        call = Call(progress if callable(progress) else _Line(display) if display else ignore)
        is_shown = bool(progress) and not callable(progress) and display is None
        if is_shown or in_files:
            call.reporter = stack.enter_context(_reporter(call, is_shown))
        yield call


def _reporter(call: Call, is_shown: bool) -> Reporter:
    """Shows events on a terminal, or not, and lets the call hear them; loads rich."""
    from mltree.report.progress import Reporter, Verbosity, progress_terminal

    class HearingReporter(Reporter):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            call.hear(event)

    return HearingReporter(progress_terminal(), Verbosity.NORMAL if is_shown else Verbosity.QUIET)


class _Line:
    """A line of a notebook's output that says where a run stands."""

    def __init__(self, display: Callable[..., Any]) -> None:
        from mltree.report.progress import Status

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
        memory_limit = size_of(memory_limit)
    device = None if device is None else str(device)
    return Resources(device=device, mixed=precision == "mixed", memory_limit=memory_limit)


# Functions whose keywords, defaults and documentation are those of a command's options.

Asked = TypeVar("Asked", bound=AnalysisOptions)
Answer = TypeVar("Answer")

OF_COMMANDS = ("alignment", "separate", "threads", "ranks", "quiet", "verbose", "json")
"""Options of commands alone: a call has one alignment, and shows as much as ``progress`` asks."""

OF_FILES = ("prefix", "redo", "report", "site_rates", "site_lnl", "site_prob", "site_freq")
"""Options about files."""

SYNONYMS = {"start": "tree", "site_frequencies": "site_freqs"}
"""Other names of keywords."""

OPPOSITES = {"optimise_model": "no_opt_model", "optimise_branches": "no_opt_branches"}
"""Keywords that are true where an option is not given."""

TAXA = "names of the rows of a NumPy array"
PROGRESS = "true to show what happens; or a function that receives every event"
ALIGNMENT = "a path, or sequences in memory; see :mod:`mltree.runs.inputs`"


def taking(
    options: type[Asked], *first: str, without: Sequence[str] = OF_FILES
) -> Callable[[Callable[[Asked, Source, Call], Answer]], Callable[..., Answer]]:
    """Make a function take the options of a command as keywords.

    first    options that may be given by position, behind the alignment
    without  options that it does not take
    """
    described = options.described()
    named = [name for name in described if name not in {*OF_COMMANDS, *first, *without}]

    def parameter(name: str, by_position: bool = False) -> inspect.Parameter:
        both, alone = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        default = getattr(options, name, inspect.Parameter.empty)
        return inspect.Parameter(
            name, both if by_position else alone, default=default, annotation=options.type_of(name)
        )

    of_any = inspect.signature(_of_any).parameters
    signature = inspect.Signature(
        [
            of_any["alignment"],
            *(parameter(name, by_position=True) for name in first),
            of_any["taxa"],
            *map(parameter, named),
            of_any["progress"],
        ]
    )
    texts = {name: described[name].help for name in (*first, *named)}
    arguments = {"alignment": ALIGNMENT, "taxa": TAXA, **texts, "progress": PROGRESS}

    def decorate(function: Callable[[Asked, Source, Call], Answer]) -> Callable[..., Answer]:
        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Answer:
            keywords = {SYNONYMS.get(name, name): value for name, value in keywords.items()}
            for positive, option in OPPOSITES.items():
                if positive in keywords and option in described:
                    keywords[option] = not keywords.pop(positive)
            try:
                values = signature.bind(*arguments, **keywords).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            source = source_of(values.pop("alignment"), values.pop("taxa", None))
            progress = values.pop("progress", False)
            typed = {name: _typed(options, name, value) for name, value in values.items()}
            line = f"mltree.{function.__name__}(...)"
            asked = options(alignment="", line=line, **typed)
            asked.check()
            with calling(progress, in_files=asked.prefix is not None) as receiver:
                return function(asked, source, receiver)

        call.__signature__ = signature  # type: ignore[attr-defined]
        lines = "\n".join(f"{name}  {text}" for name, text in arguments.items())
        call.__doc__ = f"{inspect.getdoc(function)}\n\n{lines}\n\n{RAISES}\n"
        return call

    return decorate


RAISES = "Raises:\n    MltreeError: the data, the model, a tree or the device cannot be used."


def _of_any(
    alignment: AlignmentLike, *, taxa: Sequence[str] | None = None, progress: Progress = False
) -> None:
    """Parameters of every function."""


def _typed(options: type[AnalysisOptions], name: str, value: Any) -> Any:
    """A value as the command line would have it: paths, trees and numbers as text."""
    if value is None:
        return None
    if options.described()[name].reads == "tree":
        return newick_of(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    is_text = options.type_of(name) in (str, str | None)
    return str(value) if is_text and isinstance(value, int) else value
