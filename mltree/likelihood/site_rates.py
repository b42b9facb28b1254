"""The likelihood of patterns that have a rate each (+PSR), and the rates that suit them best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from mltree.arrays import Int64
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.classes import Columns
from mltree.likelihood.engine import Engine
from mltree.model.eigen import ModelArrays
from mltree.model.site_rates import GRID, FittedRates, SiteRates, fitted_rates
from mltree.tree.topology import Tree

__all__ = ["GroupingEngine", "PerSiteLikelihood"]


class GroupingEngine(Engine, Protocol):
    """An engine that holds patterns by their rates."""

    def group(self, category: Int64) -> None:
        """Take the rate i64[L] of every pattern; models and CLAs are gone then."""


class PerSiteLikelihood(Likelihood):
    """The likelihood of trees over patterns each of which has one of its model's rates."""

    def __init__(
        self,
        engine: GroupingEngine,
        length_bounds: tuple[float, float],
        columns: Columns,
        count: int,
    ) -> None:
        """``count``: rates of every part."""
        super().__init__(engine, length_bounds, columns)
        self._grouping, self._own, self._count = engine, columns, count
        self._category: Int64 = np.zeros(0, np.int64)

    def group(self, rates: Sequence[SiteRates]) -> None:
        """Let patterns have the rates of all parts that these say."""
        category = np.concatenate([form.category for form in rates])
        if not np.array_equal(category, self._category):
            self._grouping.group(category)
            self._category = category
            self._models, self._resident = [], None

    def site_rates(self, tree: Tree, case: Case) -> list[FittedRates]:
        """The rates that suit every part best, lengths as they are."""
        under = [
            case._replace(models=tuple(_at(own, rate) for own in case.models))
            for rate in GRID.tolist()
        ]
        lnls, weights = (
            self.site_rows([tree] * len(under), under),
            self._rows[case.weights].astype(np.float64),
        )
        return [
            fitted_rates(lnls[:, part], weights[part], GRID, self._count)
            for part in self._own.parts
        ]


def _at(arrays: ModelArrays, rate: float) -> ModelArrays:
    """A model all of whose sites have one rate."""
    return replace(arrays, rates=np.array([rate]), weights=np.ones(1))
