"""The options of analyses without an alignment; see :mod:`mltree.analyses.options`."""

from typing import Annotated

from mltree.runs.options import (
    OUTPUT,
    STATISTICS,
    DataType,
    Device,
    MetricOptions,
    Option,
    SeedOptions,
    ShownOptions,
    Threads,
    WrittenOptions,
    share_of,
    whole_of,
)

# No postponed annotations: the options of a field are looked up in its annotation.


class TreesOptions(WrittenOptions, kw_only=True):
    """Commands that need trees alone, whose files lie beside one of theirs."""

    prefix: Annotated[
        str | None,
        Option(
            "-p, --prefix PREFIX",
            "Files are named PREFIX.mltree.*. Default: the path of the trees. A PREFIX that ends "
            "in / is a folder.",
            panel=OUTPUT,
        ),
    ] = None


AnyTree = Annotated[str, Option("TREE", "Newick tree, of any shape.", reads="tree")]
Trees = Annotated[
    str, Option("TREES", "Newick file of several trees of the same taxa.", reads="trees")
]


class SupportOptions(MetricOptions, TreesOptions, kw_only=True):
    """Map branch supports from a set of trees onto a tree.

    Writes PREFIX.mltree.support or, for both metrics, .supportFBP and .supportTBE: the same tree,
    with its root, polytomies and branch lengths, and the supports as labels of inner nodes.
    """

    tree: AnyTree
    trees: Annotated[
        str,
        Option("--trees FILE",
"Replicates: Newick trees of the same taxa.", reads="trees"),
    ]  # fmt: skip


class ConsensusOptions(TreesOptions, kw_only=True):
    """Build the consensus of trees, with the percentage of trees that have each branch.

    Writes PREFIX.mltree.consensusTreeSTRICT, .consensusTreeMR or .consensusTreeMRE. Of equally
    frequent branches, the extended majority consensus prefers the one that splits the taxa more
    evenly, then the one whose taxa come first by name.
    """

    trees: Trees
    kind: Annotated[
        str,
        Option(
            "--type TYPE",
            "strict: branches of all trees; majority: of more than half; extended: also the most "
            "frequent others that fit. Several, separated by commas.",
        ),
    ] = "majority"


class DistanceOptions(TreesOptions, kw_only=True):
    """Compute Robinson-Foulds distances between all pairs of trees, or from a reference.

    Writes PREFIX.mltree.rfDistances, a line for each pair: the numbers of the two trees, counted
    from 0 (the reference is 0), the number of splits that only one of them has, the same divided by
    2(T - 3), and with --weighted the sum of the differences in branch length.
    """

    trees: Annotated[
        str,
        Option(
            "TREES...",
            "Newick files of trees of the same taxa, two trees at least.",
            reads="trees",
            rest="tree_files",
        ),
    ]
    tree_files: tuple[str, ...] = ()
    """All that were typed."""
    reference: Annotated[
        str | None,
        Option("--reference FILE",
"Newick tree to compare all others with.", reads="tree"),
    ] = None  # fmt: skip
    weighted: Annotated[
        bool, Option("--weighted", "Also compare branch lengths, including those of tips.")
    ] = False

    @property
    def inputs(self) -> list[str]:
        """Also the files behind the first."""
        return [*super().inputs, *self.tree_files[1:]]


class BootstopOptions(SeedOptions, ShownOptions, kw_only=True):
    """Test whether there are enough bootstrap replicates (autoMRE), after every 50 of them.

    The replicates are split into random halves 1,000 times. There are enough if the extended
    majority consensus trees of the halves, with supports, differ by no more than the cutoff in 99 %
    of these permutations, and on average.
    """

    trees: Trees
    cutoff: Annotated[
        float,
        Option(
            "--cutoff SHARE",
            "Largest difference of two halves, as a share of the largest possible one.",
            parse=share_of,
        ),
    ] = 0.03


class ConcordanceOptions(SeedOptions, TreesOptions, kw_only=True):
    """Compute concordance factors: the share of genes, or of sites, that support each branch.

    Writes PREFIX.mltree.concordanceTree, the tree with gCF/sCF in per cent after the labels that it
    had, and .concordance, a table that includes the discordance factors.
    """

    tree: AnyTree
    gene_trees: Annotated[
        str | None,
        Option(
            "--gene-trees FILE",
            "Newick trees of loci, which may lack taxa, for gene concordance factors (gCF).",
            reads="trees",
        ),
    ] = None
    alignment: Annotated[
        str | None,
        Option("--alignment FILE",
"Alignment, for site concordance factors (sCF).", reads="file"),
    ] = None  # fmt: skip
    quartets: Annotated[
        int,
        Option(
            "--quartets N",
            "Random quartets a branch, for sCF.",
            least=1,
            only_with=("alignment",),
        ),
    ] = 100
    data_type: DataType = None


