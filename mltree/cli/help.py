"""Text of ``--help``, and commands that take options from the environment too.

Typer's own help draws boxes with rich, which takes a quarter of a second to load; this one is text,
in groups, as wide as the terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from mltree.cli import arguments
from mltree.runs.options import ADVANCED, OUTPUT, STATISTICS, SUPPORTS
from mltree.system.errors import InputError
from mltree.system.process import check_limits

COMMANDS = {
    "Trees and models": (
        "run", "search", "model", "evaluate", "ancestral", "date", "sample", "summarize",
    ),
    "Supports and tests": (
        "bootstrap", "alrt", "support", "bootstop", "consensus", "rf", "concordance", "test",
        "sitelh",
    ),
    "Communities": ("unifrac",),
    "Tools": ("check", "report", "draw", "convert", "simulate"),
    "This machine": ("devices", "compare"),
}  # fmt: skip
"""All commands by group, each group with what is wanted most first."""

VARIABLES = "MLTREE_"
"""Prefix of the environment variables that stand for options."""

WIDEST = 100
"""Columns; longer lines are hard to read."""

NAMES_UP_TO = 30
"""Columns of options with their values; behind longer ones the text begins on the next line."""

BOLD, CYAN, OFF = "\x1b[1m", "\x1b[36m", "\x1b[0m"

_ORIGINS = {"COMMANDLINE": "typed", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}

CONFIG_FILE = "mltree.config"
"""Key of the options file in the metadata that typer keeps of a command line."""

CONSEQUENTIAL = ("redo", "out", "prefix")
"""Options that decide which files are written, and which of them replaced."""


def origins(ctx: Any) -> dict[str, tuple[Any, str]]:
    """A command's options by name: their values, and where each is from.

    That is ``typed``, ``environment``, ``file`` or ``default``.
    """
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {
        name: (ctx.params[name], _ORIGINS.get(source.name if source else "", "default"))
        for name, source in sources.items()
    }


def untyped(ctx: Any) -> Iterator[str]:
    """Notes on options of a command that are not typed: where they are from.

    Every option of a file is told; of environment variables, which users set themselves, those
    alone that may cost a file.
    """
    items = origins(ctx).items()
    in_file = {name: value for name, (value, origin) in items if origin == "file"}
    if in_file:
        yield f"options from {ctx.meta.get(CONFIG_FILE, '')}: {_assigned(in_file)}"
    variables = {
        VARIABLES + name.upper(): value
        for name, (value, origin) in items
        if origin == "environment" and name in CONSEQUENTIAL
    }
    if variables:
        yield f"options from the environment: {_assigned(variables)}"


def _assigned(values: Mapping[str, Any]) -> str:
    shown = {name: getattr(value, "value", value) for name, value in values.items()}
    return ", ".join(
        f"{name} = {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in shown.items()
    )


class Command(TyperCommand):
    """A command whose options may be variables, and whose help is text."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for param in self.params:
            if param.param_type_name == "option":
                param.envvar = VARIABLES + str(param.name).upper()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; what is wrong with it is this command's."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:
                vars(error)["ctx"] = ctx
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless NumPy cannot be loaded or a value is empty: an unset variable.

        Raises: InputError: too low limits, or an empty value.
        """
        for param in self.params:
            value = ctx.params.get(param.name)
            if "" in (value if isinstance(value, list | tuple) else (value,)):
                is_option = param.param_type_name == "option"
                name = max(param.opts, key=len) if is_option else metavar_of(param)
                hint = "give a value, or leave the option out; is a shell variable unset?"
                raise InputError(f"{name} is empty", hint=hint)
        check_limits()
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Usage behind the command's name."""
        return [
            "[OPTIONS]",
            *(metavar_of(p) for p in self.params if p.param_type_name == "argument"),
        ]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the text of ``--help``."""
        formatter.write(format_command(self, ctx))


def format_command(command: TyperCommand, ctx: Any) -> str:
    """The help of a command: what it does, its usage, its options by group, an example."""
    pen = _Pen()
    shown = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    pen.paragraphs(command.help or "")
    pen.usage(" ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]))
    files = [param for param in shown if param.param_type_name == "argument"]
    pen.table("Arguments", [(metavar_of(param), "", text_of(param)) for param in files])
    for title, options in option_groups(shown):
        pen.table(title, [(*names_of(option), text_of(option)) for option in options])
    pen.example(command.epilog or "")
    return pen.text


def format_group(group: TyperGroup, ctx: Any) -> str:
    """The help of all commands: a line each, by group, and the options that go before them."""
    pen = _Pen()
    pen.paragraphs(group.help or "")
    pen.usage(f"{ctx.command_path} [OPTIONS] COMMAND ...")
    width = max(map(len, group.commands))
    for title, names in COMMANDS.items():
        lines = [(name, "", _first_paragraph(group.commands[name].help or "")) for name in names]
        pen.table(title, lines, width)
    for title, options in option_groups(group.get_params(ctx)):
        rows = [(*names_of(option), text_of(option)) for option in options]
        pen.table(title, [("    " + arguments.OPTION, "FILE", arguments.HELP), *rows])
    pen.paragraphs(group.epilog or "")
    return pen.text


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(".")


def option_groups(params: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Options by group: those without one first, the advanced ones last."""
    options = [param for param in params if param.param_type_name == "option"]
    for group in (None, SUPPORTS, STATISTICS, OUTPUT, ADVANCED):
        members = [
            option for option in options if getattr(option, "rich_help_panel", None) == group
        ]
        if members:
            yield group or "Options", members


