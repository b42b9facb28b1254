"""Records, their fields' roles, and the kinds of operations.

An operation is a class of one of these kinds; its abstract methods are what it has to define:

    Operation          tables of flat int32 records
      Run              a run of a SITES stage, site-local: NEWVIEW, EVALUATE, DERIVE, FLOW
      Stage            an entry of a program, ended by a barrier over the grid
        WorkStage      computed by work-groups: SITES
          TableStage   records side by side: PMATRICES, TRIPLET
            WalkStage  tasks, each with steps one after the other: WALK, SCAN
            SumStage   records that leave sums: REDUCE, RELL
        ControlStage   follows on sums, of all devices: OPTIMISE, REPEAT

Verification, residency, work, listings and encoding follow from the roles of records' fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from mltree.program.contract import NO_CELL, RECORD_ALIGNMENT, RESULT, Function
from mltree.program.ops.state import ReferenceState
from mltree.system.arrays import Int32
from mltree.system.values import Value, Word

Records: TypeAlias = npt.NDArray[np.void]
"""A structured array of one record."""

Counts: TypeAlias = tuple[Function, tuple[int, int, int]]
"""A function's operations, CLAs and tips (:class:`mltree.program.program.Count`)."""

_Self = TypeVar("_Self", bound="Operation")


class Role(Word):
    """Meaning of a record's field; a field without a role is a number."""

    READS = "reads"
    """The CLA of a slot, or ``~tip``."""
    TAKES = "takes"
    """The same, or RESULT."""
    TIP = "tip"
    """``~tip``."""
    WRITES = "writes"
    """The slot of a CLA, or NO_CELL."""
    OUTPUT = "output"
    """A cell, or a slot where the stage stores; or NO_CELL."""
    MATRIX = "matrix"
    """P matrices that are read: of part q at the index plus q."""
    MAKES = "makes"
    """P matrices that are made, likewise."""
    LENGTH = "length"
    """A branch length: of part q at the index plus q strides, where the record has a stride."""
    STRIDE = "stride"
    """From the length of one part to that of the next; 0 where parts share lengths."""
    CASE = "case"
    """A case of the program."""
    MODEL = "model"
    """The case's model: of part q in the row plus q."""
    WEIGHTS = "weights"
    """The case's row of weights."""
    CELL = "cell"
    """The first of the cells that partial sums go to, or NO_CELL."""
    FIRST_PART = "first"
    """The first of the parts that the record is about."""
    PARTS = "parts"
    """How many those are."""
    GROUP = "group"
    """The group of lengths whose end lets a pass leave the record out, or NO_CELL."""


_ROLES: dict[np.dtype[np.void], dict[str, Role]] = {}
NAMES: dict[np.dtype[np.void], str] = {}
"""Names by which kernels know the fields of records."""


def record(text: str, name: str = "") -> np.dtype[np.void]:
    """Define a record of ``name`` and ``name:role`` fields, ``NAME_FIELD`` to kernels."""
    named = [item.partition(":") for item in text.split()]
    layout = np.dtype([(item, np.int32) for item, _, _ in named])
    _ROLES[layout] = {item: Role(role) for item, _, role in named if role}
    if name:
        NAMES[layout] = name
    return layout


@cache
def fields(layout: np.dtype[np.void], *roles: Role) -> tuple[str, ...]:
    """Fields of a record that have one of the roles."""
    return tuple(field for field, role in _ROLES[layout].items() if role in roles)


class Row:
    """A record whose fields are attributes."""

    def __init__(self, record: np.void) -> None:
        self._record = record

    def __getattr__(self, field: str) -> int:
        return int(self._record[field])


STAGE = record("op first count aux", "STAGE")
"""A stage. ``first`` is a word offset into the program (REPEAT: a stage), ``aux`` the stage's
:meth:`Stage.aux`."""
CASE = record("first_part:first parts:parts model:model weights:weights", "CASE")
"""A range of parts, their models and a row of weights, for a tree. The model of part q is row
``model + q``. Records repeat what they need of their case, so that nothing waits for it."""


