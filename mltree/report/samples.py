"""The report of a sample as an HTML page: convergence, traces, densities, splits by run, ladder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mltree.data.source import unpacked
from mltree.report.drawing import draw
from mltree.report.page import (
    Scale,
    Section,
    axis_below,
    chart,
    circle,
    document,
    figure,
    figure_row,
    html_table,
    line,
    log_ticks,
    number,
    path,
    ticks,
    words,
)
from mltree.report.record import Subject, facts_of
from mltree.report.scene import svg
from mltree.report.style import Axis, Style
from mltree.sampling.sampled_trees import Course
from mltree.sampling.summaries import Posterior, SummaryTree
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.tree.clades import read_written

RUN_COLOURS = ("--accent", "--gap", "--hit", "--s2", "--s1", "--s4", "--bubble", "--grey")
"""Colours of runs in charts, of the page's stylesheet."""

CHART_WIDTH = 1060.0
MOST_POINTS = 600
"""Points of a trace: further ones are left out, evenly."""

MOST_TRACES = 16
BINS = 60
"""Bars that a density is counted in."""


def sample_page(
    name: str, posterior: Posterior, prior: Posterior | None = None, result: str | None = None,
    dated: SummaryTree | None = None, latest: float | None = None,
) -> str:  # fmt: skip
    """The report of a sample as one HTML page.

    prior   samples of the prior, to compare with
    result  the ``.sample.json`` of mltree's own sample, which has its ladder
    dated   the tree to be drawn on a time axis, where nodes have heights
    latest  the date of the latest tip, where it is known
    Raises: InputError: there are no trees to show.
    """
    if posterior.table is None:
        raise InputError("--report shows a tree, and the sample has none")
    has_heights = dated is not None and dated.drawn is not None
    shown = dated if dated is not None and has_heights else posterior.consensus()
    newick, kind = shown.labelled_newick(), "MCC tree" if has_heights else "consensus"
    subject = Subject(name, facts_of([]), read_written(newick)[0], newick, kind)
    values = {} if result is None else json.loads(unpacked(result))
    of_time = _time_sections(posterior, shown, latest) if has_heights else ()
    sections = [*of_time, *_sections(posterior, prior), *_ladder(values)]
    unit = {"unit": "units of time"} if has_heights else {}
    return document(subject, sections, figure_row(_key_figures(posterior, values)), **unit)


