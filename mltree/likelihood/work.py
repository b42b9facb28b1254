"""How much work a program is: operations of each likelihood function, and what they move.

What an operation moves is the least that it must: every operand read once, every CLA written
once. The stacks of scans and walks are not counted, for a work-group may keep them to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from mltree.contract import NEWVIEW, Control, Function, RunKind
from mltree.likelihood.program import (
    Optimise,
    PMatrices,
    Program,
    Records,
    Repeat,
    Scan,
    Sites,
    Stage,
    Tripods,
    Walk,
)

__all__ = ["Count", "Counts", "Work", "most_steps", "no_work", "work_of"]

Counts = npt.NDArray[np.int64]
"""int64[functions, counts] (:class:`mltree.contract.Function`, :class:`Count`)."""

_EDGE_FUNCTIONS = {
    RunKind.EVALUATE: Function.EVALUATE,
    RunKind.EVALUATE_SITES: Function.EVALUATE,
    RunKind.DERIVE: Function.DERIVE,
}

_CACHE = "_work"


class Count(IntEnum):
    """What is counted of a function."""

    OPERATIONS = 0
    """Newviews, edges, insertions, matrices or Newton steps of a group."""
    CLAS = 1
    """CLAs read and written."""
    TIPS = 2
    """Tips read."""


@dataclass(frozen=True, eq=False)
class Work:
    """The work of a program."""

    once: Counts
    """Of every stage once."""
    repeated: Counts
    """Of another pass of the stages that a REPEAT goes back to, all but tripods."""
    tripods: Counts
    """Of another pass of the tripods among them, if none has settled."""

    def further_passes(self, control: npt.NDArray[np.float64]) -> Counts:
        """The work of the passes after the first, from f64[groups, words] at the end.

        Tripods that have settled are left out by the worker, other work is not.
        """
        passes = control[:, Control.PASSES]
        further = int(passes.max(initial=1)) - 1
        if further == 0:
            return no_work()
        tripods = max(0.0, passes.sum() / len(passes) - 1)
        work: Counts = self.repeated * further + (self.tripods * tripods).astype(np.int64)
        return work


def no_work() -> Counts:
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
                (work.tripods if function == Function.TRIPOD else work.repeated)[function] += counts
    return work


def _stage_counts(stage: Stage) -> Iterator[tuple[Function, tuple[int, int, int]]]:
    """Counts of a stage's functions (:class:`Count`)."""
    match stage:
        case PMatrices(records):
            yield Function.PMATRICES, (len(records), 0, 0)
        case Optimise(records):
            yield Function.OPTIMISE, (len(records), 0, 0)
        case Sites(runs):
            yield from _run_counts(runs)
        case Scan(tasks, steps, stores):
            inserted = len(stage.outputs)
            clas, tips = _operands(steps, "left", "right")
            task_clas, task_tips = _operands(tasks, "root", "pendant")
            stored = inserted if stores else 0
            yield Function.SCAN, (inserted, clas + task_clas + stored, tips + task_tips)
        case Walk(walks, steps):
            _, tips = _operands(steps, "left", "right")
            kept = int(np.count_nonzero(walks["slot"] >= 0))  # and read once
            yield Function.NEWVIEW, (len(steps), 2 * kept, tips + len(walks) - kept)
        case Tripods(records):
            yield Function.TRIPOD, (len(records), *_operands(records, "near", "far", "pendant"))


def _run_counts(
    runs: Sequence[tuple[RunKind, Records]],
) -> Iterator[tuple[Function, tuple[int, int, int]]]:
    newviews = [records.view(np.int32) for kind, records in runs if kind == RunKind.NEWVIEW]
    if newviews:
        # A tree has a run a level: plain integers are joined five times as fast as records.
        records = np.concatenate(newviews).view(NEWVIEW)
        clas, tips = _operands(records, "left", "right")
        yield Function.NEWVIEW, (len(records), clas + len(records), tips)
    for kind, records in runs:
        if kind != RunKind.NEWVIEW:
            yield _EDGE_FUNCTIONS[kind], (len(records), *_operands(records, "x", "y"))


def _operands(records: Records, *fields: str) -> tuple[int, int]:
    """How many operands of those fields are CLAs, and how many are tips."""
    tips = sum(int(np.count_nonzero(records[field] < 0)) for field in fields)
    return len(fields) * len(records) - tips, tips
