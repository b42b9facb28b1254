"""Rate heterogeneity among sites: gamma (+G), free (+R), site (+PSR) and invariable rates (+I).

A form is a value: categories of sites, each with a relative rate and a weight, mean rate 1, and the
parameters behind them. Invariable sites go with every form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mltree.models.portable import (
    computed,
    elementwise,
    exp,
    exp_of_many,
    expm1_of_many,
    log,
    log_of_many,
)
from mltree.system.arrays import Float64, Int64
from mltree.system.errors import ModelError
from mltree.system.values import Value


class Variable(NamedTuple):
    """A free parameter as the optimiser moves it, on a scale where steps are relative."""

    name: str
    """Name of the parameter for readers: ``alpha``."""
    low: float
    high: float
    value: float
    """The present value, which may be out of bounds."""


class Categories(NamedTuple):
    """Categories of sites; there may be many models along the first axes."""

    rates: Float64
    """f64 [..., K]: relative rates, of mean 1."""
    weights: Float64
    """f64 [..., K]: proportions of sites, of sum 1."""


class Heterogeneity(Value, ABC):
    """Rate heterogeneity of the sites that vary: K categories, n free parameters, here none."""

    @property
    @abstractmethod
    def categories(self) -> Categories:
        """The K categories."""

    @property
    @abstractmethod
    def kind(self) -> Hashable:
        """Key that is equal for forms with the same categories at the same points."""

    def variables(self) -> list[Variable]:
        """The n free parameters; empty where the user gave the values."""
        return []

    def at(self, points: Float64) -> Categories:
        """The categories [M, K] with the variables at the rows of f64 [M, n]."""
        return Categories(*(np.tile(each, (len(points), 1)) for each in self.categories))

    def with_vector(self, x: Float64) -> Heterogeneity:
        """A copy with the variables at f64 [n]."""
        del x
        return self


class OneRate(Heterogeneity):
    """No heterogeneity: one category of rate 1."""

    @property
    def categories(self) -> Categories:
        """The one category."""
        return Categories(np.ones(1), np.ones(1))

    @property
    def kind(self) -> Hashable:
        """The class."""
        return OneRate


ONE_RATE = OneRate()


def categories_at(forms: Sequence[Heterogeneity], points: Sequence[Float64]) -> list[Categories]:
    """Categories of every form at its points f64 [M, n], computed at once for forms of a kind."""
    kinds: dict[Hashable, list[int]] = {}
    for number, form in enumerate(forms):
        kinds.setdefault(form.kind, []).append(number)
    categories: dict[int, Categories] = {}
    for alike in kinds.values():
        together = forms[alike[0]].at(np.concatenate([points[number] for number in alike]))
        ends = np.cumsum([len(points[number]) for number in alike])[:-1]
        split = (np.split(each, ends) for each in together)
        categories |= zip(alike, map(Categories, *split), strict=True)
    return [categories[number] for number in range(len(forms))]


def with_invariable(categories: Categories, p_invariant: ArrayLike | None) -> Categories:
    """The categories, and one of rate 0 and weight p after them where some sites are invariable.

    The others share 1 - p and are sped up by 1/(1 - p), so that a branch length stays the expected
    number of substitutions per site. ``p_invariant`` is a number, or one for each of many models.

    Raises: ModelError where a proportion is not in [0, 1).
    """
    if p_invariant is None:
        return categories
    p = np.asarray(p_invariant, np.float64)[..., None]
    if not ((p >= 0.0) & (p < 1.0)).all():
        raise ModelError(
            f"the proportion of invariable sites must be in [0, 1), not {p_invariant!r}"
        )
    rates, weights = categories.rates / (1.0 - p), categories.weights * (1.0 - p)
    p = np.broadcast_to(p, rates[..., :1].shape)
    return Categories(
        np.concatenate([rates, np.zeros_like(p)], axis=-1), np.concatenate([weights, p], axis=-1)
    )


# Quantiles of the gamma distribution, the same bits everywhere (:mod:`mltree.models.portable`).
#
# With D(x) = x^a e^-x / Γ(a + 1), the regularised lower incomplete gamma functions of a and a + 1
# are (Abramowitz and Stegun 6.5.29)
#
#     P(a, x)     = D(x) (1 + S(x)),    S(x) = x/(a+1) + x²/((a+1)(a+2)) + ...
#     P(a + 1, x) = D(x) S(x)
#
# so that at the p-quantile, where P(a, x) = p, the second is p S/(1 + S): one series of positive
# terms gives both. P(a, x) <= x^a / Γ(a + 1), log P is concave in log x, and so Newton's steps from
# where that bound is p rise to the quantile and never pass it; Halley's are half as many.
#
# SciPy has the same, but takes longer to import than a small alignment to evaluate.

LARGEST_SHAPE = 1e6
"""Largest shape with quantiles: S takes some 8 sqrt(a) terms."""

NEGLIGIBLE = 2.0**-54
"""A term this small beside the sum of those before it changes no bit."""

CLOSE = 1e-6
"""Step in log x whose cube, the size of Halley's next step, is less than a rounding."""

