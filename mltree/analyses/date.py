"""``mltree date``: dates of a tree's nodes by least squares or likelihood, files and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date as today
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np

from mltree.analyses.convert import auspice
from mltree.analyses.options import SearchOptions
from mltree.analyses.tree_options import DateOptions
from mltree.analyses.tree_sets import writing
from mltree.data.alignments import read_alignment
from mltree.data.source import expect_file
from mltree.dating.clocks import Clocked
from mltree.dating.dates import (
    ANY,
    CalibrationDate,
    Span,
    calibration_rows,
    dates_of,
    iso_of,
    missing_text,
)
from mltree.dating.intervals import Chains, date_intervals
from mltree.dating.least_squares import Bounds, Levels
from mltree.dating.rooting import Regression, best_branches, regression
from mltree.report.drawing import draw
from mltree.report.page import POLICY, Scale, axis_below, chart, circle, line, ticks, words
from mltree.report.page import asset as page_asset
from mltree.report.scene import svg
from mltree.report.style import Axis, Style
from mltree.runs.calls import Call, taking
from mltree.runs.problem import Problem
from mltree.runs.results import PhyloTree, facts_table, table
from mltree.runs.workspace import Workspace
from mltree.sampling.calibrations import bounds_of
from mltree.system import __version__
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.events import Emit, Notice, TreesLoaded
from mltree.system.values import plain
from mltree.tree.clades import WrittenTree, read_written
from mltree.tree.newick import branch, quoted

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


DATES, TIME_TREE, FIGTREE, RTT = "dates.tsv", "timeTree", "timeTree.nex", "rtt.tsv"
AUSPICE, PAGE = "auspice.json", "dates.html"
DATE_KINDS = (DATES, TIME_TREE, FIGTREE, RTT, AUSPICE, PAGE)
"""Kinds of the files of a dated tree."""

ROOTS_TRIED = 10
"""Branches, the best by regression, at which the root is tried by least squares."""

NO_SIGNAL = 1e-3
"""Rate, as a share of the tree's depth over the span of dates, below which there is none."""

DRAWN = 500
"""Tips up to which the page has a picture of the tree."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DatedTree:
    """A tree with dates of its nodes. N nodes, in the order of the written tree."""

    written: WrittenTree
    """Rooted, with lengths in substitutions per site."""
    dates: Float64
    """f64 [N]: decimal years, or minus the age."""
    intervals: Float64
    """f64 [N, 2]: 95 % intervals; of no width where the date is known."""
    rates: Float64
    """f64 [N]: of the branch above each node, substitutions per site and unit of time."""
    rate: float
    rate_interval: tuple[float, float]
    variation: float
    """Coefficient of variation of the branches' rates; 0 under a strict clock."""
    objective: float
    """Weighted sum of squares of the branch lengths."""
    regression: Regression
    outliers: tuple[str, ...]
    """Tips far from the root-to-tip line."""
    is_calendar: bool
    options: DateOptions

    @property
    def root_date(self) -> float:
        """Date of the root."""
        return float(self.dates[0])

    @cached_property
    def time_tree(self) -> WrittenTree:
        """The tree with lengths in units of time."""
        lengths = self.dates - self.dates[np.maximum(self.written.parent, 0)]
        lengths[0] = np.nan
        return WrittenTree(self.written.parent, lengths, self.written.labels)

    @property
    def tree(self) -> PhyloTree:
        """The tree with lengths in units of time."""
        return PhyloTree(self.time_tree.newick())

    def columns(self) -> dict[str, list[Any]]:
        """A row for every node: ``node``, ``taxa``, ``date``, ``lower``, ``upper``, ``rate``.

        ``taxa``: the tip, or two whose last common ancestor the node is; ``calendar``: the day, if
        dates were given as such.
        """
        tree = self.written
        names = [_node_name(tree, node) for node in range(tree.n_nodes)]
        columns: dict[str, list[Any]] = {
            "node": [name for name, _ in names],
            "taxa": [taxa for _, taxa in names],
            "date": self.dates.tolist(),
            "lower": self.intervals[:, 0].tolist(),
            "upper": self.intervals[:, 1].tolist(),
            "rate": self.rates.tolist(),
        }
        if self.is_calendar:
            columns["calendar"] = [iso_of(year) for year in self.dates.tolist()]
        return columns

    def svg(self) -> str:
        """A drawing on a time axis."""
        tree = self.time_tree
        named = zip(tree.labels, tree.children, strict=True)
        shown = replace(tree, labels=tuple("" if below else label for label, below in named))
        latest = float(self.dates[list(tree.tips)].max())
        return svg(draw(shown, Style(axis=Axis(kind="time", latest=latest))))

    def to_dict(self) -> dict[str, Any]:
        """Values as PREFIX.mltree.date.json has them."""
        line_of = self.regression
        return {
            "taxa": len(self.written.tips),
            "seed": self.options.seed,
            "clock": self.options.clock,
            "method": self.options.method,
            "rate": {"value": self.rate, "interval": list(self.rate_interval)},
            "variation": self.variation,
            "root": {"date": self.root_date, "interval": self.intervals[0].tolist()},
            "objective": self.objective,
            "regression": {
                "rate": line_of.rate, "r_squared": line_of.r_squared,
                "origin": line_of.origin if line_of.rate else None,
            },
            "outliers": list(self.outliers),
            "tree": self.time_tree.newick(),
        }  # fmt: skip

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(plain(self.to_dict()), indent=1) + "\n"

    def facts(self) -> dict[str, str]:
        """The main results as text."""
        lower, upper = self.rate_interval
        root = [iso_of(year) if self.is_calendar else f"{year:.3f}"
                for year in (self.root_date, *self.intervals[0].tolist())]  # fmt: skip
        varied = f", rates vary by {self.variation:.3f} (CV)" if self.variation else ""
        facts = {
            "rate": f"{self.rate:.4g} substitutions per site and unit of time "
            f"({lower:.4g} to {upper:.4g})",
            "root": f"{root[0]} ({root[1]} to {root[2]})",
            "clock": self.options.clock + varied,
            "root-to-tip": f"slope {self.regression.rate:.4g}, R² {self.regression.r_squared:.3f}",
        }
        if self.outliers:
            facts["outliers"] = ", ".join(self.outliers)
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.facts().items())

    def __repr__(self) -> str:
        return f"DatedTree({len(self.written.tips)} taxa, root {self.root_date:.3f})"

    def _repr_html_(self) -> str:
        shown = self.svg() if len(self.written.tips) <= DRAWN else ""
        return facts_table(self.facts()) + shown


