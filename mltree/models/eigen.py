"""The eigen system of a reversible rate matrix, and transition probabilities from it.

Q[i, j] = r[i, j] π[j] is similar to the symmetric B = D Q D⁻¹, D = diag(√π), so that a symmetric
solver gives real eigenvalues and orthogonal vectors U even where eigenvalues coincide (JC):

    Q = V diag(λ) V⁻¹,   V = D⁻¹ U,   V⁻¹ = Uᵀ D
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from mltree.data.patterns import SiteSystems
from mltree.models.portable import computed, eigensystem, expm1_of_many, product
from mltree.system.arrays import Bool, Float64, Index
from mltree.system.errors import ModelError
from mltree.system.values import Value

# Series of a rate matrix, which give every entry of P(t) all its digits (uniformisation).
#
# An entry that takes n changes is of the order of t^n: far below the rounding of the eigen system's
# sums where branches are short. With q = max |Q_ii| and R = I + Q / q, none of whose entries is
# negative,
#
#     P(t) = sum_n e^(-q t) (q t)^n / n! R^n
#
# adds up terms of one sign, so that no digit is lost (Jensen 1953; relative errors of entries: Xue
# & Ye, Math. Comp. 82, 2013). Times above `TERM_REACH` / q are a rest, for which the sum is short,
# and whole powers of two of that reach: P(t + u) = P(t) P(u), again without a difference. A series
# ends where the eigen system is as good.

DIRECT = 4e-11
"""Relative error of an entry of P up to which the eigen system is used: LG's worst entry, at any
time from 1e-9 to 100, is 6e-12 off (200 decimal digits)."""

SERIES_OCTAVES = 8
"""Numbers of terms that a series has: for q t up to TERM_REACH, half of it, a quarter of it ..."""

MOST_TERMS = 160
"""Terms of a series at most: 64 states in a row take 63 changes, and some 40 terms more."""

TERM_REACH = 2.0
"""q t up to which the terms are summed."""

OMITTED = 1e-12
"""Share of an entry that omitted terms may have."""

QUIET = 4
"""Terms in a row that add nothing before a series ends."""

MOST_DOUBLINGS = 32
"""Doublings of the reach at most: q t up to 8e9."""

MOST_SERIES = 64
"""Series that are remembered: of 61 states each has 1 MB and takes 5 ms. In sampling each chain
has that of its model and of the one proposed."""

SERIES_AT_ONCE = 16
"""Series that are found together: of 61 states the powers that there may be take 5 MB each."""

ROWS_COMPARED = 4
"""Rows of P, those with the smallest entries, in which the eigen system is compared."""

_ROUNDINGS = 4 * 2.0**-53
"""Relative error of a sum over the eigen system, by its terms' size."""


class System(NamedTuple):
    """Eigen system of a rate matrix, or of many along the first axes. S states."""

    eigenvalues: Float64
    """f64 [S]: ascending, none above 0, the last exactly 0."""
    right: Float64
    """f64 [S, S]: V, an eigenvector in each column."""
    left: Float64
    """f64 [S, S]: V⁻¹."""
    frequencies: Float64
    """f64 [S]: π, sum 1, each at least about `MIN_FREQUENCY`."""
    generator: Float64
    """f64 [S, S]: Q, exact where the product of the others is not."""
    direct: Float64
    """f64 []: 1 where the eigen system gives every entry of P(t), else 0; see `is_direct`."""


