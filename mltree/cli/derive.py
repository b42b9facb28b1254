"""Commands from options: what typer needs to know of a command, from its class of options.

The keys of ``mltree.toml`` and the ``MLTREE_`` variables are those of the command's parameters; see
:mod:`mltree.cli.config` and :mod:`mltree.cli.help`.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mltree.cli.help import origins, untyped
from mltree.runs.options import Option, Options, ShownOptions
from mltree.system.errors import InputError
from mltree.system.rank_start import start

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


class Analysis(NamedTuple):
    """A command: the analysis that it runs."""

    options: type[ShownOptions]
    function: str
    """``module:function`` in :mod:`mltree.analyses`, which takes the options and a reporter."""
    example: str
    """Arguments that work."""


class Derived:
    """The function that typer makes a command of; its parameters are derived when typer asks."""

    def __init__(self, name: str, analysis: Analysis) -> None:
        self.__name__, self.__doc__ = name, analysis.options.__doc__
        self.__annotations__: dict[str, Any] = {}  # the signature has them
        self._analysis = analysis

    @property
    def __signature__(self) -> inspect.Signature:
        options = self._analysis.options
        described = options.described().items()
        return inspect.Signature([_parameter(options, *item) for item in described])

    def __call__(self, **typed: Any) -> None:
        """Run the analysis with the values that were typed."""
        options, function, _ = self._analysis
        values = {name: getattr(value, "value", value) for name, value in typed.items()}
        for name, option in options.described().items():
            if option.rest is not None:
                values[option.rest] = tuple(values[name])
                values[name] = values[name][0]
        start(values.get("ranks"))
        asked = options(**values, line=command_line(), origins=dict(origins()))
        module, _, function = function.partition(":")
        run = getattr(import_module(f"mltree.analyses.{module}"), function)
        with reporter_of(asked) as reporter:
            run(asked, reporter)


def _parameter(options: type[Options], name: str, option: Option) -> inspect.Parameter:
    """A parameter as typer reads it."""
    kind = options.type_of(name)
    default = getattr(options, name, inspect.Parameter.empty)
    if option.choices:
        kind = _enumeration(name, option.choices)
        default = kind(default)
    elif option.rest is not None:
        kind = list[kind]  # type: ignore[valid-type]
    more: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar,
        "rich_help_panel": option.panel,
        "parser": None if option.parse is None else _parser(option.parse),
        "min": option.least,
        "is_eager": option.is_eager,
        "case_sensitive": not option.any_case,
    }
    info = typer.Option(*option.names, **more) if option.names else typer.Argument(**more)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _enumeration(name: str, choices: tuple[str, ...]) -> Any:
    """Choices as typer takes them."""
    return Enum(name, {choice: choice for choice in choices}, type=str)


def _parser(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser whose message is told as it is."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["mltree", *sys.argv[1:]])


def idle(options: Options) -> Iterator[str]:
    """Texts that tell which options that are typed do nothing, for want of others."""
    for name, option in options.described().items():
        known = [other for other in option.only_with if other in options.origins]
        is_idle = known and all(options.origins[other][0] is None for other in known)
        if is_idle and options.origins.get(name, (None, "default"))[1] == "typed":
            shown, needed = (text.replace("_", "-") for text in (name, known[0]))
            yield f"--{shown} does nothing without --{needed}"


def reporter_of(options: ShownOptions) -> Reporter:
    """Show the events of a run, as many of them as the options ask for.

    Options that were not typed, and options that do nothing, are told first, even where
    ``mltree.toml`` asks for quiet.

    Raises:
        InputError: nothing and everything is wanted.
    """
    from mltree.report.progress import Reporter, Verbosity
    from mltree.report.terminal import progress_terminal, result_terminal
    from mltree.system.events import Notice

    quiet, verbose = options.quiet, getattr(options, "verbose", False)
    if quiet and verbose:
        raise InputError("--quiet and --verbose exclude each other")
    verbosity = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL
    terminal = progress_terminal()
    reporter = Reporter(terminal, verbosity, json_lines=options.json, results=result_terminal())
    is_typed = options.origins.get("quiet", (False, "typed"))[1] == "typed"
    teller = reporter if is_typed or options.json or not quiet else Reporter(terminal)
    for text in (*untyped(), *idle(options)):
        teller(Notice(text))
    return reporter
