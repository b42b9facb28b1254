"""The command line: what each command takes.

Nothing heavy is imported before a command runs, so that ``mltree --help`` answers at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mltree import __version__
from mltree.cli_trees import TREE_COMMANDS
from mltree.exits import EXIT_CODES, Commands, exit_code
from mltree.options import (
    AlignmentArgument,
    CollapseOption,
    DataTypeOption,
    DeviceOption,
    JsonOption,
    MemoryOption,
    ModelOption,
    Moves,
    Precision,
    PrecisionOption,
    PrefixOption,
    Preset,
    QuietOption,
    RedoOption,
    SeedOption,
    TreeFile,
    VerboseOption,
    WidthOption,
    command_line,
    parse_size,
    reporter_of,
    terminal,
)

if TYPE_CHECKING:
    from mltree.placement import Resources

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Maximum-likelihood phylogenetic trees on any OpenCL device: GPUs, or the CPU.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _mltree(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        print(f"mltree {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@app.command(
    epilog="Example: mltree search datasets/primates.phy --model HKY+G4 --prefix /tmp/primates"
)
def search(
    alignment: AlignmentArgument,
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    tree: Annotated[
        str | None,
        typer.Option(
            "--tree",
            "-t",
            help="Starting trees: [b]pars{N}[/b], [b]rand{N}[/b], [b]pars{4},rand{2}[/b], or a "
            "Newick file. Default: parsimony, as many as the preset has.",
        ),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option("--preset", help="fast: one start; thorough: many, and more perturbation."),
    ] = Preset.DEFAULT,
    moves: Annotated[
        Moves, typer.Option("--moves", help="spr, or nni: neighbours only, quick and shallow.")
    ] = Moves.SPR,
    constraint: Annotated[
        str | None,
        typer.Option(
            "--constraint",
            metavar="FILE",
            help="Newick tree, of some or all taxa: every group in it stays together.",
        ),
    ] = None,
    outgroup: Annotated[
        str | None,
        typer.Option(
            "--outgroup",
            metavar="TAXA",
            help="Taxa, separated by commas, next to which the result is written. Changes how the "
            "tree is shown, not the search.",
        ),
    ] = None,
    collapse: CollapseOption = None,
    prefix: PrefixOption = None,
    seed: SeedOption = 1,
    device: DeviceOption = None,
    memory_limit: MemoryOption = None,
    vw: WidthOption = None,
    precision: PrecisionOption = Precision.DOUBLE,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Find the maximum-likelihood tree of an alignment.

    Writes PREFIX.mltree.bestTree (Newick), .bestModel (RAxML-NG's syntax), .startTree and .log.
    A search that was stopped, by whatever means, goes on where it was when the same command is
    given again; Ctrl-C, SIGTERM and SIGHUP leave the best tree so far in .lastTree.
    """
    from mltree.commands.search import SearchRequest, run_search

    run_search(
        SearchRequest(
            alignment=alignment,
            model=model,
            datatype=data_type and data_type.value,
            resources=_resources(device, precision, memory_limit, vw),
            prefix=prefix,
            redo=redo,
            command=command_line(),
            seed=seed,
            tree=tree,
            preset=preset.value,
            nni_only=moves is Moves.NNI,
            constraint=constraint,
            outgroup=outgroup,
            collapse=collapse,
        ),
        reporter_of(quiet, verbose, json),
    )


@app.command(
    epilog="Example: mltree evaluate datasets/primates.phy --tree primates.phy.mltree.bestTree"
)
def evaluate(
    alignment: AlignmentArgument,
    tree: TreeFile,
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    no_opt_model: Annotated[
        bool, typer.Option("--no-opt-model", help="Keep the model's parameters as they are.")
    ] = False,
    no_opt_branches: Annotated[
        bool, typer.Option("--no-opt-branches", help="Keep the tree's branch lengths.")
    ] = False,
    site_lnl: Annotated[
        bool, typer.Option("--site-lnl", help="Also write the lnL of every site, one a line.")
    ] = False,
    prefix: PrefixOption = None,
    device: DeviceOption = None,
    memory_limit: MemoryOption = None,
    vw: WidthOption = None,
    precision: PrecisionOption = Precision.DOUBLE,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Compute the log-likelihood of a tree: topology fixed, or everything fixed.

    Writes PREFIX.mltree.evalTree, .evalModel, .evalLog and, if asked for, .siteLnL.
    """
    from mltree.commands.evaluate import EvaluateRequest, run_evaluate

    run_evaluate(
        EvaluateRequest(
            alignment=alignment,
            model=model,
            datatype=data_type and data_type.value,
            resources=_resources(device, precision, memory_limit, vw),
            prefix=prefix,
            redo=redo,
            command=command_line(),
            tree=tree,
            optimise_model=not no_opt_model,
            optimise_branches=not no_opt_branches,
            site_lnl=site_lnl,
        ),
        reporter_of(quiet, verbose, json),
    )


@app.command(
    epilog="Example: mltree compare datasets/primates.phy --tree primates.phy.mltree.bestTree "
    "--model primates.phy.mltree.bestModel"
)
def compare(
    alignment: AlignmentArgument,
    tree: TreeFile,
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    precision: PrecisionOption = Precision.DOUBLE,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compute one log-likelihood on every device, in every layout, and by the NumPy reference.

    Fails when two differ by more than rounding explains.
    """
    from mltree.commands.inspect import run_compare

    mixed = precision is Precision.MIXED
    reporter = reporter_of(quiet, verbose=False, json=json)
    run_compare(alignment, tree, model, data_type and data_type.value, mixed, reporter)


@app.command(epilog="Example: mltree devices")
def devices(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure again what was measured before.")
    ] = False,
) -> None:
    """List the OpenCL devices, with a self-test on each.

    The first time, it also measures which memory layout suits each device, for every later run.
    """
    from mltree.commands.inspect import show_devices

    show_devices(terminal(), calibrate)


@app.command(epilog="Example: mltree check datasets/frogs.phy")
def check(
    alignment: AlignmentArgument,
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    device: DeviceOption = None,
) -> None:
    """Look an alignment over: sizes, gaps, frequencies, duplicates, and the memory it will take."""
    from mltree.commands.inspect import show_check

    show_check(alignment, model, data_type and data_type.value, device, terminal())


for _name, (_function, _example) in TREE_COMMANDS.items():
    app.command(_name, epilog=_example)(_function)


def _resources(
    device: str | None, precision: Precision, memory_limit: str | None, vw: int | None
) -> Resources:
    from mltree.placement import Resources

    return Resources(
        device=device,
        mixed=precision is Precision.MIXED,
        memory_limit=None if memory_limit is None else parse_size(memory_limit),
        vw=vw,
    )


def main() -> None:
    """The ``mltree`` command."""
    sys.exit(exit_code(app))
