"""Tests of tree topologies from resampled log-likelihoods (RELL).

    bp     share of replicates in which a tree is the best (Kishino, Miyata & Hasegawa 1990)
    KH     share in which the best tree's lead, centred, is at least the observed one (one-sided;
           Kishino & Hasegawa 1989); for the best tree itself, the lead of the second best
    SH     the same for the lead of the best of all trees (Shimodaira & Hasegawa 1999)
    wKH, wSH   leads divided by the standard deviation of the two trees' difference
    ELW    expected likelihood weight (Strimmer & Rambaut 2002)
    AU     approximately unbiased, from bootstraps of several sizes (Shimodaira 2002)

The definitions are IQ-TREE's and CONSEL's, except that bp splits exact ties evenly, where they
split near ties at random. Letters: n trees, R replicates; ``resampled`` is f64 [n, R], ``lnl`` f64
[n].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltree.program.engine import Weights
from mltree.supports.resampling import Resampling, share_error
from mltree.system.arrays import Float64, Index
from mltree.system.process import map_blocks, prefetched
from mltree.system.values import Value

BLOCK = 1 << 12
"""Patterns whose differences are summed at a time, to save memory."""

COMPARED = 1 << 17
"""Resampled lnLs that every tree is compared with at a time, by one thread."""

LEVEL = 0.05
"""Significance level: a tree with a smaller p-value is rejected."""

ROUNDING = 1e-12
"""Tolerance of sums of shares: replicates in multiples of 20 often sum to 0.95 exactly."""


def normal_share(z: Float64) -> Float64:
    """Standard normal distribution function, of any shape."""
    return np.asarray(0.5 * np.vectorize(math.erfc, otypes=[float])(-z / math.sqrt(2)))


def normal_density(z: Float64) -> Float64:
    """Standard normal density, of any shape."""
    return np.asarray(np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


def normal_quantile(share: Float64) -> Float64:
    """Inverse of :func:`normal_share`, for shares between 0 and 1, both excluded."""
    return np.asarray(np.vectorize(NormalDist().inv_cdf, otypes=[float])(share))


class TreeTest(Value, eq=False):
    """One test of every tree, [n] each."""

    values: Float64
    """p-values, proportions or weights, 0 to 1."""
    errors: Float64
    """Monte-Carlo standard errors of the values."""
    is_kept: NDArray[np.bool_]
    """True for trees in the 95 % confidence set."""

    @classmethod
    def of_p(cls, values: Float64, errors: Float64) -> TreeTest:
        """A test with p-values."""
        return cls(values, errors, values >= LEVEL)

    @classmethod
    def of_shares(cls, values: Float64, errors: Float64) -> TreeTest:
        """A test whose values sum to 1: the set has the largest, up to 95 % together."""
        ranked = np.argsort(-values, kind="stable")
        before = np.cumsum(values[ranked]) - values[ranked]
        is_kept = np.empty(values.size, dtype=np.bool_)
        is_kept[ranked] = before <= 1 - LEVEL + ROUNDING
        return cls(values, errors, is_kept)


def leads(lnl: Float64) -> Float64:
    """Lead of the best other tree over each tree, f64 as ``lnl``, trees along axis 0.

    The best tree's is negative, or 0 if tied.
    """
    first = lnl.max(axis=0)
    is_best = lnl == first
    others = np.where(is_best, -np.inf, lnl).max(axis=0)
    second = np.where(np.count_nonzero(is_best, axis=0) > 1, first, others)
    return np.asarray(np.where(is_best, second, first) - lnl)


def bootstrap_proportions(resampled: Float64) -> TreeTest:
    """Shares of the replicates in which each tree is the best; tied trees split a replicate."""
    is_best = resampled == resampled.max(axis=0)
    share = (is_best / is_best.sum(axis=0)).mean(axis=1)
    return TreeTest.of_shares(share, share_error(share, resampled.shape[1]))


def _centred(resampled: Float64) -> Float64:
    """Resampled lnL minus each tree's mean: the null hypothesis of equally good trees."""
    return np.asarray(resampled - resampled.mean(axis=1, keepdims=True))


def kishino_hasegawa(lnl: Float64, resampled: Float64) -> TreeTest:
    """The KH test: each tree against the best other one."""
    centred = _centred(resampled)
    best = lnl.argmax()
    rival = np.full(lnl.size, best)
    rival[best] = np.where(np.arange(lnl.size) == best, -np.inf, lnl).argmax()
    return _share(_larger_leads(lnl, centred, rival), resampled)


