"""How a command ends: errors become a line and an exit code, whatever happens to the output."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any

import typer

from mltree.cli.help import VARIABLES
from mltree.system import __version__
from mltree.system.errors import DeviceError, InputError, MltreeError
from mltree.system.files import discard, sanitised
from mltree.system.process import FEW_THREADS, uninterrupted, wait_for_exit

EXIT_ERROR = 2
"""Input, a model or a device cannot be used: one line says which and what to do."""
EXIT_BUG = 70
"""Anything else that went wrong is a bug (EX_SOFTWARE of sysexits.h)."""
EXIT_UNREAD = 141
"""Whoever read the output has gone, as shells count it (SIGPIPE)."""

NO_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
"""Error numbers of names that no file can have."""

SHOWN = 60
"""Characters of a name that is too long."""

LESS = "smaller data, or a machine with more memory"

EXIT_CODES = (
    "Exit codes: 0 done; 2 input, model, device or output cannot be used (one line says why); "
    "70 a bug; 129, 130, 143 stopped by SIGHUP, Ctrl-C, SIGTERM; 141 nobody reads the output of "
    "a command that keeps no log."
)

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Error of a command line that cannot be read; typer exports the special case alone."""

NO_THREAD = "can't start new thread"
"""Python's message when the system refuses a thread."""

_VARIABLE = re.compile(r" \(env var: '(\w+)'\)")
"""The variable that stands for an option, in what typer says of a bad value."""


@contextmanager
def ending(arguments: Sequence[str]) -> Iterator[None]:
    """End the program at an expected error: with a line, and an event if the arguments want it."""
    as_json = "--json" in arguments or bool(os.environ.get(f"{VARIABLES}JSON"))
    try:
        yield
    except (typer.Exit, SystemExit):
        raise
    except BrokenPipeError as error:
        raise typer.Exit(EXIT_UNREAD) from error
    except Exception as error:
        if not _is_told(error, as_json):
            raise
        raise typer.Exit(EXIT_ERROR) from error


def _is_told(error: Exception, as_json: bool) -> bool:
    """Say what is wrong; False for a bug, and for an empty command line, whose answer is help."""
    if isinstance(error, UsageError):
        message, hint = _misread(error)
    elif (expected := _expected(error)) is not None:
        message, hint = expected.message, expected.hint
    else:
        if as_json and not isinstance(error, OSError):
            bug = f"{type(error).__name__}: {error}"
            _emit_error(bug, "a bug: please report it", EXIT_BUG)
        return False
    if isinstance(error, DeviceError):
        wait_for_exit()  # a signal may have made it fail
    if as_json:
        _emit_error(message, hint, EXIT_ERROR)
    if message:
        complain(message, hint)
    return bool(message)


def _expected(error: Exception) -> MltreeError | None:
    """The error as one of ours: of memory, threads or a file's name; None for others."""
    if isinstance(error, MltreeError):
        return error
    if isinstance(error, OSError) and error.errno in NO_NAMES:
        name = str(error.filename)
        shown = name if len(name) <= SHOWN else f"{name[:SHOWN]}..."
        return InputError(f"{shown}: {error.strerror}")
    if isinstance(error, MemoryError):
        return InputError(": ".join(filter(None, ["out of memory", str(error)])), hint=LESS)
    return InputError(FEW_THREADS) if str(error) == NO_THREAD else None


def _emit_error(message: str, hint: str | None, code: int) -> None:
    """The last event of a command that failed, as ``--json`` has it."""
    event = {"event": "error", "message": message, "hint": hint, "code": code}
    with uninterrupted(), suppress(OSError, ValueError):
        print(json.dumps(event), flush=True)


def _misread(error: Any) -> tuple[str, str | None]:
    """Message and hint for a command line that cannot be read; nothing where it is empty."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return "", ""
    text = error.format_message().replace("Value error, ", "").rstrip(".")
    variable = _VARIABLE.search(text)
    if variable and variable[1] not in os.environ:
        text = text.replace(variable[0], "")
    message, *more = re.split(r"\. | \((?=Possible.*\)$)", text)
    command = error.ctx.command_path if error.ctx else "mltree"
    hints = [*(_elsewhere(error) or [hint.rstrip(")") for hint in more]), f"see {command} --help"]
    message, *hints = (text[:1].lower() + text[1:] for text in (message, *hints))
    return message, "; ".join(hints).replace("?; see", "? See")


def _elsewhere(error: Any) -> list[str]:
    """Hint at an option that the command does not have, but others do."""
    option, ctx = getattr(error, "option_name", None), error.ctx
    if option is None or ctx is None or any(option in p.opts for p in ctx.command.params):
        return []
    if option == f"--{ctx.command.name}" and any(
        p.name == "replicates" for p in ctx.command.params
    ):
        return [f"here it is --replicates N: {ctx.command_path} ALIGNMENT --replicates 100"]
    find = getattr(ctx.find_root().command, "with_option", None)
    owners = find(option) if find is not None else []
    return [f"an option of mltree {', '.join(owners)}"] if owners else []


def complain(message: str, hint: str | None = None) -> None:
    """Print an error in one line, the hint included."""
    with uninterrupted(), suppress(OSError):
        line = f"mltree: {message} ({hint})" if hint else f"mltree: {message}"
        print(sanitised(" ".join(line.split())), file=sys.stderr)


def exit_code(app: typer.Typer) -> int:
    """Run a command, and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(app)
    except Exception:
        import traceback

        traceback.print_exc()
        print(
            f"This is a bug in mltree {__version__}: please report the lines above with the "
            "command (CONTRIBUTING.md says where).",
            file=sys.stderr,
        )
        return EXIT_BUG


def _run(app: typer.Typer) -> int:
    """The exit code, once all that was printed is safely out."""
    code = 0
    try:
        try:
            app(prog_name="mltree")
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        discard(sys.stdout)  # files have names, only streams have none
        if isinstance(error, BrokenPipeError):
            return EXIT_UNREAD
        complain(f"cannot write to standard output: {error.strerror}")
        return EXIT_ERROR
    return code