def metavar_of(param: Any) -> str:
    """Word that stands for the value of a parameter."""
    return str(param.metavar or param.name.upper())


def names_of(option: Any) -> tuple[str, str]:
    """``-m, --model`` and ``MODEL``; a switch has no value."""
    short = [name for name in option.opts if not name.startswith("--")]
    long = [name for name in option.opts if name.startswith("--")]
    shown = ", ".join([*short, *long]) if short else "    " + ", ".join(long)
    return shown, "" if option.is_flag else metavar_of(option)


def text_of(param: Any) -> str:
    """Help of a parameter, with its default where that is worth showing, or ``[required]``."""
    text = " ".join((param.help or "").split())
    default = getattr(param.default, "value", param.default)
    if param.required and param.param_type_name == "option":
        return f"{text} [required]"
    if default is None or isinstance(default, bool) or callable(default):
        return text
    return f"{text} [default: {default}]"


class _Pen:
    """Writes text in columns, in colour where a terminal has some."""

    def __init__(self) -> None:
        self.text = ""
        self._width = min(shutil.get_terminal_size().columns, WIDEST)
        has_colour = bool(sys.stdout and sys.stdout.isatty()) and not os.environ.get("NO_COLOR")
        self._has_colour = has_colour and os.environ.get("TERM") != "dumb"

    def paragraphs(self, text: str) -> None:
        """Paragraphs, filled to the width."""
        for paragraph in filter(None, text.strip().split("\n\n")):
            self._part(textwrap.fill(" ".join(paragraph.split()), self._width) + "\n")

    def usage(self, text: str) -> None:
        """How the command is written."""
        self._part(f"{self._styled('Usage:', BOLD)} {text}\n")

    def example(self, text: str) -> None:
        """``Example: COMMAND``, whose command stays in one line, to be copied."""
        heading, _, line = text.partition(": ")
        if line:
            self._part(f"{self._styled(heading + ':', BOLD)}\n  {line}\n")

    def table(self, title: str, rows: Sequence[tuple[str, str, str]], least: int = 0) -> None:
        """Names, their values, and what they are; names take so many columns at least."""
        if not rows:
            return
        widths = [len(f"{name} {value}".rstrip()) for name, value, _ in rows]
        column = max(least, *(width for width in widths if width <= NAMES_UP_TO), 0)
        lines = [self._styled(f"{title}:", BOLD)]
        for (name, value, text), width in zip(rows, widths, strict=True):
            head = f"  {self._styled(name, CYAN)}" + (f" {value}" if value else "")
            left = max(self._width - column - 4, 20)
            body = textwrap.wrap(text, left, break_on_hyphens=False) or [""]
            pad = " " * (column + 4)
            if width <= column:
                head += " " * (column - width) + "  " + body.pop(0)
            lines += [head.rstrip(), *(pad + line for line in body)]
        self._part("\n".join(lines) + "\n")

    def _part(self, text: str) -> None:
        self.text += ("\n" if self.text else "") + text

    def _styled(self, text: str, style: str) -> str:
        if not self._has_colour:
            return text
        body = text.lstrip()
        return text[: len(text) - len(body)] + style + body + OFF
