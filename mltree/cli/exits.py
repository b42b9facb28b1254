"""How a command ends: errors become a line and an exit code, whatever happens to the output."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from mltree.cli.config import defaults, find, has_file, without_option
from mltree.cli.foreign_options import COMMANDS, translated
from mltree.cli.help import CONFIG_FILE, VARIABLES, format_group
from mltree.system.errors import DeviceError, InputError, MltreeError
from mltree.system.files import discard, is_there, sanitised
from mltree.system.process import FEW_THREADS, uninterrupted, wait_for_exit
from mltree.system.ranks import launch_error
from mltree.system.version import __version__

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


class Commands(TyperGroup):
    """The commands; expected errors become their line and their exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what stands before a command, once nothing is another program's."""
        with _ending(args):
            if (problem := launch_error()) is not None:
                raise problem
            _refuse_bytes(args)
            habits = None if ctx.resilient_parsing else translated(args, _model_here)
            if habits is not None:
                text, hint = habits
                raise InputError(text, hint=hint)
            _refuse_files(args)
            named, args = without_option(args)
            path = None if ctx.resilient_parsing else find(named)
            if path is not None:
                ctx.default_map = defaults(path, self._switches)
                ctx.meta[CONFIG_FILE] = str(path)
            self._set_switches(ctx)
            return super().parse_args(ctx, args)

    def _set_switches(self, ctx: Any) -> None:
        """Let switches be off, not nothing: typer would load pydantic (0.1 s) to tell."""
        for param in self.get_params(ctx):
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False

    @property
    def _switches(self) -> dict[str, dict[str, bool]]:
        """The options of every command as they are typed, and whether each is a switch."""
        found: dict[str, dict[str, bool]] = {}
        for name, command in self.commands.items():
            options = [param for param in command.params if param.param_type_name == "option"]
            found[name] = {str(p.name).replace("_", "-"): p.is_flag for p in options}  # type: ignore[attr-defined]
        return found

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _ending([*getattr(ctx, "_protected_args", ()), *ctx.args]):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(format_group(self, ctx))


def _model_here(program: str, name: str, options: Mapping[str, str]) -> str | None:
    """Another program's model as it is called here; numpy is not loaded before there is one."""
    from mltree.models.names import from_elsewhere

    return from_elsewhere(program, name, options)


def _refuse_files(args: Sequence[str]) -> None:
    """An alignment alone is no command."""
    if args and args[0] not in COMMANDS and is_there(args[0]):
        hint = f"mltree run {shlex.quote(args[0])} finds its tree; mltree --help tells more"
        raise InputError(f"{args[0]} is a file, not a command", hint=hint)


@contextmanager
def _ending(arguments: Sequence[str]) -> Iterator[None]:
    """Expected errors end the program: with a line, and an event where these arguments want it."""
    as_json = "--json" in arguments or bool(os.environ.get(f"{VARIABLES}JSON"))
    try:
        yield
    except BrokenPipeError as error:
        raise typer.Exit(EXIT_UNREAD) from error
    except (MltreeError, MemoryError, OSError, RuntimeError) as error:
        expected = _expected(error)
        if expected is None:
            if isinstance(error, RuntimeError):
                _tell_bug(error, as_json)
            raise
        _tell(expected, as_json)
        raise typer.Exit(EXIT_ERROR) from error
    except UsageError as error:
        message, hint = _misread(error)
        if as_json:
            _emit_error(message, hint, EXIT_ERROR)
        if not message:
            raise  # nothing was asked, and the help is the answer
        _complain(message, hint)
        raise typer.Exit(EXIT_ERROR) from error
    except (typer.Exit, SystemExit):
        raise
    except Exception as error:
        _tell_bug(error, as_json)
        raise


def _expected(error: Exception) -> MltreeError | None:
    """The error as one of ours: of memory, threads or a file's name; None for others."""
    if isinstance(error, MltreeError):
        return error
    if isinstance(error, OSError):
        unusable = InputError(f"{_shortened(str(error.filename))}: {error.strerror}")
        return unusable if error.errno in NO_NAMES else None
    if isinstance(error, MemoryError):
        return InputError(": ".join(filter(None, ["out of memory", str(error)])), hint=LESS)
    return InputError(FEW_THREADS) if str(error) == NO_THREAD else None


def _tell_bug(error: Exception, as_json: bool) -> None:
    """Report a bug as an event, where events are wanted."""
    if as_json:
        _emit_error(f"{type(error).__name__}: {error}", "a bug: please report it", EXIT_BUG)


def _tell(error: MltreeError, as_json: bool) -> None:
    """Say what is wrong, unless a signal has made it so."""
    if isinstance(error, DeviceError):
        wait_for_exit()
    if as_json:
        _emit_error(error.message, error.hint, EXIT_ERROR)
    _complain(error.message, error.hint)


def _emit_error(message: str, hint: str | None, code: int) -> None:
    """The last event of a command that failed, as ``--json`` has it."""
    event = {"event": "error", "message": message, "hint": hint, "code": code}
    with uninterrupted(), suppress(OSError, ValueError):
        print(json.dumps(event), flush=True)


def _misread(error: Any) -> tuple[str, str]:
    """Message and hint for a command line that cannot be read; nothing where it is empty."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return "", ""
    text = error.format_message().replace("Value error, ", "").rstrip(".")
    variable = _VARIABLE.search(text)
    if variable and variable[1] not in os.environ:
        text = text.replace(variable[0], "")
    message, *more = re.split(r"\. | \((?=Possible.*\)$)", text)
    command = error.ctx.command_path if error.ctx else "mltree"
    hints = [*(hint.rstrip(")") for hint in more), f"{command} --help tells more"]
    return _lowered(message), "; ".join(map(_lowered, hints))


def _shortened(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[:SHOWN]}..."


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _refuse_bytes(arguments: list[str]) -> None:
    """Names that are no text: no log, message or event could hold them."""
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= c <= "\udfff" for c in argument):
            shown = argument.encode("utf-8", "backslashreplace").decode()
            raise InputError(f"{shown}: not UTF-8 text", hint="rename the file")


def _complain(message: str, hint: str | None = None) -> None:
    """One line, the hint included."""
    with uninterrupted(), suppress(OSError):
        line = f"mltree: {message} ({hint})" if hint else f"mltree: {message}"
        print(sanitised(" ".join(line.split())), file=sys.stderr)


def leave_out_others(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Where a command is named first, let typer make that one alone: all of them take 0.05 s.

    A file of options is looked through for those of every command.
    """
    infos = {
        info.name or getattr(info.callback, "__name__", ""): info
        for info in app.registered_commands
    }
    named = infos.get("".join(arguments[:1]))
    if named is not None and not has_file(arguments):
        app.registered_commands = [named]


def exit_code(app: typer.Typer) -> int:
    """Run a command; its exit code."""
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
        _complain(f"cannot write to standard output: {error.strerror}")
        return EXIT_ERROR
    return code
