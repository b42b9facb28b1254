"""Cases of a program's trees, and where their sums go.

A case is a range of parts, their models and a row of weights (:mod:`mltree.program.contract`).
Trees on the same parts stand side by side; trees on different parts share slots and cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from mltree.models.eigen import ModelArrays
from mltree.program.ops.operation import CASE, Records, Role, fields, table
from mltree.program.ops.reduce import REDUCTION, Reduce
from mltree.system.arrays import Int32
from mltree.system.values import Value


class Case(NamedTuple):
    """Models and weights under which the likelihood of a tree is computed."""

    models: tuple[ModelArrays, ...]
    """A model for each part; a model equals no other object."""
    weights: int = 0
    """The row of pattern weights."""
    first_part: int = 0
    """Number of its first part in the engine."""


def distinct(cases: Sequence[Case]) -> list[tuple[ModelArrays, ...]]:
    """Models of cases, each tuple of models once."""
    return list(dict.fromkeys(case.models for case in cases))


class Cases(Value, eq=False):
    """The cases of a program's trees: tree n has case n, and all have as many parts."""

    records: Records
    """:data:`CASE` [n]."""
    unlinked: bool = False
    """True where parts have lengths of their own, f64[parts, branches], not f64[branches]."""
    by_part: bool = False
    """True where every part has sums of its own, as it has where it has lengths of its own."""

    @classmethod
    def of(cls, cases: Sequence[Case], unlinked: bool = False) -> Cases:
        """Trees under these cases, whose models have rows in the order of :func:`distinct`."""
        rows = {models: n * len(models) for n, models in enumerate(distinct(cases))}
        each = (
            (case.first_part, len(case.models), rows[case.models] - case.first_part, case.weights)
            for case in cases
        )
        return cls(np.array(list(each), CASE), unlinked)

    @classmethod
    @lru_cache(maxsize=32)
    def alike(cls, trees: int, parts: int = 1, unlinked: bool = False) -> Cases:
        """Trees side by side on the same parts, with model rows one after the other; read-only."""
        models = parts * np.arange(trees, dtype=np.int32)
        records = table(CASE, trees, first_part=0, parts=parts, model=models, weights=0)
        records.setflags(write=False)
        return cls(records, unlinked)

    @property
    def parts(self) -> int:
        """Number of parts of each case."""
        return int(self.records["parts"][0])

    @cached_property
    def is_plain(self) -> bool:
        """True where there is one part, and one matrix and length a branch."""
        return bool((self.records["parts"] == 1).all() and (self.records["first_part"] == 0).all())

    @property
    def ranges(self) -> tuple[Int32, Int32]:
        """int32[n, 2]: the first part and the parts of every tree; int32[n]: their numbers."""
        where = np.stack([self.records["first_part"], self.records["parts"]], axis=1)
        return where, np.arange(len(where), dtype=np.int32)

    @cached_property
    def streams(self) -> tuple[Int32, Int32]:
        """int32[ranges, 2]: the first part and the parts of every range; int32[n]: each tree's."""
        where, _ = self.ranges
        if (where == where[0]).all():
            return where[:1], np.zeros(len(where), np.int32)
        ranges, of_tree = np.unique(where, axis=0, return_inverse=True)
        return ranges.astype(np.int32), of_tree.ravel().astype(np.int32)

    def before(self, number: Int32, size: Int32 | int) -> Int32:
        """int32[n]: offset of each item among the items on the same parts.

        The items of trees ``number``, int32[n], have ``size`` each and lie one after the other.
        """
        ranges, streams = self.streams
        size = np.broadcast_to(np.int32(size), number.shape)
        before = offsets(size)
        if len(ranges) == 1 or not number.size:
            return before
        if (number[1:] >= number[:-1]).all():  # tree by tree: a tenth of the time
            before -= self._of_others(number, before, size[-1]).take(number)
            return before
        order = np.argsort(streams[number], kind="stable")
        before[order] = _before_alike(streams[number][order], size[order])
        return before

    def _of_others(self, number: Int32, before: Int32, last: np.int32) -> Int32:
        """int32[trees]: size of the items on other parts that lie before each tree's items."""
        _, streams = self.streams
        first = np.searchsorted(number, np.arange(len(streams) + 1, dtype=np.int32))
        ends = np.append(before.take(first[:-1], mode="clip"), before[-1] + last)
        ends[first == number.size] = ends[-1]
        among_alike, order = np.empty_like(streams), np.argsort(streams, kind="stable")
        among_alike[order] = _before_alike(streams[order], np.diff(ends)[order])
        others: Int32 = ends[:-1] - among_alike
        return others

    def is_same(self, other: Cases) -> bool:
        """Return whether the cases are the same, however trees are summed."""
        return self.unlinked == other.unlinked and np.array_equal(self.records, other.records)

    @cached_property
    def key(self) -> tuple[bytes, bool, bool]:
        """A key that equal tables share."""
        return self.records.tobytes(), self.unlinked, self.by_part

    @property
    def summed_by_part(self) -> Cases:
        """The same, with sums of every part."""
        return replace(self, by_part=True)

    def fill(self, records: Records, number: Int32) -> None:
        """Fill in the case, model and weights of records of trees ``number``."""
        records["case"] = number
        for field in fields(records.dtype, Role.MODEL, Role.WEIGHTS):
            records[field] = self.records[field].take(number)  # indexing takes twice the time

    def matrices(self, branch: Int32, number: Int32) -> Int32:
        """int32[n]: index of the P matrices of branches of trees ``number``, less the part."""
        if self.is_plain:
            return branch
        first: Int32 = self.records["first_part"].take(number)
        return np.subtract(branch if self.parts == 1 else branch * np.int32(self.parts), first)


