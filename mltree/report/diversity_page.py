"""Page of UniFrac distances: ordination, axes, groups, complete in itself.

diversity.html  the frame
ordination.js   the plot of principal coordinates
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from mltree.diversity.branches import Samples
from mltree.diversity.statistics import Ordination, Spread, TestOfGroups
from mltree.diversity.table import Metadata
from mltree.diversity.unifrac import DistanceBlocks, Metric
from mltree.report.page import (
    POLICY,
    Scale,
    asset,
    bar,
    chart,
    circle,
    embedded,
    html_table,
    line,
    words,
)
from mltree.system import __version__
from mltree.system.values import Value
from mltree.tree.topology import NONE

COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a6d00", "#7f3c8d",
    "#444444", "#11a579", "#b30000", "#80ba5a",
)  # fmt: skip
"""Colours of the values of a column, the most frequent first."""

LEAST_NUMBERED = 16.0
"""Points of an inner branch that has room for its number."""

MOST_COLUMNS = 40
"""Columns of metadata that a page has."""

MOST_GROUPS = 12
"""Groups whose distances are drawn."""

DIGITS = 6
"""Significant digits of a coordinate on a page."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Ends of whiskers and boxes, and the median."""


class ShownBranch(Value):
    """A branch that matters, for the table and the tree of a page."""

    number: int
    weight: float
    """The larger, the more the branch matters; 0 where it does not."""
    name: str
    """Names of the tips below, the first and the last."""
    facts: tuple[str, ...]
    """Cells of its row in the table, behind the name."""


BRANCH_FACTS = ("Length", "Samples", "Of all diversity", "Mean share", "η²", "Most in")
"""Headings of a branch's facts; the last two where there are groups."""


class MetricPage(Value):
    """Ordination, distances of groups and tests of one metric."""

    metric: Metric
    ordination: Ordination
    spreads: dict[str, Spread]
    """Distances within and between the groups of each column."""
    tests: Sequence[tuple[str, TestOfGroups]]

    @classmethod
    def of(
        cls, metric: Metric, ordination: Ordination, blocks: DistanceBlocks,
        groups: Mapping[str, Sequence[str]], tests: Sequence[tuple[str, TestOfGroups]],
    ) -> MetricPage:  # fmt: skip
        """Count the distances of all groups."""
        largest = 1.0
        if groups and not metric.is_normalised:
            largest = max(float(block.max(initial=0.0)) for _, block in blocks) or 1.0
        spreads = {column: Spread(names, largest).add(blocks) for column, names in groups.items()}
        return cls(metric, ordination, spreads, tests)


def page(
    pages: Sequence[MetricPage], samples: Samples, metadata: Metadata | None,
    groups: Mapping[str, Sequence[str]], branches: Sequence[ShownBranch],
) -> str:  # fmt: skip
    """The text of the HTML file; ``branches``: those that matter most, in this order."""
    columns = dict(list(groups.items())[:MOST_COLUMNS])
    for name, values in ({} if metadata is None else metadata.columns).items():
        if len(columns) < MOST_COLUMNS and name not in columns:
            columns[name] = [values.get(sample, "") for sample in samples.ids]
    data = {
        "ids": samples.ids,
        "columns": columns,
        "coloured": next(iter(groups), ""),
        "colours": COLOURS,
        "metrics": [
            {
                "name": one.metric.label,
                "explained": one.ordination.explained.tolist(),
                "points": _rounded(one.ordination),
            }
            for one in pages
        ],
    }
    made = [("axes", "Axes", "".join(map(_scree, pages)))]
    if groups:
        made.append(("groups", "Groups", "".join(_groups(one) for one in pages)))
        made.append(("tests", "Tests", _tests(pages)))
    if branches:
        rows = [(str(i), one.name, *one.facts) for i, one in enumerate(branches, 1)]
        table = html_table(("", "Tips below", *BRANCH_FACTS[: len(branches[0].facts)]), rows)
        made.append(("branches", "Branches that matter most", table))
    links = [("ordination", "Ordination"), *((anchor, heading) for anchor, heading, _ in made)]
    count = f"{samples.n_samples:,} samples, {samples.branches.count:,} branches"
    return asset("diversity.html").format(
        policy=POLICY,
        title="UniFrac · mltree",
        name=f"UniFrac: {count}",
        style=asset("page.css")
        + "".join(f".kind{place} {{ fill: {colour}; }}\n" for place, colour in enumerate(COLOURS)),
        links="".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading in links),
        still=_still(pages[0]) if pages else "",
        tree=_tree(samples, branches, next(iter(groups.values()), ())) if branches else "",
        body="".join(
            f'<section id="{anchor}"><h2>{heading}</h2>{content}</section>'
            for anchor, heading, content in made
        ),
        version=__version__,
        data=embedded(data),
        script=asset("ordination.js"),
    )


def _rounded(ordination: Ordination) -> list[list[float]]:
    return [[float(f"{x:.{DIGITS}g}") for x in row] for row in ordination.coordinates.tolist()]


def _still(one: MetricPage) -> str:
    """The first two axes, for a page without scripts."""
    points = one.ordination.coordinates[:, :2]
    if points.shape[1] < 2:
        return ""
    low, high = points.min(axis=0), points.max(axis=0)
    across, up = Scale(low[0], high[0], 30, 570), Scale(low[1], high[1], 370, 30)
    dots = [circle(across(x), up(y), 3, "dot") for x, y in points.tolist()]
    return chart(600, 400, "The first two principal coordinates", dots)