def is_direct(
    eigenvalues: Float64, right: Float64, left: Float64, frequencies: Float64, generator: Float64
) -> Bool:
    """True where the eigen system gives every entry of P(t), for any t, bool [...].

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
    """Error of a b against the exact product, roundings included."""
    size: Float64 = product(np.abs(a), np.abs(b))
    error: Float64 = np.abs(product(a, b) - exact) + _ROUNDINGS * size
    return error


class Series:
    """The series of one rate matrix, beside its eigen system; see `is_direct`."""

    def __init__(self, head: Float64, powers: Float64, doublings: Float64) -> None:
        """Take a matrix's own of what :func:`uniformised` finds."""
        self.rate, self.reach, self.until, *counts, n_doublings = head.tolist()
        """Uniformisation rate, q; longest time of which the terms are summed; time from which on
        the eigen system is as good."""
        self.counts = [*map(int, counts)]
        """Terms for q t up to `TERM_REACH`, up to half of it, a quarter of it ..."""
        states, most = powers.shape[-1], self.counts[0]
        tables = [powers[:most], doublings[: int(n_doublings)]]
        begins = [self.rate, self.reach, self.until, most, *self.counts]
        self.words = np.concatenate([begins, *(table.ravel() for table in tables)])
        """f64 [n]: how an engine keeps it (``opencl/series.h``)."""
        both = self.words[len(begins) :].reshape(-1, states, states)
        self.powers, self.doublings = both[:most], both[most:]
        """f64 [N, S, S]: R, R^2, ...; f64 [D, S, S]: P of the reach, of twice, of four times the
        reach ... until the eigen system is as good."""

    def p_matrix(self, time: float) -> Float64 | None:
        """f64 [S, S]: P(t), or None where the eigen system gives it."""
        if time >= self.until:
            return None
        whole = math.floor(time / self.reach)
        theta = self.rate * (time - whole * self.reach)
        octave = sum(theta <= TERM_REACH * 0.5**n for n in range(1, SERIES_OCTAVES))
        count = self.counts[octave]
        p = _sum(self.powers, _weights(theta, count), count)
        for n, doubled in enumerate(self.doublings):
            if whole >> n & 1:
                p = product(p, doubled)
        return p


def _weights(theta: float, count: int = MOST_TERMS) -> Float64:
    """f64 [count + 1]: weights of no change, of one, of two ..."""
    weights = [math.exp(-theta)]
    for n in range(1, count + 1):
        weights.append(weights[-1] * (theta / n))
    return np.array(weights)


def uniformised(
    generators: Float64,
    eigenvalues: Float64,
    right: Float64,
    left: Float64,
    frequencies: Float64,
    weights: Float64,
) -> tuple[Float64, Float64, Float64]:
    """Heads f64 [n, SERIES_OCTAVES + 4], powers f64 [N, n, S, S] and doublings f64 [D, n, S, S].

    A head is rate, reach, until, counts, and the number of doublings. `weights`: `_weights` of the
    reach, of half of it, a quarter of it ... Tables of a matrix that needs fewer end with others.
    """
    each = []
    for q, *of_system in zip(generators, eigenvalues, right, left, frequencies, strict=True):
        rate = float(-q.diagonal().min())
        reach = TERM_REACH / rate
        powers = _powers(q / rate, weights[0])
        doublings, until = _doublings(_sum(powers, weights[0], len(powers)), reach, *of_system)
        most, *counts = _counts(powers, weights)
        head = np.array([rate, reach, until, most, *counts, len(doublings)])
        each.append((head, powers[:most], doublings))
    heads, *tables = zip(*each, strict=True)
    powers, doublings = map(_side_by_side, tables)
    return np.array(heads), powers, doublings


def _side_by_side(tables: Sequence[Float64]) -> Float64:
    """f64 [N, n, S, S] of n tables of at most N matrices each."""
    most = max(map(len, tables))
    filled = [np.pad(table, [(0, most - len(table)), (0, 0), (0, 0)]) for table in tables]
    return np.stack(filled, axis=1)


def _doublings(
    p: Float64, reach: float, eigenvalues: Float64, right: Float64, left: Float64, pi: Float64
) -> tuple[Float64, float]:
    """P of the reach, of twice, four times the reach ... and when the eigen system is as good."""
    doublings: list[Float64] = []
    until, ones = reach, np.ones((len(p), 1))
    is_stationary = _is_alike(right[:, :-1], left[:-1], pi)
    while len(doublings) < MOST_DOUBLINGS:
        change = right * expm1_of_many(eigenvalues * until)
        if is_stationary and _is_alike(change, left, p):
            break
        doublings.append(p)
        p, until = product(p, p), 2.0 * until
        p /= product(p, ones)  # else the rows' roundings double too
    return np.reshape(doublings, (-1, *p.shape)), until


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