NOISE = 2.0**-50
"""Size of a step that may be rounding alone, by that of log x."""

LEAST_DIVISOR = 0.5
"""Lower bound of the divisor of Newton's step in Halley's, which diverges far from the quantile."""

TERMS = 32
"""Terms that are added at once: as many as the shapes of most data need."""

STIRLING_FROM = 10.0
"""Shape from which Stirling's series is exact to a rounding."""

STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
"""Coefficients of 1/a, 1/a³, ... in log Γ(a) (Abramowitz and Stegun 6.1.41)."""


def quantiles(shape: Float64, p: Float64) -> tuple[Float64, Float64]:
    """f64 [...] each: x/a and P(a + 1, x) at the p-quantile x of Gamma(a, 1).

    ``shape``, a, f64 [..., 1], from 1e-300 to LARGEST_SHAPE; ``p`` f64 [m], in (0, 1).
    """
    rows = shape.reshape(-1)
    both = computed(halley, rows, elementwise(_excess, rows), p, log(p))
    size = np.broadcast_shapes(shape.shape, p.shape)
    ratios, below = (each.reshape(size) for each in both)
    return ratios, below


def halley(
    shapes: Float64, excesses: Float64, p: Float64, log_p: Float64
) -> tuple[Float64, Float64]:
    """f64 [n, m] of :func:`quantiles`, of f64 [n] shapes at f64 [m] shares of the distribution."""
    size = len(shapes), len(p)
    a, excess = (np.repeat(x, len(p)) for x in (shapes, excesses))
    log_p, p = (np.tile(x, len(shapes)) for x in (log_p, p))
    v = (log_p + excess) / a - 1.0
    left = np.arange(a.size)
    while left.size:
        step = _step(a[left], v[left], (log_p + excess)[left])
        v[left] += step
        left = left[np.abs(step) > CLOSE + NOISE * np.abs(v[left])]
    ratio = exp_of_many(v)
    series = _series(a, a * ratio)
    return ratio.reshape(size), (p * (series / (1.0 + series))).reshape(size)


def _step(a: Float64, v: Float64, target: Float64) -> Float64:
    """Halley's step in v = log(x/a) to log P(a, x) + excess(a) = ``target``.

    log P = a (v - (e^v - 1)) - excess(a) + log(1 + S), in which nothing large cancels, has the
    derivatives f' = a / (1 + S) and f'' = -f' (f' + a (e^v - 1)).
    """
    total = 1.0 + _series(a, a * exp_of_many(v))
    rise = a * expm1_of_many(v)
    newton = (target - (a * v - rise) - log_of_many(total)) * total / a
    return newton / np.maximum(1.0 - newton * (a / total + rise) / 2.0, LEAST_DIVISOR)


