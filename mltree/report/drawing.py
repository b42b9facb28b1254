"""Pictures of trees: rectangular (tips in rows), circular (around the root), unrooted.

No words overlap other words or lines: names have rows or wedges of their own; supports stand where
there is room, and those that find none are told of. Everything is inside the page, whose size
follows from the tree unless it is given.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np

from mltree.report.scene import (
    ACCENT,
    ACCENTED_ASCENT,
    ASCENT,
    DESCENT,
    DIGITS_DESCENT,
    FAINT,
    INK,
    Area,
    Box,
    Crowd,
    Dot,
    Label,
    Point,
    Scene,
    arc,
    hull,
    on_page,
    polar,
    width_of,
)
from mltree.report.style import Clade, Style, Support, TreePlan, dates, nice_length, pale, plan_of
from mltree.system.errors import InputError
from mltree.system.events import Emit, Notice, ignore
from mltree.tree.clades import WrittenTree

TWELVE_POINTS, SMALLEST_ROW = 12.0, 5.0
"""Height of a row, and of one among very many, in points."""

ROOMY = 200
"""Tips up to which rows keep their full height, and supports are written beside branches."""

MARGIN = 14.0
"""Margin around the picture, points."""

FACE, SUPPORT_FACE = 0.78, 0.75
"""Font size of a name, as a share of its row's height, and of a support, of a name's."""

SMALLEST_FACE = 1.0
"""Smallest font size of a picture, points."""

GAP = 4.0
"""Distance between a tip and its name, points."""

BRANCHES, RADIUS, LEAST_LENGTH = 400.0, 130.0, 24.0
"""Width of a rectangular tree's branches, radius of a small circular one, least of both."""

FULL_TURN = 350.0
"""Degrees that a circular tree takes; the gap tells its beginning from its end."""

SCALE_SHARE = 0.2
"""Length of the scale bar, as a share of the tree's depth, about."""

TRIANGLE, BAR_COLOUR, BAR = "#e4eaf0", "#c3daee", 0.21
"""Colours of collapsed clades and of nodes' bars, and half the height of a bar in rows."""

LEGEND_FACE, LEGEND_ROW = 8.0, 1.75
"""Font size of the legend, and height of its lines as a share of that."""

THINNEST, SMALLEST_LEGEND = 2000.0, 150.0
"""Width of a large round tree in branches' widths, and in font sizes of its legend, at most."""

SLACK = 0.5
"""Points between a support and anything else, at least."""

SMALLEST_SPAN = 1e-300
"""Extent of an unrooted tree whose branches have no length."""

GROWTHS, FEW = (1.0, 1.4, 1.9), 0.02
"""Sizes tried for a page of no given size, and the share of supports without room that will do."""

APART = 55.0
"""Points between ticks of a time axis, at least."""

NAMES_SHARE = 0.25
"""Share of a page of given size that the longest name takes at most, if no font size is given."""

MOST_TRIES = 30
"""Layouts tried for a page of a given size."""


Entry = tuple[float, Callable[[Scene, float, float], None]]
"""Width of an entry of a legend, and the function that draws it at a place."""


def draw(tree: WrittenTree, style: Style, emit: Emit = ignore) -> Scene:
    """The picture of a tree; notices tell of what it does not show.

    Raises:
        InputError: a taxon is not in the tree, or the page is too small.
    """
    plan = plan_of(tree, style, emit)
    kind, tries = LAYOUTS[style.layout], []
    for growth in GROWTHS if style.size == (None, None) else (1.0,):
        layout = kind(plan, style, growth)
        for _ in range(MOST_TRIES):
            scene = layout.bare()
            if not layout.resize(*_spare(scene, style.size, layout)):
                break
        left, every = layout.write_supports(scene)
        tries.append((left, scene))
        if left <= FEW * every:
            break
    left, scene = min(tries, key=lambda one: one[0])
    scene = on_page(scene, style.size, style.font, MARGIN)
    if left:
        text = f"{left:,} of {every:,} supports find no room beside their branches"
        emit(Notice(f"{text}: a larger picture has more, --supports dots shows all"))
    return scene


def _spare(
    scene: Scene, page: tuple[float | None, float | None], layout: _Layout
) -> tuple[float, float]:
    """Free points of the page, across and down; infinite where it may grow."""
    layout.frame = left, top, right, bottom = scene.bounds()
    width, height = page
    across = math.inf if width is None else width - 2.0 * MARGIN - (right - left)
    return across, math.inf if height is None else height - 2.0 * MARGIN - (bottom - top)


