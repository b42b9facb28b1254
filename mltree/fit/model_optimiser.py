"""Model parameters by Newton's method, an iteration to a launch.

The variables are the parameters of a part's model on their log scales and the log of a factor on
its branch lengths, so that coordinate ascent with branch smoothing converges in few turns. Gradient
and Hessian come from differences, and every value that an iteration needs stands in one launch, for
all the trees and models that are optimised side by side. Given the branch lengths, parts are
problems of their own: the n-th points of all parts are one tree of the launch, whose lnL comes back
part by part. A gradient alone takes a fifth of the points, but five times as many launches; it is
what models of many variables are left with.

In an iteration the parts' optimisers propose points, a launch evaluates them, and each optimiser
accepts its best point (:mod:`mltree.fit.optimisers`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, pairwise

import numpy as np

from mltree.fit.fits import Fit
from mltree.fit.optimisers import (
    LBFGS,
    SHORT_STEP,
    STENCIL_LIMIT,
    BoxOptimiser,
    GradientLBFGS,
    TrustRegion,
    advance,
)
from mltree.fit.rate_optimiser import (
    EPSILON_SHARE,
    FittedAmongSites,
    fit_among_sites,
    scales_bounds,
)
from mltree.fit.settings import BranchSettings, ModelSettings
from mltree.likelihood.requests import (
    Answers,
    Request,
    Steps,
    Stepwise,
    class_weights,
    flow_slopes,
    part_log_likelihoods,
)
from mltree.models.eigen import ModelArrays
from mltree.models.parameters import (
    arrays_of,
    bounds,
    exchangeability_slopes,
    shared_exchangeabilities,
    variables_among_sites,
    vector,
    with_vector,
    with_vectors,
)
from mltree.models.partitioned import Linkage
from mltree.models.portable import exp
from mltree.models.substitution import Model, arrays_of_all
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree

SPARSE = 0.75
"""Share of the points of all parts from which on trees of single parts are less work: a part and a
point cost either the same (PoCL, 100 parts, 40 taxa)."""

RECORDS = 50_000
"""Tips of such trees in a launch, at most: about 1 us each to plan, which a GPU waits for."""


def optimise_models(
    fits: Sequence[Fit],
    settings: ModelSettings,
    branches: BranchSettings,
    epsilon: float,
    *,
    around: bool = False,
) -> Steps[None]:
    """Optimise the model of every fit, and scale the lengths of its tree to go with it.

    Each stops when no step promises ``epsilon`` (natural log units, of a part) any more, and never
    ends worse than it started. ``around``: begin where rates among sites are best, near or far.
    """
    trees, cases = [fit.tree for fit in fits], [fit.case for fit in fits]
    yield _OptimiseModels(trees, cases, fits, settings, branches, epsilon, around)


class _OptimiseModels(Stepwise, eq=False):
    """Optimise the models of fits, of all searches that wait for theirs, with shared algebra."""

    fits: Sequence[Fit]
    settings: ModelSettings
    branches: BranchSettings
    epsilon: float
    around: bool

    @property
    def kind(self) -> Hashable:
        """Requests with the same settings can be joined."""
        return super().kind, self.settings, self.branches, self.epsilon, self.around

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
        fitted_rates = yield from fit_among_sites(
            self.fits, self.settings, self.epsilon, around=self.around
        )
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
    """Run optimisers to their ends side by side; their fits are then at the ends."""
    for _ in range(iterations):
        under_way = [optimiser for optimiser in optimisers if not optimiser.done]
        if not under_way:
            break
        rows = yield from _part_lnls(list(_trials(under_way)))
        evaluated = map(_FitOptimiser.evaluated, under_way, rows)
        advance(*zip(*chain.from_iterable(evaluated), strict=True))
    models, scales = optima_of([part for optimiser in optimisers for part in optimiser.parts])
    first = 0
    for optimiser in optimisers:
        span = slice(first, first := first + len(optimiser.parts))
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


def _trials(optimisers: Sequence[_FitOptimiser]) -> Iterator[tuple[list[Tree], list[Case]]]:
    """Yield the trees and cases that each optimiser proposes; all models are computed at once."""
    wholes = [optimiser.fit.model for optimiser in optimisers]
    models = [model for whole in wholes for model in whole.models]
    shapes = [shape for whole in wholes for shape in whole.shapes]
    proposed = [optimiser.points() for optimiser in optimisers]
    points, speeds = (list(chain.from_iterable(rows)) for rows in zip(*proposed, strict=True))
    arrays = iter(arrays_of(models, [points_of[:, :-1] for points_of in points], speeds, shapes))
    for optimiser in optimisers:
        yield optimiser.trials(list(islice(arrays, len(optimiser.parts))))


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
        self.fit, self._branches = fit, branches
        self._is_sparse = False
        """True if trees are of single parts."""
        self._scales: list[Float64] = []
        """f64[n]: factors on the lengths of each part, at the points proposed last."""
        model, curvatures = fit.model, fit.curvatures or [None] * fit.model.n_parts
        limits = scales_bounds(model, settings.scale_limit)
        every = zip(model.models, limits, curvatures, strict=True)
        self.parts = [
            PartOptimiser(part, limit, settings, epsilon, curvature, fitted_rates.get(number))
            for number, (part, limit, curvature) in enumerate(every)
        ]

    @property
    def done(self) -> bool:
        """True once all optimisers have ended."""
        return all(part.done for part in self.parts)

    def points(self) -> tuple[list[Float64], list[Float64]]:
        """f64[n, variables], f64[n]: points to evaluate of each part, and factors on its rates."""
        model = self.fit.model
        points = [part.variables() for part in self.parts]
        scales = exp(np.concatenate([row[:, -1] for row in points]))
        spans = pairwise(accumulate(map(len, points), initial=0))
        self._scales = [scales[first:last] for first, last in spans]
        if model.linkage != Linkage.SCALED:
            return points, [np.ones_like(row) for row in self._scales]
        pairs = zip(self._scales, model.scalers.tolist(), strict=True)
        return points, [row * scaler for row, scaler in pairs]

    def trials(self, arrays: Sequence[list[ModelArrays]]) -> tuple[list[Tree], list[Case]]:
        """Return the trees and cases to evaluate, part by part: the n-th points of all parts.

        Where few points are left of few parts, each has a tree of that part alone.
        """
        fit, scales = self.fit, self._scales
        count = max(map(len, arrays))
        self._is_sparse = self._is_little(count)
        if self._is_sparse:
            return self._by_part(arrays)
        every = [of_part + of_part[-1:] * (count - len(of_part)) for of_part in arrays]
        cases = [Case(models, fit.weights, fit.first_part) for models in zip(*every, strict=True)]
        padded = [np.pad(scale, (0, count - len(scale)), "edge") for scale in scales]
        return self._scaled(np.array(padded).T), cases

    def evaluated(self, lnls: Float64) -> list[tuple[BoxOptimiser, Float64]]:
        """Return the optimisers that go on, and their values among lnLs f64[n, parts or 1]."""
        if self._is_sparse:
            parts = [part for part in self.parts if not part.done]
            ends = np.cumsum([part.n_points for part in parts])[:-1]
            rows = np.split(lnls[:, 0], ends)
            return [(part.optimiser, values) for part, values in zip(parts, rows, strict=True)]
        pairs = zip(self.parts, lnls.T, strict=True)
        return [
            (part.optimiser, values[: part.n_points]) for part, values in pairs if not part.done
        ]

    def _is_little(self, count: int) -> bool:
        """Return True if trees of single parts are less work than ``count`` trees of all parts."""
        points = sum(part.n_points for part in self.parts if not part.done)
        few = points * self.fit.tree.n_tips <= RECORDS
        return few and points <= SPARSE * count * len(self.parts)

    def _by_part(self, arrays: Sequence[list[ModelArrays]]) -> tuple[list[Tree], list[Case]]:
        """Return a tree for every point of the parts that are not done."""
        fit = self.fit
        trees, cases = [], []
        for number, part in enumerate(self.parts):
            if not part.done:
                trees += [self._lone(number, scale) for scale in self._scales[number].tolist()]
                first = fit.first_part + number
                cases += [Case((model,), fit.weights, first) for model in arrays[number]]
        return trees, cases

    def finish(self, models: Sequence[Model], scales: Float64) -> None:
        """Set the fit to the ends: models of its parts, and factors f64[parts]."""
        fit = self.fit
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
        tree = self.fit.tree
        if tree.lengths.ndim == 1:
            return tree
        return tree.with_lengths(self._branches.scaled(tree.lengths[part], scale))

    def _scaled(self, scales: Float64) -> list[Tree]:
        """Return the tree with its branches times every row of factors f64[n, parts]."""
        tree, linkage = self.fit.tree, self.fit.model.linkage
        if linkage == Linkage.SCALED or (linkage == Linkage.LINKED and scales.shape[1] > 1):
            return [tree] * len(scales)
        factors = scales[:, :, None] if tree.lengths.ndim > 1 else scales
        lengths = self._branches.scaled(tree.lengths, factors)
        return tree.with_each(lengths)


def optima_of(optimisers: Sequence[PartOptimiser]) -> tuple[list[Model], Float64]:
    """Return the best model of every optimiser, and the factors on lengths f64[n]."""
    ends = [optimiser.end for optimiser in optimisers]
    models = with_vectors([optimiser.model for optimiser in optimisers], [end[:-1] for end in ends])
    return models, exp(np.array([end[-1] for end in ends]))


class PartOptimiser:
    """The optimiser of one part: its free variables, in terms of models and scales."""

    def __init__(
        self,
        model: Model,
        scale: tuple[float, float],
        settings: ModelSettings,
        epsilon: float,
        curvature: Float64 | None = None,
        fitted_rates: FittedAmongSites | None = None,
    ) -> None:
        """``curvature``: of the free variables, f64[n, n], as an optimiser nearby left it.

        ``fitted_rates``: rates among sites to begin with, fitted to the rest of the model.
        """
        self.model = model
        """The model as it started."""
        low, high = np.array([*bounds(model), scale], dtype=np.float64).T
        shared = shared_exchangeabilities(model)  # share_exchangeabilities has moved them
        low[:shared] = high[:shared]
        self._free = np.flatnonzero(high > low)
        self._start: Float64 = np.append(vector(model), 0.0)
        """f64[variables]: the free and the fixed ones, the scale last."""
        self.optimiser = self._begun(
            low[self._free], high[self._free], settings.step, epsilon, curvature, fitted_rates
        )
        self.n_points = 0
        """Number of points that were proposed last."""

    def _begun(
        self,
        low: Float64,
        high: Float64,
        step: float,
        epsilon: float,
        curvature: Float64 | None,
        fitted_rates: FittedAmongSites | None,
    ) -> TrustRegion | LBFGS:
        starts = self._start[None, self._free]
        if fitted_rates is not None:
            new = fitted_rates.x[None, self._free]
            if (far := np.abs(new - starts).max()) > step:
                starts = np.concatenate([new, starts])
            others = len(self._start) - 1 - variables_among_sites(self.model)
            if self._free.min(initial=others) >= others:  # nothing else is free but the scale
                return TrustRegion(starts, low, high, step, epsilon, maximum=fitted_rates.lnl)
            curvature = curvature if far < SHORT_STEP else None
        if len(low) < STENCIL_LIMIT:
            return TrustRegion(starts, low, high, step, epsilon, curvature)
        return LBFGS(starts, low, high, step, epsilon)

    @property
    def done(self) -> bool:
        """True once the optimiser has ended."""
        return self.optimiser.done

    @property
    def value(self) -> float:
        """LnL at the end."""
        return self.optimiser.value

    @property
    def curvature(self) -> Float64 | None:
        """f64[n, n]: minus the Hessian in the free variables, as far as it is known."""
        return self.optimiser.curvature

    @property
    def lacking(self) -> float:
        """Gain in lnL that a step still promises at the end; 0 at a maximum."""
        return 0.0 if self.optimiser.converged else self.optimiser.predicted_gain

    def reachable_lnl(self, times: float) -> float:
        """Return the lnL of the end if it gains so many times what a step promises."""
        gain = self.optimiser.predicted_gain
        return self.optimiser.value + times * gain if math.isfinite(gain) else math.inf

    def variables(self) -> Float64:
        """f64[n, variables]: points to evaluate; the end once done."""
        points = self.optimiser.x[None] if self.done else self.optimiser.points()
        self.n_points = len(points)
        return self._variables(points)

    @property
    def end(self) -> Float64:
        """f64[variables]: of the best model, and the log of its factor."""
        end: Float64 = self._variables(self.optimiser.x[None])[0]
        return end

    def _variables(self, points: Float64) -> Float64:
        """f64[n, variables]: the free ones of f64[n, free] beside the fixed ones."""
        every = np.tile(self._start, (len(points), 1))
        every[:, self._free] = points
        return every


# The exchangeabilities that the classes of a mixture share, by quasi-Newton steps.
#
# A gradient from differences takes, for each of 189 exchangeabilities, a traversal and as many
# eigen systems as there are classes. Here it is computed (:mod:`mltree.program.ops.edges`), and
# about how lnL curves: by the changes between two states that are expected, as in expectation and
# maximisation, whose step along each axis is the first one here.

SHARED_STEPS = 200
"""Steps at most; 190 exchangeabilities on 30 sites, most of them on a bound, took 75."""


@dataclass
class _ExchangeabilityFit:
    """The optimiser of the exchangeabilities that one part's classes share."""

    fit: Fit
    part: int
    optimiser: GradientLBFGS
    others: Float64
    """f64[n]: the other parameters of the part's model, which stay."""
    case: Case
    """Case of the fit at the optimiser's best point."""

    @classmethod
    def of(
        cls, fit: Fit, part: int, settings: ModelSettings, epsilon: float
    ) -> _ExchangeabilityFit:
        """Begin at the exchangeabilities that the model has."""
        model = fit.model.models[part]
        count = shared_exchangeabilities(model)
        low, high = np.array(bounds(model)[:count]).T
        start, others = np.split(vector(model), [count])
        optimiser = GradientLBFGS(start, low, high, settings.step, EPSILON_SHARE * epsilon)
        return cls(fit, part, optimiser, others, fit.case)

    @property
    def model(self) -> Model:
        """Model of the part, as the optimiser began."""
        return self.fit.model.models[self.part]

    def end(self) -> Model:
        """Return the part's model at the optimiser's best point."""
        return with_vector(self.model, np.append(self.optimiser.x, self.others))

    def update(self, lnl: float, case: Case) -> None:
        """Update with the lnL of the proposed point, and its case."""
        if lnl > self.optimiser.value:
            self.case = case
        self.optimiser.update(np.array([lnl]))

    def set_gradient(self, slopes: Float64) -> None:
        """Set the gradient from f64[M, S, S], by the rates of classes."""
        model, frequencies = self.end(), self.case.models[self.part].frequencies
        slope, changes = (
            np.asarray(np.bincount(model.rate_classes, values, self.optimiser.x.size), np.float64)
            for values in exchangeability_slopes(model.rates, frequencies, slopes)
        )
        self.optimiser.set_gradient(slope, changes)


