"""Dates as people write them: ISO dates and parts of them, decimal years, ages, intervals.

A date is an interval of decimal years, of no width where it is known: ``2012-05-17`` is the middle
of its day, ``2012-05`` and ``2012-05-XX`` the month, ``2012-XX-XX`` the year, ``2012.38`` and
``2012`` a number. ``[a,b]``, ``[a:b]`` and LSD's ``b(a,b)`` are intervals, ``l(a)`` and ``u(b)``
have one end.
"""

from __future__ import annotations

import math
import re
from calendar import isleap, monthrange
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from mltree.data.source import read_text
from mltree.system.errors import InputError
from mltree.system.files import is_there
from mltree.system.values import decimal

_ISO = re.compile(r"(\d{4})[-/](\d{1,2}|X{1,2})(?:[-/](\d{1,2}|X{1,2}))?", re.IGNORECASE)
_INTERVAL = re.compile(r"(?:\[|b\()\s*([^,:;]+)\s*[,:;]\s*([^,:;]+)\s*(?:\]|\))")
_ONE_END = re.compile(r"([lu])\(\s*([^,]+)\s*\)")
_MRCA = re.compile(r"(?:mrca|ancestor)\((.+?)\)", re.IGNORECASE)
_UNKNOWN = {"", "?", "na", "nan", "unknown", "none", "x", "xxxx-xx-xx", "xxxx"}

NAMES = "names"
"""Value of ``--dates`` for dates that are in the names of tips."""

SEPARATORS = "|_@/#.-"
"""Marks between the parts of a name, of which one is its date; the first that suits is taken."""

MOST_SHOWN = 3
"""Names in a message."""

EARLIEST, LATEST = 1000.0, 2200.0
"""Years that a bare number in a name may be."""


class Span(NamedTuple):
    """An interval of decimal years."""

    lower: float
    upper: float


ANY = Span(-math.inf, math.inf)
"""Nothing is known of the date."""


def year_of_form(text: str, form: str, name: str, file: str) -> float:
    """The date of a tip as a decimal year, by a form such as ``dd/M/yyyy``. Raises: InputError."""
    parts = ("yyyy", "%Y"), ("MM", "%m"), ("M", "%m"), ("dd", "%d"), ("d", "%d"), ("yy", "%y")
    pattern, rest = "", form
    while rest:
        found = next(((len(k), p) for k, p in parts if rest.startswith(k)), (1, rest[0]))
        pattern, rest = pattern + found[1], rest[found[0] :]
    try:
        return round(year_of(datetime.strptime(text, pattern).date()), 9)
    except ValueError:
        raise InputError(f"date of {name}: {text!r} is not {form}", file=file) from None


def year_of(day: date) -> float:
    """The decimal year at which a day begins."""
    length = 366 if isleap(day.year) else 365
    return day.year + (day.timetuple().tm_yday - 1) / length


def iso_of(year: float) -> str:
    """The day of a decimal year; the number itself outside of the years 1 to 9999."""
    whole = math.floor(year)
    if not 1 <= whole <= 9999:
        return f"{year:.4f}"
    days = int((year - whole) * (366 if isleap(whole) else 365) + 1e-6)
    return (date(whole, 1, 1) + timedelta(days=days)).isoformat()


def read_date(text: str) -> Span:
    """The interval that a text means.

    Raises: ValueError: it is no date.
    """
    text = text.strip().strip("'\"")
    if text.lower() in _UNKNOWN:
        return ANY
    if (both := _INTERVAL.fullmatch(text)) is not None:
        lower, upper = read_date(both[1]).lower, read_date(both[2]).upper
        if lower > upper:
            raise ValueError(f"the interval {text} ends before it begins")
        return Span(lower, upper)
    if (one := _ONE_END.fullmatch(text)) is not None:
        span = read_date(one[2])
        return Span(span.lower, math.inf) if one[1] == "l" else Span(-math.inf, span.upper)
    if (match := _ISO.fullmatch(text)) is not None:
        return _of_calendar(*match.groups())
    try:
        value = decimal(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a date") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a date")
    return Span(value, value)


def _of_calendar(year: str, month: str, day: str | None) -> Span:
    """The interval of a day, a month or a year. Raises: ValueError: there is no such day."""
    if not month.isdigit():
        return Span(float(year), float(int(year) + 1))
    if day is None or not day.isdigit():
        first = date(int(year), int(month), 1)
        last = date(int(year), int(month), monthrange(int(year), int(month))[1])
        return Span(year_of(first), year_of(last + timedelta(days=1)))
    when = date(int(year), int(month), int(day))
    middle = year_of(when) + 0.5 / (366 if isleap(when.year) else 365)
    return Span(middle, middle)


