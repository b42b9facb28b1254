"""Where the estimate of a model's parameters begins: lnL may have several maxima."""

from __future__ import annotations

import dataclasses

import numpy as np

from mltree.model.free_rates import FreeRates
from mltree.model.gamma import Gamma
from mltree.model.mixtures import Mixed
from mltree.model.parameters import variables_of_matrix, vector
from mltree.model.points import with_vector
from mltree.model.substitution import Model

__all__ = ["distant_models", "starting_models"]

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
0.04; of 40 under +R3 in five, by 0.06 to 1.6, with these in none."""

TILTED, TILT = 8, 1.5
"""Starts of classes that are models, and by how much (standard deviation of the logs) each moves
every class's exchangeabilities and frequencies: classes that are alike would stay so. Of 30 fits to
600 to 1,000 simulated sites of two classes, 5 starts ended at the best of 10 random ones, or above
it, in 29; in the other one, 1.7 below, the 6th to 8th did. From 3 at 0.7, 2 of 4 ended lower."""


def starting_models(model: Model) -> list[Model]:
    """The model, and others from where a climb may reach another maximum."""
    return [model, *_of_rates(model), *_of_classes(model)]


def distant_models(model: Model) -> list[tuple[float, Model]]:
    """Starts from afar, where rates among sites are estimated: all branches of a length, and that.

    Not of mixtures, which take long.
    """
    form, p_is_free = model.heterogeneity, _has_free_p(model)
    if model.mixture is not None:
        return []
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
    """Others in rates among sites."""
    form, p_is_free = model.heterogeneity, _has_free_p(model)
    if isinstance(form, FreeRates) and not form.fixed:
        k = len(form.rates)
        alpha, few = FREE_START
        if model.mixture is not None and model.mixture.is_paired:
            rates = FreeRates.from_gamma(k, alpha).rates
            orders = (FreeRates.of(rates[list(o)], np.ones(k), in_order=True) for o in ORDERS)
            return [dataclasses.replace(model, heterogeneity=own) for own in orders]
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
    """Others in the classes of a mixture of models, moved at random but always in the same way."""
    count = sum(len(variables_of_matrix(own)) for own in model.components)
    if not isinstance(model.mixture, Mixed) or not count:
        return []
    x, rng = vector(model), np.random.default_rng(0)
    tilts = np.zeros((TILTED, len(x)))
    tilts[:, :count] = TILT * rng.normal(size=(TILTED, count))
    return [with_vector(model, x + tilt) for tilt in tilts]