class Words:
    """Record tables one behind the other, as int32 words from an offset on."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.tables: list[Int32] = []

    def add(self, records: Records) -> int:
        """Append a table; returns where it starts."""
        start = self.offset
        flat = np.ascontiguousarray(records).view(np.int32).ravel()
        padding = np.zeros(-flat.size % RECORD_ALIGNMENT, np.int32)
        self.tables += [flat, padding]
        self.offset += flat.size + padding.size
        return start


def moved(records: Records, name: str, start: int, unit: Records) -> Records:
    """The records, with a field that counted ``unit`` records counting words from ``start``."""
    counted = records.copy()
    counted[name] = start + len(unit.dtype.names or ()) * records[name]
    return counted


def table(layout: np.dtype[np.void], rows: int, **columns: Int32 | int) -> Records:
    """A table of so many records, column by column; fields that are not named are left open."""
    records: Records = np.empty(rows, layout)
    for name, column in columns.items():
        records[name] = column
    return records


def shifted(records: Records, by: int, *roles: Role) -> Records:
    """The records, with ``by`` added to the fields of some roles."""
    others = records.copy()
    for name in fields(records.dtype, *roles):
        others[name] += by
    return others


def joined(tables: Sequence[Records]) -> Records:
    """Tables of one record as one: plain integers are joined five times as fast as records."""
    if len(tables) == 1:
        return tables[0]
    words = [np.ascontiguousarray(table).view(np.int32) for table in tables]
    whole: Records = np.concatenate(words).view(tables[0].dtype)
    return whole


class LaunchShape(NamedTuple):
    """Sizes on which the number of a stage's jobs depends, a job being a work-group's."""

    chunks: int
    """Chunks of the patterns."""
    spans: int
    """Spans of the patterns: chunks that a work-group takes side by side."""
    items: int
    """Work-items of a work-group."""
    lanes: int
    """Work-items that share a block; 1 on a CPU."""
    matrix_items: int
    """Work-items that share a P matrix's making, over all categories."""
    reduction_lanes: int = 0
    """Strided sums that a shard leaves of each sum; 0 for whole sums."""


class Driver(Protocol):
    """Runs the stages of a program (:meth:`mltree.program.program.Program.drive`)."""

    def run(self, first: int, end: int) -> None:
        """Run stages ``first .. end - 1``, none of which is a control stage."""

    def step(self, at: int) -> None:
        """Run stage ``at``, a step of every group of branch lengths."""

    def is_active(self, groups: int) -> bool:
        """Return whether one of so many groups still moves."""


class Operation(Value, ABC):
    """Records of a stage or a run, and what they mean."""

    name: ClassVar[str]
    """In listings, and in kernels behind ``OP_`` (a stage) or ``DO_`` (a run)."""
    number: ClassVar[int]
    """On the wire; runs and stages are numbered apart, each from 0 on without a gap."""
    kinds: ClassVar[dict[int, Any]]
    """Runs or stages by their numbers."""
    function: ClassVar[Function]
    """The function that its time and work count as."""
    line: ClassVar[str]
    """Listing line of a record, its fields in braces."""
    cells: ClassVar[int] = 0
    """Cells that a record adds to, from its CELL on; 0 where a field of the record says how many,
    which all records of a run then share."""

    def __init_subclass__(cls, **options: bool) -> None:
        super().__init_subclass__(**options)
        if "number" in vars(cls):
            assert cls.kinds.setdefault(cls.number, cls) is cls, f"{cls.name}: number is taken"

    @cached_property
    def all_records(self) -> list[Records]:
        """Every record table: tasks before their steps."""
        values = vars(self).values()
        every = (value if isinstance(value, tuple) else (value,) for value in values)
        return [table for several in every for table in several if isinstance(table, np.ndarray)]

    def changed(self: _Self, change: Callable[[Records], Records]) -> _Self:
        """The operation with ``change`` made to each of its tables."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self._names}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                values[name] = change(value)
            elif isinstance(value, tuple):
                values[name] = tuple(map(change, value))
        return type(self)(**values)

    def columns(self, *roles: Role) -> list[Int32]:
        """int32[n] each: fields of the roles, of every table."""
        return [table[name] for table in self.all_records for name in fields(table.dtype, *roles)]

    def slots_read(self) -> Int32:
        """int32[n]: slots of CLAs that are read."""
        return _slots(self.columns(Role.READS, Role.TAKES))

    def slots_written(self) -> Int32:
        """int32[n]: slots of CLAs that are written."""
        return _slots(self.columns(Role.WRITES))

    def highest_slot(self) -> int:
        """The highest slot of a CLA that is read or written; -1 where there is none."""
        highest = [column.max(initial=-1) for column in self.columns(Role.READS, Role.WRITES)]
        taken = self.columns(Role.TAKES)
        highest += [column.max(initial=-1, where=column != RESULT) for column in taken]
        return int(max(highest, default=-1))


RUNS: dict[int, type[Run]] = {}
"""Kinds of runs by their numbers."""


class Run(Operation):
    """Records of one kind in a SITES stage, which do not depend on each other."""

    kinds = RUNS
    layout: ClassVar[np.dtype[np.void]]
    """Layout of the record, which several operations may share."""
    keeps_sites: ClassVar[bool] = False
    """True where it leaves the lnL of every pattern in the row of its case's number."""
    reads_sites: ClassVar[bool] = False
    """True where it reads that row, which an earlier run of its stream left."""

    records: Records

    @abstractmethod
    def formula(self, state: ReferenceState, record: Row, /) -> None:
        """Compute a record for the part at hand."""

    def compute(self, state: ReferenceState) -> None:
        """Compute every record for the part at hand."""
        for record in self.records:
            self.formula(state, Row(record))

    def counts(self) -> Counts:
        """The work of its records."""
        return self.function, (len(self.records), *operands(self.records))

    def lines(self) -> list[str]:
        """A line a record, for a reader."""
        return [f"{self.name} {_listed(self.line, item)}" for item in self.records]


