"""Which CLAs a program reads and writes, and what must run again to have them back.

Where panels share one CLA pool, a panel's CLAs are gone when its turn comes again. A
:class:`Resident` remembers the programs that wrote them, and lists those that a program needs.
"""

from __future__ import annotations

import numpy as np

from mltree.arrays import Float64, Int32
from mltree.contract import RUNS, Role, RunKind, fields
from mltree.errors import WorkerFault
from mltree.likelihood.program import Program
from mltree.likelihood.stages import PMatrices, Sites, Stage, slots_read, slots_written
from mltree.values import Value

__all__ = ["Resident", "Writer", "slots_needed"]


_CACHE = "_written"


class Writer(Value, eq=False):
    """The part of a program that writes CLAs, on the f64[lengths] that it ran with."""

    program: Program
    lengths: Float64
    reads: Int32
    """Slots that it needs from programs before it."""
    writes: Int32


class Resident:
    """The writers of the CLAs that a client counts on, oldest first."""

    def __init__(self) -> None:
        self._writers: list[Writer] = []

    def needed(self, program: Program) -> list[Writer]:
        """What must run before a program, oldest first, where no CLA is left.

        Raises:
            WorkerFault: the program reads a CLA that no program has written.
        """
        missing, _ = _slots(program.stages)
        found = []
        for writer in reversed(self._writers):
            given = np.isin(missing, writer.writes)
            if given.any():
                found.append(writer)
                missing = np.union1d(missing[~given], writer.reads)
        if missing.size:
            raise WorkerFault(
                f"reads cla[{missing[0]}], which nothing has written",
                hint="please report this with the log",
            )
        return found[::-1]

    def record(self, program: Program, lengths: Float64) -> None:
        """A program ran, at last with these f64[lengths]; writers it has overwritten go."""
        part, reads, writes = _written(program)
        if writes.size == 0:
            return
        held = [w for w in self._writers if not _covers(writes, w.writes)]
        self._writers = [*held, Writer(part, lengths.copy(), reads, writes)]


def slots_needed(program: Program) -> Int32:
    """Slots that a program reads and has not written before; rising."""
    return _slots(program.stages)[0]


def _covers(writes: Int32, others: Int32) -> bool:
    """Whether all the others are among the slots; the same program's are the same array."""
    return writes is others or bool(np.isin(others, writes).all())


def _written(program: Program) -> tuple[Program, Int32, Int32]:
    """The part that writes CLAs, and the slots that it reads and writes.

    Found once for each object, which may run many times.
    """
    found: tuple[Program, Int32, Int32] | None = vars(program).get(_CACHE)
    if found is None:
        stages = tuple(part for part in map(_writing, program.stages) if part is not None)
        found = vars(program)[_CACHE] = Program(stages, 1, program.cases), *_slots(stages)
    return found


def _writing(stage: Stage) -> Stage | None:
    """A stage without what writes no CLA."""
    match stage:
        case PMatrices():
            return stage
        case Sites(streams, runs, tables):
            writes = [kind for kind in RunKind if fields(RUNS[kind].record, Role.WRITES)]
            kept = np.isin(runs["kind"], writes)
            if not kept.any():
                return None
            before = np.concatenate([[0], np.cumsum(kept)])
            streams = streams.copy()
            ends = streams["first_run"] + streams["runs"]
            streams["runs"] = before[ends] - before[streams["first_run"]]
            streams["first_run"] = before[streams["first_run"]]
            kinds = {RUNS[kind].record for kind in writes}
            return Sites(streams, runs[kept], tuple(t for t in tables if t.dtype in kinds))
        case _ if slots_written(stage).size:
            return stage
        case _:
            return None


def _slots(stages: tuple[Stage, ...]) -> tuple[Int32, Int32]:
    """Slots read before the stages write them, and all slots written; both rising."""
    nothing = [np.zeros(0, np.int32)]
    reads = np.concatenate([*nothing, *map(slots_read, stages)])
    writes = np.concatenate([*nothing, *map(slots_written, stages)])
    count = 1 + max(reads.max(initial=-1), writes.max(initial=-1))
    is_read, is_written = np.zeros((2, count), np.bool_)
    is_read[reads] = is_written[writes] = True
    needed = np.flatnonzero(is_read & ~is_written)
    return needed.astype(np.int32), np.flatnonzero(is_written).astype(np.int32)
