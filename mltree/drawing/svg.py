"""A scene as SVG, without any library: one path for the lines of a kind, words as text."""

from __future__ import annotations

import re
from collections import defaultdict
from html import escape

from mltree.drawing.scene import Line, Scene, Words

__all__ = ["svg"]

FACES = "Helvetica, Arial, 'DejaVu Sans', sans-serif"

_NO_XML = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff]")
"""Characters that XML 1.0 has not, or that mean nothing in a picture."""

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
    kinds: dict[tuple[str, float], list[Line]] = defaultdict(list)
    for line in scene.lines:
        kinds[line.colour, line.width].append(line)
    for (colour, width), lines in kinds.items():
        ends = 'fill="none" stroke-linecap="square"'
        path = "".join(map(_path, lines))
        parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="{width:.2f}" {ends}/>')
    parts += map(_text, scene.words)
    return "\n".join([*parts, "</svg>\n"])


def _path(line: Line) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in line.points.tolist())


def _text(words: Words) -> str:
    x, y = f"{words.x:.2f}", f"{words.y:.2f}"
    turned = f' transform="rotate({words.angle:.2f} {x} {y})"' if words.angle else ""
    anchor = "" if words.anchor == "start" else f' text-anchor="{words.anchor}"'
    place = f'x="{x}" y="{y}" dy="{CENTRED}em" font-size="{words.size:.2f}" fill="{words.colour}"'
    return f"<text {place}{anchor}{turned}>{escape(_NO_XML.sub(UNKNOWN, words.text))}</text>"
