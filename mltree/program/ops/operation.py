"""Records, their fields' roles, and what every operation says of itself.

A :class:`Stage` is an entry of a program, ended by a barrier over the grid; a :class:`Run` is an
entry of a SITES stage, site-local like all of that stage. Both are tables of flat int32 records.
Verification, residency, work, listings and encoding follow from the roles of a record's fields; an
operation overrides a method where it differs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from mltree.program.contract import RECORD_ALIGNMENT, RESULT, Function
from mltree.program.ops.state import ReferenceState
from mltree.system.arrays import Int32
from mltree.system.values import Value

Records: TypeAlias = npt.NDArray[np.void]
"""A structured array of one record."""

Counts: TypeAlias = tuple[Function, tuple[int, int, int]]
"""A function's operations, CLAs and tips (:class:`mltree.program.program.Count`)."""

_Self = TypeVar("_Self", bound="Operation")


class Role(enum.Enum):
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


_ROLES: dict[np.dtype[np.void], dict[str, Role]] = {}
NAMES: dict[np.dtype[np.void], str] = {}
"""Names by which kernels know the fields of records."""


def record(text: str, name: str = "") -> np.dtype[np.void]:
    """Define a record of ``name`` and ``name:role`` fields.

    ``name``: kernels know its fields as ``NAME_FIELD``.
    """
    named = [item.partition(":") for item in text.split()]
    layout = np.dtype([(item, np.int32) for item, _, _ in named])
    _ROLES[layout] = {item: Role(role) for item, _, role in named if role}
    if name:
        NAMES[layout] = name
    return layout


def roles(layout: np.dtype[np.void]) -> dict[str, Role]:
    """Roles of a record's fields, but for plain numbers."""
    return _ROLES[layout]


@cache
def fields(layout: np.dtype[np.void], *asked: Role) -> tuple[str, ...]:
    """Fields of a record that have one of the roles."""
    return tuple(field for field, role in _ROLES[layout].items() if role in asked)


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


class Operation(Value):
    """Records of a stage or a run, and what they mean."""

    name: ClassVar[str]
    """In listings, and in kernels behind ``OP_`` (a stage) or ``DO_`` (a run)."""
    number: ClassVar[int]
    """On the wire; runs and stages are numbered apart, each from 0 on without a gap."""
    function: ClassVar[Function]
    """The function that its time and work count as."""
    line: ClassVar[str]
    """Listing line of a record, its fields in braces."""
    cells: ClassVar[int] = 0
    """Cells that a record adds to, from its CELL on; 0 where a field of the record says how many,
    which all records of a run then share."""

    def all_records(self) -> tuple[Records, ...]:
        """Every record table: tasks before their steps."""
        return tuple(table for table in vars(self).values() if isinstance(table, np.ndarray))

    def changed(self: _Self, change: Callable[[Records], Records]) -> _Self:
        """The operation with ``change`` made to each of its tables."""
        values: dict[str, Any] = dict(vars(self))
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                values[name] = change(value)
            elif isinstance(value, tuple):
                values[name] = tuple(map(change, value))
        return type(self)(**values)

    def slots_read(self) -> Int32:
        """int32[n]: slots of CLAs that are read."""
        return slots([*self._columns(Role.READS, Role.TAKES)])

    def slots_written(self) -> Int32:
        """int32[n]: slots of CLAs that are written."""
        return slots([*self._columns(Role.WRITES)])

    def highest_slot(self) -> int:
        """The highest slot of a CLA that is read or written; -1 where there is none."""
        highest = -1
        for column in self._columns(Role.READS, Role.WRITES):
            highest = max(highest, int(column.max(initial=-1)))
        for column in self._columns(Role.TAKES):
            highest = max(highest, int(column.max(initial=-1, where=column != RESULT)))
        return highest

    def _columns(self, *asked: Role) -> Iterator[Int32]:
        for table in self.all_records():
            for name in fields(table.dtype, *asked):
                yield table[name]


RUNS: dict[int, type[Run]] = {}
"""Kinds of runs by their numbers."""


