"""What options take, read from what was typed."""

from __future__ import annotations

import math
import os
import re

import typer

from mltree.errors import InputError
from mltree.numerals import decimal, whole
from mltree.threads import VARIABLE as THREADS
from mltree.threads import limit_drivers

__all__ = [
    "data_type_of",
    "length_of",
    "mean_length_of",
    "ranks_of",
    "share_of",
    "size_of",
    "threads_of",
    "whole_of",
]

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

    from mltree.alignment.datatype import alphabet_named

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
