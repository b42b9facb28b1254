"""Model parameters by Newton's method, an iteration to a launch.

The variables are the parameters of a part's model on their log scales and the log of a factor on
its branch lengths, so that coordinate ascent with branch smoothing converges in few turns. Gradient
and Hessian come from differences, and every value that an iteration needs stands in one launch, for
all the trees and models that are optimised side by side. Given the branch lengths, parts are
problems of their own: the n-th points of all parts are one tree of the launch, whose lnL comes back
part by part. A gradient alone takes a fifth of the points, but five times as many launches; it is
what models of many variables are left with.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, pairwise

import numpy as np

from mltree.fit.part_optimiser import (
    PartOptimiser,
    fit_among_sites,
    optima_of,
    scale_bounds,
    share_exchangeabilities,
)
from mltree.fit.rate_optimiser import FittedAmongSites
from mltree.fit.settings import BranchSettings, ModelSettings
from mltree.fit.trust_region import BoxOptimiser, advance
from mltree.likelihood.requests import (
    Answers,
    Request,
    Steps,
    Stepwise,
    class_weights,
    part_log_likelihoods,
)
from mltree.models.eigen import ModelArrays
from mltree.models.parameters import arrays_of, variables_of_matrix, vector, with_vector
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.models.portable import exp
from mltree.models.rates import FreeRates, Gamma
from mltree.models.substitution import Mixed, Model, arrays_of_all
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree

# Where the estimate of a model's parameters begins: lnL may have several maxima.

FEW_INVARIABLE = (0.001, 0.1)
MANY_INVARIABLE = (0.8, 5.0)
"""(p, alpha) of +I+G: a site that never changes is invariable, or slow as many others are, and
either way lnL may have a maximum. Of 21 data sets, 15 starts each, 13 had both: the one with many
was reached from here in all, the one with few in 12, and in the last it is the lower one by 72."""

LOW_SHARE = 0.15
"""Proportion of invariable sites that tells which of the two maxima a model is nearer to."""

FREE_START = (1.0, 0.1)
"""(alpha, p) of the gamma distribution from which free rates start, and of invariable sites beside
them. Of 12 fits to real and 53 to simulated data, R2 to R10 with and without +I, this start ended
at the best of 2 to 15, to 0.05, in all. Others did not: alpha 0.3 ended 12.7 lower once and 3.8
lower under LG+F+R4 on a protein, 2.0 1.5 and 0.6 lower."""

FEW_FAST = (100.0, 0.3)
"""(span, p) of the other start: the fastest category is so many times as fast as the slowest, and
as much rarer. Where a few sites change at almost every branch, lnL may have a maximum that no gamma
distribution leads to: of 34 fits of R4 and I+R3 to 200 to 400 simulated sites of 5 to 8 taxa, the
start above (and alpha 0.5 and 0.2) missed 4, by 0.14 to 1.74, all of which this one found. A fitted
model starts from both too."""

ORDERS = (0, 2, 3, 1), (0, 3, 2, 1)
"""Orders of the rates of LG4X's four matrices, slow ones first: lnL has a maximum in many. Of 14
proteins of 5 to 30 taxa, LG4X's own order ended 0.04 to 32 lower than the best of all 24 and of
three gamma distributions in nine, with these in one, by 0.04."""

LONG, MIDDLING, SHORT = 0.5, 0.1, 0.02
"""Expected substitutions per site, of every branch: where starts from afar begin. lnL has maxima in
branch lengths too, which go with those in rates among sites."""

FEW_FROM_AFAR, FREE_FROM_AFAR = (0.001, 1.0), (3.0, 1000.0)
"""(p, alpha) of +I+G beside long branches; alpha of free rates beside middling branches, and their
span beside short ones.

