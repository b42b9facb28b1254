"""How a command ends: errors become a line and an exit code, whatever happens to the output."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from mltree import __version__
from mltree.errors import InputError, MltreeError
from mltree.report.terminal import turn_away
from mltree.stopping import unbroken

__all__ = ["EXIT_CODES", "Commands", "exit_code"]

EXIT_ERROR = 2
"""Input, a model or a device cannot be used: one line says which and what to do."""
EXIT_BUG = 70
"""Anything else that went wrong is a bug (EX_SOFTWARE of sysexits.h)."""
EXIT_UNREAD = 141
"""Whoever read the output has gone, as shells count it (SIGPIPE)."""

EXIT_CODES = (
    "Exit codes: 0 done; 2 input, model, device or output cannot be used (one line says why); "
    "70 a bug; 129, 130, 143 stopped by SIGHUP, Ctrl-C, SIGTERM; 141 nobody reads the output of "
    "a command that keeps no log."
)


class Commands(TyperGroup):
    """The commands; expected errors become their line and their exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            _refuse_bytes(ctx.args)
            return super().invoke(ctx)
        except MltreeError as error:
            _complain(error.message, error.hint)
            raise typer.Exit(EXIT_ERROR) from error
        except BrokenPipeError as error:
            raise typer.Exit(EXIT_UNREAD) from error


def _refuse_bytes(arguments: list[str]) -> None:
    """Names that are no text: no log, message or event could hold them."""
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= c <= "\udfff" for c in argument):
            shown = argument.encode("utf-8", "backslashreplace").decode()
            raise InputError(f"{shown}: not UTF-8 text", hint="rename the file")


def _complain(message: str, hint: str | None = None) -> None:
    """One line, the hint included."""
    with unbroken(), suppress(OSError):
        line = f"mltree: {message} ({hint})" if hint else f"mltree: {message}"
        print(" ".join(line.split()), file=sys.stderr)


def exit_code(app: typer.Typer) -> int:
    """Run a command; its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(app)
    except Exception:
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
        turn_away(sys.stdout)  # files have names, only streams have none
        if isinstance(error, BrokenPipeError):
            return EXIT_UNREAD
        _complain(f"cannot write to standard output: {error.strerror}")
        return EXIT_ERROR
    return code
