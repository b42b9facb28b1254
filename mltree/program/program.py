"""Programs: the likelihood operations of one launch, as data.

A program is a tuple of stages (:mod:`mltree.program.ops`). It can be listed for a reader, verified
before it runs, and encoded into the one int32 array that the worker interprets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from enum import IntEnum
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.program.contract import Control, Function
from mltree.program.ops.operation import (
    CASE,
    STAGE,
    ControlStage,
    Driver,
    Records,
    Role,
    Stage,
    SumStage,
    WalkStage,
    Words,
    WorkStage,
    fields,
)
from mltree.program.ops.optimise import GROUP, Repeat
from mltree.system.arrays import Int32, Int64
from mltree.system.values import Value


def one_case() -> Records:
    """The case of a lone tree: the first part, under the first model and weights."""
    return np.array([(0, 1, 0, 0)], CASE)


LARGE = 1 << 16
"""Words of a table that is sent by itself: a transfer costs as much as to copy some thousands."""


class Program(Value, eq=False):
    """Stages, the number of cells for their partial sums, and the cases that they work on."""

    stages: tuple[Stage, ...]
    cells: int
    cases: Records = field(default_factory=one_case)
    """:data:`mltree.program.ops.operation.CASE` records."""
    first_stage: int = 0
    """Number of its first stage in the whole program that it is a part of."""
    whole_sums: int = 0
    """Sums of that whole program, for which a part has room too."""

    def __reduce__(self) -> tuple[type[Program], tuple[Any, ...]]:
        """Send another process the fields, and nothing that follows from them."""
        return Program, tuple(getattr(self, name) for name in self.__match_args__)

    def part(self, first: int, last: int) -> Program:
        """Stages ``first .. last - 1``; the same object every time."""
        key = first, last
        if key not in self._parts:
            stages = self.stages[first:last]
            self._parts[key] = Program(
                stages, self.cells, self.cases, self.first_stage + first, self.sums
            )
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[tuple[int, int], Program]:
        return {}

    @cached_property
    def sums(self) -> int:
        """Sums that it leaves behind."""
        ends = [(stage.records["sum"] + stage.sums()).max(initial=0) for stage in self._sum_stages]
        return int(max([self.whole_sums, *ends]))

    def sum_records(self) -> Iterator[tuple[np.void, int]]:
        """The records that leave sums, and how many each leaves."""
        for stage in self._sum_stages:
            yield from zip(stage.records, stage.sums().tolist(), strict=True)

    @property
    def _sum_stages(self) -> Iterator[SumStage]:
        return (stage for stage in self.stages if isinstance(stage, SumStage))

    @property
    def words(self) -> Int32:
        """The program as the worker reads it: stage table, cases, then records."""
        return np.concatenate(self.pieces)

    @cached_property
    def pieces(self) -> list[Int32]:
        """The words in pieces: large tables, which take long to copy, and what lies between."""
        words = Words(self.first_case)
        words.add(self.cases)
        rows = [
            (stage.number, *stage.encode(words), stage.aux(self.cases)) for stage in self.stages
        ]
        tables = [np.array(rows, STAGE).view(np.int32).ravel(), *words.tables]
        by_size = groupby(tables, lambda table: table.size >= LARGE)
        pieces = ([*some] if is_large else [np.concatenate([*some])] for is_large, some in by_size)
        return list(chain.from_iterable(pieces))

    @property
    def first_case(self) -> int:
        """Offset of the cases among the words."""
        return len(self.stages) * len(STAGE.names or ())

    @cached_property
    def matrices(self) -> int:
        """P matrices that it makes room for: one more than the highest index."""
        ends = self.cases["first_part"] + self.cases["parts"]
        made = [
            int((table[name] + ends.take(table["case"])).max(initial=0))
            for table in self._tables
            for name in fields(table.dtype, Role.MAKES)
        ]
        return max(made, default=0)

    @cached_property
    def slots(self) -> int:
        """One more than the highest CLA slot that the program touches."""
        return 1 + max((stage.highest_slot() for stage in self.stages), default=-1)

    @cached_property
    def stack_levels(self) -> int:
        """Depth of a work-group's stack of CLAs, in its deepest scan or walk."""
        walks = [stage for stage in self.stages if isinstance(stage, WalkStage)]
        return max([1, *(stage.stack_levels for stage in walks)])

    @cached_property
    def site_steps(self) -> int:
        """Records that every pattern goes through."""
        return sum(stage.site_steps for stage in self.stages if isinstance(stage, WorkStage))

    @property
    def most_steps(self) -> int:
        """The same if the program repeats as often as it may."""
        return self.site_steps * (1 + sum(times for _, times in self._loops))

    @cached_property
    def site_rows(self) -> int:
        """Rows of site lnL that it writes: a row for each case, or none."""
        keeps = (stage.keeps_sites for stage in self.stages if isinstance(stage, WorkStage))
        return len(self.cases) if any(keeps) else 0

    @cached_property
    def groups(self) -> int:
        """Control records that the program needs: one for each group of branch lengths."""
        return max((len(table) for table in self._tables if table.dtype == GROUP), default=0)

    @cached_property
    def work(self) -> Work:
        """The work of the program, counted once for each object, which may run many times."""
        work, loops = Work(no_work(), no_work(), no_work()), self._loops
        for at, stage in enumerate(self.stages):
            rests = isinstance(stage, WorkStage) and stage.rests
            again = work.grouped if rests else work.repeated
            for function, counts in stage.counts():
                work.once[function] += counts
                if any(at in stages for stages, _ in loops):
                    again[function] += counts
        return work

    @property
    def _tables(self) -> Iterator[Records]:
        """The record tables of all stages."""
        return chain.from_iterable(stage.all_records for stage in self.stages)

    @property
    def _loops(self) -> list[tuple[range, int]]:
        """The stages that each REPEAT repeats, and how often at most."""
        return [
            (range(stage.to, at), stage.times)
            for at, stage in enumerate(self.stages)
            if isinstance(stage, Repeat)
        ]

    def changed(self, change: Callable[[Records], Records]) -> Program:
        """The program with ``change`` made to its cases, and to each table of its stages."""
        stages = tuple(stage.changed(change) for stage in self.stages)
        return Program(stages, self.cells, change(self.cases), self.first_stage)

    def drive(self, driver: Driver) -> None:
        """Have its stages run, those between two control stages at a time."""
        at, end, repeats = 0, len(self.stages), 0
        while at < end:
            stage = self.stages[at]
            if isinstance(stage, ControlStage):
                following = stage.control(driver, at, repeats)
                repeats += following <= at
            else:
                others = (n for n in range(at, end) if isinstance(self.stages[n], ControlStage))
                following = next(others, end)
                driver.run(at, following)
            at = following

    def listing(self) -> str:
        """The program for a reader, a line per record."""
        lines = []
        for number, stage in enumerate(self.stages):
            lines.append(f"{number:03d} {stage.title}")
            lines += [f"      {line}" for line in stage.lines()]
        return "\n".join(lines)


