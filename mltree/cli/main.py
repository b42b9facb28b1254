"""The command line: what each command takes.

Nothing heavy is imported before a command runs, so that ``mltree --help`` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mltree import __version__
from mltree.cli.analyses import (
    ANCESTRAL_COMMANDS,
    BOOTSTRAP_COMMANDS,
    EVALUATE_COMMANDS,
    MODEL_COMMANDS,
    RUN_COMMANDS,
    MergeOption,
    PartitionsOption,
)
from mltree.cli.exits import EXIT_CODES, Commands, exit_code, leave_out_others
from mltree.cli.help import Command, origins
from mltree.cli.options import (
    AlignmentArgument,
    AlignmentsArgument,
    Brlen,
    BrlenOption,
    CollapseOption,
    ConstraintOption,
    DataTypeOption,
    DeviceOption,
    GuideTreeOption,
    JsonOption,
    MemoryOption,
    ModelOption,
    Moves,
    MovesOption,
    Precision,
    PrecisionOption,
    PrefixOption,
    Preset,
    QuietOption,
    RanksOption,
    RedoOption,
    SeedOption,
    SeparateOption,
    SiteFrequenciesOption,
    SiteRatesOption,
    ThreadsOption,
    TreeFile,
    VerboseOption,
    WidthOption,
    command_line,
    is_many,
    reporter_of,
    resources_of,
)
from mltree.cli.support_options import (
    AbayesOption,
    AlrtOption,
    BootstrapOption,
    ClimbOption,
    LbpOption,
    MetricOption,
    ShAlrtOption,
    UltrafastOption,
    bootstrap_of,
    local_tests_of,
    ultrafast_of,
)
from mltree.cli.tools import TOOL_COMMANDS
from mltree.cli.trees import TEST_COMMANDS, TREE_COMMANDS
from mltree.system.rank_start import start

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


@app.command(
    cls=Command,
    epilog="Example: mltree search datasets/primates.phy --model HKY+G4 --prefix primates",
)
def search(
    alignment: AlignmentsArgument,
    separate: SeparateOption = False,
    model: ModelOption = None,
    site_freqs: SiteFrequenciesOption = None,
    guide_tree: GuideTreeOption = None,
    partitions: PartitionsOption = None,
    merge: MergeOption = False,
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    tree: Annotated[
        str | None,
        typer.Option(
            "--tree",
            "-t",
            metavar="START",
            help="Starting trees: pars{N}, rand{N}, pars{4},rand{2}, or a "
            "Newick file. Default: parsimony, as many as the preset has.",
        ),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option(
            "--preset",
            metavar="fast|default|thorough",
            help="fast: one start, some where taxa are few or on a GPU, and no perturbation; "
            "thorough: more of both.",
        ),
    ] = Preset.DEFAULT,
    moves: MovesOption = Moves.SPR,
    constraint: ConstraintOption = None,
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
    bootstrap: BootstrapOption = None,
    metric: MetricOption = "fbp",
    sh_alrt: ShAlrtOption = None,
    lbp: LbpOption = None,
    alrt: AlrtOption = False,
    abayes: AbayesOption = False,
    ufboot: UltrafastOption = None,
    bnni: ClimbOption = False,
    site_rates: SiteRatesOption = False,
    report: Annotated[
        bool, typer.Option("--report", help="Also write PREFIX.mltree.report.html, see report.")
    ] = False,
    prefix: PrefixOption = None,
    seed: SeedOption = 1,
    threads: ThreadsOption = None,
    ranks: RanksOption = None,
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
    With --bootstrap also the files of mltree bootstrap; a larger N adds to what is there.
    With supports of any kind .support, the best tree with them as labels, in IQ-TREE's order:
    SH-aLRT/LBP/aLRT/aBayes/bootstrap; with tests of branches .branchTests, a table of all of them;
    with --ufboot its trees, .ufboot, their consensus with branch lengths, .contree, and all splits,
    .splits.nex.

    Several alignments, or a folder, are loci: each has a tree and a model of its own, in
    .bestTrees (Newick, a tree a line, in order) and .lociTable.
    """
    start(ranks)
    options = dict(origins())
    if separate or is_many(alignment):
        from mltree.analyses.loci import LociRequest, run_loci

        many = LociRequest(
            alignment=alignment[0],
            alignments=alignment,
            separate=separate,
            model=model,
            partitions=partitions,
            datatype=data_type,
            linkage=brlen.value,
            resources=resources_of(device, precision, memory_limit, vw),
            prefix=prefix,
            redo=redo,
            command=command_line(),
            options=options,
            seed=seed,
            tree=tree,
            preset=preset.value,
            nni_only=moves is Moves.NNI,
            collapse=collapse,
            ranks=ranks,
        )
        with reporter_of(quiet, verbose, json) as reporter:
            run_loci(many, reporter)
        return
    options["alignment"] = alignment[0], "typed"
    from mltree.analyses.search import SearchRequest, Supports, run_search
    from mltree.runs.site_frequencies import SiteFrequencies

    request = SearchRequest(
        alignment=alignment[0],
        model=model,
        site_frequencies=SiteFrequencies(site_freqs, guide_tree),
        partitions=partitions,
        merge=merge,
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, precision, memory_limit, vw),
        prefix=prefix,
        redo=redo,
        ranks=ranks,
        command=command_line(),
        options=options,
        seed=seed,
        tree=tree,
        preset=preset.value,
        nni_only=moves is Moves.NNI,
        constraint=constraint,
        outgroup=outgroup,
        collapse=collapse,
        report=report,
        site_rates=site_rates,
        supports=Supports(
            local_tests_of(sh_alrt, lbp, alrt, abayes),
            bootstrap_of(bootstrap, metric),
            ultrafast_of(ufboot, bnni, bootstrap),
        ),
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_search(request, reporter)