class _Layout(ABC):
    """Base of the layouts: branches, names, supports, clades, legend."""

    def __init__(self, plan: TreePlan, style: Style, growth: float) -> None:
        self.plan, self.style, self.tree = plan, style, plan.tree
        self.growth, rows = growth, plan.n_rows
        roomy = TWELVE_POINTS
        if rows > ROOMY:
            roomy = max(SMALLEST_ROW, TWELVE_POINTS * ROOMY / rows)
        if style.font_size is not None:
            roomy = style.font_size / FACE
        elif any(style.size):
            page = min(size for size in style.size if size is not None)
            names = max(width_of(self.tree.labels[tip], FACE, style.font) for tip in self.tree.tips)
            roomy = min(roomy, max(NAMES_SHARE * page / names, SMALLEST_FACE / FACE))
        self.roomy = self.pitch = roomy
        """Height of a row where there is room, and as it is, points."""
        self.length = 0.0
        """Points from the root to the deepest tip."""
        self.frame = (0.0, 0.0, 0.0, 0.0)
        """Bounds of the picture without supports."""
        self.crowd = Crowd()
        labels = ("labels",) if len(plan.tree.tips) <= ROOMY else ("colours",)
        self.marks = labels if style.supports.marks is None else style.supports.marks
        self.colours = {one.node: one.colour for one in plan.supports if one.colour}

    @property
    def face(self) -> float:
        """Font size of names, points."""
        return self.style.font_size or FACE * min(self.pitch, self.roomy)

    @property
    def spread(self) -> float:
        """Width of a round tree, points; 0 where the tree grows downwards alone."""
        return 0.0

    @property
    def stroke(self) -> float:
        """Width of branches, points."""
        large = min(0.25 * self.pitch, self.spread / THINNEST)
        return max(0.4, large, min(self.face / FACE, TWELVE_POINTS) / 11.0)

    @property
    def small(self) -> float:
        """Font size of the legend, points."""
        return max(LEGEND_FACE, self.spread / SMALLEST_LEGEND)

    @property
    def dot(self) -> float:
        """Radius of a support's dot, points."""
        return max(0.9, 0.22 * self.face)

    @property
    def least_pitch(self) -> float:
        """Height of a row in which names just do not touch."""
        return (self.style.font_size or SMALLEST_FACE) * (ACCENTED_ASCENT + DESCENT)

    @property
    def across(self) -> float:
        """Points for a unit of depth."""
        return self.length / float(self.plan.depth.max())

    @abstractmethod
    def bare(self) -> Scene:
        """Everything but supports' labels; fills the crowd with what they must not touch."""

    @abstractmethod
    def resize(self, across: float, down: float) -> bool:
        """Take up spare points, or give up points where they are below 0; False for no change."""

    @abstractmethod
    def heading(self, node: int) -> tuple[Point, float]:
        """Place of a node, and the direction of the branch that ends there, degrees."""

    def line(self, scene: Scene, *points: Point, colour: str = INK) -> None:
        """Draw a branch, or a part of one."""
        scene.line(*points, width=self.stroke, colour=colour)
        self.keep_clear(points, self.stroke)

    def keep_clear(self, points: Sequence[Point], width: float) -> None:
        """Let no words touch a line."""
        for start, end in pairwise(points):
            self.crowd.add(Box.around(start, end, width))

    def branch_colour(self, node: int) -> str:
        """Colour of the branch above a node."""
        by_support = self.colours.get(node, INK) if "colours" in self.marks else INK
        return self.style.branches.get(node, by_support)

    def write(self, scene: Scene, label: Label) -> None:
        """Write a text where nothing else may be."""
        scene.words.append(label)
        self.crowd.add(label.box())

    def text(self, place: Point, turn: float, text: str, size: float, colour: str = INK) -> Label:
        """A text that runs in a direction away from a place, never upside down."""
        turn %= 360.0
        anchor: Literal["start", "end"] = "end" if 90.0 < turn < 270.0 else "start"
        turn -= 180.0 if anchor == "end" else 360.0 if turn >= 270.0 else 0.0
        return Label(*place, text, size, anchor, turn, colour, font=self.style.font)

    def name(self, node: int, place: Point, turn: float) -> Label:
        """The name of a tip, running away from a place; no clade's is in italics."""
        label = self.text(place, turn, self.tree.labels[node], self.face)
        return replace(label, is_italic=self.style.is_italic and self.plan.rows[node] == 1.0)

    def triangle(self, scene: Scene, corners: Sequence[Point]) -> None:
        """Draw a collapsed clade."""
        scene.areas.append(Area(np.array(corners, np.float64), TRIANGLE, INK, self.stroke))
        self.keep_clear([*corners, corners[0]], self.stroke)

    def dots(self, scene: Scene) -> None:
        """Draw dots on nodes with enough support."""
        for support in self.plan.supports if "dots" in self.marks else ():
            if support.colour and support.text:
                place, _ = self.heading(support.node)
                scene.dots.append(Dot(*place, self.dot, support.colour))
                self.crowd.add(Box(*place, self.dot, self.dot))

    # Supports beside their branches.

    def write_supports(self, scene: Scene) -> tuple[int, int]:
        """Write supports where they touch nothing; returns how many have no room, and of how many.

        Each is beside its branch, between its node's children, or led to its branch by a line.
        """
        every = [one for one in self.plan.supports if one.text and "labels" in self.marks]
        left = every
        for share in (1.0, 0.8):
            size = self.face * SUPPORT_FACE * share
            for places in (self.beside, self.between):
                left = [one for one in left if not self._written(scene, places(one, size))]
        left = [one for one in left if not self._led(scene, one, 0.8 * self.face * SUPPORT_FACE)]
        return len(left), len(every)

    def _written(self, scene: Scene, places: Iterable[Label]) -> bool:
        for label in places:
            if self._is_free(label):
                self.write(scene, label)
                return True
        return False

    def _is_free(self, label: Label) -> bool:
        box = label.box()
        return self._is_inside(box) and self.crowd.is_free(box, SLACK)

    def _is_inside(self, box: Box) -> bool:
        """True for a rectangle on the page, where its size is given."""
        width, height = self.style.size
        left, top, right, bottom = self.frame
        return all(
            (width is None or left <= x <= right) and (height is None or top <= y <= bottom)
            for x, y in box.corners
        )

    def local(self, node: int, along: float, over: float) -> tuple[Point, float]:
        """A place so far along a node's branch and to the right of it; the branch's direction."""
        (x, y), turn = self.heading(node)
        angle = math.radians(turn)
        cos, sin = math.cos(angle), math.sin(angle)
        return (x + along * cos - over * sin, y + along * sin + over * cos), turn

    def beside(self, support: Support, size: float) -> Iterator[Label]:
        """Places on either side of the branch, where its node is: away from the parent's line."""
        node = support.node
        above, below = -DIGITS_DESCENT * size - self.stroke, ASCENT * size + self.stroke
        if 90.0 < self.heading(node)[1] % 360.0 < 270.0:
            above, below = -above, -below
        is_last = self.tree.children[self.tree.parent[node]][-1] == node
        for over in (below, above) if is_last else (above, below):
            for along in (-1.5, 0.0, 0.25 * size):
                place, turn = self.local(node, along, over)
                yield self.text(place, turn + 180.0, support.text, size, ACCENT)

    def between(self, support: Support, size: float) -> Iterator[Label]:
        """Places between the branches of the node's children."""
        gap = self.stroke + 1.5 + (self.dot if "dots" in self.marks else 0.0)
        for over in (0.0, -0.6, 0.6, -1.1, 1.1, -1.7, 1.7):
            place, turn = self.local(support.node, gap, over * size)
            yield self.text(place, turn, support.text, size, ACCENT)

    def _led(self, scene: Scene, support: Support, size: float) -> bool:
        """Write a support some way off, with a line that leads to its branch."""
        node, depth = support.node, self.plan.depth
        branch = float(depth[node] - depth[self.tree.parent[node]]) * self.across
        foot, _ = self.local(node, -0.5 * branch, 0.0)
        for distance in (1.2, 1.8, 2.5, 3.3, 4.2, 5.2):
            for along in (-4.0, -10.0, -18.0, -28.0, -40.0):
                for side in (-size, size):
                    place, turn = self.local(node, along, side * distance)
                    label = self.text(place, turn + 180.0, support.text, size, ACCENT)
                    if not self._is_free(label):
                        continue
                    away = math.hypot(place[0] - foot[0], place[1] - foot[1])
                    part = min(2.0 * self.stroke / away, 0.5)
                    near = (
                        foot[0] + part * (place[0] - foot[0]),
                        foot[1] + part * (place[1] - foot[1]),
                    )
                    lead = Box.around(place, near, 0.3)
                    if not self.crowd.is_free(lead):
                        continue
                    self.write(scene, label)
                    scene.line(place, foot, width=0.35, colour=FAINT)
                    self.crowd.add(lead)
                    return True
        return False

    # Clades and the legend.

    def tips_of(self, node: int) -> list[int]:
        """The tips of a clade, in order."""
        return [tip for tip in self.tree.tips if node <= tip < self.tree.ends[node]]

    def span(self, node: int) -> tuple[float, float]:
        """Rows at which a clade begins and ends."""
        tips, plan = self.tips_of(node), self.plan
        half = plan.rows / 2.0
        return float((plan.row - half)[tips[0]]), float((plan.row + half)[tips[-1]])

    def levels(self) -> list[int]:
        """Column of each highlighted clade's name: outside those of clades within it."""
        nodes = [node for node, _ in self.plan.highlights]
        ends = [int(self.tree.ends[node]) for node in nodes]
        columns = [0] * len(nodes)
        for inner in range(len(nodes) - 1, -1, -1):
            for outer in range(inner):
                if nodes[outer] <= nodes[inner] and ends[inner] <= ends[outer]:
                    columns[outer] = max(columns[outer], columns[inner] + 1)
        return columns

    def legend(self, scene: Scene, clades: Sequence[Clade] = ()) -> None:
        """Write scale bar, supports and clades under the tree, from left to right in lines."""
        left, _, right, bottom = scene.bounds()
        x, y = left, bottom + LEGEND_ROW * self.small
        for width, put in self._entries(clades):
            if x > left and x + width > max(right, left + (self.style.size[0] or 0.0) - 2 * MARGIN):
                x, y = left, y + LEGEND_ROW * self.small
            put(scene, x, y)
            x += width + 2.0 * self.small

    def _entries(self, clades: Sequence[Clade]) -> Iterator[Entry]:
        """Entries of the legend, from left to right."""
        axis = self.style.axis
        if axis.kind == "scale" and self.plan.is_measured:
            length = nice_length(float(self.plan.depth.max()) * SCALE_SHARE)
            points = length * self.across
            text = f"{length:g} {axis.unit or 'substitutions per site'}"
            yield (
                points + GAP + width_of(text, self.small, self.style.font),
                lambda scene, x, y: self._bar(scene, x, y, points, text),
            )
        supports = self.style.supports
        shown = [one for one in self.plan.supports if one.text]
        if shown and "labels" in self.marks and supports.title:
            yield self._worded(supports.title, ACCENT)
        if shown and {"colours", "dots"} & set(self.marks):
            yield from self._steps(supports.names)
        for clade in clades:
            if clade.name:
                yield self._worded(clade.name, INK, pale(clade.colour))

    def _steps(self, names: Sequence[str]) -> Iterator[Entry]:
        """The colours of supports."""
        columns, plan = self.style.supports.columns, self.plan
        number = columns[-1] if columns else plan.n_columns
        name = names[number - 1] if 0 < number <= len(names) else "Support"
        steps = plan.colours
        used = {one.colour for one in plan.supports}
        yield self._worded(f"{name}:", INK)
        for place, (start, colour) in enumerate(steps):
            if colour in used:
                end = f"–{steps[place + 1][0]:g}" if place + 1 < len(steps) else ""
                yield self._worded(f"{start:g}{end}" if end else f"≥ {start:g}", INK, colour)

    def _worded(self, text: str, colour: str, swatch: str = "") -> Entry:
        """An entry of words, behind a square of a colour where there is one."""
        indent = 1.3 * self.small if swatch else 0.0

        def put(scene: Scene, x: float, y: float) -> None:
            if swatch:
                half = self.small / 2.0
                side = [(0.0, -half), (2.0 * half, -half), (2.0 * half, half), (0.0, half)]
                scene.areas.append(Area(np.add(side, (x, y)), swatch))
            scene.words.append(self.text((x + indent, y), 0.0, text, self.small, colour))

        return indent + width_of(text, self.small, self.style.font), put

    def _bar(self, scene: Scene, x: float, y: float, points: float, text: str) -> None:
        for foot in (x, x + points):
            scene.line((foot, y - 3.0), (foot, y + 3.0), width=0.8, colour=INK)
        scene.line((x, y), (x + points, y), width=0.8, colour=INK)
        scene.words.append(self.text((x + points + GAP, y), 0.0, text, self.small))

    def dates(self, apart: float) -> list[tuple[float, str]]:
        """Depths of the ticks of a time axis, and their numbers."""
        deepest = float(self.plan.depth.max()) - self.earliest
        most = max(2, min(8, int(deepest * self.across / apart)))
        ticks = dates(deepest, self.style.axis.latest, most)
        return [(depth + self.earliest, number) for depth, number in ticks]

    @property
    def earliest(self) -> float:
        """Depth at which a time axis begins: the root's, or that of a bar before it."""
        return min((0.0, *(start for start, _ in self.style.bars.values())))


