"""Options, each written once: a field of a class of options, annotated with an :class:`Option`.

The command line, ``mltree.toml``, ``MLTREE_`` variables, the log's table of options, the keywords
of Python and the reference page of commands are all derived from these fields. Nothing heavy is
imported: ``--threads`` acts before NumPy is loaded, and ``--help`` answers at once.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from mltree.system.errors import InputError
from mltree.system.process import VARIABLE as THREADS
from mltree.system.process import limit_drivers
from mltree.system.values import Value, decimal, whole

if TYPE_CHECKING:
    from mltree.models.partitioned import Linkage
    from mltree.runs.engines import Resources
    from mltree.runs.site_frequencies import SiteFrequencies
    from mltree.runs.workspace import Workspace


# No postponed annotations: the options of a field are looked up in its annotation.


SUPPORTS, STATISTICS, OUTPUT, ADVANCED = "Supports", "Statistics", "Output", "Advanced"
"""Panels of the help, below the options that are in none."""

LONGEST_MEAN = 1e6
"""Substitutions per site of a mean branch: thousands of times what leaves a trace in sequences."""

MOST_TOGETHER = 4096
"""Threads or processes of one machine: PoCL ends the process at 100,000 threads, and Linux gives no
process more than some 30,000."""

AUTO = "auto"
"""As many processes, replicates or the like as the run decides."""

ADDRESSABLE = 1 << 63
"""Bytes, more than any memory has: OpenCL's sizes are 64-bit numbers."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Option(Value):
    """How an option is called, taken and explained."""

    written: str
    """Names of the option and what stands for its value, as the help has them, ``-t, --tree FILE``;
    of an argument the latter alone."""
    help: str
    parse: Callable[[str], Any] | None = None
    """Reads the value from what was typed; raises ValueError."""
    choices: tuple[str, ...] = ()
    """The only values."""
    any_case: bool = False
    """Choices may be typed in capitals."""
    least: int | None = None
    """Smallest whole number."""
    panel: str | None = None
    reads: str = ""
    """``"file"``, ``"tree"`` or ``"trees"`` where the value may name a file that is read."""
    only_with: tuple[str, ...] = ()
    """Other options, of which a command's has to be given, or this one does nothing."""
    is_eager: bool = False
    """Read before all others."""
    is_last: bool = False
    """Shown behind the options of a command's own."""
    is_incidental: bool = False
    """Changes nothing of a run's results."""
    rest: str | None = None
    """The field that has all values of an argument which can be given several times."""

    @property
    def names(self) -> tuple[str, ...]:
        """As they are typed, the long one first; none of an argument."""
        words = self.written.replace(",", "").split()
        return tuple(reversed([word for word in words if word.startswith("-")]))

    @property
    def metavar(self) -> str | None:
        """Stands for the value; the field's name in capitals where None."""
        word = self.written.split()[-1]
        return None if word.startswith("-") else word


class Options(Value, kw_only=True):
    """The options of a command, and how they were given."""

    line: str = ""
    """The command as it was typed."""
    origins: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    """Options by name: their values, and where each is from (typed, environment, file, default)."""

    @classmethod
    def described(cls) -> dict[str, Option]:
        """Every option by its field, arguments first."""
        options: dict[str, Option] = {}
        for name in cls.__dataclass_fields__:
            for option in getattr(cls._annotation(name), "__metadata__", ()):
                options[name] = option
        order = sorted(options, key=lambda name: (options[name].names != (), options[name].is_last))
        return {name: options[name] for name in order}

    @classmethod
    def type_of(cls, name: str) -> Any:
        """The type of a field's values."""
        annotation = cls._annotation(name)
        return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation

    @classmethod
    def _annotation(cls, name: str) -> Any:
        owner = next(base for base in cls.__mro__ if name in base.__annotations__)
        return owner.__annotations__[name]

    @property
    def inputs(self) -> list[str]:
        """Values that may name files which are read; empty where an option is not given."""
        return [
            str(getattr(self, name) or "") for name, one in self.described().items() if one.reads
        ]

    @property
    def asked(self) -> str:
        """SHA-256 over the options that decide what is computed and written, as they were given."""
        return self.digest()

    def digest(self, without: Iterable[str] = ()) -> str:
        """SHA-256 over the options but those that change no result, and those named."""
        from mltree.treesearch.checkpoint import fingerprint

        described = self.described()
        return fingerprint(
            *(
                f"{name} = {shown(value)}"
                for name, (value, _) in sorted(self.origins.items())
                if name not in without
                and value is not None
                and not (name in described and described[name].is_incidental)
            )
        )

    def check(self) -> None:
        """Make sure that words are among their choices; raises InputError."""
        for name, option in self.described().items():
            if option.choices:
                one_of(name, getattr(self, name), option.choices)


