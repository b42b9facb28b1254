"""The command line of tests of trees and branches against data; see :mod:`mltree.cli.main`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from mltree.cli.help import origins
from mltree.cli.options import (
    AlignmentArgument,
    BesideOption,
    Brlen,
    BrlenOption,
    DataTypeOption,
    DeviceOption,
    JsonOption,
    MemoryOption,
    ModelOption,
    Precision,
    PrecisionOption,
    PrefixOption,
    QuietOption,
    RedoOption,
    SeedOption,
    ThreadsOption,
    TreeFile,
    VerboseOption,
    WidthOption,
    command_line,
    reporter_of,
    resources_of,
)

__all__ = ["TEST_COMMANDS"]

FixedModelOption = Annotated[
    bool, typer.Option("--no-opt-model", help="Keep the model's parameters as they are.")
]
FixedBranchesOption = Annotated[
    bool, typer.Option("--no-opt-branches", help="Keep the branch lengths of the file.")
]


def _alrt(
    alignment: AlignmentArgument,
    tree: TreeFile,
    model: ModelOption = None,
    tests: Annotated[
        str,
        typer.Option(
            "--tests",
            help="sh-alrt, lbp (local bootstrap), alrt (parametric) or "
            "abayes; several with commas.",
        ),
    ] = "sh-alrt",
    replicates: Annotated[
        int,
        typer.Option("--replicates", metavar="N", min=1, help="Resamplings for sh-alrt and lbp."),
    ] = 1000,
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    no_opt_model: FixedModelOption = False,
    no_opt_branches: FixedBranchesOption = False,
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
    """Test every inner branch of a tree against its neighbours: SH-aLRT, aLRT, aBayes, LBP.

    Writes PREFIX.mltree.supportALRT, the tree with the supports as labels, in IQ-TREE's order and
    in front of labels that it had (SH-aLRT/UFBoot), and .branchTests, a table of all tests.
    """
    from mltree.commands.tests import BranchTestRequest, run_alrt

    request = BranchTestRequest(
        alignment=alignment,
        model=model,
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, precision, memory_limit, vw),
        prefix=prefix,
        redo=redo,
        command=command_line(),
        options=origins(),
        tests=tests,
        replicates=replicates,
        seed=seed,
        optimise_model=not no_opt_model,
        optimise_branches=not no_opt_branches,
        tree=tree,
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_alrt(request, reporter)


def _test(
    alignment: AlignmentArgument,
    trees: Annotated[
        str,
        typer.Option(
            "--trees",
            metavar="FILE",
            help="Newick file of the trees to compare.",
            show_default=False,
        ),
    ],
    model: ModelOption = None,
    tests: Annotated[
        str,
        typer.Option("--tests", help="Some of bp,kh,sh,wkh,wsh,elw,au; or all."),
    ] = "all",
    replicates: Annotated[
        int,
        typer.Option(
            "--replicates",
            metavar="N",
            min=1,
            help="Resamplings; for au as many of each of ten sizes.",
        ),
    ] = 10_000,
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    no_opt_model: FixedModelOption = False,
    no_opt_branches: FixedBranchesOption = False,
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
    """Tell which of several trees the alignment rejects: KH, SH, weighted KH and SH, ELW, AU.

    The model is optimised on the best of the trees, branch lengths on each. Writes
    PREFIX.mltree.treeTests, the table with Monte-Carlo errors, and .testedTrees with the lengths.
    """
    from mltree.commands.tests import TreeTestRequest, run_test

    request = TreeTestRequest(
        alignment=alignment,
        model=model,
        datatype=data_type,
        linkage=brlen.value,
        resources=resources_of(device, precision, memory_limit, vw),
        prefix=prefix,
        redo=redo,
        command=command_line(),
        options=origins(),
        tests=tests,
        replicates=replicates,
        seed=seed,
        optimise_model=not no_opt_model,
        optimise_branches=not no_opt_branches,
        trees=trees,
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_test(request, reporter)


def _concordance(
    tree: Annotated[str, typer.Argument(metavar="TREE", help="Newick tree, of any shape.")],
    gene_trees: Annotated[
        str | None,
        typer.Option(
            "--gene-trees",
            metavar="FILE",
            help="Newick trees of loci, which may lack some taxa: for gene concordance (gCF).",
        ),
    ] = None,
    alignment: Annotated[
        str | None,
        typer.Option("--alignment", metavar="FILE", help="Alignment: for site concordance (sCF)."),
    ] = None,
    quartets: Annotated[
        int,
        typer.Option("--quartets", metavar="N", min=1, help="Random quartets a branch, for sCF."),
    ] = 100,
    data_type: DataTypeOption = None,
    seed: SeedOption = 1,
    prefix: BesideOption = None,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compute concordance factors: the share of genes, or of sites, that have each branch.

    Writes PREFIX.mltree.concordanceTree, the tree with gCF/sCF in per cent behind the labels that
    it had, and .concordance, a table with the discordance factors too.
    """
    from mltree.commands.concordance import ConcordanceRequest, run_concordance

    request = ConcordanceRequest(
        tree=tree,
        gene_trees=gene_trees,
        alignment=alignment,
        datatype=data_type,
        quartets=quartets,
        seed=seed,
        prefix=prefix,
        redo=redo,
        command=command_line(),
    )
    with reporter_of(quiet, False, json) as reporter:
        run_concordance(request, reporter)


TEST_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "alrt": (
        _alrt,
        (
            "Example: mltree alrt datasets/primates.phy --tree primates.mltree.bestTree "
            "--model HKY+G4 --tests sh-alrt,abayes"
        ),
    ),
    "test": (
        _test,
        "Example: mltree test datasets/primates.phy --trees rivals.nwk --model HKY+G4",
    ),
    "concordance": (
        _concordance,
        (
            "Example: mltree concordance primates.mltree.bestTree "
            "--gene-trees datasets/primates.bootstraps --alignment datasets/primates.phy"
        ),
    ),
}
"""By name: each with an example."""