def run_date(options: DateOptions, reporter: Reporter) -> None:
    """Date the tree of a file, and write all files.

    Raises:
        InputError: the tree, a date or a calibration cannot be used, or there is no signal.
    """
    if options.prefix is None:
        expect_file(options.tree)
    workspace = Workspace.of(options.prefix, options.tree)
    with writing("date", options, workspace, DATE_KINDS, reporter) as write:
        tree, *others = read_written(options.tree)
        reporter(TreesLoaded(options.tree, 1 + len(others), len(tree.tips)))
        if others:
            reporter(Notice(f"{options.tree}: the first of {1 + len(others)} trees is dated"))
        dated = date_tree(tree, options, reporter)
        reporter.say(str(dated))
        write(date_texts(dated, workspace.name), dated.to_dict())


@taking(DateOptions, "tree", "dates", of_data=False)
def date(options: DateOptions, call: Call) -> DatedTree:
    """Date the nodes of a tree, as ``mltree date`` does."""
    return date_tree(read_written(options.tree)[0], options, call)


def dates_of_search(
    options: SearchOptions, problem: Problem, newick: str, emit: Emit
) -> dict[str, str]:
    """The files of dates of a search's tree, by kind; none where it cannot be dated.

    newick  the best tree
    """
    assert options.dates is not None
    asked = DateOptions(
        tree="", dates=options.dates, sites=problem.n_sites, seed=options.seed,
        root=options.outgroup,
    )  # fmt: skip
    try:
        dated = date_tree(read_written(newick)[0], asked, emit)
    except InputError as error:  # the tree is what the search was for
        emit(Notice(f"the tree is not dated: {error.message}"))
        return {}
    emit(Notice("; ".join(f"{name}: {text}" for name, text in dated.facts().items())))
    return date_texts(dated, options.workspace.name)


