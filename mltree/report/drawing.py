"""Pictures of trees: a scene of lines and words, drawn as SVG, or by matplotlib as PNG or PDF."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import numpy as np

from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.values import Value
from mltree.tree.clades import WrittenTree

# Scenes: lines and words, in points (1/72 inch) from the upper left corner.

INK, ACCENT, FAINT = "#1a1f24", "#0b62a4", "#8a949e"
"""Colours: of branches and names, of supports, of the scale bar."""

EM_WIDTH = 0.56
"""Mean width of a character in a sans-serif font, as a share of its size, for names of mostly lower
case, digits and underscores; layouts need it before any font is measured."""

WIDE_FROM = 0x1100
"""Code point from which characters are mostly as wide as high (Hangul, Han, ...)."""


class Polyline(Value, eq=False):
    """A line through points."""

    points: Float64
    """f64 [n, 2]: x to the right, y down."""
    width: float
    colour: str = INK


class Label(Value):
    """A short text."""

    x: float
    y: float
    """Middle of the line of text; ``anchor`` says which of its ends x is."""
    text: str
    size: float
    """Font size."""
    anchor: Literal["start", "middle", "end"] = "start"
    angle: float = 0.0
    """Degrees, clockwise, about (x, y)."""
    colour: str = INK


@dataclass
class Scene:
    """A picture: lines and words."""

    width: float
    height: float
    lines: list[Polyline] = field(default_factory=list)
    words: list[Label] = field(default_factory=list)

    def line(self, *points: tuple[float, float], width: float, colour: str = INK) -> None:
        """Add a line through some points."""
        self.lines.append(Polyline(np.array(points, np.float64), width, colour))


def width_of(text: str, size: float) -> float:
    """Approximate width of a text, points."""
    return size * sum(1.0 if ord(c) >= WIDE_FROM else EM_WIDTH for c in text)


# SVG, without any library: one path for the lines of a kind, words as text.

FACES = "Helvetica, Arial, 'DejaVu Sans', sans-serif"

_NO_XML = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff]")
"""Characters that XML 1.0 does not allow, or that have no picture."""

UNKNOWN = "\ufffd"
"""Replacement for control characters."""

CENTRED = 0.35
"""Baseline below the middle of the letters, as a share of the face's size."""


def svg(scene: Scene) -> str:
    """The text of an SVG file; its units are points."""
    size = f'width="{scene.width:.2f}pt" height="{scene.height:.2f}pt"'
    box = f'viewBox="0 0 {scene.width:.2f} {scene.height:.2f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{FACES}">',
        f'<rect width="{scene.width:.2f}" height="{scene.height:.2f}" fill="#fff"/>',
    ]
    kinds: dict[tuple[str, float], list[Polyline]] = defaultdict(list)
    for line in scene.lines:
        kinds[line.colour, line.width].append(line)
    for (colour, width), lines in kinds.items():
        ends = 'fill="none" stroke-linecap="square"'
        path = "".join(map(_path, lines))
        parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="{width:.2f}" {ends}/>')
    parts += map(_text, scene.words)
    return "\n".join([*parts, "</svg>\n"])


def _path(line: Polyline) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in line.points.tolist())


def _text(words: Label) -> str:
    x, y = f"{words.x:.2f}", f"{words.y:.2f}"
    turned = f' transform="rotate({words.angle:.2f} {x} {y})"' if words.angle else ""
    anchor = "" if words.anchor == "start" else f' text-anchor="{words.anchor}"'
    place = f'x="{x}" y="{y}" dy="{CENTRED}em" font-size="{words.size:.2f}" fill="{words.colour}"'
    return f"<text {place}{anchor}{turned}>{escape(_NO_XML.sub(UNKNOWN, words.text))}</text>"


# PNG or PDF, by matplotlib, an optional dependency.

DPI = 200.0
"""Dots per inch of a PNG."""

MOST_DOTS = 60_000
"""Pixels of a PNG's side at most: matplotlib's renderer ends at 2^16."""

POINTS_PER_INCH = 72.0


