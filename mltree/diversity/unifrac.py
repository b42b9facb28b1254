"""UniFrac: its metrics, as sums over the branches that two samples share, and the reference.

x_b is 1 where a sample has counts under branch b, u_b its share of counts there, L_b the length of
the branch. With W = Σ L x or Σ L u of a sample, and M = Σ L min(·, ·) of two over shared branches:

    unweighted             (W_a + W_b - 2 M) / (W_a + W_b - M)             of x
    weighted_unnormalized  W_a + W_b - 2 M                                 of u
    weighted_normalized    (W_a + W_b - 2 M) / (W_a + W_b)                 of u
    generalized            Σ L s^α |u_a - u_b| / s  /  Σ L s^α,  s = u_a + u_b

The generalised one sums what shared branches add to, or take from, the sums of either sample alone.
Variance adjustment divides L by the root of m_b (m - m_b), m_b the counts of both samples under the
branch and m all of theirs. Terms are integers, L scaled by a power of two, so that no order of
summing and no device changes a bit, and equal samples are at 0 exactly.

Lozupone, Knight 2005, Appl. Environ. Microbiol. 71:8228; Lozupone et al. 2007, 73:1576; Chen et al.
2012, Bioinformatics 28:2106; Chang, Luan, Sun 2011, BMC Bioinformatics 12:118.

Letters: N samples, B branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.diversity.branches import Samples
from mltree.system.arrays import Float64, Int64
from mltree.system.errors import InputError
from mltree.system.process import map_blocks
from mltree.system.values import Value

UNWEIGHTED, GENERALISED = "unweighted", "generalized"

METRICS = (
    UNWEIGHTED, "unweighted_unnormalized", "weighted_normalized", "weighted_unnormalized",
    GENERALISED,
)  # fmt: skip
"""Names, as ``ssu`` has them."""

DOUBLE_BITS, SINGLE_BITS = 61, 31
"""Bits of the largest sum of a sample's terms: two of them, and a sign, fit 64; or one 32."""

MATRIX_DIVISIONS = 16
"""Tiles along a side of the matrix, where they are not too large or small."""
SMALLEST_TILE, LARGEST_TILE = 256, 4096
"""Samples along a side of a tile."""

STRIP = 128
"""Samples along a side of what is mirrored at once: it stays in a core's cache."""


class Metric(Value):
    """A metric and its variant."""

    name: str
    alpha: float = 1.0
    """Weight of abundant branches, 0 to 1: of the generalised metric."""
    adjusted: bool = False
    """Adjusted for variance."""
    absolute: bool = False
    """Weighted by counts rather than by shares."""

    @property
    def is_presence(self) -> bool:
        """True if counts do not matter beyond whether there are any."""
        return self.name.startswith(UNWEIGHTED)

    @property
    def is_normalised(self) -> bool:
        """True for distances between 0 and 1."""
        return not self.name.endswith("unnormalized")

    @property
    def is_plain(self) -> bool:
        """True where one sum of minima is all that is needed."""
        return self.name != GENERALISED and not self.adjusted

    @property
    def label(self) -> str:
        """Name of the metric's files."""
        alpha = f"_{self.alpha:g}" if self.name == GENERALISED else ""
        return self.name + alpha + "_vaw" * self.adjusted + "_absolute" * self.absolute


def metrics_of(
    names: str, alphas: str | float | Sequence[float] = 1.0, adjusted: bool = False,
    absolute: bool = False,
) -> list[Metric]:  # fmt: skip
    """The metrics of a list of names, the generalised one with each alpha.

    Raises:
        InputError: there is no such metric, or an alpha is not between 0 and 1.
    """
    if isinstance(alphas, str):
        texts = alphas.split(",")
    else:
        texts = [str(alpha) for alpha in np.atleast_1d(alphas).tolist()]
    values = [_alpha(text) for text in texts]
    metrics = []
    for word in dict.fromkeys(name.strip().lower() for name in names.split(",")):
        name = {"weighted": "weighted_normalized", "generalised": GENERALISED}.get(word, word)
        name = name.replace("-", "_").replace("normalised", "normalized")
        if name not in METRICS:
            raise InputError(f"--metric: {word!r} is not one of {', '.join(METRICS)}")
        if absolute and name.startswith(UNWEIGHTED):
            raise InputError(f"--absolute: {name} has no counts")
        chosen = values if name == GENERALISED else [1.0]
        metrics += [Metric(name, alpha, adjusted, absolute) for alpha in chosen]
    return metrics