Of 64 sets of 5 to 30 taxa and 40 to 1,500 sites under +I+G4, the starts above ended 0.04 to 8.3
lower than the best of 60 in nine, with these and the model itself beside long branches in one, by
0.04; of 40 under +R3 in five, by 0.06 to 1.6, with these in none. LG4X beside long branches, as it
is and with the rates of its matrices the other way round: of 18 sets of 5 to 8 proteins and 60 to
180 sites four ended 2.3 to 7.7 lower than the best of ten random starts without these, with these
one (2.5)."""

TILTED, TILT = 8, 1.5
"""Starts of classes that are models, and by how much (standard deviation of the logs) each moves
every class's exchangeabilities and frequencies: classes that are alike would stay so. Of 30 fits to
600 to 1,000 simulated sites of two classes, 5 starts ended at the best of 10 random ones, or above
it, in 29; in the other one, 1.7 below, the 6th to 8th did. From 3 at 0.7, 2 of 4 ended lower."""


def starting_models(model: Model) -> list[Model]:
    """Return the model, and other starts from which another maximum may be reached."""
    return [model, *_of_rates(model), *_of_classes(model)]


def distant_models(model: Model) -> list[tuple[float, Model]]:
    """Return distant starts, if rates among sites are estimated: a branch length, and a model.

    Mixtures have none, for they take long, but those whose classes have a rate each (LG4X).
    """
    form, p_is_free = model.heterogeneity, _has_free_p(model)
    if model.mixture is not None:
        if not (model.mixture.is_paired and isinstance(form, FreeRates) and not form.fixed):
            return []
        rates = FreeRates.from_gamma(len(form.rates), FREE_START[0]).rates[::-1]
        backwards = FreeRates.of(rates, np.ones(len(rates)), in_order=True)
        return [(LONG, model), (LONG, dataclasses.replace(model, heterogeneity=backwards))]
    if isinstance(form, FreeRates) and not form.fixed:
        k, (alpha, span) = len(form.rates), FREE_FROM_AFAR
        even, fast = FreeRates.from_gamma(k, alpha), FreeRates.with_few_fast(k, span)
        return [
            (length, dataclasses.replace(model, heterogeneity=rates))
            for length, rates in ((MIDDLING, even), (SHORT, fast))
        ]
    if isinstance(form, Gamma) and not form.fixed:
        few = [(LONG, _with_gamma(model, form, *FEW_FROM_AFAR))] if p_is_free else []
        return [(LONG, model), *few]
    return [(MIDDLING, model)] if p_is_free else []


def _has_free_p(model: Model) -> bool:
    return model.p_invariant is not None and not model.p_invariant_fixed


def _with_gamma(model: Model, form: Gamma, p: float, alpha: float) -> Model:
    return dataclasses.replace(
        model, p_invariant=p, heterogeneity=dataclasses.replace(form, alpha=alpha)
    )


def _of_rates(model: Model) -> list[Model]:
    """Return starts with other rates among sites."""
    form, p_is_free = model.heterogeneity, _has_free_p(model)
    if isinstance(form, FreeRates) and not form.fixed:
        k = len(form.rates)
        alpha, few = FREE_START
        if model.mixture is not None and model.mixture.is_paired:
            rates = FreeRates.from_gamma(k, alpha).rates
            orders = (FreeRates.of(rates[list(o)], np.ones(k), in_order=True) for o in ORDERS)
            return [
                dataclasses.replace(model, heterogeneity=rates_of_start)
                for rates_of_start in orders
            ]
        span, some = FEW_FAST
        others = [
            dataclasses.replace(
                model, heterogeneity=rates, p_invariant=p if p_is_free else model.p_invariant
            )
            for rates, p in (
                (FreeRates.from_gamma(k, alpha), few),
                (FreeRates.with_few_fast(k, span), some),
            )
        ]
        x = vector(model)
        return [other for other in others if not np.array_equal(vector(other), x)]
    if isinstance(form, Gamma) and not form.fixed and p_is_free:
        is_few = model.p_invariant is not None and model.p_invariant < LOW_SHARE
        return [_with_gamma(model, form, *(MANY_INVARIABLE if is_few else FEW_INVARIABLE))]
    return []


def _of_classes(model: Model) -> list[Model]:
    """Return starts with other classes of a mixture, moved at random but always in the same way."""
    count = sum(len(variables_of_matrix(component)) for component in model.components)
    if not isinstance(model.mixture, Mixed) or not count:
        return []
    x, rng = vector(model), np.random.default_rng(0)
    tilts = np.zeros((TILTED, len(x)))
    tilts[:, :count] = TILT * rng.normal(size=(TILTED, count))
    return [with_vector(model, x + tilt) for tilt in tilts]


SPARSE = 0.75
"""Share of the points of all parts from which on trees of single parts are less work: a part and a
point cost either the same (PoCL, 100 parts, 40 taxa)."""

RECORDS = 50_000
"""Tips of such trees in a launch, at most: about 1 us each to plan, which a GPU waits for."""


@dataclass
class Fit:
    """A tree and a model that are optimised together."""

    tree: Tree
    """Tree whose lengths change in place."""
    model: PartitionModel
    weights: int = 0
    """Row of pattern weights."""
    first_part: int = 0
    """First part, among the engine's parts."""
    lnl: float = -np.inf
    """lnL of tree and model, natural log."""
    lacking: float = 0.0
    """lnL that steps still promised where an optimisation of the model ended; 0 once converged."""
    part_lnls: Float64 | None = None
    """f64[parts], after an optimisation of the model."""
    curvatures: Sequence[Float64 | None] = ()
    """f64[n, n] of each part's free variables, after an optimisation of the model."""

    @property
    def case(self) -> Case:
        """Case of the tree under the model."""
        return Case(self.model.arrays(), self.weights, self.first_part)


