"""Numerics that give the same bits whatever NumPy's kernels are: no LAPACK, no BLAS, no SIMD exp.

BLAS libraries pick their kernels by the processor, or as ``OPENBLAS_CORETYPE`` says, and each adds
in an order of its own; NumPy picks its own for exp and log. Here every number comes from
elementwise operations that IEEE 754 rounds in one way only, or from the C library, one number at a
time; and none depends on what stands beside it in a stack of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from mltree.system.arrays import Bool, Float64, Index, Int32

Pairs = tuple[Index, Index]

NEGLIGIBLE = 2.0**-53
"""An element this small beside the largest of its matrix moves no eigenvalue by a rounding."""

MAX_SWEEPS = 30
"""Jacobi's method converges quadratically: 4 to 6 sweeps for 4 states, 8 to 10 for 61."""

_LN2 = math.log(2.0)
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
"""Their sum is ln 2 to 85 bits; whole multiples of the first, below 2^20, are exact."""

_FARTHEST = 746.0
"""Largest exponent: e^x overflows above it, and is 0 below its negative, in doubles."""

FACTORIALS = [1.0 / math.factorial(n) for n in range(14)]
"""Coefficients of Taylor's series, to 2^-57 where |r| is at most ln 2 / 2."""

LOG_TERMS = [2.0 / n for n in range(3, 24, 2)]
"""Coefficients of the series of 2 artanh, to 2^-60 where m is within a root of 2 of 1."""


Formula = Callable[..., tuple[Float64, ...]]
"""A function of arrays, whose bits depend on them alone."""

on_device: Callable[..., tuple[Float64, ...]] | None = None
"""A device's way to compute a `Formula` (:mod:`mltree.device.models`), once one is open."""


def computed(formula: Formula, *arrays: Float64) -> tuple[Float64, ...]:
    """A formula of arrays, by a device where there is one: the bits are the same."""
    return formula(*arrays) if on_device is None else on_device(formula, *arrays)


def elementwise(function: Callable[[float], float], x: Float64) -> Float64:
    """A function of Python's elementwise; for small arrays."""
    return np.array(list(map(function, x.ravel().tolist()))).reshape(x.shape)


def exp(x: Float64) -> Float64:
    """e^x elementwise, by Python's math module; for small arrays."""
    return elementwise(math.exp, x)


def log(x: Float64) -> Float64:
    """Natural logarithm elementwise, by Python's math module; for small arrays."""
    return elementwise(math.log, x)


def exp_of_many(x: Float64) -> Float64:
    """e^x elementwise, to 2 units in the last place."""
    rest, doublings = _exponential(x)
    rest += FACTORIALS[0]
    return np.ldexp(rest, doublings)


def expm1_of_many(x: Float64) -> Float64:
    """e^x - 1 elementwise, to 2 units in the last place."""
    rest, doublings = _exponential(x)
    change: Float64 = np.ldexp(rest, doublings) + (np.ldexp(1.0, doublings) - 1.0)
    return change


def _exponential(x: Float64) -> tuple[Float64, Int32]:
    """Return e^r - 1 by Taylor's series, and k: x = k ln 2 + r."""
    rest = np.clip(x, -_FARTHEST, _FARTHEST)
    doublings = np.divide(rest, _LN2)
    np.rint(doublings, out=doublings)
    part = doublings * _LN2_HIGH
    rest -= part
    rest -= np.multiply(doublings, _LN2_LOW, out=part)
    total = rest * FACTORIALS[-1]
    for share in reversed(FACTORIALS[1:-1]):
        total += share
        total *= rest
    return total, doublings.astype(np.int32)


def log_of_many(x: Float64) -> Float64:
    """The natural logarithm elementwise, to 2 units in the last place; -inf of 0.

    x = m 2^k with m about 1, and the series of ln m = 2 artanh((m - 1) / (m + 1)).
    """
    share, doublings = np.frexp(np.where(x > 0, x, 1.0))
    is_low = share < math.sqrt(0.5)
    share = np.where(is_low, 2.0 * share, share)
    doublings = doublings - is_low
    ratio = (share - 1.0) / (share + 1.0)
    square = ratio * ratio
    series = np.full_like(ratio, LOG_TERMS[-1])
    for odd in reversed(LOG_TERMS[:-1]):
        series *= square
        series += odd
    near = ratio * square * series + (2.0 * ratio + doublings * _LN2_LOW)
    return np.where(x > 0, doublings * _LN2_HIGH + near, np.where(x == 0, -np.inf, np.nan))


def product(a: Float64, b: Float64) -> Float64:
    """f64 [..., I, K]: the matrix products of f64 [..., I, J] and f64 [..., J, K]."""
    total = a[..., :, :1] * b[..., :1, :]
    for j in range(1, a.shape[-1]):
        total += a[..., :, j, None] * b[..., j, None, :]
    return total


