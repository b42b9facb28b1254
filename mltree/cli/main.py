"""The commands: of each its options, the analysis that it runs, and an example.

Nothing heavy is imported before a command runs, so that ``mltree --help`` answers at once.
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

from mltree.analyses import options
from mltree.cli.exits import EXIT_CODES, Commands, exit_code, leave_out_others
from mltree.cli.help import Command, origins, untyped
from mltree.runs.options import Option, Options, ShownOptions
from mltree.system.errors import InputError
from mltree.system.rank_start import start
from mltree.system.version import __version__

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# Commands from options: what typer needs to know of a command, from its class of options.
#
# The keys of ``mltree.toml`` and the ``MLTREE_`` variables are those of the command's parameters;
# see :mod:`mltree.cli.config` and :mod:`mltree.cli.help`.


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
    from mltree.report.progress import Reporter, Verbosity, progress_terminal, result_terminal
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


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Maximum-likelihood phylogenetic trees on any OpenCL device: GPUs, or the CPU.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _mltree(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
) -> None:
    if version:
        print(f"mltree {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


ANALYSES = {
    "search": Analysis(
        options.SearchOptions,
        "loci:run_searches",
        "datasets/primates.phy --model HKY+G4 --prefix primates",
    ),
    "compare": Analysis(
        options.CompareOptions,
        "check:run_compare",
        "datasets/primates.phy --tree primates.mltree.bestTree --model primates.mltree.bestModel",
    ),
    "devices": Analysis(options.DevicesOptions, "check:run_devices", ""),
    "check": Analysis(options.CheckOptions, "check:run_check", "datasets/frogs.phy"),
    "run": Analysis(
        options.RunOptions, "pipeline:run_pipeline", "datasets/primates.phy --prefix primates"
    ),
    "bootstrap": Analysis(
        options.BootstrapOptions,
        "bootstrap:run_bootstrap",
        "datasets/primates.phy --replicates 100 --tree primates.mltree.bestTree "
        "--model primates.mltree.bestModel",
    ),
    "model": Analysis(
        options.ModelChoiceOptions, "model_selection:run_model", "datasets/primates.phy"
    ),
    "evaluate": Analysis(
        options.EvaluateOptions,
        "evaluate:run_evaluate",
        "datasets/primates.phy --tree primates.mltree.bestTree",
    ),
    "support": Analysis(
        options.SupportOptions,
        "tree_sets:run_support",
        "primates.mltree.bestTree --trees datasets/primates.bootstraps --metric fbp,tbe",
    ),
    "consensus": Analysis(
        options.ConsensusOptions,
        "tree_sets:run_consensus",
        "datasets/primates.bootstraps --type majority,extended --prefix primates",
    ),
    "rf": Analysis(
        options.DistanceOptions,
        "tree_sets:run_rf",
        "datasets/primates.bootstraps --reference primates.mltree.bestTree --weighted "
        "--prefix primates",
    ),
    "bootstop": Analysis(
        options.BootstopOptions, "tree_sets:run_bootstop", "datasets/primates.bootstraps"
    ),
    "alrt": Analysis(
        options.BranchTestOptions,
        "tree_tests:run_alrt",
        "datasets/primates.phy --tree primates.mltree.bestTree --model HKY+G4 "
        "--tests sh-alrt,abayes",
    ),
    "test": Analysis(
        options.TreeTestOptions,
        "tree_tests:run_test",
        "datasets/primates.phy --trees rivals.nwk --model HKY+G4",
    ),
    "concordance": Analysis(
        options.ConcordanceOptions,
        "tree_sets:run_concordance",
        "primates.mltree.bestTree --gene-trees datasets/primates.bootstraps "
        "--alignment datasets/primates.phy",
    ),
    "report": Analysis(options.ReportOptions, "html_report:run_report", "primates"),
    "draw": Analysis(
        options.DrawOptions, "convert:run_draw", "primates.mltree.bestTree -o primates.svg"
    ),
    "simulate": Analysis(
        options.SimulateOptions,
        "simulate:run_simulate",
        "--taxa 50 --random-tree yule --model HKY{3}+FE+G4{0.5} "
        "--sites 1000 -o simulated.fasta --true-tree simulated.nwk",
    ),
    "sitelh": Analysis(
        options.SiteLnlOptions,
        "tree_tests:run_sitelh",
        "datasets/primates.phy --trees primates.mltree.bestTree --model HKY+G4 --prefix primates",
    ),
    "convert": Analysis(
        options.ConvertOptions, "convert:run_convert", "datasets/primates.phy -o primates.nex"
    ),
    "ancestral": Analysis(
        options.AncestralOptions,
        "ancestral:run_ancestral",
        "datasets/primates.phy --tree primates.mltree.bestTree --model HKY+G4 --prefix primates",
    ),
}
"""By name of the command."""

for _name, _analysis in ANALYSES.items():
    _example = f"Example: mltree {_name} {_analysis.example}".rstrip()
    app.command(_name, cls=Command, epilog=_example)(Derived(_name, _analysis))


def main() -> None:
    """The ``mltree`` command."""
    leave_out_others(app, sys.argv[1:])
    sys.exit(exit_code(app))
