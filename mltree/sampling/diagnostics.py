"""Convergence of Markov chains: effective sample sizes, R-hat, ASDSF, burn-in, runs compared.

Variables are rows of float64 [V, R, n]: R runs of n samples each, burn-in left out. R-hat and ESS
are those of Vehtari et al. 2021 (Bayesian Analysis 16:667), as Stan and ArviZ have them: runs are
cut in halves, which count as chains of their own, and values are replaced by normal scores of their
ranks. An indicator, 0 or 1, has only two ranks, so that its scores would change nothing.

R-hat and ASDSF of many short runs are large by chance alone, above the bounds that suit a few long
ones. So R-hat and ASDSF have many runs in G groups (Margossian et al. 2024, Bayesian Analysis 19,
"Nested R-hat"). One run that is stuck among many is noticed where runs are compared two by two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from mltree.supports.tree_tests import normal_quantile
from mltree.system.arrays import Float64
from mltree.system.values import Value

LEAST_ESS = 625.0
"""ESS at which a mean's standard error is 1 % of the width of its 95 % interval (Fabreti and Höhna
2022, Methods in Ecology and Evolution 13:77)."""

MOST_RHAT = 1.01
"""R-hat up to which runs agree (Vehtari et al. 2021)."""

MOST_ASDSF = 0.01
"""Average standard deviation of split frequencies up to which runs agree (MrBayes' manual)."""

TELLING = (0.025, 0.975)
"""Frequencies of splits between which an ESS says something (Fabreti and Höhna 2022)."""

MOST_ALONE, GROUPS = 8, 4
"""Runs up to which each is a group of R-hat and ASDSF of its own, and groups of more of them."""

FREQUENT = 0.1
"""Frequency that a split must reach in one run to count for the ASDSF (MrBayes' minpartfreq)."""

MASS = 0.95
"""Probability of an interval of highest posterior density."""

LEVEL = 0.01
"""Probability that sound runs fail a comparison, over all comparisons of a kind."""

WINDOW = 0.1
"""Share of a run whose mean is compared with that of the second half (Geweke 1992)."""

BURN_IN_STEP, MOST_BURN_IN = 0.05, 0.5
"""Shares of a run that are tried as burn-in: multiples of the step."""

FEWEST = 4
"""Samples of a run below which nothing is estimated."""

AT_ONCE = 1 << 24
"""Values that are transformed together."""

_RESOLUTION = 1e-15
"""Range of values below which they count as one value, as in ArviZ."""


def groups(runs: int) -> list[slice]:
    """The runs of each group."""
    count = runs if runs <= MOST_ALONE else GROUPS
    return [slice(*ends) for ends in pairwise(runs * group // count for group in range(count + 1))]


def of_groups(columns: Float64) -> Float64:
    """Means of the groups of runs, float64 [V, G]; columns are [V, R]."""
    return np.stack([columns[:, group].mean(axis=1) for group in groups(columns.shape[1])], axis=1)


def rhat(values: Float64) -> Float64:
    """R-hat of ranks, float64 [V]: the larger one of location and scale; NaN of a constant.

    values  float64 [V, R, n]
    """
    return _by_pieces(values, _rank_rhat)


def ess(values: Float64) -> Float64:
    """Effective sample size of ranks ("bulk ESS"), float64 [V]; values are float64 [V, R, n]."""
    return _by_pieces(values, lambda piece: _ess(normal_scores(halves(piece))))


def ess_of_mean(values: Float64) -> Float64:
    """Effective sample size of the mean, float64 [V], without ranks; values are [V, R, n]."""
    return _by_pieces(values, lambda piece: _ess(halves(piece)))


def ess_of_tails(values: Float64) -> Float64:
    """Effective sample size of the 5 % or 95 % quantile, the smaller one, float64 [V]."""

    def of_tails(piece: Float64) -> Float64:
        low, high = np.quantile(piece, (0.05, 0.95), axis=(1, 2), keepdims=True)
        below = (_ess(halves((piece <= bound).astype(np.float64))) for bound in (low, high))
        return np.minimum(*below)

    return _by_pieces(values, of_tails)


def split_rhat(values: Float64) -> Float64:
    """R-hat of the values themselves, runs cut in halves, float64 [V]: for indicators."""
    return _by_pieces(values, lambda piece: _rhat(halves(piece)))


def psrf(runs: Sequence[Float64]) -> float:
    """Potential scale reduction factor of one variable (Gelman and Rubin 1992).

    runs  float64 [n] of each run; n may differ. NaN of one run, a constant, or single values.

    MrBayes 3.2's is another one: its variance within a run has the sums of the runs before in it.
    """
    counts = [run.size for run in runs]
    if len(runs) < 2 or min(counts) < 2:
        return math.nan
    n = sum(counts) / len(runs)
    within = float(np.mean([run.var(ddof=1) for run in runs]))
    between = float(np.var([run.mean() for run in runs], ddof=1))
    if within <= 0:
        return math.nan
    return math.sqrt((n - 1) / n + (len(runs) + 1) / len(runs) * between / within)


def halves(values: Float64) -> Float64:
    """Both halves of every run as runs, [V, 2R, n // 2]; an odd number loses its middle."""
    half = values.shape[-1] // 2
    return np.concatenate((values[..., :half], values[..., values.shape[-1] - half :]), axis=1)


def normal_scores(values: Float64) -> Float64:
    """Normal scores (Blom 1958) of the ranks among all runs, [V, R, n]; ties share a mean rank."""
    flat = values.reshape(len(values), -1)
    size = flat.shape[1]
    scores = normal_quantile((np.arange(2, 2 * size + 1) / 2 - 0.375) / (size + 0.25))
    ranks = np.empty(flat.shape, np.intp)
    for row, twice in zip(flat, ranks, strict=True):
        order = np.argsort(row, kind="stable")
        starts = np.flatnonzero(np.concatenate(([True], np.diff(row[order]) != 0)))
        ends = np.append(starts[1:], size)
        twice[order] = np.repeat(starts + ends + 1, ends - starts)  # first rank plus last
    return scores[ranks - 2].reshape(values.shape)


def _by_pieces(values: Float64, function: Callable[[Float64], Float64]) -> Float64:
    """A function of some variables at a time; NaN of variables with values that are not finite."""
    count, runs, n = values.shape
    found = np.full(count, np.nan)
    usable = np.flatnonzero(np.isfinite(values).all(axis=(1, 2))) if n >= FEWEST else ()
    step = 1 + AT_ONCE // max(runs * n, 1)
    for start in range(0, len(usable), step):
        piece = usable[start : start + step]
        found[piece] = function(values[piece])
    return found


def _rank_rhat(values: Float64) -> Float64:
    split = halves(values)
    folded = np.abs(split - np.median(split, axis=(1, 2), keepdims=True))
    return np.fmax(_rhat(normal_scores(split)), _rhat(normal_scores(folded)))


def _rhat(chains: Float64) -> Float64:
    """Square root of the total variance over that within groups, float64 [V].

    chains  float64 [V, 2R, n]: first halves of runs, then second halves, in groups of their own
    """
    n = chains.shape[2]
    means = np.split(chains.mean(axis=2), 2, axis=1)
    between = n * np.concatenate([of_groups(half) for half in means], axis=1).var(axis=1, ddof=1)
    within = chains.var(axis=2, ddof=1).mean(axis=1)
    shared = [half[:, group] for half in means for group in groups(half.shape[1])]
    if shared[0].shape[1] > 1:
        within = within + np.mean([runs.var(axis=1, ddof=1) for runs in shared], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Float64 = np.sqrt((between / within + n - 1) / n)
    return np.where(within > 0, ratio, np.nan)


def _ess(chains: Float64) -> Float64:
    """Effective sample size of chains, float64 [V], by Geyer's initial monotone sequence.

    chains  float64 [V, C, n]
    """
    _, count, n = chains.shape
    total = count * n
    spread = np.ptp(chains, axis=(1, 2))
    covariance = _autocovariance(chains)
    within = covariance[:, 0] * n / (n - 1)
    variance = within * (n - 1) / n
    if count > 1:
        variance = variance + chains.mean(axis=2).var(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (within[:, None] - covariance) / variance[:, None]
    rho[:, 0] = 1.0
    last = (n - 3) // 2 if n > FEWEST else 0
    pairs = rho[:, : 2 * last + 2].reshape(len(rho), last + 1, 2).sum(axis=2)
    # The sequence ends with the first pair that is not positive, or at its last lag.
    ends = np.where((pairs > 0).all(axis=1), last, (pairs <= 0).argmax(axis=1))
    falling = np.minimum.accumulate(pairs, axis=1)
    sums = np.where(np.arange(last + 1) < ends[:, None], falling, 0.0).sum(axis=1)
    row = np.arange(len(rho))
    even = rho[row, 2 * ends]
    tau = 2 * sums - 1 + np.where((even > 0) | (pairs[row, ends] >= 0), even, 0.0)
    sizes: Float64 = total / np.maximum(tau, 1 / math.log10(total))
    return np.where(spread < _RESOLUTION, float(total), sizes)


def _autocovariance(chains: Float64) -> Float64:
    """Autocovariances at lags 0 to n-1, the mean over chains, float64 [V, n]."""
    n = chains.shape[2]
    size = 1 << (2 * n - 1).bit_length()
    wave = np.fft.rfft(chains - chains.mean(axis=2, keepdims=True), size, axis=2)
    power = (wave.real**2 + wave.imag**2).mean(axis=1)
    covariance: Float64 = np.fft.irfft(power, size, axis=1)[:, :n] / n
    return covariance


def hpd(values: Float64, mass: float = MASS) -> tuple[float, float]:
    """The shortest interval that holds at least a share ``mass`` of the values, float64 [n]."""
    ordered = np.sort(values)
    inside = min(max(math.ceil(mass * ordered.size - 1e-9), 1), ordered.size)
    lows, highs = ordered[: ordered.size - inside + 1], ordered[inside - 1 :]
    at = int(np.argmin(highs - lows))
    return float(lows[at]), float(highs[at])


class Moments(NamedTuple):
    """A sampled quantity: mean, variance, interval of highest density, median, PSRF."""

    mean: float
    variance: float
    low: float
    high: float
    median: float
    psrf: float

    @classmethod
    def of(cls, runs: Sequence[Float64]) -> Moments:
        """The moments of all runs' values together; NaN where there are none."""
        values = np.concatenate(runs) if runs else np.empty(0)
        if not np.isfinite(values).all() or not values.size:
            return cls(*[math.nan] * 6)
        variance = float(values.var(ddof=1)) if values.size > 1 else 0.0
        median, agreement = float(np.median(values)), psrf(runs)
        return cls(float(values.mean()), variance, *hpd(values), median, agreement)


def asdsf(frequencies: Float64, least: float = FREQUENT) -> tuple[float, float]:
    """Average and maximum standard deviation of split frequencies, over splits that are frequent.

    frequencies  float64 [S, R]
    least        frequency that a split must reach in a group of runs to count
    NaN of a single run; 0 where no split is frequent.
    """
    if frequencies.shape[1] < 2:
        return math.nan, math.nan
    frequencies = of_groups(frequencies)
    deviations = frequencies[(frequencies >= least).any(axis=1)].std(axis=1, ddof=1)
    return (float(deviations.mean()), float(deviations.max())) if deviations.size else (0.0, 0.0)


def burn_in(values: Float64) -> float:
    """The share of the samples to leave out: behind it no run begins unlike its own second half.

    values  float64 [V, R, n], all samples

    Means of the first samples behind a share are compared with those of the second half, as in
    Geweke 1992 (Bayesian Statistics 4:169), but by the variance and autocorrelation of the second
    half alone: a climb has so much variance of its own that it would hide itself.
    """
    n = values.shape[2]
    half, width = n - n // 2, round(WINDOW * n)
    if width < 1 or half < FEWEST:
        return 0.0
    chains = values.reshape(-1, 1, n)
    chains = chains[np.isfinite(chains).all(axis=(1, 2))]
    chains = chains[np.ptp(chains[:, 0, n - half :], axis=1) > 0]
    if not len(chains):
        return 0.0
    end = chains[..., -half:]
    times = half / ess_of_mean(end)
    mean, deviation = end.mean(axis=(1, 2)), end.std(axis=(1, 2))
    errors = deviation * np.sqrt(times * (1 / width + 1 / half))
    most = -float(normal_quantile(np.array(LEVEL / (2 * len(chains)))))
    for step in range(round(MOST_BURN_IN / BURN_IN_STEP)):
        start = round(step * BURN_IN_STEP * n)
        begin = chains[:, 0, start : start + width].mean(axis=1)
        if (np.abs(begin - mean) <= most * errors).all():
            return float(start / n)
    return MOST_BURN_IN


# Runs compared two by two, as convenience does (Fabreti and Höhna 2022): how far apart two samples
# are, and how far two samples of their sizes may be. Sizes count up to LEAST_ESS: a difference that
# is small enough for use is no failure, whatever the sizes would resolve.


def distribution_distances(values: Float64) -> Float64:
    """Kolmogorov-Smirnov distances of all pairs of runs, float64 [V, P]; values are [V, R, n]."""
    ordered = np.sort(values, axis=2)
    runs, n = values.shape[1:]
    found = np.empty((len(values), runs * (runs - 1) // 2))
    for variable, rows in zip(ordered, found, strict=True):
        for pair, (one, other) in enumerate(combinations(variable, 2)):
            points = np.concatenate((one, other))
            below = (np.searchsorted(run, points, "right") for run in (one, other))
            rows[pair] = np.abs(np.subtract(*below)).max() / n
    return found


def distance_bounds(sizes: Float64) -> Float64:
    """Largest Kolmogorov-Smirnov distances that chance explains, float64 [V, P].

    sizes  float64 [V, R]: the ESS of each run
    """
    one, other = _pairs(np.minimum(sizes, LEAST_ESS))
    width = math.sqrt(-math.log(LEVEL / (2 * max(one.size, 1))) / 2)
    bounds: Float64 = width * np.sqrt(1 / one + 1 / other)
    return bounds


def frequency_differences(frequencies: Float64) -> Float64:
    """Differences of split frequencies between all pairs of runs, float64 [S, P]."""
    one, other = _pairs(frequencies)
    return np.abs(one - other)


def difference_bounds(frequencies: Float64, sizes: Float64) -> Float64:
    """Largest differences of split frequencies that chance explains, float64 [S, P].

    frequencies, sizes  float64 [S, R]: of the splits in each run, and the ESS there
    """
    one, other = _pairs(np.minimum(sizes, LEAST_ESS))
    mean = np.mean(_pairs(frequencies), axis=0)
    quantile = -float(normal_quantile(np.array(LEVEL / (2 * max(one.size, 1)))))
    # A difference of one effective sample is not unlikely, however rare the split is.
    deviation = np.sqrt(mean * (1 - mean) * (1 / one + 1 / other))
    bounds: Float64 = quantile * deviation + np.maximum(1 / one, 1 / other)
    return bounds


def _pairs(columns: Float64) -> tuple[Float64, Float64]:
    """The columns of all pairs of runs, [V, P] each."""
    pairs = list(combinations(range(columns.shape[1]), 2))
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    return columns[:, first], columns[:, second]


class Verdict(Value):
    """A rule of convergence, and how it is met."""

    rule: str
    value: float
    """The worst that there is."""
    bound: float
    where: str
    """The parameter or split that has the worst value; empty where there is none."""
    is_met: bool
    is_least: bool = False
    """True where the bound is to be reached, not kept below."""

    @classmethod
    def least(cls, rule: str, values: Float64, bound: float, names: Sequence[str]) -> Verdict:
        """Values, float64 [V] of variables with names, that must reach a bound."""
        worst = int(np.argmin(np.nan_to_num(values, nan=0.0)))
        value = float(values[worst])
        return cls(rule, value, bound, names[worst], value >= bound, True)

    @classmethod
    def most(cls, rule: str, values: Float64, bound: float, names: Sequence[str]) -> Verdict:
        """Values, float64 [V], that must not exceed a bound."""
        worst = int(np.argmax(np.nan_to_num(values, nan=np.inf)))
        value = float(values[worst])
        return cls(rule, value, bound, names[worst], value <= bound)

    @classmethod
    def excess(cls, rule: str, values: Float64, bounds: Float64, names: Sequence[str]) -> Verdict:
        """Values, float64 [V, P], that must not exceed bounds of their own."""
        worst, pair = np.unravel_index(int(np.argmax(values - bounds)), values.shape)
        value, bound = float(values[worst, pair]), float(bounds[worst, pair])
        return cls(rule, value, bound, names[int(worst)], value <= bound)
