"""The eigen system of a reversible rate matrix, and transition probabilities from it.

Q[i, j] = r[i, j] π[j] is similar to the symmetric B = D Q D⁻¹, D = diag(√π), so that a symmetric
solver gives real eigenvalues and orthogonal vectors U even where eigenvalues coincide (JC):

    Q = V diag(λ) V⁻¹,   V = D⁻¹ U,   V⁻¹ = Uᵀ D
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mltree.errors import ModelError
from mltree.model.portable import eigensystem, product
from mltree.model.series import is_direct, series_of
from mltree.values import Value

__all__ = [
    "MIN_FREQUENCY",
    "ModelArrays",
    "System",
    "decompose",
    "fitted",
    "known_systems",
    "p_matrices",
    "random_reversible",
    "rate_matrix",
    "systems_of",
]

Table: TypeAlias = NDArray[np.float64]
System: TypeAlias = tuple[Table, Table, Table, Table, Table, Table]
"""Eigenvalues, V, V⁻¹, guarded frequencies, Q, and 1 where the eigen system gives all of P, else 0;
of many matrices along the first axis."""

MOST_KNOWN = 64
"""Matrices whose eigen systems are remembered, beside those of the last call."""

MIN_FREQUENCY = 1e-10
"""Rarer states count as this frequent: V has 1/√π in it. libpll leaves states below 1e-6 out; at
1e-6 one here, of a part with two bases, took 5e-3 from an lnL of -51961, at 1e-10 1e-6."""


class ModelArrays(Value, eq=False):
    """What an engine needs of a model: Q = V diag(eigenvalues) V⁻¹ and the rate categories.

    Normalised: one expected substitution per site and unit of branch length, over all categories.
    Letters: S states, K rate categories (+I is one of them, with rate 0). Many models may stand
    side by side along axes in front of these; see `unstacked`.
    """

    eigenvalues: NDArray[np.float64]
    """f64 [S]: ascending, none above 0, the last exactly 0."""
    right: NDArray[np.float64]
    """f64 [S, S]: V, an eigenvector in each column."""
    left: NDArray[np.float64]
    """f64 [S, S]: V⁻¹."""
    frequencies: NDArray[np.float64]
    """f64 [S]: π, sum 1, each at least about `MIN_FREQUENCY`."""
    generator: NDArray[np.float64]
    """f64 [S, S]: Q, exact where the product of the others is not."""
    direct: NDArray[np.float64]
    """f64 []: 1 where the eigen system gives every entry of P(t) (:mod:`mltree.model.series`)."""
    rates: NDArray[np.float64]
    """f64 [K]: relative rates."""
    weights: NDArray[np.float64]
    """f64 [K]: probabilities of the categories, sum 1; their mean rate is 1."""

    @property
    def n_systems(self) -> int:
        """M: eigen systems, each of K / M categories in turn; more than one in a mixture.

        A mixture's arrays but `rates` and `weights` have an axis [M] in front.
        """
        return 1 if self.eigenvalues.ndim == 1 else len(self.eigenvalues)

    @property
    def n_states(self) -> int:
        """S."""
        return int(self.eigenvalues.shape[-1])

    @property
    def n_categories(self) -> int:
        """K."""
        return int(self.rates.shape[-1])

    def system(self, number: int) -> tuple[Table, Table, Table, Table, Table]:
        """Eigenvalues, V, V⁻¹, frequencies and Q of one of the eigen systems."""
        tables = list(vars(self).values())[:5]
        if self.eigenvalues.ndim > 1:
            tables = [table[number] for table in tables]
        eigenvalues, right, left, frequencies, generator = tables
        return eigenvalues, right, left, frequencies, generator

    def unstacked(self) -> list[ModelArrays]:
        """One by one the models that stand side by side along the first axis."""
        return [ModelArrays(*parts) for parts in zip(*vars(self).values(), strict=True)]


def rate_matrix(
    exchangeabilities: NDArray[np.float64], frequencies: NDArray[np.float64]
) -> NDArray[np.float64]:
    """f64 [..., S, S]: Q with rows that sum to 0 and Σ π[i] Q[i, i] = -1.

    `exchangeabilities` f64 [..., S(S-1)/2], upper triangle by rows; `frequencies` f64 [..., S].

    Raises: ModelError where a value is negative or not finite, or nothing ever changes.
    """
    states = frequencies.shape[-1]
    if not (np.isfinite(exchangeabilities).all() and np.isfinite(frequencies).all()):
        raise ModelError("exchangeabilities and frequencies must be finite numbers")
    if (exchangeabilities < 0.0).any() or (frequencies < 0.0).any():
        raise ModelError("exchangeabilities and frequencies must not be negative")
    row, column = _pairs(states)
    q = np.zeros((*exchangeabilities.shape[:-1], states, states))
    q[..., row, column] = q[..., column, row] = exchangeabilities
    q *= frequencies[..., None, :]
    outflow = q.sum(axis=-1)
    diagonal = np.arange(states)
    q[..., diagonal, diagonal] = -outflow
    speed = (frequencies * outflow).sum(axis=-1)
    if not (speed > 0.0).all():
        raise ModelError("all exchangeabilities are zero: nothing would ever change")
    normalised: NDArray[np.float64] = q / speed[..., None, None]
    return normalised


@cache
def _pairs(states: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the upper triangle, which NumPy takes its time to find."""
    return np.triu_indices(states, 1)