# How much work a program is: operations of each likelihood function, and what they must move at
# least: every operand read once, every CLA written once. The stacks of scans and walks are not
# counted, for a work-group may keep them to itself.


class Count(IntEnum):
    """Counts of a function's work."""

    OPERATIONS = 0
    """Newviews, edges, insertions, matrices or Newton steps of a group."""
    CLAS = 1
    """CLAs read and written."""
    TIPS = 2
    """Tips read."""


class Work(Value, eq=False):
    """The work of a program."""

    once: Int64
    """Each stage once."""
    repeated: Int64
    """Another pass of the stages that a REPEAT goes back to."""
    grouped: Int64
    """Another pass of those that are left out where a group has settled, if none has."""

    def further_passes(self, control: npt.NDArray[np.float64]) -> Int64:
        """The work of the passes after the first, from f64[groups, words] at the end.

        Triplets and streams of trees that have settled are left out, other work is not.
        """
        passes = control[:, Control.PASSES]
        further = int(passes.max(initial=1)) - 1
        if further == 0:
            return no_work()
        of_each = max(0.0, passes.sum() / len(passes) - 1)
        work: Int64 = self.repeated * further + (self.grouped * of_each).astype(np.int64)
        return work


def no_work() -> Int64:
    """Zeros."""
    return np.zeros((len(Function), len(Count)), np.int64)