class Kernel(NamedTuple):
    """A kernel of the worker, which runs a stage and, beside it, those that all kernels run."""

    front: str
    """The front file, ``opencl/<front>.cl``."""
    has_stack: bool = False
    """True where work-groups have a stack of CLAs."""
    registers: int = 128
    """Most registers of a work-item on NVIDIA's GPUs, where its vectors are small: a compute unit
    then holds four groups. On an H200 walks of 15 taxa x 262,144 patterns took 0.73 of the time
    that they took with 255, derivatives 0.8, scans 0.6, though a few vectors wait in memory."""
    rounds: tuple[float, float] = 64, 2
    """Rounds of work-groups that surely fit together, above which every stage gets a launch of its
    own: the device then holds as many as really fit and hands out their work. A launch costs 20 us.
    The second number is for devices where one work-group a compute unit is all that is sure."""


STAGES: dict[int, type[Stage]] = {}
"""Kinds of stages by their numbers."""


class Stage(Operation):
    """An entry of a program: a table of records, or tasks and their steps."""

    kinds = STAGES
    layouts: ClassVar[tuple[np.dtype[np.void], ...]] = ()
    """The records of its own tables."""
    kernel: ClassVar[Kernel | None] = None
    """The kernel that runs it; None where all kernels do."""

    @abstractmethod
    def jobs(self, shape: LaunchShape) -> int:
        """Work-groups that it can make use of; 0 counts as 1."""

    @property
    def is_joint(self) -> bool:
        """True where work-groups wait for each other, so that all have to be resident."""
        return False

    @property
    def title(self) -> str:
        """The stage for a reader, without its records."""
        return self.name

    def lines(self) -> list[str]:
        """A line a record, for a reader."""
        tables = self.all_records
        tasks = [_listed(self.line, item) for table in tables[:1] for item in table]
        return tasks + [_step_line(item) for table in tables[1:] for item in table]

    def counts(self) -> Iterator[Counts]:
        """The work of its records, function by function."""
        for tasks in self.all_records[:1]:
            yield self.function, (len(tasks), *operands(tasks))

    def encode(self, words: Words) -> tuple[int, int]:
        """Append its tables; returns ``first`` and ``count`` of its :data:`STAGE`."""
        tasks, *others = self.all_records
        for steps in others:
            tasks = moved(tasks, "first_step", words.add(steps), steps)
        return words.add(tasks), len(tasks)

    def aux(self, cases: Records) -> int:
        """``aux`` of its :data:`STAGE`: a number for its kernel, where that needs one."""
        return 0

    def writing(self) -> Stage | None:
        """The stage without what writes neither CLAs nor P matrices; None where nothing does."""
        return self if self.columns(Role.MAKES) or self.slots_written().size else None