def _alpha(text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not 0 <= alpha <= 1:
        raise InputError(f"--alpha: {text.strip()!r} is not between 0 and 1")
    return alpha


class UnifracProblem(Value):
    """Distances of some samples by one metric."""

    samples: Samples
    metric: Metric
    single: bool = False
    """Terms of 32 bits and distances in fp32."""

    @cached_property
    def divisors(self) -> Float64:
        """float64 [N]: what a sample's counts are divided by."""
        if self.metric.absolute:
            return np.full(self.samples.n_samples, 2.0**self.samples.shift)
        return self.samples.totals.astype(np.float64)

    @cached_property
    def exponent(self) -> int:
        """Power of two that lengths are multiplied by, as large as the sums allow."""
        branches, metric = self.samples.branches, self.metric
        if metric.is_presence or metric.name == GENERALISED:
            bound = float(branches.length.sum())
        else:
            bound = branches.depth
        if not metric.is_presence:
            shares = self.samples.totals / self.divisors
            bound *= max(1.0, float(shares.max()))
        bits = SINGLE_BITS if self.is_short else DOUBLE_BITS - (not metric.is_plain)
        if metric.adjusted:  # no root of m_b (m - m_b) is below the smallest count
            bits += int(np.frexp(float(self.samples.counts.min()))[1]) - 1
        return bits - int(np.frexp(max(bound, 1e-300))[1])

    @property
    def is_short(self) -> bool:
        """True for sums of 32 bits."""
        return self.single and self.metric.is_plain

    @cached_property
    def lengths(self) -> Float64:
        """float64 [B]: lengths in units of the sums."""
        scaled: Float64 = np.ldexp(self.samples.branches.length, self.exponent)
        return np.rint(scaled) if self.metric.is_presence and self.metric.is_plain else scaled

    @cached_property
    def unit(self) -> float:
        """Length of a unit of the sums."""
        return math.ldexp(1.0, self.samples.shift * self.metric.adjusted - self.exponent)

    @property
    def kind(self) -> type[np.floating[Any]]:
        """Type of the distances."""
        return np.float32 if self.single else np.float64

    def values(self, counts: Int64, rows: slice) -> Int64:
        """int64 [rows, B]: L x or L u of samples, from their counts below branches."""
        if self.metric.is_presence:
            weights = (counts > 0).astype(np.float64)
        else:
            weights = counts / self.divisors[rows, None]
        return np.rint(self.lengths * weights).astype(np.int64)


class UnifracEngine(Protocol):
    """Computes tiles of distances."""

    def faith(self) -> Float64:
        """float64 [N]: sums of a sample alone, W, in units of length."""

    def tile(self, rows: slice, columns: slice) -> NDArray[np.floating[Any]]:
        """Distances [rows, columns] of samples."""


def distances_of(
    problem: UnifracProblem, alone: Int64, others: Int64, shared: Int64
) -> NDArray[np.floating[Any]]:
    """Distances [rows, columns] from sums: of rows, of columns, and of minima."""
    metric = problem.metric
    both = alone[:, None] + others[None, :]
    apart = (both - 2 * shared).astype(np.float64)
    if not metric.is_normalised:
        return (apart * problem.unit).astype(problem.kind)
    whole = both - shared if metric.is_presence else both
    return _ratio(apart, whole.astype(np.float64)).astype(problem.kind)


def _ratio(numerator: Float64, denominator: Float64) -> Float64:
    """The ratio; 0 where nothing is compared."""
    ratio: Float64 = np.divide(
        numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0
    )
    return ratio


class ReferenceUnifrac:
    """Implements :class:`UnifracEngine` in NumPy, from the definitions: every branch of a pair."""

    def __init__(self, problem: UnifracProblem) -> None:
        self._problem = problem

    @cached_property
    def _alone(self) -> Int64:
        rows = range(0, self._problem.samples.n_samples, SMALLEST_TILE)
        sums = [self._values(slice(row, row + SMALLEST_TILE)).sum(axis=1) for row in rows]
        return np.concatenate(sums)

    def _values(self, rows: slice) -> Int64:
        return self._problem.values(self._problem.samples.counts_below(rows), rows)

    def faith(self) -> Float64:
        """Sums of each sample alone."""
        return np.asarray(self._alone * self._problem.unit, np.float64)

    def tile(self, rows: slice, columns: slice) -> NDArray[np.floating[Any]]:
        """Distances, a row after the other."""
        problem = self._problem
        if not problem.metric.is_plain:
            return self._general_tile(rows, columns)
        own, others = self._values(rows), self._values(columns)
        shared = np.array([np.minimum(row, others).sum(axis=1) for row in own])
        alone = self._alone
        return distances_of(problem, alone[rows], alone[columns], shared.reshape(len(own), -1))

    def _general_tile(self, rows: slice, columns: slice) -> NDArray[np.floating[Any]]:
        problem = self._problem
        samples = problem.samples
        own, others = samples.counts_below(rows), samples.counts_below(columns)
        tile = np.empty((len(own), len(others)), problem.kind)
        totals = samples.totals
        for place, row in enumerate(range(*rows.indices(samples.n_samples))):
            below = np.broadcast_to(own[place], others.shape)
            whole = totals[row] + totals[columns, None]
            shares = below / problem.divisors[row], others / problem.divisors[columns, None]
            terms = general_terms(problem, shares, below + others, whole)
            apart, together = (np.rint(term).astype(np.int64).sum(axis=1) for term in terms)
            if problem.metric.is_normalised:
                tile[place] = _ratio(apart.astype(np.float64), together.astype(np.float64))
            else:
                tile[place] = apart * problem.unit
        return tile


def general_terms(
    problem: UnifracProblem, shares: tuple[Float64, Float64], below: Int64, whole: Int64
) -> tuple[Float64, Float64]:
    """Terms of numerator and denominator [columns, B], before they are rounded.

    shares  u_a and u_b;  below  counts of both under a branch;  whole  counts of both
    """
    metric = problem.metric
    one, two = shares
    total = one + two
    if metric.is_presence:
        height = (below > 0).astype(np.float64)
        apart = ((one > 0) != (two > 0)).astype(np.float64)
    else:
        height = power(total, metric.alpha)
        apart = _ratio(abs(one - two), total)
    weight = problem.lengths * height
    if metric.adjusted:
        variance = np.sqrt(below.astype(np.float64) * (whole - below).astype(np.float64))
        weight = _ratio(weight, variance)
    return weight * apart, weight


LOG_TERMS = tuple(2.0 / (math.log(2.0) * k) for k in range(23, 0, -2))
"""Coefficients of log2((1 + t) / (1 - t)) in odd powers of t, the highest first."""
EXP_TERMS = tuple(math.log(2.0) ** k / math.factorial(k) for k in range(15, -1, -1))
"""Coefficients of 2^x, the highest power first."""


def power(base: Float64, exponent: float) -> Float64:
    """Powers of numbers above zero, by operations that round alike on every device; 0 of zero.

    2^(exponent log2 base): a series of odd powers on [√½, √2), one of powers on [-½, ½].
    """
    if exponent in {0.0, 1.0}:
        return base if exponent else (base > 0).astype(np.float64)
    if exponent == 0.5:
        root: Float64 = np.sqrt(base)
        return root
    is_there = base > 0
    mantissa, whole = np.frexp(np.where(is_there, base, 1.0))
    is_low = mantissa < math.sqrt(0.5)
    mantissa = np.where(is_low, 2 * mantissa, mantissa)
    t = (mantissa - 1) / (mantissa + 1)
    square = t * t
    series = np.full_like(t, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        series = series * square + term
    x = exponent * (series * t + (whole - is_low))
    integer = np.rint(x)
    fraction = x - integer
    value = np.full_like(t, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        value = value * fraction + term
    return np.where(is_there, np.ldexp(value, integer.astype(np.int64)), 0.0)


# The matrix, tile by tile.


class Tile(NamedTuple):
    """A block of the matrix, on its diagonal or above."""

    rows: slice
    columns: slice

    @property
    def pairs(self) -> int:
        """Number of its distances."""
        height, width = (one.stop - one.start for one in self)
        return int(height * width)

    @property
    def is_diagonal(self) -> bool:
        """True if rows are columns."""
        return self.rows == self.columns


def tile_side(n_samples: int) -> int:
    """Samples along a side of a tile."""
    return min(max(-(-n_samples // MATRIX_DIVISIONS), SMALLEST_TILE), LARGEST_TILE)


def tiles_of(n_samples: int, part: tuple[int, int] = (1, 1)) -> list[Tile]:
    """Tiles of the upper triangle, by columns, the last first; of part i of n as many pairs each.

    The last rows of the matrix are whole when the last column is, which a file is glad of.

    part  i from 1 on, and n
    """
    side = tile_side(n_samples)
    starts = range(0, n_samples, side)
    spans = [slice(start, min(start + side, n_samples)) for start in starts]
    columns = reversed(range(len(spans)))
    tiles = [Tile(spans[i], spans[j]) for j in columns for i in range(j + 1)]
    ends = np.cumsum([tile.pairs for tile in tiles])
    share = np.ceil(ends * part[1] / ends[-1] - 1e-9).astype(int)
    return [tile for tile, number in zip(tiles, share, strict=True) if number == part[0]]


class DistanceBlocks(Protocol):
    """A source of distances, tile after tile, as often as asked."""

    @property
    def n_samples(self) -> int:
        """Number of samples, N."""

    def __iter__(self) -> Iterator[tuple[Tile, NDArray[np.floating[Any]]]]:
        """Every tile of the upper triangle with its distances."""


class ComputedBlocks:
    """Implements :class:`DistanceBlocks`: computes the tiles each time."""

    def __init__(
        self,
        compute: Callable[[Iterable[Tile]], Iterator[tuple[Tile, NDArray[np.floating[Any]]]]],
        n_samples: int,
    ) -> None:
        self._compute, self.n_samples = compute, n_samples

    def __iter__(self) -> Iterator[tuple[Tile, NDArray[np.floating[Any]]]]:
        return self._compute(tiles_of(self.n_samples))


class MatrixBlocks:
    """Implements :class:`DistanceBlocks`: cuts the tiles from a matrix."""

    def __init__(self, matrix: NDArray[np.floating[Any]]) -> None:
        self._matrix, self.n_samples = matrix, len(matrix)

    def __iter__(self) -> Iterator[tuple[Tile, NDArray[np.floating[Any]]]]:
        for tile in tiles_of(self.n_samples):
            yield tile, self._matrix[tile]


def fill(matrix: NDArray[np.floating[Any]], tile: Tile, block: NDArray[np.floating[Any]]) -> None:
    """Write a tile into the matrix, and its mirror image, strip by strip."""
    height, width = block.shape
    first_row, first_column = tile.rows.start, tile.columns.start

    def write(strip: slice) -> None:
        rows = slice(first_row + strip.start, first_row + strip.stop)
        matrix[rows, tile.columns] = block[strip]
        for place in range(0, 0 if tile.is_diagonal else width, STRIP):
            part = block[strip, place : place + STRIP]
            column = first_column + place
            matrix[column : column + part.shape[1], rows] = part.T

    map_blocks(write, height, STRIP)
