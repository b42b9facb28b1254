"""Calibrations: what is known of the ages of ancestors, as distributions of heights.

A table has a line each: a name (or none), the taxa of a group, a date, an interval or a
distribution, and the words ``stem`` (of the ancestor above the group's last common one), ``crown``
(that one: the default) and ``monophyletic``. A tip whose date is an interval may be a group. Ages
count back from the present; where tips have dates, so have calibrations::

    Hominidae   Homo,Pan,Gorilla,Pongo  14 + Exponential(mean=3)        monophyletic
    root        Homo,Macaca             [25,33]
    clade B     A1,A7                   1968 - Exponential(mean=2)      stem
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from mltree.dating.dates import CalibrationDate, CalibrationRow, Span, span_of
from mltree.dating.time_trees import TimeTree
from mltree.sampling.priors import Distribution, Normal, Shifted, Uniform, read_distribution
from mltree.system.errors import InputError
from mltree.system.values import Value

TAIL = 0.025
"""Probability on either side of the interval that stands for a distribution."""

_BACKWARDS = re.compile(r"\s*(?P<date>[^\s()]+)\s*-\s*(?P<distribution>[A-Za-z]\w*\s*\(.*\))\s*")


class NodeCalibration(Value):
    """The height of an ancestor of a group of tips as a distribution; or its monophyly alone."""

    name: str
    tips: tuple[int, ...]
    """Numbers of the group's taxa, rising."""
    distribution: Distribution | None
    """Distribution of the height, the time before the latest tip; None for monophyly alone."""
    is_stem: bool = False
    """True for the ancestor above the last common one."""
    is_monophyletic: bool = False
    file: str | None = None
    line: int | None = None

    def node(self, tree: TimeTree) -> int:
        """The ancestor in a tree; -1 for the stem of the root."""
        node = tree.mrca(self.tips)
        return int(tree.parents[node]) if self.is_stem else node

    def log_density(self, tree: TimeTree) -> float:
        """Natural log of the density at the ancestor's height; -inf where monophyly is broken."""
        if self.is_monophyletic and not tree.is_clade(self.tips):
            return -math.inf
        node = self.node(tree)
        if self.distribution is None or node < 0:
            return 0.0
        height = tree.heights[node]
        low, high = self.support
        return float(self.distribution.log_density(height)) if low <= height <= high else -math.inf

    @property
    def support(self) -> tuple[float, float]:
        """Heights between which the ancestor may be."""
        if self.distribution is None:
            return 0.0, math.inf
        low, high = self.distribution.support
        return max(low, 0.0), high

    def __str__(self) -> str:
        words = " stem" * self.is_stem + " monophyletic" * self.is_monophyletic
        return f"{self.name}: {self.distribution or 'any height'}{words}"


def calibrations_of(
    rows: Iterable[CalibrationRow], taxa: Sequence[str], *, latest: float = 0.0, ages: bool = True,
    tip_heights: Sequence[float] | None = None, sampled: Collection[int] = (),
) -> list[NodeCalibration]:  # fmt: skip
    """Calibrations of the lines of a table.

    taxa         T names
    latest       the date of the latest tip: a decimal year or, with ages, minus its age
    ages         True where numbers count back from the present, False for dates
    tip_heights  T heights of tips, the least that they may have; 0 by default
    sampled      numbers of tips whose dates are intervals, within which they may have distributions

    Raises: InputError: a line cannot be read, a name is unknown, or calibrations contradict.
    """
    number = {name: tip for tip, name in enumerate(taxa)}
    found = []
    for row in rows:
        tips = _tips(row, number, sampled)
        distribution = _height_of(row, latest, ages) if row.text else None
        found.append(
            NodeCalibration(
                row.name, tips, distribution, row.is_stem, row.is_monophyletic, row.file, row.line
            )
        )
    expect_agreement(found, tip_heights or [0.0] * len(taxa))
    return found


def _fail(
    row: CalibrationRow | NodeCalibration, problem: str, hint: str | None = None
) -> InputError:
    return InputError(f"calibration {row.name}: {problem}", file=row.file, line=row.line, hint=hint)


def _tips(row: CalibrationRow, number: dict[str, int], sampled: Collection[int]) -> tuple[int, ...]:
    for name in row.taxa:
        if name not in number:
            raise _fail(row, f"no taxon is called {name!r}")
    tips = tuple(sorted({number[name] for name in row.taxa}))
    if len(tips) == 1 and not row.is_stem and tips[0] not in sampled:
        raise _fail(row, "one taxon has no crown", "--dates has the dates of tips; stem is above")
    if len(tips) == len(number) and row.is_stem:
        raise _fail(row, "the root has no stem")
    return tips


