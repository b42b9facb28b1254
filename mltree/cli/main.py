"""The commands: of each its options, the analysis that it runs, and an example.

What typer needs to know of a command is derived from its class of options, when it asks; nothing
heavy is imported before a command runs, so that ``mltree --help`` answers at once.
"""

from __future__ import annotations

import inspect
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from mltree.analyses import options, sample_options, tree_options
from mltree.cli.arguments import defaults, find, has_file, translated, without_option
from mltree.cli.exits import EXIT_CODES, ending, exit_code
from mltree.cli.help import CONFIG_FILE, Command, format_group, origins, untyped
from mltree.runs.options import Option, Options, ShownOptions
from mltree.system import __version__
from mltree.system.errors import InputError
from mltree.system.files import is_there
from mltree.system.rank_start import start
from mltree.system.ranks import this_process

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


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
        context = inspect.Parameter("ctx", KEYWORD_ONLY, annotation=typer.Context)
        described = options.described().items()
        return inspect.Signature([context, *(_parameter(options, *item) for item in described)])

    def __call__(self, ctx: typer.Context, **typed: Any) -> None:
        """Run the analysis with the values that were typed."""
        options, function, _ = self._analysis
        values = {name: getattr(value, "value", value) for name, value in typed.items()}
        for name, option in options.described().items():
            if option.rest is not None:
                values[option.rest] = tuple(values[name])
                values[name] = values[name][0]
        start(values.get("ranks"))
        line = shlex.join(["mltree", *sys.argv[1:]])
        asked = options(**values, line=line, origins=origins(ctx))
        module, _, function = function.partition(":")
        run = getattr(import_module(f"mltree.analyses.{module}"), function)
        with _reporter(asked, ctx) as reporter:
            run(asked, reporter)


