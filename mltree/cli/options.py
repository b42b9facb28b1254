"""The options that commands share: what they are called, take and say, and what they ask for.

Nothing heavy is imported before an option is given, so that ``mltree --help`` answers at once.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mltree.cli.help import ADVANCED, OUTPUT, idle, origins, untyped
from mltree.system.errors import InputError
from mltree.system.files import is_folder
from mltree.system.process import VARIABLE as THREADS
from mltree.system.process import limit_drivers
from mltree.system.values import decimal, whole

if TYPE_CHECKING:
    from mltree.report.progress import Reporter
    from mltree.runs.engines import Resources


# What options take, read from what was typed.

LONGEST_MEAN = 1e6
"""Substitutions per site of a mean branch: thousands of times what leaves a trace in sequences."""

MOST_TOGETHER = 4096
"""Threads or processes of one machine: PoCL ends the process at 100,000 threads, and Linux gives no
process more than some 30,000."""

AUTO = "auto"
"""As many processes as the run shall decide."""

ADDRESSABLE = 1 << 63
"""Bytes, more than any memory has: OpenCL's sizes are 64-bit numbers."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text: str) -> int:
    """Bytes of ``512M``, ``1.5GiB`` and the like.

    Raises:
        InputError: it is no size.
    """
    found = re.fullmatch(r"([0-9]+\.?[0-9]*)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * _UNITS[found[2].upper()] if found else 0.0
    if not 1 <= size < ADDRESSABLE:
        raise InputError(f"{text!r} is no size of memory", hint="write 512M or 1.5G")
    return int(size)


def _number(text: str, kind: type[int] | type[float]) -> float:
    """A number in ASCII, whole where an ``int`` is asked for."""
    try:
        return whole(str(text)) if kind is int else decimal(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def whole_of(text: str) -> int:
    """A number of ASCII digits."""
    return int(_number(text, int))


def length_of(text: str) -> float:
    """A branch length."""
    length = _number(text, float)
    if not 0.0 <= length < math.inf:
        raise typer.BadParameter(f"{text!r} is no branch length")
    return length + 0.0  # no sign in front of zero


def mean_length_of(text: str) -> float:
    """A mean branch length of a random tree."""
    length = length_of(text)
    if length > LONGEST_MEAN:
        raise typer.BadParameter(f"{text!r} is no branch length: at most {LONGEST_MEAN:g}, please")
    return length


def data_type_of(text: str) -> str:
    """A data type that alignments can have."""
    import numpy as np  # not before a command needs it

    from mltree.data.datatype import alphabet_named

    try:
        alphabet_named(text, np.empty((0, 0), np.uint8))
    except InputError as error:
        raise typer.BadParameter(f"{error.message} ({error.hint})") from None
    return text


def share_of(text: str) -> float:
    """A share of something, 0 to 1."""
    share = _number(text, float)
    if not 0.0 <= share <= 1.0:
        raise typer.BadParameter(f"{text!r} is not between 0 and 1")
    return share


def threads_of(text: str) -> int:
    """A number of threads, from 1 on, which drivers have to know before they are loaded."""
    number = whole_of(text)
    if number < 1:
        raise typer.BadParameter("it takes one thread at least")
    if number > MOST_TOGETHER:
        raise typer.BadParameter(f"at most {MOST_TOGETHER:,} threads, please")
    os.environ[THREADS] = str(number)
    limit_drivers()
    return number


def ranks_of(text: str) -> int | None:
    """A number of ranks, from 1 on; None where the run shall decide."""
    if text == AUTO:
        return None
    number = whole_of(text)
    if number < 1:
        raise typer.BadParameter("it takes one process at least")
    if number > MOST_TOGETHER:
        raise typer.BadParameter(f"at most {MOST_TOGETHER:,} processes, please")
    return number


def is_many(alignments: list[str]) -> bool:
    """Whether these are many alignments, or a folder of them."""
    return len(alignments) > 1 or is_folder(alignments[0])


class Brlen(str, Enum):
    """How the branch lengths of parts hang together."""

    LINKED = "linked"
    SCALED = "scaled"
    UNLINKED = "unlinked"


class Precision(str, Enum):
    """What conditional likelihoods are stored and multiplied in."""

    DOUBLE = "double"
    MIXED = "mixed"


class Preset(str, Enum):
    """How much work a search does."""

    FAST = "fast"
    DEFAULT = "default"
    THOROUGH = "thorough"


class Moves(str, Enum):
    """Rearrangements that a search tries."""

    SPR = "spr"
    NNI = "nni"


AlignmentArgument = Annotated[
    str,
    typer.Argument(
        metavar="ALIGNMENT",
        help="FASTA, PHYLIP, NEXUS, Clustal or Stockholm, plain or packed (gzip, bzip2, xz); DNA, "
        "codons, protein, binary or multistate. Format and type are recognised. - is standard "
        "input.",
    ),
]
AlignmentsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="ALIGNMENT...",
        help="FASTA, PHYLIP, NEXUS, Clustal or Stockholm, plain or packed (gzip, bzip2, xz); DNA, "
        "codons, protein, binary or multistate. Format and type are recognised. - is standard "
        "input. Several, or a "
        "folder of them, are loci.",
    ),
]
SeparateOption = Annotated[
    bool,
    typer.Option(
        "--separate",
        help="Every part of --partitions is a locus with a tree of its own; or, without them, the "
        "argument is a list of alignments, a file a line.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="RAxML-NG's grammar (GTR+FC+G4, HKY{2.5}+FE, LG+I+G4) or a .bestModel file; a "
        "partition file (RAxML's, RAxML-NG's, NEXUS); or, of mltree search, auto: the one that "
        "suits the data best. Default: GTR+FC+G4 for DNA, LG+G4 for proteins, "
        "GY+F3X4+G4 for codons, BIN+FC+G4, MULTIx_MK+G4.",
    ),
]
BrlenOption = Annotated[
    Brlen,
    typer.Option(
        "--brlen",
        case_sensitive=False,
        metavar="linked|scaled|unlinked",
        help="Branch lengths of the parts of a partition file: the same for all (linked), "
        "times a factor of each part (scaled), or each part's own (unlinked).",
    ),
]
DataTypeOption = Annotated[
    str | None,
    typer.Option(
        "--data-type",
        parser=data_type_of,
        metavar="dna|protein|binary|multistate|gt10|gt16|codon[:CODE]",
        help="What the alignment holds: CODE is one of NCBI's genetic codes, by number or name. "
        "Default: what the model is for, else what it looks like.",
    ),
]
PrefixOption = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        "-p",
        metavar="PREFIX",
        rich_help_panel=OUTPUT,
        help="Files are named PREFIX.mltree.*; the alignment's path if not given. A PREFIX that "
        "ends in / is a folder, for files named after the alignment.",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="DEVICE",
        rich_help_panel=ADVANCED,
        help="A number or a part of a name from mltree devices; several, as 0,1; "
        "all GPUs; or reference for the NumPy engine. Default: the fastest GPU, "
        "else the CPU.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        rich_help_panel=ADVANCED,
        help="Memory of a device that likelihoods may take, such as 8G; alignments that "
        "need more are computed in slices. Default: what the device has.",
    ),
]
WidthOption = Annotated[
    int | None,
    typer.Option(
        "--vw",
        metavar="N",
        rich_help_panel=ADVANCED,
        parser=whole_of,
        help="Patterns that lie side by side in memory: 1, 4, 8 or 16 on CPUs, 8 to 64 on GPUs. "
        "Default: as mltree devices has measured. Changes the last digits and the time.",
    ),
]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision",
        metavar="double|mixed",
        rich_help_panel=ADVANCED,
        help="double, or mixed: likelihoods in fp32, sums in fp64.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        parser=threads_of,
        is_eager=True,  # other options may load NumPy
        help="CPUs to compute on. Default: those that the process may use, by its affinity, its "
        "cgroup's quota and SLURM_CPUS_PER_TASK.",
    ),
]
RedoOption = Annotated[
    bool,
    typer.Option("--redo", rich_help_panel=OUTPUT, help="Overwrite the files of an earlier run."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="Print errors only.")
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", rich_help_panel=OUTPUT, help="Print every event, and where time went."
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        rich_help_panel=OUTPUT,
        help="Print events as JSON lines on standard output, nothing else; the last is the "
        "result, or the error.",
    ),
]
TreeFile = Annotated[
    str, typer.Option("--tree", "-t", metavar="FILE", help="Newick tree.", show_default=False)
]
SeedOption = Annotated[
    int,
    typer.Option("--seed", "-s", metavar="N", parser=whole_of, help="Same seed, same bits."),
]
CollapseOption = Annotated[
    float | None,
    typer.Option(
        "--collapse",
        metavar="LENGTH",
        parser=length_of,
        help="Write inner branches no longer than this as polytomies.",
    ),
]
TreesArgument = Annotated[
    str, typer.Argument(metavar="TREES", help="Newick file of several trees of the same taxa.")
]
BesideOption = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        "-p",
        metavar="PREFIX",
        rich_help_panel=OUTPUT,
        help="Files are named PREFIX.mltree.*; the path of the trees' file if not given. A PREFIX "
        "that ends in / is a folder.",
    ),
]
CutoffOption = Annotated[
    float,
    typer.Option(
        "--cutoff",
        metavar="SHARE",
        parser=share_of,
        help="Share of the largest possible distance up to which two halves agree.",
    ),
]
MovesOption = Annotated[
    Moves,
    typer.Option(
        "--moves", metavar="spr|nni", help="spr, or nni: neighbours only, quick and shallow."
    ),
]
ConstraintOption = Annotated[
    str | None,
    typer.Option("--constraint", metavar="FILE", help="Newick tree whose groups stay together."),
]
RanksOption = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        metavar="N|auto",
        parser=ranks_of,
        help="Processes on this machine that share out loci, replicates and the steps of a search. "
        "They share a GPU and its memory, or the CPUs. Same bits; each takes memory of its own. "
        "auto: several for many loci or replicates on a GPU, else one.",
    ),
]
SiteFrequenciesOption = Annotated[
    str | None,
    typer.Option(
        "--site-freqs",
        metavar="FILE",
        help="Sites have state frequencies of their own (PMSF), from a .sitefreq file, IQ-TREE's "
        "or `mltree evaluate --site-freq`'s; the model's own and its profiles do not count.",
    ),
]
GuideTreeOption = Annotated[
    str | None,
    typer.Option(
        "--guide-tree",
        metavar="TREE",
        help="The same, from the profiles of --model (LG+C20+F+G4) on this Newick tree; writes "
        "PREFIX.mltree.sitefreq.",
    ),
]
SiteRatesOption = Annotated[
    bool,
    typer.Option(
        "--site-rates",
        help="Also write the posterior mean rate and the most probable category of every site "
        "(+G, +R, +I), as IQ-TREE's -wsr.",
    ),
]


