"""The stages of a program: what a launch does, one after the other, as tables of records.

What there is to know of a record follows from the roles of its fields
(:mod:`mltree.system.contract`), so that nothing here or above dispatches over operations to find
what they read and write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from mltree.system import contract
from mltree.system.arrays import Int32
from mltree.system.contract import NO_CELL, RESULT, ROOT_LEVEL, RUNS, Op, Role, RunKind, fields
from mltree.system.values import Value

Records: TypeAlias = npt.NDArray[np.void]
"""A structured array of one of the contract's records."""


_PUSHED = "left_level", "right_level"


class PMatrices(Value):
    """P matrices of branches (:data:`contract.PMATRIX` records)."""

    op: ClassVar = Op.PMATRICES
    records: Records


class Sites(Value):
    """Site-local runs in order: newview levels and edges, in streams side by side.

    ``first_run`` of a stream (:data:`contract.STREAM`) counts ``runs`` here, ``first`` of a run
    (:data:`contract.RUN`) the records of the table that has its kind's record; words on the wire.
    """

    op: ClassVar = Op.SITES
    streams: Records
    runs: Records
    tables: tuple[Records, ...]

    @classmethod
    def of(
        cls, runs: Sequence[tuple[RunKind, Records]], first_part: int = 0, parts: int = 1
    ) -> Sites:
        """A single stream of runs on some parts."""
        tables: dict[np.dtype[np.void], list[Records]] = {}
        rows = []
        for kind, records in runs:
            table = tables.setdefault(RUNS[kind].record, [])
            rows.append((kind, sum(map(len, table)), len(records)))
            table.append(records)
        return cls(
            np.array([(first_part, parts, 0, len(rows), NO_CELL)], contract.STREAM),
            np.array(rows, contract.RUN),
            tuple(map(joined, tables.values())),
        )

    def of_run(self, run: np.void) -> Records:
        """The records of a run."""
        record = RUNS[RunKind(run["kind"])].record
        table = next(table for table in self.tables if table.dtype == record)
        return table[run["first"] : run["first"] + run["count"]]

    def each(self) -> Iterator[tuple[range, RunKind, Records]]:
        """The parts, the kind and the records of every run, stream after stream."""
        for stream in self.streams:
            parts = range(stream["first_part"], stream["first_part"] + stream["parts"])
            for run in self.runs[stream["first_run"] :][: stream["runs"]]:
                yield parts, RunKind(run["kind"]), self.of_run(run)


class Reduce(Value):
    """Sums of cells over the chunks of some parts (:data:`contract.REDUCTION` records)."""

    op: ClassVar = Op.REDUCE
    records: Records

    @classmethod
    def of(cls, count: int, parts: int = 1) -> Reduce:
        """Sums 0 .. count - 1 of as many cells, over all parts."""
        return cls(np.array([(0, 0, count, 0, parts)], contract.REDUCTION))


class Optimise(Value):
    """One guarded Newton step of every group; ``alone`` for many small groups."""

    op: ClassVar = Op.OPTIMISE
    records: Records
    alone: bool = False


class Repeat(Value):
    """Back to stage ``to`` while one of ``groups`` groups is active, at most ``times``."""

    op: ClassVar = Op.REPEAT
    to: int
    times: int
    groups: int


class Scan(Value):
    """Insertion walks. ``records.first_step`` counts records of ``steps`` here, words on the wire.

    Outputs are cells that get a score or, where it ``stores``, slots that keep the near vector.
    """

    op: ClassVar = Op.SCAN
    records: Records
    steps: Records
    stores: bool = False

    @property
    def levels(self) -> int:
        """Stack entries that its deepest task needs."""
        levels = (self.steps[name].max(initial=ROOT_LEVEL) for name in _PUSHED)
        return int(max(levels)) + 1

    @property
    def outputs(self) -> Int32:
        """int32[n]: the cells or slots that it writes."""
        output: Int32 = self.steps_outputs.ravel()
        return output[output >= 0]

    @property
    def steps_outputs(self) -> Int32:
        """int32[steps, 2]: the output of each side; NO_CELL where it has none."""
        return np.stack([self.steps[name] for name in fields(contract.SCAN_STEP, Role.OUTPUT)], 1)

    @property
    def steps_levels(self) -> Int32:
        """int32[steps, 2]: the level that each side pushes; -1 where it pushes none."""
        return np.stack([self.steps[name] for name in _PUSHED], axis=1)


class Tripods(Value):
    """Sums around insertion points (:data:`contract.TRIPOD` records)."""

    op: ClassVar = Op.TRIPOD
    records: Records


class Walk(Value):
    """Depth-first walks of trees, or of pieces of them that later ones go on from.

    ``records`` (:data:`contract.WALK`): ``first_step`` counts records of ``steps``; ``levels``:
    results that wait at most for their sibling, beside the last one; ``sites``: whether lnL of
    every pattern are kept.
    """

    op: ClassVar = Op.WALK
    records: Records
    steps: Records
    levels: int
    sites: bool = False


class Rell(Value):
    """Products of kept lnL and rows of weights (:data:`contract.RELL` records)."""

    op: ClassVar = Op.RELL
    records: Records


Stage: TypeAlias = PMatrices | Sites | Reduce | Optimise | Repeat | Scan | Tripods | Walk | Rell


def joined(tables: Sequence[Records]) -> Records:
    """Tables of one record as one: plain integers are joined five times as fast as records."""
    if len(tables) == 1:
        return tables[0]
    words = [np.ascontiguousarray(table).view(np.int32) for table in tables]
    whole: Records = np.concatenate(words).view(tables[0].dtype)
    return whole


def tables_of(stage: Stage) -> tuple[Records, ...]:
    """Every record table of a stage: tasks before steps."""
    match stage:
        case Sites(_, _, tables):
            return tables
        case Scan(records, steps) | Walk(records, steps):
            return records, steps
        case Repeat():
            return ()
        case _:
            return (stage.records,)


def highest_slot(stage: Stage) -> int:
    """The highest slot of a CLA that a stage reads or writes; -1 if none."""
    highest = -1
    for table in tables_of(stage):
        for name in fields(table.dtype, Role.READS, Role.WRITES):
            highest = max(highest, int(table[name].max(initial=-1)))
        for name in fields(table.dtype, Role.TAKES):
            taken = table[name]
            highest = max(highest, int(taken.max(initial=-1, where=taken != RESULT)))
    if isinstance(stage, Scan) and stage.stores:
        highest = max(highest, int(stage.outputs.max(initial=-1)))
    return highest


def slots_read(stage: Stage) -> Int32:
    """int32[n]: the slots of CLAs that a stage reads."""
    read = [
        table[name]
        for table in tables_of(stage)
        for name in fields(table.dtype, Role.READS, Role.TAKES)
    ]
    return _slots(read)


def slots_written(stage: Stage) -> Int32:
    """int32[n]: the slots of CLAs that a stage writes."""
    written = [
        table[name] for table in tables_of(stage) for name in fields(table.dtype, Role.WRITES)
    ]
    if isinstance(stage, Scan) and stage.stores:
        written.append(stage.outputs)
    return _slots(written)


def _slots(operands: list[Int32]) -> Int32:
    every = np.concatenate(operands) if operands else np.zeros(0, np.int32)
    slots: Int32 = every[(every >= 0) & (every != RESULT)]
    return slots
