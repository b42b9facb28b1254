"""Rates of sites (+PSR) in a search: found for the best tree, between the rounds."""

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
from mltree.system.values import Value
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import best_of
from mltree.treesearch.quest import Quest


@runtime_checkable
class _PerSite(Protocol):
    """What is asked of :class:`mltree.likelihood.site_rates.PerSiteLikelihood`."""

    def group(self, rates: Sequence[SiteRates]) -> None: ...

    def site_rates(self, tree: Tree, case: Case) -> list[FittedRates]: ...


def _per_site(likelihood: SearchLikelihood) -> _PerSite:
    if not isinstance(likelihood, _PerSite):
        raise ValueError("a likelihood whose patterns have no rates of their own")
    return likelihood


class _SiteRates(Request, eq=False):
    """The rates that suit every part of each tree best."""

    def answer(self, likelihood: SearchLikelihood) -> list[list[FittedRates]]:
        """Those of the parts of every tree."""
        pairs = zip(self.trees, self.cases, strict=True)
        return [_per_site(likelihood).site_rates(tree, case) for tree, case in pairs]


class _GroupPatterns(Request, eq=False):
    """That patterns have these rates from now on, for all that follows."""

    rates: Sequence[SiteRates]

    @property
    def kind(self) -> Hashable:
        """Alone."""
        return type(self), id(self)

    def answer(self, likelihood: SearchLikelihood) -> list[None]:
        """Nothing."""
        _per_site(likelihood).group(self.rates)
        return [None] * len(self.trees)


def group_patterns(quest: Quest) -> Steps[None]:
    """Let the patterns have the rates of the search's model, where it has any that are known."""
    rates = quest.state.model.site_rates
    if any(form.category.size for form in rates):
        yield _GroupPatterns([best_of(quest.state.lineages).tree], [quest.case], rates)


class FitSiteRates(Value):
    """The rates of all sites, on the best tree; kept only if its lnL is no lower."""

    def step(self, quest: Quest) -> Steps[bool]:
        """In one step."""
        state = quest.state
        best = best_of(state.lineages)
        answer: Any = yield _SiteRates([best.tree], [quest.case])
        fitted: list[FittedRates] = answer[0]
        lnl = sum(part.lnl for part in fitted)
        if lnl < best.lnl:
            return True
        state.model, factor = _with_rates(state.model, fitted)
        for lineage in (*state.lineages, *state.waiting):
            lengths = quest.settings.branches.scaled(lineage.tree.lengths, factor)
            lineage.tree.lengths = lengths
        best.lnl = lnl
        yield from group_patterns(quest)
        quest.emit(ModelOptimised(state.model.text, lnl))
        return True


def _with_rates(
    model: PartitionModel, fitted: Sequence[FittedRates]
) -> tuple[PartitionModel, float]:
    """The model with these rates, and the factor on branch lengths that makes up for their means.

    Where parts have scalers, those do; else the rates have mean 1 over all parts. The rates were
    found without any scalers: new ones stand in the place of those that there were.
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
        replace(own, heterogeneity=form) for own, form in zip(model.models, forms, strict=True)
    ]
    return model.with_parts(models, scalers), factor
