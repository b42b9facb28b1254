"""The command line of the tools around a search; see :mod:`mltree.cli.main`."""

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
    PrefixOption,
    QuietOption,
    RedoOption,
    SeedOption,
    ThreadsOption,
    VerboseOption,
    command_line,
    mean_length_of,
    reporter_of,
    size_of,
    whole_of,
)


class SiteFormat(str, Enum):
    """Whose format site lnLs are written in."""

    IQTREE = "iqtree"
    RAXML = "raxml"


class Shape(str, Enum):
    """How a random tree comes about."""

    UNIFORM = "uniform"
    YULE = "yule"


class PictureLayout(str, Enum):
    """How a tree is laid out in a picture."""

    RECTANGULAR = "rectangular"
    CIRCULAR = "circular"


OutOption = Annotated[
    str, typer.Option("--out", "-o", metavar="FILE", help="File to write.", show_default=False)
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="phylip (relaxed), phylip-strict, phylip-interleaved, fasta or nexus; newick, nexus, "
        "auspice or itol for trees. Default: as the name of the file ends.",
    ),
]


def _report(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="As it was given to the search (--prefix).")
    ],
    alignment: Annotated[
        str | None,
        typer.Option(
            "--alignment",
            metavar="FILE",
            help="Where the alignment is now. Default: where the search had it, or beside PREFIX.",
        ),
    ] = None,
    tree: Annotated[
        str | None,
        typer.Option(
            "--tree",
            "-t",
            metavar="FILE",
            help="Another tree to show, such as one with supports. Default: PREFIX.mltree.support "
            "if there is one, else .bestTree.",
        ),
    ] = None,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Draw all that a search has found as one page of HTML, which needs no network.

    Writes PREFIX.mltree.report.html: the tree to zoom, search, collapse and re-root; lnL over time;
    where time went; the model; the alignment; the settings. Works while a search runs, too.
    """
    from mltree.analyses.report import ReportRequest, run_report

    request = ReportRequest(
        prefix=prefix, alignment=alignment, tree=tree, redo=redo, command=command_line()
    )
    with reporter_of(quiet, False, json) as reporter:
        run_report(request, reporter)


def _draw(
    tree: Annotated[
        str, typer.Argument(metavar="TREE", help="Newick or NEXUS tree, of any shape.")
    ],
    out: OutOption,
    layout: Annotated[
        PictureLayout,
        typer.Option("--layout", metavar="rectangular|circular", help="Tips in rows, or around."),
    ] = PictureLayout.RECTANGULAR,
    as_written: Annotated[
        bool, typer.Option("--as-written", help="Keep the order of the file: do not ladderise.")
    ] = False,
    cladogram: Annotated[
        bool, typer.Option("--cladogram", help="Draw the topology alone, not branch lengths.")
    ] = False,
    no_supports: Annotated[
        bool, typer.Option("--no-supports", help="Leave the labels of inner nodes out.")
    ] = False,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Draw a tree as SVG, PNG or PDF, with supports and a scale bar.

    The name of the file decides which. PNG and PDF take matplotlib (pip install 'mltree[draw]').
    """
    from mltree.analyses.convert import PictureRequest, run_draw
    from mltree.report.drawing import Style

    style = Style(
        layout=layout.value,
        is_ladderised=not as_written,
        is_scaled=not cladogram,
        shows_supports=not no_supports,
    )
    request = PictureRequest(tree=tree, out=out, style=style, redo=redo, command=command_line())
    with reporter_of(quiet, False, json) as reporter:
        run_draw(request, reporter)


