"""The reference's memory, and the arithmetic that its formulas share: NumPy, fp64.

CLAs lie as RAxML's AVX code keeps them, ``[pattern][category][state]`` (VW = 1). Letters: L
patterns of a part, K categories, S states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mltree.data.patterns import Patterns, SiteSystems
from mltree.models.eigen import ModelArrays, ModelStack, Series, rate_matrix
from mltree.models.portable import product
from mltree.program import contract
from mltree.program.contract import FAR_COUNT, SCALE_BITS_DOUBLE
from mltree.system.arrays import Bool, Float64, Int32


class ModelRow(NamedTuple):
    """A model, category by category; tables have an axis of patterns, or of one for all, in front.

    K categories, S states, L patterns.
    """

    eigenvalues: Float64
    """f64[L or 1, K, S]"""
    right: Float64
    """f64[L or 1, K, S, S], as left and generator"""
    left: Float64
    generator: Float64
    """Q"""
    frequencies: Float64
    """f64[L or 1, K, S]"""
    rates: Float64
    """f64[K]"""
    weights: Float64
    """f64[K]"""

    @classmethod
    def of(cls, model: ModelArrays) -> ModelRow:
        """The tables of each eigen system, once for every category."""
        systems, states = model.n_systems, model.n_states
        vectors = model.eigenvalues, model.frequencies
        squares = model.right, model.left, model.generator
        each = model.n_categories // systems
        values, frequencies = (
            table.reshape(1, systems, states).repeat(each, 1) for table in vectors
        )
        right, left, generator = (
            table.reshape(1, systems, states, states).repeat(each, 1) for table in squares
        )
        return cls(values, right, left, generator, frequencies, model.rates, model.weights)


def tables_of(systems: SiteSystems) -> tuple[Float64, ...]:
    """The tables of a `ModelRow` of patterns with eigen systems of their own.

    f64[L, 1, S] and f64[L, 1, S, S]: those of a pattern are the same in all categories.
    """
    states = len(systems.exchangeabilities)
    rates = systems.exchangeabilities[np.triu_indices(states, 1)]
    each = np.broadcast_to(rates, (len(systems.roots), len(rates)))
    generator = rate_matrix(each, systems.frequencies)
    tables = systems.eigenvalues, systems.right, systems.left, generator, systems.roots**2
    return tuple(table[:, None] for table in tables)


def model_rows(models: Sequence[ModelArrays]) -> Float64:
    """f64[n, words], a row per model (see ``opencl/session.h``)."""
    stack = ModelStack.of(models)
    if stack.rows is not None:
        return stack.rows
    eigenvalues, right, left, frequencies, generator, _, rates, weights = stack.tables
    squares = (right, left, generator, product(generator, generator))
    count, systems = len(models), models[0].n_systems
    flat = [part.reshape(count, systems, -1) for part in (eigenvalues, *squares, frequencies)]
    tables = np.concatenate(flat, axis=2).reshape(count, -1)
    return np.concatenate([tables, rates, weights], axis=1)


def series_rows(models: Sequence[ModelArrays]) -> tuple[Float64, Int32]:
    """The series of all rate matrices f64[n], and where those of each model begin i32[n, M].

    See ``opencl/series.h``; NO_SERIES where the eigen system gives every entry of P.
    """
    places = np.full((len(models), models[0].n_systems), contract.NO_SERIES, np.int32)
    starts: dict[Series, int] = {}
    size = 0
    for place, series in ModelStack.of(models).series().items():
        if series not in starts:
            starts[series] = size
            size += series.words.size
        places[place] = starts[series]
    return np.concatenate([np.zeros(0), *(series.words for series in starts)]), places


_THRESHOLD = 2.0**-SCALE_BITS_DOUBLE
LN_SCALE = SCALE_BITS_DOUBLE * np.log(2.0)
"""ln of the factor that a scaling count stands for."""


class ScaledCla:
    """A CLA: values f64[L, K, S] and scaling counts i64[L, K] (value = stored * 2^(-256 count))."""

    def __init__(self, values: Float64, counts: npt.NDArray[np.int64]) -> None:
        self.values = values
        self.counts = counts

    def times(self, other: ScaledCla) -> ScaledCla:
        """The elementwise product, scaled up where all states fell below 2^-256."""
        values, counts = self.values * other.values, self.counts + other.counts
        small = values.max(axis=2) < _THRESHOLD
        values[small] *= 2.0**SCALE_BITS_DOUBLE
        return ScaledCla(values, counts + small)


class ReferenceState:
    """Models, weights, CLAs, P matrices, cells and sums, for one part of the patterns at a time."""

    def __init__(
        self, patterns: Patterns, categories: int, systems: int, bounds: tuple[float, float]
    ) -> None:
        """``bounds``: of branch lengths."""
        self.bounds = bounds
        self.ranges = patterns.parts
        self.states = len(patterns.alphabet.states)
        self.categories, self.systems = categories, systems
        self.part = 0
        """The part at hand."""
        self.cla: dict[tuple[int, int], ScaledCla] = {}
        """By slot and part."""
        self.p: dict[int, Float64] = {}
        """P matrices f64[L or 1, K, S, S]."""
        self.expm1: dict[int, Float64] = {}
        """e^(lambda r t) - 1 of each, f64[L or 1, K, S]."""
        self.weights = patterns.weights[None].copy()
        """f64[rows, L of all parts]"""
        self.site_lnl = np.zeros((1, patterns.n_patterns))
        """The same of the patterns' lnL."""
        self.cells: Float64 = np.zeros((0, len(self.ranges)))
        """f64[cells, parts]"""
        self.sums: Float64 = np.zeros(0)
        self.lengths: Float64 = np.zeros(0)
        self.is_indirect: Bool = np.zeros((0, categories), np.bool_)
        """bool[n, K]: of categories whose P the eigen system does not give."""
        self._cases: list[tuple[int, ...]] = []
        self._models: list[ModelRow] = []
        self._tips = patterns.alphabet.tip_table[patterns.codes]
        self._tip_table = patterns.alphabet.tip_table
        self._tables = None if patterns.systems is None else tables_of(patterns.systems)

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each; patterns with eigen systems of their own have those instead."""
        self._models = list(map(ModelRow.of, models))
        direct = np.array([model.direct for model in models]).reshape(len(models), -1)
        if self._tables is not None:
            direct = np.zeros_like(direct)  # as small as their frequencies may be
        self.is_indirect = np.repeat(direct == 0.0, self.categories // self.systems, 1)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """Take other patterns for as many parts; ValueError where those are of other sizes."""
        parts = self.ranges[first_part : first_part + len(patterns.parts)]
        span = slice(parts[0].start, parts[-1].stop)
        if [part.stop - span.start for part in parts] != [part.stop for part in patterns.parts]:
            raise ValueError("parts of other sizes")
        self._tips[:, span] = self._tip_table[patterns.codes]
        self.weights[0, span] = patterns.weights
        if self._tables is not None and patterns.systems is not None:
            for table, fresh in zip(self._tables, tables_of(patterns.systems), strict=True):
                table[span] = fresh

    def begin(self, cases: npt.NDArray[np.void], cells: int, sums: int, site_rows: int) -> None:
        """Make room for a program."""
        self._cases = cases.tolist()
        self.cells = np.zeros((cells, len(self.ranges)))
        self.sums = np.zeros(sums)
        if site_rows > len(self.site_lnl):
            self.site_lnl = np.zeros((site_rows, self.site_lnl.shape[1]))

    def parts_of(self, case: int) -> Iterator[int]:
        """Each part of a case, which is then the one at hand."""
        first, parts, *_ = self._cases[case]
        for self.part in range(first, first + parts):
            yield self.part

    def patterns(self, first_part: int, parts: int) -> slice:
        """The patterns of some parts."""
        ranges = self.ranges[first_part : first_part + parts]
        return slice(ranges[0].start, ranges[-1].stop) if ranges else slice(0)

    @property
    def range(self) -> slice:
        """The patterns of the part at hand."""
        return self.ranges[self.part]

    def model(self, model: int) -> ModelRow:
        """A case's model of the part at hand."""
        row = self._models[model + self.part]
        if self._tables is None:
            return row
        tables = [table[self.range] for table in self._tables]
        return ModelRow._make([*tables, row.rates, row.weights])

    def add_up(self, row: int, of_patterns: Float64) -> Float64:
        """The sum over the part's patterns f64[L, ...], under a row of weights."""
        total: Float64 = self.weights[row, self.range] @ of_patterns
        return total

    def operand(self, x: int) -> ScaledCla:
        """The CLA of a slot, or a tip's vectors."""
        if x >= 0:
            return self.cla[x, self.part]
        of_part = self._tips[~x][self.range]
        tip = np.repeat(of_part[:, None, :], self.categories, axis=1)
        return ScaledCla(tip, np.zeros(tip.shape[:2], dtype=np.int64))

    def across(self, x: ScaledCla, p: int) -> ScaledCla:
        """P[p] x."""
        return ScaledCla(np.einsum("lkij,lkj->lki", self.p[p + self.part], x.values), x.counts)

    def lnl_across(self, a: ScaledCla, b: ScaledCla, model: int) -> Float64:
        """f64[L]: lnL of every pattern at an edge, from both sides, one of them across it."""
        row = self.model(model)
        terms = np.einsum("k,lki,lki,lki->lk", row.weights, row.frequencies, a.values, b.values)
        (likelihood,), least = over_categories(terms[None], a.counts + b.counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            lnl: Float64 = np.log(likelihood) - least * LN_SCALE
        return lnl


def over_categories(
    terms: Float64, counts: npt.NDArray[np.int64] | int
) -> tuple[Float64, npt.NDArray[np.int64]]:
    """Sums f64[n, L] over the categories of f64[n, L, K], and the count that they are scaled by."""
    # A category that cannot be has no say in the scale: its count tells nothing of its size.
    counts = np.where(terms[0] != 0, counts, FAR_COUNT)
    least = counts.min(axis=1)
    scale = np.ldexp(1.0, -SCALE_BITS_DOUBLE * (counts - least[:, None]))
    return (terms * scale).sum(axis=2), least
