"""Programs: the likelihood operations of one launch, as data.

A program is a tuple of stages (:mod:`mltree.program.ops`). It can be listed for a reader, verified
before it runs, and encoded into the one int32 array that the worker interprets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.program.contract import Control, Function
from mltree.program.ops.operation import CASE, STAGE, Driver, Records, Stage, Words
from mltree.system.arrays import Int32, Int64
from mltree.system.values import Value


def one_case() -> Records:
    """The case of a lone tree: the first part, under the first model and weights."""
    return np.array([(0, 1, 0, 0)], CASE)


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
        made = [stage.sums() for stage in self.stages]
        ends = [int((records["sum"] + count).max(initial=0)) for records, count in made]
        return max([self.whole_sums, *ends])

    @cached_property
    def words(self) -> Int32:
        """The program as the worker reads it: stage table, cases, then records."""
        words = Words(self.first_case)
        words.add(self.cases)
        rows = [
            (stage.number, *stage.encode(words), stage.aux(self.cases)) for stage in self.stages
        ]
        return np.concatenate([np.array(rows, STAGE).view(np.int32).ravel(), *words.tables])

    @property
    def first_case(self) -> int:
        """Offset of the cases among the words."""
        return len(self.stages) * len(STAGE.names or ())

    @cached_property
    def matrices(self) -> int:
        """P matrices that it makes room for: one more than the highest index."""
        return max([0, *(stage.matrices(self.cases) for stage in self.stages)])

    @cached_property
    def slots(self) -> int:
        """One more than the highest CLA slot that the program touches."""
        return 1 + max((stage.highest_slot() for stage in self.stages), default=-1)

    @cached_property
    def stack_levels(self) -> int:
        """Depth of a work-group's stack of CLAs, in its deepest scan or walk."""
        return max([1, *(stage.stack_levels for stage in self.stages)])

    @cached_property
    def site_steps(self) -> int:
        """Records that every pattern goes through."""
        return sum(stage.site_steps for stage in self.stages)

    @cached_property
    def site_rows(self) -> int:
        """Rows of site lnL that it writes: a row for each case, or none."""
        return len(self.cases) if any(stage.keeps_sites for stage in self.stages) else 0

    @cached_property
    def groups(self) -> int:
        """Control records that the program needs."""
        return max((stage.control_records for stage in self.stages), default=0)

    def changed(self, change: Callable[[Records], Records]) -> Program:
        """The program with ``change`` made to its cases, and to each table of its stages."""
        stages = tuple(stage.changed(change) for stage in self.stages)
        return Program(stages, self.cells, change(self.cases), self.first_stage)

    def drive(self, driver: Driver) -> None:
        """Have its stages run, those between two control stages at a time."""
        at = repeats = 0
        while at < len(self.stages):
            end = at
            while end < len(self.stages) and not self.stages[end].is_control:
                end += 1
            if end > at:
                driver.run(at, end)
                at = end
                continue
            following = self.stages[at].control(driver, at, repeats)
            repeats += following <= at
            at = following

    def title(self, stage: int) -> str:
        """A stage for a reader, without its records."""
        return self.stages[stage].title

    def line(self, stage: int, record: int) -> str:
        """One record of a stage, as :meth:`listing` shows it (tasks before steps)."""
        return self.stages[stage].lines()[record]

    def listing(self) -> str:
        """The program for a reader, a line per record."""
        lines = []
        for number, stage in enumerate(self.stages):
            lines.append(f"{number:03d} {stage.title}")
            lines += [f"      {line}" for line in stage.lines()]
        return "\n".join(lines)


# How much work a program is: operations of each likelihood function, and what they move.
#
# What an operation moves is the least that it must: every operand read once, every CLA written
# once. The stacks of scans and walks are not counted, for a work-group may keep them to itself.

_CACHE = "_work"


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


def work_of(program: Program) -> Work:
    """A program's work; counted once for each object, which may run many times."""
    work: Work | None = vars(program).get(_CACHE)
    if work is None:
        work = vars(program)[_CACHE] = _count(program.stages)
    return work


def most_steps(program: Program) -> int:
    """Records that every pattern goes through, if the program repeats as often as it may."""
    return program.site_steps * (1 + sum(stage.passes for stage in program.stages))


def _count(stages: Sequence[Stage]) -> Work:
    work = Work(no_work(), no_work(), no_work())
    loops = [stage.loop(at) for at, stage in enumerate(stages)]
    for at, stage in enumerate(stages):
        again = any(at in loop for loop in loops)
        for function, counts in stage.counts():
            work.once[function] += counts
            if again:
                (work.grouped if stage.rests else work.repeated)[function] += counts
    return work
