"""An alignment drawn: gaps along its sites and by taxon, composition of its sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64
from mltree.events.alignments import AlignmentSummary
from mltree.report.page.charts import (
    Scale,
    axis_below,
    bar,
    chart,
    circle,
    line,
    path,
    ticks,
    words,
)
from mltree.report.tables import MAX_P_VALUE

__all__ = ["composition_chart", "site_chart", "taxon_gap_chart"]

WIDTH = 1060.0
"""Of a chart, in its own units."""

MOST_BINS = 240
"""Bars along an alignment; longer ones are averaged."""

MOST_DOTS = 150
"""Of a state."""


def site_chart(patterns: Patterns) -> str:
    """Along the alignment: the share of gaps, and how many states a site has on average."""
    bins = min(MOST_BINS, patterns.n_sites)
    bounds = np.linspace(0, patterns.n_sites, bins + 1).astype(int)
    gaps, states = _by_site(patterns)
    across = Scale(0.0, patterns.n_sites, 60.0, WIDTH - 24.0)
    up, height = Scale(0.0, 1.0, 96.0, 14.0), Scale(1.0, max(2.0, _top(states)), 196.0, 118.0)
    parts = []
    for share in (0.0, 0.5, 1.0):
        parts += [line(60, up(share), WIDTH - 24, up(share))]
        parts += [words(54, up(share), f"{share:.0%}", "tick", "end")]
    steps = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        x, width = across(first), across(last) - across(first)
        mean = float(gaps[first:last].mean())
        if mean > 0.0:
            where = f"sites {first + 1:,}–{last:,}: {mean:.1%} gaps"
            parts.append(bar(x, up(mean), max(width, 0.6), 96 - up(mean), "bar-gap", where))
        y = height(float(states[first:last].mean()))
        steps += [(x, y), (x + width, y)]
    for value in ticks(1.0, height.high, 2):
        parts += [line(60, height(value), WIDTH - 24, height(value))]
        parts += [words(54, height(value), f"{value:g}", "tick", "end")]
    parts.append(path(steps, "curve"))
    parts += [words(60, 6, "gaps", "tick"), words(60, 109, "states per site", "tick")]
    parts += axis_below(across, 200, ticks(0, patterns.n_sites, 8))
    return chart(WIDTH, 222, "gaps and states along the alignment", parts)


def _by_site(patterns: Patterns) -> tuple[Float64, Float64]:
    """f64 [sites]: share of gaps, and states that are seen for certain, at least 1."""
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
    """Taxa by their share of gaps, the worst first."""
    pairs = sorted(zip(summary.taxon_gap_shares, summary.names, strict=True), reverse=True)
    across, up = Scale(0.0, len(pairs), 60.0, WIDTH - 24.0), Scale(0.0, 1.0, 110.0, 14.0)
    parts = []
    for share in (0.0, 0.5, 1.0):
        parts += [line(60, up(share), WIDTH - 24, up(share))]
        parts += [words(54, up(share), f"{share:.0%}", "tick", "end")]
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
    """The frequency of each state over the sequences: range, quartiles, and who deviates."""
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
        parts += [
            circle(across(column[tip]), y, 3, "dot-bad", _deviation(patterns, tip, p_values))
            for tip in deviant[:MOST_DOTS]
        ]
    foot = 6.0 + 20.0 * len(states)
    parts += axis_below(across, foot, ticks(0.0, across.high, 8))
    return chart(WIDTH, foot + 24, "composition of the sequences", parts)


def _deviation(patterns: Patterns, tip: int, p_values: Sequence[float]) -> str:
    return f"{patterns.taxa[tip]}: p = {p_values[tip]:.2g}"


def _shares(patterns: Patterns) -> Float64:
    """f64 [T, S]: of each state among the certain characters of a sequence; NaN without any."""
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
