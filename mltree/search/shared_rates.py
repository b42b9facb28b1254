"""The exchangeabilities that the classes of a mixture share, by quasi-Newton steps.

A gradient from differences takes, for each of 189 exchangeabilities, a traversal and as many eigen
systems as there are classes. Here it is told (:mod:`mltree.likelihood.flow_slopes`), and about how
lnL curves: by the changes between two states that are expected, as in expectation and maximisation,
whose step along each axis is the first one here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mltree.likelihood.cases import Case
from mltree.model.exchangeability_slopes import exchangeability_slopes
from mltree.model.parameters import bounds, shared_exchangeabilities, vector
from mltree.model.partitioned import PartitionModel
from mltree.model.points import with_vector
from mltree.model.substitution import Model
from mltree.search.quasi_newton import Guided
from mltree.search.requests import Steps, flow_slopes, part_log_likelihoods
from mltree.settings import ModelSettings
from mltree.tree.topology import Tree

__all__ = ["share_exchangeabilities"]

Float = NDArray[np.float64]

CAREFUL = 0.1
"""Share of an epsilon that a step must promise: many flat directions together promise little, and
with all of it climbs on 30 sites ended 0.09 lnL short."""

MOST_STEPS = 200
"""Of a climb; 190 exchangeabilities on 30 sites, most of which end on a bound, took 75."""


class SharedFit(Protocol):
    """A tree and a model that are optimised together (:class:`.model_optimiser.Fit`)."""

    tree: Tree
    model: PartitionModel
    weights: int
    first_part: int


@dataclass
class _PartClimb:
    """The climb of one part of a fit."""

    fit: SharedFit
    part: int
    climb: Guided

    @classmethod
    def of(cls, fit: SharedFit, part: int, settings: ModelSettings, epsilon: float) -> _PartClimb:
        """From the exchangeabilities that the model has."""
        model = fit.model.models[part]
        count = shared_exchangeabilities(model)
        low, high = np.array(bounds(model)[:count]).T
        start = vector(model)[:count]
        return cls(fit, part, Guided(start, low, high, settings.step, CAREFUL * epsilon))

    def at(self, x: Float) -> Model:
        """The part's model with others."""
        model = self.fit.model.models[self.part]
        return with_vector(model, np.append(x, vector(model)[len(x) :]))

    def case(self, model: Model) -> Case:
        """The fit's, with the part's model."""
        fit, models = self.fit, list(self.fit.model.models)
        models[self.part] = model
        return Case(fit.model.with_parts(models).arrays(), fit.weights, fit.first_part)

    def tell(self, slopes: Float) -> None:
        """Take in f64 [M, S, S], by the rates of classes."""
        model = self.at(self.climb.x)
        frequencies = model.arrays().frequencies
        found = exchangeability_slopes(model.rates, frequencies, slopes[: len(frequencies)])
        count = len(self.climb.x)
        slope, changes = (
            np.asarray(np.bincount(model.rate_classes, own, count), np.float64) for own in found
        )
        self.climb.tell(slope, changes)


def share_exchangeabilities(
    fits: Sequence[SharedFit], settings: ModelSettings, epsilon: float
) -> Steps[None]:
    """Optimise what the classes of the fits' models share, where they share so much."""
    climbs = [
        _PartClimb.of(fit, part, settings, epsilon)
        for fit in fits
        for part, model in enumerate(fit.model.models)
        if shared_exchangeabilities(model)
    ]
    for _ in range(MOST_STEPS):
        under_way = [own for own in climbs if not own.climb.done]
        if not under_way:
            break
        yield from _take_steps(under_way)
        lost = [own for own in under_way if own.climb.is_lost]
        if lost:
            cases = [own.case(own.at(own.climb.x)) for own in lost]
            slopes = yield from flow_slopes([own.fit.tree for own in lost], cases)
            for own, of_parts in zip(lost, slopes, strict=True):
                own.tell(of_parts[own.part])
    for own in climbs:
        models = list(own.fit.model.models)
        models[own.part] = own.at(own.climb.x)
        own.fit.model = own.fit.model.with_parts(models)


def _take_steps(climbs: Sequence[_PartClimb]) -> Steps[None]:
    """Let climbs stand on the best ends of their next steps."""
    ends = [own.climb.points() for own in climbs]
    trees = [own.fit.tree for own, points in zip(climbs, ends, strict=True) for _ in points]
    cases = [own.case(own.at(x)) for own, points in zip(climbs, ends, strict=True) for x in points]
    lnls = yield from part_log_likelihoods(trees, cases)
    first = 0
    for own, points in zip(climbs, ends, strict=True):
        own.climb.note(lnls[first : first + len(points), own.part])
        first += len(points)
