"""What ranks on one host have in common: its CPUs and its devices."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mltree.ranks.line import Greeting

__all__ = ["keep_to", "share", "turn"]


def turn(rank: int, every: Sequence[Greeting]) -> tuple[int, int]:
    """A rank's number among those of its host, from 0, and how many they are."""
    mates = [n for n, other in enumerate(every) if other.host == every[rank].host]
    return mates.index(rank), len(mates)


def share(rank: int, every: Sequence[Greeting]) -> tuple[int, ...]:
    """The CPUs of a rank: those that it was bound to, or its part of those that several were."""
    host, _, cpus, *_ = every[rank]
    mates = [n for n, other in enumerate(every) if (other.host, other.cpus) == (host, cpus)]
    place, count = mates.index(rank), len(mates)
    if len(cpus) < count:
        return cpus[place % len(cpus) :][:1] if cpus else ()
    return cpus[place * len(cpus) // count : (place + 1) * len(cpus) // count]


def keep_to(cpus: tuple[int, ...]) -> None:
    """Run on these CPUs alone, which :mod:`mltree.threads` counts."""
    if cpus:
        os.sched_setaffinity(0, cpus)
