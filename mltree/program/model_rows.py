"""Models as the flat rows that engines read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mltree.data.site_frequencies import SiteSystems
from mltree.models.eigen import ModelArrays, Series, rate_matrix, series_of
from mltree.models.portable import product
from mltree.program import contract
from mltree.system.arrays import Float64, Int32
from mltree.system.values import Value


class ModelRow(NamedTuple):
    """The numbers of a row, category by category: K categories, S states.

    The tables of eigen systems may have an axis of patterns, or of one for all, in front.
    """

    eigenvalues: Float64
    """f64[K, S]"""
    right: Float64
    """f64[K, S, S], as all the squares"""
    left: Float64
    generator: Float64
    """Q"""
    generator_2: Float64
    """Q Q"""
    frequencies: Float64
    """f64[K, S]"""
    rates: Float64
    """f64[K]"""
    weights: Float64
    """f64[K]"""

    def of_patterns(self, tables: Sequence[Float64] | None) -> ModelRow:
        """With other tables, of patterns (`tables_of`), or with its own for all of them."""
        *squares, rates, weights = self
        return ModelRow._make([*(tables or [table[None] for table in squares]), rates, weights])


def tables_of(systems: SiteSystems) -> tuple[Float64, ...]:
    """The tables of a `ModelRow` of patterns with their own eigen systems.

    f64[L, 1, S] and f64[L, 1, S, S]: those of a pattern are the same in all categories.
    """
    states = len(systems.exchangeabilities)
    rates = systems.exchangeabilities[np.triu_indices(states, 1)]
    each = np.broadcast_to(rates, (len(systems.roots), len(rates)))
    generator = rate_matrix(each, systems.frequencies)
    squares = systems.right, systems.left, generator
    tables = systems.eigenvalues, *squares, product(generator, generator), systems.roots**2
    return tuple(table[:, None] for table in tables)


class RowLayout(Value):
    """Offsets in a model row of S states, K categories and M eigen systems."""

    states: int
    categories: int
    systems: int = 1

    @property
    def words(self) -> int:
        """Numbers in a row."""
        return self.systems * self._system + 2 * self.categories

    @property
    def _system(self) -> int:
        """Numbers of an eigen system."""
        return 2 * self.states + contract.MODEL_SQUARES * self.states**2

    def unpack(self, rows: Float64) -> list[ModelRow]:
        """Rows f64[n, words], each category by category."""
        s, k = self.states, self.categories
        sizes = [s, *[s * s] * contract.MODEL_SQUARES, s]
        shapes = [(s,), *[(s, s)] * contract.MODEL_SQUARES, (s,)]
        count, words = rows.shape
        systems, rates, weights = np.split(rows, [words - 2 * k, words - k], axis=1)
        of_system = systems.reshape(count, self.systems, -1)
        of_category = of_system.repeat(k // self.systems, axis=1)
        parts = np.split(of_category, np.cumsum(sizes)[:-1], axis=2)
        tables = [part.reshape(count, k, *shape) for part, shape in zip(parts, shapes, strict=True)]
        return [ModelRow._make(row) for row in zip(*tables, rates, weights, strict=True)]


def model_rows(models: Sequence[ModelArrays]) -> Float64:
    """f64[n, words], a row per model (see ``opencl/session.h``)."""
    eigenvalues, right, left, frequencies, generator, _, rates, weights = _stacked(models)
    squares = (right, left, generator, product(generator, generator))
    count, systems = len(models), models[0].n_systems
    flat = [part.reshape(count, systems, -1) for part in (eigenvalues, *squares, frequencies)]
    tables = np.concatenate(flat, axis=2).reshape(count, -1)
    return np.concatenate([tables, rates, weights], axis=1)


def series_rows(models: Sequence[ModelArrays]) -> tuple[Float64, Int32]:
    """The series of all rate matrices f64[n], and where those of each model begin i32[n, M].

    See ``opencl/series.h``; NO_SERIES where the eigen system gives every entry of P.
    """
    direct = np.array([model.direct for model in models]).reshape(len(models), -1)
    places = np.full(direct.shape, contract.NO_SERIES, np.int32)
    starts: dict[Series, int] = {}
    size = 0
    for row, system in zip(*np.nonzero(direct == 0.0), strict=True):
        series = series_of(*models[row].system(system))
        if series not in starts:
            starts[series] = size
            size += series.words.size
        places[row, system] = starts[series]
    return np.concatenate([np.zeros(0), *(series.words for series in starts)]), places


def _stacked(models: Sequence[ModelArrays]) -> list[Float64]:
    """The arrays of models, with an axis of models in front."""
    return [
        np.concatenate([np.atleast_1d(table) for table in tables]).reshape(
            len(models), *tables[0].shape
        )  # stack takes three times it
        for tables in zip(*(vars(model).values() for model in models), strict=True)
    ]
