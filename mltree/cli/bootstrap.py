"""The command line of bootstraps; see :mod:`mltree.cli.main`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from mltree.cli.help import origins
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
    QuietOption,
    RanksOption,
    RedoOption,
    SeedOption,
    SiteFrequenciesOption,
    ThreadsOption,
    VerboseOption,
    WidthOption,
    command_line,
    reporter_of,
    resources_of,
)
from mltree.cli.support_options import MetricOption, replicates_of
from mltree.ranks import start

__all__ = ["BOOTSTRAP_COMMANDS"]


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
    from mltree.commands.bootstrap import BootstrapRequest, Wanted, run_bootstrap
    from mltree.commands.site_frequencies import SiteFrequencies

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