def starts_of(model: PartitionModel) -> list[PartitionModel]:
    """Return the model, and other starts from which its parts may reach further maxima."""
    return [model, *_side_by_side(model, [starting_models(part) for part in model.models])[1:]]


def distant_starts(model: PartitionModel) -> list[tuple[float, PartitionModel]]:
    """Return distant starts, each with a length of all branches: the part's with most starts."""
    of_parts = [distant_models(part) for part in model.models]
    pairs = zip(of_parts, model.models, strict=True)
    models = [[start for _, start in starts] or [part] for starts, part in pairs]
    lengths = [length for length, _ in max(of_parts, key=len)]
    return list(zip(lengths, _side_by_side(model, models), strict=False))


def _side_by_side(
    model: PartitionModel, of_parts: Sequence[Sequence[Model]]
) -> list[PartitionModel]:
    """Put the n-th models of all parts together; a part with fewer has its last."""
    count = max(map(len, of_parts))
    return [
        model.with_parts([starts[min(n, len(starts) - 1)] for starts in of_parts])
        for n in range(count)
    ]


def best_fit(fits: Sequence[Fit]) -> Fit:
    """Return the best of optimised fits: part by part, for parts are independent."""
    best = max(fits, key=lambda fit: fit.lnl)
    if best.model.n_parts == 1:
        return best
    lnls = np.array([fit.part_lnls for fit in fits])
    chosen = lnls.argmax(axis=0)
    models = [fits[n].model.models[part] for part, n in enumerate(chosen)]
    scalers = np.array([fits[n].model.scalers[part] for part, n in enumerate(chosen)])
    for part, n in enumerate(chosen) if best.tree.lengths.ndim > 1 else ():
        best.tree.lengths[part] = fits[n].tree.lengths[part]
    best.model = best.model.with_parts(models, scalers)
    best.part_lnls = lnls.max(axis=0)
    best.curvatures = ()
    best.lnl = float(best.part_lnls.sum())
    best.lacking = max(fits[n].lacking for n in set(chosen.tolist()))
    return best


def optimise_models(
    fits: Sequence[Fit], settings: ModelSettings, branches: BranchSettings, epsilon: float
) -> Steps[None]:
    """Optimise the model of every fit, and scale the lengths of its tree to go with it.

    Each stops when no step promises ``epsilon`` (natural log units, of a part) any more, and never
    ends worse than it started.
    """
    trees, cases = [fit.tree for fit in fits], [fit.case for fit in fits]
    yield _OptimiseModels(trees, cases, fits, settings, branches, epsilon)


class _OptimiseModels(Stepwise, eq=False):
    """Optimise the models of fits, of all searches that wait for theirs, with shared algebra."""

    fits: Sequence[Fit]
    settings: ModelSettings
    branches: BranchSettings
    epsilon: float

    @property
    def kind(self) -> Hashable:
        """Requests with the same settings can be joined."""
        return super().kind, self.settings, self.branches, self.epsilon

    def joined_with(self, others: Sequence[Request]) -> Request:
        """Join the fits of all requests."""
        every = [self, *(request for request in others if isinstance(request, _OptimiseModels))]
        fits = list(chain.from_iterable(request.fits for request in every))
        return super(_OptimiseModels, replace(self, fits=fits)).joined_with(others)

    def steps(self) -> Steps[Answers]:
        """Optimise the models; the fits change, and the answers are empty."""
        for fit in self.fits:
            fit.lacking = 0.0
        yield from _weigh_classes(self.fits)
        yield from share_exchangeabilities(self.fits, self.settings, self.epsilon)
        fitted_rates = yield from fit_among_sites(self.fits, self.settings, self.epsilon)
        optimisers = [
            _FitOptimiser(fit, self.settings, self.branches, self.epsilon, rates)
            for fit, rates in zip(self.fits, fitted_rates, strict=True)
        ]
        yield from _optimise(optimisers, self.settings.iterations)
        return [None] * len(self.fits)


