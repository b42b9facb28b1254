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
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mltree.contract import MOST_TERMS, SERIES_OCTAVES
from mltree.model.portable import expm1, product

__all__ = ["DIRECT", "Series", "is_direct", "series_of"]

Float64 = NDArray[np.float64]

DIRECT = 4e-11
"""Relative error of an entry of P up to which the eigen system is used: of LG and WAG, which it
serves for all times, the worst entries have 2e-12."""

TERM_REACH = 2.0
"""q t up to which the terms are summed."""

OMITTED = 1e-12
"""Share of an entry that omitted terms may have."""

QUIET = 4
"""Terms in a row that add nothing before a series ends."""

MOST_DOUBLINGS = 32
"""Doublings of the reach at most: q t up to 8e9."""

MOST_KNOWN = 32
"""Series that are remembered: of 61 states each has about 1 MB."""

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
    scaled = right * eigenvalues[..., None, :]
    diagonal = np.eye(generator.shape[-1], dtype=bool)
    short = diagonal | (_error(scaled, left, generator) <= DIRECT * generator)
    found: NDArray[np.bool_] = short.all(axis=(-2, -1)) & _is_stationary(right, left, frequencies)
    return found


def _is_stationary(right: Float64, left: Float64, frequencies: Float64) -> NDArray[np.bool_]:
    """Bool [...]: whether the eigen system gives P(infinity), whose rows are the frequencies."""
    one = np.eye(right.shape[-1])
    moving = right[..., :-1], left[..., :-1, :]
    stationary = frequencies[..., None, :]
    found: NDArray[np.bool_] = _error(*moving, one - stationary) <= DIRECT * stationary
    return found.all(axis=(-2, -1))


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
        self._system = eigenvalues, right, left
        self.rate = float(-generator.diagonal().min())
        """q."""
        powers = _powers(generator / self.rate)
        self.counts = _counts(powers)
        """Terms for q t up to `TERM_REACH`, up to half of it, a quarter of it ..."""
        self.powers = powers[: self.counts[0]]
        """f64 [N, S, S]: R, R^2, ..."""
        is_stationary = bool(_is_stationary(right, left, frequencies))
        reached = _sum(powers, TERM_REACH, len(powers))
        self.doublings, self.until = self._doubled(reached, is_stationary)
        """f64 [D, S, S]: P of the reach, of twice, of four times the reach ... and the time from
        which on the eigen system is used."""

    @property
    def reach(self) -> float:
        """Longest time of which the terms are summed."""
        return TERM_REACH / self.rate

    @cached_property
    def words(self) -> Float64:
        """f64 [n]: how an engine keeps it (``opencl/series.h``)."""
        head = [self.rate, self.reach, self.until, len(self.powers), *self.counts]
        return np.concatenate([head, self.powers.ravel(), self.doublings.ravel()])

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

    def _doubled(self, p: Float64, is_stationary: bool) -> tuple[Float64, float]:
        """P of the reach and of its doublings, up to where the eigen system is as good."""
        eigenvalues, right, left = self._system
        found, time, one = [], self.reach, np.eye(len(p))
        while len(found) < MOST_DOUBLINGS:
            error = _error(right * expm1(eigenvalues * time), left, p - one)
            if is_stationary and (error + _ROUNDINGS * one <= DIRECT * p).all():
                break
            found.append(p)
            p, time = product(p, p), 2.0 * time
            p /= p.sum(axis=1, keepdims=True)  # else the rows' roundings double too
        return np.array(found).reshape(-1, *p.shape), time


def _powers(step: Float64) -> Float64:
    """f64 [N, S, S]: powers of R = I + `step` until the next ones add nothing at the reach."""
    states = len(step)
    lazy = np.maximum(step + np.eye(states), 0.0)
    powers = np.empty((MOST_TERMS, states, states))
    powers[0] = lazy
    weight = math.exp(-TERM_REACH) * TERM_REACH
    total = weight * lazy
    quiet = 0
    for n in range(1, MOST_TERMS):
        powers[n] = product(powers[n - 1], lazy)
        weight *= TERM_REACH / (n + 1)
        term = weight * powers[n]
        total += term
        is_small = n >= min(states, MOST_TERMS // 2) and (term <= OMITTED / 8 * total).all()
        quiet = quiet + 1 if is_small else 0
        if quiet == QUIET:
            return powers[: n + 1]
    return powers


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
