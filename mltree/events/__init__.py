"""What happens during a run, as data: commands and the search emit events, the report draws them.

Every event is a frozen dataclass of plain values, so that the same stream is a log, a progress
display or JSON lines. Nothing here knows how, when or where an event is shown: whoever receives
it adds the time. lnL are natural logs.
"""

from __future__ import annotations

from collections.abc import Callable

from mltree.values import Value

__all__ = [
    "Emit",
    "Event",
    "Notice",
    "Unsaved",
    "ignore",
]


class Event(Value):
    """Something that happened."""


Emit = Callable[[Event], None]
"""Who receives events. The search takes one and never asks what it does with them."""


def ignore(_: Event) -> None:
    """The receiver for whoever wants no events."""


class Notice(Event):
    """Something the user should know, in one line: an assumption, a fallback, a repair."""

    text: str


class Unsaved(Event):
    """A result that could not be written to its file: its last resort is wherever this is shown."""

    path: str
    content: str