def _weigh_classes(fits: Sequence[Fit]) -> Steps[None]:
    """Give the classes of mixtures the weights that suit the data best, where they are free."""
    having = [fit for fit in fits if any(map(_has_free_weights, fit.model.models))]
    if not having:
        return
    answers = yield from class_weights([fit.tree for fit in having], [fit.case for fit in having])
    for fit, weights in zip(having, answers, strict=True):
        fit.model = fit.model.with_parts(
            [
                model.with_class_weights(new) if _has_free_weights(model) else model
                for model, new in zip(fit.model.models, weights, strict=True)
            ]
        )


def _has_free_weights(model: Model) -> bool:
    return model.mixture is not None and model.mixture.free_weights > 0


def _optimise(optimisers: Sequence[_FitOptimiser], iterations: int) -> Steps[None]:
    """Run optimisers to their ends side by side."""
    for _ in range(iterations):
        under_way = [optimiser for optimiser in optimisers if not optimiser.done]
        if not under_way:
            break
        ways: list[BoxOptimiser] = []
        values: list[Float64] = []
        rows = yield from _part_lnls(list(_trial_cases(under_way)))
        for optimiser, lnls in zip(under_way, rows, strict=True):
            for way, column in optimiser.under_way(lnls):
                ways.append(way)
                values.append(column)
        advance(ways, values)
    _finish(optimisers)


def _finish(optimisers: Sequence[_FitOptimiser]) -> None:
    """Set every fit to the ends of its optimisers; all models are computed at once."""
    models, scales = optima_of([part for optimiser in optimisers for part in optimiser.parts])
    first = 0
    for optimiser in optimisers:
        span = slice(first, first := first + optimiser.n_parts)
        optimiser.finish(models[span], scales[span])
    arrays_of_all(models)


def _part_lnls(asked: Sequence[tuple[list[Tree], list[Case]]]) -> Steps[list[Float64]]:
    """f64[n, parts]: lnLs of each sequence of trees; those of as many parts share a request."""
    lnls_of: list[Float64] = [np.empty(0)] * len(asked)
    for parts in dict.fromkeys(len(cases[0].models) for _, cases in asked):
        which = [n for n, (_, cases) in enumerate(asked) if len(cases[0].models) == parts]
        trees = list(chain.from_iterable(asked[n][0] for n in which))
        cases = list(chain.from_iterable(asked[n][1] for n in which))
        lnls = yield from part_log_likelihoods(trees, cases)
        ends = np.cumsum([len(asked[n][0]) for n in which])[:-1]
        for n, part_lnls in zip(which, np.split(lnls, ends), strict=True):
            lnls_of[n] = part_lnls
    return lnls_of


def _trial_cases(optimisers: Sequence[_FitOptimiser]) -> Iterator[tuple[list[Tree], list[Case]]]:
    """Yield the trees and cases that each optimiser asks for; all models are computed at once."""
    asked = [optimiser.points() for optimiser in optimisers]
    models = [model for optimiser in optimisers for model in optimiser.models]
    shapes = [shape for optimiser in optimisers for shape in optimiser.shapes]
    points, speeds = (list(chain.from_iterable(rows)) for rows in zip(*asked, strict=True))
    arrays = iter(
        arrays_of(models, [rows_of_part[:, :-1] for rows_of_part in points], speeds, shapes)
    )
    for optimiser in optimisers:
        yield optimiser.trial_cases(list(islice(arrays, optimiser.n_parts)))