def date_tree(tree: WrittenTree, options: DateOptions, emit: Emit) -> DatedTree:
    """Root the tree, date its nodes, and draw the intervals.

    Raises:
        InputError: the tree, a date or a calibration cannot be used, or there is no signal.
    """
    sites = _sites(options)
    tree = _measured(tree, emit)
    taxa = [tree.labels[tip] for tip in tree.tips]
    if len(taxa) < 3:
        raise InputError(f"{len(taxa)} tips are too few to date: 3 at least")
    if len(set(taxa)) < len(taxa):
        twice = next(name for name in taxa if taxa.count(name) > 1)
        raise InputError(f"two tips are called {twice!r}", taxon=twice)
    known = _known(options, taxa)
    if text := missing_text(taxa, known.tips):
        emit(Notice(text))
    _expect_signal(known)
    tree, is_free = _rooted(tree, known, options, sites, emit)
    line_of = _regression(tree, known)
    outliers = [tip for tip, far in zip(tree.tips, line_of.is_outlier, strict=True) if far]
    names = tuple(tree.labels[tip] for tip in outliers)
    if names:
        use = (
            "their dates are estimated" if options.outliers else "--outliers estimates their dates"
        )
        emit(Notice(f"far from the root-to-tip line: {', '.join(names)} ({use})"))
    if options.outliers:
        kept = {name: span for name, span in known.tips.items() if name not in names}
        known = known._replace(tips=kept)
        _expect_signal(known)
        line_of = _regression(tree, known)
    if line_of.rate <= 0.0 and not known.calibrations:
        hint = "is the root right (--root best)? Are dates of one kind? --calibrate adds others"
        problem = f"no temporal signal: the root-to-tip slope is {line_of.rate:.3g}"
        raise InputError(problem, hint=hint)
    return _estimated(tree, known, options, sites, is_free, line_of, names)


class _Known(NamedTuple):
    """All that is known of dates, as bounds."""

    tips: dict[str, Span]
    calibrations: list[CalibrationDate]
    is_calendar: bool


def _known(options: DateOptions, taxa: Sequence[str]) -> _Known:
    dated = dates_of(options.dates, taxa, ages=options.ages)
    rows = list(dated.calibrations)
    if options.calibrate is not None:
        rows += calibration_rows(options.calibrate)
    bounds = [bounds_of(row, ages=dated.are_ages) for row in rows]
    return _Known(dated.tips, bounds, dated.is_calendar)


def _sites(options: DateOptions) -> int:
    """The number of sites. Raises: InputError: neither an alignment nor a number is given."""
    if options.alignment is not None:
        return read_alignment(options.alignment, None).n_sites
    if options.sites is None:
        hint = "give --sites N, or --alignment FILE"
        raise InputError("the number of sites is needed for the branches' errors", hint=hint)
    return options.sites


def _measured(tree: WrittenTree, emit: Emit) -> WrittenTree:
    """The tree with lengths that can be dated. Raises: InputError: it has none."""
    lengths = tree.lengths.copy()
    lengths[0] = 0.0
    missing = int(np.isnan(lengths).sum())
    if missing or not (lengths > 0.0).any():
        problem = f"{missing:,} branches have no length" if missing else "no branch has a length"
        hint = "mltree evaluate optimises the lengths of a tree"
        raise InputError(f"{problem}: such a tree cannot be dated", hint=hint)
    if (lengths < 0.0).any():
        emit(Notice("negative branch lengths are taken as zero"))
    return WrittenTree(tree.parent, np.maximum(lengths, 0.0), tree.labels)


def _expect_signal(known: _Known) -> None:
    """Make sure that dates differ. Raises: InputError: nothing tells time."""
    spans = {span for span in known.tips.values() if span != ANY}
    spans |= {one.span for one in known.calibrations if np.isfinite(one.span).all()}
    if len(spans) < 2:
        hint = "tips of several dates, or --calibrate with dates of ancestors, tell the rate"
        raise InputError("all dates are equal: they tell no rate", hint=hint)