def _series(a: Float64, x: Float64) -> Float64:
    """f64 [n]: S(x); each is independent of the number of terms that others need."""
    numbers = np.arange(1.0, TERMS + 1.0)
    total, last = np.zeros_like(x), np.ones_like(x)
    while (last > NEGLIGIBLE * total).any():
        terms = x[:, None] / (a[:, None] + numbers)
        terms[:, 0] *= last
        np.multiply.accumulate(terms, axis=1, out=terms)
        last = terms[:, -1].copy()
        terms[:, 0] += total
        total = np.add.accumulate(terms, axis=1)[:, -1]
        numbers += TERMS
    return total


def _excess(a: float) -> float:
    """The excess log Γ(a + 1) - a log a + a, by Stirling's formula for large a."""
    if a < STIRLING_FROM:
        return math.lgamma(a + 1.0) - a * math.log(a) + a
    terms = (c / a ** (2 * n + 1) for n, c in enumerate(STIRLING))
    return 0.5 * math.log(2.0 * math.pi * a) + sum(terms)


# Discrete gamma categories (+G), with one parameter, alpha. Yang (1994, J. Mol. Evol. 39:306-314):
# site rates follow a gamma distribution of mean 1 and shape alpha, cut into K classes of equal
# probability, each represented by its mean or by its median.

GammaMode = Literal["mean", "median"]

ALPHA_MIN = 0.02
"""Smallest shape, as in RAxML-NG: below it the lowest rates are zero in double precision."""
ALPHA_MAX = 1000.0
"""Largest shape in a search, as in RAxML 8: the rates of 4 categories are then within 8 % of one.
At RAxML-NG's 100 data whose sites do not differ end up to 0.2 lnL lower."""


class Gamma(Heterogeneity):
    """K equally probable categories whose rates follow a gamma distribution."""

    n_categories: int
    """K, at least 2."""
    alpha: float
    """Shape of the distribution; small shapes mean unequal rates."""
    mode: GammaMode = "mean"
    """Representative of a category: mean or median."""
    fixed: bool = False
    """True where the user gave alpha."""

    @property
    def categories(self) -> Categories:
        """The K categories."""
        (categories,) = categories_of([self])
        return categories

    @property
    def kind(self) -> Hashable:
        """Number of categories, mode, and alpha where it is fixed."""
        return Gamma, self.n_categories, self.mode, self.alpha if self.fixed else None

    def variables(self) -> list[Variable]:
        """Log alpha, unless fixed."""
        low, high = math.log(ALPHA_MIN), math.log(ALPHA_MAX)
        return [] if self.fixed else [Variable("alpha", low, high, math.log(self.alpha))]

    def at(self, points: Float64) -> Categories:
        """The categories [M, K] for every row of f64 [M, 1], computed once for equal alphas."""
        alphas = np.full(len(points), self.alpha) if self.fixed else exp(points[:, 0])
        unlike, which = np.unique(alphas, return_inverse=True)
        rates = gamma_rates(unlike, self.n_categories, self.mode)[which]
        return Categories(rates, np.full_like(rates, 1.0 / self.n_categories))

    def with_vector(self, x: Float64) -> Gamma:
        """A copy with another alpha."""
        return self if self.fixed else replace(self, alpha=math.exp(x[0]))


def categories_of(forms: Sequence[Heterogeneity]) -> list[Categories]:
    """Categories of every form, computed at once for gamma distributions of a kind."""
    kinds: dict[tuple[int, GammaMode], list[Gamma]] = {}
    for form in dict.fromkeys(form for form in forms if isinstance(form, Gamma)):
        kinds.setdefault((form.n_categories, form.mode), []).append(form)
    of_gamma: dict[Gamma, Categories] = {}
    for (count, mode), alike in kinds.items():
        rates = gamma_rates([form.alpha for form in alike], count, mode)
        weights = np.full_like(rates, 1.0 / count)
        of_gamma |= zip(alike, map(Categories, rates, weights), strict=True)
    return [of_gamma[form] if isinstance(form, Gamma) else form.categories for form in forms]