class CalibrationRow(NamedTuple):
    """A line on the age of an ancestor, as it is written."""

    name: str
    """The name that the line gives, or its taxa."""
    taxa: tuple[str, ...]
    text: str
    """A date, an interval, or a distribution; empty for monophyly alone."""
    is_stem: bool = False
    """True for the ancestor above the last common one."""
    is_monophyletic: bool = False
    file: str | None = None
    line: int | None = None


class CalibrationDate(NamedTuple):
    """A date of the last common ancestor of some tips, or of the ancestor above it."""

    taxa: tuple[str, ...]
    span: Span
    is_stem: bool = False
    is_monophyletic: bool = False


class Dated(NamedTuple):
    """All that is known of dates."""

    tips: dict[str, Span]
    calibrations: list[CalibrationRow]
    is_calendar: bool
    """True if any date has the form of a calendar's: results are told as such too."""
    are_ages: bool
    """True for numbers that count back from the present."""


def dates_of(source: str, taxa: Sequence[str], *, ages: bool = False) -> Dated:
    """The dates of tips: in their names, in a table, or where a regular expression has its group.

    ages  True for numbers that count back from the present

    Raises:
        InputError: nothing is a date, or a name or date cannot be read.
    """
    if source == NAMES:
        texts = _in_names(taxa)
    elif is_there(source):
        return _table(source, taxa, ages)
    else:
        texts = _by_expression(source, taxa)
    spans = {name: _read(text, ages, name) for name, text in texts.items()}
    return Dated(spans, [], any(map(_is_calendar, texts.values())), ages)


def _is_calendar(text: str) -> bool:
    return bool(re.search(r"\d{4}[-/](\d|X)", text, re.IGNORECASE))


def _read(
    text: str, ages: bool, name: str, file: str | None = None, line: int | None = None
) -> Span:
    try:
        span = read_date(text)
    except ValueError as error:
        raise InputError(f"date of {name}: {error}", file=file, line=line, taxon=name) from None
    return Span(-span.upper, -span.lower) if ages else span


def _in_names(taxa: Sequence[str]) -> dict[str, str]:
    """The part of each name that is its date: the same place in all, from the end or the front."""
    best: dict[str, str] = {}
    for separator in SEPARATORS:
        for place in (-1, 0, -2, 1, -3, 2):
            found = {}
            for name in taxa:
                parts = name.strip("'\"").split(separator)
                if len(parts) > 1 and -len(parts) <= place < len(parts) and _dates(parts[place]):
                    found[name] = parts[place]
            if len(found) > len(best):
                best = found
    if not best:
        hint = "give --dates a table (name, tab, date) or a regular expression with one group"
        raise InputError("no name of a tip has a date in it", hint=hint)
    return best


def _dates(text: str) -> bool:
    """True for a part of a name that is a calendar's date, or a year with or without decimals."""
    if _ISO.fullmatch(text):
        try:
            read_date(text)
        except ValueError:
            return False
        return True
    return bool(re.fullmatch(r"\d{4}(\.\d+)?", text)) and EARLIEST <= float(text) <= LATEST


def _by_expression(text: str, taxa: Sequence[str]) -> dict[str, str]:
    try:
        expression = re.compile(text)
    except re.error as error:
        raise InputError(f"--dates: {text!r} is no file, and no expression: {error}") from None
    if expression.groups != 1:
        hint = "names, a file, or an expression with one group: '\\|([0-9.]+)$'"
        raise InputError(f"--dates: there is no file {text}", hint=hint)
    matches = {name: expression.search(name) for name in taxa}
    found = {name: match[1] for name, match in matches.items() if match is not None}
    if not found:
        raise InputError(f"--dates: {text!r} matches no name of a tip")
    return found


def _rows(path: str) -> list[tuple[int, list[str]]]:
    """Lines of a table, split at tabs, else commas (CSV) or blanks."""
    lines = read_text(path).decode("utf-8", "replace").splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            if "\t" in line:
                cells = line.split("\t")
            elif path.lower().removesuffix(".gz").endswith(".csv"):
                cells = re.split(r",(?![^\[(]*[\])])", line)
            else:
                cells = re.split(r"\s+(?![^\[(]*[\])])", line.strip())
            rows.append((number, [cell.strip().strip("'\"") for cell in cells]))
    if rows and len(rows[0][1]) == 1 and rows[0][1][0].isdigit():
        del rows[0]  # LSD's files begin with the number of lines
    return rows