def figure(scene: Scene, kind: str) -> bytes:
    """Content of a ``png`` or ``pdf`` file.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.collections import LineCollection
        from matplotlib.figure import Figure
    except ImportError as error:
        hint = "pip install 'mltree[draw]', or draw .svg, which needs nothing"
        raise InputError(f"{kind.upper()} takes matplotlib, which is missing", hint=hint) from error
    inches = scene.width / POINTS_PER_INCH, scene.height / POINTS_PER_INCH
    canvas = Figure(figsize=inches, facecolor="white")
    axes = canvas.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, scene.width)
    axes.set_ylim(scene.height, 0.0)
    axes.set_axis_off()
    lines = scene.lines
    axes.add_collection(
        LineCollection(
            [line.points for line in lines],
            colors=[line.colour for line in lines],
            linewidths=[line.width for line in lines],
            capstyle="projecting",
        )
    )
    for words in scene.words:
        _write(axes, words)
    return _saved(canvas, kind, min(DPI, MOST_DOTS / max(inches)))


def _write(axes: Any, words: Any) -> None:
    across = {"start": "left", "middle": "center", "end": "right"}[words.anchor]
    axes.text(
        words.x,
        words.y,
        words.text,
        fontsize=words.size,
        color=words.colour,
        ha=across,
        va="center_baseline",
        rotation=-words.angle,
        rotation_mode="anchor",
        parse_math=False,
    )


def _saved(canvas: Any, kind: str, dpi: float) -> bytes:
    """The file's content, without a date: equal scenes give equal files."""
    when = {"CreationDate": None} if kind == "pdf" else None
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.savefig(buffer, format=kind, dpi=dpi, metadata=when)
    return buffer.getvalue()


# Layouts: a tree as a scene, rectangular (tips in rows) or circular (around its root).
#
# Faint lines lead from a circular tree's tips to their names on the rim. Branches are drawn to
# scale, with a scale bar, if they have lengths; else all tips stand in line. Inner nodes lie midway
# between their outer children.

TWELVE_POINTS, SMALLEST_ROW = 12.0, 5.0
"""Height of a row, and of one among very many, in points."""

ROOMY = 200
"""Tips up to which rows keep their full height."""

MARGIN = 14.0
"""Margin around the picture, points."""

FACE = 0.78
"""Font size of a name, as a share of its row's height."""

SUPPORT_FACE = 0.75
"""Font size of a support, as a share of a name's."""

GAP = 4.0
"""Distance between a tip and its name, points."""

FULL_TURN = 350.0
"""Degrees that a circular tree takes; the gap tells its beginning from its end."""

ARC_STEP = 2.0
"""Degrees between points of an arc: small enough to look round."""

SHORTEST = 1e-300
"""Depth of a tree below which it is not drawn to scale: points per unit would overflow."""

SCALE_SHARE = 0.2
"""Length of the scale bar, as a share of the tree's depth, about."""


class Style(Value, kw_only=True):
    """Options of a tree's picture."""

    layout: Literal["rectangular", "circular"] = "rectangular"
    is_ladderised: bool = True
    is_scaled: bool = True
    """True to draw branches to scale."""
    shows_supports: bool = True
    width: float = 520.0
    """Width of a rectangular tree's branches, points; a circular tree's follows from its names."""


def draw(tree: WrittenTree, style: Style) -> Scene:
    """The picture of a tree."""
    tree = tree.ladderised() if style.is_ladderised else tree
    depth = _depths(tree, style.is_scaled)
    if style.layout == "circular":
        return _Circular(tree, depth, style).scene()
    return _Rectangular(tree, depth, style).scene()


def nice_length(longest: float) -> float:
    """Largest of 1, 2 and 5 times a power of ten not above ``length``."""
    power = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest * (1 + 1e-9))


def _depths(tree: WrittenTree, is_scaled: bool) -> Float64:
    """f64 [N]: distance of each node from the root, as drawn; the largest is above 0."""
    if is_scaled and _has_depth(tree):
        return tree.heights
    above = np.zeros(tree.n_nodes)
    for node in range(tree.n_nodes - 1, 0, -1):
        parent = tree.parent[node]
        above[parent] = max(above[parent], above[node] + 1.0)
    return np.asarray(max(above[0], 1.0) - above, np.float64)


def _has_depth(tree: WrittenTree) -> bool:
    """True if the tree has branch lengths to draw to scale."""
    return tree.is_measured and float(tree.heights.max()) > SHORTEST


def _rows(tree: WrittenTree) -> Float64:
    """f64 [N]: tips in rows 0, 1, ...; inner nodes midway between their outer children."""
    row = np.empty(tree.n_nodes)
    row[list(tree.tips)] = np.arange(len(tree.tips))
    for node in range(tree.n_nodes - 1, -1, -1):
        if below := tree.children[node]:
            row[node] = (row[below[0]] + row[below[-1]]) / 2.0
    return row


