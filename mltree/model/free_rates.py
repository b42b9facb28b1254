"""Free rates (+R): categories whose rates and weights are all estimated.

Yang (1995, Genetics 139:993-1005); Soubrier et al. (2012, Mol. Biol. Evol. 29:3345-3358), who show
that a few such categories fit better than a gamma distribution. K categories have 2K - 2 free
parameters, since weights sum to 1 and the mean rate is 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

import numpy as np

from mltree.arrays import Float64
from mltree.errors import ModelError
from mltree.model.gamma import gamma_rates
from mltree.model.portable import exp
from mltree.model.rates import Categories, Variable
from mltree.values import Value

__all__ = ["FreeRates"]


RATE_RATIO_MIN = 1e-6
"""Smallest rate relative to the last. IQ-TREE and RAxML-NG stop at rates of 1e-3; but a constant
site costs a category about its rate times the tree's length, which is lnL where such sites are
thousands and the tree is long."""
RATE_RATIO_MAX = 1e3
"""Largest rate relative to the last, as in RAxML-NG."""
WEIGHT_RATIO_MAX = 1e4
"""Largest ratio of a weight to the last one, either way: IQ-TREE's least weight is 1e-4."""

_TINIEST = np.finfo(np.float64).tiny


class FreeRates(Value, eq=False):
    """K categories of any rates and weights; `of` and `from_gamma` make them."""

    rates: Float64
    """f64 [K]: relative rates, weighted mean 1."""
    weights: Float64
    """f64 [K]: proportions of sites, sum 1."""
    fixed: bool = False
    """Whether the user gave the values, so that they are not estimated."""

    @classmethod
    def of(
        cls, rates: Float64, weights: Float64, *, fixed: bool = False, in_order: bool = False
    ) -> FreeRates:
        """The categories in proportion to some values, in ascending order of their rates.

        ``in_order``: they stay in the order in which they are given.

        Raises: ModelError where a value is negative, or all are zero that count.
        """
        if (rates < 0.0).any() or (weights < 0.0).any():
            raise ModelError("rates of categories and their weights must not be negative")
        if not (rates * weights).sum() > 0.0:
            raise ModelError("the rates of all categories that have a weight are zero")
        form = cls(*_normalised(rates, weights), fixed)
        return form if in_order else cls(*form.ascending(), fixed)

    @classmethod
    def from_gamma(cls, categories: int, alpha: float) -> FreeRates:
        """As many of equal weights, with the rates of gamma categories: a start of an estimate."""
        return cls.of(gamma_rates(alpha, categories), np.ones(categories))

    @classmethod
    def with_few_fast(cls, categories: int, span: float) -> FreeRates:
        """As many, whose rates rise by equal factors to ``span`` and whose weights fall as much."""
        speeds = exp(np.linspace(0.0, math.log(span), categories))
        return cls.of(speeds, 1.0 / speeds)

    @property
    def categories(self) -> Categories:
        """The K categories."""
        return Categories(self.rates, self.weights)

    def ascending(self) -> Categories:
        """The K categories in ascending order of their rates."""
        order = np.argsort(self.rates, kind="stable")
        return Categories(self.rates[order], self.weights[order])

    @property
    def kind(self) -> Hashable:
        """Of as many categories, and these where they are fixed."""
        fixed = (self.rates.tobytes(), self.weights.tobytes()) if self.fixed else None
        return FreeRates, len(self.rates), fixed

    def variables(self) -> list[Variable]:
        """Logs of the ratios of rates, and then of weights, to those of the last category."""
        if self.fixed:
            return []
        rates = _log_ratios(self.rates), math.log(RATE_RATIO_MIN), math.log(RATE_RATIO_MAX)
        weights = _log_ratios(self.weights), -math.log(WEIGHT_RATIO_MAX), math.log(WEIGHT_RATIO_MAX)
        return [
            Variable(f"{name} of category {k}", low, high, value)
            for name, (values, low, high) in (("rate", rates), ("weight", weights))
            for k, value in enumerate(values, 1)
        ]

    def at(self, points: Float64) -> Categories:
        """The categories [M, K] for every row of f64 [M, 2K - 2], or [M, 0] where all is fixed."""
        many, k = len(points), len(self.rates)
        if self.fixed:
            return Categories(np.tile(self.rates, (many, 1)), np.tile(self.weights, (many, 1)))
        ratios, ones = exp(points), np.ones((many, 1))
        rates = np.concatenate([ratios[:, : k - 1], ones], axis=1)
        return _normalised(rates, np.concatenate([ratios[:, k - 1 :], ones], axis=1))

    def with_vector(self, x: Float64) -> FreeRates:
        """Other rates and weights, in whatever order they come."""
        if self.fixed:
            return self
        rates, weights = self.at(x[None])
        return dataclasses.replace(self, rates=rates[0], weights=weights[0])


def _normalised(rates: Float64, weights: Float64) -> Categories:
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return Categories(rates / (weights * rates).sum(axis=-1, keepdims=True), weights)


def _log_ratios(values: Float64) -> list[float]:
    """Of all but the last to the last."""
    return [math.log(max(v, _TINIEST) / max(values[-1], _TINIEST)) for v in values[:-1].tolist()]
