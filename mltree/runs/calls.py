"""Calls from Python: their turn among threads, their progress, where they compute.

Calls take turns: OpenCL's kernels belong to one thread at a time, and two runs on one device take
no less time side by side. Ctrl-C, and a notebook's interrupt, end a call as Python has it, by a
KeyboardInterrupt; the next call starts afresh.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from functools import wraps
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

import numpy as np

from mltree.data.source import forget_pipes
from mltree.device.pocl.pocl import for_a_call
from mltree.runs.engines import Engines, Resources
from mltree.runs.inputs import AlignmentLike, model_of, newick_of, newicks_of, source_of
from mltree.runs.logged_run import breakdown_of
from mltree.runs.options import Option, Options, one_of, size_of
from mltree.runs.trees import TreeResult
from mltree.system.errors import InputError, MltreeError
from mltree.system.events import Event, ignore
from mltree.system.process import at_most

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
def in_turn(threads: int | None = None, options: type[Options] | None = None) -> Iterator[None]:
    """Wait for the calls of other threads to end, and leave the environment as it was.

    threads  CPUs that the call computes on at most
    options  those whose names its errors mention, for the caller's words
    """
    with _turn, at_most(threads), for_a_call():
        try:
            yield
        except MltreeError as error:
            error.message = in_python(error.message, options)
            error.hint = error.hint and in_python(error.hint, options)
            error.args = (error.message,)
            raise


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
def calling(
    progress: Progress = False,
    in_files: bool = False,
    threads: int | None = None,
    options: type[Options] | None = None,
) -> Iterator[Call]:
    """A call, in its turn: who receives its events; ``in_files``: those are logged.

    See :func:`in_turn` for the rest.
    """
    with in_turn(threads, options), ExitStack() as stack:
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


def threads_of_call(threads: int | None) -> int | None:
    """CPUs that a call may use at most. Raises: InputError: it is not a number from 1 on."""
    if threads is not None and (number := _whole("threads", threads)) >= 1:
        return number
    if threads is None:
        return None
    raise InputError(f"threads={threads!r}: 1 at least, please")


# Functions whose keywords, defaults and documentation are those of a command's options.

Asked = TypeVar("Asked", bound=Options)
Answer = TypeVar("Answer")

OF_COMMANDS = ("alignment", "separate", "ranks", "quiet", "verbose", "json")
"""Options of commands alone: a call has one alignment, and shows as much as ``progress`` asks."""

OF_FILES = (
    "prefix", "redo", "report", "site_rates", "site_lnl", "site_prob", "site_freq", "file_format",
    "out", "true_tree",
)  # fmt: skip
"""Options about files."""

SYNONYMS = {"start": "tree", "site_frequencies": "site_freqs"}
"""Other names of keywords."""

OPPOSITES = {"optimise_model": "no_opt_model", "optimise_branches": "no_opt_branches"}
"""Keywords that are true where an option is not given."""

OF_SEQUENCES = ("gaps_from", "frequencies_from")
"""Options that name an alignment, which may be one in memory."""

TAXA = "names of the rows of a NumPy array"
PROGRESS = "true to show what happens; or a function that receives every event"
ALIGNMENT = "a path, or sequences in memory; see :mod:`mltree.runs.inputs`"


def taking(
    options: type[Asked], *first: str, without: Sequence[str] = OF_FILES, of_data: bool = True
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Make a function take the options of a command as keywords.

    The function is given the options, the source of its data, and the call.

    first    options that may be given by position, behind the alignment
    without  options that it does not take
    of_data  False for a function without an alignment, which is given no source
    """
    described = options.described()
    named = [name for name in described if name not in {*OF_COMMANDS, *first, *without}]
    signature = _signature(options, first, named, of_data)
    texts = {name: _explained(options, name) for name in (*first, *named)}
    texts = {"alignment": ALIGNMENT, "taxa": TAXA, "progress": PROGRESS, **texts}

    def decorate(function: Callable[..., Answer]) -> Callable[..., Answer]:
        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Answer:
            given = _bound(function.__name__, signature, options, arguments, keywords)
            source = []
            if of_data:
                source.append(source_of(given.pop("alignment"), given.pop("taxa", None)))
            progress = given.pop("progress", False)
            values = {name: _typed(options, name, value) for name, value in given.items()}
            nowhere = {name: "" for name in (*OF_COMMANDS, *OF_FILES) if _is_needed(options, name)}
            line = f"mltree.{function.__name__}(...)"
            asked = options(**{**nowhere, **values, "line": line})
            asked.check()
            in_files, threads = bool(getattr(asked, "prefix", None)), values.get("threads")
            with calling(progress, in_files, threads, options) as receiver:
                return function(asked, *source, receiver)

        call.__signature__ = signature  # type: ignore[attr-defined]
        lines = "\n".join(f"{name}  {texts[name]}" for name in signature.parameters)
        call.__doc__ = f"{inspect.getdoc(function)}\n\n{lines}\n\n{RAISES}\n"
        return call

    return decorate


