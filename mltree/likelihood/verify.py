"""Verification of programs before they run: operands in range, written before they are read.

Vectorised over records, so that it can stay on in every run of a test. CLAs outlive a program,
so a :class:`Verifier` remembers which slots hold one; P matrices and sums do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from mltree.contract import (
    NO_CELL,
    PENDANT_LEVEL,
    REDUCE_WIDTH,
    RESULT,
    ROOT_LEVEL,
    TRIPOD_CELLS,
    GroupKind,
    RunKind,
)
from mltree.errors import WorkerFault
from mltree.likelihood.engine import Engine, Result
from mltree.likelihood.program import (
    Optimise,
    PMatrices,
    Program,
    Records,
    Reduce,
    Repeat,
    Scan,
    Sites,
    Stage,
    Tripods,
    Walk,
)

__all__ = ["VerifiedEngine", "Verifier"]

Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]
Float64 = npt.NDArray[np.float64]

_TRIPOD_REACH = TRIPOD_CELLS - 1
"""Cells of a tripod group behind its lnL: three first and six second derivatives."""


class Verifier:
    """Checks programs one after the other, as an engine would run them."""

    def __init__(self, n_tips: int, max_slots: int) -> None:
        self.n_tips = n_tips
        self.max_slots = max_slots
        self._slots = np.zeros(0, np.bool_)

    def check(self, program: Program, *, lengths: int, models: int, groups: int) -> None:
        """Check a program that is to run on so many lengths, model rows and control records.

        Raises:
            WorkerFault: names the first wrong instruction and lists it.
        """
        if program.slots > self._slots.size:
            grown = np.zeros(min(program.slots, self.max_slots), np.bool_)
            grown[: self._slots.size] = self._slots
            self._slots = grown
        _Check(self, program, lengths, models, groups).run()

    @property
    def written(self) -> Bool:
        """bool[slots]: which slots hold a CLA."""
        return self._slots


class VerifiedEngine:
    """An engine that verifies every program before it runs it."""

    def __init__(self, engine: Engine, n_tips: int) -> None:
        self.engine = engine
        self.name = engine.name
        self.room = engine.room
        self.verifier = Verifier(n_tips, engine.room.most)
        self._models = 0

    def longest_walk(self, trees: int) -> int:
        """As the engine; see :class:`mltree.likelihood.engine.Engine`."""
        return self.engine.longest_walk(trees)

    def load_models(self, rows: Float64) -> None:
        """Take model rows f64[M, words]."""
        self._models = len(rows)
        self.engine.load_models(rows)

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Verify and run; see :class:`mltree.likelihood.engine.Engine`."""
        self.verifier.check(program, lengths=len(lengths), models=self._models, groups=len(control))
        return self.engine.run(program, lengths, control)

    def site_log_likelihoods(self) -> Float64:
        """f64[L] of the last EVALUATE_SITES."""
        return self.engine.site_log_likelihoods()


