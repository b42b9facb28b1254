"""A tree as a scene: rectangular, its tips in rows; or circular, around its root.

Faint lines lead from a circular tree's tips to their names on the rim. Branches are drawn to scale
where they have lengths, with a bar that says the scale; else all tips stand in line. An inner node
lies midway between its outer children.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from mltree.arrays import Float64
from mltree.drawing.scene import ACCENT, FAINT, INK, Scene, Words, width_of
from mltree.tree.written import WrittenTree
from mltree.values import Value

__all__ = ["Style", "draw", "nice_length"]

TWELVE_POINTS, SMALLEST_ROW = 12.0, 5.0
"""Height of a row, and of one among very many, in points."""

ROOMY = 200
"""Tips up to which rows keep their full height."""

MARGIN = 14.0
"""Around everything, points."""

FACE = 0.78
"""Size of a name, as a share of its row's height."""

SUPPORT_FACE = 0.75
"""Size of a support, as a share of a name's."""

GAP = 4.0
"""Between a tip and its name, points."""

FULL_TURN = 350.0
"""Degrees that a circular tree takes, so that its beginning and end are told apart."""

ARC_STEP = 2.0
"""Degrees from point to point of an arc: it looks round."""

SHORTEST = 1e-300
"""Depth of a tree below which one is not drawn to scale: points per unit would overflow."""

SCALE_SHARE = 0.2
"""About how much of the tree's depth the scale bar is."""


class Style(Value, kw_only=True):
    """How a tree is drawn."""

    layout: Literal["rectangular", "circular"] = "rectangular"
    is_ladderised: bool = True
    is_scaled: bool = True
    """Whether branches are as long as they say."""
    shows_supports: bool = True
    width: float = 520.0
    """Of a rectangular tree's branches, points; a circular one is as wide as its names need."""


def draw(tree: WrittenTree, style: Style) -> Scene:
    """The picture of a tree."""
    tree = tree.ladderised() if style.is_ladderised else tree
    depth = _depths(tree, style.is_scaled)
    if style.layout == "circular":
        return _Circular(tree, depth, style).scene()
    return _Rectangular(tree, depth, style).scene()


def nice_length(longest: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is no more than this."""
    power = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest * (1 + 1e-9))


def _depths(tree: WrittenTree, is_scaled: bool) -> Float64:
    """float64 [N]: how far from the root each node is drawn; the farthest is not at 0."""
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
    """float64 [N]: tips in rows 0, 1, ...; inner nodes midway between their outer children."""
    row = np.empty(tree.n_nodes)
    row[list(tree.tips)] = np.arange(len(tree.tips))
    for node in range(tree.n_nodes - 1, -1, -1):
        if below := tree.children[node]:
            row[node] = (row[below[0]] + row[below[-1]]) / 2.0
    return row


def _pitch(n_tips: int) -> float:
    """Height of a row, points."""
    if n_tips <= ROOMY:
        return TWELVE_POINTS
    return max(SMALLEST_ROW, TWELVE_POINTS * ROOMY / n_tips)


class _Layout:
    """What both layouts share."""

    def __init__(self, tree: WrittenTree, depth: Float64, style: Style) -> None:
        self.tree, self.depth, self.style = tree, depth, style
        self.row = _rows(tree)
        self.pitch = _pitch(len(tree.tips))
        self.face = FACE * self.pitch
        self.stroke = max(0.4, self.pitch / 11.0)
        self.names = max(width_of(tree.labels[tip], self.face) for tip in tree.tips)

    def supports(self) -> list[tuple[int, str]]:
        """Inner nodes but the root, with what is written there."""
        if not self.style.shows_supports:
            return []
        inner = (n for n in range(1, self.tree.n_nodes) if self.tree.children[n])
        return [(node, self.tree.labels[node]) for node in inner if self.tree.labels[node]]

    def scale_bar(self, scene: Scene, x: float, y: float, points: float) -> None:
        """A bar that says how much ``points`` for one unit of depth is."""
        if not (self.style.is_scaled and _has_depth(self.tree)):
            return
        length = nice_length(float(self.depth.max()) * SCALE_SHARE)
        end = x + length * points
        for foot in (x, end):
            scene.line((foot, y - 3.0), (foot, y + 3.0), width=0.8, colour=FAINT)
        scene.line((x, y), (end, y), width=0.8, colour=FAINT)
        text = f"{length:g} substitutions per site"
        scene.words.append(Words(end + GAP, y, text, 8.0, colour=FAINT))


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
                scene.words.append(Words(*place, self.tree.labels[node], self.face))
        for node, label in self.supports():
            size = self.face * SUPPORT_FACE
            place = x[node] - 1.5, y[node] - 0.6 * size
            scene.words.append(Words(*place, label, size, "end", colour=ACCENT))
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
            own = self.depth[node] * across
            start = self.depth[self.tree.parent[node]] * across if node else own
            ends = (_polar(middle, start, turn[node]), _polar(middle, own, turn[node]))
            scene.line(*ends, width=self.stroke)
            if below:
                scene.line(*_arc(middle, own, turn[below[0]], turn[below[-1]]), width=self.stroke)
            else:
                rim = _polar(middle, own + GAP, turn[node]), _polar(middle, radius, turn[node])
                if radius - own > 2.0 * GAP:
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


def _along(middle: float, radius: float, turn: float, text: str, size: float, colour: str) -> Words:
    """Words that begin at a radius and run outwards, never on their heads."""
    x, y = _polar(middle, radius, turn)
    if 90.0 < turn < 270.0:
        return Words(x, y, text, size, "end", turn - 180.0, colour)
    return Words(x, y, text, size, "start", turn, colour)


def _arc(middle: float, radius: float, start: float, end: float) -> list[tuple[float, float]]:
    steps = max(2, math.ceil(abs(end - start) / ARC_STEP) + 1)
    return [_polar(middle, radius, float(turn)) for turn in np.linspace(start, end, steps)]