RAISES = """Raises:
    InputError: the data, a tree or an argument cannot be used.
    ModelError: the model cannot be used, or not for these data.
    DeviceError: the device cannot be found or used.
    NumericalError: a likelihood is not a number."""


def _of_any(
    alignment: AlignmentLike, *, taxa: Sequence[str] | None = None, progress: Progress = False
) -> None:
    """Parameters of every function of an alignment."""


def _signature(
    options: type[Options], first: Sequence[str], named: Sequence[str], of_data: bool
) -> inspect.Signature:
    """The signature of a function that takes options, some of them by position."""
    by_position, by_name = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY,
    )  # fmt: skip

    def parameter(name: str, kind: Any) -> inspect.Parameter:
        default = None if name in OF_FILES else inspect.Parameter.empty
        default = getattr(options, name, default)
        return inspect.Parameter(name, kind, default=default, annotation=_annotation(options, name))

    alignment, taxa, progress = inspect.signature(_of_any).parameters.values()
    return inspect.Signature(
        [
            *[alignment] * of_data,
            *(parameter(name, by_position) for name in first),
            *[taxa] * of_data,
            *(parameter(name, by_name) for name in named),
            progress,
        ]
    )


def _explained(options: type[Options], name: str) -> str:
    """The help of an option in the words of Python, with its choices."""
    option = options.described()[name]
    choices = (option.metavar or "").split("|")
    shown = f" One of: {', '.join(choices)}." if len(choices) > 1 else ""
    return in_python(option.help, options) + shown


def _annotation(options: type[Options], name: str) -> Any:
    """The type of a keyword: that of its option, or what stands for a tree, a model, sequences."""
    reads = options.described()[name].reads
    if name == "model" or name in OF_SEQUENCES:
        return "ModelLike" if name == "model" else "AlignmentLike"
    return {"tree": "TreeLike", "trees": "Iterable[TreeLike]"}.get(reads, options.type_of(name))


def _is_needed(options: type[Options], name: str) -> bool:
    """True for an option that has no default."""
    return name in options.__dataclass_fields__ and not hasattr(options, name)


