"""Work in batches, as large as an engine has room for at the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mltree.errors import DeviceMemoryError
from mltree.likelihood.cases import Cases
from mltree.likelihood.engine import Room

__all__ = ["in_batches", "trees_at_once"]

Int32 = npt.NDArray[np.int32]
Done = TypeVar("Done")


def trees_at_once(
    slots: Int32, number: Int32, cases: Cases, room: Room, parts: int, beside: int = 0
) -> int:
    """How many of the first trees are best worked on side by side; one at least.

    ``slots`` int32[n]: of each of the trees ``number``; ``parts``: of the engine; ``beside``: slots
    that are needed beside them. Trees on different parts share slots, for a slot is a row over all
    patterns; and of the rows that an engine works on best at a time they have a share each.
    """
    share = cases.parts / parts
    needed = np.maximum.accumulate(cases.before(number, slots) + slots)
    fits = (needed <= room.most - beside) & (np.cumsum(slots) * share <= room.trees)
    return max(1, int(np.count_nonzero(fits)))


def in_batches(
    count: int, at_once: Callable[[int], int], work: Callable[[slice], Done]
) -> list[Done]:
    """What ``work`` made of the items 0 .. count - 1, slice by slice.

    ``at_once``: items that there is room for, from the given one on. It is asked before every
    batch, for an engine that was refused memory has less of it, and the batch is done again in
    smaller ones.

    Raises:
        DeviceError: there is no room for a single item.
    """
    done: list[Done] = []
    first = 0
    while first < count:
        batch = slice(first, min(count, first + at_once(first)))
        try:
            done.append(work(batch))
        except DeviceMemoryError:
            continue
        first = batch.stop
    return done
