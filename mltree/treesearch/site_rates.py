"""Rates of sites (+PSR) in a search: fitted to the best tree, between the phases."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mltree.likelihood.requests import Request, SearchLikelihood, Steps
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.models.rates import FittedRates, SiteRates
from mltree.program.cases import Case
from mltree.system.events import ModelOptimised
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import best_of
from mltree.treesearch.search_context import SearchContext


@runtime_checkable
class _PerSite(Protocol):
    """Protocol of :class:`mltree.likelihood.site_rates.PerSiteLikelihood`."""

    def group(self, rates: Sequence[SiteRates]) -> None: ...

    def site_rates(self, tree: Tree, case: Case) -> list[FittedRates]: ...


def _per_site(likelihood: SearchLikelihood) -> _PerSite:
    if not isinstance(likelihood, _PerSite):
        raise ValueError("a likelihood whose patterns have no rates of their own")
    return likelihood


class _SiteRates(Request, eq=False):
    """Fit the site rates of every part of each tree."""

    def answer(self, likelihood: SearchLikelihood) -> list[list[FittedRates]]:
        """Return the fitted rates of the parts of every tree."""
        pairs = zip(self.trees, self.cases, strict=True)
        return [_per_site(likelihood).site_rates(tree, case) for tree, case in pairs]


class _GroupPatterns(Request, eq=False):
    """Give the patterns rates, for all requests that follow."""

    rates: Sequence[SiteRates]

    @property
    def kind(self) -> Hashable:
        """Requests of this kind are not joined."""
        return type(self), id(self)

    def answer(self, likelihood: SearchLikelihood) -> list[None]:
        """Group the patterns; the answers are empty."""
        _per_site(likelihood).group(self.rates)
        return [None] * len(self.trees)


def group_patterns(search: SearchContext) -> Steps[None]:
    """Give the patterns the site rates of the search's model, if they are known."""
    rates = search.state.model.site_rates
    if any(form.category.size for form in rates):
        yield _GroupPatterns([best_of(search.state.candidates).tree], [search.case], rates)


def fit_site_rates(search: SearchContext) -> Steps[None]:
    """Fit the rates of all sites to the best tree; they are kept unless its lnL is lower."""
    state = search.state
    best = best_of(state.candidates)
    answer: Any = yield _SiteRates([best.tree], [search.case])
    fitted: list[FittedRates] = answer[0]
    lnl = sum(part.lnl for part in fitted)
    if lnl < best.lnl:
        return
    state.model, factor = _with_rates(state.model, fitted)
    for candidate in (*state.candidates, *state.waiting):
        candidate.tree.lengths = search.settings.branches.scaled(candidate.tree.lengths, factor)
    best.lnl = lnl
    yield from group_patterns(search)
    search.emit(ModelOptimised(state.model.text, lnl))


def _with_rates(
    model: PartitionModel, fitted: Sequence[FittedRates]
) -> tuple[PartitionModel, float]:
    """Return the model with new rates, and the factor on branch lengths that offsets their means.

    Where parts have scalers, these take the means up; else the rates have mean 1 over all parts.
    The rates were fitted without scalers, so that new scalers replace the old ones.
    """
    speeds = np.array([part.speed for part in fitted])
    scalers, relative, factor = speeds, np.ones_like(speeds), 1.0
    if model.linkage != Linkage.SCALED or model.n_parts == 1:
        scalers = np.ones_like(speeds)
        factor = float((speeds * model.shares).sum())
        relative = speeds / factor
    forms = [
        replace(form, rates=part.rates * ratio, category=part.category)
        for form, part, ratio in zip(model.site_rates, fitted, relative.tolist(), strict=True)
    ]
    models = [
        replace(part, heterogeneity=form) for part, form in zip(model.models, forms, strict=True)
    ]
    return model.with_parts(models, scalers), factor