def _powers(step: Float64, weights: Float64) -> Float64:
    """f64 [N, S, S]: powers of R = I + `step` until the next ones add nothing at the reach."""
    states = len(step)
    lazy = np.maximum(step + np.eye(states), 0.0)
    # Most entries of a codon's R are 0: a row adds up those rows of a power that it reaches.
    most = int((lazy > 0.0).sum(axis=1).max())
    reached = np.argsort(lazy == 0.0, axis=1, kind="stable")[:, :most]
    shares = np.take_along_axis(lazy, reached, 1)
    powers, total, quiet = [lazy], weights[1] * lazy, 0
    while quiet < QUIET and len(powers) < MOST_TERMS:
        before, power = powers[-1], np.zeros_like(lazy)
        for n in range(most):
            power += shares[:, n, None] * before[reached[:, n]]
        powers.append(power)
        term = weights[len(powers)] * power
        total += term
        is_reached = len(powers) >= states or (total > 0.0).all()
        quiet = quiet + 1 if is_reached and (term <= OMITTED / 8 * total).all() else 0
    return np.array(powers)


def _sum(powers: Float64, weights: Float64, count: int) -> Float64:
    """f64 [S, S]: the sum of ``count`` terms and of the term of no change."""
    total: Float64 = weights[0] * np.eye(len(powers[0]))
    for weight, power in zip(weights[1:].tolist(), powers[:count], strict=False):
        total += weight * power
    return total


def _counts(powers: Float64, weights: Float64) -> list[int]:
    """Number of terms that an entry needs, for q t up to the reach, half of it, a quarter ..."""
    counts = []
    most = len(powers)
    for of_octave in weights:
        left_out, total = np.zeros_like(powers[0]), _sum(powers, of_octave, most)
        while most > 1:
            left_out += of_octave[most] * powers[most - 1]
            if (left_out > OMITTED * total).any():
                break
            most -= 1
        counts.append(most)
    return counts


@cache
def _weights_of_octaves() -> Float64:
    return np.array([_weights(TERM_REACH * 0.5**octave) for octave in range(SERIES_OCTAVES)])


_known_series: dict[bytes, Series] = {}
"""Series used last, at the end; see `series_of`."""


def series_of(systems: Sequence[System]) -> list[Series]:
    """The series of rate matrices of one size, the same objects as in calls before."""
    global _known_series  # noqa: PLW0603
    keys = [system.generator.tobytes() for system in systems]
    used = {key: _known_series[key] for key in keys if key in _known_series}
    missing = {key: n for n, key in enumerate(keys) if key not in used}
    while some := dict(islice(missing.items(), SERIES_AT_ONCE)):
        eigen = map(np.stack, zip(*(systems[n][:5] for n in some.values()), strict=True))
        *of_system, generators = eigen
        heads, *tables = computed(uniformised, generators, *of_system, _weights_of_octaves())
        of_matrices = zip(heads, *(table.swapaxes(0, 1) for table in tables), strict=True)
        for key, own in zip(some, of_matrices, strict=True):
            used[key] = Series(*own)
            del missing[key]
    others = [item for item in _known_series.items() if item[0] not in used]
    _known_series = dict(others[max(0, len(others) + len(used) - MOST_SERIES) :]) | used
    return [used[key] for key in keys]


MOST_KNOWN = 64
"""Number of matrices whose eigen systems are cached, beside those of the last call."""

MIN_FREQUENCY = 1e-10
"""Rarer states count as this frequent: V has 1/√π in it. libpll leaves states below 1e-6 out; at
1e-6 one here, of a part with two bases, took 5e-3 from an lnL of -51961, at 1e-10 1e-6."""


