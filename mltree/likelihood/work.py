"""How much work a program is: operations of each likelihood function, and what they move.

What an operation moves is the least that it must: every operand read once, every CLA written
once. The stacks of scans and walks are not counted, for a work-group may keep them to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from mltree.arrays import Int64
from mltree.contract import (
    NO_CELL,
    RESULT,
    RUNS,
    STAGES,
    Control,
    Function,
    Role,
    RunKind,
    fields,
)
from mltree.likelihood.program import Program
from mltree.likelihood.stages import (
    Optimise,
    PMatrices,
    Records,
    Rell,
    Repeat,
    Scan,
    Sites,
    Stage,
    Tripods,
    Walk,
    tables_of,
)
from mltree.values import Value

__all__ = ["Count", "Work", "most_steps", "no_work", "work_of"]


_CACHE = "_work"


class Count(IntEnum):
    """What is counted of a function."""

    OPERATIONS = 0
    """Newviews, edges, insertions, matrices or Newton steps of a group."""
    CLAS = 1
    """CLAs read and written."""
    TIPS = 2
    """Tips read."""


class Work(Value, eq=False):
    """The work of a program."""

    once: Int64
    """Of every stage once."""
    repeated: Int64
    """Of another pass of the stages that a REPEAT goes back to."""
    grouped: Int64
    """Of another pass of those that are left out where a group has settled, if none has."""

    def further_passes(self, control: npt.NDArray[np.float64]) -> Int64:
        """The work of the passes after the first, from f64[groups, words] at the end.

        Tripods and streams of trees that have settled are left out, other work is not.
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
    return program.site_steps * (1 + sum(s.times for s in program.stages if isinstance(s, Repeat)))


def _count(stages: Sequence[Stage]) -> Work:
    work = Work(no_work(), no_work(), no_work())
    looped = [range(s.to, at) for at, s in enumerate(stages) if isinstance(s, Repeat)]
    for at, stage in enumerate(stages):
        again = any(at in loop for loop in looped)
        for function, counts in _stage_counts(stage):
            work.once[function] += counts
            if again:
                (work.grouped if _rests(stage) else work.repeated)[function] += counts
    return work


def _rests(stage: Stage) -> bool:
    """Whether the worker leaves out what belongs to a group that has settled."""
    grouped = isinstance(stage, Sites) and (stage.streams["group"] != NO_CELL).all()
    return bool(grouped) or isinstance(stage, Tripods)


def _stage_counts(stage: Stage) -> Iterator[tuple[Function, tuple[int, int, int]]]:
    """Counts of a stage's functions (:class:`Count`)."""
    match stage:
        case Sites(_, runs):
            for kind in map(RunKind, np.flatnonzero(np.bincount(runs["kind"])).tolist()):
                yield RUNS[kind].function, _run_counts(stage, kind)
        case Scan():
            stored = len(stage.outputs) if stage.stores else 0
            clas, tips = _operands(*tables_of(stage))
            yield Function.SCAN, (len(stage.outputs), clas + stored, tips)
        case Walk(walks, steps):
            clas, tips = _operands(steps)
            kept = int(np.count_nonzero(walks["slot"] >= 0))  # and read once
            yield Function.NEWVIEW, (len(steps), 2 * kept, tips + len(walks) - kept)
        case Rell(records):
            yield Function.RELL, (int((records["rows"] * records["weights"]).sum()), 0, 0)
        case PMatrices(records) | Tripods(records) | Optimise(records):
            yield STAGES[stage.op].function, (len(records), *_operands(records))


def _run_counts(stage: Sites, kind: RunKind) -> tuple[int, int, int]:
    """Counts of all runs of a kind."""
    runs = stage.runs[stage.runs["kind"] == kind]
    table = next(table for table in stage.tables if table.dtype == RUNS[kind].record)
    count = int(runs["count"].sum())
    if count < len(table):  # other kinds have records in it too
        table = np.concatenate([stage.of_run(run) for run in runs])
    clas, tips = _operands(table)
    return count, clas + count * len(fields(table.dtype, Role.WRITES)), tips


def _operands(*tables: Records) -> tuple[int, int]:
    """How many operands are CLAs, and how many are tips."""
    clas = tips = 0
    for records in tables:
        for role in (Role.READS, Role.TAKES):
            for field in fields(records.dtype, role):
                operand = records[field]
                own = int(np.count_nonzero(operand < 0))
                results = np.count_nonzero(operand == RESULT) if role is Role.TAKES else 0
                tips += own
                clas += len(operand) - own - int(results)
    return clas, tips