class Sums(NamedTuple):
    """Cells and sums of a program's units: trees, branches, insertions."""

    cells: Int32
    """int32[units]: the first cell of each; units on different parts share cells."""
    sums: Int32
    """int32[units]: the first sum of each."""
    n_cells: int
    n_sums: int
    """Sums of all units; with a row a part, of each row."""
    reduce: Reduce


def sums_of(number: Int32, width: Int32 | int, cases: Cases) -> Sums:
    """Cells and sums for units of trees ``number``, ``width`` each; a row a part if by part."""
    ranges, streams = cases.streams
    width = np.broadcast_to(np.int32(width), number.shape)
    sums = offsets(width)
    cells = sums if len(ranges) == 1 else cases.before(number, width)
    n_sums = int(sums[-1] + width[-1])
    first, stream = np.zeros(1, np.intp), streams[number[:1]]
    if len(ranges) > 1:
        first = np.flatnonzero(np.diff(streams[number], prepend=-1))
        stream = streams[number[first]]
    count = np.diff(sums[first], append=np.int32(n_sums))
    records = table(REDUCTION, len(first), cell=cells[first], sum=sums[first], count=count)
    records["first_part"], records["parts"] = ranges[stream].T
    if cases.unlinked or cases.by_part:
        records = _by_part(records, cases.parts, n_sums)
    n_cells = n_sums if len(ranges) == 1 else int((cells + width).max())
    return Sums(cells, sums, n_cells, n_sums, Reduce(records))


def offsets(size: Int32) -> Int32:
    """int32[n]: offset of each item, given the sizes of items that lie one after the other."""
    before: Int32 = np.cumsum(size, dtype=np.int32) - size
    return before


def _before_alike(stream: Int32, size: Int32) -> Int32:
    """int32[n]: offset of each item within its stream; items are sorted by stream."""
    before = offsets(size)
    alike: Int32 = before - before[np.searchsorted(stream, stream)]
    return alike


def _by_part(records: Records, parts: int, n_sums: int) -> Records:
    """Reductions of each part by itself, a row of sums each."""
    part = np.repeat(np.arange(parts, dtype=np.int32), len(records))
    records = np.tile(records, parts)
    records["sum"] += part * np.int32(n_sums)
    records["first_part"] += part
    records["parts"] = 1
    return records