class DateOptions(SeedOptions, TreesOptions, kw_only=True):
    """Date the nodes of a tree under a strict or relaxed clock, with 95 % intervals.

    By maximum likelihood, or by least squares as LSD2 does. Writes PREFIX.mltree.dates.tsv,
    .timeTree (Newick with lengths in time), .timeTree.nex (dates and intervals for FigTree),
    .rtt.tsv (root-to-tip regression), .auspice.json and .dates.html, a page with the dated tree.
    """

    tree: Annotated[str, Option("TREE", "Newick or NEXUS tree with branch lengths.", reads="tree")]
    dates: Annotated[
        str,
        Option(
            "--dates names|FILE|REGEX",
            "Dates of the tips: in their names; a table (name, tab, date); or a regular expression "
            "whose group is the date. 2012-05-17, 2012-05, 2012.38, [2012.1,2012.6] are dates.",
            reads="file",
        ),
    ]
    alignment: Annotated[
        str | None,
        Option("--alignment FILE", "Alignment of the tree, for its number of sites.", reads="file"),
    ] = None
    sites: Annotated[
        int | None,
        Option("--sites N", "Number of sites, without --alignment.", parse=whole_of, least=1),
    ] = None
    clock: Annotated[
        str,
        Option(
            "--clock strict|relaxed",
            "One rate, or a rate a branch around their mean (Gamma distributed).",
            choices=("strict", "relaxed"),
        ),
    ] = "relaxed"
    method: Annotated[
        str,
        Option(
            "--method likelihood|least-squares",
            "How dates are estimated: least squares have LSD2's weights.",
            choices=("likelihood", "least-squares"),
        ),
    ] = "likelihood"
    root: Annotated[
        str | None,
        Option(
            "--root keep|best|TAXA",
            "The tree's own root, the one that suits the clock best, or next to an outgroup (taxa "
            "with commas). Default: keep; best for an unrooted tree.",
        ),
    ] = None
    calibrate: Annotated[
        str | None,
        Option(
            "--calibrate FILE",
            "Dates of ancestors: a line each, taxa with commas, a tab, a date, "
            "[earliest,latest], or a distribution, of which the 95 % interval counts.",
            reads="file",
        ),
    ] = None
    ages: Annotated[bool, Option("--ages", "Numbers are ages, counted back from the present.")] = (
        False
    )
    outliers: Annotated[
        bool,
        Option(
            "--outliers",
            "Estimate the dates of tips that lie far from the root-to-tip line instead of using "
            "them.",
        ),
    ] = False
    replicates: Annotated[
        int, Option("--replicates N", "Replicates for the intervals.", least=20)
    ] = 100


def part_of(text: str) -> str:
    """Part i of n, as ``2/8``. Raises: ValueError."""
    numbers = [int(word) if word.isdecimal() else 0 for word in str(text).split("/")]
    if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1]:
        raise ValueError(f"{text!r} is not a part: write 2/8 for the second of eight")
    return text


