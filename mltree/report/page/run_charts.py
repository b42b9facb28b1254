"""How a run went: lnL over time, its starts, where its time went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from mltree.report.page.charts import (
    Scale,
    axis_below,
    bar,
    chart,
    circle,
    line,
    log_ticks,
    number,
    path,
    ticks,
    words,
)
from mltree.report.page.facts import Facts, Point

__all__ = ["lnl_chart", "starts_chart", "time_chart"]

WIDTH = 1060.0
"""Of a chart, in its own units."""

LEAST_SHORT = 0.01
"""lnL below the best that the time chart tells apart: the final epsilon of a search."""


def lnl_chart(facts: Facts) -> str:
    """How far below its end a search was, over time, on a scale of powers of ten.

    On a plain scale the way from the starting trees is all that could be seen.
    """
    points = sorted(facts.points, key=lambda point: point.seconds)
    best = max(point.lnl for point in points)
    short = [max(best - point.lnl, LEAST_SHORT) for point in points]
    first, last = points[0].seconds, points[-1].seconds
    first = first if first < last else 0.0
    across = Scale(first, last, 66.0, WIDTH - 24.0)
    top = max(*short, 10 * LEAST_SHORT)
    down = Scale(math.log10(top) + 0.1, math.log10(LEAST_SHORT), 14.0, 236.0)
    parts = []
    for value in log_ticks(LEAST_SHORT, top):
        y = down(math.log10(value))
        text = "best" if value <= LEAST_SHORT * 1.01 else f"−{number(value)}"
        parts += [line(66, y, WIDTH - 24, y), words(60, y, text, "tick", "end")]
    parts += [
        line(across(when), 14, across(when), 236, "phase") + _phase_mark(across(when), n)
        for n, (when, _) in enumerate(facts.phases, 1)
    ]
    lowest = list(accumulate(short, min))
    steps = [(across(points[0].seconds), down(math.log10(lowest[0])))]
    for point, value in zip(points[1:], lowest[1:], strict=True):
        x, y = across(point.seconds), down(math.log10(value))
        steps += [(x, steps[-1][1]), (x, y)]
    parts.append(path(steps, "curve"))
    parts += [
        _dot(across(point.seconds), down(math.log10(value)), point)
        for point, value in zip(points, short, strict=True)
    ]
    parts += axis_below(across, 236, ticks(first, last, 8))
    parts.append(words((66 + WIDTH - 24) / 2, 266, "seconds", "tick", "middle"))
    return chart(WIDTH, 276, "log-likelihood below the best, over time", parts)


def _phase_mark(x: float, number_: int) -> str:
    return words(x + 3, 9, str(number_), "tick")


def _dot(x: float, y: float, point: Point) -> str:
    kind = "dot-start" if point.what.startswith("start") else "dot"
    return circle(x, y, 3, kind, f"{point.what}: lnL {point.lnl:,.3f} after {point.seconds:.1f} s")


def starts_chart(starts: Sequence[tuple[str, float]]) -> str:
    """The starting trees by their lnL, a row for each kind of origin."""
    kinds: dict[str, list[tuple[str, float]]] = {}
    for origin, lnl in starts:
        kinds.setdefault(origin.rpartition(" ")[0] or origin, []).append((origin, lnl))
    lnls = [lnl for _, lnl in starts]
    margin = 0.05 * (max(lnls) - min(lnls)) or 1.0
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
