"""Parts of different state counts under one tree: DNA, proteins and others side by side.

Each state count has an engine of its own, with the parts of that state count. A program runs on
every engine, clipped to the engine's parts, and the engines' sums are added in a fixed order;
branch lengths are optimised on the host, by the reference's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.program.engine import NO_CONTROL, Engine, Result, Room, Weights, run_on_host
from mltree.program.ops.operation import Records, Role, fields, shifted
from mltree.program.program import Program
from mltree.system.arrays import Float64
from mltree.system.errors import ModelError

MOST_CODES = 255
"""Codes of tips, a byte each, of all data types."""


class JointEngine:
    """Implements :class:`mltree.program.engine.Engine` over engines of several state counts.

    Parts and patterns are those of the engines, one engine after the other.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        states: Sequence[int],
        patterns: Sequence[int],
        bounds: tuple[float, float],
    ) -> None:
        """``states``, ``patterns``: S and L of each engine; ``bounds``: of branch lengths.

        An engine must look parts up even if it has but one (``parted`` of a device's layout).
        """
        self._engines, self._states = list(engines), list(states)
        self._columns = [
            slice(first, last) for first, last in pairwise(np.cumsum([0, *patterns]).tolist())
        ]
        self._firsts = np.cumsum([0, *(engine.parts for engine in engines)]).tolist()
        self._bounds = bounds
        self._clipped: tuple[Program, list[Program]] | None = None
        """The latest stages, and their part in each engine: the same objects if they run again."""

    @property
    def name(self) -> str:
        """The names of all engines."""
        return "; ".join(engine.name for engine in self._engines)

    @property
    def room(self) -> Room:
        """The least room of any engine, quantity by quantity."""
        return Room(*map(min, zip(*(engine.room for engine in self._engines), strict=True)))

    @property
    def parts(self) -> int:
        """Parts of all engines together."""
        return int(self._firsts[-1])

    def longest_walk(self, trees: int) -> int:
        """The least of the engines' longest walks; levels suit all of them."""
        return min(engine.longest_walk(trees) for engine in self._engines)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each.

        An engine reads the rows of its own parts only, so that any model of its state count may
        fill the others; an engine without such a model is needed by no case.
        """
        for engine, states in zip(self._engines, self._states, strict=True):
            any_model = next((model for model in models if model.n_states == states), None)
            if any_model is not None:
                engine.load_models([m if m.n_states == states else any_model for m in models])

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        for engine, columns in zip(self._engines, self._columns, strict=True):
            engine.load_weights(rows[:, columns])

    def close(self) -> None:
        """Free the memory of all engines."""
        for engine in self._engines:
            engine.close()

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        blocks = [engine.site_log_likelihoods(rows) for engine in self._engines]
        return np.concatenate(blocks, axis=1)

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`."""
        sums = partial(self._sums, program)
        return run_on_host(program, lengths, control, self._bounds, sums)

    def _sums(self, program: Program, first: int, end: int, lengths: Float64) -> Float64:
        """Sums of the stages ``first .. end - 1`` over all engines."""
        total, part = np.zeros(program.sums), program.part(first, end)
        if self._clipped is None or self._clipped[0] is not part:
            self._clipped = part, [on_parts(part, a, b) for a, b in pairwise(self._firsts)]
        for engine, clipped in zip(self._engines, self._clipped[1], strict=True):
            sums = engine.run(clipped, lengths, NO_CONTROL).sums
            total[: len(sums)] += sums
        return total


def joined_patterns(groups: Sequence[Patterns]) -> Patterns:
    """The parts of several data types as one: codes and states of one type behind another's.

    State s of every type is state s of all, so that models of few states have further ones, which
    nothing turns into (:meth:`mltree.models.eigen.ModelStack.widened`). A kernel for as many states
    as the largest type has computes all of them.

    Raises: ModelError where there are more codes than a byte has.
    """
    if len(groups) == 1:
        return groups[0]
    alphabets = [group.alphabet for group in groups]
    largest = max(alphabets, key=lambda alphabet: alphabet.n_states)
    codes = np.cumsum([0, *(alphabet.n_codes for alphabet in alphabets)]).tolist()
    if codes[-1] > MOST_CODES:
        raise ModelError(f"{codes[-1]} codes of all data types together: at most {MOST_CODES}")
    table = np.zeros((codes[-1], largest.n_states))
    for first, alphabet in zip(codes, alphabets, strict=False):
        table[first : first + alphabet.n_codes, : alphabet.n_states] = alphabet.tip_table
    table[codes[alphabets.index(largest)] + largest.gap_code] = 1.0
    joined = replace(
        largest,
        name="joined",
        symbols=tuple("?" * codes[-1]),
        tip_table=table,
        gap_code=codes[alphabets.index(largest)] + largest.gap_code,
    )
    ends, sites, patterns = [], [], 0
    for group in groups:
        ends += [patterns + part.stop for part in group.parts]
        sites.append(group.site_pattern + patterns)
        patterns += group.n_patterns
    return Patterns(
        groups[0].taxa,
        np.concatenate([g.codes + np.uint8(c) for g, c in zip(groups, codes, strict=False)], 1),
        np.concatenate([group.weights for group in groups]),
        np.concatenate(sites).astype(np.int32),
        joined,
        tuple(ends),
    )


def on_parts(program: Program, first: int, end: int) -> Program:
    """The program on the parts ``first .. end - 1`` alone, counted from 0."""
    return program.changed(lambda records: _moved(_clipped(records, first, end), first))


def _moved(records: Records, first: int) -> Records:
    """Records whose parts are counted from ``first``."""
    moved = shifted(records, first, Role.MATRIX, Role.MAKES, Role.MODEL)
    for stride in fields(records.dtype, Role.STRIDE):
        for field in fields(records.dtype, Role.LENGTH):
            moved[field] += first * records[stride]
    return moved


def _clipped(records: Records, first: int, end: int) -> Records:
    """Records clipped to the parts ``first .. end - 1``, counted from 0; perhaps to none."""
    if not fields(records.dtype, Role.FIRST_PART):
        return records
    clipped = records.copy()
    last = np.minimum(records["first_part"] + records["parts"], end)
    clipped["first_part"] = np.clip(records["first_part"], first, end) - first
    clipped["parts"] = np.maximum(last - first - clipped["first_part"], 0)
    return clipped
