"""The options of analyses of Bayesian samples; the others are in :mod:`mltree.analyses.options`."""

from typing import Annotated

from mltree.analyses.tree_options import TreesOptions
from mltree.runs.options import (
    AUTO,
    OUTPUT,
    ExactOptions,
    Option,
    Partitions,
    SeedOptions,
    share_of,
    whole_of,
)
from mltree.system.errors import InputError

CELLS, MOST_CELLS, GROUPS = 20, 500, 5
"""Cells of a skygrid where their number is not given, and at most; groups of a skyline, as BEAUti
has them."""

# No postponed annotations: the options of a field are looked up in its annotation.


def burnin_of(text: str) -> str:
    """A share to leave out, below 1, or ``auto``. Raises: ValueError."""
    if text != AUTO and share_of(text) >= 1.0:
        raise ValueError("a burn-in of all samples leaves none")
    return text


class SampleOptions(SeedOptions, ExactOptions, kw_only=True):
    """Sample trees and parameters from their posterior: Bayesian inference by heated chains.

    Writes PREFIX.mltree.run1.p, .run1.t and so on, samples of each run as MrBayes has them, without
    burn-in, .sample.json with ln Z, its standard error and all settings, and .sampleLog; mltree
    summarize PREFIX sums them up. Ends when every parameter and every split has an effective sample
    size of 625 and runs agree (Fabreti and Höhna 2022). A run that was stopped, by whatever means,
    goes on with the same command; a later --stop adds samples.

    In place of an alignment, an XML of BEAUti (BEAST 2) is taken over: data, dates, clock, priors.
    """

    partitions: Partitions = None
    prior: Annotated[
        str | None,
        Option(
            "--prior FILE",
            'Priors, a TOML file such as branch_lengths = "Exponential(10)"; those that are used '
            "are printed. Default: MrBayes', GammaDirichlet(1, 0.1, 1, 1) for branch lengths.",
            reads="file",
        ),
    ] = None
    prior_only: Annotated[
        bool, Option("--prior-only", "Sample the prior: the data do not count.")
    ] = False
    clock: Annotated[
        str,
        Option(
            "--clock none|strict|ucln|ucgd|wn",
            "Sample trees with a time axis: one rate, log-normal or gamma rates of branches "
            "(uncorrelated), or white noise. Writes .run1.log and .run1.trees as BEAST does.",
            choices=("none", "strict", "ucln", "ucgd", "wn"),
        ),
    ] = "none"
    tree_prior: Annotated[
        str,
        Option(
            "--tree-prior yule|bd|coalescent|expgrowth|skygrid|skyline",
            "Prior of time trees: births, births and deaths, or a coalescent of constant size, of "
            "exponential growth, of sizes in cells of time, or in groups of the tree's events.",
            choices=("yule", "bd", "coalescent", "expgrowth", "skygrid", "skyline"),
        ),
    ] = "coalescent"
    dates: Annotated[
        str | None,
        Option(
            "--dates names|FILE|REGEX",
            "Dates of the tips: in their names, a table (name, tab, date), or a regular expression "
            "whose group is the date; intervals are sampled.",
            reads="file",
        ),
    ] = None
    ages: Annotated[
        bool,
        Option("--ages", "Numbers are ages, counted back from the present.", only_with=("dates",)),
    ] = False
    calibrate: Annotated[
        str | None,
        Option(
            "--calibrate FILE",
            "Ages of groups: a line each, a name, taxa with commas, an interval or a distribution, "
            "and stem or monophyletic.",
            reads="file",
        ),
    ] = None
    skygrid: Annotated[
        str | None,
        Option(
            "--skygrid CELLS[,WIDTH]",
            "Cells of --tree-prior skygrid, and the time that each takes, the last one having no "
            "end. Default: 20, over twice the span of dates.",
        ),
    ] = None
    skyline: Annotated[
        int,
        Option(
            "--skyline GROUPS",
            "Groups of events of --tree-prior skyline, in each of which the size is constant.",
            least=1,
        ),
    ] = GROUPS
    runs: Annotated[
        int | None,
        Option(
            "--runs N",
            "Independent runs, which have to agree. Default: 2 on a CPU; 4 on a GPU, with a clock "
            "as many as it sweeps at once, 32 at most.",
            least=1,
        ),
    ] = None
    rungs: Annotated[
        str,
        Option(
            "--rungs N|auto",
            "Chains of a run, from the posterior to the prior, 1 to sample without the others; "
            "auto: as many as chains need to change places, 1 for trees with a clock.",
        ),
    ] = AUTO
    stop: Annotated[
        str,
        Option(
            "--stop N|auto",
            "Samples of each run; auto: until they have converged.",
            is_incidental=True,
        ),
    ] = AUTO
    burnin: Annotated[
        str,
        Option(
            "--burnin N|auto",
            "Iterations before samples are taken, in which all is tuned; auto: until lnL has "
            "settled.",
        ),
    ] = AUTO
    every: Annotated[
        int,
        Option("--every N", "Iterations from a sample to the next.", least=1),
    ] = 1

    @property
    def is_timed(self) -> bool:
        """True for trees with a time axis."""
        return self.clock != "none"

    def expect_time(self) -> None:
        """Make sure that no option of other trees, or priors, is given. Raises: InputError."""
        of_time = "calibrate", "dates", "skygrid", "skyline", "tree_prior"
        given = {name for name in of_time if getattr(self, name) != getattr(type(self), name)}
        if given and not self.is_timed:
            name = f"--{min(given)}".replace("_", "-")
            raise InputError(f"{name} is of trees in time", hint="add --clock")
        if lost := given & {"skygrid", "skyline"} - {self.tree_prior}:
            raise InputError(f"--{min(lost)} is of --tree-prior {min(lost)}")

    @property
    def cells(self) -> tuple[int, float]:
        """Numbers of sizes that change in time, and the width of a skygrid's; 0 where that is open.

        Raises: InputError.
        """
        if self.tree_prior == "skyline":
            return self.skyline, 1.0
        return self.grid if self.tree_prior == "skygrid" else (0, 1.0)

    @property
    def grid(self) -> tuple[int, float]:
        """Cells of a skygrid, and their width; 0 where that is not given. Raises: InputError."""
        cells, _, width = (self.skygrid or str(CELLS)).partition(",")
        try:
            numbers = int(cells), float(width or 0.0)
        except ValueError:
            numbers = 0, 0.0
        if not 2 <= numbers[0] <= MOST_CELLS or numbers[1] < 0 or (width and not numbers[1] > 0):
            raise InputError(f"--skygrid {self.skygrid}: 2 to {MOST_CELLS} cells, such as 20,0.5")
        return numbers

    def number_of(self, name: str) -> int | None:
        """The number that an option gives; None for auto. Raises: InputError."""
        text = str(getattr(self, name)).strip().lower()
        if text == AUTO:
            return None
        try:
            number = whole_of(text)
        except ValueError:
            number = 0
        if number < 1:
            raise InputError(f"--{name} {text}: a number from 1 on, or auto")
        return number


