"""The command line of ``ancestral``, ``bootstrap``, ``evaluate``, ``model`` and ``run``."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated

import typer

from mltree.cli.help import SUPPORTS, origins
from mltree.cli.options import (
    AlignmentArgument,
    Brlen,
    BrlenOption,
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
    SiteFrequenciesOption,
    SiteRatesOption,
    ThreadsOption,
    TreeFile,
    VerboseOption,
    WidthOption,
    command_line,
    reporter_of,
    resources_of,
    whole_of,
)
from mltree.cli.support_options import (
    ClimbOption,
    MetricOption,
    UltrafastOption,
    bootstrap_of,
    local_tests_of,
    replicates_of,
    ultrafast_of,
)
from mltree.system.rank_start import start

# ``mltree ancestral`` on the command line; see :mod:`mltree.cli.main`.


class StateFormat(str, Enum):
    """Whose files the states are written to."""

    RAXML = "raxml"
    IQTREE = "iqtree"


def _ancestral(
    alignment: AlignmentArgument,
    tree: TreeFile,
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    file_format: Annotated[
        StateFormat,
        typer.Option(
            "--format",
            metavar="raxml|iqtree",
            help="Whose files: RAxML-NG's .ancestralProbs and .ancestralStates, or IQ-TREE's "
            ".state.",
        ),
    ] = StateFormat.RAXML,
    no_opt_model: Annotated[
        bool, typer.Option("--no-opt-model", help="Keep the model's parameters as they are.")
    ] = False,
    no_opt_branches: Annotated[
        bool, typer.Option("--no-opt-branches", help="Keep the tree's branch lengths.")
    ] = False,
    prefix: PrefixOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    memory_limit: MemoryOption = None,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Reconstruct ancestral states: how probable each is at every inner node and site.

    Marginal states, by empirical Bayes. Writes PREFIX.mltree.ancestralTree, whose inner nodes have
    names, and the tables that refer to them: .ancestralProbs and .ancestralStates as RAxML-NG
    does, or .state as IQ-TREE does. A site without any data has the state -; gaps in some taxa
    are unknown states there.
    """
    from mltree.analyses.ancestral import AncestralRequest, run_ancestral

    request = AncestralRequest(
        alignment=alignment,
        model=model,
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, Precision.DOUBLE, memory_limit, None),
        prefix=prefix,
        redo=redo,
        command=command_line(),
        options=origins(),
        tree=tree,
        file_format=file_format.value,
        optimise_model=not no_opt_model,
        optimise_branches=not no_opt_branches,
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_ancestral(request, reporter)


ANCESTRAL_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "ancestral": (
        _ancestral,
        (
            "Example: mltree ancestral datasets/primates.phy --tree primates.mltree.bestTree "
            "--model HKY+G4 --prefix primates"
        ),
    )
}
"""By name: what is called, and an example of its use."""


# The command line of bootstraps; see :mod:`mltree.cli.main`.


def _bootstrap(
    alignment: AlignmentArgument,
    model: ModelOption = None,
    site_freqs: SiteFrequenciesOption = None,
    guide_tree: GuideTreeOption = None,
    replicates: Annotated[
        str,
        typer.Option(
            "--replicates",
            "-N",
            metavar="N",
            help="How many; auto: as many as it takes until more would change little "
            "(autoMRE: asked after every 50), 1,000 at most.",
        ),
    ] = "auto",
    tree: Annotated[
        str | None,
        typer.Option(
            "--tree",
            "-t",
            metavar="FILE",
            help="Newick tree that the supports are drawn on, and the model is fitted to. Default: "
            "no supports, and a parsimony tree to fit it to.",
        ),
    ] = None,
    metric: MetricOption = "fbp",
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    moves: MovesOption = Moves.SPR,
    constraint: ConstraintOption = None,
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
    """Search the trees of bootstrap replicates of an alignment, and draw supports.

    Sites are drawn with replacement; every replicate is searched from a start of its own, under
    the same model: as --model gives it (a .bestModel file, say), or fitted beforehand.

    Writes PREFIX.mltree.bootstraps (Newick, a tree a line, while they are found),
    .consensusTreeMR, .replicates (their lnLs, to go on from), .bootstrapLog and, of a tree that is
    given, .support, or .supportFBP and .supportTBE. The same command with a larger N adds to what
    is there.
    """
    start(ranks)
    from mltree.analyses.bootstrap import BootstrapRequest, Wanted, run_bootstrap
    from mltree.runs.site_frequencies import SiteFrequencies

    request = BootstrapRequest(
        alignment=alignment,
        model=model,
        site_frequencies=SiteFrequencies(site_freqs, guide_tree),
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, precision, memory_limit, vw),
        prefix=prefix,
        redo=redo,
        ranks=ranks,
        command=command_line(),
        options=origins(),
        seed=seed,
        tree=tree,
        nni_only=moves is Moves.NNI,
        constraint=constraint,
        wanted=Wanted(replicates_of(replicates, "--replicates"), metric),
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_bootstrap(request, reporter)


BOOTSTRAP_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "bootstrap": (
        _bootstrap,
        (
            "Example: mltree bootstrap datasets/primates.phy --replicates 100 "
            "--tree primates.mltree.bestTree --model primates.mltree.bestModel"
        ),
    ),
}
"""By name: each with an example."""


