"""Work in batches, as large as an engine has room for at the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from mltree.arrays import Float64, Int32
from mltree.errors import DeviceMemoryError
from mltree.likelihood.cases import Case, Cases
from mltree.likelihood.engine import Room

__all__ = ["dealt", "in_batches", "rows_in_batches", "trees_at_once", "turns_at_once"]

Done = TypeVar("Done")


def dealt(cases: Sequence[Case]) -> Int32:
    """int32[n]: trees by number, in turns: the first on the parts of each, then the second there.

    Trees on different parts share slots, so that most have room beside those that follow them.
    """
    every = np.arange(len(cases), dtype=np.int32)
    turn = Cases.of(cases).before(every, np.ones_like(every))
    return np.argsort(turn, kind="stable").astype(np.int32)


def trees_at_once(
    slots: Int32, number: Int32, cases: Cases, room: Room, parts: int, beside: int = 0
) -> int:
    """How many of the first trees are best worked on side by side; one at least.

    ``slots`` int32[n]: of each of the trees ``number``; ``parts``: of the engine; ``beside``: slots
    that are needed beside them. Trees on different parts share slots, for a slot is a row over all
    patterns; and of the rows that an engine works on best at a time they have a share each, but
    those on the same parts no more of them than all, or the largest tree, need.
    """
    share = cases.parts / parts
    most = 1 + int(room.trees / (share * max(1, slots.min())))
    slots, number = slots[:most], number[:most]
    needed = np.maximum.accumulate(cases.before(number, slots) + slots)
    rows = _rows(needed, cases.records["first_part"][number], cases.parts, room)
    fits = rows <= room.most - beside
    fits &= np.cumsum(slots) * share <= room.trees
    fits &= rows <= max(room.trees, slots.max())
    return max(1, int(np.count_nonzero(fits)))


def turns_at_once(slots: int, matrices: int, cases: Sequence[Case], room: Room) -> int:
    """How many of the first trees there is room for if they take turns; one at least.

    ``slots``: that they share; ``matrices``: bytes of each one's P matrices, which stay.
    """
    own = cases[: max(1, room.matrices // matrices)]
    if not room.starts:
        return len(own)
    first = np.array([case.first_part for case in own], np.int32)
    rows = _rows(np.full(len(own), slots, np.int32), first, len(own[0].models), room)
    return max(1, int(np.count_nonzero(rows <= room.most)))


def _rows(slots: Int32, first: Int32, parts: int, room: Room) -> Float64:
    """Whole slots that the first 1 .. n trees take, which need ``slots`` int32[n].

    ``first`` int32[n]: the first of the ``parts`` of each.
    """
    if not room.starts:
        return slots.astype(np.float64)
    starts = np.array(room.starts)
    taken: Float64 = starts[np.maximum.accumulate(first) + parts]
    taken = taken - starts[np.minimum.accumulate(first)]
    return slots * taken


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


def rows_in_batches(
    count: int, at_once: Callable[[int], int], work: Callable[[slice], Float64]
) -> Float64:
    """The rows that ``work`` makes of the items, one each, in one array from the first batch on."""
    whole = np.empty((0, 0))

    def put(batch: slice) -> None:
        nonlocal whole
        rows = work(batch)
        if len(rows) == count:
            whole = rows
            return
        if not whole.size:
            whole = np.empty((count, rows.shape[1]))
        whole[batch] = rows

    in_batches(count, at_once, put)
    return whole
