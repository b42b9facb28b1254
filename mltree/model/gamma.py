"""Discrete gamma categories (+G): one parameter, alpha.

Yang (1994, J. Mol. Evol. 39:306-314): site rates follow a gamma distribution of mean 1 and shape
alpha, cut into K classes of equal probability, each represented by its mean or by its median.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltree.errors import ModelError
from mltree.model.gamma_quantiles import LARGEST_SHAPE, quantiles
from mltree.model.portable import exp
from mltree.model.rates import Categories, Heterogeneity, Variable
from mltree.values import Value

__all__ = ["ALPHA_MAX", "ALPHA_MIN", "Gamma", "GammaMode", "categories_of", "gamma_rates"]

GammaMode = Literal["mean", "median"]

ALPHA_MIN = 0.02
"""Smallest shape, as in RAxML-NG: below it the lowest rates are zero in double precision."""
ALPHA_MAX = 1000.0
"""Largest shape that is searched, as in RAxML 8: the rates of 4 categories are then within 8 % of
one. At RAxML-NG's 100 data whose sites do not differ end up to 0.2 lnL lower."""


class Gamma(Value):
    """K equally probable categories whose rates follow a gamma distribution."""

    n_categories: int
    """K, at least 2."""
    alpha: float
    """The shape: the smaller, the less alike are the rates."""
    mode: GammaMode = "mean"
    """What stands for a category."""
    fixed: bool = False
    """Whether the user gave alpha, so that it is not estimated."""

    @property
    def categories(self) -> Categories:
        """The K categories."""
        (own,) = categories_of([self])
        return own

    @property
    def kind(self) -> Hashable:
        """Of as many categories, of one alpha where that is fixed."""
        return Gamma, self.n_categories, self.mode, self.alpha if self.fixed else None

    def variables(self) -> list[Variable]:
        """Log alpha."""
        low, high = math.log(ALPHA_MIN), math.log(ALPHA_MAX)
        return [] if self.fixed else [Variable("alpha", low, high, math.log(self.alpha))]

    def at(self, points: NDArray[np.float64]) -> Categories:
        """The categories [M, K] for every row of f64 [M, 1], or [M, 0] where alpha is fixed."""
        return self._of(np.full(len(points), self.alpha) if self.fixed else exp(points[:, 0]))

    def with_vector(self, x: NDArray[np.float64]) -> Gamma:
        """Another alpha."""
        return self if self.fixed else dataclasses.replace(self, alpha=math.exp(x[0]))

    def _of(self, alpha: NDArray[np.float64]) -> Categories:
        """Those of f64 [M]; most points of an optimiser differ in other variables than alpha."""
        unlike, which = np.unique(alpha, return_inverse=True)
        rates = gamma_rates(unlike, self.n_categories, self.mode)[which]
        return Categories(rates, np.full_like(rates, 1.0 / self.n_categories))


def categories_of(forms: Sequence[Heterogeneity]) -> list[Categories]:
    """The categories of every form, those of gamma distributions of a kind at once."""
    kinds: dict[tuple[int, GammaMode], list[Gamma]] = {}
    for form in dict.fromkeys(form for form in forms if isinstance(form, Gamma)):
        kinds.setdefault((form.n_categories, form.mode), []).append(form)
    found: dict[Gamma, Categories] = {}
    for (count, mode), alike in kinds.items():
        rates = gamma_rates([form.alpha for form in alike], count, mode)
        weights = np.full_like(rates, 1.0 / count)
        found |= zip(alike, map(Categories, rates, weights), strict=True)
    return [found[form] if isinstance(form, Gamma) else form.categories for form in forms]


def gamma_rates(alpha: ArrayLike, categories: int, mode: GammaMode = "mean") -> NDArray[np.float64]:
    """f64 [..., K]: relative rates of K equally probable gamma classes, ascending, of mean 1.

    One row for every shape in ``alpha``. With q(p) the p-quantile of Gamma(alpha, 1) and P the
    regularised lower incomplete gamma function (Yang 1994, eq. 10):

        mean    K · (P(alpha + 1, q((k + 1)/K)) - P(alpha + 1, q(k/K)))
        median  q((2k + 1)/2K), scaled to mean 1

    Rates too small for double precision come out as 0, which is right: such a class does not
    evolve. Beyond LARGEST_SHAPE they differ from 1 as 1/sqrt(alpha), to the sixth digit.

    Raises: ModelError where an alpha is not positive or categories is below 1.
    """
    shape = np.asarray(alpha, np.float64)[..., None]
    if not ((shape > 0.0) & np.isfinite(shape)).all():
        raise ModelError(f"gamma shape alpha must be positive, not {alpha!r}")
    if categories < 1:
        raise ModelError(f"gamma needs at least one rate category, not {categories}")
    if categories == 1:
        return np.ones_like(shape)
    near = np.minimum(shape, LARGEST_SHAPE)
    rates = _class_means(near, categories) if mode == "mean" else _medians(near, categories)
    scaled: NDArray[np.float64] = rates * (categories / rates.sum(axis=-1, keepdims=True))
    beyond = 1.0 + (scaled - 1.0) * np.sqrt(near / shape)
    return np.asarray(np.where(near < shape, beyond, scaled), np.float64)


def _class_means(shape: NDArray[np.float64], categories: int) -> NDArray[np.float64]:
    _, below = quantiles(shape, np.arange(1, categories) / categories)
    return np.diff(below, axis=-1, prepend=0.0, append=1.0)


def _medians(shape: NDArray[np.float64], categories: int) -> NDArray[np.float64]:
    middles: NDArray[np.float64] = (np.arange(categories) + 0.5) / categories
    ratios, _ = quantiles(shape, middles)
    return ratios
