"""Rate heterogeneity among sites: discrete gamma categories and invariable sites.

Yang (1994, J. Mol. Evol. 39:306-314): site rates follow a gamma distribution of mean 1 and shape
alpha, cut into K classes of equal probability, each represented by its mean or by its median.
scipy is imported when first needed, since it costs more than the whole of `mltree --help`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

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


def gamma_rates(alpha: float, categories: int, mode: GammaMode = "mean") -> NDArray[np.float64]:
    """f64 [K]: relative rates of K equally probable gamma classes, ascending, of mean 1.

    With q(p) the p-quantile of Gamma(alpha, 1) and P the regularised lower incomplete gamma
    function (Yang 1994, eq. 10):

        mean    K · (P(alpha + 1, q((k + 1)/K)) - P(alpha + 1, q(k/K)))
        median  q((2k + 1)/2K), scaled to mean 1

    Rates too small for double precision come out as 0, which is right: such a class does not
    evolve.

    Raises: ModelError where alpha is not positive or categories is below 1.
    """
    if not alpha > 0.0 or not np.isfinite(alpha):
        raise ModelError(f"gamma shape alpha must be positive, not {alpha}")
    if categories < 1:
        raise ModelError(f"gamma needs at least one rate category, not {categories}")
    if categories == 1:
        return np.ones(1)
    rates = _class_means(alpha, categories) if mode == "mean" else _medians(alpha, categories)
    scaled: NDArray[np.float64] = rates * (categories / rates.sum())
    return scaled


def _class_means(alpha: float, categories: int) -> NDArray[np.float64]:
    from scipy.special import gammainc, gammaincinv

    cuts = gammaincinv(alpha, np.arange(1, categories) / categories)
    below = np.concatenate([[0.0], gammainc(alpha + 1.0, cuts), [1.0]])
    return np.diff(below)


def _medians(alpha: float, categories: int) -> NDArray[np.float64]:
    from scipy.special import gammaincinv

    middles = (2.0 * np.arange(categories) + 1.0) / (2.0 * categories)
    return np.asarray(gammaincinv(alpha, middles), np.float64)


def rate_categories(
    categories: int, alpha: float | None, mode: GammaMode, p_invariant: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rates f64 [K] and weights f64 [K]; the weights sum to 1 and the weighted mean rate is 1.

    +I is the last category: rate 0, weight p. The others share 1 - p equally and are sped up by
    1/(1 - p), so that a branch length stays the expected number of substitutions per site.
    """
    rates = np.ones(1) if alpha is None else gamma_rates(alpha, categories, mode)
    weights = np.full(len(rates), 1.0 / len(rates))
    if p_invariant is None:
        return rates, weights
    if not 0.0 <= p_invariant < 1.0:
        raise ModelError(f"the proportion of invariable sites must be in [0, 1), not {p_invariant}")
    variable = 1.0 - p_invariant
    return (
        np.concatenate([rates / variable, [0.0]]),
        np.concatenate([weights * variable, [p_invariant]]),
    )
