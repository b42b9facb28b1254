"""Quantiles of the gamma distribution, the same bits everywhere (:mod:`mltree.model.portable`).

With D(x) = x^a e^-x / Γ(a + 1), the regularised lower incomplete gamma functions of a and a + 1 are
(Abramowitz and Stegun 6.5.29)

    P(a, x)     = D(x) (1 + S(x)),    S(x) = x/(a+1) + x²/((a+1)(a+2)) + ...
    P(a + 1, x) = D(x) S(x)

so that at the p-quantile, where P(a, x) = p, the second is p S/(1 + S): one series of positive
terms gives both. P(a, x) <= x^a / Γ(a + 1), log P is concave in log x, and so Newton's steps from
where that bound is p rise to the quantile and never pass it; Halley's are half as many.

SciPy has the same, but takes longer to import than a small alignment to evaluate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mltree.arrays import Float64
from mltree.model.portable import exp, log

__all__ = ["LARGEST_SHAPE", "quantiles"]


LARGEST_SHAPE = 1e6
"""Up to which there are quantiles: S takes some 8 sqrt(a) terms."""

NEGLIGIBLE = 2.0**-54
"""A term this small beside the sum of those before it changes no bit."""

CLOSE = 1e-6
"""A step in log x whose cube, the size of Halley's next one, is less than a rounding."""

LEAST_DIVISOR = 0.5
"""Of Newton's step in Halley's, which far from the quantile would go anywhere."""

TERMS = 32
"""That are taken at once: as many as the shapes of most data need."""

STIRLING_FROM = 10.0
"""Shape from which Stirling's series is exact to a rounding."""

STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
"""Of 1/a, 1/a³, ... in log Γ(a) (Abramowitz and Stegun 6.1.41)."""


def quantiles(shape: Float64, p: Float64) -> tuple[Float64, Float64]:
    """f64 [...] each: x/a and P(a + 1, x) at the p-quantile x of Gamma(a, 1).

    ``shape``, a, from 1e-300 to LARGEST_SHAPE, and ``p``, in (0, 1), broadcast.
    """
    size = np.broadcast_shapes(shape.shape, p.shape)
    a, p = (np.broadcast_to(x, size).ravel() for x in (shape, p))
    log_p, excess = log(p), _each(_excess, a)
    v = (log_p + excess) / a - 1.0
    left = np.arange(a.size)
    while left.size:
        step = _step(a[left], v[left], (log_p + excess)[left])
        v[left] += step
        left = left[np.abs(step) > CLOSE]
    ratio = exp(v)
    series = _series(a, a * ratio)
    return ratio.reshape(size), (p * (series / (1.0 + series))).reshape(size)


def _step(a: Float64, v: Float64, wanted: Float64) -> Float64:
    """Halley's step in v = log(x/a) to where log P(a, x) + excess(a) is what is wanted.

    log P = a (v - (e^v - 1)) - excess(a) + log(1 + S), in which nothing large cancels, has the
    derivatives f' = a / (1 + S) and f'' = -f' (f' + a (e^v - 1)).
    """
    total = 1.0 + _series(a, a * exp(v))
    rise = a * _each(math.expm1, v)
    newton = (wanted - (a * v - rise) - log(total)) * total / a
    return newton / np.maximum(1.0 - newton * (a / total + rise) / 2.0, LEAST_DIVISOR)


def _series(a: Float64, x: Float64) -> Float64:
    """f64 [n]: S(x); none depends on how many terms another needs."""
    divisors = a[:, None] + np.arange(1.0, TERMS + 1.0)
    total, last = np.zeros_like(x), np.ones_like(x)
    while (last > NEGLIGIBLE * total).any():
        terms = x[:, None] / divisors
        terms[:, 0] *= last
        np.multiply.accumulate(terms, axis=1, out=terms)
        last = terms[:, -1].copy()
        terms[:, 0] += total
        total = np.add.accumulate(terms, axis=1)[:, -1]
        divisors += TERMS
    return total


def _excess(a: float) -> float:
    """What log Γ(a + 1) - a log a + a is: Stirling's formula, or what it is short of."""
    if a < STIRLING_FROM:
        return math.lgamma(a + 1.0) - a * math.log(a) + a
    terms = (c / a ** (2 * n + 1) for n, c in enumerate(STIRLING))
    return 0.5 * math.log(2.0 * math.pi * a) + sum(terms)


def _each(function: Callable[[float], float], x: Float64) -> Float64:
    """A function of Python's elementwise, of an array small enough for that."""
    return np.array(list(map(function, x.ravel().tolist()))).reshape(x.shape)
