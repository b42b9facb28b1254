"""The options of every analysis: a class each, whose docstring is the help of its command.

Apart from the analyses, because ``--threads`` acts, and ``--help`` answers, before NumPy is loaded.
Options that several analyses have are in :mod:`mltree.runs.options`.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from mltree.runs.options import (
    OUTPUT,
    SUPPORTS,
    AnalysisOptions,
    Constraint,
    DataOptions,
    DataType,
    Device,
    ExactOptions,
    FitOptions,
    Merge,
    MetricOptions,
    Moves,
    Option,
    Partitions,
    Precision,
    Ranks,
    SeedOptions,
    ShownOptions,
    SiteFrequencyOptions,
    SiteRates,
    Threads,
    Tree,
    UltrafastOptions,
    WrittenOptions,
    length_of,
    mean_length_of,
    share_of,
    whole_of,
)
from mltree.system.errors import InputError
from mltree.system.files import is_folder

if TYPE_CHECKING:
    from mltree.runs.workspace import Workspace


# No postponed annotations: the options of a field are looked up in its annotation.


PRESETS = ("fast", "default", "thorough")
"""How much work a search does."""

SHOWN = 3
"""Names of alignments in a message."""


# Trees and models.


class SearchOptions(
    UltrafastOptions, MetricOptions, SeedOptions, ExactOptions, SiteFrequencyOptions, kw_only=True
):
    """Find the maximum-likelihood tree of an alignment.

    Writes PREFIX.mltree.bestTree (Newick), .bestModel (RAxML-NG's syntax), .startTree and .log.
    A search that was stopped, by whatever means, goes on where it was when the same command is
    given again; Ctrl-C, SIGTERM and SIGHUP leave the best tree so far in .lastTree.
    With --bootstrap also the files of mltree bootstrap; a larger N adds to what is there.
    With supports of any kind .support, the best tree with them as labels, in IQ-TREE's order:
    SH-aLRT/LBP/aLRT/aBayes/bootstrap; with tests of branches .branchTests, a table of all of them;
    with --ufboot its trees, .ufboot, their consensus with branch lengths, .contree, and all splits,
    .splits.nex.

    Several alignments, or a folder, are loci: each has a tree and a model of its own, in
    .bestTrees (Newick, a tree a line, in order) and .lociTable.
    """

    alignment: Annotated[
        str,
        Option(
            "ALIGNMENT...",
            "FASTA, PHYLIP, NEXUS, Clustal or Stockholm, plain or packed (gzip, bzip2, xz); "
            "DNA, codons, protein, binary or multistate. Format and type are recognised. - is "
            "standard input. Several, or a folder of them, are loci.",
            reads="file",
            rest="alignments",
        ),
    ]
    alignments: tuple[str, ...] = ()
    """All that were typed."""
    separate: Annotated[
        bool,
        Option(
            "--separate",
            "Every part of --partitions is a locus with a tree of its own; or, without them, "
            "the argument is a list of alignments, a file a line.",
        ),
    ] = False
    partitions: Partitions = None
    merge: Merge = False
    tree: Annotated[
        str | None,
        Option(
            "-t, --tree START",
            "Starting trees: pars{N}, rand{N}, pars{4},rand{2}, or a Newick file. Default: "
            "parsimony, as many as the preset has.",
            reads="tree",
        ),
    ] = None
    preset: Annotated[
        str,
        Option(
            "--preset fast|default|thorough",
            "fast: one start, some where taxa are few or on a GPU, and no perturbation; "
            "thorough: more of both.",
            choices=PRESETS,
        ),
    ] = "default"
    moves: Moves = "spr"
    constraint: Constraint = None
    outgroup: Annotated[
        str | None,
        Option(
            "--outgroup TAXA",
            "Taxa, separated by commas, next to which the result is written. Changes how the "
            "tree is shown, not the search.",
        ),
    ] = None
    collapse: Annotated[
        float | None,
        Option(
            "--collapse LENGTH",
            "Write inner branches no longer than this as polytomies.",
            parse=length_of,
        ),
    ] = None
    bootstrap: Annotated[
        str | None,
        Option(
            "--bootstrap N",
            "Then N bootstrap replicates, and supports on the best tree; auto: as many as it "
            "takes until more would change little (autoMRE), 1,000 at most.",
            panel=SUPPORTS,
        ),
    ] = None
    sh_alrt: Annotated[
        int | None,
        Option(
            "--sh-alrt N",
            "SH-aLRT of every branch of the best tree, by N resamplings (1000 is usual).",
            parse=whole_of,
            panel=SUPPORTS,
        ),
    ] = None
    lbp: Annotated[
        int | None,
        Option(
            "--lbp N",
            "Local bootstrap probability of every branch, by N resamplings.",
            parse=whole_of,
            panel=SUPPORTS,
        ),
    ] = None
    alrt: Annotated[
        bool, Option("--alrt", "Parametric aLRT of every branch: 1 - p.", panel=SUPPORTS)
    ] = False
    abayes: Annotated[
        bool, Option("--abayes", "aBayes support of every branch.", panel=SUPPORTS)
    ] = False
    site_rates: SiteRates = False
    report: Annotated[
        bool, Option("--report", "Also write PREFIX.mltree.report.html, see report.")
    ] = False
    ranks: Ranks = None

    @property
    def has_loci(self) -> bool:
        """True if there are many trees to find: of several alignments, a folder, or every part."""
        return self.separate or len(self.alignments) > 1 or any(map(is_folder, self.alignments))

    @property
    def workspace(self) -> "Workspace":
        """Where the run writes: loci beside a lone folder or file where there is no prefix."""
        from mltree.runs.workspace import Workspace

        if not self.has_loci:
            return super().workspace
        if self.prefix is None and len(self.alignments) > 1:
            several = ", ".join(self.alignments[:SHOWN]) + " ..." * (len(self.alignments) > SHOWN)
            hint = f"give --prefix; {several} are taken for alignments"
            raise InputError("many alignments need a name", hint=hint)
        return Workspace.of(self.prefix, self.alignment.rstrip("/"))

    @property
    def asked(self) -> str:
        """The digest; of loci, which can be added, that of any alignments."""
        return self.digest(without=["alignment"] if self.has_loci else [])

    @property
    def chooses(self) -> bool:
        """True if the models are to be chosen."""
        from mltree.runs.problem import is_choice

        return is_choice(self.model)


class RunOptions(UltrafastOptions, SeedOptions, AnalysisOptions, kw_only=True):
    """Just build a tree: check the data, choose the model, search, compute supports, report.

    The same as mltree search --model auto --sh-alrt 1000 --bootstrap auto --report, but that the
    bootstrap is the ultrafast one, --ufboot 1000, where the other would take long; it writes the
    same files. Stopped by whatever means, it goes on where it was when the same command is given
    again.
    """

    model: Annotated[
        str | None,
        Option("-m, --model MODEL", "auto, or as for search: no model is chosen.", reads="file"),
    ] = "auto"
    partitions: Partitions = None
    merge: Merge = False
    preset: Annotated[
        str, Option("--preset fast|default|thorough", "Of the search.", choices=PRESETS)
    ] = "default"
    outgroup: Annotated[
        str | None,
        Option("--outgroup TAXA", "Taxa, separated by commas, next to which the tree is written."),
    ] = None
    bootstrap: Annotated[
        str | None,
        Option(
            "--bootstrap N",
            "N bootstrap replicates; auto: until more would change little; none. Default: auto "
            "where that is a matter of minutes on the device, else --ufboot 1000.",
            panel=SUPPORTS,
        ),
    ] = None
    sh_alrt: Annotated[
        int,
        Option(
            "--sh-alrt N",
            "SH-aLRT of every branch, by N resamplings.",
            parse=whole_of,
            panel=SUPPORTS,
        ),
    ] = 1000
    ranks: Ranks = None
    precision: Precision = "double"


class ModelChoiceOptions(SeedOptions, ExactOptions, kw_only=True):
    """Choose the model that suits an alignment best, or each of its parts.

    Writes PREFIX.mltree.bestFitModel, which --model takes, .modelTest, a table of all candidates in
    JSON, .modelLog and, for parts, .best_scheme and .best_scheme.nex.
    """

    model: str | None = None
    partitions: Annotated[
        str | None,
        Option(
            "--partitions FILE",
            "Choose for every part of a partition file (RAxML's, RAxML-NG's, NEXUS); models in "
            "it do not count.",
            reads="file",
        ),
    ] = None
    merge: Merge = False
    criterion: Annotated[
        str,
        Option("--criterion", "bic, aic or aicc.", choices=("bic", "aic", "aicc"), any_case=True),
    ] = "bic"
    tree: Annotated[
        str | None,
        Option("--tree FILE",
"Fit to this tree, not to a quick one of our own.", reads="tree"),
    ] = None  # fmt: skip

    @property
    def chooses(self) -> bool:
        """Always: nothing else is done."""
        return True


class EvaluateOptions(FitOptions, ExactOptions, SiteFrequencyOptions, kw_only=True):
    """Compute the log-likelihood of a tree: topology fixed, or everything fixed.

    Writes PREFIX.mltree.evalTree, .evalModel, .evalLog and, if asked for, .siteLnL, .evalRate
    (under +PSR always), .siteprob and .sitefreq.
    """

    tree: Tree
    site_lnl: Annotated[
        bool, Option("--site-lnl", "Also write the lnL of every site, one a line.")
    ] = False
    site_rates: SiteRates = False
    site_prob: Annotated[
        bool,
        Option(
            "--site-prob", "Also write the probability of every class of a mixture at every site."
        ),
    ] = False
    site_freq: Annotated[
        bool,
        Option(
            "--site-freq",
            "Also write the posterior mean frequencies of every site under a mixture (PMSF), as "
            "IQ-TREE's -fs takes them.",
        ),
    ] = False


class AncestralOptions(FitOptions, kw_only=True):
    """Reconstruct ancestral states: how probable each is at every inner node and site.

    Marginal states, by empirical Bayes. Writes PREFIX.mltree.ancestralTree, whose inner nodes have
    names, and the tables that refer to them: .ancestralProbs and .ancestralStates as RAxML-NG
    does, or .state as IQ-TREE does. A site without any data has the state -; gaps in some taxa
    are unknown states there.
    """

    tree: Tree
    file_format: Annotated[
        str,
        Option(
            "--format raxml|iqtree",
            "Whose files: RAxML-NG's .ancestralProbs and .ancestralStates, or IQ-TREE's .state.",
            choices=("raxml", "iqtree"),
        ),
    ] = "raxml"


# Supports and tests.


class BootstrapOptions(
    MetricOptions, SeedOptions, ExactOptions, SiteFrequencyOptions, kw_only=True
):
    """Search the trees of bootstrap replicates of an alignment, and draw supports.

    Sites are drawn with replacement; every replicate is searched from a start of its own, under
    the same model: as --model gives it (a .bestModel file, say), or fitted beforehand.

    Writes PREFIX.mltree.bootstraps (Newick, a tree a line, while they are found),
    .consensusTreeMR, .replicates (their lnLs, to go on from), .bootstrapLog and, of a tree that is
    given, .support, or .supportFBP and .supportTBE. The same command with a larger N adds to what
    is there.
    """

    replicates: Annotated[
        str,
        Option(
            "-N, --replicates N",
            "How many; auto: as many as it takes until more would change little (autoMRE: asked "
            "after every 50), 1,000 at most.",
        ),
    ] = "auto"
    tree: Annotated[
        str | None,
        Option(
            "-t, --tree FILE",
            "Newick tree that the supports are drawn on, and the model is fitted to. Default: "
            "no supports, and a parsimony tree to fit it to.",
            reads="tree",
        ),
    ] = None
    moves: Moves = "spr"
    constraint: Constraint = None
    ranks: Ranks = None


class TestOptions(SeedOptions, FitOptions, ExactOptions, kw_only=True):
    """Tests against data."""

    __test__ = False  # no test of pytest's


class BranchTestOptions(TestOptions, kw_only=True):
    """Test every inner branch of a tree against its neighbours: SH-aLRT, aLRT, aBayes, LBP.

    Writes PREFIX.mltree.supportALRT, the tree with the supports as labels, in IQ-TREE's order and
    in front of labels that it had (SH-aLRT/UFBoot), and .branchTests, a table of all tests.
    """

    tree: Tree
    tests: Annotated[
        str,
        Option(
            "--tests",
            "sh-alrt, lbp (local bootstrap), alrt (parametric) or abayes; several with commas.",
        ),
    ] = "sh-alrt"
    replicates: Annotated[
        int, Option("--replicates N", "Resamplings for sh-alrt and lbp.", least=1)
    ] = 1000


class TreeTestOptions(TestOptions, kw_only=True):
    """Tell which of several trees the alignment rejects: KH, SH, weighted KH and SH, ELW, AU.

    The model is optimised on the best of the trees, branch lengths on each. Writes
    PREFIX.mltree.treeTests, the table with Monte-Carlo errors, and .testedTrees with the lengths.
    """

    trees: Annotated[
        str, Option("--trees FILE", "Newick file of the trees to compare.", reads="trees")
    ]
    tests: Annotated[str, Option("--tests", "Some of bp,kh,sh,wkh,wsh,elw,au; or all.")] = "all"
    replicates: Annotated[
        int, Option("--replicates N", "Resamplings; for au as many of each of ten sizes.", least=1)
    ] = 10_000


class SiteLnlOptions(FitOptions, kw_only=True):
    """Compute the lnL of every site on every tree, for tests of topologies elsewhere.

    The model is estimated on the first tree, branch lengths on each. Writes PREFIX.mltree.sitelh as
    IQ-TREE does (CONSEL reads it), or .perSiteLLs as RAxML does.
    """

    trees: Annotated[
        str, Option("-t, --trees FILE", "Newick trees of all taxa, one or several.", reads="trees")
    ]
    file_format: Annotated[
        str,
        Option(
            "--format iqtree|raxml",
            "Whose format: .sitelh, .perSiteLLs.",
            choices=("iqtree", "raxml"),
        ),
    ] = "iqtree"


class TreesOptions(WrittenOptions, kw_only=True):
    """Commands that need trees alone, whose files lie beside one of theirs."""

    prefix: Annotated[
        str | None,
        Option(
            "-p, --prefix PREFIX",
            "Files are named PREFIX.mltree.*; the path of the trees' file if not given. A "
            "PREFIX that ends in / is a folder.",
            panel=OUTPUT,
        ),
    ] = None


AnyTree = Annotated[str, Option("TREE", "Newick tree, of any shape.", reads="tree")]
Trees = Annotated[
    str, Option("TREES", "Newick file of several trees of the same taxa.", reads="trees")
]


class SupportOptions(MetricOptions, TreesOptions, kw_only=True):
    """Draw the supports of a tree's branches, by bootstrap or any other trees, on it.

    Writes PREFIX.mltree.support or, of both metrics, .supportFBP and .supportTBE: the tree as it
    was, with its root, polytomies and branch lengths, and the supports as labels of inner nodes.
    """

    tree: AnyTree
    trees: Annotated[
        str,
        Option("--trees FILE",
"Replicates: Newick trees of the same taxa.", reads="trees"),
    ]  # fmt: skip


class ConsensusOptions(TreesOptions, kw_only=True):
    """Build the consensus of trees, labelled with the percentage that has each branch.

    Writes PREFIX.mltree.consensusTreeSTRICT, .consensusTreeMR or .consensusTreeMRE. Where branches
    are as common, the extended majority prefers the one that splits the taxa more evenly, and then
    the one whose taxa come first by name.
    """

    trees: Trees
    kind: Annotated[
        str,
        Option(
            "--type TYPE",
            "strict: branches of all trees; majority: of more than half; extended: and the "
            "commonest others that fit; several with commas.",
        ),
    ] = "majority"


class DistanceOptions(TreesOptions, kw_only=True):
    """Compute Robinson-Foulds distances: of all pairs of trees, or of all from a reference.

    Writes PREFIX.mltree.rfDistances: a line for each pair with the numbers of its trees, counted
    from 0 (the reference is 0), the splits that only one of them has, that number as a share of
    2(T - 3), and with --weighted the sum of the differences in branch length.
    """

    trees: Trees
    reference: Annotated[
        str | None,
        Option("--reference FILE",
"Newick tree that all are compared with.", reads="tree"),
    ] = None  # fmt: skip
    weighted: Annotated[
        bool, Option("--weighted", "Also compare branch lengths, those of tips included.")
    ] = False


class BootstopOptions(SeedOptions, ShownOptions, kw_only=True):
    """Tell whether trees are enough bootstrap replicates (autoMRE), after every 50 of them.

    The trees are halved at random 1,000 times; the halves' extended majority consensus trees, with
    their supports, have to be within the cutoff in 99 % of the halvings, and on average.
    """

    trees: Trees
    cutoff: Annotated[
        float,
        Option(
            "--cutoff SHARE",
            "Share of the largest possible distance up to which two halves agree.",
            parse=share_of,
        ),
    ] = 0.03


class ConcordanceOptions(SeedOptions, TreesOptions, kw_only=True):
    """Compute concordance factors: the share of genes, or of sites, that have each branch.

    Writes PREFIX.mltree.concordanceTree, the tree with gCF/sCF in per cent behind the labels that
    it had, and .concordance, a table with the discordance factors too.
    """

    tree: AnyTree
    gene_trees: Annotated[
        str | None,
        Option(
            "--gene-trees FILE",
            "Newick trees of loci, which may lack some taxa: for gene concordance (gCF).",
            reads="trees",
        ),
    ] = None
    alignment: Annotated[
        str | None,
        Option("--alignment FILE",
"Alignment: for site concordance (sCF).", reads="file"),
    ] = None  # fmt: skip
    quartets: Annotated[
        int,
        Option(
            "--quartets N", "Random quartets a branch, for sCF.", least=1, only_with=("alignment",)
        ),
    ] = 100
    data_type: DataType = None


# Tools, and this machine.


class ReportOptions(WrittenOptions, kw_only=True):
    """Draw all that a search has found as one page of HTML, which needs no network.

    Writes PREFIX.mltree.report.html: the tree to zoom, search, collapse and re-root; lnL over time;
    where time went; the model; the alignment; the settings. Works while a search runs, too.
    """

    prefix: Annotated[str, Option("PREFIX", "As it was given to the search (--prefix).")]
    alignment: Annotated[
        str | None,
        Option(
            "--alignment FILE",
            "Where the alignment is now. Default: where the search had it, or beside PREFIX.",
            reads="file",
        ),
    ] = None
    tree: Annotated[
        str | None,
        Option(
            "-t, --tree FILE",
            "Another tree to show, such as one with supports. Default: PREFIX.mltree.support if "
            "there is one, else .bestTree.",
            reads="tree",
        ),
    ] = None


class OutOptions(WrittenOptions, kw_only=True):
    """Commands that write one file."""

    out: Annotated[str, Option("-o, --out FILE", "File to write.")]


FileFormat = Annotated[
    str | None,
    Option(
        "--format NAME",
        "phylip (relaxed), phylip-strict, phylip-interleaved, fasta or nexus; newick, "
        "nexus, auspice or itol for trees. Default: as the name of the file ends.",
    ),
]


class DrawOptions(OutOptions, kw_only=True):
    """Draw a tree as SVG, PNG or PDF, with supports and a scale bar.

    The name of the file decides which. PNG and PDF take matplotlib (pip install 'mltree[draw]').
    """

    tree: Annotated[str, Option("TREE", "Newick or NEXUS tree, of any shape.", reads="tree")]
    layout: Annotated[
        Literal["rectangular", "circular"],
        Option(
            "--layout rectangular|circular",
            "Tips in rows, or around.",
            choices=("rectangular", "circular"),
        ),
    ] = "rectangular"
    as_written: Annotated[
        bool, Option("--as-written", "Keep the order of the file: do not ladderise.")
    ] = False
    cladogram: Annotated[
        bool, Option("--cladogram", "Draw the topology alone, not branch lengths.")
    ] = False
    no_supports: Annotated[
        bool, Option("--no-supports", "Leave the labels of inner nodes out.")
    ] = False


class SimulateOptions(SeedOptions, OutOptions, kw_only=True):
    """Simulate an alignment: sequences evolve along a tree under any model.

    The same options and seed give the same file, byte for byte.
    """

    model: Annotated[
        str,
        Option(
            "-m, --model",
            "RAxML-NG's grammar, with values in braces (GTR{1/3/1/1/4/1}+FU{...}+G4{0.5}), or a "
            ".bestModel file.",
            reads="file",
        ),
    ]
    tree: Annotated[
        str | None, Option("-t, --tree FILE", "Newick tree to evolve along.", reads="tree")
    ] = None
    taxa: Annotated[
        int | None, Option("--taxa N", "Taxa of a random tree instead.", parse=whole_of)
    ] = None
    random_tree: Annotated[
        str,
        Option(
            "--random-tree uniform|yule",
            "uniform: all topologies are as likely, branch lengths are exponential; yule: it "
            "grows by births alone, and all tips are of one age.",
            choices=("uniform", "yule"),
            only_with=("taxa",),
        ),
    ] = "uniform"
    mean_length: Annotated[
        float,
        Option(
            "--mean-length LENGTH",
            "Mean branch length of a random tree, substitutions per site.",
            parse=mean_length_of,
            only_with=("taxa",),
        ),
    ] = 0.15
    sites: Annotated[int | None, Option("-n, --sites N", "Sites to simulate.", parse=whole_of)] = (
        None
    )
    unique: Annotated[
        int | None,
        Option("--unique N", "Instead: exactly N distinct columns, each once.", parse=whole_of),
    ] = None
    gaps_from: Annotated[
        str | None,
        Option(
            "--gaps-from FILE",
            "Alignment whose gaps are put over the sequences, taxon by taxon.",
            reads="file",
        ),
    ] = None
    frequencies_from: Annotated[
        str | None,
        Option(
            "--frequencies-from FILE",
            "Alignment to count the frequencies in that a model with +FC leaves open, such as "
            "the .bestModel of a search under GTR+FC+G4.",
            reads="file",
        ),
    ] = None
    true_tree: Annotated[
        str | None, Option("--true-tree FILE", "Also write the tree, in Newick.")
    ] = None
    file_format: FileFormat = None


class ConvertOptions(OutOptions, kw_only=True):
    """Convert an alignment, trees or a result to another format.

    Trees also go to auspice (NAME.auspice.json) and to iTOL, as a dataset of supports to lay over
    the Newick file (NAME.itol.txt); results to MultiQC (NAME_mqc.json).
    """

    source: Annotated[
        str,
        Option(
            "FILE",
            "Alignment, trees in Newick or NEXUS, or a run's result (PREFIX.mltree.json).",
            reads="file",
        ),
    ]
    file_format: FileFormat = None
    data_type: DataType = None


class CompareOptions(ShownOptions, DataOptions, kw_only=True):
    """Compute one log-likelihood on every device, in every layout, and by the NumPy reference.

    Fails when two differ by more than rounding explains.
    """

    tree: Tree
    threads: Threads = None
    precision: Precision = "double"


class DevicesOptions(ShownOptions, kw_only=True):
    """List the OpenCL devices, with a self-test on each.

    The first time, it also measures which memory layout suits each device, for every later run.
    """

    calibrate: Annotated[bool, Option("--calibrate", "Measure again what was measured before.")] = (
        False
    )
    threads: Threads = None


class CheckOptions(ShownOptions, DataOptions, kw_only=True):
    """Look an alignment over: sizes, gaps, frequencies, duplicates, and the memory it will take."""

    partitions: Annotated[
        str | None,
        Option(
            "--partitions FILE",
            "RAxML's or RAxML-NG's partition file, a .bestModel file or a NEXUS sets block: "
            "show the parts instead.",
            reads="file",
        ),
    ] = None
    threads: Threads = None
    device: Device = None
