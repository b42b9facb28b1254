"""Series of a rate matrix, which give every entry of P(t) all its digits (uniformisation).

An entry that takes n changes is of the order of t^n: far below the rounding of the eigen system's
sums where branches are short. With q = max |Q_ii| and R = I + Q / q, none of whose entries is
negative,

    P(t) = sum_n e^(-q t) (q t)^n / n! R^n

adds up terms of one sign, so that no digit is lost (Jensen 1953; relative errors of entries: Xue &
Ye, Math. Comp. 82, 2013). Times above `TERM_REACH` / q are a rest, for which the sum is short, and
whole powers of two of that reach: P(t + u) = P(t) P(u), again without a difference. A series ends
where the eigen system is as good.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64
from mltree.contract import MOST_TERMS, SERIES_OCTAVES
from mltree.model.portable import expm1, product

__all__ = ["DIRECT", "Series", "is_direct", "series_of"]


DIRECT = 4e-11
"""Relative error of an entry of P up to which the eigen system is used: LG's worst entry, at any
time from 1e-9 to 100, is 6e-12 off (200 decimal digits)."""

TERM_REACH = 2.0
"""q t up to which the terms are summed."""

OMITTED = 1e-12
"""Share of an entry that omitted terms may have."""

QUIET = 4
"""Terms in a row that add nothing before a series ends."""

MOST_DOUBLINGS = 32
"""Doublings of the reach at most: q t up to 8e9."""

MOST_KNOWN = 16
"""Series that are remembered: of 61 states each has about 1 MB."""

ROWS_COMPARED = 4
"""Rows of P, those with the smallest entries, in which the eigen system is compared."""

_ROUNDINGS = 4 * 2.0**-53
"""Relative error of a sum over the eigen system, by its terms' size."""


def is_direct(
    eigenvalues: Float64, right: Float64, left: Float64, frequencies: Float64, generator: Float64
) -> NDArray[np.bool_]:
    """Bool [...]: whether the eigen system gives every entry of P(t), however short or long t is.

    For t -> 0 an entry is Q_ij t, for t -> infinity pi_j; and what the eigen system makes of them
    sum_m V_im lambda_m V^-1_mj t and I - sum_(m < S) V_im V^-1_mj, with the roundings of as large
    terms.
    """
    states = generator.shape[-1]
    off = ~np.eye(states, dtype=bool)
    is_kept = np.asarray((generator[..., off] > 0.0).all(axis=-1))
    if not is_kept.any():
        return is_kept
    short = _error(right * eigenvalues[..., None, :], left, generator) <= DIRECT * generator
    stationary = frequencies[..., None, :]
    moving = right[..., :-1], left[..., :-1, :]
    long = _error(*moving, np.eye(states) - stationary) <= DIRECT * stationary
    return np.asarray(is_kept & (short | ~off).all((-2, -1)) & long.all((-2, -1)))


def _error(a: Float64, b: Float64, exact: Float64) -> Float64:
    """f64 [..., S, S]: how far a b may be from what it should be, its roundings included."""
    size: Float64 = product(np.abs(a), np.abs(b))
    error: Float64 = np.abs(product(a, b) - exact) + _ROUNDINGS * size
    return error


class Series:
    """The series of one rate matrix f64 [S, S], beside its eigen system; see `is_direct`."""

    def __init__(
        self,
        eigenvalues: Float64,
        right: Float64,
        left: Float64,
        frequencies: Float64,
        generator: Float64,
    ) -> None:
        states = len(generator)
        self.rate = float(-generator.diagonal().min())
        """q."""
        self.reach = TERM_REACH / self.rate
        """Longest time of which the terms are summed."""
        powers = _powers(generator / self.rate)
        self.counts = _counts(powers)
        """Terms for q t up to `TERM_REACH`, up to half of it, a quarter of it ..."""
        doublings: list[Float64] = []
        p, self.until = _sum(powers, TERM_REACH, len(powers)), self.reach
        is_stationary = _is_alike(right[:, :-1], left[:-1], frequencies)
        while len(doublings) < MOST_DOUBLINGS:
            change = right * expm1(eigenvalues * self.until)
            if is_stationary and _is_alike(change, left, p):
                break
            doublings.append(p)
            p, self.until = product(p, p), 2.0 * self.until
            p /= p.sum(axis=1, keepdims=True)  # else the rows' roundings double too
        head = [self.rate, self.reach, self.until, self.counts[0], *self.counts]
        tables = [*powers[: self.counts[0]], *doublings]
        self.words = np.concatenate([head, *(table.ravel() for table in tables)])
        """f64 [n]: how an engine keeps it (``opencl/series.h``)."""
        both = self.words[len(head) :].reshape(-1, states, states)
        self.powers, self.doublings = both[: self.counts[0]], both[self.counts[0] :]
        """f64 [N, S, S]: R, R^2, ...; f64 [D, S, S]: P of the reach, of twice, of four times the
        reach ... until the eigen system is as good."""

    def p_matrix(self, time: float) -> Float64 | None:
        """f64 [S, S]: P(t), or None where the eigen system gives it."""
        if time >= self.until:
            return None
        whole = math.floor(time / self.reach)
        theta = self.rate * (time - whole * self.reach)
        octave = sum(theta <= TERM_REACH * 0.5**n for n in range(1, SERIES_OCTAVES))
        p = _sum(self.powers, theta, self.counts[octave])
        for n, doubled in enumerate(self.doublings):
            if whole >> n & 1:
                p = product(p, doubled)
        return p


