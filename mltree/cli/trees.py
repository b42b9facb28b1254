"""The command line of tests of trees and branches, and of commands that need trees alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from mltree.cli.help import origins
from mltree.cli.options import (
    AlignmentArgument,
    BesideOption,
    Brlen,
    BrlenOption,
    CutoffOption,
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
    TreesArgument,
    VerboseOption,
    WidthOption,
    command_line,
    reporter_of,
    resources_of,
)
from mltree.cli.support_options import MetricOption

if TYPE_CHECKING:
    from mltree.analyses.trees import TreesRequest


# The command line of tests of trees and branches against data; see :mod:`mltree.cli.main`.

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
    from mltree.analyses.tree_tests import BranchTestRequest, run_alrt

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
    from mltree.analyses.tree_tests import TreeTestRequest, run_test

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
    from mltree.analyses.trees import ConcordanceRequest, run_concordance

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


# The command line of commands that need trees alone; see :mod:`mltree.cli.main`.


def _support(
    tree: Annotated[str, typer.Argument(metavar="TREE", help="Newick tree, of any shape.")],
    trees: Annotated[
        str,
        typer.Option(
            "--trees",
            metavar="FILE",
            help="Replicates: Newick trees of the same taxa.",
            show_default=False,
        ),
    ],
    metric: MetricOption = "fbp",
    prefix: BesideOption = None,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Draw the supports of a tree's branches, by bootstrap or any other trees, on it.

    Writes PREFIX.mltree.support or, of both metrics, .supportFBP and .supportTBE: the tree as it
    was, with its root, polytomies and branch lengths, and the supports as labels of inner nodes.
    """
    from mltree.analyses.trees import run_support

    with reporter_of(quiet, False, json) as reporter:
        run_support(_trees_request(trees, tree, prefix, redo), tree, metric, reporter)


def _consensus(
    trees: TreesArgument,
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="strict: branches of all trees; majority: of more than half; "
            "extended: and the commonest others that fit; several with commas.",
        ),
    ] = "majority",
    prefix: BesideOption = None,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Build the consensus of trees, labelled with the percentage that has each branch.

    Writes PREFIX.mltree.consensusTreeSTRICT, .consensusTreeMR or .consensusTreeMRE. Where branches
    are as common, the extended majority prefers the one that splits the taxa more evenly, and then
    the one whose taxa come first by name.
    """
    from mltree.analyses.trees import run_consensus

    with reporter_of(quiet, False, json) as reporter:
        run_consensus(_trees_request(trees, trees, prefix, redo), kind, reporter)


def _rf(
    trees: TreesArgument,
    reference: Annotated[
        str | None,
        typer.Option("--reference", metavar="FILE", help="Newick tree that all are compared with."),
    ] = None,
    weighted: Annotated[
        bool,
        typer.Option("--weighted", help="Also compare branch lengths, those of tips included."),
    ] = False,
    prefix: BesideOption = None,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compute Robinson-Foulds distances: of all pairs of trees, or of all from a reference.

    Writes PREFIX.mltree.rfDistances: a line for each pair with the numbers of its trees, counted
    from 0 (the reference is 0), the splits that only one of them has, that number as a share of
    2(T - 3), and with --weighted the sum of the differences in branch length.
    """
    from mltree.analyses.trees import run_rf

    with reporter_of(quiet, False, json) as reporter:
        run_rf(_trees_request(trees, trees, prefix, redo), reference, weighted, reporter)


def _bootstop(
    trees: TreesArgument,
    cutoff: CutoffOption = 0.03,
    seed: SeedOption = 1,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Tell whether trees are enough bootstrap replicates (autoMRE), after every 50 of them.

    The trees are halved at random 1,000 times; the halves' extended majority consensus trees, with
    their supports, have to be within the cutoff in 99 % of the halvings, and on average.
    """
    from mltree.analyses.trees import run_bootstop

    with reporter_of(quiet, False, json) as reporter:
        run_bootstop(trees, seed, cutoff, command_line(), reporter)


def _trees_request(trees: str, beside: str, prefix: str | None, redo: bool) -> TreesRequest:
    from mltree.analyses.trees import TreesRequest

    return TreesRequest(
        trees=trees, named_after=beside, prefix=prefix, redo=redo, command=command_line()
    )


TREE_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "support": (
        _support,
        (
            "Example: mltree support primates.mltree.bestTree --trees datasets/primates.bootstraps "
            "--metric fbp,tbe"
        ),
    ),
    "consensus": (
        _consensus,
        (
            "Example: mltree consensus datasets/primates.bootstraps --type majority,extended "
            "--prefix primates"
        ),
    ),
    "rf": (
        _rf,
        (
            "Example: mltree rf datasets/primates.bootstraps --reference primates.mltree.bestTree "
            "--weighted --prefix primates"
        ),
    ),
    "bootstop": (_bootstop, "Example: mltree bootstop datasets/primates.bootstraps"),
}
"""By name: each with an example."""
