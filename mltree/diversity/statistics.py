"""Statistics of distances: PCoA, PERMANOVA, PERMDISP, ANOSIM, Mantel, distances of groups.

Distances come tile by tile and need lie nowhere as a whole, but for ANOSIM and Mantel. The tests
are those of scikit-bio and vegan: Anderson 2001, Austral Ecology 26:32; 2006, Biometrics 62:245;
Clarke 1993, Austral Ecology 18:117; Mantel 1967, Cancer Research 27:209; the ordination is that of
Halko, Martinsson, Tropp 2011, SIAM Review 53:217. Letters: N samples, G groups, P permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.diversity.unifrac import DistanceBlocks
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.values import Value

OVERSAMPLING, POWER_ROUNDS = 10, 3
"""Columns beside the axes wanted, and products with the matrix that make the axes sharp."""

EXACT = 300
"""Samples up to which all axes are computed, without random numbers."""

DISPERSION_AXES = 10
"""Axes that PERMDISP looks at, as scikit-bio's does: no matter how many are written."""

BATCH = 64
"""Permutations that pass over the distances together."""


class Ordination(NamedTuple):
    """Principal coordinates of samples, with what each axis explains."""

    coordinates: Float64
    """float64 [N, axes]"""
    eigenvalues: Float64
    """float64 [axes]"""
    explained: Float64
    """float64 [axes]: shares of the sum of all eigenvalues."""

    def first(self, axes: int) -> Ordination:
        """The first axes alone."""
        return Ordination(self.coordinates[:, :axes], *(values[:axes] for values in self[1:]))


def _times(blocks: DistanceBlocks, matrix: Float64) -> tuple[Float64, float]:
    """-D²/2 times a matrix, D² the squares of the distances, and the sum of all D²."""
    product, total = np.zeros_like(matrix), 0.0
    for tile, block in blocks:
        squares = block.astype(np.float64) ** 2
        total += float(squares.sum()) * (1 if tile.is_diagonal else 2)
        product[tile.rows] += squares @ matrix[tile.columns]
        if not tile.is_diagonal:
            product[tile.columns] += squares.T @ matrix[tile.rows]
    return -0.5 * product, total


def _centred(matrix: Float64) -> Float64:
    centred: Float64 = matrix - matrix.mean(axis=0)
    return centred


def pcoa(blocks: DistanceBlocks, axes: int, seed: int = 1) -> Ordination:
    """Principal coordinates of the largest eigenvalues of the centred -D²/2.

    Few samples are ordinated exactly. Of many, the axes are those of random products with the
    matrix, which are made a few times.
    """
    n_samples = blocks.n_samples
    axes = min(axes, n_samples)
    width = n_samples if n_samples <= EXACT else min(n_samples, axes + OVERSAMPLING)
    if width == n_samples:
        basis = np.eye(n_samples)
    else:
        start = np.random.default_rng(seed).standard_normal((n_samples, width))
        basis = np.linalg.qr(_centred(start))[0]
        for _ in range(POWER_ROUNDS):
            basis = np.linalg.qr(_centred(_times(blocks, _centred(basis))[0]))[0]
    product, total = _times(blocks, _centred(basis))
    small = basis.T @ _centred(product)
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    order = np.argsort(-values, kind="stable")[:axes]
    values, axes_of = np.maximum(values[order], 0.0), basis @ vectors[:, order]
    largest = np.abs(axes_of).argmax(axis=0)
    axes_of *= np.where(axes_of[largest, np.arange(len(order))] < 0, -1.0, 1.0)
    trace = total / (2 * n_samples)  # of the centred matrix: the sum of all eigenvalues
    shares = values / trace if trace > 0 else np.zeros_like(values)
    return Ordination(axes_of * np.sqrt(values), values, shares)


class TestOfGroups(Value):
    """A test of differences between groups of samples."""

    method: str
    statistic_name: str
    """``pseudo-F``, ``F`` or ``R``."""
    statistic: float
    p_value: float
    permutations: int
    groups: int
    samples: int
    r2: float | None = None
    """Share of the sum of squares that the groups explain."""


