"""Terminals: consoles that leave it to their user what a closed pipe means."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from mltree.streams import harmless

__all__ = ["Terminal", "folded", "progress_terminal", "result_terminal"]

PLAIN = "NO_COLOR"
"""Set to anything, it means no escape sequences at all (no-color.org)."""


class Terminal(Console):
    """A console whose user decides what a closed pipe means; rich's own ends the program.

    Its cursor is never hidden: a run that is killed could not bring it back.
    """

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise  # noqa: PLE0704

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
        """Leave it as it is."""
        return False

    def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
        """Keep what names hold from steering the terminal; rich's own codes come later."""
        for segment in super().render(*args, **options):
            text = segment.text if segment.control else harmless(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)

    @property
    def is_lively(self) -> bool:
        """Whether lines on it can be drawn again."""
        return self.is_terminal and not self.is_dumb_terminal and self.color_system is not None


_LABELLED = re.compile(r"(\S+(?: \S+)? {2,})?(?!.*  )\S.*")
"""A line of words, behind a label or none: no row of a table, no tree."""

LEAST_WIDTH = 20
"""Columns that are worth folding for."""


def folded(text: str, width: int) -> str:
    """A text for a terminal of so many columns: its lines broken at blanks.

    They go on where their text began, behind a label and two blanks. Lines with words of half a
    line and more, such as models, stay whole, and so do the rows of tables and drawings.
    """
    lines = []
    for line in text.split("\n"):
        words = _LABELLED.fullmatch(line) if len(line) > width else None
        indent = " " * len(words[1] or "") if words else ""
        room = width - len(indent)
        if words is None or room < LEAST_WIDTH or 2 * max(map(len, line.split())) > room:
            lines.append(line)
        else:
            lines += textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def result_terminal() -> Terminal:
    """Standard output."""
    return _terminal(stderr=False)


def progress_terminal() -> Terminal:
    """Standard error."""
    return _terminal(stderr=True)


def _terminal(stderr: bool) -> Terminal:
    """Without emoji: ``:cat:`` is a name, and rich's table of them takes 3 ms to load."""
    plain = bool(os.environ.get(PLAIN))
    return Terminal(
        stderr=stderr, highlight=False, emoji=False, color_system=None if plain else "auto"
    )