def _simulate(
    out: OutOption,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="RAxML-NG's grammar, with values in braces (GTR{1/3/1/1/4/1}+FU{...}+G4{0.5}), or "
            "a .bestModel file.",
            show_default=False,
        ),
    ],
    tree: Annotated[
        str | None,
        typer.Option("--tree", "-t", metavar="FILE", help="Newick tree to evolve along."),
    ] = None,
    taxa: Annotated[
        int | None,
        typer.Option("--taxa", metavar="N", parser=whole_of, help="Taxa of a random tree instead."),
    ] = None,
    random_tree: Annotated[
        Shape,
        typer.Option(
            "--random-tree",
            metavar="uniform|yule",
            help="uniform: all topologies are as likely, branch lengths are exponential; yule: it "
            "grows by births alone, and all tips are of one age.",
        ),
    ] = Shape.UNIFORM,
    mean_length: Annotated[
        float,
        typer.Option(
            "--mean-length",
            metavar="LENGTH",
            parser=mean_length_of,
            help="Mean branch length of a random tree, substitutions per site.",
        ),
    ] = 0.15,
    sites: Annotated[
        int | None,
        typer.Option("--sites", "-n", metavar="N", parser=whole_of, help="Sites to simulate."),
    ] = None,
    unique: Annotated[
        int | None,
        typer.Option(
            "--unique",
            metavar="N",
            parser=whole_of,
            help="Instead: exactly N distinct columns, each once.",
        ),
    ] = None,
    gaps_from: Annotated[
        str | None,
        typer.Option(
            "--gaps-from",
            metavar="FILE",
            help="Alignment whose gaps are put over the sequences, taxon by taxon.",
        ),
    ] = None,
    frequencies_from: Annotated[
        str | None,
        typer.Option(
            "--frequencies-from",
            metavar="FILE",
            help="Alignment to count the frequencies in that a model with +FC leaves open, such as "
            "the .bestModel of a search under GTR+FC+G4.",
        ),
    ] = None,
    true_tree: Annotated[
        str | None,
        typer.Option("--true-tree", metavar="FILE", help="Also write the tree, in Newick."),
    ] = None,
    file_format: FormatOption = None,
    seed: SeedOption = 1,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Simulate an alignment: sequences evolve along a tree under any model.

    The same options and seed give the same file, byte for byte.
    """
    from mltree.analyses.simulate import SimulationRequest, run_simulate

    request = SimulationRequest(
        out=out,
        model=model,
        tree=tree,
        shape=random_tree.value,
        taxa=taxa,
        mean_length=mean_length,
        true_tree=true_tree,
        sites=sites,
        unique=unique,
        gaps_from=gaps_from,
        frequencies_from=frequencies_from,
        seed=seed,
        file_format=file_format,
        redo=redo,
        command=command_line(),
    )
    with reporter_of(quiet, False, json) as reporter:
        run_simulate(request, reporter)


def _sitelh(
    alignment: AlignmentArgument,
    trees: Annotated[
        str,
        typer.Option(
            "--trees",
            "-t",
            metavar="FILE",
            help="Newick trees of all taxa, one or several.",
            show_default=False,
        ),
    ],
    model: ModelOption = None,
    data_type: DataTypeOption = None,
    brlen: BrlenOption = Brlen.SCALED,
    file_format: Annotated[
        SiteFormat,
        typer.Option(
            "--format", metavar="iqtree|raxml", help="Whose format: .sitelh, .perSiteLLs."
        ),
    ] = SiteFormat.IQTREE,
    no_opt_model: Annotated[
        bool,
        typer.Option(
            "--no-opt-model", help="Keep the model's parameters, else estimated on the first tree."
        ),
    ] = False,
    no_opt_branches: Annotated[
        bool, typer.Option("--no-opt-branches", help="Keep the trees' branch lengths.")
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
    """Compute the lnL of every site on every tree, for tests of topologies elsewhere.

    Writes PREFIX.mltree.sitelh as IQ-TREE does (CONSEL reads it), or .perSiteLLs as RAxML does.
    """
    from mltree.analyses.tree_tests import SiteRequest, run_sitelh
    from mltree.runs.engines import Resources

    limit = None if memory_limit is None else size_of(memory_limit)
    request = SiteRequest(
        alignment=alignment,
        model=model,
        datatype=data_type,
        linkage=brlen.value,
        resources=Resources(device=device, memory_limit=limit),
        prefix=prefix,
        redo=redo,
        command=command_line(),
        options=origins(),
        trees=trees,
        file_format=file_format.value,
        optimise_model=not no_opt_model,
        optimise_branches=not no_opt_branches,
    )
    with reporter_of(quiet, verbose, json) as reporter:
        run_sitelh(request, reporter)


def _convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Alignment, trees in Newick or NEXUS, or a run's result (PREFIX.mltree.json).",
        ),
    ],
    out: OutOption,
    file_format: FormatOption = None,
    data_type: DataTypeOption = None,
    redo: RedoOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Convert an alignment, trees or a result to another format.

    Trees also go to auspice (NAME.auspice.json) and to iTOL, as a dataset of supports to lay over
    the Newick file (NAME.itol.txt); results to MultiQC (NAME_mqc.json).
    """
    from mltree.analyses.convert import ConversionRequest, run_convert

    request = ConversionRequest(
        source=source,
        out=out,
        file_format=file_format,
        datatype=data_type,
        redo=redo,
        command=command_line(),
    )
    with reporter_of(quiet, False, json) as reporter:
        run_convert(request, reporter)


TOOL_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "report": (_report, "Example: mltree report primates"),
    "draw": (_draw, "Example: mltree draw primates.mltree.bestTree -o primates.svg"),
    "simulate": (
        _simulate,
        (
            "Example: mltree simulate --taxa 50 --random-tree yule --model HKY{3}+FE+G4{0.5} "
            "--sites 1000 -o simulated.fasta --true-tree simulated.nwk"
        ),
    ),
    "sitelh": (
        _sitelh,
        (
            "Example: mltree sitelh datasets/primates.phy --trees primates.mltree.bestTree "
            "--model HKY+G4 --prefix primates"
        ),
    ),
    "convert": (_convert, "Example: mltree convert datasets/primates.phy -o primates.nex"),
}
"""By name: each with an example."""
