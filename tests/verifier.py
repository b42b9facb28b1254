"""Verification of programs before they run: operands in range, written before they are read.

Vectorised over records, so that it can stay on in every run of a test. CLAs outlive a program,
so a :class:`Verifier` remembers which slots hold one; P matrices and sums do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatchmethod

import numpy as np
from record_checks import Index, Parts, TableChecks, parts_at, wrong_program

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.program.contract import (
    NO_CELL,
    PENDANT_LEVEL,
    RESULT,
    ROOT_LEVEL,
    TRIPLET_CELLS,
    GroupKind,
)
from mltree.program.engine import Engine, ReplicateEngine, Result, Weights
from mltree.program.ops.operation import Records, Role, Run, Stage, SumStage, fields
from mltree.program.ops.optimise import Optimise, Repeat
from mltree.program.ops.reduce import Reduce
from mltree.program.ops.scan import Scan
from mltree.program.ops.sites import Sites
from mltree.program.ops.walk import Walk
from mltree.program.program import Program
from mltree.system.arrays import Bool, Float64, Int32

__all__ = ["VerifiedEngine", "Verifier"]


_TRIPLET_REACH = TRIPLET_CELLS - 1
"""Sums of a triplet group behind its lnL: three first and six second derivatives."""


class Verifier:
    """Checks programs one after the other, as an engine would run them."""

    def __init__(self, n_tips: int, max_slots: int, parts: int = 1) -> None:
        self.n_tips = n_tips
        self.max_slots = max_slots
        self.written: Bool = np.zeros((parts, 0), np.bool_)
        """bool[parts, slots]: which slots hold a CLA of a part."""

    def check(
        self, program: Program, *, lengths: int, models: int, groups: int, weights: int = 1
    ) -> None:
        """Check a program for so many lengths, model rows, control records and rows of weights.

        Raises:
            WorkerFault: names the first wrong instruction and lists it.
        """
        parts, slots = self.written.shape
        if program.slots > slots:
            grown = np.zeros((parts, min(program.slots, self.max_slots)), np.bool_)
            grown[:, :slots] = self.written
            self.written = grown
        _Check(self, program, lengths, models, groups, weights).run()


class VerifiedEngine:
    """An engine that verifies every program before it runs it."""

    def __init__(self, engine: Engine, n_tips: int) -> None:
        self.engine = engine
        self.name = engine.name
        self.room = engine.room
        self.parts = engine.parts
        self.verifier = Verifier(n_tips, engine.room.most, engine.parts)
        self._models = 0
        self._weights = 1

    def longest_walk(self, trees: int) -> int:
        """As the engine; see :class:`mltree.program.engine.Engine`."""
        return self.engine.longest_walk(trees)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        self._models = len(models)
        self.engine.load_models(models)

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        self._weights = len(rows)
        self.engine.load_weights(rows)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """As the engine, with replicate slots; CLAs of those parts are as good as not written."""
        assert isinstance(self.engine, ReplicateEngine)
        parts = slice(first_part, first_part + len(patterns.parts))
        self.verifier.written[parts] = False
        self.engine.load_patterns(first_part, patterns)

    def close(self) -> None:
        """As the engine."""
        self.verifier.written[:] = False
        self.engine.close()

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Verify and run; see :class:`mltree.program.engine.Engine`."""
        self.verifier.check(
            program,
            lengths=len(lengths),
            models=self._models,
            groups=len(control),
            weights=self._weights,
        )
        return self.engine.run(program, lengths, control)

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        return self.engine.site_log_likelihoods(rows)