class _Rectangular(_Layout):
    def __init__(self, plan: TreePlan, style: Style, growth: float) -> None:
        super().__init__(plan, style, growth)
        self.length = BRANCHES * growth

    def resize(self, across: float, down: float) -> bool:
        length, pitch = self.length, self.pitch
        if math.isfinite(across):
            self.length = max(LEAST_LENGTH, length + across)
        if math.isfinite(down):
            self.pitch = max(self.least_pitch, pitch + down / self.plan.n_rows)
        return abs(self.length - length) > 0.01 or abs(self.pitch - pitch) * self.plan.n_rows > 0.01

    def heading(self, node: int) -> tuple[Point, float]:
        x = float(self.plan.depth[node]) * self.across
        return (x, float(self.plan.row[node]) * self.pitch), 0.0

    def bare(self) -> Scene:
        scene, plan = Scene(), self.plan
        self.crowd = Crowd()
        x, y = plan.depth * self.across, plan.row * self.pitch
        for node, below in enumerate(self.tree.children):
            start = x[self.tree.parent[node]] if node else x[node] - GAP
            ends = (float(start), float(y[node])), (float(x[node]), float(y[node]))
            self.line(scene, *ends, colour=self.branch_colour(node))
            if below:
                self.line(scene, *((float(x[node]), float(y[n])) for n in (below[0], below[-1])))
                continue
            end = float(x[node])
            if plan.rows[node] > 1.0 or plan.reach[node] > plan.depth[node]:
                half = 0.4 * float(plan.rows[node]) * self.pitch
                end = max(float(plan.reach[node]) * self.across, end + 8.0)
                self.triangle(scene, [ends[1], (end, ends[1][1] - half), (end, ends[1][1] + half)])
            self.write(scene, self.name(node, (end + GAP, ends[1][1]), 0.0))
        for node, (start, end) in self.style.bars.items():
            half, middle = BAR * self.pitch, float(y[node])
            sides = [(start, -half), (end, -half), (end, half), (start, half)]
            corners = np.array([(depth * self.across, middle + over) for depth, over in sides])
            scene.areas.append(Area(corners, BAR_COLOUR))
        self.dots(scene)
        self.bands(scene)
        if self.style.axis.kind == "time":
            self.time_axis(scene)
        self.legend(scene)
        return scene

    def bands(self, scene: Scene) -> None:
        """Shade highlighted clades, and write their names beside bars."""
        if not self.plan.highlights:
            return
        plan, tree = self.plan, self.tree
        right, grounds = scene.bounds()[2] + 3.0, []
        for node, clade in self.plan.highlights:
            stem = plan.depth[tree.parent[node]] if node else 0.0
            left = 0.5 * float(plan.depth[node] + stem) * self.across - (0.0 if node else GAP)
            first, last = self.span(node)
            top, foot = first * self.pitch + 0.5, last * self.pitch - 0.5
            corners = np.array([(left, top), (right, top), (right, foot), (left, foot)])
            grounds.append(Area(corners, pale(clade.colour)))
        scene.ground(grounds)
        start, levels = right + 5.0, self.levels()
        for level in range(max(levels) + 1):
            widest = 0.0
            for (node, clade), column in zip(plan.highlights, levels, strict=True):
                if column != level or not clade.name:
                    continue
                first, last = self.span(node)
                ends = first * self.pitch + 1.5, last * self.pitch - 1.5
                scene.line(*((start, end) for end in ends), width=2.0, colour=clade.colour)
                place = start + 6.0, (ends[0] + ends[1]) / 2.0
                self.write(scene, self.text(place, 0.0, clade.name, self.face))
                widest = max(widest, width_of(clade.name, self.face, self.style.font))
            start += widest + 14.0

    def time_axis(self, scene: Scene) -> None:
        """Draw an axis under the tree, and faint lines up from its ticks."""
        _, top, _, bottom = scene.bounds()
        y = bottom + 6.0
        scene.line((self.earliest * self.across, y), (self.length, y), width=0.8)
        for depth, number in self.dates(APART):
            x = depth * self.across
            scene.line((x, y), (x, y + 3.5), width=0.8)
            scene.rule((x, top), (x, y))
            size = self.small
            scene.words.append(Label(x, y + 9.0, number, size, "middle", font=self.style.font))
        middle = self.length / 2.0, y + 9.0 + LEGEND_ROW * self.small
        label = Label(*middle, self.style.axis.title, self.small, "middle", font=self.style.font)
        scene.words.append(label)