def _larger_leads(lnl: Float64, centred: Float64, rivals: Index) -> Index:
    """Replicates in which each tree's rival leads by more than in the data, intp [n]."""
    counts = [
        np.count_nonzero(centred[rival] - centred[tree] > lnl[rival] - lnl[tree])
        for tree, rival in enumerate(rivals)
    ]
    return np.array(counts)


def shimodaira_hasegawa(lnl: Float64, resampled: Float64) -> TreeTest:
    """The SH test: each tree against the best of all."""
    centred = _centred(resampled)
    lead = centred.max(axis=0) - centred
    return _share((lead > leads(lnl)[:, None]).sum(axis=1), resampled)


def deviations(sites: Float64, weights: Float64) -> Float64:
    """Standard deviation of the lnL difference of each pair of trees, f64 [n, n].

        variance = N / (N - 1) * sum over N sites of (d - mean d)^2,  d = site lnL's difference

    sites    f64 [n, L]: site lnL of every pattern
    weights  f64 [L]: sites of each pattern
    """
    n_sites = weights.sum()
    means = sites @ weights / n_sites
    product = np.zeros((len(sites), len(sites)))
    for first in range(0, weights.size, BLOCK):
        some = slice(first, first + BLOCK)
        centred = sites[:, some] - means[:, None]
        product += (centred * weights[some]) @ centred.T
    variances = np.diagonal(product)
    variance = np.maximum(variances[:, None] + variances - product - product.T, 0.0)
    return np.asarray(np.sqrt(variance * n_sites / max(n_sites - 1.0, 1.0)))