class UnifracOptions(SeedOptions, WrittenOptions, kw_only=True):
    """Compute UniFrac distances of all pairs of samples, and statistics of them.

    Writes PREFIX.mltree.METRIC.tsv, .h5 or .npy for each metric, PREFIX.mltree.faith (Faith's
    phylogenetic diversity of each sample), and what else is asked for. Sums are of integers: any
    device, any split into parts, gives the same bits, and equal samples are at distance 0.
    """

    table: Annotated[
        str,
        Option(
            "TABLE",
            "Counts of features in samples: BIOM 2.1 (needs h5py) or 1.0, QIIME 2 artifact, TSV "
            "with a feature a line, or lines of feature, sample, count. Plain or compressed.",
            reads="file",
        ),
    ]
    tree: Annotated[
        str,
        Option("-t, --tree FILE",
"Newick tree whose tips include all features, rooted.", reads="tree"),
    ]  # fmt: skip
    metric: Annotated[
        str,
        Option(
            "-m, --metric METRIC",
            "unweighted, weighted_normalized, weighted_unnormalized, generalized or "
            "unweighted_unnormalized, as ssu has them; several, separated by commas.",
        ),
    ] = "unweighted"
    alpha: Annotated[
        str,
        Option(
            "-a, --alpha SHARE[,SHARE...]",
            "Weight of abundant branches in generalized UniFrac, 0 to 1; one matrix each.",
        ),
    ] = "1"
    variance_adjusted: Annotated[
        bool, Option("--variance-adjusted", "Adjust for variance, as --vaw of ssu.")
    ] = False
    absolute: Annotated[
        bool, Option("--absolute", "Weight branches by counts rather than by shares of a sample.")
    ] = False
    depth: Annotated[
        int | None,
        Option(
            "--depth N",
            "Rarefy every sample to N counts; samples with fewer are left out.",
            parse=whole_of,
            least=1,
        ),
    ] = None
    subsamples: Annotated[
        int,
        Option(
            "--subsamples N",
            "Rarefy N times: the matrix is the mean, and a second one has the standard deviations.",
            parse=whole_of,
            least=1,
        ),
    ] = 1
    precision: Annotated[
        str,
        Option(
            "--precision double|single",
            "double: sums of 64 bits; single: of 32 bits, and distances in fp32, within 1e-5.",
            choices=("double", "single"),
        ),
    ] = "double"
    prefix: Annotated[
        str | None,
        Option(
            "-p, --prefix PREFIX",
            "Files are named PREFIX.mltree.*. Default: the path of the table. A PREFIX that ends "
            "in / is a folder.",
            panel=OUTPUT,
            is_incidental=True,
        ),
    ] = None
    matrix: Annotated[
        str,
        Option(
            "--matrix tsv|hdf5|npy|none",
            "Format of the matrix: TSV; HDF5 as ssu's; NumPy's; or none, for statistics alone. A "
            "run that is killed goes on from the last tile (hdf5, npy, parts).",
            choices=("tsv", "hdf5", "npy", "none"),
            panel=OUTPUT,
        ),
    ] = "tsv"
    nearest: Annotated[
        int | None,
        Option(
            "--nearest K",
            "Write the K nearest samples of each to PREFIX.mltree.METRIC.nearest.",
            parse=whole_of,
            least=1,
            panel=OUTPUT,
        ),
    ] = None
    part: Annotated[
        str | None,
        Option(
            "--part I/N",
            "Compute the I-th of N parts alone; --merge N joins them.",
            parse=part_of,
            panel=OUTPUT,
        ),
    ] = None
    merge: Annotated[
        int | None,
        Option(
            "--merge N",
            "Join N parts under the same prefix rather than compute.",
            parse=whole_of,
            least=1,
            panel=OUTPUT,
        ),
    ] = None
    branches: Annotated[
        bool,
        Option(
            "--branches",
            "Write the length, prevalence and share of all diversity of every branch to "
            "PREFIX.mltree.branches; with --group, how much its shares differ between groups.",
            panel=OUTPUT,
        ),
    ] = False
    page: Annotated[
        bool,
        Option(
            "--page",
            "Write PREFIX.mltree.unifrac.html: ordination, axes, distances within and between "
            "groups, complete in itself.",
            panel=OUTPUT,
        ),
    ] = False
    pcoa: Annotated[
        int,
        Option(
            "--pcoa AXES",
            "Principal coordinates, in PREFIX.mltree.METRIC.pcoa and in HDF5; 0 for none.",
            parse=whole_of,
            panel=STATISTICS,
        ),
    ] = 0
    metadata: Annotated[
        str | None,
        Option(
            "--metadata FILE",
            "TSV file of the samples, a sample a line.",
            reads="file",
            panel=STATISTICS,
        ),
    ] = None
    group: Annotated[
        str | None,
        Option(
            "--group COLUMN[,COLUMN...]",
            "Columns of the metadata whose groups are compared.",
            panel=STATISTICS,
        ),
    ] = None
    tests: Annotated[
        str,
        Option(
            "--tests TEST[,TEST...]",
            "Tests of the groups: permanova, permdisp, anosim.",
            only_with=("group",),
            panel=STATISTICS,
        ),
    ] = "permanova"
    permutations: Annotated[
        int,
        Option("--permutations N",
"Permutations of a test.", parse=whole_of, least=1, panel=STATISTICS),
    ] = 999  # fmt: skip
    mantel: Annotated[
        str | None,
        Option(
            "--mantel FILE",
            "Matrix of distances (TSV, HDF5) to correlate with, by Mantel's test.",
            reads="file",
            panel=STATISTICS,
        ),
    ] = None
    threads: Threads = None
    device: Device = None

    @property
    def share(self) -> tuple[int, int] | None:
        """Numbers of the part, and of all parts."""
        if self.part is None:
            return None
        one, every = part_of(self.part).split("/")
        return int(one), int(every)


# Tools, and this machine.
