"""What a picture is made of: lines and words, in points (1/72 inch) from the upper left corner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mltree.arrays import Float64
from mltree.values import Value

__all__ = ["ACCENT", "FAINT", "INK", "Line", "Scene", "Words", "width_of"]

INK, ACCENT, FAINT = "#1a1f24", "#0b62a4", "#8a949e"
"""Colours: of branches and names, of supports, of the scale bar."""

EM_WIDTH = 0.56
"""Of a character in a sans-serif face, on average, as a share of its size; names are mostly lower
case, digits and underscores. Pictures have to know before anyone has measured."""

WIDE_FROM = 0x1100
"""Code points from which characters are mostly as wide as they are high (Hangul, Han, ...)."""


class Line(Value, eq=False):
    """A line through some points."""

    points: Float64
    """float64 [n, 2]: x to the right, y down."""
    width: float
    colour: str = INK


class Words(Value):
    """A short text."""

    x: float
    y: float
    """Where its middle line begins, ends or has its middle, by ``anchor``."""
    text: str
    size: float
    """Of the face."""
    anchor: Literal["start", "middle", "end"] = "start"
    angle: float = 0.0
    """Degrees, clockwise, about (x, y)."""
    colour: str = INK


@dataclass
class Scene:
    """A picture."""

    width: float
    height: float
    lines: list[Line] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)

    def line(self, *points: tuple[float, float], width: float, colour: str = INK) -> None:
        """Add a line through some points."""
        self.lines.append(Line(np.array(points, np.float64), width, colour))


def width_of(text: str, size: float) -> float:
    """About how wide a text is, in points."""
    return size * sum(1.0 if ord(c) >= WIDE_FROM else EM_WIDTH for c in text)
