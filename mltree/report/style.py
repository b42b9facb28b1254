"""Style of a tree's picture, and the plan that it makes of a tree before any place is known."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, NamedTuple

import numpy as np

from mltree.system.arrays import Float64, Int32
from mltree.system.errors import InputError
from mltree.system.events import Emit, Notice
from mltree.system.values import Value
from mltree.tree.clades import WrittenTree

SHORTEST = 1e-300
"""Depth of a tree below which it is not drawn to scale: points per unit would overflow."""

CLADE_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a68a6",
                 "#8c8c8c")  # fmt: skip
"""Colours of clades without one: Okabe and Ito's, which the colour-blind tell apart."""

PALE = 0.18
"""Share of a clade's colour in its background."""

SUPPORT_COLOURS = ((0.0, "#c2410c"), (0.5, "#e08e3c"), (0.7, "#98a4b0"), (0.8, "#4f94d4"),
                   (0.95, "#0b4f8a"))  # fmt: skip
"""Colours of supports from a share on, as in the report."""

# Options.


class Clade(Value):
    """A clade to be highlighted or collapsed: the smallest one that holds its taxa."""

    taxa: tuple[str, ...]
    name: str = ""
    colour: str = ""
    """As ``#rrggbb``; one of :data:`CLADE_COLOURS` where empty."""

    @classmethod
    def read(cls, text: str) -> Clade:
        """A clade from ``NAME=TAXON,TAXON:#rrggbb``; name and colour may be left out.

        Raises: InputError: no taxon is named, or the colour is none.
        """
        match = re.fullmatch(r"\s*(?:([^=]*)=)?(.*?)(?::(#[^:,]*))?\s*", text, re.DOTALL)
        assert match is not None
        name, members, colour = match.groups()
        taxa = tuple(filter(None, (taxon.strip() for taxon in members.split(","))))
        hint = "write NAME=TAXON,TAXON or NAME=TAXON,TAXON:#0072b2"
        if not taxa:
            raise InputError(f"{text.strip()!r} names no taxon of a clade", hint=hint)
        if colour and not re.fullmatch("#[0-9a-fA-F]{6}", colour.strip()):
            raise InputError(f"{colour.strip()!r} of {text.strip()!r} is not a colour", hint=hint)
        return cls(taxa, (name or "").strip(), (colour or "").strip())


Steps = tuple[tuple[float, str], ...]


class Supports(Value, kw_only=True):
    """How labels of inner nodes are shown; they may have columns, ``91.8/94``."""

    marks: tuple[str, ...] | None = None
    """Some of ``labels``, ``colours`` (of branches) and ``dots`` (on nodes); None: labels in trees
    of at most 200 tips, else colours."""
    columns: tuple[int, ...] = ()
    """Numbers of the columns to show, from 1, in order; all where empty."""
    names: tuple[str, ...] = ()
    """Names of the columns of the file, for the legend."""
    cutoffs: tuple[float, ...] = ()
    """Least supports to show: one for all columns of the file, or one each."""
    colours: Steps = ()
    """Colours of the last column shown, from a support on, rising; a default where empty."""

    @property
    def title(self) -> str:
        """``Supports: SH-aLRT ≥ 80 / UFBoot2 ≥ 95``; empty without names and cut-offs."""
        names, least = self.names, self.cutoffs
        parts = []
        for number in self.columns or range(1, max(len(names), len(least)) + 1):
            name = names[number - 1] if number <= len(names) else ""
            cut = f"≥ {least[min(number, len(least)) - 1]:g}" if least else ""
            parts.append(" ".join(filter(None, (name, cut))))
        return "Supports: " + " / ".join(parts) if names or least else ""


class Axis(Value, kw_only=True):
    """The scale of the branches."""

    kind: Literal["scale", "time", "none"] = "scale"
    """A scale bar, or an axis of time that ends at the deepest tip."""
    unit: str = ""
    """Unit of the branch lengths; a default of the kind where empty."""
    latest: float | None = None
    """Date of the deepest tip; None counts time before it."""

    @property
    def title(self) -> str:
        """Title of an axis of time."""
        return self.unit or ("time before the latest tip" if self.latest is None else "date")


