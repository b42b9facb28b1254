"""The options of analyses of Bayesian samples; the others are in :mod:`mltree.analyses.options`."""

from typing import Annotated

from mltree.analyses.options import TreesOptions
from mltree.runs.options import AUTO, OUTPUT, Option, burnin_of

# No postponed annotations: the options of a field are looked up in its annotation.


class SummarizeOptions(TreesOptions, kw_only=True):
    """Sum up Bayesian samples, of MrBayes, BEAST, RevBayes or PhyloBayes too: trees, parameters.

    Writes MrBayes' files, PREFIX.mltree.con.tre (the consensus with probabilities, lengths and
    their intervals, for FigTree), .parts, .tstat, .vstat, .trprobs and .pstat; .mcc.tre, the tree
    of maximum clade credibility as TreeAnnotator writes it; .splits.tsv and .parameters.tsv, tables
    with ESS and R-hat. Says whether runs have converged, by the rules of Fabreti and Höhna (2022).

    SAMPLE is a prefix: that of primates.run1.t and primates.run1.p is primates. Files instead of a
    prefix are runs of one analysis. Several prefixes are compared by their marginal likelihoods.
    """

    sample: Annotated[
        str,
        Option(
            "SAMPLE...",
            "Prefix of the files of all runs (.run1.t, .run1.p), or files, one of each run (.t, "
            ".trees, .log, .p); or several prefixes, for Bayes factors.",
            rest="samples",
        ),
    ]
    samples: tuple[str, ...] = ()
    """All that were typed."""
    burnin: Annotated[
        str,
        Option(
            "--burnin SHARE|auto",
            "Share of each run to leave out at its beginning, such as 0.25; auto: until no run "
            "begins unlike its own second half.",
            parse=burnin_of,
        ),
    ] = AUTO
    kind: Annotated[
        str,
        Option(
            "--type majority|extended",
            "Consensus in .con.tre: splits of more than half of the trees, or the most frequent "
            "others that fit too (MrBayes' allcompat).",
            choices=("majority", "extended"),
        ),
    ] = "majority"
    tree: Annotated[
        str | None,
        Option(
            "-t, --tree FILE",
            "Trees, of any shape, whose posterior probability is wanted: the share of the sampled "
            "trees that have all of their splits.",
            reads="trees",
        ),
    ] = None
    split: Annotated[
        str | None,
        Option(
            "--split TAXA",
            "Group of taxa, separated by commas, whose posterior probability is wanted; several "
            "with semicolons.",
        ),
    ] = None
    prior_sample: Annotated[
        str | None,
        Option(
            "--prior-sample PREFIX",
            "Samples of the prior, to be drawn beside the posterior in the report.",
            only_with=("report",),
        ),
    ] = None
    report: Annotated[
        bool,
        Option(
            "--report",
            "Also write .posterior.html: the consensus, traces, densities, frequencies of splits "
            "by run.",
            panel=OUTPUT,
        ),
    ] = False
    netcdf: Annotated[
        bool,
        Option(
            "--netcdf",
            "Also write .nc, ArviZ's InferenceData. Needs pip install 'mltree[sample]'.",
            panel=OUTPUT,
        ),
    ] = False