def shown(value: object) -> str:
    """The value of an option as logs and results have it."""
    return (
        str(getattr(value, "value", value)) if not isinstance(value, bool) else str(value).lower()
    )


def one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Make sure that a word is one of those known; raises InputError."""
    words = list(known)
    if value not in words:
        raise InputError(f"{name}={value!r} is not one of {', '.join(words)}")


# How values are read from what was typed.


def size_of(text: str) -> int:
    """Bytes of ``512M``, ``1.5GiB`` and the like.

    Raises:
        InputError: it is no size.
    """
    match = re.fullmatch(r"([0-9]+\.?[0-9]*)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    size = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if not 1 <= size < ADDRESSABLE:
        raise InputError(f"{text!r} is not a memory size", hint="write 512M or 1.5G")
    return int(size)


def whole_of(text: str) -> int:
    """A number of ASCII digits. Raises: ValueError."""
    return whole(str(text))


def length_of(text: str) -> float:
    """A branch length, expected substitutions per site. Raises: ValueError."""
    length = decimal(str(text))
    if not 0.0 <= length < math.inf:
        raise ValueError(f"{text!r} is not a branch length")
    return length + 0.0  # no sign in front of zero


def mean_length_of(text: str) -> float:
    """A mean branch length of a random tree. Raises: ValueError."""
    length = length_of(text)
    if length > LONGEST_MEAN:
        raise ValueError(f"{text!r} is not a mean branch length: at most {LONGEST_MEAN:g}")
    return length


_POINTS = {"": 1.0, "pt": 1.0, "in": 72.0, "cm": 72.0 / 2.54, "mm": 7.2 / 2.54}
"""Points of a unit of length on paper."""

LARGEST_PAGE = 14_400.0
"""Points that a side of a picture has at most: a PDF's, 200 inches."""


def page_length_of(text: str) -> float:
    """Points of ``174mm``, ``8.5cm``, ``6in`` or ``500``. Raises: ValueError."""
    match = re.fullmatch(r"([0-9]+\.?[0-9]*)\s*(pt|in|cm|mm|)", str(text).strip())
    points = float(match[1]) * _POINTS[match[2]] if match else 0.0
    if not 1.0 <= points <= LARGEST_PAGE:
        problem = "is not a length of a picture: write 174mm, 8.5cm, 6in or points"
        raise ValueError(f"{text!r} {problem}, up to 200in")
    return points


def font_size_of(text: str) -> float:
    """Points of a font, 1 to 200. Raises: ValueError."""
    size = decimal(str(text))
    if not 1.0 <= size <= 200.0:
        raise ValueError(f"{text!r} is not a font size: it is between 1 and 200 points")
    return size


def number_of(text: str) -> float:
    """A finite number. Raises: ValueError."""
    number = decimal(str(text))
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number")
    return number


def data_type_of(text: str) -> str:
    """A data type that alignments can have. Raises: ValueError."""
    import numpy as np  # not before a command needs it

    from mltree.data.datatype import alphabet_named

    try:
        alphabet_named(text, np.empty((0, 0), np.uint8))
    except InputError as error:
        raise ValueError(f"{error.message} ({error.hint})") from None
    return text


def share_of(text: str) -> float:
    """A share, 0 to 1. Raises: ValueError."""
    share = decimal(str(text))
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{text!r} is not between 0 and 1")
    return share