def command_line() -> str:
    """What was typed."""
    return shlex.join(["mltree", *sys.argv[1:]])


def reporter_of(quiet: bool, verbose: bool, json: bool) -> Reporter:
    """Who shows the events of a run, as much of them as is wanted.

    First are options that were not typed, and those that do nothing. A file that asks for quiet
    does not keep what it asks for from being told.

    Raises:
        InputError: nothing and everything is wanted.
    """
    from mltree.report.progress import Reporter, Verbosity
    from mltree.report.terminal import progress_terminal, result_terminal
    from mltree.system.events import Notice

    if quiet and verbose:
        raise InputError("--quiet and --verbose exclude each other")
    verbosity = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL
    terminal = progress_terminal()
    reporter = Reporter(terminal, verbosity, json_lines=json, results=result_terminal())
    is_typed = origins().get("quiet", (False, "typed"))[1] == "typed"
    teller = reporter if is_typed or json or not quiet else Reporter(terminal)
    for text in (*untyped(), *idle()):
        teller(Notice(text))
    return reporter


def resources_of(
    device: str | None, precision: Precision, memory_limit: str | None, vw: int | None
) -> Resources:
    """Where a run computes, as the options have it."""
    from mltree.runs.engines import Resources

    return Resources(
        device=device,
        mixed=precision is Precision.MIXED,
        memory_limit=None if memory_limit is None else size_of(memory_limit),
        vw=vw,
    )