def _bounds(tree: WrittenTree, known: _Known) -> Bounds:
    """Bounds of all nodes, by the numbers of the tree.

    Raises: InputError: a taxon is unknown, or calibrations contradict each other.
    """
    lower, upper = np.full(tree.n_nodes, -np.inf), np.full(tree.n_nodes, np.inf)
    for tip in tree.tips:
        lower[tip], upper[tip] = known.tips.get(tree.labels[tip], ANY)
    for one in known.calibrations:
        group, tips = ",".join(one.taxa), set(tree.tips_named(one.taxa))
        node = tree.clade_of(tips)
        if one.is_monophyletic and tree.n_below[node] > len(tips):
            raise InputError(f"{group} are not monophyletic: the tree has other taxa among them")
        if one.is_stem and node == 0:
            raise InputError(f"the tree has no stem of {group}: its root is theirs")
        if one.is_stem:
            node = int(tree.parent[node])
        lower[node] = max(lower[node], one.span.lower)
        upper[node] = min(upper[node], one.span.upper)
    earliest, latest = lower.copy(), upper.copy()
    parents = tree.parent.tolist()
    for node in range(1, tree.n_nodes):
        earliest[node] = max(earliest[node], earliest[parents[node]])
    for node in range(tree.n_nodes - 1, 0, -1):
        latest[parents[node]] = min(latest[parents[node]], latest[node])
    wrong = np.flatnonzero(earliest > latest)
    if wrong.size:
        node = int(wrong[-1])
        _, taxa = _node_name(tree, node)
        problem = f"dates contradict each other: the ancestor of {taxa} cannot be both after"
        after, before = earliest[node] + 0.0, latest[node] + 0.0  # no sign in front of zero
        raise InputError(f"{problem} {after:.6g} and before {before:.6g}")
    return Bounds.of(lower, upper)


def _tip_dates(tree: WrittenTree, known: _Known) -> Float64:
    """f64 [N]: dates of tips, the middles of intervals; NaN elsewhere."""
    dates = np.full(tree.n_nodes, np.nan)
    for tip in tree.tips:
        lower, upper = known.tips.get(tree.labels[tip], ANY)
        middle = 0.5 * (lower + upper) if np.isfinite([lower, upper]).all() else np.nan
        dates[tip] = middle
    return dates


def _regression(tree: WrittenTree, known: _Known) -> Regression:
    tips = list(tree.tips)
    return regression(tree.heights[tips], _tip_dates(tree, known)[tips])


def _clocked(
    tree: WrittenTree, known: _Known, options: DateOptions, sites: int, is_free: bool
) -> Clocked:
    levels, bounds = Levels(tree), _bounds(tree, known)
    order = levels.order
    own = Bounds(bounds.lower[order], bounds.upper[order], bounds.preferred[order])
    method = cast(Literal["likelihood", "least-squares"], options.method)
    clock = cast(Literal["strict", "relaxed"], options.clock)
    return Clocked(levels, tree.lengths[order], sites, own, is_free, method, clock)


def _rooted(
    tree: WrittenTree, known: _Known, options: DateOptions, sites: int, emit: Emit
) -> tuple[WrittenTree, bool]:
    """The tree with its root, and True if the root's place on its branch is to be estimated."""
    is_unrooted = len(tree.children[0]) > 2
    root = options.root or ("best" if is_unrooted else "keep")
    if root == "keep":
        return tree, False
    if root != "best":
        rooted, stands_together = tree.rooted_beside([name.strip() for name in root.split(",")])
        if not stands_together:
            emit(Notice("the outgroup does not stand together: rooted next to its first taxon"))
        return rooted, len(rooted.children[0]) == 2
    return _best_root(tree, known, options, sites)


def _best_root(
    tree: WrittenTree, known: _Known, options: DateOptions, sites: int
) -> tuple[WrittenTree, bool]:
    """The tree with the root that suits the clock best."""
    best, least, wrong = None, np.inf, None
    quick = replace(options, method="least-squares", clock="strict")
    dates = _tip_dates(tree, known)
    if np.unique(dates[np.isfinite(dates)]).size < 2:
        midway = tree.rooted_midway()
        return midway, len(midway.children[0]) == 2
    for node, share in best_branches(tree, dates, ROOTS_TRIED):
        rooted = tree.rooted_above(node, share)
        lengths = np.nan_to_num(rooted.lengths, nan=0.0)
        rooted = WrittenTree(rooted.parent, lengths, rooted.labels)
        if len(rooted.children[0]) != 2:
            continue
        try:
            problem = _clocked(rooted, known, quick, sites, True)
        except InputError as error:  # no root for the calibrations
            wrong = error
            continue
        fit = problem.fit(problem.lengths[:, None], problem.bounds, 0.0)
        if fit.rate[0] > 0.0 and fit.objective[0] < least:
            best, least = rooted, float(fit.objective[0])
            place = problem.expected(fit.position, is_apart=True)[1:3, 0]
            total, whole = place.sum(), float(lengths[[*rooted.children[0]]].sum())
            parts = whole * (place / total if total > 0.0 else np.array([0.5, 0.5]))
            lengths[problem.levels.order[1:3]] = parts
            best = WrittenTree(rooted.parent, lengths, rooted.labels)
    if best is None:
        if wrong is not None:
            raise wrong
        hint = "are the dates of one kind? --root keep takes the tree's own root"
        raise InputError("no temporal signal: no root lets distances rise with dates", hint=hint)
    return best, True