def gamma_rates(alpha: ArrayLike, categories: int, mode: GammaMode = "mean") -> Float64:
    """f64 [..., K]: relative rates of K equally probable gamma classes, ascending, of mean 1.

    One row for every shape in ``alpha``. With q(p) the p-quantile of Gamma(alpha, 1) and P the
    regularised lower incomplete gamma function (Yang 1994, eq. 10):

        mean    K · (P(alpha + 1, q((k + 1)/K)) - P(alpha + 1, q(k/K)))
        median  q((2k + 1)/2K), scaled to mean 1

    Rates too small for double precision come out as 0, which is right: such a class does not
    evolve. Beyond LARGEST_SHAPE they differ from 1 as 1/sqrt(alpha), to the sixth digit.

    Raises: ModelError where an alpha is not positive or categories is below 1.
    """
    shape = np.asarray(alpha, np.float64)[..., None]
    if not ((shape > 0.0) & np.isfinite(shape)).all():
        raise ModelError(f"gamma shape alpha must be positive, not {alpha!r}")
    if categories < 1:
        raise ModelError(f"gamma needs at least one rate category, not {categories}")
    if categories == 1:
        return np.ones_like(shape)
    near = np.minimum(shape, LARGEST_SHAPE)
    if mode == "mean":
        _, below = quantiles(near, np.arange(1, categories) / categories)
        rates = np.diff(below, axis=-1, prepend=0.0, append=1.0)
    else:
        rates, _ = quantiles(near, (np.arange(categories) + 0.5) / categories)
    scaled: Float64 = rates * (categories / rates.sum(axis=-1, keepdims=True))
    beyond = 1.0 + (scaled - 1.0) * np.sqrt(near / shape)
    return np.asarray(np.where(near < shape, beyond, scaled), np.float64)


# Free rates (+R): categories whose rates and weights are all estimated. Yang (1995, Genetics
# 139:993-1005); Soubrier et al. (2012, Mol. Biol. Evol. 29:3345-3358), who show that a few such
# categories fit better than a gamma distribution. K categories have 2K - 2 free parameters, since
# weights sum to 1 and the mean rate is 1.

RATE_RATIO_MIN = 1e-6
"""Smallest rate relative to the last. IQ-TREE and RAxML-NG stop at rates of 1e-3; but a constant
site costs a category about its rate times the tree's length, which is lnL where such sites are
thousands and the tree is long."""
RATE_RATIO_MAX = 1e3
"""Largest rate relative to the last, as in RAxML-NG."""
WEIGHT_RATIO_MAX = 1e4
"""Largest ratio of a weight to the last one, either way: IQ-TREE's least weight is 1e-4."""

_TINIEST = np.finfo(np.float64).tiny


