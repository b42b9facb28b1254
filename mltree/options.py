"""The options that commands share: what they are called, take and say, and what they ask for.

Nothing heavy is imported before an option is given, so that ``mltree --help`` answers at once.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mltree.errors import InputError
from mltree.report.terminal import Terminal

if TYPE_CHECKING:
    from mltree.report.progress import Reporter

__all__ = [
    "AlignmentArgument",
    "BesideOption",
    "CollapseOption",
    "CutoffOption",
    "DataType",
    "DataTypeOption",
    "DeviceOption",
    "JsonOption",
    "MemoryOption",
    "ModelOption",
    "Moves",
    "Precision",
    "PrecisionOption",
    "PrefixOption",
    "Preset",
    "QuietOption",
    "RedoOption",
    "SeedOption",
    "TreeFile",
    "TreesArgument",
    "VerboseOption",
    "WidthOption",
    "command_line",
    "parse_size",
    "reporter_of",
    "terminal",
]

ADDRESSABLE = 1 << 63
"""Bytes, more than any memory has: OpenCL's sizes are 64-bit numbers."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes of ``512M``, ``1.5GiB`` and the like.

    Raises:
        InputError: it is no size.
    """
    found = re.fullmatch(r"([0-9]+\.?[0-9]*)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * _UNITS[found[2].upper()] if found else 0.0
    if not 1 <= size < ADDRESSABLE:
        raise InputError(f"{text!r} is no size of memory", hint="write 512M or 1.5G")
    return int(size)


def _whole(text: str) -> int:
    """A number of ASCII digits."""
    from mltree.alignment.numerals import whole

    try:
        return whole(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _length(text: str) -> float:
    """A branch length."""
    from mltree.alignment.numerals import decimal

    try:
        length = decimal(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not 0.0 <= length < math.inf:
        raise typer.BadParameter(f"{text!r} is no branch length")
    return length


def _share(text: str) -> float:
    """A share of something, 0 to 1."""
    from mltree.alignment.numerals import decimal

    try:
        share = decimal(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not 0.0 <= share <= 1.0:
        raise typer.BadParameter(f"{text!r} is not between 0 and 1")
    return share


class DataType(str, Enum):
    """What an alignment's characters are."""

    DNA = "dna"
    PROTEIN = "protein"


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
        help="PHYLIP or FASTA, plain or gzip; DNA or protein. Format and type are recognised.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="RAxML-NG's grammar ([b]GTR+FC+G4[/b], [b]HKY{2.5}+FE[/b], [b]LG+I+G4[/b]) or a "
        ".bestModel file. Default: GTR+FC+G4 for DNA, LG+G4 for proteins.",
    ),
]
DataTypeOption = Annotated[
    DataType | None,
    typer.Option(
        "--data-type",
        case_sensitive=False,
        help="What the alignment holds. Default: what the model is for, else what it looks like.",
    ),
]
PrefixOption = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        "-p",
        help="Files are named PREFIX.mltree.*; the alignment's path if not given. A PREFIX that "
        "ends in / is a folder, for files named after the alignment.",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        help="A number or a part of a name from [b]mltree devices[/b]; several, as [b]0,1[/b]; "
        "[b]all[/b] GPUs; or [b]reference[/b] for the NumPy engine. Default: the fastest GPU, "
        "else the CPU.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="Memory of a device that likelihoods may take, such as [b]8G[/b]; alignments that "
        "need more are computed in panels. Default: what the device has.",
    ),
]
WidthOption = Annotated[
    int | None,
    typer.Option(
        "--vw",
        metavar="N",
        parser=_whole,
        help="Patterns that lie side by side in memory: 1, 4, 8 or 16 on CPUs, 8 to 64 on GPUs. "
        "Default: as [b]mltree devices[/b] has measured. Changes the last digits and the time.",
    ),
]
PrecisionOption = Annotated[
    Precision,
    typer.Option("--precision", help="double, or mixed: likelihoods in fp32, sums in fp64."),
]
RedoOption = Annotated[bool, typer.Option("--redo", help="Overwrite the files of an earlier run.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Every event.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Events as JSON lines on standard output, nothing else.")
]
TreeFile = Annotated[
    str, typer.Option("--tree", "-t", metavar="FILE", help="Newick tree.", show_default=False)
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        "-s",
        metavar="N",
        parser=_whole,
        help="Same seed, device and layout: same bits.",
    ),
]
CollapseOption = Annotated[
    float | None,
    typer.Option(
        "--collapse",
        metavar="LENGTH",
        parser=_length,
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
        help="Files are named PREFIX.mltree.*; the path of the trees' file if not given. A PREFIX "
        "that ends in / is a folder.",
    ),
]
CutoffOption = Annotated[
    float,
    typer.Option(
        "--cutoff",
        metavar="SHARE",
        parser=_share,
        help="Share of the largest possible distance up to which two halves agree.",
    ),
]


def command_line() -> str:
    """What was typed."""
    return shlex.join(["mltree", *sys.argv[1:]])


def terminal() -> Terminal:
    """Standard output."""
    return Terminal(highlight=False)


def reporter_of(quiet: bool, verbose: bool, json: bool) -> Reporter:
    """Who shows the events of a run, as much of them as is wanted.

    Raises:
        InputError: nothing and everything is wanted.
    """
    from mltree.report.progress import Reporter, Verbosity

    if quiet and verbose:
        raise InputError("--quiet and --verbose exclude each other")
    verbosity = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL
    return Reporter(terminal(), verbosity, json_lines=json)