_COLUMNS = ("date", "num_date", "numdate", "dates", "year", "age", "ages")
_NAMES = ("name", "strain", "taxon", "taxa", "tip", "node", "accession", "node_name")


def _table(path: str, taxa: Sequence[str], ages: bool) -> Dated:
    """A table with a name and a date a line; a first line may name the columns.

    Raises: InputError: a line has no date, or names a taxon that the tree has not.
    """
    rows, known = _rows(path), set(taxa)
    name_at, date_at = 0, 1
    if rows:
        head = [cell.lower() for cell in rows[0][1]]
        dated = [place for place, cell in enumerate(head) if cell in _COLUMNS]
        if dated and rows[0][1][0] not in known:
            date_at = dated[0]
            name_at = next((place for place, cell in enumerate(head) if cell in _NAMES), 0)
            ages = ages or head[date_at].startswith("age")
            rows = rows[1:]
    tips: dict[str, Span] = {}
    calibrations, is_calendar, strange = [], False, []
    for line, cells in rows:
        if len(cells) <= max(name_at, date_at):
            raise InputError("a line without a date: name, tab, date", file=path, line=line)
        name, text = cells[name_at], cells[date_at]
        is_calendar |= _is_calendar(text)
        if _MRCA.fullmatch(name) is not None:
            words = [cell for cell in cells[date_at + 1 :] if cell.lower() in _WORDS]
            calibrations.append(_calibration([name, text, *words], path, line))
            continue
        span = _read(text, ages, name, path, line)
        if name not in known:
            strange.append(name)
        elif name in tips and tips[name] != span:
            raise InputError(f"two dates of {name}", file=path, line=line, taxon=name)
        else:
            tips[name] = span
    if not tips and not calibrations:
        shown = f": {strange[0]!r} is none" if strange else ""
        raise InputError(f"no line is of a tip of the tree{shown}", file=path)
    return Dated(tips, calibrations, is_calendar, ages)


_WORDS = {"stem": "stem", "crown": "crown", "monophyletic": "monophyletic", "mono": "monophyletic"}
"""Words behind a calibration's date."""


def calibration_rows(path: str) -> list[CalibrationRow]:
    """Lines of taxa with commas between (or ``mrca(A,B)``), and a date, interval or distribution.

    A name may stand in front, and behind it ``stem``, ``crown`` or ``monophyletic``.

    Raises:
        InputError: a line cannot be read.
    """
    found = [_calibration(cells, path, line) for line, cells in _rows(path)]
    if not found:
        raise InputError("no calibration in it", file=path)
    return found


def _calibration(cells: Sequence[str], path: str, line: int) -> CalibrationRow:
    cells, words = list(cells), set[str]()
    while cells:
        last = {_WORDS.get(word, "") for word in re.split(r"[\s,]+", cells[-1].lower()) if word}
        if "" in last:
            break
        words |= last
        cells.pop()
    if "monophyletic" in words and cells and not _is_dated(cells[-1]):
        cells.append("")
    if len(cells) < 2:
        hint = "TAXON,TAXON, a tab, and a date, [earliest,latest] or a distribution"
        raise InputError("a line without a date", file=path, line=line, hint=hint)
    if {"stem", "crown"} <= words:
        raise InputError("a calibration is of the stem or the crown", file=path, line=line)
    *names, group, text = cells
    match = _MRCA.fullmatch(group)
    taxa = tuple(one.strip().strip("'\"") for one in (match[1] if match else group).split(","))
    name = names[0] if names and names[0] else ",".join(taxa)
    text = "" if text.lower() in _UNKNOWN | {"-"} else text
    return CalibrationRow(name, taxa, text, "stem" in words, "monophyletic" in words, path, line)


def _is_dated(text: str) -> bool:
    """True for a date, an interval, a distribution, or a mark that there is none."""
    if re.fullmatch(r"[^,]*\w\s*\(.*\)", text) and not _MRCA.fullmatch(text):
        return True
    try:
        return bool(read_date(text)) or text == "-"
    except ValueError:
        return text == "-"


def span_of(row: CalibrationRow, *, ages: bool = False) -> Span:
    """The dates that a line without a distribution allows. Raises: InputError."""
    return _read(row.text, ages, row.name, row.file, row.line)


def missing_text(taxa: Sequence[str], dated: Mapping[str, Span]) -> str:
    """A notice on tips without a date; empty where all have one."""
    lost = [name for name in taxa if dated.get(name, ANY) == ANY]
    if not lost:
        return ""
    names = ", ".join(lost[:MOST_SHOWN]) + (", ..." if len(lost) > MOST_SHOWN else "")
    return f"{len(lost):,} of {len(taxa):,} tips have no date: theirs is estimated ({names})"
