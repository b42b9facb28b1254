"""Report of a run as one HTML page, complete in itself: a browser fetches nothing.

tree.js      the tree: reading, rooting, ordering, layouts (no browser in it)
view.js      its drawing, and what pointers and keys do
controls.js  the buttons around it
page.html    the frame: head, header, sections
page.css     the style, by day, by night and on paper

Charts are drawn here, not by the browser: they are there without scripts, and on paper.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import accumulate, combinations
from typing import Any, TypeAlias

import numpy as np

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.models.substitution import Model
from mltree.report.drawing import draw
from mltree.report.methods import bibliography, without_values
from mltree.report.record import Facts, PartModel, Subject
from mltree.report.scene import svg
from mltree.report.style import Axis, Style, Supports
from mltree.report.tables import (
    MAX_P_VALUE,
    alignment_facts,
    ranked_cells,
    support_rows,
    time_cells,
    warning_lines,
)
from mltree.system import __version__
from mltree.system.arrays import Float64
from mltree.system.events import AlignmentSummary
from mltree.system.values import Value

# Charts as SVG. Colours and fonts are classes of the page's stylesheet, so that charts follow it by
# day and night.


class Scale(Value):
    """Linear map from values to coordinates of a chart."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Coordinate of a value."""
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def chart(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """An SVG chart, in points where there is room; screen readers read ``label``."""
    box = f'viewBox="0 0 {width:g} {height:g}"'
    style = f'style="max-width:{width:g}px"'
    return (
        f'<svg class="chart" {box} {style} role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """A text on its middle line; ``kind`` is a class of the stylesheet."""
    attributes = f'x="{x:.1f}" y="{y:.1f}" dy=".35em" text-anchor="{anchor}"'
    return f'<text class="{kind}" {attributes}>{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    """A straight line between two points."""
    return path([(x1, y1), (x2, y2)], kind)


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through points."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{steps}"/>'


def bar(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """A rectangle; ``title`` shows under the pointer."""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f'<rect class="{kind}" {size}>{_title(title)}</rect>'


def circle(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    """A dot; ``title`` shows under the pointer."""
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"'
    return f'<circle class="{kind}" {place}>{_title(title)}</circle>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def ticks(low: float, high: float, most: int) -> list[float]:
    """About ``most`` round values from low to high, at most."""
    span = high - low
    if span <= 0.0:
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [count * step for count in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def number(value: float) -> str:
    """A number as axis label."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def axis_below(
    scale: Scale, y: float, values: Sequence[float], text: Callable[[float], str] = number
) -> list[str]:
    """Axis labels and tick marks under a chart."""
    parts = []
    for value in values:
        x = scale(value)
        parts += [line(x, y, x, y + 4, "axis"), words(x, y + 13, text(value), "tick", "middle")]
    return parts


def _grid(rows: Iterable[tuple[float, str]], left: float = 60.0) -> list[str]:
    """Lines across a chart with their labels; ``rows``: y and text of each."""
    return [
        line(left, y, WIDTH - 24, y) + words(left - 6, y, text, "tick", "end") for y, text in rows
    ]


# Charts of an alignment: gaps along its sites and by taxon, composition of its sequences.

WIDTH = 1060.0
"""Width of a chart, in chart units."""

MOST_BINS = 240
"""Bars along an alignment at most; sites are averaged within a bar."""

MOST_DOTS = 150
"""Deviant sequences drawn for a state, at most."""


def site_chart(patterns: Patterns) -> str:
    """Share of gaps and mean number of states along the alignment."""
    bins = min(MOST_BINS, patterns.n_sites)
    bounds = np.linspace(0, patterns.n_sites, bins + 1).astype(int)
    gaps, states = _by_site(patterns)
    across = Scale(0.0, patterns.n_sites, 60.0, WIDTH - 24.0)
    up, height = Scale(0.0, 1.0, 96.0, 14.0), Scale(1.0, max(2.0, _top(states)), 196.0, 118.0)
    parts = _grid((up(share), f"{share:.0%}") for share in (0.0, 0.5, 1.0))
    steps = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        x, width = across(first), across(last) - across(first)
        mean = float(gaps[first:last].mean())
        if mean > 0.0:
            where = f"sites {first + 1:,}–{last:,}: {mean:.1%} gaps"
            parts.append(bar(x, up(mean), max(width, 0.6), 96 - up(mean), "bar-gap", where))
        y = height(float(states[first:last].mean()))
        steps += [(x, y), (x + width, y)]
    parts += _grid((height(value), f"{value:g}") for value in ticks(1.0, height.high, 2))
    parts.append(path(steps, "curve"))
    parts += [words(60, 6, "gaps", "tick"), words(60, 109, "states per site", "tick")]
    parts += axis_below(across, 200, ticks(0, patterns.n_sites, 8))
    return chart(WIDTH, 222, "gaps and states along the alignment", parts)


def _by_site(patterns: Patterns) -> tuple[Float64, Float64]:
    """f64 [sites]: share of gaps, and number of unambiguous states, at least 1."""
    alphabet = patterns.alphabet
    gaps = (patterns.codes == alphabet.gap_code).mean(axis=0)
    seen = np.zeros(patterns.n_patterns)
    for state in alphabet.state_codes:
        seen += (patterns.codes == state).any(axis=0)
    return gaps[patterns.site_pattern], np.maximum(seen, 1.0)[patterns.site_pattern]


def _top(states: Float64) -> float:
    bins = np.array_split(states, min(MOST_BINS, len(states)))
    return float(max(part.mean() for part in bins))


def taxon_gap_chart(summary: AlignmentSummary) -> str:
    """Share of gaps of each taxon, largest first."""
    pairs = sorted(zip(summary.taxon_gap_shares, summary.names, strict=True), reverse=True)
    across, up = Scale(0.0, len(pairs), 60.0, WIDTH - 24.0), Scale(0.0, 1.0, 110.0, 14.0)
    parts = _grid((up(share), f"{share:.0%}") for share in (0.0, 0.5, 1.0))
    step = across(1) - across(0)
    width = max(step - (1 if step > 4 else 0), 0.6)
    parts += [
        bar(across(place), up(share), width, 110 - up(share), "bar-gap", f"{name}: {share:.1%}")
        for place, (share, name) in enumerate(pairs)
        if share > 0.0
    ]
    parts.append(words((60 + WIDTH - 24) / 2, 122, "taxa, most gaps first", "tick", "middle"))
    return chart(WIDTH, 132, "share of gaps by taxon", parts)


def composition_chart(patterns: Patterns, p_values: Sequence[float]) -> str:
    """Frequencies of each state over the sequences: range, quartiles, deviant sequences."""
    shares = _shares(patterns)
    states = patterns.alphabet.states
    across = Scale(0.0, float(np.nanmax(shares)) * 1.04, 30.0, WIDTH - 24.0)
    deviant = [tip for tip in np.argsort(p_values, kind="stable") if p_values[tip] < MAX_P_VALUE]
    parts = []
    for row, state in enumerate(states):
        y = 12.0 + 20.0 * row
        column = shares[:, row]
        low, first, middle, third, high = np.nanquantile(column, [0, 0.25, 0.5, 0.75, 1]).tolist()
        title = f"{state}: median {middle:.3f}, {low:.3f} to {high:.3f}"
        parts += [
            words(16, y, state, "label", "middle"),
            line(across(low), y, across(high), y, "axis"),
            bar(across(first), y - 5, across(third) - across(first), 10, "bar-host", title),
            line(across(middle), y - 7, across(middle), y + 7, "median"),
        ]
        for tip in deviant[:MOST_DOTS]:
            title = f"{patterns.taxa[tip]}: p = {p_values[tip]:.2g}"
            parts.append(circle(across(column[tip]), y, 3, "dot-bad", title))
    foot = 6.0 + 20.0 * len(states)
    parts += axis_below(across, foot, ticks(0.0, across.high, 8))
    return chart(WIDTH, foot + 24, "composition of the sequences", parts)


def _shares(patterns: Patterns) -> Float64:
    """f64 [T, S]: state frequencies among a sequence's unambiguous characters; NaN if none."""
    alphabet = patterns.alphabet
    codes = alphabet.state_codes
    rows = [
        np.bincount(row, patterns.weights, minlength=alphabet.n_codes)[codes]
        for row in patterns.codes
    ]
    counts = np.array(rows)
    with np.errstate(invalid="ignore"):
        shares: Float64 = counts / counts.sum(axis=1, keepdims=True)
    return shares


# Charts of a model: exchangeabilities as bubbles, frequencies as bars, rate categories as steps.

CELL_OF_FEW, CELL_OF_MANY = 52.0, 22.0
"""Side of a pair's cell, of nucleotides and of amino acids."""

FEW_STATES = 6

LARGEST_BUBBLE = 0.94
"""Diameter of the largest bubble, as a share of its cell."""

BAR_LENGTH = 70.0
"""Length of the most frequent state's bar."""


def matrix_chart(model: Model, frequencies: Float64 | None) -> str:
    """Exchangeabilities as bubbles, by area, and the states' frequencies beside them.

    ``frequencies``: f64 [S]; None if unknown.
    """
    states = model.alphabet.states
    cell = CELL_OF_FEW if len(states) <= FEW_STATES else CELL_OF_MANY
    side = cell * len(states)
    left, top = 22.0, 20.0
    parts = []
    for number, state in enumerate(states):
        place = (number + 0.5) * cell
        parts += [
            words(left - 8, top + place, state, "label", "middle"),
            words(left + place, top - 9, state, "label", "middle"),
            line(left, top + number * cell, left + side, top + number * cell),
            line(left + number * cell, top, left + number * cell, top + side),
        ]
    parts += [line(left, top + side, left + side, top + side)]
    parts += [line(left + side, top, left + side, top + side)]
    largest = float(model.rates.max()) or 1.0
    for (i, j), rate in zip(combinations(range(len(states)), 2), model.rates.tolist(), strict=True):
        radius = 0.5 * LARGEST_BUBBLE * cell * math.sqrt(rate / largest)
        title = f"{states[i]} ↔ {states[j]}: {rate:.4g}"
        for row, column in ((i, j), (j, i)):
            x, y = left + (column + 0.5) * cell, top + (row + 0.5) * cell
            parts.append(circle(x, y, radius, "bubble", title))
            if len(states) <= FEW_STATES:
                parts.append(words(x, y, f"{rate:.3g}", "bubble-text", "middle"))
    width = left + side + 4
    if frequencies is not None:
        parts += _frequency_bars(states, frequencies, width + 8, top, cell)
        width += 8 + BAR_LENGTH + 52
    return chart(width, top + side + 4, f"exchangeabilities of {model.name}", parts)


def _frequency_bars(
    states: Sequence[str], frequencies: Float64, x: float, top: float, cell: float
) -> list[str]:
    across = Scale(0.0, float(frequencies.max()), 0.0, BAR_LENGTH)
    parts = [words(x, top - 9, "frequency", "tick")]
    for number, (state, share) in enumerate(zip(states, frequencies.tolist(), strict=True)):
        y = top + (number + 0.5) * cell
        height = min(16.0, 0.6 * cell)
        parts += [
            bar(x, y - height / 2, across(share), height, "bar-host", f"{state}: {share:.4f}"),
            words(x + across(share) + 5, y, f"{share:.3f}", "tick"),
        ]
    return parts


def categories_chart(arrays: ModelArrays) -> str:
    """Rate categories: width is the share of the sites, height the rate."""
    kept = arrays.weights > 0.0  # a category without sites fills up a table
    order = np.argsort(arrays.rates[kept], kind="stable")
    rates, weights = arrays.rates[kept][order].tolist(), arrays.weights[kept][order].tolist()
    across, up = Scale(0.0, 1.0, 40.0, 400.0), Scale(0.0, max(rates), 160.0, 24.0)
    parts = [line(40, up(1.0), 400, up(1.0), "phase"), words(34, up(1.0), "1", "tick", "end")]
    begin = 0.0
    for rate, weight in zip(rates, weights, strict=True):
        x, width = across(begin), across(weight) - across(0.0)
        title = f"rate {rate:.4g}, {weight:.1%} of the sites"
        parts.append(bar(x + 1, up(rate), width - 2, 160 - up(rate), "bar-device", title))
        parts.append(words(x + width / 2, up(rate) - 8, f"{rate:.3g}", "tick", "middle"))
        parts.append(words(x + width / 2, 172, f"{weight:.0%}", "tick", "middle"))
        begin += weight
    parts.append(line(40, 160, 400, 160, "axis"))
    parts.append(words(220, 188, "share of the sites", "tick", "middle"))
    return chart(410, 196, "rate categories", parts)


# Charts of a run: lnL over time, starting trees, seconds by function.

LEAST_SHORT = 0.01
"""Smallest distance from the best lnL that the time chart shows: the final epsilon of a search."""


LEAST_SPAN = 1.0
"""Log-likelihood units that the chart of starting trees shows at least."""


def lnl_chart(facts: Facts) -> str:
    """Distance of the search's lnL from its end, over time, on a logarithmic scale.

    A linear scale would show nothing but the climb from the starting trees.
    """
    points = sorted(facts.points, key=lambda point: point.seconds)
    best = max(point.lnl for point in points)
    short = [max(best - point.lnl, LEAST_SHORT) for point in points]
    first, last = points[0].seconds, points[-1].seconds
    first = first if first < last else 0.0
    across = Scale(first, last, 66.0, WIDTH - 24.0)
    top = max(*short, 10 * LEAST_SHORT)
    down = Scale(math.log10(top) + 0.1, math.log10(LEAST_SHORT), 14.0, 236.0)
    names = {value: f"−{number(value)}" for value in log_ticks(LEAST_SHORT, top)}
    names[min(names)] = "best"
    parts = _grid(((down(math.log10(value)), text) for value, text in names.items()), 66.0)
    for n, (when, _) in enumerate(facts.phases, 1):
        x = across(when)
        parts += [line(x, 14, x, 236, "phase"), words(x + 3, 9, str(n), "tick")]
    lowest = list(accumulate(short, min))
    steps = [(across(points[0].seconds), down(math.log10(lowest[0])))]
    for point, value in zip(points[1:], lowest[1:], strict=True):
        x, y = across(point.seconds), down(math.log10(value))
        steps += [(x, steps[-1][1]), (x, y)]
    parts.append(path(steps, "curve"))
    for point, value in zip(points, short, strict=True):
        kind = "dot-start" if point.what.startswith("start") else "dot"
        title = f"{point.what}: lnL {point.lnl:,.3f} after {point.seconds:.1f} s"
        parts.append(circle(across(point.seconds), down(math.log10(value)), 3, kind, title))
    parts += axis_below(across, 236, ticks(first, last, 8))
    parts.append(words((66 + WIDTH - 24) / 2, 266, "seconds", "tick", "middle"))
    return chart(WIDTH, 276, "log-likelihood below the best, over time", parts)


def starts_chart(starts: Sequence[tuple[str, float]]) -> str:
    """The starting trees by their lnL, a row for each kind of origin."""
    kinds: dict[str, list[tuple[str, float]]] = {}
    for origin, lnl in starts:
        kinds.setdefault(origin.rpartition(" ")[0] or origin, []).append((origin, lnl))
    lnls = [lnl for _, lnl in starts]
    span = max(lnls) - min(lnls)
    margin = max(0.05 * span, 0.5 * (LEAST_SPAN - span))  # equal starts stand in the middle
    across = Scale(min(lnls) - margin, max(lnls) + margin, 110.0, WIDTH - 24.0)
    parts = []
    for row, (kind, members) in enumerate(kinds.items()):
        y = 16.0 + 26.0 * row
        parts += [words(100, y, kind, "label", "end"), line(110, y, WIDTH - 24, y)]
        parts += [
            circle(across(lnl), y, 4.5, "dot-start", f"{origin}: lnL {lnl:,.3f}")
            for origin, lnl in members
        ]
    foot = 6.0 + 26.0 * len(kinds)
    parts += axis_below(across, foot, ticks(across.low, across.high, 6), lambda v: f"{v:,.10g}")
    return chart(WIDTH, foot + 24, "log-likelihoods of the starting trees", parts)


def time_chart(time: Mapping[str, Any]) -> str:
    """Seconds of each likelihood function and of the host."""
    rows = [row for row in time["rows"] if row["seconds"] > 0.0]
    most = max(row["seconds"] for row in rows)
    across = Scale(0.0, most, 170.0, WIDTH - 90.0)
    parts = []
    for place, row in enumerate(rows):
        y = 14.0 + 22.0 * place
        share = f"{row['seconds'] / time['wall']:.1%}"
        kind = "bar-device" if row["calls"] or row["bytes_per_second"] else "bar-host"
        title = f"{row['name']}: {row['seconds']:.3f} s, {share}"
        parts += [
            words(160, y, row["name"], "label", "end"),
            bar(170, y - 7, across(row["seconds"]) - 170, 14, kind, title),
            words(across(row["seconds"]) + 6, y, f"{row['seconds']:.2f} s  {share}", "tick"),
        ]
    return chart(WIDTH, 10 + 22.0 * len(rows), "seconds by likelihood function", parts)


# Sections of the page as HTML; empty without content.

MOST_PICTURES = 40
"""Parts whose models are drawn, at most; the table has all of them."""

MIB = 2**20


def key_figures(subject: Subject) -> str:
    """The figures at the head of the page."""
    facts, finished = subject.facts, subject.facts.finished
    figures = []
    if finished is not None:
        figures.append(("log-likelihood", f"{finished['lnl']:,.3f}"))
    if facts.data is not None:
        sites, patterns = facts.data["sites"], facts.data["patterns"]
        figures.append(("taxa × sites", f"{facts.data['taxa']:,} × {sites:,}"))
        figures.append(("patterns", f"{patterns:,}"))
    else:
        figures.append(("taxa", f"{len(subject.tree.tips):,}"))
    if len(subject.models) == 1:
        name = without_values(subject.models[0].text)
        figures.append(("model", name.replace("+", "\u200b+")))  # where a line may end
    elif subject.models:
        figures.append(("model", f"{len(subject.models)} parts"))
    if finished is not None:
        figures.append(("tree length", f"{finished['tree_length']:.4g}"))
    if facts.ends is not None:
        figures.append(("starts at the best tree", "{reached} of {starts}".format(**facts.ends)))
    if (clock := facts.spent or facts.time) is not None:
        figures.append(("time", duration(float(clock["wall"]))))
    return figure_row(figures)


def figure_row(figures: Iterable[tuple[str, str]]) -> str:
    """Key figures side by side, names and values."""
    cells = (f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in figures)
    return f'<dl class="figures">{"".join(cells)}</dl>'


def duration(seconds: float) -> str:
    """``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def sections(subject: Subject) -> list[tuple[str, str, str]]:
    """Anchor, title and HTML of every section below the tree that has content."""
    made = (
        ("search", "How the search went", _search(subject.facts)),
        ("supports", "Supports", _supports(subject.facts)),
        ("time", "Where time went", _time(subject.facts)),
        ("model", "Model", _models(subject)),
        ("data", "Alignment", _alignment(subject)),
        ("settings", "Settings", _settings(subject.facts)),
        ("notes", "Notes", _list(subject.facts.notices)),
        ("cite", "Methods and citations", _citations(subject)),
    )
    return [section for section in made if section[2]]


def _search(facts: Facts) -> str:
    parts = []
    if facts.points:
        caption = (
            "Log-likelihood of the best tree so far, relative to the final one; every dot is "
            "a step. Dashed lines: where a phase begins."
        )
        parts.append(figure(lnl_chart(facts), caption))
    if len(facts.starts) > 1:
        ends = facts.ends
        caption = "Starting trees by their log-likelihood after a first smoothing."
        if ends is not None:
            caption += f" {ends['ended']} of {ends['starts']} were searched to the end; "
            caption += f"{ends['reached']} led to the best tree."
        parts.append(figure(starts_chart(facts.starts), caption))
    if facts.phases:
        rows = [(str(n), text, f"{when:.1f} s") for n, (when, text) in enumerate(facts.phases, 1)]
        parts.append(_details("Phases", html_table(("", "phase", "began"), rows)))
    return "".join(parts)


def _supports(facts: Facts) -> str:
    rows = support_rows(facts)
    return html_table((), rows) if rows else ""


def _time(facts: Facts) -> str:
    if facts.time is None or not any(row["seconds"] > 0.0 for row in facts.time["rows"]):
        return ""
    rows = [time_cells(row, facts.time["wall"]) for row in facts.time["rows"]]
    columns = ("", "seconds", "share", "calls", "GB/s", "of copy")
    caption = "Blue: likelihood functions, on the device. Grey: the host and what it waited for."
    table = _details("As a table", html_table(columns, rows))
    return figure(time_chart(facts.time), caption) + table


def _models(subject: Subject) -> str:
    models = subject.models
    if not models:
        return ""
    choice = "".join(_details(_ranked_title(one), _ranked(one)) for one in subject.facts.ranked)
    if len(models) == 1:
        text = f'<p class="mono">{_text(models[0].text)}</p>'
        return text + _pictures(models[0], subject) + choice
    rows = [(part.name, part.sites, part.text) for part in models]
    parts = [html_table(("part", "sites", "model"), rows)]
    parts += [
        _details(f"{part.name} ({part.sites})", _pictures(part, subject))
        for part in models[:MOST_PICTURES]
    ]
    return "".join([*parts, choice])


def _ranked(ranked: Mapping[str, Any]) -> str:
    """The best candidates of a model choice."""
    columns, rows = ranked_cells(ranked)
    return html_table(columns, rows)


def _ranked_title(ranked: Mapping[str, Any]) -> str:
    of_part = "" if ranked["part"] == "noname" else f" of {ranked['part']}"
    return f"Model choice{of_part}: the best of {ranked['candidates']:,}"


def _pictures(part: PartModel, subject: Subject) -> str:
    """Charts of a model; counted frequencies are those of the data, if at hand."""
    model, arrays = part.model, subject.arrays(part)
    known = [subject.frequencies(component) for component in model.components]
    caption = "Exchangeabilities: areas of the bubbles."
    drawn = [
        figure(matrix_chart(component, frequencies), caption)
        for component, frequencies in zip(model.components, known, strict=True)
    ]
    if arrays.n_categories > 1:
        caption = "Rate categories: as wide as their share of the sites, as high as their rate."
        drawn.append(figure(categories_chart(arrays), caption))
    return f'<div class="side">{"".join(drawn)}</div>'


def _alignment(subject: Subject) -> str:
    summary, patterns = subject.summary, subject.patterns
    if summary is None or patterns is None:
        data = subject.facts.data
        if data is None:
            return ""
        facts = (
            ("File", f"{data['path']} ({data['file_format']})"),
            ("Data type", f"{data['data_type']} ({data['data_seen']})"),
            ("Taxa", f"{data['taxa']:,}"),
            ("Sites", f"{data['sites']:,}"),
            ("Patterns", f"{data['patterns']:,}"),
            ("Gaps", f"{data['gap_share']:.2%}"),
        )
        note = "<p>The file has moved: give its new path with <code>--alignment</code>.</p>"
        return html_table((), facts) + note
    parts = [html_table((), alignment_facts(summary)), _list(warning_lines(summary))]
    caption = "Above: share of gaps. Below: how many states a site has, on average."
    parts.append(figure(site_chart(patterns), caption))
    if summary.gap_share > 0.0:
        parts.append(figure(taxon_gap_chart(summary), "Share of gaps of every taxon."))
    caption = (
        "Composition of the sequences: range, quartiles and median of each state's share. Dots: "
        f"sequences that the χ² test tells from the whole (p < {MAX_P_VALUE:.0%})."
    )
    parts.append(figure(composition_chart(patterns, summary.composition_p_values), caption))
    return "".join(parts)


def _settings(facts: Facts) -> str:
    rows = []
    if facts.started is not None:
        rows.append(("Command", facts.started["command"]))
        rows.append(("mltree", facts.started["version"]))
        if facts.started["seed"] is not None:
            rows.append(("Seed", str(facts.started["seed"])))
    if facts.device:
        rows.append(("Engine", facts.device))
    parts = []
    if (machine := facts.described) is not None:
        rows += [("Date", machine["date"]), ("Host", f"{machine['host']} ({machine['system']})")]
        rows += [
            ("CPU", machine["cpu"]),
            ("Threads", f"{machine['threads']}, {machine['threads_source']}"),
        ]
        rows += [("Device", device) for device in machine["devices"]]
        rows += [(file["path"], f"sha256 {file['sha256']}") for file in machine["inputs"]]
        options = [
            (name, str(value), origin) for name, (value, origin) in machine["options"].items()
        ]
        parts.append(_details("All options", html_table(("option", "value", "from"), options)))
        parts.append(_details("Versions", html_table(("", "version"), machine["versions"].items())))
    if (spent := facts.spent) is not None:
        rows.append(("CPU time", duration(spent["cpu"])))
        rows.append(("Device time", duration(spent["device"])))
        rows.append(("Peak memory", f"{spent['peak_memory'] / MIB:,.0f} MiB"))
    return (html_table((), rows) if rows else "") + "".join(parts)


def _citations(subject: Subject) -> str:
    paragraphs = [part for part in re.split(r"\n\s*\n", subject.methods.strip()) if part.strip()]
    methods = "".join(f"<p>{_text(' '.join(part.split()))}</p>" for part in paragraphs[:1])
    references = re.split(r"\n(?=\[\d+\])", "\n".join(paragraphs[1:]))
    items = (re.sub(r"^\[\d+\]\s*", "", " ".join(item.split())) for item in references if item)
    cited = "".join(f"<li>{_text(item)}</li>" for item in items)
    return methods + (f"<ol>{cited}</ol>" if cited else f"<p>{_text(bibliography()['mltree'])}</p>")


def _text(text: str) -> str:
    return escape(str(text))


def figure(drawing: str, caption: str) -> str:
    """A chart with the text below it."""
    return f"<figure>{drawing}<figcaption>{_text(caption)}</figcaption></figure>"


def _details(title: str, content: str) -> str:
    return f"<details><summary>{_text(title)}</summary>{content}</details>"


def _list(items: Sequence[str]) -> str:
    cells = "".join(f"<li>{_text(item)}</li>" for item in items)
    return f"<ul>{cells}</ul>" if items else ""


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; the first column names the rows."""
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join(
        f"<tr><th>{_text(first)}</th>{''.join(f'<td>{_text(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    kind = "facts" if not columns else "numbers"
    rows_of = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{rows_of}</table></div>'


# The file: head, tree, sections, styles and scripts.

SCRIPTS = ("tree.js", "view.js", "controls.js")

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""Content security policy: the page loads nothing, whatever a file name or taxon contains."""


Section: TypeAlias = tuple[str, str, str]
"""Anchor, title and HTML of a section below the tree."""


def document(
    subject: Subject, more: Sequence[Section] = (), figures: str | None = None,
    unit: str = "substitutions per site",
) -> str:  # fmt: skip
    """The text of the HTML file.

    more     sections in front of those of the subject
    figures  HTML in place of the key figures of the subject
    unit     of the branch lengths
    """
    title = f"{subject.name} · mltree"
    names = subject.support_names
    made = [*more, *sections(subject)]
    links = "".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading, _ in made)
    body = "".join(
        f'<section id="{anchor}"><h2>{heading}</h2>{content}</section>'
        for anchor, heading, content in made
    )
    return asset("page.html").format(
        policy=POLICY,
        title=escape(title),
        name=escape(subject.name),
        style=asset("page.css"),
        links=links,
        figures=key_figures(subject) if figures is None else figures,
        tree_file=escape(subject.tree_file),
        tips=f"{len(subject.tree.tips):,}",
        data=embedded(
            {"newick": subject.newick, "name": subject.name, "supports": names, "unit": unit}
        ),
        still=svg(draw(subject.tree, Style(supports=Supports(names=names), axis=Axis(unit=unit)))),
        body=body,
        version=__version__,
        script="".join(map(asset, SCRIPTS)),
    )


def asset(name: str) -> str:
    """The text of a file beside this module."""
    return files("mltree.report").joinpath("assets", name).read_text(encoding="utf-8")


def embedded(value: object) -> str:
    """JSON in which no tag can end."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")