class _Check(TableChecks):
    """One program's check, stage by stage: the rules that operations have of their own."""

    def __init__(
        self,
        verifier: Verifier,
        program: Program,
        lengths: int,
        models: int,
        groups: int,
        weights: int,
    ) -> None:
        super().__init__(program, verifier.written, verifier.n_tips)
        self.lengths = lengths
        self.groups = groups
        self.scans = 0
        self._cases(models, weights)

    def run(self) -> None:
        for number, stage in enumerate(self.program.stages):
            self.stage, self.record = number, 0
            self._stage(stage)

    def _cases(self, models: int, weights: int) -> None:
        """The cases' parts, models and weights are there."""
        cases, parts = self.program.cases, len(self.slots)
        for number, (first, count, model, row) in enumerate(cases.tolist()):
            if not (first >= 0 and count > 0 and first + count <= parts):
                raise wrong_program(
                    f"case {number} has parts {first} to {first + count - 1} of {parts}"
                )
            if not 0 <= model + first <= model + first + count <= models:
                raise wrong_program(
                    f"case {number} needs model {model + first + count - 1} of {models}"
                )
            if not 0 <= row < weights:
                raise wrong_program(f"case {number} needs weights {row} of {weights}")

    @singledispatchmethod
    def _stage(self, stage: Stage) -> None:
        """Check a stage by the roles of its records' fields; others have rules of their own."""
        for records in stage.all_records:
            if fields(records.dtype, Role.CASE):
                self._task_table(records, stage.cells)
        if isinstance(stage, SumStage):
            firsts = stage.records["sum"].tolist()
            for first, count in zip(firsts, stage.sums().tolist(), strict=True):
                self.sums[first : first + count] = True

    @_stage.register
    def _(self, stage: Sites) -> None:
        for parts, run in stage.each():
            self._site_run(parts, run)
            self.record += len(run.records)

    def _task_table(self, records: Records, cells: int) -> None:
        parts = first, count = self.owners(records)
        self.table(records, parts)
        for length in fields(records.dtype, Role.LENGTH):
            self._lengths(records, length, parts)
        for field in fields(records.dtype, Role.MAKES):
            owner = np.repeat(np.arange(len(records)), count)
            within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
            made = (records[field] + first)[owner] + within
            self.write(self.pmatrices, made, "P", owner)
        for field in fields(records.dtype, Role.WRITES):
            self.write_slots(records[field], parts)
        for field in fields(records.dtype, Role.CELL):
            self.cells(records[field], parts, cells)

    def _lengths(self, records: Records, field: str, parts: Parts) -> None:
        """The lengths of the first and last part, between which those of others lie, are there."""
        (stride,) = fields(records.dtype, Role.STRIDE)
        for part in (parts[0], parts[0] + parts[1] - 1):
            self._length(records[field] + records[stride] * part)

    def _length(self, t: Int32) -> None:
        inside = (t >= 0) & (t < self.lengths)
        self.require(inside, lambda n: f"needs length {t[n]} of {self.lengths}")

    @_stage.register
    def _(self, stage: Repeat) -> None:
        if not 0 <= stage.to < self.stage:
            self.fault(f"goes back to stage {stage.to}")
        if any(isinstance(other, Scan) for other in self.program.stages[stage.to : self.stage]):
            self.fault("repeats a scan, whose tasks a launch shares out once")
        if stage.groups > self.groups:
            self.fault(f"asks for {stage.groups} groups of {self.groups}")

    def _site_run(self, parts: range, run: Run) -> None:
        records = run.records
        own = np.full(len(records), parts.start), np.full(len(records), len(parts))
        self.table(records, own)
        if run.reads_sites:
            leaves = np.full(len(records), self.program.site_rows > 0)
            self.require(leaves, "needs lnL of patterns, which none leaves")
        for length in fields(records.dtype, Role.LENGTH):
            self._lengths(records, length, own)
        read = [records[field] for field in fields(records.dtype, Role.READS)]
        for field in fields(records.dtype, Role.WRITES):
            # Records of a run are computed side by side: none may wait for another.
            self.require(~np.isin(records[field], read), "is read by its own level")
            self.write_slots(records[field], own)
        for field in fields(records.dtype, Role.CELL):
            first, count = self.owners(records)
            same = (first == parts.start) & (count == len(parts))
            self.require(same, "is in a stream of other parts than its case")
            if run.cells:
                self.cells(records[field], own, run.cells)
            else:
                self._shared_cells(records, own)

    def _shared_cells(self, records: Records, parts: Parts) -> None:
        """All records of the run add to the same cells, of the sums from the same one on."""
        for field in ("cell", "cells", "first"):
            same = records[field] == records[field][0]
            self.require(same, "has other cells than the first of its run")
        first = np.zeros(1, np.intp)
        self.cells(records["cell"][:1], parts_at(parts, first), int(records["cells"][0]))

    @_stage.register
    def _(self, stage: Walk) -> None:
        walks, steps = stage.records, stage.steps
        own = self.owners(walks)
        self.table(walks, own)
        kept = np.flatnonzero(walks["slot"] != NO_CELL)
        scored = np.flatnonzero(walks["slot"] == NO_CELL)
        self.cells(walks["cell"][scored], parts_at(own, scored), 1, scored)
        self._inside(walks, steps)
        self.record = len(walks)
        owner, at = _steps_of(walks)
        self._table_at(steps, parts_at(own, owner), at)
        self._waiting(stage)
        self.record = 0
        slots = walks["slot"][kept]
        same = np.isin(slots, [steps["left"], steps["right"]])
        self.require(~same, "overwrites a CLA that its own stage reads", kept)
        self.write_slots(slots, parts_at(own, kept), kept)

    def _waiting(self, stage: Walk) -> None:
        """Steps take results that are there, one is left, and no more wait than are said to."""
        owner, at = _steps_of(stage.records)
        inner = np.column_stack([stage.steps["left"], stage.steps["right"]])[at] == RESULT
        growth = 1 - inner.sum(axis=1)
        before = np.concatenate([[0], np.cumsum(growth)])
        there = before[:-1] - before[np.searchsorted(owner, owner)]
        self.require(there >= inner.sum(axis=1), "takes a result that no step has left", at)
        self.require(there + growth <= 1 + stage.levels, "leaves more results than levels", at)
        left = np.bincount(owner, growth, len(stage.records))
        self.record = 0
        self.require(left == 1, "does not end in one result")

    def _inside(self, tasks: Records, steps: Records) -> None:
        first, count = tasks["first_step"], tasks["steps"]
        inside = (first >= 0) & (count >= 0) & (first + count <= len(steps))
        self.require(inside, f"has steps beyond the {len(steps)} there are")

    @_stage.register
    def _(self, stage: Scan) -> None:
        tasks, steps = stage.records, stage.steps
        self.scans += 1
        if self.scans > 1:
            self.fault("is a second scan: a launch shares out the tasks of one")
        own = self.owners(tasks)
        self.table(tasks, own)
        self._inside(tasks, steps)
        self.record = len(tasks)
        owner, at = _steps_of(tasks)
        self._table_at(steps, parts_at(own, owner), at)
        self._levels(stage)
        outputs = _sides(steps, "output")[at]
        row, side = np.nonzero(outputs >= 0)
        parts = parts_at(own, owner[row])
        if not stage.stores:
            self.cells(outputs[row, side], parts, 1, at[row])
            return
        overwritten = np.isin(outputs[row, side], stage.slots_read())
        self.require(~overwritten, "overwrites a CLA that the scan reads", at[row])
        self.write_slots(outputs[row, side], parts, at[row])

    def _table_at(self, steps: Records, parts: Parts, at: Index) -> None:
        """The table's check of the steps ``at``, which may be in any order."""
        order = np.argsort(at, kind="stable")
        if len(at) == len(steps):
            self.table(steps, parts_at(parts, order))
            return
        self.require(np.isin(np.arange(len(steps)), at), "is a step of no task")

    def _levels(self, stage: Scan) -> None:
        """A step starts from what its task pushed before; its left side leaves that as it is."""
        tasks, steps = stage.records, stage.steps
        owner, at = _steps_of(tasks)
        depth = 1 + max(int(steps["level_in"].max(initial=0)), self.program.stack_levels)
        pushed = np.full((len(tasks), depth), len(steps))
        pushed[:, ROOT_LEVEL] = -1
        left, right = _sides(steps, "level")[at].T
        goes_on = (right >= 0) | (steps["right_output"][at] >= 0)
        spoilt = goes_on & (left == steps["level_in"][at])
        self.require(~spoilt, "overwrites the vector that its right side starts from", at)
        for level in (left, right):
            self.require(level != PENDANT_LEVEL, "overwrites the pruned subtree", at)
            pushes = level >= 0
            np.minimum.at(pushed, (owner[pushes], level[pushes]), at[pushes])
        level = steps["level_in"][at]
        ready = (level >= 0) & (pushed[owner, np.maximum(level, 0)] < at)
        self.require(ready, "starts from a level that no step before it pushed", at)

    @_stage.register
    def _(self, stage: Optimise) -> None:
        records = stage.records
        if len(records) > self.groups:
            self.fault(f"has {len(records)} groups but {self.groups} control records")
        first, count = records["first_length"], records["count"]
        inside = (first >= 0) & (count > 0) & (first + count <= self.lengths)
        self.require(inside, f"moves lengths beyond the {self.lengths} there are")
        reach = np.where(records["kind"] == GroupKind.TRIPLET, _TRIPLET_REACH, 2 * count)
        for cell, length in ((records["lnl_sum"], np.ones_like(reach)),
                             (records["first_sum"], reach)):  # fmt: skip
            self.require(
                (cell >= 0) & (cell + length <= self.sums.size),
                f"reads sums beyond the {self.sums.size} there are",
            )
            known = np.concatenate([[0], np.cumsum(self.sums)])
            self.require(
                known[cell + length] - known[cell] == length,
                "reads a sum that nothing has reduced",
            )

    @_stage.register
    def _(self, stage: Reduce) -> None:
        parts, cells = self.partials.shape
        for number, (cell, first_sum, count, first_part, of) in enumerate(stage.records.tolist()):
            if not (first_part >= 0 and of > 0 and first_part + of <= parts):
                self.fault(f"sums parts beyond the {parts} there are", number)
            if not 0 <= cell <= cell + count <= cells:
                self.fault(f"goes beyond the {cells} cells there are", number)
            there = self.partials[first_part : first_part + of, cell : cell + count].all(axis=0)
            if not there.all():
                missing = cell + int(np.argmin(there))
                self.fault(f"sums cell {missing}, to which nothing was added", number)
            self.sums[first_sum : first_sum + count] = True


def _steps_of(tasks: Records) -> tuple[Index, Index]:
    """Of all tasks' steps, in order: the task, and the index."""
    count = tasks["steps"]
    owner = np.repeat(np.arange(len(tasks)), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, tasks["first_step"][owner] + within


def _sides(steps: Records, name: str) -> Int32:
    """int32[steps, 2]: a field of both sides of a scan's steps."""
    return np.stack([steps[f"{side}_{name}"] for side in ("left", "right")], axis=1)