class _Layout:
    """Base of both layouts."""

    def __init__(self, tree: WrittenTree, depth: Float64, style: Style) -> None:
        self.tree, self.depth, self.style = tree, depth, style
        self.row, rows = _rows(tree), len(tree.tips)
        self.pitch = TWELVE_POINTS  # height of a row, points
        if rows > ROOMY:
            self.pitch = max(SMALLEST_ROW, TWELVE_POINTS * ROOMY / rows)
        self.face = FACE * self.pitch
        self.stroke = max(0.4, self.pitch / 11.0)
        self.names = max(width_of(tree.labels[tip], self.face) for tip in tree.tips)

    def supports(self) -> list[tuple[int, str]]:
        """Inner nodes but the root, with their labels."""
        if not self.style.shows_supports:
            return []
        inner = (n for n in range(1, self.tree.n_nodes) if self.tree.children[n])
        return [(node, self.tree.labels[node]) for node in inner if self.tree.labels[node]]

    def scale_bar(self, scene: Scene, x: float, y: float, points: float) -> None:
        """A scale bar, for ``points`` a unit of depth."""
        if not (self.style.is_scaled and _has_depth(self.tree)):
            return
        length = nice_length(float(self.depth.max()) * SCALE_SHARE)
        end = x + length * points
        for foot in (x, end):
            scene.line((foot, y - 3.0), (foot, y + 3.0), width=0.8, colour=FAINT)
        scene.line((x, y), (end, y), width=0.8, colour=FAINT)
        text = f"{length:g} substitutions per site"
        scene.words.append(Label(end + GAP, y, text, 8.0, colour=FAINT))


class _Rectangular(_Layout):
    def scene(self) -> Scene:
        n_tips = len(self.tree.tips)
        across = self.style.width / float(self.depth.max())
        height = 2 * MARGIN + n_tips * self.pitch + 2 * TWELVE_POINTS
        scene = Scene(2 * MARGIN + self.style.width + GAP + self.names, height)
        x = MARGIN + self.depth * across
        y = MARGIN + (self.row + 0.5) * self.pitch
        for node, below in enumerate(self.tree.children):
            start = x[self.tree.parent[node]] if node else x[node] - GAP
            scene.line((start, y[node]), (x[node], y[node]), width=self.stroke)
            if below:
                ends = (x[node], y[below[0]]), (x[node], y[below[-1]])
                scene.line(*ends, width=self.stroke)
            else:
                place = x[node] + GAP, y[node]
                scene.words.append(Label(*place, self.tree.labels[node], self.face))
        for node, label in self.supports():
            size = self.face * SUPPORT_FACE
            place = x[node] - 1.5, y[node] - 0.6 * size
            scene.words.append(Label(*place, label, size, "end", colour=ACCENT))
        self.scale_bar(scene, MARGIN, height - MARGIN - 0.5 * TWELVE_POINTS, across)
        return scene


class _Circular(_Layout):
    def scene(self) -> Scene:
        n_tips = len(self.tree.tips)
        radius = max(120.0, self.pitch * n_tips / math.radians(FULL_TURN))
        middle = MARGIN + radius + GAP + self.names
        scene = Scene(2 * middle, 2 * middle + 2 * TWELVE_POINTS)
        across = radius / float(self.depth.max())
        turn = self.row / n_tips * FULL_TURN
        for node, below in enumerate(self.tree.children):
            reach = self.depth[node] * across
            start = self.depth[self.tree.parent[node]] * across if node else reach
            ends = (_polar(middle, start, turn[node]), _polar(middle, reach, turn[node]))
            scene.line(*ends, width=self.stroke)
            if below:
                scene.line(*_arc(middle, reach, turn[below[0]], turn[below[-1]]), width=self.stroke)
            else:
                rim = _polar(middle, reach + GAP, turn[node]), _polar(middle, radius, turn[node])
                if radius - reach > 2.0 * GAP:
                    scene.line(*rim, width=0.3 * self.stroke, colour=FAINT)
                place = middle, radius + GAP, float(turn[node])
                scene.words.append(_along(*place, self.tree.labels[node], self.face, INK))
        for node, label in self.supports():
            size = self.face * SUPPORT_FACE
            inside = self.depth[node] * across - 1.5 - width_of(label, size)
            beside = 0.6 * size / max(inside, 1.0)  # clear of the branch
            place = middle, inside, float(turn[node] - math.degrees(beside))
            scene.words.append(_along(*place, label, size, ACCENT))
        self.scale_bar(scene, MARGIN, scene.height - MARGIN, across)
        return scene


def _polar(middle: float, radius: float, turn: float) -> tuple[float, float]:
    angle = math.radians(turn)
    return middle + radius * math.cos(angle), middle + radius * math.sin(angle)


def _along(middle: float, radius: float, turn: float, text: str, size: float, colour: str) -> Label:
    """Words that run outwards from a radius, never upside down."""
    x, y = _polar(middle, radius, turn)
    if 90.0 < turn < 270.0:
        return Label(x, y, text, size, "end", turn - 180.0, colour)
    return Label(x, y, text, size, "start", turn, colour)


def _arc(middle: float, radius: float, start: float, end: float) -> list[tuple[float, float]]:
    steps = max(2, math.ceil(abs(end - start) / ARC_STEP) + 1)
    return [_polar(middle, radius, float(turn)) for turn in np.linspace(start, end, steps)]
