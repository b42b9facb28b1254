"""Standard output, which may be closed or full before a run has ended."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, Any

from rich.console import Console

__all__ = ["Terminal", "turn_away"]


class Terminal(Console):
    """A console whose user decides what a closed pipe means; rich's own ends the program."""

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise  # noqa: PLE0704


def turn_away(stream: IO[Any]) -> None:
    """Send what a stream still holds, and whatever else is written to it, nowhere."""
    with suppress(OSError, ValueError):  # not a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
