"""The pieces that charts are made of, as SVG: axes, marks and their words.

Colours and faces are classes of the page's stylesheet, so that a chart follows it by day and night.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from mltree.values import Value

__all__ = [
    "Scale", "bar", "chart", "circle", "line", "log_ticks", "number", "path", "ticks", "words",
]  # fmt: skip


class Scale(Value):
    """From values to places in a chart."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is."""
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def chart(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """A chart of so many units, which are points where there is room; ``label`` is read aloud."""
    box = f'viewBox="0 0 {width:g} {height:g}"'
    style = f'style="max-width:{width:g}px"'
    return (
        f'<svg class="chart" {box} {style} role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def words(
    x: float, y: float, text: str, kind: str = "", anchor: str = "start", title: str = ""
) -> str:
    """A text on its middle line; ``kind``: a class of the stylesheet."""
    attributes = f'x="{x:.1f}" y="{y:.1f}" dy=".35em" text-anchor="{anchor}"'
    return f'<text class="{kind}" {attributes}>{escape(text)}{_title(title)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    """A straight line."""
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through points."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{steps}"/>'


def bar(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """A rectangle; ``title`` shows under the pointer."""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f'<rect class="{kind}" {size}>{_title(title)}</rect>'


def circle(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    """A dot; ``title`` shows under the pointer."""
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"'
    return f'<circle class="{kind}" {place}>{_title(title)}</circle>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most about so many round values from low to high."""
    span = high - low
    if span <= 0.0:
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [count * step for count in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def number(value: float) -> str:
    """A number as an axis has it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def axis_below(
    scale: Scale, y: float, values: Sequence[float], text: Callable[[float], str] = number
) -> list[str]:
    """Numbers under a chart, with their marks."""
    parts = []
    for value in values:
        x = scale(value)
        parts += [line(x, y, x, y + 4, "axis"), words(x, y + 13, text(value), "tick", "middle")]
    return parts
