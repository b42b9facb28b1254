"""Standard streams, which may be closed or full before a run has ended."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, Any

__all__ = ["turn_away"]


def turn_away(stream: IO[Any]) -> None:
    """Send what a stream still holds, and whatever else is written to it, nowhere."""
    with suppress(OSError, ValueError):  # not a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
