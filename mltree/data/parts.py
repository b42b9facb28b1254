r"""Parts of an alignment, as partition files name them, and how they fit the data.

A part's sites are runs, ranges that count sites from 0: ``1-900\3`` is ``range(0, 900, 3)``, which
keeps its end as it was written. Runs are read and written here for every dialect alike.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from mltree.system.arrays import Int64
from mltree.system.errors import InputError
from mltree.system.values import Value

LAST = sys.maxsize
"""End of a run that goes on to the last site, however many there are."""

_RUN = re.compile(
    r"(?P<first>[0-9]{1,18})\s*(?P<to>-\s*(?P<last>[0-9]{1,18}|\.)?)?\s*"
    r"([\\/]\s*(?P<stride>[0-9]{1,18}))?(?=[\s,]|$)[\s,]*"
)
_ALL = ("*", "ALL")

_MAX_RUNS = 5
"""Runs that one line lists."""


class Part(Value):
    """A partition of the alignment: sites that share a model."""

    name: str
    runs: tuple[range, ...]
    """Runs of the part's sites, from 0, in the order of the file; a stop of `LAST` is the last
    site."""
    datatype: str | None = None
    """The data type in the file: ``"DNA"``, ``"AA"``, ``"BIN"``."""
    model: str | None = None
    """The model's string; None where the file leaves it open; may be terms alone."""
    scaler: float | None = None
    """Factor on the tree's branch lengths in this part (``+BU{...}``)."""
    tree_length: float | None = None
    """Length of the part's tree, which gives the scaler where all parts have one (IQ-TREE)."""
    file: str | None = None
    """The part's alignment file; None for the alignment of all parts."""
    line: int = 0
    """Line in the partition file, from 1."""

    @property
    def n_sites(self) -> int:
        """Number of sites; meaningless while a run is open."""
        return sum(map(len, self.runs))

    @property
    def sites(self) -> Int64:
        """i64 [n_sites], from 0, in the order of the runs."""
        return np.concatenate([np.arange(r.start, r.stop, r.step) for r in self.runs])


@dataclass(frozen=True)
class Scheme:
    """A partitioning scheme: the parts that a file names, in its order."""

    path: str
    parts: tuple[Part, ...]
    covers: bool
    """True where every site must be in a part, as in RAxML; NEXUS may leave sites out."""

    def __post_init__(self) -> None:
        """Refuse names that are unusable, or that two parts have."""
        seen: dict[str, Part] = {}
        for part in self.parts:
            if not part.name or not part.name.isprintable() or set(part.name) & set(",=;"):
                hint = "letters, digits, _ and . are safe"
                raise self.error(f"{part.name!r} is no name for a part", part, hint)
            if part.name in seen:
                first = seen[part.name].line
                message = f"two parts are called {part.name} (the first on line {first})"
                raise self.error(message, part, "give every part a name of its own")
            seen[part.name] = part

    def error(self, message: str, part: Part, hint: str) -> InputError:
        """An InputError at the line of a part."""
        return InputError(message, file=self.path, line=part.line, hint=hint)


@contextmanager
def at_line(path: str, line: int, hint: str) -> Iterator[None]:
    """Turn a ValueError into an InputError at a line of a partition file."""
    try:
        yield
    except ValueError as error:
        raise InputError(str(error), file=path, line=line, hint=hint) from None


def parse_sites(text: str) -> tuple[range, ...]:
    r"""The runs of ``1-900\3, 1000``, separated by commas or blanks; ``*`` is every site.

    ``904-``, ``904-.`` and ``904-\3`` go on to the last site. Raises: ValueError saying what is
    wrong.
    """
    text = text.strip()
    if text.upper() in _ALL:
        return (range(LAST),)
    runs, place = [], 0
    while place < len(text):
        match = _RUN.match(text, place)
        if match is None:
            raise ValueError(f"cannot read the sites {text[place:].split()[0][:40]!r}")
        runs.append(_run(match))
        place = match.end()
    return tuple(runs)


def _run(match: re.Match[str]) -> range:
    first, stride = int(match["first"]), int(match["stride"] or 1)
    last = first if match["to"] is None and match["stride"] is None else LAST
    if match["last"] not in (None, "."):
        last = int(match["last"])
    written = match[0].strip(" ,\t\n")
    if first < 1:
        raise ValueError(f"the sites {written} begin at 0, but the first site is 1")
    if last < first:
        raise ValueError(f"the sites {written} run backwards")
    if stride < 1:
        raise ValueError(f"the sites {written} have a stride of 0")
    return range(first - 1, last, stride)


