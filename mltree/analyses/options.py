"""The options of every analysis: a class each, whose docstring is the help of its command.

Apart from the analyses, because ``--threads`` acts, and ``--help`` answers, before NumPy is loaded.
Options that several analyses have are in :mod:`mltree.runs.options`.
"""

from typing import TYPE_CHECKING, Annotated

from mltree.runs.options import (
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
    Midpoint,
    ModelSet,
    Moves,
    Option,
    Outgroup,
    Partitions,
    PictureOptions,
    Precision,
    Ranks,
    Sampling,
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


class LociOptions(AnalysisOptions, kw_only=True):
    """Searches of an alignment, or of many loci."""

    alignment: Annotated[
        str,
        Option(
            "ALIGNMENT...",
            "FASTA, PHYLIP, NEXUS, Clustal or Stockholm, plain or compressed (gzip, bzip2, xz); "
            "DNA, codons, protein, binary or multistate. Format and data type are recognised. - "
            "reads standard input. Several files, or a folder, are loci.",
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
            "Every part of --partitions is a locus with a tree of its own. Without --partitions, "
            "the argument is a list of alignments, one file per line.",
        ),
    ] = False
    species_tree: Annotated[
        str | None,
        Option(
            "--species-tree FILE",
            "Newick tree of the species: with loci, also write how many genes (gCF) and sites "
            "(sCF) have each of its branches, .concordanceTree and .concordance.",
            reads="tree",
            is_last=True,
        ),
    ] = None

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
        """The digest; of loci, which can be added, that of any alignments and any species tree."""
        return self.digest(without=["alignment", "species_tree"] if self.has_loci else [])

    @property
    def chooses(self) -> bool:
        """True if the models are to be chosen."""
        from mltree.runs.problem import is_choice

        return is_choice(self.model)


class SearchOptions(
    UltrafastOptions, MetricOptions, SeedOptions, ExactOptions, SiteFrequencyOptions, LociOptions,
    kw_only=True,
):  # fmt: skip
    """Find the maximum-likelihood tree of an alignment.

    The model is GTR+FC+G4 for DNA and LG+G4 for proteins unless --model names another, or chooses
    the best-fitting one: --model auto.

    Writes PREFIX.mltree.bestTree (Newick), .bestModel (RAxML-NG's syntax), .startTree and .log.
    A stopped search resumes when the same command is given again; Ctrl-C, SIGTERM and SIGHUP also
    save the best tree so far as .lastTree. With --bootstrap it also writes the files of mltree
    bootstrap; a larger N adds replicates. With supports of any kind it writes .support, the best
    tree with all supports as labels, in IQ-TREE's order: SH-aLRT/LBP/aLRT/aBayes/bootstrap. Branch
    tests also write .branchTests, a table; --ufboot also writes .ufboot (its trees), .contree
    (their consensus, with branch lengths) and .splits.nex (all splits).

    Several alignments, or a folder of them, are loci: each gets a tree, a model and supports of its
    own. Writes .bestTrees (Newick, one tree per line, in order, as ASTRAL takes them) and
    .lociTable.
    """

    partitions: Partitions = None
    merge: Merge = False
    model_set: ModelSet = None
    tree: Annotated[
        str | None,
        Option(
            "-t, --tree START",
            "Starting trees: pars{N}, rand{N}, pars{4},rand{2}, or a Newick file. Default: "
            "parsimony, as many as --preset says.",
            reads="tree",
        ),
    ] = None
    preset: Annotated[
        str,
        Option(
            "--preset fast|default|thorough",
            "fast: one starting tree (more for few taxa or on a GPU), no perturbation; default: up "
            "to 6, more on hard data; thorough: 12 or more, and more perturbation.",
            choices=PRESETS,
        ),
    ] = "default"
    moves: Moves = "spr"
    constraint: Constraint = None
    outgroup: Annotated[
        str | None,
        Option(
            "--outgroup TAXA",
            "Taxa, separated by commas, that the tree is rooted next to. Changes how the tree is "
            "written, not the search.",
        ),
    ] = None
    dates: Annotated[
        str | None,
        Option(
            "--dates names|FILE|REGEX",
            "Also date the best tree, as mltree date does: dates of tips in their names, a table, "
            "or the group of a regular expression.",
            reads="file",
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
            "Standard bootstrap of N replicates, with supports on the best tree; auto: until they "
            "converge (autoMRE), at most 1,000.",
            panel=SUPPORTS,
        ),
    ] = None
    sh_alrt: Annotated[
        int | None,
        Option(
            "--sh-alrt N",
            "SH-aLRT of every branch of the best tree, from N resamplings (usually 1000).",
            parse=whole_of,
            panel=SUPPORTS,
        ),
    ] = None
    lbp: Annotated[
        int | None,
        Option(
            "--lbp N",
            "Local bootstrap probability of every branch, from N resamplings.",
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
    sampling: Sampling = "sites"
    site_rates: SiteRates = False
    report: Annotated[
        bool, Option("--report", "Also write PREFIX.mltree.report.html (see mltree report).")
    ] = False
    ranks: Ranks = None


class RunOptions(UltrafastOptions, SeedOptions, LociOptions, kw_only=True):
    """Build a tree in one command: model choice, search, supports and report.

    The same as mltree search --model auto --sh-alrt 1000 --bootstrap auto --report, except that it
    uses the ultrafast bootstrap (--ufboot 1000 --bnni) if the standard one would take more than two
    minutes, without --bnni if that would too. Writes the same files. Given a folder, it does all
    this for every locus, with SH-aLRT supports. A stopped run resumes when the same command is
    given again.
    """

    model: Annotated[
        str | None,
        Option("-m, --model MODEL", "auto chooses a model; or one as for search.", reads="file"),
    ] = "auto"
    partitions: Partitions = None
    merge: Merge = False
    preset: Annotated[
        str, Option("--preset fast|default|thorough", "Effort of the search.", choices=PRESETS)
    ] = "default"
    outgroup: Annotated[
        str | None,
        Option("--outgroup TAXA", "Taxa, separated by commas, that the tree is rooted next to."),
    ] = None
    bootstrap: Annotated[
        str | None,
        Option(
            "--bootstrap N",
            "Standard bootstrap of N replicates; auto: until they converge; or none. Default: auto "
            "if 1,000 take two minutes at most, else --ufboot 1000; none for loci.",
            panel=SUPPORTS,
        ),
    ] = None
    sh_alrt: Annotated[
        int,
        Option(
            "--sh-alrt N",
            "SH-aLRT of every branch, from N resamplings.",
            parse=whole_of,
            panel=SUPPORTS,
        ),
    ] = 1000
    ranks: Ranks = None
    precision: Precision = "double"


class ModelChoiceOptions(SeedOptions, ExactOptions, kw_only=True):
    """Choose the best-fitting model of an alignment, or of each of its parts.

    Writes PREFIX.mltree.bestFitModel (for --model), .modelTest (all candidates, in JSON), .modelLog
    and, for parts, .best_scheme and .best_scheme.nex.
    """

    model: Annotated[
        str | None,
        Option(
            "-m, --model auto|auto+ASC",
            "auto+ASC: among models that are corrected for constant sites, which were left out of "
            "the data.",
        ),
    ] = "auto"
    partitions: Annotated[
        str | None,
        Option(
            "--partitions FILE",
            "Choose a model for every part of a partition file (RAxML's, RAxML-NG's, NEXUS); "
            "models named in it are ignored.",
            reads="file",
        ),
    ] = None
    merge: Merge = False
    model_set: ModelSet = None
    criterion: Annotated[
        str,
        Option("--criterion", "bic, aic or aicc.", choices=("bic", "aic", "aicc"), any_case=True),
    ] = "bic"
    tree: Annotated[
        str | None,
        Option("--tree FILE",
"Newick tree to fit models to. Default: a quick one.", reads="tree"),
    ] = None  # fmt: skip

    @property
    def chooses(self) -> bool:
        """Always: nothing else is done."""
        return True


class EvaluateOptions(FitOptions, ExactOptions, SiteFrequencyOptions, kw_only=True):
    """Compute the log-likelihood of a tree, and fit model and branch lengths to it.

    Writes PREFIX.mltree.evalTree, .evalModel, .evalLog and, as its options say, .siteLnL, .evalRate
    (always under +PSR), .siteprob and .sitefreq.
    """

    tree: Tree
    site_lnl: Annotated[
        bool, Option("--site-lnl", "Also write the lnL of every site, one per line.")
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
    """Reconstruct ancestral states: their probabilities at every inner node and site.

    Marginal states, by empirical Bayes. Writes PREFIX.mltree.ancestralTree, whose inner nodes have
    names, and the tables that refer to them: .ancestralProbs and .ancestralStates as RAxML-NG
    does, or .state as IQ-TREE does. A site without any data has the state -; a gap is an unknown
    state.
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


class PairOptions(SeedOptions, AnalysisOptions, kw_only=True):
    """Compute the distances of all pairs of sequences by maximum likelihood."""

    tree: Annotated[
        str | None,
        Option(
            "-t, --tree FILE",
            "Newick tree that the model is fitted to. Default: a parsimony tree.",
            reads="tree",
        ),
    ] = None


class BootstrapOptions(
    MetricOptions, SeedOptions, ExactOptions, SiteFrequencyOptions, kw_only=True
):
    """Search the trees of bootstrap replicates, and map their supports onto a tree.

    Sites are drawn with replacement; every replicate is searched from a starting tree of its own,
    all under one model: the one that --model gives (such as a .bestModel file), or a fitted one.

    Writes PREFIX.mltree.bootstraps (Newick, one tree per line, as they are found),
    .consensusTreeMR, .replicates (lnLs, to resume from), .bootstrapLog and, with --tree, .support,
    or .supportFBP and .supportTBE. The same command with a larger N adds replicates.
    """

    replicates: Annotated[
        str,
        Option(
            "-N, --replicates N",
            "Number of replicates; auto: until they converge (autoMRE, tested after every 50), at "
            "most 1,000.",
        ),
    ] = "auto"
    tree: Annotated[
        str | None,
        Option(
            "-t, --tree FILE",
            "Newick tree to map supports onto and to fit the model to. Default: no supports; the "
            "model is fitted to a parsimony tree.",
            reads="tree",
        ),
    ] = None
    sampling: Sampling = "sites"
    moves: Moves = "spr"
    constraint: Constraint = None
    ranks: Ranks = None


class TestOptions(SeedOptions, FitOptions, ExactOptions, kw_only=True):
    """Tests against data."""

    __test__ = False  # no test of pytest's


class BranchTestOptions(TestOptions, kw_only=True):
    """Test every inner branch of a tree against its neighbours: SH-aLRT, aLRT, aBayes, LBP.

    Writes PREFIX.mltree.supportALRT, the tree with the supports as labels, in IQ-TREE's order and
    before any labels that the tree had (SH-aLRT/UFBoot), and .branchTests, a table of all tests.
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
    """Test which of several trees the alignment rejects: KH, SH, weighted KH and SH, ELW, AU.

    The model is optimised on the best of the trees, branch lengths on each. Writes
    PREFIX.mltree.treeTests, a table with Monte-Carlo errors, and .testedTrees with branch lengths.
    """

    trees: Annotated[
        str, Option("--trees FILE", "Newick file of the trees to test.", reads="trees")
    ]
    tests: Annotated[str, Option("--tests", "Any of bp,kh,sh,wkh,wsh,elw,au; or all.")] = "all"
    replicates: Annotated[
        int, Option("--replicates N", "Resamplings; for au, of each of ten sizes.", least=1)
    ] = 10_000


class SiteLnlOptions(FitOptions, kw_only=True):
    """Compute the lnL of every site on every tree, for topology tests in other programs.

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
            "IQ-TREE's .sitelh or RAxML's .perSiteLLs.",
            choices=("iqtree", "raxml"),
        ),
    ] = "iqtree"


class ReportOptions(WrittenOptions, kw_only=True):
    """Write everything to an HTML report, one file that works offline, or to a text.

    Writes PREFIX.mltree.report.html: the tree, to zoom, search, collapse and re-root; lnL over
    time; where time went; the model; the alignment; the settings. Also works during a search.
    """

    prefix: Annotated[str, Option("PREFIX", "The --prefix of the search.")]
    alignment: Annotated[
        str | None,
        Option(
            "--alignment FILE",
            "Path of the alignment now. Default: where the search read it, or beside PREFIX.",
            reads="file",
        ),
    ] = None
    tree: Annotated[
        str | None,
        Option(
            "-t, --tree FILE",
            "Tree to show instead, such as one with supports. Default: PREFIX.mltree.support, or "
            ".bestTree if there are no supports.",
            reads="tree",
        ),
    ] = None
    text: Annotated[
        bool,
        Option(
            "--text",
            "Write PREFIX.mltree.report.txt instead: data, model choice, model, tree, supports, "
            "time and citations as plain text.",
        ),
    ] = False


class OutOptions(WrittenOptions, kw_only=True):
    """Commands that write one file."""

    out: Annotated[str, Option("-o, --out FILE", "File to write.")]


FileFormat = Annotated[
    str | None,
    Option(
        "--format NAME",
        "phylip (relaxed), phylip-strict, phylip-interleaved, fasta or nexus; newick, "
        "nexus, auspice or itol for trees. Default: from the file extension.",
    ),
]


class DrawOptions(PictureOptions, OutOptions, kw_only=True):
    """Draw a tree as SVG, PNG or PDF, for a paper: no words overlap, and none are cut off.

    The name of the file decides which. PNG and PDF take matplotlib (pip install 'mltree[draw]').
    """

    tree: Annotated[
        str,
        Option(
            "TREE",
            "Newick or NEXUS tree, of any shape; or the .json of a run, which knows what the "
            "supports of its tree are.",
            reads="tree",
        ),
    ]
    dpi: Annotated[int, Option("--dpi N", "Dots per inch of a PNG.", least=20)] = 300


class SimulateOptions(SeedOptions, OutOptions, kw_only=True):
    """Simulate an alignment along a tree, under any model.

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
        int | None, Option("--taxa N", "Number of taxa of a random tree.", parse=whole_of)
    ] = None
    random_tree: Annotated[
        str,
        Option(
            "--random-tree uniform|yule",
            "uniform: all topologies equally likely, exponential branch lengths; yule: a "
            "pure-birth tree, all tips of one age.",
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
        Option(
            "--unique N",
            "Simulate exactly N distinct columns instead.",
            parse=whole_of,
        ),
    ] = None
    gaps_from: Annotated[
        str | None,
        Option(
            "--gaps-from FILE",
            "Alignment whose gaps are copied, taxon by taxon.",
            reads="file",
        ),
    ] = None
    frequencies_from: Annotated[
        str | None,
        Option(
            "--frequencies-from FILE",
            "Alignment whose state frequencies a model with +FC takes, such as the .bestModel of "
            "a search under GTR+FC+G4.",
            reads="file",
        ),
    ] = None
    true_tree: Annotated[
        str | None, Option("--true-tree FILE", "Also write the tree, in Newick.")
    ] = None
    file_format: FileFormat = None


class ConvertOptions(OutOptions, kw_only=True):
    """Convert an alignment, trees or a result to another format.

    Trees can be rooted, and supports stay on their branches. Trees can be written for auspice
    (NAME.auspice.json) and for iTOL, as a dataset of supports that goes over the Newick file
    (NAME.itol.txt); results for MultiQC (NAME_mqc.json).
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
    rename: Annotated[
        str | None,
        Option(
            "--rename TABLE",
            "Other names for the tips of trees: a file of lines with a name, a tab and the name in "
            "its place. PREFIX.mltree.names leads back to the names of the alignment.",
            reads="file",
        ),
    ] = None
    outgroup: Outgroup = None
    midpoint: Midpoint = False
    data_type: DataType = None
    mask_stops: Annotated[
        bool,
        Option(
            "--mask-stops",
            "Write gaps for stop codons, and leave out columns that have nothing else; --data-type "
            "codon:CODE names the genetic code.",
        ),
    ] = False


class CompareOptions(ShownOptions, DataOptions, kw_only=True):
    """Compare one log-likelihood on every device, in every layout, and in NumPy.

    Fails if two of them differ by more than rounding errors.
    """

    tree: Tree
    threads: Threads = None
    precision: Precision = "double"


class DevicesOptions(ShownOptions, kw_only=True):
    """List the OpenCL devices, with a self-test on each.

    The first call also measures the fastest memory layout of each device, for all later runs.
    """

    calibrate: Annotated[bool, Option("--calibrate", "Measure the layouts again.")] = False
    threads: Threads = None


class CheckOptions(ShownOptions, DataOptions, kw_only=True):
    """Inspect an alignment: sizes, gaps, composition, duplicates, and the memory of a search."""

    partitions: Annotated[
        str | None,
        Option(
            "--partitions FILE",
            "Show the parts of a partition file (RAxML's, RAxML-NG's, NEXUS) or a .bestModel file "
            "instead.",
            reads="file",
        ),
    ] = None
    symmetry: Annotated[
        bool,
        Option(
            "--symmetry",
            "Also test every pair of sequences for symmetry (Bowker), marginal symmetry (Stuart) "
            "and internal symmetry: models take evolution to be stationary and reversible.",
        ),
    ] = False
    threads: Threads = None
    device: Device = None