class FreeRates(Heterogeneity, eq=False):
    """K categories of any rates and weights; `of` and `from_gamma` make them."""

    rates: Float64
    """f64 [K]: relative rates, weighted mean 1."""
    weights: Float64
    """f64 [K]: proportions of sites, sum 1."""
    fixed: bool = False
    """True where the user gave the values."""

    @classmethod
    def of(
        cls, rates: Float64, weights: Float64, *, fixed: bool = False, in_order: bool = False
    ) -> FreeRates:
        """Categories in proportion to the values, in ascending order of their rates.

        ``in_order``: keep the order of the values.

        Raises: ModelError where a value is negative, or all are zero that count.
        """
        if (rates < 0.0).any() or (weights < 0.0).any():
            raise ModelError("rates of categories and their weights must not be negative")
        if not (rates * weights).sum() > 0.0:
            raise ModelError("the rates of all categories that have a weight are zero")
        form = cls(*_normalised(rates, weights), fixed)
        return form if in_order else cls(*form.ascending(), fixed)

    @classmethod
    def from_gamma(cls, categories: int, alpha: float) -> FreeRates:
        """Categories of equal weights with the rates of gamma categories, to start from."""
        return cls.of(gamma_rates(alpha, categories), np.ones(categories))

    @classmethod
    def with_few_fast(cls, categories: int, span: float) -> FreeRates:
        """Categories whose rates rise by equal factors to ``span`` while weights fall."""
        speeds = exp(np.linspace(0.0, math.log(span), categories))
        return cls.of(speeds, 1.0 / speeds)

    @property
    def categories(self) -> Categories:
        """The K categories."""
        return Categories(self.rates, self.weights)

    def ascending(self) -> Categories:
        """The K categories in ascending order of their rates."""
        order = np.argsort(self.rates, kind="stable")
        return Categories(self.rates[order], self.weights[order])

    @property
    def kind(self) -> Hashable:
        """Number of categories, and the categories where they are fixed."""
        fixed = (self.rates.tobytes(), self.weights.tobytes()) if self.fixed else None
        return FreeRates, len(self.rates), fixed

    def variables(self) -> list[Variable]:
        """Logs of the ratios of rates, and then of weights, to those of the last category."""
        if self.fixed:
            return []
        rates = self.rates, math.log(RATE_RATIO_MIN), math.log(RATE_RATIO_MAX)
        weights = self.weights, -math.log(WEIGHT_RATIO_MAX), math.log(WEIGHT_RATIO_MAX)
        return [
            Variable(f"{name} of category {k}", low, high, value)
            for name, (values, low, high) in (("rate", rates), ("weight", weights))
            for k, value in enumerate(_log_ratios(values), 1)
        ]

    def at(self, points: Float64) -> Categories:
        """The categories [M, K] for every row of f64 [M, 2K - 2], or [M, 0] where all is fixed."""
        if self.fixed:
            return super().at(points)
        ratios, ones, k = exp(points), np.ones((len(points), 1)), len(self.rates)
        rates = np.concatenate([ratios[:, : k - 1], ones], axis=1)
        return _normalised(rates, np.concatenate([ratios[:, k - 1 :], ones], axis=1))

    def with_vector(self, x: Float64) -> FreeRates:
        """A copy with other rates and weights, in the order of the vector."""
        if self.fixed:
            return self
        rates, weights = self.at(x[None])
        return replace(self, rates=rates[0], weights=weights[0])


def _normalised(rates: Float64, weights: Float64) -> Categories:
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return Categories(rates / (weights * rates).sum(axis=-1, keepdims=True), weights)


def _log_ratios(values: Float64) -> list[float]:
    """Logs of the ratios of all values but the last to the last."""
    return [math.log(max(v, _TINIEST) / max(values[-1], _TINIEST)) for v in values[:-1].tolist()]


# A rate for every site (+PSR): no distribution, and no sum over categories.
#
# Stamatakis (2006, Proc. 20th IPDPS, "CAT" in RAxML): every pattern has the rate that suits it
# best, of a few that all share. A likelihood then takes one category, not four. What the rates say
# depends on the tree, so that trees are searched under them, and scored under Γ.
#
# The rates are found in one launch: the lnL of every pattern under each rate of `GRID`. Of those
# the few are kept that lose least,
#
#     max over S, |S| = n   of   Σ_i w_i max over r in S of lnL_i(r)
#
# found exactly by dynamic programming, for lnL_i rises up to its maximum and falls behind it: a
# pattern takes one of the two kept rates around its best. RAxML searches along a line, pattern by
# pattern, and keeps the rates with most lnL.

DEFAULT_SITE_RATES = 25
"""Rates that the sites of a part share, as in RAxML and ExaML."""

PATTERNS_A_RATE, LEAST_RATES = 128, 4
"""No more rates than one for so many patterns, and these at least: each takes P matrices of its
own. On a CPU core the insertions of 64 taxa x 890 patterns took 231 ms under +G4, 178 with 8 rates,
423 with 25; of 50 x 3,549 623, 328 and 419."""