def format_sites(runs: Sequence[range], separator: str = ", ") -> str:
    r"""Runs as they are written in partition files, sites from 1: ``1-900\3, 1000``."""
    return separator.join(_format_run(run) for run in runs)


def _format_run(run: range) -> str:
    if len(run) == 1 and run.stop != LAST:
        return str(run.start + 1)
    last = "." if run.stop == LAST else str(run.stop)
    return f"{run.start + 1}-{last}" + (rf"\{run.step}" if run.step > 1 else "")


def runs_of(sites: Int64) -> tuple[range, ...]:
    """Few runs that cover some sites, i64 [n] rising; a stride takes three sites or more."""
    steps = np.diff(sites)
    turns = [*(np.flatnonzero(np.diff(steps)) + 1), len(steps)]
    values, runs, place = sites.tolist(), [], 0
    for turn in turns:
        step = int(steps[place]) if place < turn else 0
        if step == 1 or turn - place > 1:
            runs.append(range(values[place], values[turn] + 1, step))
            place = turn + 1
        else:
            runs += [range(site, site + 1) for site in values[place:turn]]
            place = turn
    return (*runs, *(range(site, site + 1) for site in values[place:]))


def fit(scheme: Scheme, n_sites: Mapping[str | None, int]) -> tuple[Scheme, tuple[str, ...]]:
    """The scheme with open runs ended, and a notice about sites left out.

    ``n_sites``: number of sites of every file.

    Raises:
        InputError: a part has no sites or goes beyond the end, parts overlap, or sites that have
            to be in a part are in none.
    """
    parts = tuple(_ended(scheme, part, n_sites[part.file]) for part in scheme.parts)
    fitted = replace(scheme, parts=parts)
    left_out = []
    for file, sites in n_sites.items():
        free = _free_sites(fitted, file, sites)
        if len(free) == sites:
            continue  # an alignment that no part is of
        if len(free):
            left_out.append(_left_out(fitted, file, free, sites))
    return fitted, tuple(left_out)


def _ended(scheme: Scheme, part: Part, sites: int) -> Part:
    """The part with its open runs ended at the last of so many sites."""
    if not part.runs:
        raise scheme.error(f"part {part.name} has no sites", part, "name some, or take it out")
    for run in part.runs:
        last = run.start + 1 if run.stop == LAST else run.stop
        if last > sites:
            of = f"{part.file} has" if part.file else "the alignment has"
            raise scheme.error(
                f"part {part.name} goes to site {last:,}, but {of} {sites:,}",
                part,
                "is it the right alignment? sites count from 1",
            )
    ended = (range(run.start, sites, run.step) if run.stop == LAST else run for run in part.runs)
    return replace(part, runs=tuple(ended))


def _free_sites(scheme: Scheme, file: str | None, sites: int) -> Int64:
    """The sites of a file that are in no part; raises InputError where parts overlap."""
    owner = np.zeros(sites, np.int32)
    for number, part, run in _runs_in(scheme, file):
        taken = owner[run.start : run.stop : run.step]
        if taken.any():
            place = int((taken != 0).argmax())
            raise _overlap(scheme, part, scheme.parts[taken[place] - 1], run[place])
        taken[:] = number
    return np.flatnonzero(owner == 0)


def _runs_in(scheme: Scheme, file: str | None) -> Iterator[tuple[int, Part, range]]:
    for number, part in enumerate(scheme.parts, 1):
        if part.file == file:
            yield from ((number, part, run) for run in part.runs)


def _overlap(scheme: Scheme, part: Part, other: Part, site: int) -> InputError:
    if part is other:
        message = f"part {part.name} names site {site + 1:,} twice"
    else:
        message = f"parts {other.name} and {part.name} overlap, first at site {site + 1:,}"
    return scheme.error(message, part, "every site is in one part")


def _left_out(scheme: Scheme, file: str | None, free: Int64, sites: int) -> str:
    """A notice of sites in no part; raises InputError where there may be none."""
    runs = runs_of(free)
    more = f" and {len(runs) - _MAX_RUNS:,} more ranges" if len(runs) > _MAX_RUNS else ""
    shown = format_sites(runs[:_MAX_RUNS]) + more
    of = f" of {file}" if file else ""
    if scheme.covers:
        raise InputError(
            f"in no part: {'site' if len(free) == 1 else 'sites'} {shown}{of}",
            file=scheme.path,
            hint="every site has to be in a part; or list the parts in a NEXUS sets block",
        )
    return f"{scheme.path}: {len(free):,} of {sites:,} sites{of} are in no part: {shown}"