def _bound(
    function: str,
    signature: inspect.Signature,
    options: type[Options],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    """Arguments by the names of options, without those that leave an option as it is.

    Raises: TypeError, as Python does, where an argument is missing, unknown or there twice.
    """
    described, known = options.described(), signature.parameters
    by_name = dict(keywords)
    for synonym, name in SYNONYMS.items():
        if synonym in by_name and synonym not in known and name in known:
            by_name[name] = by_name.pop(synonym)
    for positive, name in OPPOSITES.items():
        if positive in by_name and name in known:
            by_name[name] = not by_name.pop(positive)
    try:
        given = signature.bind(*arguments, **by_name).arguments
    except TypeError as error:
        unknown = (name for name in by_name if name not in known)
        alike = [word for name in unknown for word in get_close_matches(name, known, 1)]
        hint = f"; did you mean {alike[0]!r}?" if alike else ""
        raise TypeError(f"{function}() {error}{hint}") from None
    return {
        name: value for name, value in given.items() if value is not None or name not in described
    }


def _typed(options: type[Options], name: str, value: Any) -> Any:
    """A value as a command has it: trees, models and paths as text, whole numbers as int.

    Raises: InputError: the option cannot have it.
    """
    option = options.described()[name]
    kinds = {*get_args(options.type_of(name)), options.type_of(name)}
    if option.reads in ("tree", "trees"):
        return newick_of(value) if option.reads == "tree" else newicks_of(value)
    if name in ("model", "threads"):  # the parser of threads sets those of the process
        return model_of(value) if name == "model" else threads_of_call(value)
    if name in OF_SEQUENCES:
        return source_of(value)
    if bool in kinds:
        return _switch(name, value)
    convert = _whole if int in kinds else _number if float in kinds else _text
    typed: Any = convert(name, value)
    _check_value(option, name, typed)
    return typed.lower() if option.any_case else typed


def _check_value(option: Option, name: str, value: Any) -> None:
    """Make sure that an option can have a value of its type; raises InputError."""
    if option.least is not None and value < option.least:
        raise InputError(f"{name}={value!r}: {option.least} at least, please")
    if option.parse is not None:
        try:
            option.parse(str(value))
        except ValueError as error:
            raise InputError(f"{name}={value!r}: {error}") from None


def _switch(name: str, value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(f"{name}={value!r} is neither True nor False")


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, bool | np.bool_):
        try:
            return index(int(value) if isinstance(value, float) and value.is_integer() else value)
        except TypeError:
            pass
    raise InputError(f"{name}={value!r} is not a whole number")


def _number(name: str, value: Any) -> float:
    if _is_number(value):
        return float(value)
    raise InputError(f"{name}={value!r} is not a number")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _text(name: str, value: Any) -> str:
    """Text of a word, a path, a number, or of several with commas between."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if _is_number(value):
        return str(int(value) if float(value).is_integer() else value)
    if isinstance(value, Sequence | Set | np.ndarray):
        return ",".join(_text(name, one) for one in value)
    raise InputError(f"{name}={value!r} is not text")


# Messages in the words of Python: ``sh_alrt=0`` instead of ``--sh-alrt 0``.

_OPTION = re.compile(r"--([a-z][a-z0-9-]*[a-z0-9])(?:[ =]([^\s,;:()'\"`]+))?")
_COMMAND = re.compile(r"`mltree ([a-z]+)([^`]*)`")
_VALUE = re.compile(r"[0-9][0-9.,]*|[A-Z]\S*[+{0-9]\S*|auto|none|all|reference")
"""Values of options that messages show."""


def in_python(text: str, options: type[Options] | None = None) -> str:
    """A message of commands in the words of their functions.

    options  those of the function, whose names, switches and words are known
    """
    described = {} if options is None else options.described()
    fields = {name: field for field, option in described.items() for name in option.names}

    def keyword(match: re.Match[str]) -> str:
        text = match.string
        name, value = fields.get(f"--{match[1]}", match[1].replace("-", "_")), match[2]
        option, behind = described.get(name), ""
        ends = text[match.end() : match.end() + 1] == ":"
        known = () if option is None else (*option.choices, value if ends else None)
        if value is not None and not (_VALUE.fullmatch(value) or value in known):
            behind = "" if option and value == option.metavar else match[0][-len(value) - 1 :]
            value = None
        if value is not None:
            return f"{name}={value if value[0].isdigit() else repr(value)}"
        if options is not None and option and options.type_of(name) is bool:
            return f"{name}=True{behind}"
        return name if ends and not behind else f"{name}={behind}"

    def function(match: re.Match[str]) -> str:
        return f"`mltree.{match[1]}({', '.join(_OPTION.sub(keyword, match[2]).split())})`"

    return _OPTION.sub(keyword, _COMMAND.sub(function, text))