def _tree(samples: Samples, shown: Sequence[ShownBranch], groups: Sequence[str]) -> str:
    """The branches that matter, thick, on the tree above them; others are left out.

    Each has the colour of the group that it has most of.
    """
    ordered = Counter(groups).most_common(len(COLOURS))
    colour = {name: f"kind{place}" for place, (name, _) in enumerate(ordered)}
    parent, length = samples.branches.parent.tolist(), samples.branches.length.tolist()
    rank = {one.number: place for place, one in enumerate(shown)}
    children: dict[int, list[int]] = {}
    for number in rank:
        below, above = number, parent[number]
        while above != NONE and below not in children.setdefault(above, []):
            children[above].append(below)
            below, above = above, parent[above]
    drawn = sorted(children.keys() | rank.keys())  # children before parents
    depth: dict[int, float] = {}
    for number in reversed(drawn):
        depth[number] = depth.get(parent[number], 0.0) + length[number]
    leaves = [number for number in drawn if number not in children]
    height = {number: 20.0 + 24 * place for place, number in enumerate(leaves)}
    across = Scale(0.0, max(*depth.values(), 1e-300), 12.0, 330.0)
    most = max(one.weight for one in shown) or 1.0
    lines, marks = [], []
    for number in drawn:
        heights = [height[child] for child in children.get(number, [])]
        y = height.setdefault(number, sum(heights) / max(len(heights), 1))
        start, x = across(depth.get(parent[number], 0.0)), across(depth[number])
        lines.append(line(start, y, x, y, "axis"))
        if heights:
            lines.append(line(x, min(heights), x, max(heights), "axis"))
        if number in rank:
            one = shown[rank[number]]
            thick = 2.0 + 8.0 * (max(one.weight, 0.0) / most) ** 0.5
            facts = zip(BRANCH_FACTS, one.facts, strict=False)
            told = "".join(f"; {name}: {fact}" for name, fact in facts)
            size = max(x - start, 3.0)
            kind = colour.get(one.facts[-1], "bar-device")
            marks.append(bar(start, y - thick / 2, size, thick, kind, one.name + told))
            place = str(rank[number] + 1)
            if not heights:
                marks.append(words(x + 6, y, f"{place}  {one.name}", "tick"))
            elif size >= LEAST_NUMBERED:
                marks.append(words(start + size / 2, y - 9, place, "tick", "middle"))
    drawing = chart(560, 30.0 + 24 * len(leaves), "Branches that matter most", lines + marks)
    caption = "Branches that matter most, numbered as in the table below: thick ones matter more"
    if groups:
        caption += "; colours are those of the groups that have most of them"
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def _scree(one: MetricPage) -> str:
    """Shares of all variation that the axes explain."""
    shares = one.ordination.explained
    top = max(float(shares.max(initial=0.0)), 1e-9)
    up = Scale(0.0, top, 150.0, 20.0)
    width = 500.0 / max(len(shares), 1)
    parts = [line(60, 150, 560, 150, "axis"), words(54, 20, f"{top:.0%}", "tick", "end")]
    for axis, share in enumerate(shares.tolist()):
        x = 60 + axis * width
        title = f"axis {axis + 1}: {share:.1%}"
        parts.append(bar(x + 2, up(share), max(width - 4, 1), 150 - up(share), "bar-device", title))
        parts.append(words(x + width / 2, 164, str(axis + 1), "tick", "middle"))
    drawing = chart(600, 180, f"Variation that each axis explains, {one.metric.label}", parts)
    caption = f"{one.metric.label}: share of all variation that each axis explains"
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _groups(one: MetricPage) -> str:
    """Boxes of the distances within each group, and between every two."""
    return "".join(_boxes(one.metric, column, spread) for column, spread in one.spreads.items())


def _boxes(metric: Metric, column: str, spread: Spread) -> str:
    names = [str(name) for name in spread.names[:MOST_GROUPS]]
    pairs = [(i, i) for i in range(len(names))]
    pairs += [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))][
        : 3 * MOST_GROUPS
    ]
    rows = [
        (names[i] if i == j else f"{names[i]} – {names[j]}", found)
        for i, j in pairs
        if (found := spread.quantiles(i, j, QUANTILES))
    ]
    top = max((values[-1] for _, values in rows), default=1.0)
    across = Scale(0.0, top, 220.0, 580.0)
    parts = []
    for place, (name, (low, first, middle, third, high)) in enumerate(rows):
        y = 20.0 + 22 * place
        parts += [
            words(212, y, name, "tick", "end"),
            line(across(low), y, across(high), y, "axis"),
            bar(across(first), y - 7, max(across(third) - across(first), 1), 14, "bubble",
                f"{name}: median {middle:.4g}, half of the distances {first:.4g} to {third:.4g}"),
            line(across(middle), y - 7, across(middle), y + 7, "median"),
        ]  # fmt: skip
    height = 40.0 + 22 * len(rows)
    for value in np.linspace(0, top, 5).tolist():
        parts.append(words(across(value), height - 10, f"{value:.2g}", "tick", "middle"))
    drawing = chart(600, height, f"Distances by {column}, {metric.label}", parts)
    text = f"{metric.label} by {column}: distances within groups, then between them; whiskers "
    text += "at 5 and 95 %"
    return f"<figure>{drawing}<figcaption>{escape(text)}</figcaption></figure>"


def _tests(pages: Sequence[MetricPage]) -> str:
    columns = ("Metric", "Column", "Test", "Statistic", "R²", "p", "Permutations")
    rows: Iterable[tuple[str, ...]] = (
        (
            one.metric.label,
            column,
            test.method,
            f"{test.statistic_name} {test.statistic:.4g}",
            "" if test.r2 is None else f"{test.r2:.4f}",
            f"{test.p_value:.3g}",
            f"{test.permutations:,}",
        )
        for one in pages
        for column, test in one.tests
    )
    return html_table(columns, rows)