def coded(groups: Sequence[str]) -> tuple[Index, int]:
    """The number of each sample's group. Raises: InputError: there are not two, or too many."""
    names, codes = np.unique(np.array(groups, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise InputError("a test of groups needs two groups at least")
    if len(names) == len(groups):
        raise InputError("a test of groups needs groups of several samples: every value is another")
    return codes.astype(np.intp), len(names)


def _permuted(codes: Index, permutations: int, seed: int) -> list[Index]:
    """The groups as they are, and then permuted."""
    rng = np.random.default_rng(seed)
    return [codes, *(rng.permutation(codes) for _ in range(permutations))]


def _p_value(statistics: Float64) -> float:
    """The share of permutations, the groups themselves too, whose statistic is as large."""
    return float((statistics >= statistics[0] * (1 - 1e-12)).mean())


def permanova(
    blocks: DistanceBlocks, groups: Sequence[str], permutations: int = 999, seed: int = 1
) -> TestOfGroups:
    """Permutational analysis of variance.

    Raises:
        InputError: there are not two groups of several samples.
    """
    codes, n_groups = coded(groups)
    n_samples = blocks.n_samples
    within = np.zeros(permutations + 1)
    every = _permuted(codes, permutations, seed)
    sizes = np.bincount(codes)
    total = 0.0
    for start in range(0, len(every), BATCH):
        batch = every[start : start + BATCH]
        members = np.zeros((n_samples, len(batch), n_groups))
        for place, one in enumerate(batch):
            members[np.arange(n_samples), place, one] = 1
        product, squares = _times(blocks, members.reshape(n_samples, -1))
        sums = -2 * np.einsum("npg,npg->pg", members, product.reshape(members.shape))
        total = squares / (2 * n_samples)
        within[start : start + len(batch)] = (sums / (2 * sizes)).sum(axis=1)
    between = total - within
    freedom = n_samples - n_groups
    statistics = between / (n_groups - 1) / np.maximum(within / max(freedom, 1), 1e-300)
    share = float(between[0] / total) if total > 0 else 0.0
    return TestOfGroups(
        "PERMANOVA", "pseudo-F", float(statistics[0]), _p_value(statistics), permutations, n_groups,
        n_samples, share,
    )  # fmt: skip


def permdisp(
    ordination: Ordination, groups: Sequence[str], permutations: int = 999, seed: int = 1
) -> TestOfGroups:
    """Test of equal dispersion: distances from the groups' centroids, in principal coordinates.

    Raises:
        InputError: there are not two groups of several samples.
    """
    codes, n_groups = coded(groups)
    points = ordination.coordinates[:, :DISPERSION_AXES]
    statistics = np.array(
        [_dispersion(points, one, n_groups) for one in _permuted(codes, permutations, seed)]
    )
    return TestOfGroups(
        "PERMDISP", "F", float(statistics[0]), _p_value(statistics), permutations, n_groups,
        len(codes),
    )  # fmt: skip


def _dispersion(points: Float64, codes: Index, n_groups: int) -> float:
    """F of the distances from centroids."""
    sizes = np.bincount(codes, minlength=n_groups)
    centroids = np.array([points[codes == group].mean(axis=0) for group in range(n_groups)])
    distances = np.sqrt(((points - centroids[codes]) ** 2).sum(axis=1))
    means = np.bincount(codes, distances, n_groups) / sizes
    between = (sizes * (means - distances.mean()) ** 2).sum() / (n_groups - 1)
    within = ((distances - means[codes]) ** 2).sum() / max(len(codes) - n_groups, 1)
    return float(between / within) if within > 0 else float("inf")


def ranks(values: Float64) -> Float64:
    """Ranks from 1 on; equal values have the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _condensed(blocks: DistanceBlocks) -> Float64:
    """Distances of all pairs, row by row."""
    n_samples = blocks.n_samples
    square = np.zeros((n_samples, n_samples))
    for tile, block in blocks:
        square[tile] = block
    return square[np.triu_indices(n_samples, 1)]


def anosim(
    blocks: DistanceBlocks, groups: Sequence[str], permutations: int = 999, seed: int = 1
) -> TestOfGroups:
    """Analysis of similarities: ranks of distances between groups against those within.

    Raises:
        InputError: there are not two groups of several samples.
    """
    codes, n_groups = coded(groups)
    ranked = ranks(_condensed(blocks))
    one, two = np.triu_indices(blocks.n_samples, 1)
    divisor = ranked.size / 2

    def statistic(groups_of: Index) -> float:
        is_within = groups_of[one] == groups_of[two]
        return float((ranked[~is_within].mean() - ranked[is_within].mean()) / divisor)

    statistics = np.array([statistic(each) for each in _permuted(codes, permutations, seed)])
    p_value = float((statistics >= statistics[0]).mean())
    return TestOfGroups(
        "ANOSIM", "R", float(statistics[0]), p_value, permutations, n_groups, len(codes)
    )


class Correlation(Value):
    """Result of a Mantel test."""

    r: float
    """Pearson's, of the distances."""
    p_value: float
    """Two-sided."""
    permutations: int


def mantel(
    blocks: DistanceBlocks, other: NDArray[np.floating], permutations: int = 999, seed: int = 1
) -> Correlation:
    """Correlation of the distances with those of another matrix, whose samples are permuted."""
    pairs = np.triu_indices(blocks.n_samples, 1)
    own = _condensed(blocks)
    own = own - own.mean()
    rng = np.random.default_rng(seed)
    size = float(np.sqrt((own**2).sum()))

    def correlation(order: Index) -> float:
        values = other[np.ix_(order, order)][pairs]
        values = values - values.mean()
        scale = size * float(np.sqrt((values**2).sum()))
        return float((own * values).sum() / scale) if scale > 0 else float("nan")

    orders = [
        np.arange(blocks.n_samples),
        *(rng.permutation(blocks.n_samples) for _ in range(permutations)),
    ]
    statistics = np.array([correlation(order) for order in orders])
    is_extreme = np.abs(statistics) >= abs(statistics[0]) * (1 - 1e-12)
    return Correlation(float(statistics[0]), float(is_extreme.mean()), permutations)


class Spread:
    """Distances within groups and between them: counts, mean, quantiles from a histogram."""

    BINS = 1000

    def __init__(self, groups: Sequence[str], largest: float = 1.0) -> None:
        self.names, codes = np.unique(np.array(groups, dtype=str), return_inverse=True)
        self._codes, self._largest = codes.astype(np.intp), largest
        size = len(self.names)
        self.counts = np.zeros((size, size, self.BINS), np.int64)
        """int64 [G, G, bins]: pairs of samples, on the diagonal those within a group."""

    def add(self, blocks: DistanceBlocks) -> Spread:
        """Count the distances of all pairs."""
        groups, bins = len(self.names), self.BINS
        for tile, block in blocks:
            places = np.minimum((block / self._largest * bins).astype(np.intp), bins - 1)
            one, two = self._codes[tile.rows][:, None], self._codes[tile.columns][None, :]
            low, high = np.minimum(one, two), np.maximum(one, two)
            keys = (low * groups + high) * bins + places
            if tile.is_diagonal:
                keys = keys[np.triu_indices(len(keys), 1)]
            self.counts += np.bincount(keys.ravel(), minlength=self.counts.size).reshape(
                self.counts.shape
            )
        return self

    def quantiles(self, one: int, two: int, shares: Sequence[float]) -> list[float]:
        """Quantiles of the distances of two groups; empty where there is no pair."""
        total = np.cumsum(self.counts[min(one, two), max(one, two)])
        if not total[-1]:
            return []
        places = np.searchsorted(total, np.array(shares) * total[-1])
        return [(float(place) + 0.5) / self.BINS * self._largest for place in places]
