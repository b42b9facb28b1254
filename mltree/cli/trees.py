"""The command line of commands that need trees alone; see :mod:`mltree.cli.main`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from mltree.cli.options import (
    BesideOption,
    CutoffOption,
    JsonOption,
    QuietOption,
    RedoOption,
    SeedOption,
    TreesArgument,
    command_line,
    reporter_of,
)
from mltree.cli.support_options import MetricOption

if TYPE_CHECKING:
    from mltree.commands.trees import TreesRequest

__all__ = ["TREE_COMMANDS"]


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
    from mltree.commands.trees import run_support

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
    from mltree.commands.trees import run_consensus

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
    from mltree.commands.trees import run_rf

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
    from mltree.commands.trees import run_bootstop

    with reporter_of(quiet, False, json) as reporter:
        run_bootstop(trees, seed, cutoff, command_line(), reporter)


def _trees_request(trees: str, beside: str, prefix: str | None, redo: bool) -> TreesRequest:
    from mltree.commands.trees import TreesRequest

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