class _FitOptimiser:
    """The optimisers of all parts of a fit, in terms of trees and cases."""

    def __init__(
        self,
        fit: Fit,
        settings: ModelSettings,
        branches: BranchSettings,
        epsilon: float,
        fitted_rates: Mapping[int, FittedAmongSites],
    ) -> None:
        """``fitted_rates``: rates among sites that were fitted to parts, by their numbers."""
        self._fit = fit
        self._branches = branches
        self._is_sparse = False
        """True if trees are of single parts."""
        self._scales: list[Float64] = []
        """f64[n]: factors on the lengths of each part, at the points asked for last."""
        model = fit.model
        known = fit.curvatures or [None] * model.n_parts
        every = zip(model.models, model.scalers.tolist(), known, strict=True)
        limit = settings.scale_limit
        self.parts = [
            PartOptimiser(
                part,
                scale_bounds(model, scaler, limit),
                settings,
                epsilon,
                curvature,
                fitted_rates.get(number),
            )
            for number, (part, scaler, curvature) in enumerate(every)
        ]

    @property
    def done(self) -> bool:
        """True once all optimisers have ended."""
        return all(part.done for part in self.parts)

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return len(self.parts)

    @property
    def models(self) -> Sequence[Model]:
        """Models of the parts, as they started."""
        return self._fit.model.models

    @property
    def shapes(self) -> Sequence[tuple[int, int]]:
        """Eigen systems and categories of each part."""
        return self._fit.model.shapes

    def points(self) -> tuple[list[Float64], list[Float64]]:
        """f64[n, variables], f64[n]: points to evaluate of each part, and factors on its rates."""
        model = self._fit.model
        points = [part.variables() for part in self.parts]
        scales = exp(np.concatenate([row[:, -1] for row in points]))
        spans = list(accumulate(map(len, points), initial=0))
        self._scales = [scales[first:last] for first, last in pairwise(spans)]
        if model.linkage != Linkage.SCALED:
            return points, [np.ones_like(row) for row in self._scales]
        pairs = zip(self._scales, model.scalers.tolist(), strict=True)
        return points, [row * scaler for row, scaler in pairs]

    def trial_cases(self, arrays: Sequence[list[ModelArrays]]) -> tuple[list[Tree], list[Case]]:
        """Return the trees and cases to evaluate, part by part: the n-th points of all parts.

        Where few points are left of few parts, each has a tree of that part alone.
        """
        fit, scales = self._fit, self._scales
        count = max(map(len, arrays))
        self._is_sparse = self._is_little(count)
        if self._is_sparse:
            return self._by_part(arrays)
        every = [of_part + of_part[-1:] * (count - len(of_part)) for of_part in arrays]
        cases = [Case(models, fit.weights, fit.first_part) for models in zip(*every, strict=True)]
        padded = [np.append(scale, np.repeat(scale[-1:], count - len(scale))) for scale in scales]
        return self._scaled(np.array(padded).T), cases

    def under_way(self, lnls: Float64) -> list[tuple[BoxOptimiser, Float64]]:
        """Return the optimisers that go on, and their values among lnLs f64[n, parts or 1]."""
        if self._is_sparse:
            parts = [part for part in self.parts if not part.done]
            ends = np.cumsum([part.points for part in parts])[:-1]
            rows = np.split(lnls[:, 0], ends)
            return [(part.optimiser, values) for part, values in zip(parts, rows, strict=True)]
        pairs = zip(self.parts, lnls.T, strict=True)
        return [(part.optimiser, values[: part.points]) for part, values in pairs if not part.done]

    def _is_little(self, count: int) -> bool:
        """Return True if trees of single parts are less work than ``count`` trees of all parts."""
        points = sum(part.points for part in self.parts if not part.done)
        few = points * self._fit.tree.n_tips <= RECORDS
        return few and points <= SPARSE * count * len(self.parts)

    def _by_part(self, arrays: Sequence[list[ModelArrays]]) -> tuple[list[Tree], list[Case]]:
        """Return a tree for every point of the parts that are not done."""
        fit = self._fit
        trees, cases = [], []
        for number, part in enumerate(self.parts):
            if not part.done:
                trees += [self._lone(number, scale) for scale in self._scales[number].tolist()]
                first = fit.first_part + number
                cases += [Case((model,), fit.weights, first) for model in arrays[number]]
        return trees, cases

    def finish(self, models: Sequence[Model], scales: Float64) -> None:
        """Set the fit to the ends: models of its parts, and factors f64[parts]."""
        fit = self._fit
        (tree,) = self._scaled(scales[None])
        fit.tree.lengths[:] = tree.lengths
        is_scaled = fit.model.linkage == Linkage.SCALED
        fit.model = fit.model.with_parts(models, fit.model.scalers * scales if is_scaled else None)
        fit.part_lnls = np.array([part.value for part in self.parts])
        fit.lnl = float(fit.part_lnls.sum())
        fit.curvatures = [part.curvature for part in self.parts]
        fit.lacking = math.fsum(part.lacking for part in self.parts)

    def _lone(self, part: int, scale: float) -> Tree:
        """Return the tree of one of several parts, its branches times a factor."""
        tree = self._fit.tree
        if tree.lengths.ndim == 1:
            return tree
        return tree.with_lengths(self._branches.scaled(tree.lengths[part], scale))

    def _scaled(self, scales: Float64) -> list[Tree]:
        """Return the tree with its branches times every row of factors f64[n, parts]."""
        tree, linkage = self._fit.tree, self._fit.model.linkage
        if linkage == Linkage.SCALED or (linkage == Linkage.LINKED and scales.shape[1] > 1):
            return [tree] * len(scales)
        factors = scales[:, :, None] if tree.lengths.ndim > 1 else scales
        lengths = self._branches.scaled(tree.lengths, factors)
        return tree.with_each(lengths)
