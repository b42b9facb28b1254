"""``mltree evaluate`` on the command line; see :mod:`mltree.cli.main`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from mltree.cli.help import origins
from mltree.cli.options import (
    AlignmentArgument,
    Brlen,
    BrlenOption,
    DataTypeOption,
    DeviceOption,
    GuideTreeOption,
    JsonOption,
    MemoryOption,
    ModelOption,
    Precision,
    PrecisionOption,
    PrefixOption,
    QuietOption,
    RedoOption,
    SiteFrequenciesOption,
    SiteRatesOption,
    ThreadsOption,
    TreeFile,
    VerboseOption,
    WidthOption,
    command_line,
    reporter_of,
    resources_of,
)

__all__ = ["EVALUATE_COMMANDS"]


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
    from mltree.commands.evaluate import EvaluateRequest, run_evaluate
    from mltree.commands.site_frequencies import SiteFrequencies

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