class SummarizeOptions(TreesOptions, kw_only=True):
    """Sum up Bayesian samples, of MrBayes, BEAST, RevBayes or PhyloBayes too: trees, parameters.

    Writes MrBayes' files, PREFIX.mltree.con.tre (the consensus with probabilities, lengths and
    their intervals, for FigTree), .parts, .tstat, .vstat, .trprobs and .pstat; .mcc.tre, the tree
    of maximum clade credibility as TreeAnnotator writes it; .splits.tsv and .parameters.tsv, tables
    with ESS and R-hat. Says whether runs have converged, by the rules of Fabreti and Höhna (2022).
    Of dated trees too .ccd0.tre, the best tree of sampled clades (CCD0, Berling et al. 2025),
    .courses.tsv, lineages and population size through time, and .auspice.json.

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
    heights: Annotated[
        str,
        Option(
            "--heights median|mean|common|keep",
            "Heights of the nodes of dated trees: of the trees that have the clade, or the mean "
            "height of the last common ancestor in all trees (TreeAnnotator's CA), or those of the "
            "sampled tree itself.",
            choices=("median", "mean", "common", "keep"),
        ),
    ] = "median"
    dates: Annotated[
        str | None,
        Option(
            "--dates names|FILE|REGEX",
            "Dates of the tips, as mltree date takes them, so that nodes of dated trees have "
            "dates. Default: those of mltree sample.",
            reads="file",
        ),
    ] = None
    ages: Annotated[
        bool,
        Option("--ages", "Numbers are ages, counted back from the present.", only_with=("dates",)),
    ] = False
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
            "Also write .posterior.html: the consensus, or the MCC tree on a time axis, traces, "
            "densities, frequencies of splits by run.",
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
