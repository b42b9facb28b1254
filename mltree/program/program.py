"""Programs: the likelihood operations of one launch, as data.

A program is a tuple of stages. It can be listed for a reader, verified before it runs, and
encoded into the one int32 array that the worker interprets (see :mod:`mltree.system.contract`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.program.stages import (
    Optimise,
    PMatrices,
    Records,
    Reduce,
    Rell,
    Repeat,
    Scan,
    Sites,
    Stage,
    Tripods,
    Walk,
    highest_slot,
    tables_of,
)
from mltree.system import contract
from mltree.system.arrays import Int32, Int64
from mltree.system.contract import (
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
from mltree.system.values import Value

_STAGE_WORDS = len(contract.STAGE.names or ())


def one_case() -> Records:
    """The case of a lone tree: the first part, under the first model and weights."""
    return np.array([(0, 1, 0, 0)], contract.CASE)


class Program(Value, eq=False):
    """Stages, how many cells their partial sums need, and the cases that they work on."""

    stages: tuple[Stage, ...]
    cells: int
    cases: Records = field(default_factory=one_case)
    """:data:`contract.CASE` records."""
    first_stage: int = 0
    """Number of its first stage in the program that it is a part of."""
    whole_sums: int = 0
    """Sums of that program, for which a part has room too."""

    def __reduce__(self) -> tuple[type[Program], tuple[Any, ...]]:
        """What another process is sent: nothing that follows from the rest."""
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
        ends = [self.whole_sums]
        for stage in self.stages:
            match stage:
                case Reduce(records):
                    ends.append(int((records["sum"] + records["count"]).max(initial=0)))
                case Rell(records):
                    products = records["rows"] * records["weights"]
                    ends.append(int((records["sum"] + products).max(initial=0)))
        return max(ends)

    @cached_property
    def words(self) -> Int32:
        """The program as the worker reads it: stage table, cases, then records."""
        return _encode(self)

    @property
    def first_case(self) -> int:
        """Where the cases start among the words."""
        return len(self.stages) * _STAGE_WORDS

    @cached_property
    def matrices(self) -> int:
        """P matrices that it makes room for: one more than the highest index."""
        ends = [0]
        for stage in self.stages:
            if isinstance(stage, PMatrices):
                ends_of_cases = self.cases["first_part"] + self.cases["parts"]
                last = stage.records["p"] + ends_of_cases.take(stage.records["case"])
                ends.append(int(last.max(initial=0)))
        return max(ends)

    @cached_property
    def slots(self) -> int:
        """One more than the highest CLA slot that the program touches."""
        return 1 + max(map(highest_slot, self.stages), default=-1)

    @cached_property
    def stack_levels(self) -> int:
        """Depth of a work-group's stack of CLAs, in its deepest scan or walk."""
        return max([1, *(s.levels for s in self.stages if isinstance(s, Scan | Walk))])

    @cached_property
    def site_steps(self) -> int:
        """Records that every pattern goes through."""
        own = [s for s in self.stages if isinstance(s, Sites | Scan | Tripods | Walk)]
        return sum(len(records) for stage in own for records in tables_of(stage))

    @cached_property
    def site_rows(self) -> int:
        """Rows of site lnL that it writes: a row for each case, or none."""
        keeps = any(
            (isinstance(s, Walk) and s.sites)
            or (isinstance(s, Sites) and (s.runs["kind"] == RunKind.EVALUATE_SITES).any())
            for s in self.stages
        )
        return len(self.cases) if keeps else 0

    @cached_property
    def groups(self) -> int:
        """Control records that the program needs."""
        return max((len(s.records) for s in self.stages if isinstance(s, Optimise)), default=0)

    def title(self, stage: int) -> str:
        """What a stage does, without its records."""
        match self.stages[stage]:
            case Repeat(to, times, groups):
                of = f"{groups} groups moves, at most {times} times"
                return f"REPEAT from {to:03d} while one of {of}"
            case _:
                return self.stages[stage].op.name

    def line(self, stage: int, record: int) -> str:
        """One record of a stage, as :meth:`listing` shows it (tasks before steps)."""
        return _record_lines(self.stages[stage])[record]

    def listing(self) -> str:
        """The program for a reader, a line per record."""
        lines = []
        for number, stage in enumerate(self.stages):
            lines.append(f"{number:03d} {self.title(number)}")
            lines += [f"      {line}" for line in _record_lines(stage)]
        return "\n".join(lines)