class ModelArrays(Value, eq=False):
    """Arrays of a model for an engine: its eigen system (:class:`System`) and its rate categories.

    Normalised: one expected substitution per site and unit of branch length, over all categories.
    Letters: S states, K rate categories (+I is one of them, with rate 0). Many models may stand
    side by side along axes in front of these; see `unstacked`.
    """

    eigenvalues: Float64
    right: Float64
    left: Float64
    frequencies: Float64
    generator: Float64
    direct: Float64
    rates: Float64
    """f64 [K]: relative rates."""
    weights: Float64
    """f64 [K]: probabilities of the categories, sum 1; their mean rate is 1."""

    @property
    def n_systems(self) -> int:
        """Number M of eigen systems, each of K / M categories in turn; more than one in a mixture.

        A mixture's arrays but `rates` and `weights` have an axis [M] in front.
        """
        return 1 if self.eigenvalues.ndim == 1 else len(self.eigenvalues)

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self.eigenvalues.shape[-1])

    @property
    def n_categories(self) -> int:
        """Number of rate categories, K."""
        return int(self.rates.shape[-1])

    @property
    def systems(self) -> System:
        """The eigen systems, along a first axis [M] where there are several."""
        return System(*list(vars(self).values())[:6])

    def system(self, number: int) -> System:
        """The eigen system of this number."""
        one = self.eigenvalues.ndim == 1
        return self.systems if one else System(*(table[number] for table in self.systems))

    def unstacked(self) -> list[ModelArrays]:
        """The models that stand side by side along the first axis, one by one."""
        return [ModelArrays(*parts) for parts in zip(*vars(self).values(), strict=True)]


class ModelStack(Sequence[ModelArrays]):
    """Models whose arrays stand side by side along a first axis."""

    def __init__(self, tables: Sequence[Float64], rows: Float64 | None = None) -> None:
        """``tables``: the arrays of :class:`ModelArrays` f64[n, ...], in its order.

        rows  f64[n, words]: the models as engines keep them, where they are known
        """
        self.tables, self.rows = list(tables), rows

    @classmethod
    def of(cls, models: Sequence[ModelArrays]) -> ModelStack:
        """Stack models of one shape; stacked ones stay as they are."""
        if isinstance(models, ModelStack):
            return models
        n, each = len(models), zip(*(vars(model).values() for model in models), strict=True)
        return cls(  # NumPy's stack takes three times as long
            [np.concatenate(t).reshape(n, *t[0].shape) if t[0].ndim else np.array(t) for t in each]
        )

    @property
    def has_one_matrix(self) -> bool:
        """True where the models are known to differ in rates and weights of categories alone."""
        return self.tables[0].strides[0] == 0

    def series(self) -> dict[tuple[int, int], Series]:
        """The series of every matrix that needs one, by the numbers of its model and system."""
        direct = self.tables[5].reshape(len(self), -1)
        places = [(row, system) for row, system in np.argwhere(direct == 0.0).tolist()]
        systems = [self[row].system(system) for row, system in places]
        return dict(zip(places, series_of(systems), strict=True))

    def __len__(self) -> int:
        return len(self.tables[0])

    def __getitem__(self, number: int) -> ModelArrays:  # type: ignore[override]
        return ModelArrays(*(table[number] for table in self.tables))

    def widened(self, states: int) -> ModelStack:
        """The models with further states, which nothing turns into.

        Their frequency is 0, so that a part of few states can stand beside one of many.
        """
        more = states - self.tables[0].shape[-1]
        if not more:
            return self
        *vectors, rates, weights = self.tables
        count = len(rates)
        if self.has_one_matrix:
            vectors = [table[:1] for table in vectors]
        eigenvalues, right, left, frequencies, generator, direct = vectors
        squares = (right, left, generator)
        right, left, generator = (_in_corner(square, more) for square in squares)
        new = np.arange(more)
        # Eigenvalues of 0 in front: the last one is that of the stationary distribution.
        right, left = np.roll(right, more, -1), np.roll(left, more, -2)
        right[..., states - more + new, new] = left[..., new, states - more + new] = 1.0
        ahead = [(0, 0)] * (eigenvalues.ndim - 1)
        eigenvalues = np.pad(eigenvalues, [*ahead, (more, 0)])
        frequencies = np.pad(frequencies, [*ahead, (0, more)])
        wide = [eigenvalues, right, left, frequencies, generator, direct]
        if self.has_one_matrix:
            wide = [np.broadcast_to(table[0], (count, *table.shape[1:])) for table in wide]
        return ModelStack([*wide, rates, weights])


