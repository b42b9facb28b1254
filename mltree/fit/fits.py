"""A fit, that is a tree and a model optimised together, and where fits begin.

lnL has several maxima in a model's parameters and in branch lengths, so that fits have several
starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mltree.models.parameters import variables_of_matrix, vector, with_vector
from mltree.models.partitioned import PartitionModel
from mltree.models.rates import FreeRates, Gamma, Heterogeneity
from mltree.models.substitution import Mixed, Model, Paired
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree


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

AROUND = (0.2, 1.0), (0.2, 0.1), (0.4, 0.4), (0.75, 0.2)
"""(p, alpha) from which rates among sites are fitted to curves of the patterns. lnL has a maximum
for each number of categories that are next to invariable: of 25 sets of 20 to 39 taxa under +I+G4,
alpha below 0.5 and mean branches of 0.15 to 0.6, other starts missed the best of 24 in three, by
3.8, 4.1 and 30.5. The first three of these ended at the best of 20 on the curves of 40 sets."""

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


def starting_models(model: Model) -> list[Model]:
    """Return the model, and other starts from which another maximum may be reached."""
    return [model, *_of_rates(model), *_of_classes(model)]


def distant_models(model: Model) -> list[tuple[float, Model]]:
    """Return distant starts, if rates among sites are estimated: a branch length, and a model.

    Mixtures have none, for they take long, but those whose classes have a rate each (LG4X).
    """
    form, p_is_free = _free_form(model), _has_free_p(model)
    if model.mixture is not None:
        if not (isinstance(model.mixture, Paired) and isinstance(form, FreeRates)):
            return []
        rates = FreeRates.from_gamma(len(form.rates), FREE_START[0]).rates[::-1]
        backwards = FreeRates.of(rates, np.ones(len(rates)), in_order=True)
        return [(LONG, model), (LONG, replace(model, heterogeneity=backwards))]
    if isinstance(form, FreeRates):
        k, (alpha, span) = len(form.rates), FREE_FROM_AFAR
        even, fast = FreeRates.from_gamma(k, alpha), FreeRates.with_few_fast(k, span)
        starts = (MIDDLING, even), (SHORT, fast)
        return [(length, replace(model, heterogeneity=rates)) for length, rates in starts]
    if isinstance(form, Gamma):
        few = [(LONG, _with_gamma(model, form, *FEW_FROM_AFAR))] if p_is_free else []
        return [(LONG, model), *few]
    return [(MIDDLING, model)] if p_is_free else []


def around_rates(model: Model) -> list[Model]:
    """Return starts all over of a gamma distribution and invariable sites, where both are free.

    A gamma distribution alone needs none: 20 such sets ended as high without.
    """
    form = _free_form(model)
    if not isinstance(form, Gamma) or not _has_free_p(model) or model.mixture is not None:
        return []
    return [_with_gamma(model, form, p, alpha) for p, alpha in AROUND]


def _free_form(model: Model) -> Heterogeneity | None:
    return model.heterogeneity if model.heterogeneity.variables() else None


def _has_free_p(model: Model) -> bool:
    return model.p_invariant is not None and not model.p_invariant_fixed


def _with_gamma(model: Model, form: Gamma, p: float, alpha: float) -> Model:
    return replace(model, p_invariant=p, heterogeneity=replace(form, alpha=alpha))


def _of_rates(model: Model) -> list[Model]:
    """Return starts with other rates among sites."""
    form, p, p_is_free = _free_form(model), model.p_invariant, _has_free_p(model)
    if isinstance(form, FreeRates):
        k, (alpha, few), (span, some) = len(form.rates), FREE_START, FEW_FAST
        even = FreeRates.from_gamma(k, alpha)
        if isinstance(model.mixture, Paired):
            orders = (FreeRates.of(even.rates[[*o]], np.ones(k), in_order=True) for o in ORDERS)
            return [replace(model, heterogeneity=rates) for rates in orders]
        others = [
            replace(model, heterogeneity=rates, p_invariant=start if p_is_free else p)
            for rates, start in ((even, few), (FreeRates.with_few_fast(k, span), some))
        ]
        x = vector(model)
        return [other for other in others if not np.array_equal(vector(other), x)]
    if isinstance(form, Gamma) and p_is_free:
        is_few = p is not None and p < LOW_SHARE
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