class _Check:
    """One program's check: what has been written so far, stage by stage."""

    def __init__(
        self, verifier: Verifier, program: Program, lengths: int, models: int, groups: int
    ) -> None:
        self.n_tips = verifier.n_tips
        self.slots = verifier.written
        self.program = program
        self.models = models
        self.groups = groups
        self.pmatrices = np.zeros(lengths, np.bool_)
        self.partials = np.zeros(program.cells, np.bool_)
        self.sums = np.zeros(program.cells, np.bool_)
        self.stage = self.record = self.scans = 0

    def run(self) -> None:
        for number, stage in enumerate(self.program.stages):
            self.stage, self.record = number, 0
            self._stage(stage)

    def _stage(self, stage: Stage) -> None:
        match stage:
            case PMatrices(records):
                self._model(records)
                self._write(self.pmatrices, records["length"], "P")
            case Sites(runs):
                self._sites(runs)
            case Scan():
                self._scan(stage)
            case Walk():
                self._walk(stage)
            case Tripods(records):
                self._operands(records, "near", "far", "pendant")
                self._lengths(records, "near_p", "far_p", "pendant_p")
                self._model(records)
                self._cells(records["cell"], TRIPOD_CELLS)
            case Optimise(records):
                self._optimise(records)
            case Reduce(first, count, residues):
                self._reduce(first, count, residues)
            case Repeat(to, _, groups):
                self._repeat(to, groups)

    def _sites(self, runs: tuple[tuple[RunKind, Records], ...]) -> None:
        for kind, records in runs:
            self._site_run(kind, records)
            self.record += len(records)

    def _repeat(self, to: int, groups: int) -> None:
        if not 0 <= to < self.stage:
            self._fault(f"goes back to stage {to}")
        if any(isinstance(stage, Scan) for stage in self.program.stages[to : self.stage]):
            self._fault("repeats a scan, whose tasks a launch shares out once")
        if groups > self.groups:
            self._fault(f"asks for {groups} groups of {self.groups}")

    def _site_run(self, kind: RunKind, records: Records) -> None:
        if kind == RunKind.NEWVIEW:
            self._lengths(records, "left_p", "right_p")
            self._operands(records, "left", "right")
            read = np.concatenate([records["left"], records["right"]])
            # Nodes of a run are computed side by side: none may wait for another.
            self._require(~np.isin(records["dst"], read), "is read by its own level")
            self._write(self.slots, records["dst"], "cla")
            return
        self._operands(records, "x", "y")
        self._lengths(records, "length")
        self._model(records)
        self._cells(records["cell"], 2 if kind == RunKind.DERIVE else 1)

    def _walk(self, stage: Walk) -> None:
        walks, steps = stage.walks, stage.steps
        self._require(walks["tip"] < 0, "is scored across the branch of a CLA, not of a tip")
        self._tips(walks["tip"])
        self._lengths(walks, "length")
        self._model(walks)
        kept = np.flatnonzero(walks["slot"] != NO_CELL)
        scored = np.flatnonzero(walks["slot"] == NO_CELL)
        self._cells(walks["cell"][scored], at=scored)
        self._inside(walks, steps)
        self.record = len(walks)
        for field in ("left", "right"):
            self._tips(steps[field])
            self._read(self.slots, steps[field], "cla", _is_slot(steps[field]))
        self._lengths(steps, "left_p", "right_p")
        self._waiting(stage)
        self.record = 0
        slots = walks["slot"][kept]
        same = np.isin(slots, [steps["left"], steps["right"]])
        self._require(~same, "overwrites a CLA that its own stage reads", kept)
        self._write(self.slots, slots, "cla", kept)

    def _waiting(self, stage: Walk) -> None:
        """Steps take results that are there, one is left, and no more wait than are said to."""
        owner, at = _steps_of(stage.walks)
        inner = np.column_stack([stage.steps["left"], stage.steps["right"]])[at] == RESULT
        growth = 1 - inner.sum(axis=1)
        before = np.concatenate([[0], np.cumsum(growth)])
        there = before[:-1] - before[np.searchsorted(owner, owner)]
        self._require(there >= inner.sum(axis=1), "takes a result that no step has left", at)
        self._require(there + growth <= 1 + stage.levels, "leaves more results than levels", at)
        left = np.bincount(owner, growth, len(stage.walks))
        self.record = 0
        self._require(left == 1, "does not end in one result")

    def _inside(self, tasks: Records, steps: Records) -> None:
        first, count = tasks["first_step"], tasks["steps"]
        inside = (first >= 0) & (count >= 0) & (first + count <= len(steps))
        self._require(inside, f"has steps beyond the {len(steps)} there are")

    def _scan(self, stage: Scan) -> None:
        tasks, steps = stage.tasks, stage.steps
        self.scans += 1
        if self.scans > 1:
            self._fault("is a second scan: a launch shares out the tasks of one")
        self._operands(tasks, "pendant", "root")
        self._lengths(tasks, "pendant_p", "join_p")
        self._model(tasks)
        self._inside(tasks, steps)
        self.record = len(tasks)
        self._operands(steps, "left", "right")
        self._lengths(steps, "left_p", "left_half_p", "right_p", "right_half_p")
        self._levels(stage)
        at, _ = np.nonzero(stage.steps_outputs >= 0)
        if not stage.stores:
            self._cells(stage.outputs, at=at)
            return
        overwritten = np.isin(stage.outputs, _slots_read(tasks, steps))
        self._require(~overwritten, "overwrites a CLA that the scan reads", at)
        self._write(self.slots, stage.outputs, "cla", at)

    def _levels(self, stage: Scan) -> None:
        """A step starts from what its task pushed before; its left side leaves that as it is."""
        tasks, steps = stage.tasks, stage.steps
        owner, at = _steps_of(tasks)
        depth = 1 + max(int(steps["level_in"].max(initial=0)), self.program.stack_levels)
        pushed = np.full((len(tasks), depth), len(steps))
        pushed[:, ROOT_LEVEL] = -1
        left, right = stage.steps_levels[at].T
        goes_on = (right >= 0) | (steps["right_output"][at] >= 0)
        spoilt = goes_on & (left == steps["level_in"][at])
        self._require(~spoilt, "overwrites the vector that its right side starts from", at)
        for level in (left, right):
            self._require(level != PENDANT_LEVEL, "overwrites the pruned subtree", at)
            pushes = level >= 0
            np.minimum.at(pushed, (owner[pushes], level[pushes]), at[pushes])
        level = steps["level_in"][at]
        ready = (level >= 0) & (pushed[owner, np.maximum(level, 0)] < at)
        self._require(ready, "starts from a level that no step before it pushed", at)

    def _optimise(self, records: Records) -> None:
        if len(records) > self.groups:
            self._fault(f"has {len(records)} groups but {self.groups} control records")
        first, count = records["first_length"], records["count"]
        inside = (first >= 0) & (count > 0) & (first + count <= self.pmatrices.size)
        self._require(inside, f"moves lengths beyond the {self.pmatrices.size} there are")
        reach = np.where(records["kind"] == GroupKind.TRIPOD, _TRIPOD_REACH, 2 * count)
        for cell, length in ((records["lnl_cell"], np.ones_like(reach)),
                             (records["first_cell"], reach)):  # fmt: skip
            self._require(
                (cell >= 0) & (cell + length <= self.sums.size),
                f"reads sums beyond the {self.sums.size} there are",
            )
            known = np.concatenate([[0], np.cumsum(self.sums)])
            self._require(
                known[cell + length] - known[cell] == length,
                "reads a sum that nothing has reduced",
            )

    def _reduce(self, first: int, count: int, residues: int) -> None:
        if not 0 <= residues <= REDUCE_WIDTH:
            self._fault(f"has more residues than {REDUCE_WIDTH}")
        if not 0 <= first <= first + count <= self.sums.size:
            self._fault(f"goes beyond the {self.sums.size} cells there are")
        missing = np.flatnonzero(~self.partials[first : first + count])
        if missing.size:
            self._fault(f"sums cell {first + int(missing[0])}, to which nothing was added")
        self.sums[first : first + count] = residues == 0

    def _operands(self, records: Records, *fields: str) -> None:
        for field in fields:
            self._tips(records[field])
            self._read(self.slots, records[field], "cla", records[field] >= 0)

    def _tips(self, x: Int32) -> None:
        self._require(x >= -self.n_tips, lambda n: f"reads tip {~x[n]} of {self.n_tips}")

    def _lengths(self, records: Records, *fields: str) -> None:
        for field in fields:
            self._read(self.pmatrices, records[field], "P", np.ones(len(records), np.bool_))

    def _model(self, records: Records) -> None:
        model = records["model"]
        self._require(
            (model >= 0) & (model < self.models),
            lambda n: f"needs model {model[n]} of {self.models}",
        )

    def _cells(self, first: Int32, width: int = 1, at: npt.NDArray[np.intp] | None = None) -> None:
        cells = np.add.outer(first, np.arange(width, dtype=np.int32)).ravel()
        where = np.arange(len(first)) if at is None else at
        self._write(self.partials, cells, "sum", np.repeat(where, width))

    def _read(self, table: Bool, index: Int32, what: str, wanted: Bool) -> None:
        inside = (index >= 0) & (index < table.size)
        self._require(
            ~wanted | inside, lambda n: f"reads {what}[{index[n]}], but there are {table.size}"
        )
        self._require(
            ~wanted | table[np.where(wanted, index, 0)] if table.size else ~wanted,
            lambda n: f"reads {what}[{index[n]}], which nothing has written",
        )

    def _write(
        self, table: Bool, index: Int32, what: str, at: npt.NDArray[np.intp] | None = None
    ) -> None:
        """Each of the entries once: records of a run or stage have no order among them."""
        self._require(
            (index >= 0) & (index < table.size),
            lambda n: f"writes {what}[{index[n]}], but there are {table.size}",
            at,
        )
        once = np.zeros(len(index), np.bool_)
        once[np.unique(index, return_index=True)[1]] = True
        self._require(once, lambda n: f"writes {what}[{index[n]}] a second time", at)
        table[index] = True

    def _require(
        self, good: Bool, wrong: str | Callable[[int], str], at: npt.NDArray[np.intp] | None = None
    ) -> None:
        """``good`` bool[records]; ``at`` their positions where they are not all the records."""
        if not good.all():
            n = int(np.argmin(good))
            said = wrong if isinstance(wrong, str) else wrong(n)
            self._fault(said, n if at is None else int(at[n]))

    def _fault(self, wrong: str, record: int | None = None) -> NoReturn:
        listing = self.program.title(self.stage)
        if record is not None:
            listing += f", record {self.record + record}: " + self.program.line(
                self.stage, self.record + record
            )
        raise WorkerFault(
            f"stage {self.stage:03d} {listing}: {wrong}", hint="please report this with the log"
        )


def _steps_of(tasks: Records) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Of all tasks' steps, in order: the task, and the index."""
    count = tasks["steps"]
    owner = np.repeat(np.arange(len(tasks)), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, tasks["first_step"][owner] + within


def _is_slot(operand: Int32) -> Bool:
    """Which operands of a walk's steps are CLAs."""
    is_slot: Bool = (operand >= 0) & (operand != RESULT)
    return is_slot


def _slots_read(tasks: Records, steps: Records) -> Int32:
    read: Int32 = np.concatenate([tasks["pendant"], tasks["root"], steps["left"], steps["right"]])
    return read