def _in_corner(square: Float64, more: int) -> Float64:
    """f64[..., S, S] with so many rows and columns of zeros behind."""
    return np.pad(square, [*[(0, 0)] * (square.ndim - 2), (0, more), (0, more)])


def rate_matrix(exchangeabilities: Float64, frequencies: Float64) -> Float64:
    """f64 [..., S, S]: Q with rows that sum to 0 and Σ π[i] Q[i, i] = -1.

    `exchangeabilities` f64 [..., S(S-1)/2], upper triangle by rows; `frequencies` f64 [..., S].

    Raises: ModelError where a value is negative or not finite, or nothing ever changes.
    """
    states = frequencies.shape[-1]
    if not (np.isfinite(exchangeabilities).all() and np.isfinite(frequencies).all()):
        raise ModelError("exchangeabilities and frequencies must be finite numbers")
    if (exchangeabilities < 0.0).any() or (frequencies < 0.0).any():
        raise ModelError("exchangeabilities and frequencies must not be negative")
    row, column = _upper(states)
    q = np.zeros((*exchangeabilities.shape[:-1], states, states))
    q[..., row, column] = q[..., column, row] = exchangeabilities
    q *= frequencies[..., None, :]
    outflow = q.sum(axis=-1)
    diagonal = np.arange(states)
    q[..., diagonal, diagonal] = -outflow
    speed = (frequencies * outflow).sum(axis=-1)
    if not (speed > 0.0).all():
        raise ModelError("all exchangeabilities are zero: nothing would ever change")
    normalised: Float64 = q / speed[..., None, None]
    return normalised


@cache
def _upper(states: int) -> tuple[Index, Index]:
    return np.triu_indices(states, 1)


def decompose(
    exchangeabilities: Float64, frequencies: Float64, rates: Float64, weights: Float64
) -> ModelArrays:
    """The arrays of a reversible model, or of many along the first axes of all four arguments.

    See `rate_matrix` for the arguments and what it raises; `rates`, `weights` f64 [..., K].
    """
    matrix = np.asarray(exchangeabilities, np.float64), np.asarray(frequencies, np.float64)
    if matrix[0].ndim > 1:
        system = _system(*matrix)
    else:
        (system,) = known_systems(*(parameters[None] for parameters in matrix))
    return ModelArrays(*system, np.asarray(rates, np.float64), np.asarray(weights, np.float64))


def systems_of(exchangeabilities: Float64, frequencies: Float64) -> System:
    """Eigen systems of n matrices, f64 [n, ...], found once for equal ones; see `rate_matrix`.

    Points that differ in alpha alone share a matrix, whose eigen system takes 0.05 s for codons.
    """
    keys, rows = _keys(exchangeabilities, frequencies)
    place = {key: n for n, key in enumerate(rows)}
    back, first = [place[key] for key in keys], list(rows.values())
    return System(*(t[back] for t in _system(exchangeabilities[first], frequencies[first])))


def known_systems(exchangeabilities: Float64, frequencies: Float64) -> list[System]:
    """Eigen systems of n matrices, f64 [n, ...], the same objects as in calls before.

    Many models differ in rates among sites alone and share a matrix, or keep the matrix from fit to
    fit.
    """
    global _known  # noqa: PLW0603 - one assignment: other threads see the old or the new one
    keys, rows = _keys(exchangeabilities, frequencies)
    used = {key: _known[key] for key in rows if key in _known}
    missing = {key: row for key, row in rows.items() if key not in used}
    if missing:
        which = list(missing.values())
        tables = _system(exchangeabilities[which], frequencies[which])
        for table in tables:
            table.setflags(write=False)
        used |= zip(missing, map(System, *tables), strict=True)
    others = list(_known)[-MOST_KNOWN:]
    _known = {key: _known[key] for key in others} | used
    return [used[key] for key in keys]


def _keys(exchangeabilities: Float64, frequencies: Float64) -> tuple[list[bytes], dict[bytes, int]]:
    """Return keys that tell matrices apart, and the first row of every key."""
    values = np.concatenate([exchangeabilities, frequencies], axis=1)
    keys: list[bytes] = values.view(f"V{values[0].nbytes}")[:, 0].tolist()
    return keys, dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))


