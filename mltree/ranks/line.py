"""What ranks say to each other, and the line that they say it over."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from mltree import __version__

__all__ = ["Greeting", "Kind", "Line", "Message"]


class Kind:
    """What a message is about."""

    CALL, GO, TASK, OVER, ASK, FORGET, END = (
        "call", "go", "task", "over", "ask", "forget", "end",
    )  # fmt: skip
    """From the first rank: call this; go through tasks; here is one; there is none; answer this;
    let go of this; go home."""
    READY, WANT, RESULT, IDLE, ANSWER, FAILED = (
        "ready", "want", "result", "idle", "answer", "failed",
    )  # fmt: skip
    """From the others: has called it; wants a task; has a result; is through; has an answer; cannot
    go on."""


class Message(NamedTuple):
    """From a rank to another."""

    kind: str
    content: Any = None


class Greeting(NamedTuple):
    """What ranks tell each other at first."""

    host: str
    process: int
    cpus: tuple[int, ...]
    """That it may run on."""
    version: str
    command: tuple[str, ...]

    @classmethod
    def own(cls) -> Greeting:
        """Of this process."""
        cpus = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
        return cls(platform.node(), os.getpid(), cpus, __version__, tuple(sys.argv[1:]))


class Line(Protocol):
    """A rank's connection to its peers: the first has all others, the others have the first."""

    @property
    def greetings(self) -> Sequence[Greeting]:
        """Of all ranks, in order; only the first one asks."""
        ...

    @property
    def are_alike(self) -> bool:
        """Whether all are of this machine, started by the first: their devices go together."""

    def answer(self, hear: Callable[[int, Message], None], lost: Callable[[int], None]) -> None:
        """Speak with the peers from now on.

        hear  called by the line's threads with every message, and the rank that it is from
        lost  called by them with a peer that has died, once; with this rank where the line fails
        """

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message, from any thread."""

    def expect(self) -> None:
        """Look for messages often again, for somebody waits for one."""

    def hang_up(self) -> None:
        """Send what waits, and nothing more; peers may go."""

    def close(self) -> None:
        """Hang up, and wait until that is done."""
