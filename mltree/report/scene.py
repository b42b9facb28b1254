"""Scenes: lines, areas, dots and words on a page, as SVG, or by matplotlib as PNG or PDF.

Units are points (1/72 inch) from the upper left corner, angles degrees clockwise.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Literal

import numpy as np

from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.values import Value

INK, ACCENT, FAINT, RULE = "#1a1f24", "#0b62a4", "#8a949e", "#dfe4e8"
"""Colours: of branches and names, of supports, of leaders, of lines of the background."""

Point = tuple[float, float]

# Widths of words: no word is wider than said here in any face of FACES, nor in most others.

FACES = ("Helvetica", "Arial", "Liberation Sans", "DejaVu Sans")
"""Faces, the first that a reader has."""

_ADVANCES = (
    318, 401, 460, 838, 637, 951, 780, 275, 391, 391, 500, 838, 318, 361, 318, 337, 637, 637, 637,
    637, 637, 637, 637, 637, 637, 637, 337, 337, 838, 838, 838, 556, 1015, 685, 687, 722, 771, 667,
    611, 778, 752, 295, 500, 667, 558, 863, 749, 788, 667, 788, 722, 667, 611, 732, 685, 989, 686,
    667, 686, 391, 337, 391, 838, 556, 500, 613, 635, 550, 635, 616, 353, 635, 634, 278, 278, 580,
    278, 975, 634, 612, 635, 635, 412, 521, 393, 634, 592, 818, 592, 592, 525, 637, 337, 637, 838,
)  # fmt: skip
"""Widths of the characters from blank to tilde, thousandths of the size: the wider one of Helvetica
(Adobe's metrics, which Arial and Liberation Sans share) and of DejaVu Sans."""

WIDEST = 1.1
"""Width of a character that is none of them, as a share of the size: Cyrillic shcha in DejaVu."""

MONOSPACED, MONOSPACED_WIDTH = re.compile("mono|courier|consol|menlo|typewriter", re.I), 0.61
"""Names of faces whose narrow letters are as wide as all others."""

ASCENT, DESCENT = 0.42, 0.61
"""Height of letters above and below the middle of a line, as shares of the size."""

ACCENTED_ASCENT = 0.66
"""The same above, for letters with accents."""

DIGITS, DIGITS_DESCENT = frozenset("0123456789./-–"), 0.47
"""Characters without a descender, but for the slash's."""


def width_of(text: str, size: float, font: str = "") -> float:
    """Largest width that a text may have in a font, points."""
    least = MONOSPACED_WIDTH if MONOSPACED.search(font) else 0.0
    return size * sum(max(least, _advance(c)) for c in unicodedata.normalize("NFD", text))


def _advance(character: str) -> float:
    place = ord(character) - 32
    if 0 <= place < len(_ADVANCES):
        return _ADVANCES[place] / 1000.0
    return 0.0 if unicodedata.combining(character) else WIDEST


# The scene.


class Polyline(Value, eq=False):
    """A line through points."""

    points: Float64
    """f64 [n, 2]: x to the right, y down."""
    width: float
    colour: str = INK
    dash: float = 0.0
    """Length of dashes and gaps; 0 for a whole line."""


class Area(Value, eq=False):
    """A filled polygon behind all lines."""

    points: Float64
    """f64 [n, 2]: its corners."""
    fill: str
    edge: str = ""
    """Colour of its outline; empty for none."""
    width: float = 0.0


class Dot(Value):
    """A filled circle on top of all lines."""

    x: float
    y: float
    radius: float
    colour: str


class Label(Value):
    """A short text in a direction."""

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
    is_italic: bool = False
    font: str = ""
    """Face; empty for one of :data:`FACES`."""

    def box(self) -> Box:
        """The rectangle that holds the text."""
        width = width_of(self.text, self.size, self.font)
        is_number = DIGITS.issuperset(self.text)
        below = (DIGITS_DESCENT if is_number else DESCENT) * self.size
        above = (ASCENT if self.text.isascii() or is_number else ACCENTED_ASCENT) * self.size
        along = {"start": 0.5, "middle": 0.0, "end": -0.5}[self.anchor] * width
        turn = math.radians(self.angle)
        cos, sin, lower = math.cos(turn), math.sin(turn), (below - above) / 2.0
        middle = self.x + along * cos - lower * sin, self.y + along * sin + lower * cos
        return Box(*middle, width / 2.0, (above + below) / 2.0, cos, sin)


class Box(Value):
    """A rectangle of any direction."""

    x: float
    y: float
    """The middle of the box."""
    half_width: float
    half_height: float
    cos: float = 1.0
    sin: float = 0.0
    """Direction of its width."""

    @classmethod
    def around(cls, start: Point, end: Point, width: float) -> Box:
        """The rectangle that a line of some width covers."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        length = math.hypot(dx, dy)
        cos, sin = (dx / length, dy / length) if length else (1.0, 0.0)
        middle = (start[0] + end[0]) / 2.0, (start[1] + end[1]) / 2.0
        return cls(*middle, length / 2.0, width / 2.0, cos, sin)

    @property
    def corners(self) -> list[Point]:
        """The four corners, in turn."""
        across = self.half_width * self.cos, self.half_width * self.sin
        down = -self.half_height * self.sin, self.half_height * self.cos
        return [
            (self.x + i * across[0] + j * down[0], self.y + i * across[1] + j * down[1])
            for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))
        ]

    def overlaps(self, other: Box, slack: float = 0.0) -> bool:
        """True if two rectangles are less than ``slack`` apart: no side of one parts them."""
        dx, dy = other.x - self.x, other.y - self.y
        reach = self.half_width + self.half_height + other.half_width + other.half_height + slack
        if abs(dx) >= reach or abs(dy) >= reach:
            return False
        cos = abs(self.cos * other.cos + self.sin * other.sin)
        sin = abs(self.cos * other.sin - self.sin * other.cos)
        for one, two in ((self, other), (other, self)):
            along = abs(dx * one.cos + dy * one.sin)
            if along >= one.half_width + two.half_width * cos + two.half_height * sin + slack:
                return False
            across = abs(dy * one.cos - dx * one.sin)
            if across >= one.half_height + two.half_width * sin + two.half_height * cos + slack:
                return False
        return True


@dataclass
class Scene:
    """A picture: areas, lines, dots and words."""

    width: float = 0.0
    height: float = 0.0
    areas: list[Area] = field(default_factory=list)
    lines: list[Polyline] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    words: list[Label] = field(default_factory=list)
    font: str = ""
    """Face of all words; empty for one of :data:`FACES`."""

    def line(self, *points: Point, width: float, colour: str = INK, dash: float = 0.0) -> None:
        """Add a line through some points."""
        self.lines.append(Polyline(np.array(points, np.float64), width, colour, dash))

    def ground(self, areas: Iterable[Area]) -> None:
        """Put areas behind all others, the first one at the very back."""
        self.areas[:0] = areas

    def rule(self, *points: Point) -> None:
        """Add a line of the background."""
        self.lines.insert(0, Polyline(np.array(points, np.float64), 0.4, RULE))

    def bounds(self) -> tuple[float, float, float, float]:
        """Least x and y, largest x and y of everything in the picture; zeros if it is empty."""
        points = [line.points for line in self.lines] + [area.points for area in self.areas]
        points += [np.array(words.box().corners) for words in self.words]
        for dot in self.dots:
            reach = np.array([[-dot.radius], [dot.radius]])
            points.append(np.array([[dot.x, dot.y]]) + reach)
        every = np.vstack(points) if points else np.zeros((1, 2))
        return (*every.min(axis=0).tolist(), *every.max(axis=0).tolist())

    def moved(self, dx: float, dy: float) -> Scene:
        """A copy with everything in another place."""
        move = np.array([dx, dy])
        return Scene(
            self.width,
            self.height,
            [replace(a, points=a.points + move) for a in self.areas],
            [replace(line, points=line.points + move) for line in self.lines],
            [replace(dot, x=dot.x + dx, y=dot.y + dy) for dot in self.dots],
            [replace(words, x=words.x + dx, y=words.y + dy) for words in self.words],
            self.font,
        )


class Crowd:
    """Rectangles on a page, in squares of a grid: which of them does another one overlap?"""

    CELL = 24.0
    """Side of a square, points."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], list[Box]] = defaultdict(list)

    def add(self, box: Box) -> None:
        """Put a rectangle on the page."""
        for cell in self._under(box):
            self._cells[cell].append(box)

    def drop(self, boxes: Iterable[Box]) -> None:
        """Take rectangles off the page, as objects."""
        gone = set(map(id, boxes))
        for cell, kept in self._cells.items():
            self._cells[cell] = [box for box in kept if id(box) not in gone]

    def is_free(self, box: Box, slack: float = 0.0, but: Box | None = None) -> bool:
        """True if a rectangle overlaps no other, ``but`` one perhaps."""
        return not any(
            other is not but and box.overlaps(other, slack)
            for cell in self._under(box)
            for other in self._cells.get(cell, ())
        )

    def _under(self, box: Box) -> set[tuple[int, int]]:
        """The squares that a rectangle reaches, and perhaps some beside it."""
        steps = max(1, math.ceil(2.0 * box.half_width / self.CELL))
        wide = max(1, math.ceil(2.0 * box.half_height / self.CELL))
        cells = set()
        for side in range(wide + 1):
            across = (2.0 * side / wide - 1.0) * box.half_height
            x0, y0 = box.x - across * box.sin, box.y + across * box.cos
            for step in range(steps + 1):
                along = (2.0 * step / steps - 1.0) * box.half_width
                column = math.floor((x0 + along * box.cos) / self.CELL - 0.5)
                row = math.floor((y0 + along * box.sin) / self.CELL - 0.5)
                cells.add((column, row))
        return {(c + i, r + j) for c, r in cells for i in (0, 1) for j in (0, 1)}


ARC_STEP = 2.0
"""Degrees between points of an arc: small enough to look round."""


def polar(radius: float, turn: float) -> Point:
    """The point at a distance and direction (degrees) from the origin."""
    angle = math.radians(turn)
    return radius * math.cos(angle), radius * math.sin(angle)


def arc(radius: float, start: float, end: float) -> list[Point]:
    """Points of an arc about the origin, from a direction to another, degrees."""
    steps = max(2, math.ceil(abs(end - start) / ARC_STEP) + 1)
    return [polar(radius, float(turn)) for turn in np.linspace(start, end, steps)]


def hull(points: Iterable[Point]) -> Float64:
    """Corners of the smallest convex area that holds some points (Andrew's monotone chain)."""
    every = sorted(set(points))
    corners: list[Point] = []
    for side in (every, every[::-1]):
        chain: list[Point] = []
        for x, y in side:
            while len(chain) > 1:
                (x1, y1), (x2, y2) = chain[-2:]
                if (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) > 0.0:
                    break
                chain.pop()
            chain.append((x, y))
        corners += chain[:-1] or chain
    return np.array(corners, np.float64)


# SVG, without any library: one path for the lines of a kind, words as text.

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
    family = escape(", ".join(f"'{face}'" for face in _faces(scene.font)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{family}, sans-serif">',
        f'<rect width="{scene.width:.2f}" height="{scene.height:.2f}" fill="#fff"/>',
    ]
    for area in scene.areas:
        edge = f' stroke="{area.edge}" stroke-width="{area.width:.2f}"' if area.edge else ""
        joined = ' stroke-linejoin="round"' if area.edge else ""
        parts.append(f'<path d="{_path(area.points)}Z" fill="{area.fill}"{edge}{joined}/>')
    kinds: dict[tuple[str, float, float], list[Polyline]] = defaultdict(list)
    for line in scene.lines:
        kinds[line.colour, line.width, line.dash].append(line)
    for (colour, width, dash), lines in kinds.items():
        ends = 'fill="none"' + ("" if dash else ' stroke-linecap="square"')
        dashes = f' stroke-dasharray="{dash:g}"' if dash else ""
        path = "".join(_path(line.points) for line in lines)
        stroke = f'stroke="{colour}" stroke-width="{width:.2f}"'
        parts.append(f'<path d="{path}" {stroke}{dashes} {ends}/>')
    parts += [
        f'<circle cx="{dot.x:.2f}" cy="{dot.y:.2f}" r="{dot.radius:.2f}" fill="{dot.colour}"/>'
        for dot in scene.dots
    ]
    parts += map(_text, scene.words)
    return "\n".join([*parts, "</svg>\n"])


def _faces(font: str) -> list[str]:
    """Faces to look for, the wanted one first."""
    return [*([font.replace("'", "")] if font else []), *FACES]


def _path(points: Float64) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points.tolist())


def _text(words: Label) -> str:
    x, y = f"{words.x:.2f}", f"{words.y:.2f}"
    turned = f' transform="rotate({words.angle:.2f} {x} {y})"' if words.angle else ""
    anchor = "" if words.anchor == "start" else f' text-anchor="{words.anchor}"'
    slanted = ' font-style="italic"' if words.is_italic else ""
    place = f'x="{x}" y="{y}" dy="{CENTRED}em" font-size="{words.size:.2f}" fill="{words.colour}"'
    text = escape(_NO_XML.sub(UNKNOWN, words.text))
    return f"<text {place}{anchor}{slanted}{turned}>{text}</text>"


# PNG or PDF, by matplotlib, an optional dependency.

DPI = 300.0
"""Dots per inch of a PNG, as journals want them."""

MOST_DOTS = 60_000
"""Pixels of a PNG's side at most: matplotlib's renderer ends at 2^16."""

POINTS_PER_INCH = 72.0


def figure(scene: Scene, kind: str, dpi: float = DPI) -> bytes:
    """Content of a ``png`` or ``pdf`` file.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.collections import EllipseCollection, LineCollection, PolyCollection
        from matplotlib.figure import Figure
        from matplotlib.font_manager import fontManager
    except ImportError as error:
        hint = "pip install 'mltree[draw]', or draw .svg, which needs nothing"
        raise InputError(f"{kind.upper()} takes matplotlib, which is missing", hint=hint) from error
    inches = scene.width / POINTS_PER_INCH, scene.height / POINTS_PER_INCH
    canvas = Figure(figsize=inches, facecolor="white")
    axes: Any = canvas.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, scene.width)
    axes.set_ylim(scene.height, 0.0)
    axes.set_axis_off()
    areas, lines, dots = scene.areas, scene.lines, scene.dots
    if areas:
        axes.add_collection(
            PolyCollection(
                [area.points for area in areas],
                facecolors=[area.fill for area in areas],
                edgecolors=[area.edge or "none" for area in areas],
                linewidths=[area.width for area in areas],
                zorder=1,
            )
        )
    for dashed in (False, True):
        kind_of = [line for line in lines if bool(line.dash) is dashed]
        axes.add_collection(
            LineCollection(
                [line.points for line in kind_of],
                colors=[line.colour for line in kind_of],
                linewidths=[line.width for line in kind_of],
                linestyles=[(0.0, (line.dash, line.dash)) if dashed else "-" for line in kind_of],
                capstyle="butt" if dashed else "projecting",
                zorder=2,
            )
        )
    if dots:
        sizes = np.array([2.0 * dot.radius for dot in dots])
        axes.add_collection(
            EllipseCollection(
                sizes,
                sizes,
                np.zeros(len(dots)),
                units="xy",
                offsets=[(dot.x, dot.y) for dot in dots],
                offset_transform=axes.transData,
                facecolors=[dot.colour for dot in dots],
                edgecolors="none",
                zorder=3,
            )
        )
    known = {face.name for face in fontManager.ttflist}
    faces = [face for face in _faces(scene.font) if face in known]
    for words in scene.words:
        _write(axes, words, faces)
    return _saved(canvas, kind, min(dpi, MOST_DOTS / max(inches)))


def _write(axes: Any, words: Label, faces: Sequence[str]) -> None:
    across = {"start": "left", "middle": "center", "end": "right"}[words.anchor]
    turn = math.radians(words.angle)
    below = CENTRED * words.size  # the baseline, as SVG has it
    axes.text(
        words.x - below * math.sin(turn),
        words.y + below * math.cos(turn),
        words.text,
        fontsize=words.size,
        color=words.colour,
        ha=across,
        va="baseline",
        rotation=-words.angle,
        rotation_mode="anchor",
        parse_math=False,
        fontfamily=faces,
        fontstyle="italic" if words.is_italic else "normal",
        zorder=4,
    )


def _saved(canvas: Any, kind: str, dpi: float) -> bytes:
    """The file's content, without a date: equal scenes give equal files."""
    when = {"CreationDate": None} if kind == "pdf" else None
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.savefig(buffer, format=kind, dpi=dpi, metadata=when)
    return buffer.getvalue()


def on_page(
    scene: Scene, size: tuple[float | None, float | None], font: str, margin: float
) -> Scene:
    """The picture in the middle of its page, whose size follows from it where None is given.

    Raises: InputError: the page is too small.
    """
    left, top, right, bottom = scene.bounds()
    taken = right - left + 2.0 * margin, bottom - top + 2.0 * margin
    for points, least, name in zip(size, taken, ("wide", "high"), strict=True):
        if points is not None and least > points + 0.1:
            problem = f"a picture of {points:.0f} points is too small: names and legend make it"
            hint = "a larger picture, a smaller --font-size, or another --layout has room"
            raise InputError(f"{problem} {least:.0f} points {name}", hint=hint)
    page = [least if one is None else one for one, least in zip(size, taken, strict=True)]
    aside, down = ((one - least) / 2.0 for one, least in zip(page, taken, strict=True))
    moved = scene.moved(margin - left + aside, margin - top + down)
    moved.width, moved.height, moved.font = page[0], page[1], font
    return moved
