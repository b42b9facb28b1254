"""Dates under clocks: least squares or maximum likelihood, strict or relaxed, with intervals.

Of a branch of duration t, s sites see s b ~ Poisson(μ) substitutions, μ = s ω t, under a strict
clock. Under the relaxed one every branch has a rate of its own, Gamma distributed with mean ω and
coefficient of variation q: s b is negative binomial, its variance μ + q² μ². Maximum likelihood is
iteratively reweighted least squares with the reciprocals of these variances (McCullagh and Nelder
1989, Generalized Linear Models, 2.5), under the constraints of :mod:`mltree.dating.least_squares`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from mltree.dating.least_squares import COMPLEMENTARY, Bounds, DateFit, Levels, least_squares
from mltree.system.arrays import Float64
from mltree.system.values import Value

Method = Literal["likelihood", "least-squares"]
Clock = Literal["strict", "relaxed"]

PSEUDO = 10.0
"""Substitutions that least squares add to a branch's for its variance, at least (LSD2)."""

LEAST = 0.02
"""Expected substitutions of a branch, at least, where its variance is taken."""

ROUGH = 1e-6
"""Accuracy of replicates, well below their own noise."""

TURNS, ALIKE, MOST_VARIATION = 8, 1e-3, 10.0
"""Estimates of the coefficient of variation in turn with dates, the change that ends them, and the
largest estimate."""

USUAL_VARIATION = 0.2
"""Coefficient of variation of rates that replicates of least squares have (LSD2's -q)."""


class Clocked(Value, eq=False):
    """The branches of a rooted tree, what is known of dates, and a clock."""

    levels: Levels
    lengths: Float64
    """f64 [N], substitutions per site, of the branch above each node."""
    sites: float
    bounds: Bounds
    free_root: bool
    method: Method
    clock: Clock
    variation: float | None = None
    """Coefficient of variation of rates under the relaxed clock; None: estimated."""
    constrained: bool = True

    def weights(self, lengths: Float64, expected: Float64 | None, variation: float) -> Float64:
        """Reciprocals of the branches' variances, f64 [N, R].

        expected  lengths by the dates; None: least squares, or the first turn of likelihood
        """
        s = self.sites
        if expected is None:
            floor = max(float(np.median(self.lengths[1:])), PSEUDO / s)
            variance = (np.maximum(lengths, 0.0) + floor) / s
        else:
            mean = np.maximum(expected, LEAST / s)
            variance = mean / s + (variation * mean) ** 2
        return np.asarray(1.0 / variance, np.float64)

    def expected(self, position: Float64, *, is_apart: bool = False) -> Float64:
        """Branch lengths by the positions of nodes.

        is_apart  False to let the two branches of a free root share theirs
        """
        of_dates = position - position[self.levels.parent]
        if self.free_root and not is_apart:
            of_dates[1] = of_dates[2] = 0.5 * (of_dates[1] + of_dates[2])
        return np.maximum(of_dates, 0.0)

    def fit(
        self, lengths: Float64, bounds: Bounds, variation: float, expected: Float64 | None = None
    ) -> DateFit:
        """Dates of R problems, whose lengths are f64 [N, R].

        expected  f64 [N, 1], lengths that give the weights once for all
        """

        def reweigh(position: Float64) -> Float64:
            return self.weights(lengths, self.expected(position), variation)

        is_fixed = expected is not None or self.method == "least-squares"
        weights = self.weights(lengths, expected, variation)
        return least_squares(
            self.levels, lengths, np.broadcast_to(weights, lengths.shape), bounds,
            free_root=self.free_root, constrained=self.constrained,
            reweigh=None if is_fixed else reweigh,
            accuracy=COMPLEMENTARY if expected is None else ROUGH,
        )  # fmt: skip

    def estimate(self) -> tuple[DateFit, float]:
        """Dates, and the coefficient of variation of the branches' rates."""
        lengths = self.lengths[:, None]
        variation = self.variation or 0.0
        fit = self.fit(lengths, self.bounds, variation)
        if self.clock == "strict":
            return fit, 0.0
        if self.method == "least-squares":
            return fit, USUAL_VARIATION if self.variation is None else self.variation
        if self.variation is None:
            for _ in range(TURNS):
                before, variation = variation, self._variation(fit)
                fit = self.fit(lengths, self.bounds, variation)
                if abs(variation - before) <= ALIKE:
                    break
        return fit, variation

    def _variation(self, fit: DateFit) -> float:
        """The q by which Pearson's statistic is its degrees of freedom; 0 where that is more."""
        s, levels = self.sites, self.levels
        seen, mean = s * self.lengths, s * self.expected(fit.position)[:, 0]
        used = np.arange(levels.n_nodes) > 0
        if self.free_root:
            used[2] = False
            seen, mean = seen.copy(), mean.copy()
            seen[1], mean[1] = seen[1] + seen[2], mean[1] + mean[2]
        free = ~self.bounds.is_known & ~fit.is_held[:, 0]
        left = int(used.sum()) - int(free.sum()) - 1
        rest, mean = (seen - mean)[used] ** 2, np.maximum(mean[used], LEAST)
        if left < 1 or (rest / mean).sum() <= left:
            return 0.0
        low, high = 0.0, MOST_VARIATION
        for _ in range(50):
            middle = 0.5 * (low + high)
            is_more = (rest / (mean + (middle * mean) ** 2)).sum() > left
            low, high = (middle, high) if is_more else (low, middle)
        return 0.5 * (low + high)

    def replicates(self, fit: DateFit, variation: float, count: int, seed: int) -> DateFit:
        """Dates of replicates: lengths drawn as the clock has them, uncertain dates uniformly."""
        rng = np.random.default_rng(seed)
        expected = self.expected(fit.position)
        mean = np.repeat(self.sites * expected, count, axis=1)
        if variation > 0.0:
            shape = 1.0 / variation**2
            mean *= rng.gamma(shape, 1.0 / shape, mean.shape)
        lengths = rng.poisson(mean) / self.sites
        bounds = self.bounds
        place = np.repeat(bounds.preferred[:, None], count, axis=1)
        width = np.where(np.isfinite(bounds.preferred), bounds.upper - bounds.lower, 0.0)
        place += (rng.random(place.shape) - 0.5) * width[:, None]
        drawn = Bounds(bounds.lower, bounds.upper, place)
        return self.fit(lengths, drawn, variation, expected)
