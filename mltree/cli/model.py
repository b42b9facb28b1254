"""``mltree model`` on the command line."""

from __future__ import annotations

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
    Precision,
    PrecisionOption,
    PrefixOption,
    QuietOption,
    RedoOption,
    SeedOption,
    ThreadsOption,
    VerboseOption,
    WidthOption,
    command_line,
    reporter_of,
    resources_of,
)

__all__ = ["MODEL_COMMANDS", "MergeOption", "PartitionsOption"]

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
    from mltree.commands.model import ModelRequest, run_model

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