def threads_of(text: str) -> int:
    """A number of threads, from 1 on, which drivers have to know before they are loaded.

    Raises: ValueError.
    """
    number = whole_of(text)
    if number < 1:
        raise ValueError("at least one thread is needed")
    if number > MOST_TOGETHER:
        raise ValueError(f"at most {MOST_TOGETHER:,} threads are possible")
    os.environ[THREADS] = str(number)
    limit_drivers()
    return number


def ranks_of(text: str) -> int | None:
    """A number of ranks, from 1 on; None where the run shall decide. Raises: ValueError."""
    if text == AUTO:
        return None
    number = whole_of(text)
    if number < 1:
        raise ValueError("at least one process is needed")
    if number > MOST_TOGETHER:
        raise ValueError(f"at most {MOST_TOGETHER:,} processes are possible")
    return number


# Options that several commands have, one by one.

DataType = Annotated[
    str | None,
    Option(
        "--data-type dna|protein|binary|multistate|gt10|gt16|codon[:CODE]",
        "Data type of the alignment; CODE is one of NCBI's genetic codes, by number or name. "
        "Default: the model's, else recognised from the characters.",
        parse=data_type_of,
    ),
]
Model = Annotated[
    str | None,
    Option(
        "-m, --model MODEL",
        "Model in RAxML-NG's syntax (GTR+FC+G4, HKY{2.5}+FE, LG+I+G4); a .bestModel file; a "
        "partition file (RAxML's, RAxML-NG's, NEXUS); or, for mltree search, auto: the "
        "best-fitting model. Default: GTR+FC+G4 for DNA, LG+G4 for proteins, GY+F3X4+G4 for "
        "codons, BIN+FC+G4 for binary, MULTIx_MK+G4 for multistate data.",
        reads="file",
    ),
]
Partitions = Annotated[
    str | None,
    Option(
        "--partitions FILE",
        "Partition file (RAxML's, RAxML-NG's, NEXUS). --model is for parts without a model there; "
        "--model auto is for all parts.",
        reads="file",
    ),
]
Merge = Annotated[
    bool,
    Option(
        "--merge",
        "Merge parts that one model fits better together, and choose models for the subsets.",
    ),
]
Sampling = Annotated[
    str,
    Option(
        "--sampling SCHEME",
        "How replicates are drawn. sites: with replacement within every part; genes: parts, with "
        "replacement; genes-sites: parts, and sites within them; jackknife: half of the sites, or "
        "as many as jackknife{0.4} leaves, without replacement.",
        panel=SUPPORTS,
        is_last=True,
    ),
]
ModelSet = Annotated[
    str | None,
    Option(
        "--model-set NAMES",
        "Matrices that a model is chosen among, separated by commas: HKY,TN93,GTR. Default: all.",
    ),
]
Tree = Annotated[str, Option("-t, --tree FILE", "Newick tree.", reads="tree")]
Moves = Annotated[
    str,
    Option(
        "--moves spr|nni",
        "spr, or nni: nearest neighbours only, fast and shallow.",
        choices=("spr", "nni"),
    ),
]
Constraint = Annotated[
    str | None,
    Option("--constraint FILE", "Newick tree whose groups are kept.", reads="tree"),
]
SiteRates = Annotated[
    bool,
    Option(
        "--site-rates",
        "Also write the posterior mean rate and the most probable category of every site "
        "(+G, +R, +I), as IQ-TREE's -wsr.",
    ),
]
Threads = Annotated[
    int | None,
    Option(
        "--threads N",
        "CPU threads. Default: as many as the process may use, from its affinity, the quota of "
        "its cgroup and SLURM_CPUS_PER_TASK.",
        parse=threads_of,
        is_eager=True,
        is_last=True,
        is_incidental=True,
    ),
]
Ranks = Annotated[
    int | None,
    Option(
        "--ranks N|auto",
        "Processes on this machine that share the work: loci, replicates and the steps of a "
        "search. They share the GPU or the CPUs; each needs memory of its own. Results are "
        "identical. auto: several for many loci or replicates on a GPU, else one.",
        parse=ranks_of,
        is_last=True,
        is_incidental=True,
    ),
]
Device = Annotated[
    str | None,
    Option(
        "-d, --device DEVICE",
        "Number or part of a name from mltree devices; cpu; gpu; several, as 0,1; all (GPUs); "
        "or reference, the NumPy engine. Default: the fastest GPU, else the CPU.",
        panel=ADVANCED,
    ),
]
Width = Annotated[
    int | None,
    Option(
        "--vw N",
        "Patterns side by side in memory: 1, 4, 8 or 16 on CPUs, 8 to 64 on GPUs. Changes the "
        "time, and the last digits. Default: as measured by mltree devices.",
        parse=whole_of,
        panel=ADVANCED,
    ),
]
Precision = Annotated[
    str,
    Option(
        "--precision double|mixed",
        "double, or mixed: likelihoods in fp32, sums in fp64.",
        choices=("double", "mixed"),
        panel=ADVANCED,
    ),
]
Verbose = Annotated[
    bool,
    Option(
        "-v, --verbose",
        "Print every event, memory in detail, and where time went.",
        panel=OUTPUT,
        is_last=True,
        is_incidental=True,
    ),
]