# ``mltree evaluate`` on the command line; see :mod:`mltree.cli.main`.


def _evaluate(
    alignment: AlignmentArgument,
    tree: TreeFile,
    model: ModelOption = None,
    site_freqs: SiteFrequenciesOption = None,
    guide_tree: GuideTreeOption = None,
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    no_opt_model: Annotated[
        bool, typer.Option("--no-opt-model", help="Keep the model's parameters as they are.")
    ] = False,
    no_opt_branches: Annotated[
        bool, typer.Option("--no-opt-branches", help="Keep the tree's branch lengths.")
    ] = False,
    site_lnl: Annotated[
        bool, typer.Option("--site-lnl", help="Also write the lnL of every site, one a line.")
    ] = False,
    site_rates: SiteRatesOption = False,
    site_prob: Annotated[
        bool,
        typer.Option(
            "--site-prob",
            help="Also write the probability of every class of a mixture at every site.",
        ),
    ] = False,
    site_freq: Annotated[
        bool,
        typer.Option(
            "--site-freq",
            help="Also write the posterior mean frequencies of every site under a mixture (PMSF), "
            "as IQ-TREE's -fs takes them.",
        ),
    ] = False,
    prefix: PrefixOption = None,
    threads: ThreadsOption = None,
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

    Writes PREFIX.mltree.evalTree, .evalModel, .evalLog and, if asked for, .siteLnL, .evalRate
    (under +PSR always), .siteprob and .sitefreq.
    """
    from mltree.analyses.evaluate import EvaluateRequest, run_evaluate
    from mltree.runs.site_frequencies import SiteFrequencies

    request = EvaluateRequest(
        alignment=alignment,
        model=model,
        site_frequencies=SiteFrequencies(site_freqs, guide_tree),
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, precision, memory_limit, vw),
        prefix=prefix,
        redo=redo,
        command=command_line(),
        options=origins(),
        tree=tree,
        optimise_model=not no_opt_model,
        optimise_branches=not no_opt_branches,
        site_lnl=site_lnl,
        site_rates=site_rates,
        site_classes=("siteprob",) * site_prob + ("sitefreq",) * site_freq,
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_evaluate(request, reporter)


EVALUATE_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "evaluate": (
        _evaluate,
        "Example: mltree evaluate datasets/primates.phy --tree primates.mltree.bestTree",
    )
}


# ``mltree model`` on the command line.

PartitionsOption = Annotated[
    str | None,
    typer.Option(
        "--partitions",
        metavar="FILE",
        help="A partition file (RAxML's, RAxML-NG's, NEXUS); --model is for parts that it names no "
        "model for, and with auto for all.",
    ),
]
MergeOption = Annotated[
    bool,
    typer.Option(
        "--merge",
        help="Put parts together that are better off under one model, and choose for "
        "these subsets.",
    ),
]


class By(str, Enum):
    """What a model is chosen by."""

    BIC = "bic"
    AIC = "aic"
    AICC = "aicc"


def _model(
    alignment: AlignmentArgument,
    partitions: Annotated[
        str | None,
        typer.Option(
            "--partitions",
            metavar="FILE",
            help="Choose for every part of a partition file (RAxML's, RAxML-NG's, NEXUS); models "
            "in it do not count.",
        ),
    ] = None,
    merge: MergeOption = False,
    brlen: BrlenOption = Brlen.SCALED,
    criterion: Annotated[
        By, typer.Option("--criterion", case_sensitive=False, help="bic, aic or aicc.")
    ] = By.BIC,
    tree: Annotated[
        str | None,
        typer.Option(
            "--tree", metavar="FILE", help="Fit to this tree, not to a quick one of our own."
        ),
    ] = None,
    data_type: DataTypeOption = None,
    seed: SeedOption = 1,
    prefix: PrefixOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    memory_limit: MemoryOption = None,
    vw: WidthOption = None,
    precision: PrecisionOption = Precision.DOUBLE,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Choose the model that suits an alignment best, or each of its parts.

    Writes PREFIX.mltree.bestFitModel, which --model takes, .modelTest, a table of all candidates in
    JSON, .modelLog and, for parts, .best_scheme and .best_scheme.nex.
    """
    from mltree.analyses.model_selection import ModelRequest, run_model

    request = ModelRequest(
        alignment=alignment,
        model=None,
        partitions=partitions,
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, precision, memory_limit, vw),
        prefix=prefix,
        redo=redo,
        command=command_line(),
        options=origins(),
        criterion=criterion.value,
        tree=tree,
        seed=seed,
        merge=merge,
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_model(request, reporter)


MODEL_COMMANDS = {"model": (_model, "Example: mltree model datasets/primates.phy")}
"""By name: what is called, and an example of its use."""


# ``mltree run`` on the command line; see :mod:`mltree.cli.main`.

NONE = "none"
"""No replicates."""


def _run(
    alignment: AlignmentArgument,
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="auto, or as for search: no model is chosen."
        ),
    ] = "auto",
    partitions: PartitionsOption = None,
    merge: MergeOption = False,
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    preset: Annotated[
        Preset,
        typer.Option("--preset", metavar="fast|default|thorough", help="Of the search."),
    ] = Preset.DEFAULT,
    outgroup: Annotated[
        str | None,
        typer.Option(
            "--outgroup",
            metavar="TAXA",
            help="Taxa, separated by commas, next to which the tree is written.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            metavar="N",
            rich_help_panel=SUPPORTS,
            help="N bootstrap replicates; auto: until more would change little; none. Default: "
            "auto where that is a matter of minutes on the device, else --ufboot 1000.",
        ),
    ] = None,
    sh_alrt: Annotated[
        int,
        typer.Option(
            "--sh-alrt",
            metavar="N",
            parser=whole_of,
            rich_help_panel=SUPPORTS,
            help="SH-aLRT of every branch, by N resamplings.",
        ),
    ] = 1000,
    ufboot: UltrafastOption = None,
    bnni: ClimbOption = False,
    prefix: PrefixOption = None,
    seed: SeedOption = 1,
    threads: ThreadsOption = None,
    ranks: RanksOption = None,
    device: DeviceOption = None,
    memory_limit: MemoryOption = None,
    precision: PrecisionOption = Precision.DOUBLE,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Just build a tree: check the data, choose the model, search, compute supports, report.

    The same as mltree search --model auto --sh-alrt 1000 --bootstrap auto --report, but that the
    bootstrap is the ultrafast one, --ufboot 1000, where the other would take long; it writes the
    same files. Stopped by whatever means, it goes on where it was when the same command is given
    again.
    """
    start(ranks)
    from mltree.analyses.search import Supports
    from mltree.analyses.whole import WholeRequest, run_whole

    wanted = None if bootstrap is None or bootstrap.strip().lower() == NONE else bootstrap
    request = WholeRequest(
        alignment=alignment,
        model=model,
        partitions=partitions,
        merge=merge,
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, precision, memory_limit, None),
        prefix=prefix,
        redo=redo,
        ranks=ranks,
        command=command_line(),
        options=origins(),
        seed=seed,
        tree=None,
        preset=preset.value,
        nni_only=False,
        constraint=None,
        outgroup=outgroup,
        collapse=None,
        report=True,
        supports=Supports(
            local_tests_of(sh_alrt, None, False, False),
            bootstrap_of(wanted, "fbp"),
            ultrafast_of(ufboot, bnni, wanted),
        ),
        decides=bootstrap is None and ufboot is None,
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_whole(request, reporter)


RUN_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "run": (_run, "Example: mltree run datasets/primates.phy --prefix primates"),
}
"""By name: what is called, and an example of its use."""
