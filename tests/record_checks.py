"""Checks of record tables by their fields' roles (:class:`mltree.program.ops.operation.Role`).

Vectorised over records, so that they can stay on in every run of a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from mltree.program.contract import RESULT
from mltree.program.ops.operation import Records, Role, fields
from mltree.program.program import Program
from mltree.system.arrays import Bool, Int32
from mltree.system.errors import WorkerFault

__all__ = ["Index", "Parts", "TableChecks", "parts_at", "wrong_program"]

Index: TypeAlias = npt.NDArray[np.integer[Any]]
Parts: TypeAlias = tuple[Int32, Int32]
"""int32[records] each: the first part of a record's case, and how many there are."""


def wrong_program(what: str) -> WorkerFault:
    """The error that says what is wrong with a program."""
    return WorkerFault(what, hint="please report this with the log")


def parts_at(parts: Parts, index: Index) -> Parts:
    """The parts of some of the records."""
    return parts[0][index], parts[1][index]


class TableChecks:
    """What the records of any table need: operands and cases that are there, nothing twice.

    Keeps what has been written so far; ``stage`` and ``record`` say where a fault is.
    """

    def __init__(self, program: Program, written: Bool, n_tips: int) -> None:
        """``written`` bool[parts, slots]: which slots hold a CLA of a part; changes in place."""
        self.n_tips = n_tips
        self.slots = written
        self.program = program
        self.pmatrices = np.zeros(program.matrices, np.bool_)
        self.partials = np.zeros((len(self.slots), program.cells), np.bool_)
        self.sums = np.zeros(program.sums, np.bool_)
        self.stage = self.record = 0

    def owners(self, records: Records) -> Parts:
        """The parts that each record works on."""
        inside = (records["case"] >= 0) & (records["case"] < len(self.program.cases))
        self.require(inside, lambda n: f"needs case {records['case'][n]}, which is not there")
        own = self.program.cases[records["case"]]
        for field in fields(records.dtype, Role.MODEL, Role.WEIGHTS):
            self.require(records[field] == own[field], f"has other {field} than its case")
        return own["first_part"], own["parts"]

    def table(self, records: Records, parts: Parts) -> None:
        """All operands are there: CLAs and matrices of every part, tips, and not a RESULT."""
        for field in fields(records.dtype, Role.READS, Role.TAKES):
            self.tips(records[field])
            self.read_slots(records[field], parts)
        for field in fields(records.dtype, Role.TIP):
            self.require(records[field] < 0, "is scored across the branch of a CLA, not of a tip")
            self.tips(records[field])
        for field in fields(records.dtype, Role.MATRIX):
            self.read_matrices(records[field], parts)

    def tips(self, x: Int32) -> None:
        """Tips among the operands are there."""
        self.require(x >= -self.n_tips, lambda n: f"reads tip {~x[n]} of {self.n_tips}")

    def cells(self, first: Int32, parts: Parts, width: int, at: Index | None = None) -> None:
        """Partial sums go to ``width`` cells from each of the first, which none has had."""
        cells = np.add.outer(first, np.arange(width, dtype=np.int32)).ravel()
        where = np.arange(len(first)) if at is None else at
        self.write_rows(
            self.partials, cells, parts_at(parts, np.repeat(np.arange(len(first)), width)), "cell",
            np.repeat(where, width),
        )  # fmt: skip

    def read_slots(self, operand: Int32, parts: Parts) -> None:
        """CLAs among the operands have been written, of every part."""
        wanted = (operand >= 0) & (operand != RESULT)
        slots = self.slots.shape[1]
        self.require(
            ~wanted | (operand < slots),
            lambda n: f"reads cla[{operand[n]}], but there are {slots}",
        )
        none = np.zeros((1, slots), np.intp)
        known = np.concatenate([none, np.cumsum(self.slots, axis=0)])
        column = np.where(wanted, operand, 0)
        first, count = parts
        there = (
            known[first + count, column] - known[first, column] == count
            if slots
            else np.zeros(len(operand), np.bool_)
        )
        self.require(
            ~wanted | there, lambda n: f"reads cla[{operand[n]}], which nothing has written"
        )

    def read_matrices(self, p: Int32, parts: Parts) -> None:
        """P matrices of every part have been made."""
        first, end = p + parts[0], p + parts[0] + parts[1]
        size = self.pmatrices.size
        self.require(
            (first >= 0) & (end <= size),
            lambda n: f"reads P[{end[n] - 1 if first[n] >= 0 else first[n]}], but there are {size}",
        )
        known = np.concatenate([[0], np.cumsum(self.pmatrices)])
        self.require(
            known[end] - known[first] == parts[1],
            lambda n: f"reads P[{first[n]}], which nothing has written",
        )

    def write_slots(self, slots: Int32, parts: Parts, at: Index | None = None) -> None:
        """CLAs are written, each once a part."""
        self.write_rows(self.slots, slots, parts, "cla", at)

    def write_rows(
        self, table: Bool, index: Int32, parts: Parts, what: str, at: Index | None = None
    ) -> None:
        """Entries of a table [parts, n], each once a part."""
        size = table.shape[1]
        self.require(
            (index >= 0) & (index < size),
            lambda n: f"writes {what}[{index[n]}], but there are {size}",
            at,
        )
        first, count = parts
        owner = np.repeat(np.arange(len(index)), count)
        part = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        where = owner if at is None else at[owner]
        self.write(
            table.reshape(-1), part.astype(np.int64) * size + index[owner], what, where, size
        )

    def write(self, table: Bool, index: Index, what: str, at: Index, row: int = 0) -> None:
        """Each of the entries once: records of a run or stage have no order among them."""
        row = row or table.size
        self.require(
            (index >= 0) & (index < table.size),
            lambda n: f"writes {what}[{index[n]}], but there are {table.size}",
            at,
        )
        once = np.zeros(len(index), np.bool_)
        once[np.unique(index, return_index=True)[1]] = True
        self.require(once, lambda n: f"writes {what}[{index[n] % row}] a second time", at)
        table[index] = True

    def require(
        self, good: Bool, wrong: str | Callable[[int], str], at: Index | None = None
    ) -> None:
        """``good`` bool[records]; ``at`` their positions where they are not all the records."""
        if not good.all():
            n = int(np.argmin(good))
            said = wrong if isinstance(wrong, str) else wrong(n)
            self.fault(said, n if at is None else int(at[n]))

    def fault(self, wrong: str, record: int | None = None) -> NoReturn:
        """Raise the error that names the instruction, and lists it."""
        stage = self.program.stages[self.stage]
        listing = stage.title
        if record is not None:
            number = self.record + record
            listing += f", record {number}: {stage.lines()[number]}"
        raise wrong_program(f"stage {self.stage:03d} {listing}: {wrong}")