# Groups of options.


class ShownOptions(Options, kw_only=True):
    """Output on the terminal."""

    quiet: Annotated[
        bool,
        Option("-q, --quiet", "Print errors only.", panel=OUTPUT, is_last=True, is_incidental=True),
    ] = False
    json: Annotated[
        bool,
        Option(
            "--json",
            "Print events as JSON lines on standard output, and nothing else; the last line is "
            "the result or the error.",
            panel=OUTPUT,
            is_last=True,
            is_incidental=True,
        ),
    ] = False


class WrittenOptions(ShownOptions, kw_only=True):
    """Output on the terminal and in files."""

    redo: Annotated[
        bool,
        Option(
            "--redo", "Overwrite the files of an earlier run.", panel=OUTPUT, is_incidental=True
        ),
    ] = False


class SeedOptions(Options, kw_only=True):
    """Where random numbers begin."""

    seed: Annotated[
        int,
        Option(
            "-s, --seed N",
            "Random seed; the same seed gives identical results.",
            parse=whole_of,
            is_last=True,
        ),
    ] = 1


class DataOptions(Options, kw_only=True):
    """The data and their model."""

    alignment: Annotated[
        str,
        Option(
            "ALIGNMENT",
            "FASTA, PHYLIP, NEXUS, Clustal or Stockholm, plain or compressed (gzip, bzip2, xz); "
            "DNA, codons, protein, binary or multistate. Format and data type are recognised. - "
            "reads standard input.",
            reads="file",
        ),
    ]
    model: Model = None
    data_type: DataType = None


class AnalysisOptions(WrittenOptions, DataOptions, kw_only=True):
    """Options of every analysis of an alignment; some commands have no option for some of them."""

    partitions: str | None = None
    site_freqs: str | None = None
    guide_tree: str | None = None
    brlen: Annotated[
        str,
        Option(
            "--brlen linked|scaled|unlinked",
            "Branch lengths of the parts of a partition file: the same for all parts (linked), "
            "scaled by a factor for each part (scaled), or separate for each part (unlinked).",
            choices=("linked", "scaled", "unlinked"),
            any_case=True,
            only_with=("partitions", "model"),
        ),
    ] = "scaled"
    prefix: Annotated[
        str | None,
        Option(
            "-p, --prefix PREFIX",
            "Files are named PREFIX.mltree.*. Default: the alignment's path. A PREFIX that ends in "
            "/ is a folder, for files named after the alignment.",
            panel=OUTPUT,
            is_incidental=True,
        ),
    ] = None
    verbose: Verbose = False
    threads: Threads = None
    ranks: int | None = None
    device: Device = None
    memory_limit: Annotated[
        str | None,
        Option(
            "--memory-limit SIZE",
            "Device memory that likelihoods may use, such as 8G; longer alignments are computed in "
            "slices. Default: all of it.",
            panel=ADVANCED,
            is_incidental=True,
        ),
    ] = None
    vw: int | None = None
    precision: str = "double"

    @property
    def linkage(self) -> "Linkage":
        """Linkage of the branch lengths of parts."""
        from mltree.models.partitioned import Linkage

        return Linkage(self.brlen)

    @property
    def site_frequencies(self) -> "SiteFrequencies":
        """State frequencies of sites that have their own (PMSF)."""
        from mltree.runs.site_frequencies import SiteFrequencies

        return SiteFrequencies(self.site_freqs, self.guide_tree)

    @property
    def resources(self) -> "Resources":
        """Where the run computes. Raises: InputError where the limit is no size."""
        from mltree.runs.engines import Resources

        limit = None if self.memory_limit is None else size_of(self.memory_limit)
        mixed = self.precision == "mixed"
        return Resources(device=self.device, mixed=mixed, memory_limit=limit, vw=self.vw)

    @property
    def workspace(self) -> "Workspace":
        """Where the run writes; without a prefix there must be an alignment to lie beside."""
        from mltree.data.source import expect_file
        from mltree.runs.workspace import Workspace

        if self.prefix is None:
            expect_file(self.alignment)
        return Workspace.of(self.prefix, self.alignment)

    @property
    def stem(self) -> str:
        """Beginning of the names of all files."""
        return str(self.workspace.path("*").with_suffix(""))

    @property
    def chooses(self) -> bool:
        """True if the models are to be chosen."""
        return False


