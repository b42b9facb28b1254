"""Rate heterogeneity among sites: discrete gamma categories and invariable sites.

Yang (1994, J. Mol. Evol. 39:306-314): site rates follow a gamma distribution of mean 1 and shape
alpha, cut into K classes of equal probability, each represented by its mean or by its median.
scipy is imported when first needed, since it costs more than the whole of `mltree --help`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltree.errors import ModelError

__all__ = [
    "ALPHA_MAX",
    "ALPHA_MIN",
    "P_INVARIANT_MAX",
    "GammaMode",
    "gamma_rates",
    "rate_categories",
]

GammaMode = Literal["mean", "median"]

ALPHA_MIN = 0.02
"""Smallest shape, as in RAxML-NG: below it the lowest rates are zero in double precision."""
ALPHA_MAX = 100.0
"""Largest shape that is searched, as in RAxML-NG: rates are then equal within a few per cent."""
P_INVARIANT_MAX = 0.99
"""Largest proportion of invariable sites that is searched."""


def gamma_rates(alpha: ArrayLike, categories: int, mode: GammaMode = "mean") -> NDArray[np.float64]:
    """f64 [..., K]: relative rates of K equally probable gamma classes, ascending, of mean 1.

    One row for every shape in ``alpha``. With q(p) the p-quantile of Gamma(alpha, 1) and P the
    regularised lower incomplete gamma function (Yang 1994, eq. 10):

        mean    K · (P(alpha + 1, q((k + 1)/K)) - P(alpha + 1, q(k/K)))
        median  q((2k + 1)/2K), scaled to mean 1

    Rates too small for double precision come out as 0, which is right: such a class does not
    evolve.

    Raises: ModelError where an alpha is not positive or categories is below 1.
    """
    shape = np.asarray(alpha, np.float64)[..., None]
    if not ((shape > 0.0) & np.isfinite(shape)).all():
        raise ModelError(f"gamma shape alpha must be positive, not {alpha!r}")
    if categories < 1:
        raise ModelError(f"gamma needs at least one rate category, not {categories}")
    if categories == 1:
        return np.ones_like(shape)
    rates = _class_means(shape, categories) if mode == "mean" else _medians(shape, categories)
    scaled: NDArray[np.float64] = rates * (categories / rates.sum(axis=-1, keepdims=True))
    return scaled


def _class_means(shape: NDArray[np.float64], categories: int) -> NDArray[np.float64]:
    from scipy.special import gammainc, gammaincinv

    cuts = gammaincinv(shape, np.arange(1, categories) / categories)
    below = gammainc(shape + 1.0, cuts)
    return np.diff(below, axis=-1, prepend=0.0, append=1.0)


def _medians(shape: NDArray[np.float64], categories: int) -> NDArray[np.float64]:
    from scipy.special import gammaincinv

    middles = (2.0 * np.arange(categories) + 1.0) / (2.0 * categories)
    return np.asarray(gammaincinv(shape, middles), np.float64)


def rate_categories(
    categories: int, alpha: ArrayLike | None, mode: GammaMode, p_invariant: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rates f64 [..., K] and weights f64 [..., K]; weights sum to 1, their mean rate is 1.

    ``alpha`` and ``p_invariant`` are numbers, or arrays of one shape for many models. +I is the
    last category: rate 0, weight p. The others share 1 - p equally and are sped up by 1/(1 - p),
    so that a branch length stays the expected number of substitutions per site.
    """
    rates = np.ones(1) if alpha is None else gamma_rates(alpha, categories, mode)
    weights = np.full_like(rates, 1.0 / rates.shape[-1])
    if p_invariant is None:
        return rates, weights
    p = np.asarray(p_invariant, np.float64)[..., None]
    if not ((p >= 0.0) & (p < 1.0)).all():
        raise ModelError(
            f"the proportion of invariable sites must be in [0, 1), not {p_invariant!r}"
        )
    variable = 1.0 - p
    return (
        np.concatenate([rates / variable, np.zeros_like(p)], axis=-1),
        np.concatenate([weights * variable, p], axis=-1),
    )
