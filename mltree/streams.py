"""Standard streams, which may be closed or full before a run has ended, or be a terminal."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import IO, Any

__all__ = ["harmless", "turn_away"]

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tabs and line feeds, and those that turn the direction of text."""


def harmless(text: str) -> str:
    """A text in which nothing steers a terminal: names of files and tips may hold escape codes."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def turn_away(stream: IO[Any]) -> None:
    """Send what a stream still holds, and whatever else is written to it, nowhere."""
    with suppress(OSError, ValueError):  # not a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