class ExactOptions(AnalysisOptions, kw_only=True):
    """Analyses whose layout and precision can be told."""

    vw: Width = None
    precision: Precision = "double"


class SiteFrequencyOptions(AnalysisOptions, kw_only=True):
    """State frequencies of sites (PMSF)."""

    site_freqs: Annotated[
        str | None,
        Option(
            "--site-freqs FILE",
            "State frequencies of every site (PMSF) from a .sitefreq file of IQ-TREE or mltree "
            "evaluate --site-freq. They replace the model's frequencies and profiles.",
            reads="file",
        ),
    ] = None
    guide_tree: Annotated[
        str | None,
        Option(
            "--guide-tree TREE",
            "State frequencies of every site (PMSF) from the profiles of --model (LG+C20+F+G4) on "
            "this Newick tree. Writes PREFIX.mltree.sitefreq.",
            reads="tree",
        ),
    ] = None


class FitOptions(AnalysisOptions, kw_only=True):
    """Analyses that optimise a model and branch lengths on fixed topologies."""

    no_opt_model: Annotated[
        bool, Option("--no-opt-model", "Keep the model's parameters as they are.")
    ] = False
    no_opt_branches: Annotated[
        bool, Option("--no-opt-branches", "Keep branch lengths as they are.")
    ] = False


class MetricOptions(Options, kw_only=True):
    """Supports by replicates."""

    metric: Annotated[
        str,
        Option(
            "--metric METRIC",
            "fbp: percentage of replicates that have the branch; tbe: transfer bootstrap "
            "expectation, 0 to 1; or both: fbp,tbe.",
            panel=SUPPORTS,
            is_last=True,
            only_with=("bootstrap", "trees"),
        ),
    ] = "fbp"


class UltrafastOptions(Options, kw_only=True):
    """The ultrafast bootstrap."""

    ufboot: Annotated[
        int | None,
        Option(
            "--ufboot N",
            "Ultrafast bootstrap (UFBoot2) of N replicates (at least 1000), with supports on the "
            "best tree, after those of --sh-alrt.",
            parse=whole_of,
            panel=SUPPORTS,
            is_last=True,
        ),
    ] = None
    bnni: Annotated[
        bool,
        Option(
            "--bnni",
            "Improve every replicate of --ufboot by nearest-neighbour interchange on its own data, "
            "against overconfidence under a wrong model.",
            panel=SUPPORTS,
            is_last=True,
        ),
    ] = False


Outgroup = Annotated[
    str | None,
    Option("--outgroup TAXA", "Taxa, separated by commas, next to which the root is put."),
]
Midpoint = Annotated[
    bool, Option("--midpoint", "Put the root halfway between the tips that are farthest apart.")
]