class Run(Operation):
    """Records of one kind in a SITES stage, which do not depend on each other."""

    records: Records
    layout: ClassVar[np.dtype[np.void]]
    """Layout of the record, which several operations may share."""
    keeps_sites: ClassVar[bool] = False
    """True where it leaves the lnL of every pattern in the row of its case's number."""
    reads_sites: ClassVar[bool] = False
    """True where it reads that row, which an earlier run of its stream left."""
    formula: ClassVar[Callable[..., None]]
    """Compute a record, given as its fields, for the part at hand."""

    def __init_subclass__(cls, **options: bool) -> None:
        super().__init_subclass__(**options)
        if "number" in vars(cls):
            assert RUNS.setdefault(cls.number, cls) is cls, f"{cls.name}: number is taken"

    def compute(self, state: ReferenceState) -> None:
        """Compute every record for the part at hand."""
        for fields_of_record in self.records.tolist():
            self.formula(state, *fields_of_record)

    def counts(self) -> Counts:
        """The work of its records."""
        count = len(self.records)
        clas, tips = operands(self.records)
        written = count * len(fields(self.records.dtype, Role.WRITES))
        return self.function, (count, clas + written, tips)

    def lines(self) -> list[str]:
        """A line a record, for a reader."""
        return [f"{self.name} {listed(self.line, item)}" for item in self.records]


STAGES: dict[int, type[Stage]] = {}
"""Kinds of stages by their numbers."""


class Stage(Operation):
    """An entry of a program. What most stages do not have is none here."""

    layouts: ClassVar[tuple[np.dtype[np.void], ...]] = ()
    """The records of its own tables."""
    worker: ClassVar[str] = ""
    """The front file whose kernel runs it; empty where all kernels do."""
    has_stack: ClassVar[bool] = False
    """True where that kernel's work-groups have a stack of CLAs."""
    registers: ClassVar[int] = 128
    """Most registers of that kernel's work-items on NVIDIA's GPUs, where their vectors are small: a
    compute unit then holds four groups. On an H200 walks of 15 taxa x 262,144 patterns took 0.73 of
    the time that they took with 255, derivatives 0.8, scans 0.6, though a few vectors wait in
    memory."""
    rounds: ClassVar[tuple[float, float]] = 64, 2
    """Rounds of work-groups that surely fit together, above which every stage gets a launch of its
    own: the device then holds as many as really fit and hands out their work. A launch costs 20 us.
    The second number is for devices where one work-group a compute unit is all that is sure."""
    is_control: ClassVar[bool] = False
    """True where it follows on sums, of all devices (:meth:`control`)."""
    is_product: ClassVar[bool] = False
    """True where its sums are products of patterns' rows, not of cells."""

    def __init_subclass__(cls, **options: bool) -> None:
        super().__init_subclass__(**options)
        if "number" in vars(cls):
            assert STAGES.setdefault(cls.number, cls) is cls, f"{cls.name}: number is taken"

    @property
    def title(self) -> str:
        """The stage for a reader, without its records."""
        return self.name

    def lines(self) -> list[str]:
        """A line a record, for a reader."""
        return []

    @property
    def stack_levels(self) -> int:
        """CLAs on a work-group's stack at most."""
        return 1

    @property
    def site_steps(self) -> int:
        """Records that every pattern goes through."""
        return 0

    @property
    def keeps_sites(self) -> bool:
        """True where it leaves the lnL of every pattern in a row for each case."""
        return False

    @property
    def control_records(self) -> int:
        """Groups of branch lengths that it steps."""
        return 0

    @property
    def passes(self) -> int:
        """Times that it goes back to an earlier stage, at most."""
        return 0

    def loop(self, at: int) -> range:
        """The stages that those passes repeat, where it is stage ``at``."""
        return range(at, at)

    @property
    def rests(self) -> bool:
        """True where a worker leaves out what belongs to a group that has settled."""
        return False

    def matrices(self, cases: Records) -> int:
        """One more than the highest P matrix that it makes."""
        return 0

    def sums(self) -> tuple[Records, Int32]:
        """Records that make sums, from their ``sum`` on, and int32[n]: how many each makes."""
        return _NO_SUMS, np.zeros(0, np.int32)

    def counts(self) -> Iterator[Counts]:
        """The work of its records, function by function."""
        return iter(())

    def writing(self) -> Stage | None:
        """The stage without what writes no CLA; None where nothing does."""
        return self if self.slots_written().size else None

    def jobs(self, shape: LaunchShape) -> int:
        """Work-groups that it can make use of; 0 counts as 1."""
        return 1

    def encode(self, words: Words) -> tuple[int, int]:
        """Append its tables; returns ``first`` and ``count`` of its :data:`STAGE`."""
        raise NotImplementedError

    def aux(self, cases: Records) -> int:
        """``aux`` of its :data:`STAGE`."""
        return 0

    def compute(self, state: ReferenceState) -> None:
        """Compute it by NumPy, as its formula says."""
        raise NotImplementedError

    def control(self, driver: Driver, at: int, repeats: int) -> int:
        """Do control stage ``at`` after so many repeats; returns the stage that follows."""
        raise NotImplementedError


