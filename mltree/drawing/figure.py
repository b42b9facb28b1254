"""A scene as PNG or PDF, drawn by matplotlib: an extra, since little else needs it."""

from __future__ import annotations

import io
import warnings
from typing import Any

from mltree.drawing.scene import Scene
from mltree.errors import InputError

__all__ = ["figure"]

DPI = 200.0
"""Dots per inch of a PNG."""

MOST_DOTS = 60_000
"""Of a PNG's side: matplotlib's renderer ends at 2^16."""

POINTS_PER_INCH = 72.0


def figure(scene: Scene, kind: str) -> bytes:
    """The content of a file of that kind: ``png`` or ``pdf``.

    Raises:
        InputError: matplotlib is not there.
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
    """The same scene is the same file: no date in it."""
    when = {"CreationDate": None} if kind == "pdf" else None
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.savefig(buffer, format=kind, dpi=dpi, metadata=when)
    return buffer.getvalue()