ORDERS, AXES = ("increasing", "decreasing", "written"), ("scale", "time", "none")
"""Orders of a picture's subtrees, and what shows the scale of its branches."""


class PictureOptions(Options, kw_only=True):
    """The picture of a tree."""

    layout: Annotated[
        Literal["rectangular", "circular", "unrooted"],
        Option(
            "--layout rectangular|circular|unrooted",
            "Tips in rows, around the root, or in wedges (equal angle).",
            choices=("rectangular", "circular", "unrooted"),
        ),
    ] = "rectangular"
    outgroup: Outgroup = None
    midpoint: Midpoint = False
    order: Annotated[
        Literal["increasing", "decreasing", "written"],
        Option(
            "--order increasing|decreasing|written",
            "Ladderise: smaller subtrees first, or larger ones; or keep the order of the file.",
            choices=ORDERS,
        ),
    ] = "increasing"
    cladogram: Annotated[
        bool, Option("--cladogram", "Draw the topology alone, not branch lengths.")
    ] = False
    width: Annotated[
        float | None,
        Option(
            "--width LENGTH",
            "Width of the picture: 174mm, 8.5cm, 6in or points. Default: as the tree needs.",
            parse=page_length_of,
        ),
    ] = None
    height: Annotated[
        float | None,
        Option("--height LENGTH", "Height of the picture.", parse=page_length_of),
    ] = None
    font: Annotated[
        str | None, Option("--font NAME", "Face of all words. Default: Helvetica or one like it.")
    ] = None
    font_size: Annotated[
        float | None,
        Option(
            "--font-size POINTS",
            "Size of names. Default: 9.4, less where there are many or the picture is small.",
            parse=font_size_of,
        ),
    ] = None
    italic: Annotated[
        bool, Option("--italic", "Names in italics, with blanks for underscores.")
    ] = False
    supports: Annotated[
        str | None,
        Option(
            "--supports labels,colours,dots|none",
            "Write supports beside branches, colour branches by them, put dots on nodes. Default: "
            "labels; colours beyond 200 taxa.",
            panel=SUPPORTS,
        ),
    ] = None
    cutoff: Annotated[
        str | None,
        Option(
            "--cutoff N[/N...]",
            "Least support to show; 80/95 for labels such as 91.8/94.",
            panel=SUPPORTS,
        ),
    ] = None
    columns: Annotated[
        str | None,
        Option(
            "--columns N[,N...]",
            "Which of several supports to show, in which order: 2 for the 94 of 91.8/94. The "
            "last one gives the colours.",
            panel=SUPPORTS,
        ),
    ] = None
    support_names: Annotated[
        str | None,
        Option(
            "--support-names NAME[/NAME...]",
            "What the supports are, for the legend: SH-aLRT/UFBoot2.",
            panel=SUPPORTS,
        ),
    ] = None
    support_colours: Annotated[
        str | None,
        Option(
            "--support-colours N=COLOUR,...",
            "Colours from a support on, such as 70=#e08e3c,95=#0b4f8a.",
            panel=SUPPORTS,
        ),
    ] = None
    highlight: Annotated[
        str | None,
        Option(
            "--highlight CLADES",
            "Clades on a coloured ground, with their names: 'Apes=Homo,Pan;Macaques=Macaca_a,"
            "Macaca_b:#e69f00', each the smallest clade with these taxa; or a file with one a "
            "line. Name and colour may be left out.",
            reads="file",
        ),
    ] = None
    collapse: Annotated[
        str | None,
        Option("--collapse CLADES", "Clades to draw as triangles; as above.", reads="file"),
    ] = None
    axis: Annotated[
        Literal["scale", "time", "none"],
        Option(
            "--axis scale|time|none",
            "A scale bar, or an axis of time that ends at the latest tip.",
            choices=AXES,
        ),
    ] = "scale"
    unit: Annotated[
        str | None,
        Option("--unit TEXT", "Unit of branch lengths. Default: substitutions per site."),
    ] = None
    latest: Annotated[
        float | None,
        Option(
            "--latest DATE",
            "Date of the latest tip, such as 2021.4: the axis of time shows dates.",
            parse=number_of,
        ),
    ] = None