_known: dict[bytes, System] = {}
"""Eigen systems used last, at the end; see `known_systems`."""


def _system(exchangeabilities: Float64, frequencies: Float64) -> System:
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
    return System(eigenvalues, right, left, guarded, generator, direct)


def fitted(arrays: ModelArrays, scaler: float, systems: int, categories: int) -> ModelArrays:
    """A part's arrays with rates times its scaler, filled up to so many systems and categories.

    What is filled in has weight 0.
    """
    n_systems, tables, rates = arrays.n_systems, arrays.systems, arrays.rates * scaler
    if (n_systems, arrays.n_categories) == (systems, categories):
        return arrays if scaler == 1.0 else replace(arrays, rates=rates)
    if systems > 1:
        stacks = tables if n_systems > 1 else [table[None] for table in tables]
        missing = systems - n_systems
        tables = System(*(np.concatenate([t, np.repeat(t[-1:], missing, 0)]) for t in stacks))

    def filled(values: Float64) -> Float64:
        rows = values.reshape(n_systems, -1)
        more = categories // systems - rows.shape[1]
        return np.pad(rows, ((0, systems - n_systems), (0, more))).ravel()

    return ModelArrays(*tables, filled(rates), filled(arrays.weights))


def p_matrices(arrays: ModelArrays, lengths: Float64) -> Float64:
    """f64 [n, K, S, S]: transition probabilities for n branch lengths and every rate category.

        P = I + V diag(exp(λ r t) - 1) V⁻¹

    Written with expm1 so that off-diagonal entries of very short branches (t = 1e-6) keep all
    their digits, and t = 0 is the identity; rounding below zero is cut off. Where that loses
    entries that take several changes, P is the sum of a :class:`Series`.
    """
    times = np.multiply.outer(lengths, arrays.rates)
    exponents = np.multiply.outer(times, arrays.eigenvalues)
    change = product(arrays.right * np.expm1(exponents)[..., None, :], arrays.left)
    p: Float64 = np.maximum(change + np.eye(arrays.n_states), 0.0)
    if not arrays.direct:
        (series,) = series_of([arrays.system(0)])
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


# Eigen systems of patterns that have state frequencies of their own (PMSF).
#
# Wang, Minh, Susko & Roger (2018, Syst. Biol. 67:216-235): in place of a mixture of profiles, site
# i has one vector π_i, the mean of the profiles' under their probabilities there. With the
# exchangeabilities r of the model
#
#     Q_i[a, b] = c_i r[a, b] π_i[b],   -Σ_a π_i[a] Q_i[a, a] = 1
#
# and rates among sites multiply it as any other matrix. Q_i = V diag(λ) V⁻¹ with V = diag(1/√π_i) U
# and V⁻¹ = Uᵀ diag(√π_i), U orthonormal: λ, U and √π_i are all that there is to keep.

AT_ONCE = 64
"""Matrices that are decomposed together: they stay in a level-2 cache (5,000 of 20 states took 3.5
instead of 5.3 s on one core)."""


def site_systems(exchangeabilities: Float64, frequencies: Float64) -> SiteSystems:
    """The eigen systems of f64 [S(S-1)/2] exchangeabilities with each of f64 [L, S] frequencies.

    Raises: ModelError as `rate_matrix`.
    """
    distinct, which = np.unique(frequencies, axis=0, return_inverse=True)
    each = []
    for first in range(0, len(distinct), AT_ONCE):
        some = distinct[first : first + AT_ONCE]
        shared = np.broadcast_to(exchangeabilities, (len(some), len(exchangeabilities)))
        system = _system(shared, some)
        roots = np.sqrt(system.frequencies)
        each.append((system.eigenvalues, system.right * roots[..., None], roots))
    eigenvalues, vectors, roots = (np.concatenate(tables) for tables in zip(*each, strict=True))
    square = np.zeros((frequencies.shape[1],) * 2)
    square[_upper(len(square))] = exchangeabilities
    return SiteSystems(eigenvalues, vectors, roots, square + square.T).take(which.ravel())
