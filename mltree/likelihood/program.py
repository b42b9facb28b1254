"""Programs: the likelihood operations of one launch, as data.

A program is a tuple of stages. It can be listed for a reader, verified before it runs, and
encoded into the one int32 array that the worker interprets (see :mod:`mltree.contract`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mltree import contract
from mltree.contract import ROOT_LEVEL, Op, RunKind

__all__ = [
    "Optimise",
    "PMatrices",
    "Program",
    "Reduce",
    "Repeat",
    "Scan",
    "Sites",
    "Stage",
    "Tripods",
    "Walk",
]

Records: TypeAlias = npt.NDArray[np.void]
"""A structured array of one of the contract's records."""

_STAGE_WORDS = len(contract.STAGE.names or ())
_SLOT_FIELDS = ("dst", "left", "right", "x", "y", "near", "far", "pendant", "root", "slot")


@dataclass(frozen=True)
class PMatrices:
    """P matrices of the listed lengths (:data:`contract.PMATRIX` records)."""

    records: Records


@dataclass(frozen=True)
class Sites:
    """Site-local runs in order: newview levels and edges."""

    runs: tuple[tuple[RunKind, Records], ...]


@dataclass(frozen=True)
class Reduce:
    """Sums of the cells ``first .. first + count - 1`` over all chunks.

    Where a device has only so many ``residues`` of them (see :meth:`Program.part`), it leaves
    strided sums acc[residues, count] in the sums from ``residues * first`` on. 0: whole sums.
    """

    first: int
    count: int
    residues: int = 0


@dataclass(frozen=True)
class Optimise:
    """One guarded Newton step of every group; ``alone`` for many small groups."""

    records: Records
    alone: bool = False


@dataclass(frozen=True)
class Repeat:
    """Back to stage ``to`` while one of ``groups`` groups is active, at most ``times``."""

    to: int
    times: int
    groups: int


@dataclass(frozen=True)
class Scan:
    """Insertion walks. ``tasks.first_step`` counts records of ``steps`` here, words on the wire.

    Outputs are cells that get a score or, where it ``stores``, slots that keep the near vector.
    """

    tasks: Records
    steps: Records
    stores: bool = False

    @property
    def outputs(self) -> npt.NDArray[np.int32]:
        """int32[n]: the cells or slots that it writes."""
        output: npt.NDArray[np.int32] = self.steps_outputs.ravel()
        return output[output >= 0]

    @property
    def steps_outputs(self) -> npt.NDArray[np.int32]:
        """int32[steps, 2]: the output of each side; NO_CELL where it has none."""
        return np.stack([self.steps["left_output"], self.steps["right_output"]], axis=1)

    @property
    def steps_levels(self) -> npt.NDArray[np.int32]:
        """int32[steps, 2]: the level that each side pushes; -1 where it pushes none."""
        return np.stack([self.steps["left_level"], self.steps["right_level"]], axis=1)


@dataclass(frozen=True)
class Tripods:
    """Sums around insertion points (:data:`contract.TRIPOD` records)."""

    records: Records


@dataclass(frozen=True)
class Walk:
    """Depth-first walks of trees, or of pieces of them that later ones go on from.

    ``walks`` (:data:`contract.WALK`): ``first_step`` counts records of ``steps``; ``levels``:
    results that wait at most for their sibling, beside the last one; ``sites``: whether lnL of
    every pattern are kept.
    """

    walks: Records
    steps: Records
    levels: int
    sites: bool = False


Stage: TypeAlias = PMatrices | Sites | Reduce | Optimise | Repeat | Scan | Tripods | Walk


@dataclass(frozen=True)
class Program:
    """Stages, and how many cells their sums need."""

    stages: tuple[Stage, ...]
    cells: int
    first_stage: int = 0
    """Number of its first stage in the program that it is a part of."""

    def part(self, first: int, last: int, residues: int = 0) -> Program:
        """Stages ``first .. last - 1``, their sums strided; the same object every time.

        ``residues``: that the device has (:mod:`mltree.device.residues`); 0 for whole sums.
        """
        key = first, last, residues
        if key not in self._parts:
            stages = tuple(
                replace(stage, residues=residues) if isinstance(stage, Reduce) else stage
                for stage in self.stages[first:last]
            )
            self._parts[key] = Program(stages, self.cells, self.first_stage + first)
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[tuple[int, int, int], Program]:
        return {}

    @cached_property
    def sums(self) -> int:
        """Sums that it leaves behind: one a cell, or as many as its device has residues."""
        residues = [stage.residues for stage in self.stages if isinstance(stage, Reduce)]
        return self.cells * max([1, *residues])

    @cached_property
    def words(self) -> npt.NDArray[np.int32]:
        """The program as the worker reads it: stage table, then records."""
        return _encode(self.stages)

    @cached_property
    def slots(self) -> int:
        """One more than the highest CLA slot that the program touches."""
        return 1 + max((int(ids.max()) for ids in self._operands() if ids.size), default=-1)

    @cached_property
    def stack_levels(self) -> int:
        """Depth of a work-group's stack of CLAs, in its deepest scan or walk."""
        levels = [1]
        for stage in self.stages:
            match stage:
                case Scan():
                    levels.append(int(stage.steps_levels.max(initial=ROOT_LEVEL)) + 1)
                case Walk():
                    levels.append(stage.levels)
        return max(levels)

    @cached_property
    def site_steps(self) -> int:
        """Records that every pattern goes through."""
        own = [s for s in self.stages if isinstance(s, (Sites, Scan, Tripods, Walk))]
        return sum(len(records) for records in Program(tuple(own), 0).tables())

    @cached_property
    def groups(self) -> int:
        """Control records that the program needs."""
        return max((len(s.records) for s in self.stages if isinstance(s, Optimise)), default=0)

    def _operands(self) -> Iterator[npt.NDArray[np.int32]]:
        for records in self.tables():
            for field in _SLOT_FIELDS:
                if field in (records.dtype.names or ()) and records.dtype != contract.WALK_STEP:
                    yield records[field]
        yield from (s.outputs for s in self.stages if isinstance(s, Scan) and s.stores)

    def tables(self) -> Iterator[Records]:
        """Every record table of the program, in order."""
        for stage in self.stages:
            match stage:
                case Sites(runs):
                    yield from (records for _, records in runs)
                case PMatrices(records) | Optimise(records) | Tripods(records):
                    yield records
                case Scan(tasks, steps) | Walk(tasks, steps):
                    yield tasks
                    yield steps

    def title(self, stage: int) -> str:
        """What a stage does, without its records."""
        return _title(self.stages[stage])

    def line(self, stage: int, record: int) -> str:
        """One record of a stage, as :meth:`listing` shows it (tasks before steps)."""
        return _record_lines(self.stages[stage])[record]

    def listing(self) -> str:
        """The program for a reader, a line per record."""
        lines = []
        for number, stage in enumerate(self.stages):
            lines.append(f"{number:03d} {_title(stage)}")
            lines += [f"      {line}" for line in _record_lines(stage)]
        return "\n".join(lines)