def eigensystem(a: Float64) -> tuple[Float64, Float64]:
    """Eigenvalues f64 [..., S], ascending, and orthonormal columns f64 [..., S, S] of symmetric a.

    Jacobi's method (Golub & Van Loan, Matrix Computations, 4th ed., 8.5) with all rotations of a
    round at once: a tournament in which every index meets every other one in S - 1 rounds.
    """
    states = a.shape[-1]
    flat = a.reshape(math.prod(a.shape[:-2]), states, states)
    values, vectors = computed(jacobi, flat)
    return values.reshape(a.shape[:-1]), vectors.reshape(a.shape)


def jacobi(flat: Float64) -> tuple[Float64, Float64]:
    """Eigenvalues f64[n, S] and vectors f64[n, S, S] of f64[n, S, S]."""
    states = flat.shape[-1]
    # Matrices lie along the last axis, so that many small ones fill the processor's lanes.
    rotated = np.moveaxis(flat, 0, -1).copy()
    vectors = np.broadcast_to(np.eye(states)[..., None], rotated.shape).copy()
    negligible = NEGLIGIBLE * np.abs(rotated).max(axis=(0, 1), initial=0.0)
    for _ in range(MAX_SWEEPS):
        turned = [_rotate(rotated, vectors, pairs, negligible) for pairs in _rounds(states)]
        if not any(turned):
            break
    values = rotated[np.arange(states), np.arange(states)].T
    order = np.argsort(values, axis=-1, kind="stable")
    values = np.take_along_axis(values, order, -1)
    return values, np.take_along_axis(np.moveaxis(vectors, -1, 0), order[:, None, :], -1)


def _rotate(a: Float64, vectors: Float64, pairs: Pairs, negligible: Float64) -> bool:
    """Rotate planes of disjoint pairs so that a[p, q] = 0; False where nothing was to do."""
    p, q = pairs
    off = a[p, q]
    is_turned = np.abs(off) > negligible
    if not is_turned.any():
        return False
    # tan of the smaller of the two angles: t^2 + 2 t cot(2 phi) = 1
    cot = (a[q, q] - a[p, p]) / np.where(is_turned, 2.0 * off, 1.0) + 0.0  # no zero below 0
    tan = np.copysign(1.0, cot) / (np.abs(cot) + np.sqrt(cot * cot + 1.0))
    tan = np.where(is_turned, tan, 0.0)
    cos = 1.0 / np.sqrt(tan * tan + 1.0)
    sin = tan * cos
    for matrix in (a.swapaxes(0, 1), a, vectors.swapaxes(0, 1)):
        one, other = matrix[p], matrix[q]
        matrix[p] = cos[:, None] * one - sin[:, None] * other
        matrix[q] = sin[:, None] * one + cos[:, None] * other
    a[p, q] = a[q, p] = np.where(is_turned, 0.0, off)
    return True


@cache
def _rounds(states: int) -> list[Pairs]:
    """Rounds of disjoint pairs in which every two indices meet once: one stays, the rest go round.

    Where their number is odd, one rests in every round.
    """
    players = list(range(states + states % 2))
    rounds = []
    for _ in players[1:]:
        met = [(a, b) for a, b in zip(players, reversed(players), strict=True) if a != b]
        halves = met[: len(players) // 2]
        pairs = sorted((min(pair), max(pair)) for pair in halves if max(pair) < states)
        p, q = np.array(pairs, np.intp).reshape(-1, 2).T
        rounds.append((p, q))
        players.insert(1, players.pop())
    return rounds


def is_definite(a: Float64) -> Bool:
    """True where symmetric f64 [..., n, n] are positive definite, roundings aside, bool [...].

    All pivots are then above what is negligible beside the largest element.
    """
    rest = a.copy()
    least = NEGLIGIBLE * np.abs(a).max(axis=(-2, -1), initial=0.0)
    is_positive = np.ones(a.shape[:-2], dtype=bool)
    for k in range(a.shape[-1]):
        pivot = rest[..., k, k]
        is_positive &= pivot > least
        rest[~is_positive] = 0.0
        column = rest[..., k + 1 :, k] / np.where(is_positive, pivot, 1.0)[..., None]
        rest[..., k + 1 :, k + 1 :] -= column[..., :, None] * rest[..., k, None, k + 1 :]
    return is_positive


def solve(a: Float64, b: Float64) -> Float64:
    """f64 [..., n]: x with a x = b, a symmetric positive definite f64 [..., n, n], by Cholesky."""
    rest, x = a.copy(), b.copy()
    n = x.shape[-1]
    for k in range(n):  # rest = L D L^T, column by column, and x = L^-1 b beside it
        column = rest[..., k + 1 :, k] / rest[..., k, k, None]
        rest[..., k + 1 :, k + 1 :] -= column[..., :, None] * rest[..., k, None, k + 1 :]
        x[..., k + 1 :] -= column * x[..., k, None]
    for k in reversed(range(n)):
        x[..., k] /= rest[..., k, k]
        x[..., :k] -= rest[..., :k, k] * x[..., k, None]
    return x