def _parameter(options: type[Options], name: str, option: Option) -> inspect.Parameter:
    """A parameter as typer reads it."""
    kind: Any = options.type_of(name)
    default = getattr(options, name, inspect.Parameter.empty)
    if option.choices:
        kind = _enumeration(name, option.choices)
        default = kind(default)
    elif option.rest is not None:
        kind = list[kind]
    more: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar,
        "rich_help_panel": option.panel,
        "parser": None if option.parse is None else _parser(option.parse, option.least),
        "min": option.least,
        "is_eager": option.is_eager,
        "case_sensitive": not option.any_case,
    }
    info = typer.Option(*option.names, **more) if option.names else typer.Argument(**more)
    return inspect.Parameter(name, KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _enumeration(name: str, choices: tuple[str, ...]) -> Any:
    return Enum(name, {choice: choice for choice in choices}, type=str)


def _parser(parse: Callable[[str], Any], least: int | None) -> Callable[[str], Any]:
    """A parser whose message typer shows as it is; beside one, typer takes no least value."""

    def read(text: str) -> Any:
        try:
            value = parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if least is not None and value < least:
            raise typer.BadParameter(f"{value} is not in the range x>={least}")
        return value

    return read


def _idle(options: Options) -> Iterator[str]:
    """Notes on options that are typed and do nothing, for want of others."""
    for name, option in options.described().items():
        known = [other for other in option.only_with if other in options.origins]
        is_idle = known and not any(options.origins[other][0] for other in known)
        if is_idle and options.origins.get(name, (None, "default"))[1] == "typed":
            shown, needed = (text.replace("_", "-") for text in (name, known[0]))
            yield f"--{shown} does nothing without --{needed}"


def _reporter(options: ShownOptions, ctx: typer.Context) -> Reporter:
    """A reporter of as many events as the options ask for.

    It tells of options that were not typed, and of those that do nothing, first: even where
    ``mltree.toml`` asks for quiet. Raises InputError where nothing and everything is wanted.
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
    for text in (*untyped(ctx), *_idle(options)):
        teller(Notice(text))
    return reporter


class Commands(TyperGroup):
    """The commands; expected errors become their line and their exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what stands before a command, once nothing is another program's."""
        with ending(args):
            if (problem := this_process.launch_error) is not None:
                raise problem
            _refuse_bytes(args)
            if not ctx.resilient_parsing and (said := translated(args, self.commands)) is not None:
                raise InputError(said[0], hint=said[1])
            args = _spelt(args)
            self._refuse_files(args)
            named, args = without_option(args)
            path = None if ctx.resilient_parsing else find(named)
            if path is not None:
                ctx.default_map = defaults(path, self._switches)
                ctx.meta[CONFIG_FILE] = str(path)
            self._set_switches(ctx)
            return super().parse_args(ctx, args)

    def with_option(self, name: str) -> list[str]:
        """The commands that have an option, by its name as it is typed."""
        return [
            command
            for command, analysis in ANALYSES.items()
            if any(name in option.names for option in analysis.options.described().values())
        ]

    def _set_switches(self, ctx: Any) -> None:
        """Let switches be off, not nothing: typer would load pydantic (0.1 s) to tell."""
        for param in self.get_params(ctx):
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False

    def _refuse_files(self, args: Sequence[str]) -> None:
        """Refuse an alignment without a command."""
        if args and args[0] not in self.commands and is_there(args[0]):
            hint = f"to build its tree: mltree run {shlex.quote(args[0])}; see mltree --help"
            raise InputError(f"{args[0]} is a file, not a command", hint=hint)

    @property
    def _switches(self) -> dict[str, dict[str, bool]]:
        """The options of every command as they are typed, and True for each that is a switch."""
        return {
            name: {
                str(param.name).replace("_", "-"): param.is_flag  # type: ignore[attr-defined]
                for param in command.params
                if param.param_type_name == "option"
            }
            for name, command in self.commands.items()
        }

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with ending([*getattr(ctx, "_protected_args", ()), *ctx.args]):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the text of ``--help``."""
        formatter.write(format_group(self, ctx))


def _spelt(args: list[str]) -> list[str]:
    """``help``, ``help COMMAND`` and ``version`` as the options that they mean."""
    if args[:1] == ["help"]:
        return [*args[1:2], "--help"]
    return ["--version"] if args == ["version"] else args


def _refuse_bytes(arguments: list[str]) -> None:
    """Refuse names that are no text: no log, message or event could hold them."""
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= c <= "\udfff" for c in argument):
            shown = argument.encode("utf-8", "backslashreplace").decode()
            raise InputError(f"{shown}: not UTF-8 text", hint="rename the file")


def _commit() -> str:
    """The commit of the checkout that the package lies in; empty where it is installed."""
    root = Path(__file__).parents[2]
    if not ((root / ".git").exists() and (root / "pyproject.toml").exists()):
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


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
        commit = _commit()
        print(f"mltree {__version__}" + (f" (development, commit {commit})" if commit else ""))
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


ANALYSES = {
    "search": Analysis(options.SearchOptions, "loci:run_searches",
        "datasets/primates.phy --model HKY+G4 --prefix primates"),
    "compare": Analysis(options.CompareOptions, "check:run_compare",
        "datasets/primates.phy --tree primates.mltree.bestTree "
        "--model primates.mltree.bestModel"),
    "devices": Analysis(options.DevicesOptions, "check:run_devices", ""),
    "check": Analysis(options.CheckOptions, "check:run_check", "datasets/frogs.phy"),
    "run": Analysis(options.RunOptions, "loci:run_pipelines",
        "datasets/primates.phy --prefix primates"),
    "bootstrap": Analysis(options.BootstrapOptions, "bootstrap:run_bootstrap",
        "datasets/primates.phy --replicates 100 --tree primates.mltree.bestTree "
        "--model primates.mltree.bestModel"),
    "model": Analysis(options.ModelChoiceOptions, "model_selection:run_model",
        "datasets/primates.phy"),
    "evaluate": Analysis(options.EvaluateOptions, "evaluate:run_evaluate",
        "datasets/primates.phy --tree primates.mltree.bestTree"),
    "support": Analysis(tree_options.SupportOptions, "tree_sets:run_support",
        "primates.mltree.bestTree --trees datasets/primates.bootstraps --metric fbp,tbe"),
    "consensus": Analysis(tree_options.ConsensusOptions, "tree_sets:run_consensus",
        "datasets/primates.bootstraps --type majority,extended --prefix primates"),
    "rf": Analysis(tree_options.DistanceOptions, "tree_sets:run_rf",
        "datasets/primates.bootstraps --reference primates.mltree.bestTree --weighted "
        "--prefix primates"),
    "bootstop": Analysis(tree_options.BootstopOptions, "tree_sets:run_bootstop",
        "datasets/primates.bootstraps"),
    "alrt": Analysis(options.BranchTestOptions, "tree_tests:run_alrt",
        "datasets/primates.phy --tree primates.mltree.bestTree --model HKY+G4 "
        "--tests sh-alrt,abayes"),
    "test": Analysis(options.TreeTestOptions, "tree_tests:run_test",
        "datasets/primates.phy --trees rivals.nwk --model HKY+G4"),
    "concordance": Analysis(tree_options.ConcordanceOptions, "tree_sets:run_concordance",
        "primates.mltree.bestTree --gene-trees datasets/primates.bootstraps "
        "--alignment datasets/primates.phy"),
    "sample": Analysis(sample_options.SampleOptions, "sample:run_sample",
        "datasets/primates.phy --model HKY+G4 --prefix primates"),
    "summarize": Analysis(sample_options.SummarizeOptions, "summarize:run_summarize",
        "datasets/primates --prefix primates"),
    "date": Analysis(tree_options.DateOptions, "date:run_date",
        "datasets/serial.nwk --dates names --alignment datasets/serial.phy --prefix serial"),
    "report": Analysis(options.ReportOptions, "html_report:run_report", "primates"),
    "draw": Analysis(options.DrawOptions, "convert:run_draw",
        "primates.mltree.bestTree -o primates.svg"),
    "simulate": Analysis(options.SimulateOptions, "simulate:run_simulate",
        "--taxa 50 --random-tree yule --model HKY{3}+FE+G4{0.5} --sites 1000 -o simulated.fasta "
        "--true-tree simulated.nwk"),
    "sitelh": Analysis(options.SiteLnlOptions, "tree_tests:run_sitelh",
        "datasets/primates.phy --trees primates.mltree.bestTree --model HKY+G4 "
        "--prefix primates"),
    "convert": Analysis(options.ConvertOptions, "convert:run_convert",
        "datasets/primates.phy -o primates.nex"),
    "ancestral": Analysis(options.AncestralOptions, "ancestral:run_ancestral",
        "datasets/primates.phy --tree primates.mltree.bestTree --model HKY+G4 --prefix primates"),
    "unifrac": Analysis(tree_options.UnifracOptions, "unifrac:run_unifrac",
        "datasets/habitats.tsv --tree datasets/habitats.nwk --metric unweighted,generalized "
        "--alpha 0.5 --prefix habitats"),
}  # fmt: skip

for _name, _analysis in ANALYSES.items():
    _example = f"Example: mltree {_name} {_analysis.example}".rstrip()
    app.command(_name, cls=Command, epilog=_example)(Derived(_name, _analysis))


def main() -> None:
    """The ``mltree`` command.

    Where a command is named first, typer makes that one alone: all of them take 0.05 s. A file of
    options is looked through for those of every command.
    """
    arguments = sys.argv[1:]
    names = [info.name for info in app.registered_commands]
    if arguments and arguments[0] in names and not has_file(arguments):
        app.registered_commands = [app.registered_commands[names.index(arguments[0])]]
    sys.exit(exit_code(app))