class WorkStage(Stage):
    """A stage that work-groups compute, by a formula that the reference computes too."""

    @abstractmethod
    def compute(self, state: ReferenceState) -> None:
        """Compute it by NumPy, as its formula says."""

    @property
    def keeps_sites(self) -> bool:
        """True where it leaves the lnL of every pattern in a row for each case."""
        return False

    @property
    def site_steps(self) -> int:
        """Records that every pattern goes through."""
        tables = self.all_records
        is_read = (bool(fields(t.dtype, Role.READS, Role.TAKES, Role.TIP)) for t in tables)
        return sum(len(t) for t, reads in zip(tables, is_read, strict=True) if reads)

    @property
    def rests(self) -> bool:
        """True where passes leave out each record, or stream, whose group has settled."""
        groups = self.columns(Role.GROUP)
        return bool(groups) and all((group != NO_CELL).all() for group in groups)


class ControlStage(Stage):
    """A stage that follows on sums, of all devices."""

    @abstractmethod
    def control(self, driver: Driver, at: int, repeats: int) -> int:
        """Do it, as stage ``at``, after so many repeats; returns the stage that follows."""


class TableStage(WorkStage):
    """Records that work-groups compute side by side."""

    records: Records

    @abstractmethod
    def formula(self, state: ReferenceState, record: Row, /) -> None:
        """Compute a record for the part at hand; for all of its parts where it has no case."""

    def compute(self, state: ReferenceState) -> None:
        """Compute every record on every part of its case."""
        for record in map(Row, self.records):
            for _ in state.parts_of(record.case):
                self.formula(state, record)


class WalkStage(TableStage):
    """Tasks of steps one after the other, with results on a stack between them.

    ``first_step`` of a task counts records of ``steps`` here, words on the wire.
    """

    steps: Records

    @property
    @abstractmethod
    def stack_levels(self) -> int:
        """CLAs on a work-group's stack at most."""

    def jobs(self, shape: LaunchShape) -> int:
        return len(self.records) * shape.spans


class SumStage(TableStage):
    """Records that leave sums, from their ``sum`` on; each about the parts that it names."""

    @abstractmethod
    def sums(self) -> Int32:
        """int32[n]: how many sums each record leaves."""

    def compute(self, state: ReferenceState) -> None:
        for record in self.records:
            self.formula(state, Row(record))


def kernels() -> dict[str, Kernel]:
    """The worker's kernels, by their front files."""
    kinds = (kind for _, kind in sorted(STAGES.items()))
    return {kind.kernel.front: kind.kernel for kind in kinds if kind.kernel}


def _slots(columns: list[Int32]) -> Int32:
    """int32[n]: the slots among operands."""
    every = np.concatenate(columns) if columns else np.zeros(0, np.int32)
    kept: Int32 = every[(every >= 0) & (every != RESULT)]
    return kept


def operands(*tables: Records) -> tuple[int, int]:
    """Numbers of CLAs that are read and written, and of tips that are read."""
    clas = tips = 0
    for records in tables:
        for name in fields(records.dtype, Role.READS, Role.TAKES):
            of_tips = int(np.count_nonzero(records[name] < 0))
            tips += of_tips
            clas += len(records) - of_tips
        for name in fields(records.dtype, Role.TAKES):
            clas -= int(np.count_nonzero(records[name] == RESULT))
        for name in fields(records.dtype, Role.WRITES):
            clas += int(np.count_nonzero(records[name] >= 0))
    return clas, tips


_WRITTEN_AS = {
    Role.READS: "cla[{}]",
    Role.TAKES: "cla[{}]",
    Role.WRITES: "cla[{}]",
    Role.MATRIX: "P[{}]",
    Role.MAKES: "P[{}]",
    Role.LENGTH: "t[{}]",
    Role.CASE: "case {}",
    Role.CELL: "cell[{}]",
}


def _listed(text: str, item: np.void) -> str:
    """A record's line, from a text with its fields in braces."""
    return text.format_map(_for_reader(item))


def _step_line(step: np.void) -> str:
    return " ".join(f"{name}={value}" for name, value in _for_reader(step).items())


def _for_reader(item: np.void) -> dict[str, str]:
    """The fields of a record for a reader."""
    roles = _ROLES[item.dtype]
    return {name: _written(roles.get(name), int(item[name])) for name in item.dtype.names or ()}


def _written(role: Role | None, value: int) -> str:
    """A field's value for a reader."""
    if role in {Role.READS, Role.TAKES, Role.TIP} and value < 0:
        return f"tip[{~value}]"
    if role is Role.TAKES and value == RESULT:
        return "result"
    return (_WRITTEN_AS.get(role, "{}") if role else "{}").format(value)