class _Encoder:
    """Appends record tables behind the stage table and the cases, and tells where they went."""

    def __init__(self, program: Program) -> None:
        self.cases = program.cases
        self.offset = program.first_case
        self.parts: list[Int32] = []
        self.add(program.cases)

    def add(self, records: Records) -> int:
        at = self.offset
        flat = np.ascontiguousarray(records).view(np.int32).ravel()
        padding = np.zeros(-flat.size % contract.RECORD_ALIGNMENT, np.int32)
        self.parts += [flat, padding]
        self.offset += flat.size + padding.size
        return at

    def add_steps(self, tasks: Records, steps: Records) -> int:
        """Tasks whose first step is a word from here on."""
        return self.add(_moved(tasks, "first_step", self.add(steps), steps))

    def add_streams(self, stage: Sites) -> int:
        """Streams whose runs, and runs whose records, are words from here on."""
        first = np.zeros(len(RunKind), np.int32)
        words = np.zeros(len(RunKind), np.int32)
        starts = {table.dtype: self.add(table) for table in stage.tables}
        for kind, operation in RUNS.items():
            first[kind] = starts.get(operation.record, 0)
            words[kind] = len(operation.record.names or ())
        runs, kinds = stage.runs.copy(), stage.runs["kind"]
        runs["first"] = first[kinds] + words[kinds] * runs["first"]
        return self.add(_moved(stage.streams, "first_run", self.add(runs), runs))

    def row(self, stage: Stage) -> tuple[int, int, int, int]:
        """The stage's :data:`contract.STAGE`."""
        match stage:
            case Repeat(to, times, groups):
                return stage.op, to, times, groups
            case Sites(streams):
                first, count = self.add_streams(stage), len(streams)
            case Scan(records, steps) | Walk(records, steps):
                first, count = self.add_steps(records, steps), len(records)
            case _:
                first, count = self.add(stage.records), len(stage.records)
        return stage.op, first, count, _aux(stage, self.cases)


def _aux(stage: Stage, cases: Records) -> int:
    """What a stage's row says beside its records (:data:`contract.STAGE`)."""
    match stage:
        case PMatrices(records):
            return int(cases["parts"][records["case"]].max(initial=1))
        case Reduce(records):
            return int(records["count"].max(initial=1))
        case Optimise(_, flag) | Scan(_, _, flag) | Walk(_, _, _, flag):
            return int(flag)
        case _:
            return 0


def _moved(records: Records, name: str, start: int, unit: Records) -> Records:
    """The records, with a field that counted ``unit`` records counting words from ``start``."""
    moved = records.copy()
    moved[name] = start + len(unit.dtype.names or ()) * records[name]
    return moved


def _encode(program: Program) -> Int32:
    encoder = _Encoder(program)
    table = np.array([encoder.row(stage) for stage in program.stages], contract.STAGE)
    return np.concatenate([table.view(np.int32).ravel(), *encoder.parts])


_WRITTEN_AS: dict[Role | None, str] = {
    Role.READS: "cla[{}]",
    Role.TAKES: "cla[{}]",
    Role.WRITES: "cla[{}]",
    Role.MATRIX: "P[{}]",
    Role.MAKES: "P[{}]",
    Role.LENGTH: "t[{}]",
    Role.CASE: "case {}",
    Role.CELL: "cell[{}]",
}


def _fields_as(record: np.void) -> dict[str, str]:
    """The fields of a record for a reader."""
    roles, names = contract.roles(record.dtype), record.dtype.names or ()
    return {name: _written_as(roles.get(name), int(record[name])) for name in names}


def _written_as(role: Role | None, value: int) -> str:
    """A field's value for a reader."""
    if role in {Role.READS, Role.TAKES, Role.TIP} and value < 0:
        return f"tip[{~value}]"
    if role is Role.TAKES and value == RESULT:
        return "result"
    return _WRITTEN_AS.get(role, "{}").format(value)


def _line(text: str, record: np.void) -> str:
    return text.format_map(_fields_as(record))


def _step_line(step: np.void) -> str:
    return " ".join(f"{name}={value}" for name, value in _fields_as(step).items())


def _record_lines(stage: Stage) -> list[str]:
    match stage:
        case Repeat():
            return []
        case Sites():
            return [
                f"{kind.name} {_line(RUNS[kind].line, record)}"
                for _, kind, records in stage.each()
                for record in records
            ]
        case _:
            first, *steps = tables_of(stage)
            lines = [_line(STAGES[stage.op].line, record) for record in first]
            return lines + [_step_line(step) for table in steps for step in table]


# How much work a program is: operations of each likelihood function, and what they move.
#
# What an operation moves is the least that it must: every operand read once, every CLA written
# once. The stacks of scans and walks are not counted, for a work-group may keep them to itself.

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
            for name in fields(records.dtype, role):
                operand = records[name]
                own = int(np.count_nonzero(operand < 0))
                results = np.count_nonzero(operand == RESULT) if role is Role.TAKES else 0
                tips += own
                clas += len(operand) - own - int(results)
    return clas, tips
