"""Results as text: events that stand for themselves below the lines of the others."""

from __future__ import annotations

from rich.console import RenderableType

from mltree.events import Event
from mltree.events.alignments import AlignmentChecked, PartitionsLoaded
from mltree.events.choice import ModelsRanked
from mltree.events.run import EnginesCompared, ResourcesSpent, RunFinished, TimeSpent
from mltree.events.search import StartsEnded
from mltree.events.trees import TreesTested
from mltree.report.choices import ranking_lines
from mltree.report.lines import starts_text
from mltree.report.tables import (
    check_lines,
    compare_table,
    parts_table,
    timing_table,
    tree_test_lines,
)
from mltree.tree.newick import ascii_drawing

__all__ = ["Ending", "is_drawn", "result", "summary_text"]

SMALL_TREE = 30
"""Taxa up to which a tree is drawn, whatever the height of the terminal."""


class Ending:
    """What earlier events have said that belongs to a run's result."""

    def __init__(self) -> None:
        self.starts: StartsEnded | None = None
        self.spent: ResourcesSpent | None = None

    def heed(self, event: Event) -> None:
        """Keep it where it is of that kind."""
        if isinstance(event, StartsEnded):
            self.starts = event
        elif isinstance(event, ResourcesSpent):
            self.spent = event


def result(  # noqa: PLR0911  (a case an event)
    event: Event, height: int, ending: Ending
) -> RenderableType | None:
    """A result as it is shown on a terminal of so many lines; None where the event is none."""
    match event:
        case RunFinished():
            drawing = (
                ascii_drawing(event.support or event.tree) if is_drawn(event.taxa, height) else ""
            )
            return summary_text(event, drawing, ending)
        case EnginesCompared():
            return compare_table(event.scores)
        case AlignmentChecked():
            return "\n".join(check_lines(event.summary))
        case PartitionsLoaded():
            return parts_table(event)
        case ModelsRanked():
            lines = ranking_lines(event)
        case TreesTested():
            lines = tree_test_lines(event.trees)
        case TimeSpent():
            return timing_table(event)
        case _:
            return None
    return "\n".join(["", *lines])


def is_drawn(taxa: int, terminal_height: int) -> bool:
    """Whether a tree of so many taxa (one line each, one between) is worth drawing."""
    return taxa <= SMALL_TREE or 2 * taxa < terminal_height


def summary_text(event: RunFinished, drawing: str, ending: Ending) -> str:
    """What a run found, readable by eye and by ``grep``; ``drawing``: lines, or nothing."""
    lines = [
        "",
        f"Final log-likelihood: {event.lnl:.4f}",
        f"Model: {event.model}",
        f"Tree length: {event.tree_length:.6f} expected substitutions per site",
    ]
    if ending.starts is not None:
        lines.append(f"Starts: {starts_text(ending.starts)}")
    if ending.spent is not None:
        lines.append(f"Time: {ending.spent.wall:.2f} s ({ending.spent.cpu:.2f} s of CPU)")
    if drawing:
        lines += ["", drawing]
    if event.files:
        lines += ["", *(f"Wrote {file}" for file in event.files)]
        lines.append(f"To cite: methods and references are at the end of {event.files[0]}")
    return "\n".join(lines)
