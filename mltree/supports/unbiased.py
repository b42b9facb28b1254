"""The approximately unbiased test: p-values from bootstraps of several sizes (Shimodaira 2002).

A tree's bootstrap proportion under r N sites instead of N follows

    z(r) = -Phi^-1(bp) = d sqrt(r) + c / sqrt(r)

with d the signed distance of the data from where the tree stops being the best, and c the curvature
of that border; p = 1 - Phi(d - c). Both are fitted by maximum likelihood to the counts of ten
sizes, starting from weighted least squares, as in CONSEL and IQ-TREE.

Where hardly any replicate has a tree as the best, or hardly any another one, there is nothing to
count: z(r) is then that of a normal lead with the mean and the deviation that the replicates' leads
have. p is next to 0 or 1 either way.

Letters: n trees, K scales, R replicates of each scale.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from mltree.arrays import Float64
from mltree.supports.tree_tests import TreeTest, leads

__all__ = ["SCALES", "Multiscale"]

SCALES = tuple(tenths / 10 for tenths in range(5, 15))
"""Sizes of the bootstraps, in those of the data: CONSEL's and IQ-TREE's."""

LEAST_TELLING = 2
"""Scales in which a tree is neither always nor never the best: fewer do not determine d and c."""

FARTHEST = 1e3
"""z of a lead that does not vary: p is 0 or 1."""

STEPS = 30
"""Of the fit at most, as in CONSEL; four to six are usual."""

PRECISION = 1e-10
"""Of the fit: ends when a step promises less (natural log), as in CONSEL."""

LEAST_SHARE = 1e-12
"""Proportion that a model may expect at least, of replicates, or of others."""


class Multiscale:
    """Counts how often each tree is the best, at every scale, as replicates come in."""

    def __init__(self, n_trees: int) -> None:
        self._replicates = np.zeros(len(SCALES))
        self._counts = np.zeros((len(SCALES), n_trees))
        self._sums = np.zeros((2, len(SCALES), n_trees))
        """Of how far each tree is behind the best other one, and of its square."""

    def count(self, scale: int, resampled: Float64) -> None:
        """Take in f64 [n, R] lnL of replicates of ``SCALES[scale]``."""
        behind = leads(resampled)
        won, tied = (np.count_nonzero(is_so, axis=1) for is_so in (behind < 0, behind == 0))
        self._counts[scale] += won + tied / 2
        self._sums[:, scale] += behind.sum(axis=1), np.einsum("nr,nr->n", behind, behind)
        self._replicates[scale] += resampled.shape[1]

    def test(self) -> TreeTest:
        """The p-values of all trees."""
        p, errors = fit(self._counts.T, self._replicates)
        share = self._counts.T / self._replicates
        is_told = ((share > 0.0) & (share < 1.0)).sum(axis=1) >= LEAST_TELLING
        normal = _least_squares(self._normal(), np.ones_like(share), _design())
        return TreeTest.of_p(
            np.where(is_told, p, ndtr(normal[:, 1] - normal[:, 0])), np.where(is_told, errors, 0.0)
        )

    def _normal(self) -> Float64:
        """The z of every tree and scale, f64 [n, K], if leads are normal."""
        mean, square = self._sums / self._replicates[:, None]
        deviation = np.sqrt(np.maximum(square - mean * mean, 0.0))
        least = np.abs(mean) / FARTHEST
        z: Float64 = np.divide(
            mean, np.maximum(deviation, least), out=np.zeros_like(mean), where=mean != 0
        )
        return z.T


def fit(counts: Float64, replicates: Float64) -> tuple[Float64, Float64]:
    """p-values and their standard errors, f64 [n] each.

    counts  f64 [n, K] in how many of f64 [K] replicates a tree was the best
    """
    design = _design()
    start = _least_squares(*_observed(counts, replicates), design)
    best, covariance = _most_likely(start, counts, replicates, design)
    z = best[:, 0] - best[:, 1]
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return ndtr(-z), density * np.sqrt(np.maximum(variance, 0.0))


def _design() -> Float64:
    """What d and c are multiplied with in z, f64 [K, 2]."""
    root = np.sqrt(np.array(SCALES))
    design: Float64 = np.stack([root, 1 / root], axis=1)
    return design


def _observed(counts: Float64, replicates: Float64) -> tuple[Float64, Float64]:
    """The z of the counts and their inverse variances, f64 [n, K] each; 0 where there is no z."""
    share = counts / replicates
    telling = (share > 0) & (share < 1)
    z = -ndtri(np.where(telling, share, 0.5))
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    variance = np.where(telling, share * (1 - share), 1.0)
    return z, np.where(telling, density**2 * replicates / variance, 0.0)


def _least_squares(z: Float64, weight: Float64, design: Float64) -> Float64:
    """Fits d and c, f64 [n, 2], to z by weighted squares."""
    return _solve(_information(weight, design), np.einsum("nk,kj->nj", weight * z, design))


def _most_likely(
    start: Float64, counts: Float64, replicates: Float64, design: Float64
) -> tuple[Float64, Float64]:
    """The best d and c, f64 [n, 2], and their covariances, f64 [n, 2, 2], by Fisher's scoring.

    The likelihood of a probit model has one maximum. A fit that does not get there keeps its start.
    """
    best = start.copy()
    for _ in range(STEPS):
        information, score = _scoring(best, counts, replicates, design)
        step = _solve(information, score)
        best += step
        if np.abs(np.einsum("nj,nj->n", step, score)).max(initial=0.0) < PRECISION:
            break
    lost = ~np.isfinite(best).all(axis=1)
    best[lost] = start[lost]
    information, _ = _scoring(best, counts, replicates, design)
    unit = np.broadcast_to(np.eye(2), (len(best), 2, 2))
    covariance = np.stack([_solve(information, unit[:, j]) for j in range(2)], axis=2)
    return best, covariance


def _scoring(
    at: Float64, counts: Float64, replicates: Float64, design: Float64
) -> tuple[Float64, Float64]:
    """Fisher's information f64 [n, 2, 2] and the score f64 [n, 2]."""
    z = at @ design.T
    share = np.clip(ndtr(-z), LEAST_SHARE, 1 - LEAST_SHARE)
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    spread = share * (1 - share)
    residual = (counts - replicates * share) * density / spread
    weight = replicates * density**2 / spread
    return _information(weight, design), -residual @ design


def _information(weight: Float64, design: Float64) -> Float64:
    information: Float64 = np.einsum("nk,ki,kj->nij", weight, design, design)
    return information


def _solve(matrix: Float64, right: Float64) -> Float64:
    """Solutions of 2 x 2 systems, f64 [n, 2]; 0 where they have none."""
    (a, b), (c, d) = np.moveaxis(matrix, 0, -1)
    e, f = right.T
    determinant = a * d - b * c
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.stack([d * e - b * f, a * f - c * e], axis=1) / determinant[:, None]
    return np.where(determinant[:, None] > 0, x, 0.0)