class _Circular(_Layout):
    def __init__(self, plan: TreePlan, style: Style, growth: float) -> None:
        super().__init__(plan, style, growth)
        self.length = growth * max(RADIUS, self.roomy / self.pitch_share)
        self.pitch = self.length * self.pitch_share

    @property
    def spread(self) -> float:
        return 2.0 * self.length

    @property
    def pitch_share(self) -> float:
        """Height of a row on the rim, as a share of the radius."""
        return math.radians(FULL_TURN) / self.plan.n_rows

    def resize(self, across: float, down: float) -> bool:
        spare, length = min(across, down) / 2.0, self.length
        if math.isfinite(spare):
            least = max(LEAST_LENGTH, self.least_pitch / self.pitch_share)
            self.length = max(least, length + spare)
            self.pitch = self.length * self.pitch_share
        return abs(self.length - length) > 0.01

    def turn(self, row: float) -> float:
        """Direction of a row from the root, degrees."""
        return row / self.plan.n_rows * FULL_TURN

    def heading(self, node: int) -> tuple[Point, float]:
        turn = self.turn(float(self.plan.row[node]))
        return polar(float(self.plan.depth[node]) * self.across, turn), turn

    def bare(self) -> Scene:
        scene, plan = Scene(), self.plan
        self.crowd = Crowd()
        for node, below in enumerate(self.tree.children):
            reach = float(plan.depth[node]) * self.across
            start = float(plan.depth[self.tree.parent[node]]) * self.across if node else reach
            turn = self.turn(float(plan.row[node]))
            ends = polar(start, turn), polar(reach, turn)
            self.line(scene, *ends, colour=self.branch_colour(node))
            if below:
                first, last = (self.turn(float(plan.row[n])) for n in (below[0], below[-1]))
                self.line(scene, *arc(reach, first, last))
                continue
            if plan.rows[node] > 1.0 or plan.reach[node] > plan.depth[node]:
                reach = max(float(plan.reach[node]) * self.across, reach + 8.0)
                most = math.degrees(0.4 * float(plan.rows[node]) * self.roomy / reach)
                half = min(self.turn(0.4 * float(plan.rows[node])), most)
                self.triangle(scene, [ends[1], *arc(reach, turn - half, turn + half)])
            reach = min(reach, self.length)
            if self.length - reach > 2.0 * GAP:
                rim = polar(reach + GAP, turn), polar(self.length, turn)
                scene.line(*rim, width=0.3 * self.stroke, colour=FAINT)
                self.keep_clear(rim, 0.3 * self.stroke)
            self.write(scene, self.name(node, polar(self.rim, turn), turn))
        self.dots(scene)
        if self.style.axis.kind == "time":
            self.rings(scene)
        self.sectors(scene)
        self.legend(scene)
        return scene

    @property
    def rim(self) -> float:
        """Radius at which names begin."""
        longest = max(float(self.plan.reach.max()) * self.across, self.length)
        return longest + GAP

    def sectors(self, scene: Scene) -> None:
        """Shade highlighted clades, and write their names beside arcs."""
        if not self.plan.highlights:
            return
        plan, font = self.plan, self.style.font
        names = max(width_of(self.tree.labels[tip], self.face, font) for tip in self.tree.tips)
        outer = self.rim + names + 3.0
        spans, grounds = [], []
        for node, clade in plan.highlights:
            first, last = map(self.turn, self.span(node))
            spans.append((first, last))
            stem = float(plan.depth[self.tree.parent[node]]) if node else 0.0
            inner = 0.5 * (float(plan.depth[node]) + stem) * self.across
            points = [*arc(outer, first, last), *arc(inner, last, first)]
            grounds.append(Area(np.array(points), pale(clade.colour)))
        scene.ground(grounds)
        start, levels = outer + 4.0, self.levels()
        for level in range(max(levels) + 1):
            widest = 0.0
            for (_, clade), column, span in zip(plan.highlights, levels, spans, strict=True):
                if column == level and clade.name:
                    inset = min(math.degrees(1.5 / start), 0.4 * (span[1] - span[0]))
                    curve = arc(start, span[0] + inset, span[1] - inset)
                    scene.line(*curve, width=2.0, colour=clade.colour)
                    middle = sum(span) / 2.0
                    place = polar(start + 6.0, middle)
                    self.write(scene, self.text(place, middle, clade.name, self.face))
                    widest = max(widest, width_of(clade.name, self.face, font))
            start += widest + 14.0

    def rings(self, scene: Scene) -> None:
        """Draw a ring for each tick of a time axis, with its number where no tips are."""
        gap = (FULL_TURN + 360.0) / 2.0
        for depth, number in self.dates(0.6 * APART):
            radius = depth * self.across
            if radius > 1.0:
                ring = arc(radius, 0.0, 360.0)
                scene.rule(*ring)
                place = polar(radius, gap)
                label = Label(*place, number, 0.8 * self.small, "middle", font=self.style.font)
                if self.crowd.is_free(label.box(), 1.0):
                    self.write(scene, label)

    def _entries(self, clades: Sequence[Clade]) -> Iterator[Entry]:
        if self.style.axis.kind == "time":
            yield self._worded(f"Rings: {self.style.axis.title}", INK)
        yield from super()._entries(clades)