def _height_of(row: CalibrationRow, latest: float, ages: bool) -> Distribution:
    """The distribution of the height that a line gives. Raises: InputError."""
    if "(" not in row.text or row.text[:2].lower() in ("l(", "u(", "b("):
        lower, upper = span_of(row, ages=ages)
        if lower == upper:
            hint = f"an interval such as [{lower - 1:g},{lower + 1:g}], or a distribution"
            raise _fail(row, "a height without width cannot be sampled", hint)
        return Uniform(latest - upper, latest - lower)
    made = _read(row, ages)
    if ages:
        return _moved(made(0.0), latest)
    return made(latest)


def _read(row: CalibrationRow, ages: bool) -> Callable[[float], Distribution]:
    """A function of the latest date (0 with ages) that gives the distribution of the height."""
    backwards = _BACKWARDS.fullmatch(row.text)
    text = row.text if backwards is None else backwards["distribution"]
    try:
        of = read_distribution(text)
        begin = None if backwards is None else span_of(row._replace(text=backwards["date"]))
    except InputError as error:
        raise _fail(row, error.message, error.hint) from None
    if ages:
        if begin is not None:
            raise _fail(row, "a minus sign goes with dates", f"{begin.lower:g} + {text} for ages")
        return lambda _: of
    if begin is not None:
        if begin.lower != begin.upper:
            raise _fail(row, f"{text} has to begin at one date")
        return lambda latest: _moved(of, latest - begin.lower)
    if isinstance(of, Uniform):
        return lambda latest: Uniform(latest - of.high, latest - of.low)
    if isinstance(of, Normal):
        return lambda latest: Normal(latest - of.mean, of.deviation)
    raise _fail(row, f"at which date does {text} begin?", f"1950 - {text} goes back from 1950")


def _moved(of: Distribution, offset: float) -> Distribution:
    if offset == 0.0:
        return of
    if isinstance(of, Shifted):
        return Shifted(of.of, of.offset + offset)
    if isinstance(of, Uniform):
        return Uniform(of.low + offset, of.high + offset)
    if isinstance(of, Normal):
        return Normal(of.mean + offset, of.deviation)
    return Shifted(of, offset)


def bounds_of(row: CalibrationRow, *, ages: bool = False) -> CalibrationDate:
    """Bounds of a date: an interval, or that of 95 % of a distribution.

    ages  True for numbers that count back from the present

    Raises: InputError: the line cannot be read.
    """
    if not row.text or "(" not in row.text or row.text[:2].lower() in ("l(", "u(", "b("):
        span = span_of(row, ages=ages)
        return CalibrationDate(row.taxa, span, row.is_stem, row.is_monophyletic)
    height = _read(row, ages)(0.0)
    low, high = height.support if isinstance(height, Uniform) else (
        height.quantile(TAIL), height.quantile(1.0 - TAIL))  # fmt: skip
    return CalibrationDate(row.taxa, Span(-high, -low), row.is_stem, row.is_monophyletic)


# Contradictions.


def expect_agreement(calibrations: Sequence[NodeCalibration], tip_heights: Sequence[float]) -> None:
    """Make sure that some tree has all calibrations.

    tip_heights  T least heights of tips

    Raises: InputError: one line on the first two that contradict each other.
    """
    for one in calibrations:
        oldest = max(tip_heights[tip] for tip in one.tips)
        if one.support[1] <= oldest:
            problem = f"no older than {one.support[1]:g}, but a tip of it is of {oldest:g}"
            raise _fail(one, f"{problem} (before the latest tip)")
    for at, one in enumerate(calibrations):
        for other in calibrations[:at]:
            a, b = set(one.tips), set(other.tips)
            if one.is_monophyletic and other.is_monophyletic and a & b and not (a <= b or b <= a):
                raise _fail(one, f"overlaps with {other.name}: both cannot be monophyletic")
            for inner, outer in ((one, other), (other, one)):
                if _is_above(outer, inner) and inner.support[0] >= outer.support[1]:
                    problem = f"at least {inner.support[0]:g} old, but {outer.name}, in which it"
                    raise _fail(inner, f"{problem} is, at most {outer.support[1]:g}")


def _is_above(outer: NodeCalibration, inner: NodeCalibration) -> bool:
    """True if the ancestor of one calibration cannot be below that of the other."""
    a, b = set(inner.tips), set(outer.tips)
    if not a <= b or outer is inner:
        return False
    return not inner.is_stem or outer.is_stem or (a < b and inner.is_monophyletic)


def groups(calibrations: Iterable[NodeCalibration]) -> Iterator[tuple[int, ...]]:
    """The groups of tips that have to be monophyletic, each once."""
    yield from dict.fromkeys(one.tips for one in calibrations if one.is_monophyletic)
