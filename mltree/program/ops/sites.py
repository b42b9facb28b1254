"""SITES: site-local runs in order, chunk by chunk: levels of newviews, then edges.

Each stream of runs has a range of parts to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from mltree.program.ops.operation import (
    RUNS,
    Counts,
    Kernel,
    LaunchShape,
    Records,
    Role,
    Run,
    Words,
    WorkStage,
    fields,
    joined,
    moved,
    record,
)
from mltree.program.ops.state import ReferenceState

STREAM = record("first_part:first parts:parts first_run runs group:group", "STREAM")
"""Runs on some parts. Passes leave it out once its ``group`` of lengths moves no more: what it has
made stands. NO_CELL where it has none of its own."""
RUN = record("kind first count", "RUN")


class Sites(WorkStage):
    """Runs (:class:`mltree.program.ops.operation.Run`) in order, in streams side by side.

    ``first_run`` of a stream (:data:`STREAM`) counts ``runs`` here, ``first`` of a run
    (:data:`RUN`) the records of the table that has its kind's record; words on the wire.
    """

    name = "SITES"
    number = 1
    layouts = (STREAM, RUN)
    kernel = Kernel("sites")

    streams: Records
    runs: Records
    tables: tuple[Records, ...]

    def each(self) -> Iterator[tuple[range, Run]]:
        """The parts of every run, and the run, stream after stream."""
        for stream in self.streams:
            parts = range(stream["first_part"], stream["first_part"] + stream["parts"])
            for row in self.runs[stream["first_run"] :][: stream["runs"]]:
                yield parts, RUNS[row["kind"]](self._records(row))

    def lines(self) -> list[str]:
        return [line for _, run in self.each() for line in run.lines()]

    @property
    def keeps_sites(self) -> bool:
        return any(kind.keeps_sites for kind in self._kinds)

    def counts(self) -> Iterator[Counts]:
        for kind in self._kinds:
            rows = self.runs[self.runs["kind"] == kind.number]
            table = self._table(kind)
            if rows["count"].sum() < len(table):  # other kinds have records in it too
                table = joined([self._records(row) for row in rows])
            yield kind(table).counts()

    def writing(self) -> Sites | None:
        writes = [kind for kind in RUNS.values() if fields(kind.layout, Role.WRITES)]
        kept = np.isin(self.runs["kind"], [kind.number for kind in writes])
        if not kept.any():
            return None
        before = np.concatenate([[0], np.cumsum(kept)])
        streams = self.streams.copy()
        ends = streams["first_run"] + streams["runs"]
        streams["runs"] = before[ends] - before[streams["first_run"]]
        streams["first_run"] = before[streams["first_run"]]
        layouts = {kind.layout for kind in writes}
        tables = tuple(table for table in self.tables if table.dtype in layouts)
        return Sites(streams, self.runs[kept], tables)

    def jobs(self, shape: LaunchShape) -> int:
        return len(self.streams) * shape.chunks

    def encode(self, words: Words) -> tuple[int, int]:
        """Append streams whose runs, and runs whose records, are words from their offsets on."""
        first, size = np.zeros((2, 1 + max(RUNS)), np.int32)
        starts = {table.dtype: words.add(table) for table in self.tables}
        for number, kind in RUNS.items():
            first[number] = starts.get(kind.layout, 0)
            size[number] = len(kind.layout.names or ())
        runs, kinds = self.runs.copy(), self.runs["kind"]
        runs["first"] = first[kinds] + size[kinds] * runs["first"]
        return words.add(moved(self.streams, "first_run", words.add(runs), runs)), len(self.streams)

    def compute(self, state: ReferenceState) -> None:
        for parts, run in self.each():
            for state.part in parts:
                run.compute(state)

    @cached_property
    def _kinds(self) -> list[type[Run]]:
        """The kinds of its runs, by their numbers."""
        return [RUNS[number] for number in np.flatnonzero(np.bincount(self.runs["kind"])).tolist()]

    def _table(self, kind: type[Run]) -> Records:
        return next(table for table in self.tables if table.dtype == kind.layout)

    def _records(self, row: np.void) -> Records:
        """The records of a run."""
        return self._table(RUNS[row["kind"]])[row["first"] : row["first"] + row["count"]]
