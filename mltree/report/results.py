"""Results as text: events that stand for themselves below the lines of the others."""

from __future__ import annotations

from rich.console import RenderableType

from mltree.events import EnginesCompared, Event, RunFinished
from mltree.report.tables import compare_table
from mltree.tree.newick import ascii_drawing

__all__ = ["is_drawn", "result", "summary_text"]

SMALL_TREE = 30
"""Taxa up to which a tree is drawn, whatever the height of the terminal."""


def result(event: Event, height: int) -> RenderableType | None:
    """A result as it is shown on a terminal of so many lines; None where the event is none."""
    match event:
        case RunFinished():
            drawing = ascii_drawing(event.tree) if is_drawn(event.taxa, height) else ""
            return summary_text(event, drawing)
        case EnginesCompared():
            return compare_table(event.scores)
    return None


def is_drawn(taxa: int, terminal_height: int) -> bool:
    """Whether a tree of so many taxa (one line each, one between) is worth drawing."""
    return taxa <= SMALL_TREE or 2 * taxa < terminal_height


def summary_text(event: RunFinished, drawing: str) -> str:
    """What a run found, readable by eye and by ``grep``; ``drawing``: lines, or nothing."""
    lines = [
        "",
        f"Final log-likelihood: {event.lnl:.4f}",
        f"Model: {event.model}",
        f"Tree length: {event.tree_length:.6f} expected substitutions per site",
    ]
    if drawing:
        lines += ["", drawing]
    if event.files:
        lines += ["", *(f"Wrote {file}" for file in event.files)]
    return "\n".join(lines)