class Style(Value, kw_only=True):
    """Options of a tree's picture."""

    layout: str = "rectangular"
    """``rectangular``, ``circular`` or ``unrooted``."""
    order: Literal["increasing", "decreasing", "written"] = "increasing"
    """Order of subtrees by their number of tips."""
    outgroup: tuple[str, ...] = ()
    """Taxa next to which the root is put."""
    is_midpoint: bool = False
    """True to put the root halfway between the tips that are farthest from each other."""
    is_scaled: bool = True
    """True to draw branches to scale."""
    size: tuple[float | None, float | None] = (None, None)
    """Width and height of the page, points; None for as much as the tree takes."""
    font: str = ""
    font_size: float | None = None
    """Font size of names, points; None for one that fits."""
    is_italic: bool = False
    """True for names in italics, with blanks for underscores."""
    supports: Supports = Supports()
    highlights: tuple[Clade, ...] = ()
    collapsed: tuple[Clade, ...] = ()
    axis: Axis = Axis()
    branches: Mapping[int, str] = field(default_factory=dict)
    """Colours of branches by the numbers of the nodes below them, of a tree drawn as written."""
    bars: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Intervals of the depths of nodes, likewise: bars of rectangular trees."""


# The plan: the tree as it is drawn, rooted, ordered and collapsed, before any place is known.


class TreePlan(NamedTuple):
    """The tree as it is drawn: rooted, ordered, collapsed."""

    tree: WrittenTree
    """Collapsed clades are tips of it."""
    depth: Float64
    """f64 [N]: distance of each node from the root, as drawn; the largest is above 0."""
    reach: Float64
    """f64 [N]: depth of the deepest tip of a collapsed clade; of other nodes their own."""
    rows: Float64
    """f64 [N]: height of each tip in rows, 1 but for collapsed clades; 0 of inner nodes."""
    row: Float64
    """f64 [N]: middle of each tip's row; inner nodes lie midway between their outer children."""
    is_measured: bool
    """True for branches to scale."""
    supports: list[Support]
    n_columns: int
    """Columns of the supports."""
    colours: Steps
    """Colours of supports, from a number on."""
    highlights: list[tuple[int, Clade]]
    """Nodes of highlighted clades, larger clades first."""

    @property
    def n_rows(self) -> float:
        """Rows of all tips."""
        return float(self.rows.sum())


class Support(NamedTuple):
    """A support as it is shown."""

    node: int
    text: str
    """Empty below the cut-off."""
    colour: str
    """Empty without a number."""


def plan_of(tree: WrittenTree, style: Style, emit: Emit) -> TreePlan:
    """Root, order and collapse a tree as a style asks for.

    Raises: InputError: a taxon is not in the tree, or the tree does not suit the style.
    """
    tree = _arranged(tree, style, emit)
    shown = [(tree.clade_of(tree.tips_named(one.taxa)), one) for one in style.highlights]
    folded = {tree.clade_of(tree.tips_named(one.taxa)): one for one in style.collapsed}
    is_measured = style.is_scaled and tree.is_measured and float(tree.heights.max()) > SHORTEST
    if style.axis.kind == "time" and not is_measured:
        raise InputError("a time axis takes a tree with branch lengths, drawn to scale")
    depth = tree.heights if is_measured else _levels(tree)
    folded = {node: one for node, one in folded.items() if node and tree.children[node]}
    kept, place, reach, rows = _collapsed(tree, depth, folded, style.is_italic)
    row = np.empty(kept.n_nodes)
    row[list(kept.tips)] = np.cumsum(rows[list(kept.tips)]) - rows[list(kept.tips)] / 2.0
    for node in range(kept.n_nodes - 1, -1, -1):
        if below := kept.children[node]:
            row[node] = (row[below[0]] + row[below[-1]]) / 2.0
    shown.sort(key=lambda one: -int(tree.n_below[one[0]]))
    palette = {id(one): CLADE_COLOURS[n % len(CLADE_COLOURS)]
               for n, one in enumerate(style.highlights)}  # fmt: skip
    highlights = [
        (int(place[node]), replace(one, colour=one.colour or palette[id(one)]))
        for node, one in shown
    ]
    origin = np.unique(place, return_index=True)[1]
    supports = _supports(kept, style.supports)
    return TreePlan(kept, depth[origin], reach, rows, row, is_measured, *supports, highlights)


def _arranged(tree: WrittenTree, style: Style, emit: Emit) -> WrittenTree:
    """The tree with the root and the order that a style asks for, without negative lengths."""
    if style.outgroup:
        tree, is_together = tree.rooted_beside(style.outgroup)
        if not is_together:
            emit(Notice("the outgroup does not stand together: drawn next to its first taxon"))
    elif style.is_midpoint:
        tree = tree.rooted_midway()
    if style.order != "written":
        tree = tree.ladderised(larger_first=style.order == "decreasing")
    if (tree.lengths[1:] < 0.0).any():
        emit(Notice("negative branch lengths are drawn as zero"))
        tree = replace(tree, lengths=np.maximum(tree.lengths, 0.0))
    for one in (*style.highlights, *style.collapsed):
        if tree.n_nodes > 1 and tree.clade_of(tree.tips_named(one.taxa)) == 0:
            named = one.name or ", ".join(one.taxa)
            hint = "--outgroup or --midpoint places the root elsewhere"
            emit(Notice(f"{named}: the smallest clade with these taxa is the whole tree ({hint})"))
    return tree