def _estimated(
    tree: WrittenTree, known: _Known, options: DateOptions, sites: int, is_free: bool,
    line_of: Regression, outliers: tuple[str, ...],
) -> DatedTree:  # fmt: skip
    problem = _clocked(tree, known, options, sites, is_free)
    fit, variation = problem.estimate()
    dates, rate = fit.dates[:, 0], float(fit.rate[0])
    depth = float(tree.heights.max())
    limits = np.concatenate((problem.bounds.lower, problem.bounds.upper))
    span = np.ptp(limits[np.isfinite(limits)])
    if not (np.isfinite(dates).all() and rate * span > NO_SIGNAL * NO_SIGNAL * depth):
        hint = "--root best, more dates or --calibrate may help"
        raise InputError(f"no temporal signal: the rate is {rate:.3g}", hint=hint)
    drawn = problem.replicates(fit, variation, options.replicates, options.seed)
    chains = Chains(problem, fit, drawn, variation)
    intervals, of_rate = date_intervals(chains, fit, options.seed)
    levels = problem.levels
    place = levels.place
    durations = np.maximum(dates - dates[levels.parent], 0.0)
    mean = sites * rate * durations
    shape = np.inf if variation == 0.0 else variation**-2
    seen = sites * problem.lengths
    rates = np.full(levels.n_nodes, rate)
    if np.isfinite(shape):
        rates = rate * (seen + shape) / (mean + shape)
    rates[0] = np.nan
    return DatedTree(
        written=tree, dates=dates[place], intervals=intervals[place], rates=rates[place],
        rate=rate, rate_interval=of_rate, variation=variation,
        objective=float(fit.objective[0]), regression=line_of, outliers=outliers,
        is_calendar=known.is_calendar, options=options,
    )  # fmt: skip


# Files.


def _node_name(tree: WrittenTree, node: int) -> tuple[str, str]:
    """The name of a node, and the tip, or two tips, that tell which it is."""
    if not tree.children[node]:
        return tree.labels[node], tree.labels[node]
    ends = []
    for side in (0, -1):
        tip = node
        while tree.children[tip]:
            tip = tree.children[tip][side]
        ends.append(tree.labels[tip])
    return f"n{node}", ",".join(ends)


def date_texts(dated: DatedTree, name: str) -> dict[str, str]:
    """The texts of all files, by kind."""
    columns = dated.columns()
    rows = [[*columns], *(map(_cell, row) for row in zip(*columns.values(), strict=True))]
    numbers = np.column_stack((dated.dates, dated.intervals))
    tree = dated.written
    return {
        DATES: "".join("\t".join(row) + "\n" for row in rows),
        TIME_TREE: dated.time_tree.newick() + "\n",
        FIGTREE: _figtree(dated),
        RTT: _rtt(dated),
        AUSPICE: auspice(tree, name, today.today(), numbers),
        PAGE: _page(dated, name),
    }