def _key_figures(posterior: Posterior, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "taxa", f"{len(posterior.taxa):,}"
    yield "runs × samples", f"{posterior.n_runs} × {posterior.n_trees:,}"
    yield "burn-in", f"{posterior.burn_in:.0%}"
    yield "converged", "yes" if posterior.is_converged else "no"
    if not math.isnan(posterior.asdsf):
        yield "ASDSF", f"{posterior.asdsf:.4f}"
    if values.get("lnz") is not None:
        error = values.get("lnz_error")
        yield "ln Z", f"{values['lnz']:.2f}" + (f" ± {error:.2f}" if error is not None else "")


def _sections(posterior: Posterior, prior: Posterior | None) -> Iterator[Section]:
    rows = [
        (one.rule, "yes" if one.is_met else "no", f"{one.value:.4g}", f"{one.bound:.3g}", one.where)
        for one in posterior.verdicts
    ]
    head = ("rule", "met", "worst", "bound", "where")
    yield "convergence", "Convergence", html_table(head, rows)
    if posterior.n_runs > 1:
        caption = (
            "Frequency of every split in two runs: dots on the line are splits that runs agree "
            "about. Outside the dashed lines they differ by more than 0.1."
        )
        yield "splits", "Splits by run", figure(split_chart(posterior), caption)
    if posterior.columns:
        names = _shown_names(posterior)
        caption = "Samples of each run, in order: a run that has converged shows no trend."
        traces = "".join(figure(trace_chart(posterior, name), name) for name in names)
        yield "traces", "Traces", f"<p>{caption}</p>{traces}"
        caption = "Densities of each run; grey: samples of the prior." if prior else (
            "Densities of each run.")  # fmt: skip
        drawn = "".join(figure(density_chart(posterior, prior, name), name) for name in names)
        yield "densities", "Parameters", f'<p>{caption}</p><div class="side">{drawn}</div>'


def _shown_names(posterior: Posterior) -> list[str]:
    varying = zip(posterior.columns, posterior.varying, strict=True)
    return [name for name, is_varying in varying if is_varying][:MOST_TRACES]


def _coloured(points: Sequence[tuple[float, float]], run: int) -> str:
    colour = RUN_COLOURS[run % len(RUN_COLOURS)]
    drawn = path(points, "curve")
    return drawn.replace("<path", f'<path style="stroke:var({colour});stroke-width:1.1"', 1)


def trace_chart(posterior: Posterior, name: str) -> str:
    """Values of a parameter by generation, a line a run."""
    values, generations = posterior.parameters[name], posterior.generations
    step = -(-values.shape[1] // MOST_POINTS)
    low, high = float(values.min()), float(values.max())
    across = Scale(float(generations[0]), float(generations[-1]), 70.0, CHART_WIDTH - 24.0)
    up = Scale(low, high, 126.0, 12.0)
    parts = [
        line(70, up(at), CHART_WIDTH - 24, up(at)) + words(64, up(at), number(at), "tick", "end")
        for at in ticks(low, high, 4)
    ]
    for run, row in enumerate(values[:, ::step]):
        points = zip(map(across, generations[::step].tolist()), map(up, row.tolist()), strict=True)
        parts.append(_coloured(list(points), run))
    parts += axis_below(across, 130, ticks(across.low, across.high, 8))
    return chart(CHART_WIDTH, 152, f"trace of {name}", parts)


def density_chart(posterior: Posterior, prior: Posterior | None, name: str) -> str:
    """Shares of a parameter's values, a line a run, and those of the prior in grey."""
    values = posterior.parameters[name]
    low, high = np.quantile(values, (0.001, 0.999)).tolist()
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    centres = ((edges[:-1] + edges[1:]) / 2).tolist()
    curves = [np.histogram(row, edges)[0] / row.size for row in values]
    drawn = None if prior is None else prior.parameters.get(name)
    before = None if drawn is None else np.histogram(drawn, edges)[0] / drawn.size
    top = max(float(curve.max()) for curve in curves)
    across, up = Scale(low, high, 20.0, 400.0), Scale(0.0, top, 120.0, 10.0)
    parts = [line(20, 120, 400, 120, "axis")]
    if before is not None:
        heights = np.minimum(before, top).tolist()
        points = list(zip(map(across, centres), map(up, heights), strict=True))
        parts.append(path(points, "phase"))
    for run, curve in enumerate(curves):
        points = list(zip(map(across, centres), map(up, curve.tolist()), strict=True))
        parts.append(_coloured(points, run))
    parts += axis_below(across, 120, ticks(low, high, 4))
    return chart(420, 142, f"density of {name}", parts)


def split_chart(posterior: Posterior) -> str:
    """Frequencies of splits in the first run against those in each other run."""
    across, up = Scale(0.0, 1.0, 46.0, 420.0), Scale(0.0, 1.0, 390.0, 16.0)
    parts = [line(across(0), up(0), across(1), up(1), "axis")]
    parts += [line(across(a), up(b), across(c), up(d), "phase")
              for a, b, c, d in ((0, 0.1, 0.9, 1), (0.1, 0, 1, 0.9))]  # fmt: skip
    parts += [words(40, up(at), f"{at:g}", "tick", "end") for at in (0, 0.5, 1)]
    first, others = posterior.frequencies[:, 0], posterior.frequencies[:, 1:]
    seen = (posterior.frequencies >= LEAST_DRAWN).any(axis=1)
    for split in np.flatnonzero(seen).tolist():
        name = ",".join(posterior.names_of(split))
        for run, frequency in enumerate(others[split].tolist(), 2):
            title = f"{name}: {first[split]:.3f}, {frequency:.3f} in run {run}"
            kind = "dot-bad" if abs(first[split] - frequency) > MOST_APART else "dot"
            parts.append(circle(across(float(first[split])), up(frequency), 3, kind, title))
    parts += axis_below(across, 394, [0, 0.5, 1])
    parts.append(words(233, 424, "frequency in the first run", "tick", "middle"))
    return chart(440, 434, "frequencies of splits in two runs", parts)


def _time_sections(
    posterior: Posterior, tree: SummaryTree, latest: float | None
) -> Iterator[Section]:
    """The tree on a time axis, and what changes through time."""
    if len(posterior.taxa) <= MOST_TIPS:
        caption = (
            "Tree of maximum clade credibility. Numbers: posterior probabilities; bars: 95 % "
            "intervals of nodes' heights."
        )
        colours = ""
        if tree.rates:
            caption += " Branches by their mean rate, substitutions per site and unit of time."
            colours = rate_legend(tree)
        content = colours + figure(
            f'<div class="wide">{dated_drawing(tree, latest)}</div>', caption
        )
    else:
        content = "<p>The tree is too large for a page: FigTree shows .mcc.tre.</p>"
    yield "dated", "Dated tree", content
    interval = "Line: median of all samples; area: 95 % interval of highest density."
    if (course := posterior.courses.get("lineages")) is not None:
        drawing = course_chart(course, latest, "lineages")
        yield "lineages", "Lineages through time", figure(drawing, interval)
    if (course := posterior.courses.get("population")) is not None:
        drawing = course_chart(course, latest, "population size")
        caption = f"{interval} In units of time (population size times generation time)."
        yield "population", "Population size through time", figure(drawing, caption)


MOST_TIPS = 500
"""Tips up to which the page has a picture of the dated tree."""

DATED_WIDTH = 760.0
"""Width of the dated tree, points."""

FITTING = "max-width:100%;min-width:34rem;height:auto;background:#fff;color-scheme:light"
"""Style of the dated tree: as wide as the page, scrolled on narrow screens, on white."""

RATE_COLOURS = ("#2c5fa8", "#4f93c7", "#8fb8cf", "#a9a9a4", "#dda06b", "#d96f43", "#b8352b")
"""Colours of branches from the lowest rate to the highest, in steps of equal ratios."""


def _rate_steps(tree: SummaryTree) -> Float64:
    """Bounds between the steps of RATE_COLOURS, f64 [8]."""
    rates = np.array([moments.mean for moments in tree.rates])
    rates = rates[np.isfinite(rates) & (rates > 0)]
    low, high = (float(rates.min()), float(rates.max())) if rates.size else (1.0, 1.0)
    return np.geomspace(low, max(high, low * (1 + 1e-9)), len(RATE_COLOURS) + 1)


def rate_legend(tree: SummaryTree) -> str:
    """The colours of rates, as a line of HTML."""
    steps = _rate_steps(tree).tolist()
    if steps[-1] < steps[0] * 1.001:
        return f"<p>One rate: {steps[0]:.3g}</p>"
    boxes = "".join(
        f'<span style="background:{colour};padding:0 .8em" title="{low:.3g} to {high:.3g}"></span>'
        for colour, low, high in zip(RATE_COLOURS, steps, steps[1:], strict=False)
    )
    return f"<p>Rate {steps[0]:.3g} {boxes} {steps[-1]:.3g}</p>"


def dated_drawing(tree: SummaryTree, latest: float | None) -> str:
    """The tree on a time axis, with intervals of heights as bars and rates as colours: SVG."""
    assert tree.drawn is not None
    assert tree.root_height is not None
    written, places = tree.written
    numbered = replace(written, labels=tuple(map(str, range(written.n_nodes)))).ladderised()
    order = [int(label) for label in numbered.labels]
    place = places[order].tolist()
    labels = tuple(
        _rounded(label) if written.children[node] else label
        for node in order
        for label in (written.labels[node],)
    )
    top = float(tree.drawn[-1])
    heights = [*tree.heights, tree.root_height]
    bars = {
        node: (top - heights[at].high, top - heights[at].low)
        for node, at in enumerate(place)
        if heights[at].high - heights[at].low > 1e-6 * top
    }
    branches: dict[int, str] = {}
    if tree.rates:
        steps = _rate_steps(tree)[1:-1]
        rates = [tree.rates[at].mean for at in place[1:]]
        for node, rate in enumerate(rates, 1):
            if rate > 0:
                branches[node] = RATE_COLOURS[int(np.searchsorted(steps, rate))]
    style = Style(order="written", axis=Axis(kind="time", latest=latest), branches=branches,
                  bars=bars, size=(DATED_WIDTH, None))  # fmt: skip
    drawing = svg(draw(replace(numbered, labels=labels), style))
    return drawing[drawing.index("<svg") :].replace("<svg", f'<svg style="{FITTING}"', 1)


def _rounded(label: str) -> str:
    """A probability with two decimals."""
    return f"{float(label):.2f}".rstrip("0").rstrip(".") if label else ""


def course_chart(course: Course, latest: float | None, title: str) -> str:
    """A quantity through time, its interval as an area; on a scale of logarithms."""
    sign = -1.0 if latest is None else 1.0
    times = sign * course.times if latest is None else latest - course.times
    low, high = float(course.low.min()), float(course.high.max())
    is_log = low > 0
    place = np.log10 if is_log else np.asarray
    across = Scale(float(times.min()), float(times.max()), 70.0, CHART_WIDTH - 24.0)
    up = Scale(float(place(low)), float(place(high)), 226.0, 12.0)
    marks = log_ticks(low, high) if is_log else []
    if len(marks) < 3:
        marks = [mark for mark in ticks(low, high, 5) if mark >= low]
    parts = [
        line(70, up(float(place(at))), CHART_WIDTH - 24, up(float(place(at))))
        + words(64, up(float(place(at))), number(at), "tick", "end")
        for at in marks
    ]

    def points(values: Float64) -> list[tuple[float, float]]:
        return [(across(x), up(y)) for x, y in zip(times.tolist(), place(values), strict=True)]

    area = path([*points(course.low), *points(course.high)[::-1]], "")
    parts.append(area.replace("<path", '<path style="fill:var(--accent);opacity:.2"', 1))
    parts.append(_coloured(points(course.median), 0))
    parts += axis_below(across, 230, ticks(across.low, across.high, 8), _year)
    axis = "time before the latest tip" if latest is None else "date"
    parts.append(words(CHART_WIDTH / 2, 262, axis, "tick", "middle"))
    return chart(CHART_WIDTH, 272, f"{title} through time", parts)


def _year(value: float) -> str:
    return f"{abs(value) if value <= 0 else value:.6g}"


LEAST_DRAWN, MOST_APART = 0.01, 0.1
"""Frequencies of splits: below the first none is drawn, differences above the second are red."""


def _ladder(values: Mapping[str, Any]) -> Iterator[Section]:
    """The ladder of heated chains of mltree's own sample, where the result has one."""
    heats, means = values.get("heats"), values.get("mean_lnl")
    if not heats or not means or len(heats) < 2:
        return
    rows = np.atleast_2d(np.array(means, float))
    if rows.shape[1] != len(heats) or not np.isfinite(rows).any():
        return
    rejections = values.get("rejection") or []
    caption = (
        "Mean lnL of the chains at each heat, from the prior (0) to the posterior (1), a line a "
        "run. The area below is ln Z."
    )
    head = ("rung", "heat", "mean lnL", "swaps rejected with the next")
    shares = [*(f"{share:.1%}" for share in rejections), *[""] * len(heats)]
    cells = [
        (str(rung), f"{heat:.4g}", f"{mean:.2f}", share)
        for rung, (heat, mean, share) in enumerate(
            zip(heats, rows.mean(axis=0).tolist(), shares, strict=False), 1
        )
    ]
    content = figure(ladder_chart(heats, rows), caption) + html_table(head, cells)
    yield "ladder", "Ladder", content


def ladder_chart(heats: Sequence[float], means: Float64) -> str:
    """Mean lnL by heat, a line a run; means are float64 [R, N]."""
    low, high = float(np.nanmin(means)), float(np.nanmax(means))
    across, up = Scale(0.0, 1.0, 90.0, CHART_WIDTH - 24.0), Scale(low, high, 196.0, 12.0)
    parts = [
        line(90, up(at), CHART_WIDTH - 24, up(at)) + words(84, up(at), number(at), "tick", "end")
        for at in ticks(low, high, 4)
    ]
    for run, row in enumerate(means):
        points = list(zip(map(across, heats), map(up, row.tolist()), strict=True))
        parts.append(_coloured(points, run))
        parts += [circle(x, y, 2.4, "dot") for x, y in points]
    parts += axis_below(across, 200, [0, 0.25, 0.5, 0.75, 1])
    return chart(CHART_WIDTH, 222, "mean lnL by heat", parts)
