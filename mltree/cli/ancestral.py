"""``mltree ancestral`` on the command line; see :mod:`mltree.cli.main`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated

import typer

from mltree.cli.help import origins
from mltree.cli.options import (
    AlignmentArgument,
    Brlen,
    BrlenOption,
    DataTypeOption,
    DeviceOption,
    JsonOption,
    MemoryOption,
    ModelOption,
    Precision,
    PrefixOption,
    QuietOption,
    RedoOption,
    ThreadsOption,
    TreeFile,
    VerboseOption,
    command_line,
    reporter_of,
    resources_of,
)

__all__ = ["ANCESTRAL_COMMANDS"]


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
    from mltree.commands.ancestral import AncestralRequest, run_ancestral

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
