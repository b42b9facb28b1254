"""The reference of commands as Markdown, made from what ``--help`` is made from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import typer

from mltree.cli.help import metavar_of, names_of, option_groups, text_of
from mltree.cli.main import app

__all__ = ["commands_page"]

_MARKUP = re.compile(r"([\\`*_<>\[\]|{}$])")
"""What Markdown would take for more than itself."""


def commands_page() -> str:
    """A section for each command: what it does, how it is written, its options by group."""
    group = typer.main.get_command(app)
    context = group.make_context("mltree", [], resilient_parsing=True)
    commands = group.commands.items()  # type: ignore[attr-defined]
    return "\n".join(
        line for name, command in commands for line in _section(name, command, context)
    )


def _section(name: str, command: Any, parent: Any) -> Iterator[str]:
    context = type(parent)(command, info_name=name, parent=parent)
    shown = [param for param in command.get_params(context) if not getattr(param, "hidden", False)]
    yield from (f"## {name}", "")
    for paragraph in filter(None, (command.help or "").split("\n\n")):
        yield from (_plain(" ".join(paragraph.split())), "")
    yield from _code(" ".join(["mltree", name, *command.collect_usage_pieces(context)]))
    arguments = [param for param in shown if param.param_type_name == "argument"]
    yield from _table("Argument", ((metavar_of(param), param) for param in arguments))
    for title, options in option_groups(shown):
        heading = "Option" if title == "Options" else f"{title} option"
        yield from _table(heading, ((_written(option), option) for option in options))
    if command.epilog:
        yield from _code(command.epilog.partition(": ")[2])


def _written(option: Any) -> str:
    """``-m, --model MODEL``."""
    shown, value = names_of(option)
    return f"{shown.strip()} {value}".strip()


def _code(line: str) -> Iterator[str]:
    yield from ("```text", line, "```", "")


def _table(title: str, rows: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """A row for each parameter; nothing where there are none."""
    lines = [f"| `{_cell(written)}` | {_plain(text_of(param))} |" for written, param in rows]
    if lines:
        yield from (f"| {title} | |", "|---|---|", *lines, "")


def _cell(code: str) -> str:
    return code.replace("|", "\\|")


def _plain(prose: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKUP.sub(r"\\\1", prose)