@app.command(
    cls=Command,
    epilog="Example: mltree compare datasets/primates.phy --tree primates.mltree.bestTree "
    "--model primates.mltree.bestModel",
)
def compare(
    alignment: AlignmentArgument,
    tree: TreeFile,
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    threads: ThreadsOption = None,
    precision: PrecisionOption = Precision.DOUBLE,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compute one log-likelihood on every device, in every layout, and by the NumPy reference.

    Fails when two differ by more than rounding explains.
    """
    from mltree.analyses.inspect import run_compare

    mixed = precision is Precision.MIXED
    with reporter_of(quiet, verbose=False, json=json) as reporter:
        run_compare(alignment, tree, model, data_type, mixed, reporter)


@app.command(cls=Command, epilog="Example: mltree devices")
def devices(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure again what was measured before.")
    ] = False,
    threads: ThreadsOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """List the OpenCL devices, with a self-test on each.

    The first time, it also measures which memory layout suits each device, for every later run.
    """
    from mltree.analyses.inspect import show_devices

    with reporter_of(quiet, verbose=False, json=json) as reporter:
        show_devices(reporter, calibrate)


@app.command(cls=Command, epilog="Example: mltree check datasets/frogs.phy")
def check(
    alignment: AlignmentArgument,
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            "--partitions",
            metavar="FILE",
            help="RAxML's or RAxML-NG's partition file, a .bestModel file or a NEXUS sets block: "
            "show the parts instead.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Look an alignment over: sizes, gaps, frequencies, duplicates, and the memory it will take."""
    from mltree.analyses.inspect import show_check, show_parts

    kind = data_type
    with reporter_of(quiet, verbose=False, json=json) as reporter:
        if partitions is not None:
            show_parts(alignment, partitions, model, kind, device, reporter)
        else:
            show_check(alignment, model, kind, device, reporter)


for _name, (_function, _example) in {
    **RUN_COMMANDS,
    **BOOTSTRAP_COMMANDS,
    **MODEL_COMMANDS,
    **EVALUATE_COMMANDS,
    **TREE_COMMANDS,
    **TEST_COMMANDS,
    **TOOL_COMMANDS,
    **ANCESTRAL_COMMANDS,
}.items():
    app.command(_name, cls=Command, epilog=_example)(_function)


def main() -> None:
    """The ``mltree`` command."""
    leave_out_others(app, sys.argv[1:])
    sys.exit(exit_code(app))