def workers() -> dict[str, type[Stage]]:
    """Front files of the worker, and the stage that each is for."""
    return {kind.worker: kind for _, kind in sorted(STAGES.items()) if kind.worker}


class TableStage(Stage):
    """A stage of one table of records, or of two: tasks, and their steps."""

    records: Records
    formula: ClassVar[Callable[..., None]]
    """Compute a record, given as its fields, for the part at hand."""

    def lines(self) -> list[str]:
        tasks, *others = self.all_records()
        lines = [listed(self.line, item) for item in tasks]
        return lines + [_step_line(item) for table in others for item in table]

    def counts(self) -> Iterator[Counts]:
        yield self.function, (len(self.records), *operands(self.records))

    def encode(self, words: Words) -> tuple[int, int]:
        tasks, *others = self.all_records()
        for steps in others:
            tasks = moved(tasks, "first_step", words.add(steps), steps)
        return words.add(tasks), len(tasks)

    def compute(self, state: ReferenceState) -> None:
        """Compute every record on every part of its case."""
        cases = self.records["case"].tolist()
        for fields_of_record, case in zip(self.records.tolist(), cases, strict=True):
            for _ in state.parts_of(case):
                self.formula(state, *fields_of_record)


_NO_SUMS: Records = np.zeros(0, [("sum", np.int32)])


def slots(columns: list[Int32]) -> Int32:
    """int32[n]: the slots among operands."""
    every = np.concatenate(columns) if columns else np.zeros(0, np.int32)
    kept: Int32 = every[(every >= 0) & (every != RESULT)]
    return kept


def operands(*tables: Records) -> tuple[int, int]:
    """Numbers of operands that are CLAs, and of those that are tips."""
    clas = tips = 0
    for records in tables:
        for role in (Role.READS, Role.TAKES):
            for name in fields(records.dtype, role):
                operand = records[name]
                of_tips = int(np.count_nonzero(operand < 0))
                results = np.count_nonzero(operand == RESULT) if role is Role.TAKES else 0
                tips += of_tips
                clas += len(operand) - of_tips - int(results)
    return clas, tips


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


def listed(text: str, item: np.void) -> str:
    """A record's line, from a text with its fields in braces."""
    return text.format_map(_fields_as(item))


def _step_line(step: np.void) -> str:
    return " ".join(f"{name}={value}" for name, value in _fields_as(step).items())


def _fields_as(item: np.void) -> dict[str, str]:
    """The fields of a record for a reader."""
    role_of, names = roles(item.dtype), item.dtype.names or ()
    return {name: _written_as(role_of.get(name), int(item[name])) for name in names}


def _written_as(role: Role | None, value: int) -> str:
    """A field's value for a reader."""
    if role in {Role.READS, Role.TAKES, Role.TIP} and value < 0:
        return f"tip[{~value}]"
    if role is Role.TAKES and value == RESULT:
        return "result"
    return _WRITTEN_AS.get(role, "{}").format(value)