def weighted_tests(
    lnl: Float64, resampled: Float64, deviation: Float64
) -> tuple[TreeTest, TreeTest]:
    """The weighted tests, wKH and wSH; ``deviation`` f64 [n, n], see :func:`deviations`.

    Trees that differ at no site have no lead over each other.
    """
    centred = _centred(resampled)
    with np.errstate(divide="ignore"):
        scale = np.where(deviation > 0.0, 1.0 / deviation, 0.0)
    leading = (lnl - lnl[:, None]) * scale
    np.fill_diagonal(leading, -np.inf)
    single = _larger_leads(lnl, centred, leading.argmax(axis=1))
    lead = leading.max(axis=1)
    farthest = (centred.max(axis=0) - centred).max(axis=1) * scale.max(axis=1)
    contested = np.flatnonzero(farthest > lead)  # the others never lag as far as they do

    def lagging(block: slice) -> Index:
        """Replicates of a block in which each tree lags by more than in the data, intp [n]."""
        block_lnl = centred[:, block]
        ahead, counts = np.empty_like(block_lnl), np.zeros(lnl.size, np.intp)
        for tree in contested:
            np.subtract(block_lnl, block_lnl[tree], out=ahead)
            ahead *= scale[tree, :, None]
            ahead[tree] = -np.inf
            counts[tree] = np.count_nonzero(ahead.max(axis=0) > lead[tree])
        return counts

    size = max(1, COMPARED // lnl.size)
    several = np.sum(map_blocks(lagging, centred.shape[1], size), axis=0)
    return _share(single, resampled), _share(several, resampled)


def expected_weights(resampled: Float64) -> TreeTest:
    """Each tree's share of the total likelihood, averaged over the replicates (ELW)."""
    likelihood = np.exp(resampled - resampled.max(axis=0))
    weight = likelihood / likelihood.sum(axis=0)
    error = weight.std(axis=1) / np.sqrt(resampled.shape[1])
    return TreeTest.of_shares(weight.mean(axis=1), error)


def _share(larger: ArrayLike, resampled: Float64) -> TreeTest:
    replicates = resampled.shape[1]
    p = np.asarray(larger) / replicates
    return TreeTest.of_p(p, share_error(p, replicates))


# The approximately unbiased test: p-values from bootstraps of several sizes (Shimodaira 2002).
#
# The bootstrap proportion of a tree under r N sites, N those of the data, follows
#
#     z(r) = -Phi^-1(bp) = d sqrt(r) + c / sqrt(r)
#
# with d the signed distance of the data from the border of the region where the tree is the best,
# and c the border's curvature; p = 1 - Phi(d - c). Maximum likelihood fits both to the counts of
# ten sizes, starting from weighted least squares, as in CONSEL and IQ-TREE.
#
# A tree that hardly any replicate, or nearly every one, has as the best gives no counts to fit:
# z(r) is then that of a normal lead with the replicates' mean and deviation, p next to 0 or 1.
#
# Letters: n trees, K scales, R replicates of each scale.

SCALES = tuple(tenths / 10 for tenths in range(5, 15))
"""Sizes of the bootstraps, relative to the data: CONSEL's and IQ-TREE's."""

DESIGN = np.stack([np.sqrt(SCALES), 1 / np.sqrt(SCALES)], axis=1)
"""Coefficients of d and c in z, f64 [K, 2]."""

LEAST_TELLING = 2
"""Scales needed at which a tree is neither always nor never the best, to determine d and c."""

FARTHEST = 1e3
"""z of a lead that does not vary: p is 0 or 1."""

STEPS = 30
"""Steps of the fit at most, as in CONSEL; four to six are usual."""

PRECISION = 1e-10
"""Predicted gain in lnL below which the fit ends, as in CONSEL."""

LEAST_SHARE = 1e-12
"""Smallest expected proportion of replicates, or of the others."""


class Multiscale:
    """Counts of the replicates in which each tree is the best, at every scale."""

    def __init__(self, n_trees: int) -> None:
        self._replicates = np.zeros(len(SCALES))
        self._counts = np.zeros((len(SCALES), n_trees))
        self._sums = np.zeros((2, len(SCALES), n_trees))
        """Sums of each tree's lag behind the best other one, and of its square."""

    def count(self, scale: int, resampled: Float64) -> None:
        """Add the lnL f64 [n, R] of replicates of ``SCALES[scale]``."""
        behind = leads(resampled)
        won, tied = (np.count_nonzero(is_so, axis=1) for is_so in (behind < 0, behind == 0))
        self._counts[scale] += won + tied / 2
        self._sums[:, scale] += behind.sum(axis=1), np.einsum("nr,nr->n", behind, behind)
        self._replicates[scale] += resampled.shape[1]

    def test(self) -> TreeTest:
        """The AU test of all trees."""
        p, errors = fit(self._counts.T, self._replicates)
        share = self._counts.T / self._replicates
        is_told = ((share > 0.0) & (share < 1.0)).sum(axis=1) >= LEAST_TELLING
        d, c = _least_squares(self._normal(), np.ones_like(share)).T
        values = np.where(is_told, p, normal_share(c - d))
        return TreeTest.of_p(values, np.where(is_told, errors, 0.0))

    def _normal(self) -> Float64:
        """The z of every tree and scale, f64 [n, K], if leads are normal."""
        mean, square = self._sums / self._replicates[:, None]
        deviation = np.sqrt(np.maximum(square - mean * mean, 0.0))
        scale = np.maximum(deviation, np.abs(mean) / FARTHEST)
        z: Float64 = np.divide(mean, scale, out=np.zeros_like(mean), where=mean != 0)
        return z.T


def fit(counts: Float64, replicates: Float64) -> tuple[Float64, Float64]:
    """p-values and their standard errors, f64 [n] each.

    counts      f64 [n, K]: replicates in which a tree was the best
    replicates  f64 [K]
    """
    start = _least_squares(*_observed(counts, replicates))
    best, covariance = _most_likely(start, counts, replicates)
    z = best[:, 0] - best[:, 1]
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    return normal_share(-z), normal_density(z) * np.sqrt(np.maximum(variance, 0.0))


def _observed(counts: Float64, replicates: Float64) -> tuple[Float64, Float64]:
    """The z of the counts and their inverse variances, f64 [n, K] each; 0 where z is infinite."""
    share = counts / replicates
    telling = (share > 0) & (share < 1)
    z = -normal_quantile(np.where(telling, share, 0.5))
    variance = np.where(telling, share * (1 - share), 1.0)
    return z, np.where(telling, normal_density(z) ** 2 * replicates / variance, 0.0)


def _least_squares(z: Float64, weight: Float64) -> Float64:
    """Fit d and c, f64 [n, 2], to z by weighted least squares."""
    return _solve(_information(weight), np.einsum("nk,kj->nj", weight * z, DESIGN))


def _most_likely(start: Float64, counts: Float64, replicates: Float64) -> tuple[Float64, Float64]:
    """Maximum-likelihood d and c, f64 [n, 2], and their covariances, f64 [n, 2, 2].

    By Fisher scoring: the likelihood of a probit model has one maximum. A fit that diverges keeps
    its start.
    """
    best = start.copy()
    for _ in range(STEPS):
        information, score = _scoring(best, counts, replicates)
        step = _solve(information, score)
        best += step
        if np.abs(np.einsum("nj,nj->n", step, score)).max(initial=0.0) < PRECISION:
            break
    lost = ~np.isfinite(best).all(axis=1)
    best[lost] = start[lost]
    information, _ = _scoring(best, counts, replicates)
    unit = np.broadcast_to(np.eye(2), (len(best), 2, 2))
    covariance = np.stack([_solve(information, unit[:, j]) for j in range(2)], axis=2)
    return best, covariance


def _scoring(at: Float64, counts: Float64, replicates: Float64) -> tuple[Float64, Float64]:
    """Fisher's information f64 [n, 2, 2] and the score f64 [n, 2]."""
    z = at @ DESIGN.T
    share, density = np.clip(normal_share(-z), LEAST_SHARE, 1 - LEAST_SHARE), normal_density(z)
    spread = share * (1 - share)
    residual = (counts - replicates * share) * density / spread
    weight = replicates * density**2 / spread
    return _information(weight), -residual @ DESIGN


def _information(weight: Float64) -> Float64:
    return np.asarray(np.einsum("nk,ki,kj->nij", weight, DESIGN, DESIGN))


def _solve(matrix: Float64, right: Float64) -> Float64:
    """Solutions of 2 x 2 systems, f64 [n, 2]; 0 for singular ones."""
    (a, b), (c, d) = np.moveaxis(matrix, 0, -1)
    e, f = right.T
    determinant = a * d - b * c
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.stack([d * e - b * f, a * f - c * e], axis=1) / determinant[:, None]
    return np.where(determinant[:, None] > 0, x, 0.0)


# All tests of a set of trees, from one set of replicates.

TESTS = ("bp-RELL", "p-KH", "p-SH", "p-WKH", "p-WSH", "c-ELW", "p-AU")
"""Names and order of the tests: IQ-TREE's."""

WHOLE = SCALES.index(1.0)
"""Index of the scale of all tests but AU."""


def tree_tests(
    lnl: Float64,
    sites: Callable[[], Float64],
    resampled: Callable[[Weights], Float64],
    weights: Float64,
    parts: Sequence[slice],
    seed: int,
    replicates: int,
    chosen: Sequence[str] = TESTS,
) -> dict[str, TreeTest]:
    """The chosen tests, by name.

    lnl        f64 [n]: two trees or more
    sites      gives f64 [n, L] site lnL, which the weighted tests need
    resampled  lnL of all trees under rows of weights: f64 [n, R] from [R, L]
    weights    f64 [L]: weights of the data
    parts      the patterns of each part
    """
    scales = range(len(SCALES)) if "p-AU" in chosen else (WHOLE,)
    multiscale = Multiscale(len(lnl))
    whole = []
    for scale in scales:
        name, size = f"tree tests, scale {SCALES[scale]}", SCALES[scale]
        resampling = Resampling(weights, parts, seed, name, size, in_blocks=True)
        for lnl_of_batch in prefetched(resampled, resampling.batches(replicates)):
            if "p-AU" in chosen:
                multiscale.count(scale, lnl_of_batch)
            if scale == WHOLE:
                whole.append(lnl_of_batch)
    again = np.concatenate(whole, axis=1)

    @cache
    def weighted() -> tuple[TreeTest, TreeTest]:
        return weighted_tests(lnl, again, deviations(sites(), weights))

    makers: dict[str, Callable[[], TreeTest]] = {
        "bp-RELL": lambda: bootstrap_proportions(again),
        "p-KH": lambda: kishino_hasegawa(lnl, again),
        "p-SH": lambda: shimodaira_hasegawa(lnl, again),
        "p-WKH": lambda: weighted()[0],
        "p-WSH": lambda: weighted()[1],
        "c-ELW": lambda: expected_weights(again),
        "p-AU": multiscale.test,
    }
    return {name: makers[name]() for name in chosen}


# Local tests of inner branches, against the two interchanges across each.
#
# With L0 the lnL of the tree, L1 and L2 those of its neighbours across a branch, the five branches
# around it optimised, and L* the same of resampled data (RELL):
#
#     aLRT       L0 - max(L1, L2)             (Anisimova & Gascuel 2006)
#     SH-aLRT    share of replicates in which aLRT exceeds by 0.05 or more the lead of the best of
#                L0* - L0, L1* - L1 and L2* - L2 over the second        (Guindon et al. 2010)
#     LBP        share of replicates in which L0* is the largest (Adachi & Hasegawa 1996); tied ones
#                split a replicate, as do the three at a branch of length 0
#     aBayes     1 / (1 + e^(L1 - L0) + e^(L2 - L0))               (Anisimova et al. 2011)
#     aLRT's p   of 2 aLRT under half a chi square with a degree of freedom and half a point mass,
#                Bonferroni-corrected for three topologies (PhyML)
#
# Letters: B inner branches, R replicates.

MARGIN = 0.05
"""lnL by which aLRT has to exceed the resampled lead: PhyML's and IQ-TREE's."""

TIED = 1e-3
"""lnL within which resampled trees are tied: branches that collapse differ by some 1e-5."""

TOPOLOGIES = 3
"""Ways to join four subtrees."""


class BranchTests(Value):
    """Every test on every inner branch, f64 [B] each; supports are 0 to 1."""

    lnl: Float64
    """f64 [B, 3]: L0, L1, L2."""
    sh_alrt: Float64
    lbp: Float64
    parametric: Float64
    abayes: Float64
    replicates: int

    @property
    def alrt(self) -> Float64:
        """The aLRT statistic, f64 [B]: lnL of the tree minus lnL of the better interchange."""
        return _alrt(self.lnl)


def local_tests(
    lnl: Float64, resampled: Callable[[Weights], Float64], resampling: Resampling, replicates: int
) -> BranchTests:
    """All local tests of every inner branch.

    lnl        f64 [2B + 1]: both neighbours across each branch, and last the tree
    resampled  the same under rows of weights, f64 [2B + 1, R] from [R, L]
    """
    branches = len(lnl) // 2
    observed = _triples(lnl[:, None])[..., 0]
    passed, won = np.zeros(branches), np.zeros(branches)
    for drawn in resampling.batches(replicates):
        again = _triples(resampled(drawn))
        passed += sh_alrt(observed, again).sum(axis=1)
        is_best = again > again.max(axis=1, keepdims=True) - TIED
        won += (is_best[:, 0] / is_best.sum(axis=1)).sum(axis=1)
    return BranchTests(
        lnl=observed,
        sh_alrt=passed / max(replicates, 1),
        lbp=won / max(replicates, 1),
        parametric=parametric(observed),
        abayes=abayes(observed),
        replicates=replicates,
    )


def _triples(rows: Float64) -> Float64:
    """L0, L1, L2 of every branch, f64 [B, 3, R], from f64 [2B + 1, R]."""
    branches = len(rows) // 2
    tree = np.broadcast_to(rows[-1], (branches, 1, rows.shape[1]))
    return np.concatenate([tree, rows[:-1].reshape(branches, 2, -1)], axis=1)


def _alrt(observed: Float64) -> Float64:
    return np.asarray(observed[:, 0] - observed[:, 1:].max(axis=1))


def sh_alrt(observed: Float64, resampled: Float64) -> Float64:
    """Replicates that support each branch, 0 or 1 [B, R]; from f64 [B, 3] and f64 [B, 3, R]."""
    centred = np.sort(resampled - observed[..., None], axis=1)
    lead = centred[:, 2] - centred[:, 1]
    return (_alrt(observed)[:, None] > lead + MARGIN).astype(np.float64)


def abayes(observed: Float64) -> Float64:
    """Posterior of the tree's topology among the three, f64 [B], from f64 [B, 3]."""
    likelihood = np.exp(observed - observed.max(axis=1, keepdims=True))
    return np.asarray(likelihood[:, 0] / likelihood.sum(axis=1))


def parametric(observed: Float64) -> Float64:
    """1 - p of aLRT, f64 [B], from f64 [B, 3]; 0 where an interchange is better."""
    statistic = _alrt(observed)
    roots = np.sqrt(np.maximum(statistic, 0.0)).tolist()
    chi_square = np.array([math.erf(root) for root in roots])  # of 2 aLRT
    return np.where(statistic >= 0.0, ((1.0 + chi_square) / 2.0) ** TOPOLOGIES, 0.0)