def _cell(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _figtree(dated: DatedTree) -> str:
    """NEXUS whose comments FigTree reads: heights and dates with their intervals, rates."""
    tree, times = dated.written, dated.time_tree
    latest = float(dated.dates[list(tree.tips)].max())

    def comment(node: int) -> str:
        value, (lower, upper) = float(dated.dates[node]), dated.intervals[node].tolist()
        parts = [f"height={latest - value:.9g}"]
        parts.append(f"height_95%_CI={{{latest - upper:.9g},{latest - lower:.9g}}}")
        day = f'"{iso_of(value)}"' if dated.is_calendar else f"{value:.9g}"
        parts += [f"date={day}", f"date_95%_CI={{{lower:.9g},{upper:.9g}}}"]
        if node:
            parts.append(f"rate={dated.rates[node]:.6g}")
        return f"[&{','.join(parts)}]"

    parts: list[str] = []
    pending: list[int | str] = [";", 0]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        label, below = tree.labels[item], tree.children[item]
        ending = (quoted(label) if label or not below else "") + comment(item)
        ending += branch(times.lengths[item])
        if below:
            between = [one for child in below[::-1] for one in (child, ",")]
            pending += [")" + ending, *between[:-1], "("]
        else:
            parts.append(ending)
    taxa = " ".join(quoted(tree.labels[tip]) for tip in tree.tips)
    count = f"DIMENSIONS NTAX={len(tree.tips)};"
    lines = ["#NEXUS", "BEGIN TAXA;", f"  {count}", f"  TAXLABELS {taxa};", "END;"]
    text = "".join(parts)
    return "\n".join([*lines, "BEGIN TREES;", f"  TREE dated = [&R] {text}", "END;", ""])


def _rtt(dated: DatedTree) -> str:
    """The table of the root-to-tip regression."""
    line_of, tree = dated.regression, dated.written
    rows = [["tip", "date", "distance", "residual", "outlier"]]
    columns = (line_of.dates, line_of.distances, line_of.residuals, line_of.is_outlier)
    for tip, day, far, rest, is_out in zip(tree.tips, *(c.tolist() for c in columns), strict=True):
        word = "yes" if is_out or tree.labels[tip] in dated.outliers else "no"
        numbers = ["" if np.isnan(one) else f"{one:.9g}" for one in (day, far, rest)]
        rows.append([tree.labels[tip], *numbers, word])
    return "".join("\t".join(row) + "\n" for row in rows)


def rtt_chart(dated: DatedTree) -> str:
    """Distances from the root by dates, with the regression's line."""
    line_of, width, height = dated.regression, 640.0, 360.0
    used = np.isfinite(line_of.dates)
    if not used.any():
        return ""
    t, d = line_of.dates[used], line_of.distances[used]
    first = line_of.origin if line_of.rate > 0.0 else float(t.min())
    low, high = min(float(t.min()), first), float(t.max())
    across = Scale(low, high, 64.0, width - 16.0)
    up = Scale(0.0, float(d.max()) * 1.05, height - 40.0, 12.0)
    parts = []
    for value in ticks(0.0, up.high, 5):
        parts += [line(64.0, up(value), width - 16.0, up(value))]
        parts.append(words(58.0, up(value), f"{value:g}", "tick", "end"))
    parts += axis_below(across, height - 40.0, ticks(low, high, 7), "{:g}".format)
    start, end = (line_of.intercept + line_of.rate * x for x in (low, high))
    parts.append(line(across(low), up(start), across(high), up(end), "median"))
    names = [dated.written.labels[tip] for tip in dated.written.tips]
    for name, day, far, is_out in zip(
        names, line_of.dates.tolist(), line_of.distances.tolist(), line_of.is_outlier, strict=True
    ):
        if np.isfinite(day):
            kind = "dot-bad" if is_out or name in dated.outliers else "bubble"
            parts.append(circle(across(day), up(far), 3.0, kind, f"{name}: {day:.3f}, {far:.4g}"))
    parts.append(words(0.5 * width, height - 8.0, "date", "tick", "middle"))
    parts.append(words(64.0, 6.0, "substitutions per site from the root", "tick"))
    return chart(width, height, "root-to-tip regression", parts)


def _page(dated: DatedTree, name: str) -> str:
    """A page that works offline: facts, the tree on a time axis, regression, dates."""
    columns = dated.columns()
    inner = [bool(below) for below in dated.written.children]
    rows = [
        [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row]
        for row, is_inner in zip(zip(*columns.values(), strict=True), inner, strict=True)
        if is_inner
    ]
    many = len(dated.written.tips) > DRAWN
    shown = "<p>The tree is too large for a page: a viewer shows .timeTree.nex.</p>"
    sections = {
        "Dates": facts_table(dated.facts()),
        "Tree": shown if many else dated.svg(),
        "Root-to-tip regression": f"<figure>{rtt_chart(dated)}</figure>",
        "Nodes": f'<div class="wide">{table(rows, [*columns])}</div>',
    }
    body = "".join(f"<section><h2>{head}</h2>{text}</section>" for head, text in sections.items())
    title = f"{escape(name)} · dates · mltree {__version__}"
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    head = f'<meta charset="utf-8">{policy}<title>{title}</title>'
    style = f"<style>{page_asset('page.css')}</style>"
    main = f"<body><main><h1>{escape(name)}</h1>{body}</main></body>"
    return f"<!doctype html>\n<html lang='en'><head>{head}{style}</head>{main}</html>\n"
