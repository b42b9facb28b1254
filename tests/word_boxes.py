"""Boxes of words in pictures: those of the glyphs' outlines in DejaVu Sans, by matplotlib."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from mltree.report.scene import CENTRED, Label
from mltree.system.arrays import Float64
from mltree.tree.clades import WrittenTree, read_written

TOUCH = 0.05
"""Points by which boxes may overlap: rounding."""

LETTERS = "aeioulmnrstgpqyjWMQ_.-0123456789ÅéßШ"


def random_name(rng: np.random.Generator, number: int) -> str:
    longest = 60 if rng.random() < 0.05 else 14
    letters = rng.choice(list(LETTERS), int(rng.integers(1, longest)))
    return f"{''.join(letters)}{number}"


def random_tree(rng: np.random.Generator, taxa: int, columns: int) -> WrittenTree:
    """A tree with polytomies, with branches of length zero, and supports in columns."""
    parts = [f"'{random_name(rng, number)}'" for number in range(taxa)]

    def length() -> str:
        return f":{0.0 if rng.random() < 0.15 else rng.exponential(0.1):.6g}"

    while len(parts) > 3:
        size = min(len(parts) - 1, 2 + int(rng.random() < 0.1) + int(rng.random() < 0.05))
        chosen = set(rng.choice(len(parts), size, replace=False).tolist())
        values = f"{100 * rng.beta(4, 1):.1f}", f"{100 * rng.beta(5, 1):.0f}", f"{rng.random():.3f}"
        inside = ",".join(parts[number] + length() for number in chosen)
        rest = [part for number, part in enumerate(parts) if number not in chosen]
        parts = [*rest, f"({inside}){'/'.join(values[:columns])}"]
    return read_written(f"({','.join(part + length() for part in parts)});")[0]


@cache
def outline(text: str, is_italic: bool) -> tuple[float, float, float, float, float]:
    """Bounds of a text's glyphs at size 1, y upwards from the baseline, and its advance."""
    font = FontProperties(family="DejaVu Sans", style="italic" if is_italic else "normal")
    path = TextPath((0, 0), text, size=100, prop=font)
    end = TextPath((0, 0), text + "|", size=100, prop=font).get_extents().x1
    bar = TextPath((0, 0), "|", size=100, prop=font).get_extents().x1
    if not len(path.vertices):
        return (0.0, 0.0, 0.0, 0.0, 0.0)
    box = path.get_extents()
    return box.x0 / 100, box.y0 / 100, box.x1 / 100, box.y1 / 100, (end - bar) / 100


def corners(label: Label) -> Float64:
    """f64 [4, 2]: the corners of the box around a text's glyphs."""
    x0, y0, x1, y1, advance = (label.size * value for value in outline(label.text, label.is_italic))
    start = {"start": 0.0, "middle": -0.5, "end": -1.0}[label.anchor] * advance
    below = CENTRED * label.size
    turn = math.radians(label.angle)
    box = [(start + x, below - y) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
    cos, sin = math.cos(turn), math.sin(turn)
    return np.array([(label.x + x * cos - y * sin, label.y + x * sin + y * cos) for x, y in box])


def overlap(one: Float64, two: Float64) -> float:
    """Depth to which two convex shapes overlap, by the least of the projections on their sides."""
    least = math.inf
    for shape in (one, two):
        for side in (shape[1] - shape[0], shape[-1] - shape[0]):
            if not (length := float(np.hypot(*side))):
                continue
            axis = np.array([-side[1], side[0]]) / length
            a, b = one @ axis, two @ axis
            least = min(least, float(min(a.max(), b.max()) - max(a.min(), b.min())))
    return least