def _levels(tree: WrittenTree) -> Float64:
    """f64 [N]: depths by which all tips stand in line."""
    above = np.zeros(tree.n_nodes)
    for node in range(tree.n_nodes - 1, 0, -1):
        parent = tree.parent[node]
        above[parent] = max(above[parent], above[node] + 1.0)
    return np.asarray(max(above[0], 1.0) - above, np.float64)


def _collapsed(
    tree: WrittenTree, depth: Float64, folded: dict[int, Clade], is_italic: bool
) -> tuple[WrittenTree, Int32, Float64, Float64]:
    """The tree with some clades as tips, the new number of each node, reach and rows of each.

    A node within a collapsed clade gets the clade's number.
    """
    place, origin = np.empty(tree.n_nodes, np.int32), []
    hidden_until = 0
    for node in range(tree.n_nodes):
        if node >= hidden_until:
            origin.append(node)
            if node in folded:
                hidden_until = int(tree.ends[node])
        place[node] = len(origin) - 1
    labels, reach, rows = [], depth[origin], np.zeros(len(origin))
    for number, node in enumerate(origin):
        label = tree.labels[node]
        if not tree.children[node]:
            rows[number] = 1.0
            label = label.replace("_", " ") if is_italic else label
        elif node in folded:
            size = int(tree.n_below[node])
            name = folded[node].name or "clade"
            label, rows[number] = f"{name} ({size:,})", min(1.0 + math.log2(size) / 2.0, 4.0)
            reach[number] = depth[node : tree.ends[node]].max()
        labels.append(label)
    parent = tree.parent[origin]
    parent[1:] = place[parent[1:]]
    return WrittenTree(parent, tree.lengths[origin], tuple(labels)), place, reach, rows


def _supports(tree: WrittenTree, style: Supports) -> tuple[list[Support], int, Steps]:
    """Labels of inner nodes but the root as they are shown, their columns, and their colours.

    Raises: InputError: a column is not there.
    """
    inner = [n for n in range(1, tree.n_nodes) if tree.labels[n] and tree.children[n]]
    if len(tree.children[0]) == 2:  # one branch, of which both sides have the support
        first, second = tree.children[0]
        if first in inner and second in inner and tree.labels[first] == tree.labels[second]:
            inner.remove(second)
    columns = {node: tree.labels[node].split("/") for node in inner}
    most = max((len(values) for values in columns.values()), default=0)
    if style.columns and max(style.columns) > most > 0:
        raise InputError(f"the supports have no column {max(style.columns)}: there are {most}")
    last = style.columns[-1] if style.columns else most
    numbers = [_number(columns[node][last - 1] if last <= len(columns[node]) else "")
               for node in inner]  # fmt: skip
    unit = 100.0 if any(value > 1.0 for value in numbers) else 1.0
    steps = style.colours or tuple((share * unit, colour) for share, colour in SUPPORT_COLOURS)
    supports = []
    for node, value in zip(inner, numbers, strict=True):
        reached = [colour for least, colour in steps if value >= least]
        text = _written(columns[node], style)
        supports.append(Support(node, text, reached[-1] if reached else ""))
    return supports, most, steps


def _written(values: Sequence[str], style: Supports) -> str:
    """The columns that are shown, an en dash for one below its cut-off; empty if all are."""
    kept = []
    for number, text in enumerate(values, 1):
        least = style.cutoffs[min(number, len(style.cutoffs)) - 1] if style.cutoffs else -math.inf
        value = _number(text)
        kept.append("–" if value < least else text)  # false for a name
    chosen = [kept[n - 1] for n in style.columns if n <= len(kept)] if style.columns else kept
    return "" if all(text in {"–", ""} for text in chosen) else "/".join(chosen)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def nice_length(longest: float) -> float:
    """Largest of 1, 2 and 5 times a power of ten not above ``length``."""
    power = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest * (1 + 1e-9))


def pale(colour: str) -> str:
    """A colour with much white in it, for backgrounds."""
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 - PALE * (255 - part)):02x}" for part in parts)


def dates(deepest: float, latest: float | None, most: int) -> list[tuple[float, str]]:
    """Depths of the ticks of a time axis, ``most`` at most, and their numbers.

    deepest  depth of the latest tip
    latest   date of that tip; None counts time before it
    """
    step = nice_length(deepest / most)
    step = next(step * n for n in (1, 2, 2.5, 5, 10) if deepest / (step * n) <= most)
    first = 0.0 if latest is None else latest % step
    ages = [first + step * n for n in range(most + 2) if first + step * n <= deepest * (1 + 1e-9)]
    if latest is None:
        return [(deepest - age, f"{age:.10g}") for age in ages]
    return [(deepest - age, f"{round(latest - age, 9) + 0.0:.10g}") for age in ages]