_OPS: dict[type[Stage], Op] = {
    PMatrices: Op.PMATRICES,
    Sites: Op.SITES,
    Reduce: Op.REDUCE,
    Optimise: Op.OPTIMISE,
    Repeat: Op.REPEAT,
    Scan: Op.SCAN,
    Tripods: Op.TRIPOD,
    Walk: Op.WALK,
}


class _Encoder:
    """Appends record tables behind the stage table and remembers where they went."""

    def __init__(self, stages: int) -> None:
        self.offset = stages * _STAGE_WORDS
        self.parts: list[npt.NDArray[np.int32]] = []

    def add(self, records: Records) -> int:
        at = self.offset
        flat = np.ascontiguousarray(records).view(np.int32).ravel()
        padding = np.zeros(-flat.size % contract.RECORD_ALIGNMENT, np.int32)
        self.parts += [flat, padding]
        self.offset += flat.size + padding.size
        return at

    def add_steps(self, tasks: Records, steps: Records) -> int:
        """Tasks whose first step is a word from here on."""
        moved = tasks.copy()
        moved["first_step"] = self.add(steps) + len(steps.dtype.names or ()) * tasks["first_step"]
        return self.add(moved)

    def stage(self, stage: Stage) -> tuple[int, int, int]:
        """(first, count, aux) of the stage's row."""
        match stage:
            case PMatrices(records) | Tripods(records):
                row = self.add(records), len(records), 0
            case Optimise(records, alone):
                row = self.add(records), len(records), int(alone)
            case Reduce(first, count, residues):
                row = first, count, residues
            case Repeat(to, times, groups):
                row = to, times, groups
            case Scan(tasks, steps, stores):
                row = self.add_steps(tasks, steps), len(tasks), int(stores)
            case Walk(walks, steps, _, sites):
                row = self.add_steps(walks, steps), len(walks), int(sites)
            case Sites(runs):
                rows = [(kind, self.add(records), len(records)) for kind, records in runs]
                row = self.add(np.array(rows, contract.RUN)), len(rows), 0
        return row


def _encode(stages: Sequence[Stage]) -> npt.NDArray[np.int32]:
    encoder = _Encoder(len(stages))
    table = np.array(
        [(_OPS[type(stage)], *encoder.stage(stage)) for stage in stages], contract.STAGE
    )
    return np.concatenate([table.view(np.int32).ravel(), *encoder.parts])


def _title(stage: Stage) -> str:
    match stage:
        case Reduce(first, count, residues):
            strided = f" as {residues} strided sums" if residues else ""
            return f"REDUCE cells {first}..{first + count - 1}{strided}"
        case Repeat(to, times, groups):
            return f"REPEAT from {to:03d} while one of {groups} groups moves, at most {times} times"
        case _:
            return _OPS[type(stage)].name


def _operand(x: int) -> str:
    return f"cla[{x}]" if x >= 0 else f"tip[{~x}]"


def _record_lines(stage: Stage) -> list[str]:
    match stage:
        case PMatrices(records):
            return [f"P[{p}] = exp(Q{m} r t[{p}])" for p, m in records.tolist()]
        case Sites(runs):
            return [_site_line(kind, row) for kind, records in runs for row in records.tolist()]
        case Scan(tasks, steps) | Walk(tasks, steps):
            names = steps.dtype.names or ()
            return [f"task {row}" for row in tasks.tolist()] + [
                " ".join(f"{n}={v}" for n, v in zip(names, row, strict=True))
                for row in steps.tolist()
            ]
        case Tripods(records) | Optimise(records):
            return [str(row) for row in records.tolist()]
        case _:
            return []


def _site_line(kind: RunKind, row: tuple[int, ...]) -> str:
    if kind == RunKind.NEWVIEW:
        dst, left, left_p, right, right_p = row
        return f"NEWVIEW cla[{dst}] = P[{left_p}] {_operand(left)} * P[{right_p}] {_operand(right)}"
    x, y, length, model, cell = row
    return f"{kind.name} sum[{cell}] at ({_operand(x)}, {_operand(y)}) t[{length}] model {model}"