def _is_alike(right: Float64, left: Float64, p: Float64) -> bool:
    """Compare I plus a product, or I less it, with P entry by entry, in the rows of its least ones.

    right, left  f64 [S, m] and f64 [m, S]
    p            f64 [S, S], I plus the product; or f64 [S], the row of I less the product
    """
    rows = np.argsort(p.min(axis=-1) if p.ndim > 1 else p, kind="stable")[:ROWS_COMPARED]
    one = np.eye(len(right))[rows]
    exact = p[rows] - one if p.ndim > 1 else one - p
    error = _error(right[rows], left, exact) + _ROUNDINGS * one
    return bool((error <= DIRECT * (p[rows] if p.ndim > 1 else p)).all())


def _powers(step: Float64) -> Float64:
    """f64 [N, S, S]: powers of R = I + `step` until the next ones add nothing at the reach."""
    states = len(step)
    lazy = np.maximum(step + np.eye(states), 0.0)
    # Most entries of a codon's R are 0: a row adds up those rows of a power that it reaches.
    most = int((lazy > 0.0).sum(axis=1).max())
    reached = np.argsort(lazy == 0.0, axis=1, kind="stable")[:, :most]
    shares = np.take_along_axis(lazy, reached, 1)
    powers = [lazy]
    weight = math.exp(-TERM_REACH) * TERM_REACH
    total = weight * lazy
    quiet = 0
    while quiet < QUIET and len(powers) < MOST_TERMS:
        before, power = powers[-1], np.zeros_like(lazy)
        for n in range(most):
            power += shares[:, n, None] * before[reached[:, n]]
        powers.append(power)
        weight *= TERM_REACH / len(powers)
        term = weight * power
        total += term
        is_reached = len(powers) >= states or (total > 0.0).all()
        quiet = quiet + 1 if is_reached and (term <= OMITTED / 8 * total).all() else 0
    return np.array(powers)


def _sum(powers: Float64, theta: float, count: int) -> Float64:
    """f64 [S, S]: the sum of so many terms, and of the one of no change."""
    weight = math.exp(-theta)
    total = weight * np.eye(len(powers[0]))
    for n in range(count):
        weight *= theta / (n + 1)
        total += weight * powers[n]
    return total


def _counts(powers: Float64) -> list[int]:
    """Terms that an entry needs, for q t up to the reach, half of it, a quarter of it ..."""
    counts = []
    most = len(powers)
    for octave in range(SERIES_OCTAVES):
        theta = TERM_REACH * 0.5**octave
        left_out, total = np.zeros_like(powers[0]), _sum(powers[:most], theta, most)
        weights = [math.exp(-theta)]
        for n in range(most):
            weights.append(weights[-1] * theta / (n + 1))
        while most > 1:
            left_out += weights[most] * powers[most - 1]
            if (left_out > OMITTED * total).any():
                break
            most -= 1
        counts.append(most)
    return counts


_known: dict[bytes, Series] = {}
"""Series that were asked for last, at the end; see `series_of`."""


def series_of(
    eigenvalues: Float64, right: Float64, left: Float64, frequencies: Float64, generator: Float64
) -> Series:
    """The series of a rate matrix, the very same one for a matrix of calls before."""
    global _known  # noqa: PLW0603 - one assignment: other threads see the old or the new one
    key = generator.tobytes()
    found = _known.get(key) or Series(eigenvalues, right, left, frequencies, generator)
    others = [item for item in _known.items() if item[0] != key]
    _known = dict([*others[1 - MOST_KNOWN :], (key, found)])
    return found
