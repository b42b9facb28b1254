"""Work in batches, as large as an engine has room for at the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mltree.errors import DeviceMemoryError

__all__ = ["in_batches"]

Done = TypeVar("Done")


def in_batches(count: int, at_once: Callable[[], int], work: Callable[[slice], Done]) -> list[Done]:
    """What ``work`` made of the items 0 .. count - 1, slice by slice.

    ``at_once``: items that there is room for. It is asked before every batch, for an engine that
    was refused memory has less of it, and the batch is done again in smaller ones.

    Raises:
        DeviceError: there is no room for a single item.
    """
    done: list[Done] = []
    first = 0
    while first < count:
        batch = slice(first, min(count, first + at_once()))
        try:
            done.append(work(batch))
        except DeviceMemoryError:
            continue
        first = batch.stop
    return done
