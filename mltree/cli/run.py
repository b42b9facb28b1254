"""``mltree run`` on the command line; see :mod:`mltree.cli.main`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from mltree.cli.help import SUPPORTS, origins
from mltree.cli.model import MergeOption, PartitionsOption
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
    Preset,
    QuietOption,
    RanksOption,
    RedoOption,
    SeedOption,
    ThreadsOption,
    VerboseOption,
    command_line,
    reporter_of,
    resources_of,
)
from mltree.cli.parsers import whole_of
from mltree.cli.support_options import (
    ClimbOption,
    UltrafastOption,
    bootstrap_of,
    local_tests_of,
    ultrafast_of,
)
from mltree.ranks import start

__all__ = ["RUN_COMMANDS"]

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
    from mltree.commands.supports import Supports
    from mltree.commands.whole import WholeRequest, run_whole

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