def decompose(
    exchangeabilities: NDArray[np.float64],
    frequencies: NDArray[np.float64],
    rates: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> ModelArrays:
    """The arrays of a reversible model, or of many along the first axes of all four arguments.

    See `rate_matrix` for the arguments and what it raises; `rates`, `weights` f64 [..., K].
    """
    matrix = np.asarray(exchangeabilities, np.float64), np.asarray(frequencies, np.float64)
    if matrix[0].ndim > 1:
        system = _system(*matrix)
    else:
        (system,) = known_systems(*(own[None] for own in matrix))
    return ModelArrays(*system, np.asarray(rates, np.float64), np.asarray(weights, np.float64))


def systems_of(exchangeabilities: Table, frequencies: Table) -> System:
    """Those of n matrices, f64 [n, ...], equal ones found once; see `rate_matrix`.

    Points that differ in alpha alone share a matrix, whose eigen system takes 0.05 s for codons.
    """
    keys = _keys(exchangeabilities, frequencies)
    rows = _first_rows(keys)
    place = dict(zip(rows, range(len(rows)), strict=True))
    back, first = [place[key] for key in keys], list(rows.values())
    tables = _system(exchangeabilities[first], frequencies[first])
    eigenvalues, right, left, guarded, generator, direct = (table[back] for table in tables)
    return eigenvalues, right, left, guarded, generator, direct


def known_systems(exchangeabilities: Table, frequencies: Table) -> list[System]:
    """Those of n matrices, f64 [n, ...], the very same ones for matrices of calls before.

    Many models share a matrix that differ in their rates among sites, or keep it from fit to fit.
    """
    global _known  # noqa: PLW0603 - one assignment: other threads see the old or the new one
    keys = _keys(exchangeabilities, frequencies)
    rows = _first_rows(keys)
    used = {key: _known[key] for key in rows if key in _known}
    missing = {key: row for key, row in rows.items() if key not in used}
    if missing:
        which = list(missing.values())
        tables = _system(exchangeabilities[which], frequencies[which])
        for table in tables:
            table.setflags(write=False)
        used |= dict(zip(missing, zip(*tables, strict=True), strict=True))
    others = list(_known)[-MOST_KNOWN:]
    _known = {key: _known[key] for key in others} | used
    return [used[key] for key in keys]


def _keys(exchangeabilities: Table, frequencies: Table) -> list[bytes]:
    """What tells the matrices apart."""
    values = np.concatenate([exchangeabilities, frequencies], axis=1)
    keys: list[bytes] = values.view(f"V{values[0].nbytes}")[:, 0].tolist()
    return keys


def _first_rows(keys: Sequence[bytes]) -> dict[bytes, int]:
    """The first row of every key, in order."""
    last_first = zip(reversed(keys), reversed(range(len(keys))), strict=True)
    return dict(reversed(dict(last_first).items()))


_known: dict[bytes, System] = {}
"""Those that were asked for last, at the end; see `known_systems`."""


def _system(exchangeabilities: NDArray[np.float64], frequencies: NDArray[np.float64]) -> System:
    """The eigen systems of matrices f64 [..., S(S-1)/2] and f64 [..., S]; see `System`."""
    guarded = np.maximum(frequencies, MIN_FREQUENCY)
    guarded = guarded / guarded.sum(axis=-1, keepdims=True)
    root = np.sqrt(guarded)
    generator = rate_matrix(exchangeabilities, guarded)
    similar = generator * root[..., :, None] / root[..., None, :]
    eigenvalues, u = eigensystem(0.5 * (similar + similar.swapaxes(-1, -2)))
    eigenvalues = np.minimum(eigenvalues, 0.0)
    eigenvalues[..., -1] = 0.0
    right = np.ascontiguousarray(u / root[..., :, None])
    left = np.ascontiguousarray(u.swapaxes(-1, -2) * root[..., None, :])
    direct = is_direct(eigenvalues, right, left, guarded, generator).astype(np.float64)
    return eigenvalues, right, left, guarded, generator, direct


def fitted(arrays: ModelArrays, scaler: float, systems: int, categories: int) -> ModelArrays:
    """A part's arrays with rates times its scaler, filled up to so many systems and categories.

    What is filled in has weight 0.
    """
    own, width = arrays.n_systems, categories // systems
    if (own, arrays.n_categories) == (systems, categories):
        if scaler == 1.0:
            return arrays
        return dataclasses.replace(arrays, rates=arrays.rates * scaler)
    rates, weights = np.zeros((systems, width)), np.zeros((systems, width))
    rates[:own, : arrays.n_categories // own] = (arrays.rates * scaler).reshape(own, -1)
    weights[:own, : arrays.n_categories // own] = arrays.weights.reshape(own, -1)
    tables: list[Table] = list(vars(arrays).values())[:-2]
    if systems > 1:
        last = [table if own > 1 else table[None] for table in tables]
        tables = [np.concatenate([t, np.repeat(t[-1:], systems - own, axis=0)]) for t in last]
    eigenvalues, right, left, frequencies, generator, direct = tables
    return ModelArrays(
        eigenvalues, right, left, frequencies, generator, direct, rates.ravel(), weights.ravel()
    )


def p_matrices(arrays: ModelArrays, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """f64 [n, K, S, S]: transition probabilities for n branch lengths and every rate category.

        P = I + V diag(exp(λ r t) - 1) V⁻¹

    Written with expm1 so that off-diagonal entries of very short branches (t = 1e-6) keep all
    their digits, and t = 0 is the identity; rounding below zero is cut off. Where that loses
    entries that take several changes, P is the sum of a series (:mod:`mltree.model.series`).
    """
    times = np.multiply.outer(lengths, arrays.rates)
    exponents = np.multiply.outer(times, arrays.eigenvalues)
    change = product(arrays.right * np.expm1(exponents)[..., None, :], arrays.left)
    p: NDArray[np.float64] = np.maximum(change + np.eye(arrays.n_states), 0.0)
    if not arrays.direct:
        series = series_of(*arrays.system(0))
        for at, time in np.ndenumerate(times):
            summed = series.p_matrix(time)
            p[at] = p[at] if summed is None else summed
    return p


def random_reversible(states: int, rng: np.random.Generator, *, categories: int = 4) -> ModelArrays:
    """A random reversible model of any number of states (61 too), for tests and measurements.

    Exchangeabilities are log-normal, frequencies and category weights Dirichlet, rates gamma.
    """
    exchangeabilities = np.exp(rng.normal(size=states * (states - 1) // 2))
    frequencies = rng.dirichlet(np.full(states, 5.0))
    weights = rng.dirichlet(np.full(categories, 5.0))
    rates = rng.gamma(1.0, size=categories) + 1e-3
    return decompose(exchangeabilities, frequencies, rates / (weights * rates).sum(), weights)