GRID: Float64 = np.geomspace(2.0**-10, 2.0**6, 49)
"""Rates that are tried, three to a doubling: a pattern of m changes loses about m/150 at most."""


SILENT = 1e-6
"""lnL between a pattern's rates below which it tells nothing of them: that of one taxon alone has
the same under all. It takes an average rate, not the lowest, which would shorten the tree."""


class SiteRates(Heterogeneity, eq=False):
    """A set of rates, fitted apart from all variables, and the rate of every pattern of a part."""

    most: int
    """Largest number of rates."""
    rates: Float64 = field(default_factory=lambda: np.ones(1))
    """f64 [n]: ascending, weighted mean 1 over the sites; 1 alone while none are known."""
    category: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """i64 [L]: index of each pattern's rate; empty while patterns are not known, for the first."""

    @property
    def of_patterns(self) -> Float64:
        """f64 [L]: the rate of every pattern."""
        return self.rates[self.category]

    @property
    def categories(self) -> Categories:
        """The rates, with equal weights, which no sum uses."""
        return Categories(self.rates, np.full_like(self.rates, 1.0 / self.rates.size))

    @property
    def kind(self) -> Hashable:
        """The rates."""
        return SiteRates, self.rates.tobytes()


def rates_for(patterns: int, most: int) -> int:
    """Number of rates for a part of so many patterns, at most ``most``."""
    return min(most, max(LEAST_RATES, patterns // PATTERNS_A_RATE))


class FittedRates(NamedTuple):
    """Rates fitted to the patterns of a part."""

    rates: Float64
    """f64 [n]: of mean 1 over the sites that tell their rate."""
    category: Int64
    """i64 [L]: of every pattern."""
    speed: float
    """Mean rate before scaling, by which branch lengths are multiplied."""
    lnl: float
    """lnL of the part."""


def fitted_rates(lnls: Float64, weights: Float64, rates: Float64, count: int) -> FittedRates:
    """The ``count`` rates of f64 [J] that fit patterns best, and the rate of each pattern.

    lnls     f64 [J, L]: of every pattern under each rate
    weights  f64 [L]: how many sites show each pattern
    """
    kept = _kept(lnls, weights, min(count, len(rates)))
    category = lnls[kept].argmax(axis=0)
    lnl = float((weights * lnls[kept].max(axis=0)).sum())
    silent = np.ptp(lnls, axis=0) < SILENT
    telling = np.where(silent, 0.0, weights)
    speed = 1.0
    if telling.any():
        speed = float((telling * rates[kept][category]).sum() / telling.sum())
    category[silent] = np.abs(log(rates[kept] / speed)).argmin()
    return FittedRates(rates[kept] / speed, category, speed, lnl)


def _kept(lnls: Float64, weights: Float64, count: int) -> list[int]:
    """Indices of the rows that are kept, rising."""
    many = len(lnls)
    peak = lnls.argmax(axis=0)
    order = np.argsort(peak, kind="stable")
    rows = (lnls * weights)[:, order]
    first = np.searchsorted(peak[order], np.arange(many + 1))
    between = np.full((many, many), -np.inf)
    for low in range(many):
        for high in range(low + 1, many):
            patterns = slice(first[low], first[high])
            between[low, high] = np.maximum(rows[low, patterns], rows[high, patterns]).sum()
    best = np.array([rows[b, : first[b]].sum() for b in range(many)])
    behind = []
    for _ in range(count - 1):
        every = best[:, None] + between
        behind.append(every.argmax(axis=0))
        best = every.max(axis=0)
    best = best + [rows[b, first[b] :].sum() for b in range(many)]
    kept = [int(best.argmax())]
    for before in reversed(behind):
        kept.append(int(before[kept[-1]]))
    return kept[::-1]