class _Unrooted(_Layout):
    """Wedges, each as wide as its clade's share of the tips: "equal angle" (Felsenstein 2004).

    A wedge holds the wedges of its clades, whatever the lengths.
    """

    def __init__(self, plan: TreePlan, style: Style, growth: float) -> None:
        if style.axis.kind == "time":
            raise InputError("an unrooted tree has no time axis: choose another --layout")
        super().__init__(plan, style, growth)
        tree, rows = self.tree, plan.rows.copy()
        for node in range(tree.n_nodes - 1, 0, -1):
            rows[tree.parent[node]] += rows[node]
        self.places = np.zeros((tree.n_nodes, 2))  # in units of depth
        self.turns = np.zeros(tree.n_nodes)  # degrees
        self.wedge = 360.0 * rows / rows[0]
        start = np.zeros(tree.n_nodes)
        for node in range(tree.n_nodes):
            begin = start[node]
            for child in tree.children[node]:
                start[child] = begin
                begin += self.wedge[child]
                turn = math.radians(start[child] + self.wedge[child] / 2.0)
                length = float(plan.depth[child] - plan.depth[node]) if plan.is_measured else 1.0
                step = length * math.cos(turn), length * math.sin(turn)
                self.places[child] = self.places[node] + step
                self.turns[child] = math.degrees(turn)
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        self.extent = max(float((high - low).max()), SMALLEST_SPAN)
        rim = self.roomy * plan.n_rows / (2.0 * math.pi)
        self.width = 2.0 * growth * max(RADIUS, rim)
        self.tries = 0

    @property
    def spread(self) -> float:
        return self.width

    @property
    def across(self) -> float:
        return self.width / self.extent

    def resize(self, across: float, down: float) -> bool:
        spare = min(across, down)
        self.tries += 1
        if not math.isfinite(spare) or 0.0 <= spare < 3.0 or (spare > 0.0 and self.tries > 8):
            return False
        width = self.width
        self.width = max(2.0 * LEAST_LENGTH, width + (spare if spare > 0.0 else 1.02 * spare - 0.5))
        rim = math.pi * self.width / self.plan.n_rows
        if self.style.font_size is None:
            self.pitch = min(self.roomy, max(rim, self.least_pitch))
        return self.width != width and self.tries < MOST_TRIES

    def heading(self, node: int) -> tuple[Point, float]:
        x, y = (self.places[node] * self.across).tolist()
        return (x, y), float(self.turns[node])

    def bare(self) -> Scene:
        scene, tree = Scene(), self.tree
        self.crowd = Crowd()
        ends: dict[int, Point] = {}
        for node in range(1, tree.n_nodes):
            place, turn = self.heading(node)
            start, _ = self.heading(int(tree.parent[node]))
            self.line(scene, start, place, colour=self.branch_colour(node))
            if not tree.children[node]:
                ends[node] = place
                if self.plan.rows[node] > 1.0:
                    half = min(0.4 * float(self.wedge[node]), 30.0)
                    size = (float(self.plan.reach[node] - self.plan.depth[node])) * self.across
                    size = max(size if self.plan.is_measured else 0.0, 14.0)
                    sides = [polar(size, turn + side) for side in (-half, half)]
                    corners = [(place[0] + dx, place[1] + dy) for dx, dy in sides]
                    self.triangle(scene, [place, *corners])
                    ends[node] = self.local(node, size, 0.0)[0]
        if tree.n_nodes == 1:
            ends[0] = (0.0, 0.0)
        longest = max(width_of(self.tree.labels[n], self.face, self.style.font) for n in ends)
        sure = 0.5 * self.face / math.tan(math.pi / max(len(ends), 3))
        far = 1.3 * sure + longest + 20.0
        rays = {
            node: Box.around(place, self._beyond(node, place, far), 0.4)
            for node, place in ends.items()
        }
        for ray in rays.values():
            self.crowd.add(ray)
        around = list(ends)
        for rank, node in enumerate(around):
            beside = around[rank - 1], around[(rank + 1) % len(around)]
            least = max(self._apart(ends, node, other) for other in beside)
            self._name_along(scene, node, ends[node], rays[node], least)
        self.crowd.drop(rays.values())
        self.dots(scene)
        self.hulls(scene)
        self.legend(scene, [clade for _, clade in self.plan.highlights])
        return scene

    def _beyond(self, node: int, place: Point, distance: float) -> Point:
        dx, dy = polar(distance, float(self.turns[node]))
        return place[0] + dx, place[1] + dy

    def _apart(self, ends: Mapping[int, Point], node: int, other: int) -> float:
        """How far along its ray a name begins to be clear of another ray, points."""
        if node == other:
            return 0.0
        (ux, uy), (vx, vy) = (polar(1.0, float(self.turns[one])) for one in (node, other))
        dx, dy = ends[node][0] - ends[other][0], ends[node][1] - ends[other][1]
        opening = abs(ux * vy - uy * vx)
        side = (dx * vy - dy * vx) * (1.0 if ux * vy - uy * vx > 0.0 else -1.0)
        is_ahead = ux * vx + uy * vy > 0.0 and opening > 0.0
        return max(0.0, (0.5 * self.face - side) / opening - GAP) if is_ahead else 0.0

    def _name_along(self, scene: Scene, node: int, end: Point, own: Box, least: float) -> None:
        """Write a name where its ray first has room for it, with a line to its tip."""
        moved = least
        while True:
            label = self.name(node, self._beyond(node, end, GAP + moved), float(self.turns[node]))
            if self.crowd.is_free(label.box(), 0.2, but=own):
                break
            moved += max(0.5 * self.face, 0.02 * moved)
        if moved > GAP:
            ends = (self._beyond(node, end, 0.5 * GAP), self._beyond(node, end, 0.5 * GAP + moved))
            scene.line(*ends, width=0.3 * self.stroke, colour=FAINT)
            self.keep_clear(ends, 0.3 * self.stroke)
        self.write(scene, label)

    def hulls(self, scene: Scene) -> None:
        """Shade highlighted clades: the smallest convex areas that hold them and their names."""
        names = dict(zip(self.tree.tips, scene.words, strict=False))
        grounds = []
        for node, clade in self.plan.highlights:
            points = [self.heading(n)[0] for n in range(node, int(self.tree.ends[node]))]
            for tip in self.tips_of(node):
                points += names[tip].box().corners
            grounds.append(Area(hull(points), pale(clade.colour)))
        scene.ground(grounds)


_KINDS: list[Callable[..., _Layout]] = [_Rectangular, _Circular, _Unrooted]
LAYOUTS = dict(zip(("rectangular", "circular", "unrooted"), _KINDS, strict=True))
"""Layouts by name."""
