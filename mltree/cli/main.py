"""The commands: of each its options, the analysis that it runs, and an example.

Nothing heavy is imported before a command runs, so that ``mltree --help`` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mltree.analyses import options
from mltree.cli.derive import Analysis, Derived
from mltree.cli.exits import EXIT_CODES, Commands, exit_code, leave_out_others
from mltree.cli.help import Command
from mltree.system.version import __version__

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


ANALYSES = {
    "search": Analysis(
        options.SearchOptions,
        "loci:run_searches",
        "datasets/primates.phy --model HKY+G4 --prefix primates",
    ),
    "compare": Analysis(
        options.CompareOptions,
        "inspect:run_compare",
        "datasets/primates.phy --tree primates.mltree.bestTree --model primates.mltree.bestModel",
    ),
    "devices": Analysis(options.DevicesOptions, "inspect:run_devices", ""),
    "check": Analysis(options.CheckOptions, "inspect:run_check", "datasets/frogs.phy"),
    "run": Analysis(
        options.RunOptions, "whole:run_whole", "datasets/primates.phy --prefix primates"
    ),
    "bootstrap": Analysis(
        options.BootstrapOptions,
        "bootstrap:run_bootstrap",
        "datasets/primates.phy --replicates 100 --tree primates.mltree.bestTree "
        "--model primates.mltree.bestModel",
    ),
    "model": Analysis(
        options.ModelChoiceOptions, "model_selection:run_model", "datasets/primates.phy"
    ),
    "evaluate": Analysis(
        options.EvaluateOptions,
        "evaluate:run_evaluate",
        "datasets/primates.phy --tree primates.mltree.bestTree",
    ),
    "support": Analysis(
        options.SupportOptions,
        "trees:run_support",
        "primates.mltree.bestTree --trees datasets/primates.bootstraps --metric fbp,tbe",
    ),
    "consensus": Analysis(
        options.ConsensusOptions,
        "trees:run_consensus",
        "datasets/primates.bootstraps --type majority,extended --prefix primates",
    ),
    "rf": Analysis(
        options.DistanceOptions,
        "trees:run_rf",
        "datasets/primates.bootstraps --reference primates.mltree.bestTree --weighted "
        "--prefix primates",
    ),
    "bootstop": Analysis(
        options.BootstopOptions, "trees:run_bootstop", "datasets/primates.bootstraps"
    ),
    "alrt": Analysis(
        options.BranchTestOptions,
        "tree_tests:run_alrt",
        "datasets/primates.phy --tree primates.mltree.bestTree --model HKY+G4 "
        "--tests sh-alrt,abayes",
    ),
    "test": Analysis(
        options.TreeTestOptions,
        "tree_tests:run_test",
        "datasets/primates.phy --trees rivals.nwk --model HKY+G4",
    ),
    "concordance": Analysis(
        options.ConcordanceOptions,
        "trees:run_concordance",
        "primates.mltree.bestTree --gene-trees datasets/primates.bootstraps "
        "--alignment datasets/primates.phy",
    ),
    "report": Analysis(options.ReportOptions, "report:run_report", "primates"),
    "draw": Analysis(
        options.DrawOptions, "convert:run_draw", "primates.mltree.bestTree -o primates.svg"
    ),
    "simulate": Analysis(
        options.SimulateOptions,
        "simulate:run_simulate",
        "--taxa 50 --random-tree yule --model HKY{3}+FE+G4{0.5} "
        "--sites 1000 -o simulated.fasta --true-tree simulated.nwk",
    ),
    "sitelh": Analysis(
        options.SiteLnlOptions,
        "tree_tests:run_sitelh",
        "datasets/primates.phy --trees primates.mltree.bestTree --model HKY+G4 --prefix primates",
    ),
    "convert": Analysis(
        options.ConvertOptions, "convert:run_convert", "datasets/primates.phy -o primates.nex"
    ),
    "ancestral": Analysis(
        options.AncestralOptions,
        "ancestral:run_ancestral",
        "datasets/primates.phy --tree primates.mltree.bestTree --model HKY+G4 --prefix primates",
    ),
}
"""By name of the command."""

for _name, _analysis in ANALYSES.items():
    _example = f"Example: mltree {_name} {_analysis.example}".rstrip()
    app.command(_name, cls=Command, epilog=_example)(Derived(_name, _analysis))


def main() -> None:
    """The ``mltree`` command."""
    leave_out_others(app, sys.argv[1:])
    sys.exit(exit_code(app))
