"""An engine of patterns that have a rate each (+PSR).

The patterns of a part that have one rate are a part of their own to the engine, of one category,
with the part's eigen system and that rate; branch lengths are linked. So kernels know nothing of
rates of sites: a program is spread over more parts, and patterns are laid out anew, in an engine
that is opened for it, when their rates have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from mltree.data.patterns import Patterns
from mltree.device.timing import Breakdown
from mltree.models.eigen import ModelArrays
from mltree.program.engine import Engine, Result, Room, Weights
from mltree.program.ops.operation import Records, Role, fields
from mltree.program.program import Program
from mltree.system.arrays import Float64, Int64
from mltree.system.events import Emit, ignore

PROGRAMS_KEPT = 16
"""Programs that are spread once: more than a search repeats in turn."""

Open = Callable[[Sequence[Patterns], Emit], Engine]


class RateGroupEngine:
    """Implements :class:`mltree.program.engine.Engine` over patterns that have a rate each.

    To its client it has the parts and the order of the patterns that it was given. A model's
    categories are the rates that patterns may have.
    """

    def __init__(
        self, open_: Open, groups: Sequence[Patterns], count: int, emit: Emit = ignore
    ) -> None:
        """``open_``: opens an engine of one category; ``count``: rates of every part."""
        self._open, self._groups, self._count = open_, tuple(groups), count
        self._past: list[Breakdown] = []
        self._rows: Weights | None = None
        self.parts = sum(len(patterns.parts) for patterns in groups)
        self._category = _one(groups)
        self._lay_out(emit)

    def _lay_out(self, emit: Emit = ignore) -> Engine:
        grouped, self._order = _grouped(self._groups, self._category, self._count)
        self._programs: dict[int, tuple[Program, Program]] = {}
        self._opened: Engine | None = self._open(grouped, emit)
        if self._rows is not None:
            self.load_weights(self._rows)
        return self._opened

    @property
    def _engine(self) -> Engine:
        """Opened again where it was closed."""
        return self._opened or self._lay_out()

    def group(self, category: Int64) -> None:
        """Take the rate i64[L] of every pattern; models and CLAs are gone then."""
        if not np.array_equal(category, self._category):
            self.close()
            self._category = category

    def close(self) -> None:
        """Give the memory back until there is more to do; models and CLAs are gone then."""
        self._past = self._breakdowns()
        self._opened, self._programs = None, {}

    def _breakdowns(self) -> list[Breakdown]:
        """Breakdowns of all engines so far that have one."""
        last: Breakdown | None = getattr(self._opened, "breakdown", lambda: None)()
        return self._past if last is None else [*self._past, last]

    def breakdown(self) -> Breakdown | None:
        """Where the time of all engines so far went; None where they do not know."""
        spent = self._breakdowns()
        return Breakdown.one_after_the_other(spent) if spent else None

    @property
    def name(self) -> str:
        """The engine's."""
        return self._engine.name

    @property
    def room(self) -> Room:
        """The engine's."""
        return self._engine.room

    def longest_walk(self, trees: int) -> int:
        """As of the engine."""
        return self._engine.longest_walk(trees)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row a part: each is the rows of its rates, one by one."""
        self._engine.load_models([row for model in models for row in self._one_by_one(model)])

    def _one_by_one(self, model: ModelArrays) -> list[ModelArrays]:
        """A model of one category for each rate; the last for what it has none for."""
        rates = np.append(model.rates, np.repeat(model.rates[-1], self._count))
        one = np.ones(1)
        return [replace(model, rates=rates[n : n + 1], weights=one) for n in range(self._count)]

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L], which outlast the patterns' order."""
        self._rows = rows
        self._engine.load_weights(np.take(rows, self._order, axis=1))

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        grouped = self._engine.site_log_likelihoods(rows)
        lnl = np.empty_like(grouped)
        lnl[:, self._order] = grouped
        return lnl

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`."""
        known = self._programs.pop(id(program), None) or (program, spread(program, self._count))
        self._programs[id(program)] = known
        if len(self._programs) > PROGRAMS_KEPT:
            del self._programs[next(iter(self._programs))]
        return self._engine.run(known[1], lengths, control)


def unrated(groups: Sequence[Patterns], count: int) -> list[Patterns]:
    """The patterns as they are held before any rates are known: all in the first group."""
    return _grouped(groups, _one(groups), count)[0]


def _one(groups: Sequence[Patterns]) -> Int64:
    return np.zeros(sum(patterns.n_patterns for patterns in groups), np.int64)


def _grouped(
    groups: Sequence[Patterns], category: Int64, count: int
) -> tuple[list[Patterns], Int64]:
    """The patterns by category, ``count`` parts for each part, and their order."""
    sizes = [patterns.n_patterns for patterns in groups]
    ends = np.cumsum(sizes)
    each = [
        patterns.grouped(rates, count)
        for patterns, rates in zip(groups, np.split(category, ends[:-1]), strict=True)
    ]
    orders = [order + end - size for (_, order), end, size in zip(each, ends, sizes, strict=True)]
    return [patterns for patterns, _ in each], np.concatenate(orders)


def spread(program: Program, count: int) -> Program:
    """The program with ``count`` parts for every part; those share its branch lengths."""
    return program.changed(partial(_times, count=count))


def _times(records: Records, count: int) -> Records:
    """Records whose parts, matrices and rows of models are ``count`` for each."""
    widened = Role.FIRST_PART, Role.PARTS, Role.MATRIX, Role.MAKES, Role.MODEL
    wide = records.copy()
    for name in fields(records.dtype, *widened):
        wide[name] *= count
    return wide