def share_exchangeabilities(
    fits: Sequence[Fit], settings: ModelSettings, epsilon: float
) -> Steps[None]:
    """Optimise what the classes of the fits' models share, where they share so much."""
    shared = [
        _ExchangeabilityFit.of(fit, part, settings, epsilon)
        for fit in fits
        for part, model in enumerate(fit.model.models)
        if shared_exchangeabilities(model)
    ]
    for _ in range(SHARED_STEPS):
        under_way = [one for one in shared if not one.optimiser.done]
        if not under_way:
            break
        cases = _proposed(under_way)
        lnls = yield from part_log_likelihoods([one.fit.tree for one in under_way], cases)
        for one, part_lnls, case in zip(under_way, lnls, cases, strict=True):
            one.update(float(part_lnls[one.part]), case)
        waiting = [one for one in under_way if one.optimiser.needs_gradient]
        if waiting:
            trees = [one.fit.tree for one in waiting]
            slopes = yield from flow_slopes(trees, [one.case for one in waiting])
            for one, of_parts in zip(waiting, slopes, strict=True):
                one.set_gradient(of_parts[one.part])
    for one in shared:
        models = list(one.fit.model.models)
        models[one.part] = one.end()
        one.fit.model = one.fit.model.with_parts(models)


def _proposed(shared: Sequence[_ExchangeabilityFit]) -> list[Case]:
    """Return the case of each optimiser's point; all eigen systems are computed at once."""
    arrays_of_parts = arrays_of(
        [one.model for one in shared],
        [np.append(one.optimiser.points()[0], one.others)[None] for one in shared],
        [one.fit.model.scalers[one.part, None] for one in shared],
        [one.fit.model.shapes[one.part] for one in shared],
    )
    cases = []
    for one, (arrays,) in zip(shared, arrays_of_parts, strict=True):
        models = list(one.fit.model.arrays())
        models[one.part] = arrays
        cases.append(Case(tuple(models), one.fit.weights, one.fit.first_part))
    return cases
