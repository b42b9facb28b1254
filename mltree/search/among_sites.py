"""Free rates among sites, fitted before all else of a model is climbed.

They are many variables, of flat and bent ways up, and how the lnL of every pattern depends on its
rate tells all of them at once (:mod:`mltree.model.rate_profiles`): a few traversals, where a
stencil takes one a point. The curves are asked for at rates far apart, and then where the rates of
categories have come to stand, until they stay there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from mltree.arrays import Float64
from mltree.likelihood.cases import Case
from mltree.model.free_rates import FreeRates
from mltree.model.partitioned import PartitionModel
from mltree.model.portable import exp
from mltree.model.rate_profiles import PROFILED, Curves, RateProfiles, lacking
from mltree.model.substitution import Model
from mltree.search.part_climb import scale_bounds
from mltree.search.rate_climb import FittedAmongSites, Task, fitted_among_sites
from mltree.search.requests import Steps, rate_curves
from mltree.settings import ModelSettings
from mltree.tree.topology import Tree

__all__ = ["fit_among_sites"]


COARSE: Float64 = np.append(PROFILED[0], PROFILED[1::2])
"""f64[J]: the rates that curves are asked for at first."""

AROUND: Float64 = exp(np.array([-0.1, 0.0, 0.1]))
"""Rates that they are asked for at next, as shares of a category's."""

MOST_ROUNDS = 6
"""In which they are."""

CAREFUL = 0.1
"""Share of an epsilon that a step must promise, and a round bring: both are cheap."""


class AnyFit(Protocol):
    """A tree and a model that are optimised together (:class:`.model_optimiser.Fit`)."""

    tree: Tree
    model: PartitionModel

    @property
    def case(self) -> Case:
        """What the tree is computed under."""


@dataclass
class _Part:
    """A part of a fit, on its way."""

    fit: int
    """Its number."""
    number: int
    found: FittedAmongSites
    limits: tuple[float, float]
    """Of the log of its scale."""
    curves: Curves | None = None

    def wanted(self) -> Float64:
        """f64[n]: the rates that its patterns are asked for at next."""
        rates = self.found.categories.rates
        around = np.multiply.outer(rates[rates > 0.0], AROUND).ravel()
        if self.curves is not None:
            return lacking(self.curves.rates, around)
        return np.sort(np.append(COARSE, lacking(COARSE, around)))

    def learn(self, curves: Curves) -> None:
        """Take in what was asked for."""
        known = self.curves
        self.curves = curves if known is None else known.with_rates(curves.rates, curves.lnls)


def fit_among_sites(
    fits: Sequence[AnyFit], settings: ModelSettings, epsilon: float
) -> Steps[list[dict[int, FittedAmongSites]]]:
    """What suits the parts of each fit best, by their numbers, of those with free rates.

    All else is as it is in the fit, which stays as it is; nothing is found where stencils take less
    time. ``epsilon``: natural log units.
    """
    parts = [
        _Part(n, number, FittedAmongSites(model, 1.0, -np.inf), limits)
        for n, fit in enumerate(fits)
        for number, (model, limits) in enumerate(_of_parts(fit.model, settings))
        if _is_to_fit(model)
    ]
    under_way = parts
    for _ in range(MOST_ROUNDS):
        under_way = [part for part in under_way if part.wanted().size]
        if not under_way:
            break
        yield from _ask(fits, under_way)
        known = [part for part in under_way if part.curves is not None]
        under_way = _fitted(known, settings, CAREFUL * epsilon)
    found: list[dict[int, FittedAmongSites]] = [{} for _ in fits]
    for part in parts:
        if part.curves is not None:
            found[part.fit][part.number] = part.found
    return found


def _of_parts(
    model: PartitionModel, settings: ModelSettings
) -> list[tuple[Model, tuple[float, float]]]:
    limit, scalers = settings.scale_limit, model.scalers.tolist()
    limits = [scale_bounds(model, scaler, limit) for scaler in scalers]
    return list(zip(model.models, limits, strict=True))


def _is_to_fit(model: Model) -> bool:
    """Whether rates are free, and go with all classes that there are."""
    form, mixture = model.heterogeneity, model.mixture
    is_free = isinstance(form, FreeRates) and not form.fixed
    return is_free and not (mixture is not None and mixture.is_paired)


def _fitted(parts: Sequence[_Part], settings: ModelSettings, epsilon: float) -> list[_Part]:
    """Fit parts by their curves as they are; those that gained by what these told last."""
    profiles = [RateProfiles(part.curves) for part in parts if part.curves is not None]
    before = [own.lnl(part.found.categories) for own, part in zip(profiles, parts, strict=True)]
    tasks = [
        Task(own, [part.found.model], part.found.scale, part.limits)
        for own, part in zip(profiles, parts, strict=True)
    ]
    gained = []
    for part, found, lnl in zip(
        parts, fitted_among_sites(tasks, settings, epsilon), before, strict=True
    ):
        part.found = found
        if found.lnl - lnl >= epsilon:
            gained.append(part)
    return gained


class _Asked(NamedTuple):
    """A tree, its case, and who asks for which of its parts."""

    tree: Tree
    case: Case
    parts: dict[int, _Part]

    @property
    def kind(self) -> Hashable:
        """Equal for those that are asked for together."""
        return len(self.case.models), self.tree.lengths.ndim

    @property
    def rates(self) -> list[Float64]:
        """f64[J] of every part of the case."""
        none = np.empty(0)
        return [
            self.parts[place].wanted() if place in self.parts else none
            for place in range(len(self.case.models))
        ]


def _ask(fits: Sequence[AnyFit], parts: Sequence[_Part]) -> Steps[None]:
    """Let parts learn what they want."""
    of_fits: dict[int, list[_Part]] = {}
    for part in parts:
        of_fits.setdefault(part.fit, []).append(part)
    kinds: dict[Hashable, list[_Asked]] = {}
    for number, own in of_fits.items():
        for asked in _asked(fits[number], own):
            kinds.setdefault(asked.kind, []).append(asked)
    for alike in kinds.values():
        trees, cases = [asked.tree for asked in alike], [asked.case for asked in alike]
        found = yield from rate_curves(trees, cases, [asked.rates for asked in alike])
        for asked, curves in zip(alike, found, strict=True):
            for place, part in asked.parts.items() if curves else ():
                part.learn(curves[place])


def _asked(fit: AnyFit, parts: Sequence[_Part]) -> list[_Asked]:
    """The whole tree, or one for every part where those are few of many."""
    case, tree = fit.case, fit.tree
    if 2 * len(parts) >= len(case.models):
        return [_Asked(tree, case, {part.number: part for part in parts})]
    return [
        _Asked(
            tree if tree.lengths.ndim == 1 else tree.with_lengths(tree.lengths[part.number]),
            case._replace(
                models=(case.models[part.number],), first_part=case.first_part + part.number
            ),
            {0: part},
        )
        for part in parts
    ]
