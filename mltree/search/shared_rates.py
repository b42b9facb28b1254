"""The exchangeabilities that the classes of a mixture share, by quasi-Newton steps.

A gradient from differences takes, for each of 189 exchangeabilities, a traversal and as many eigen
systems as there are classes. Here it is told (:mod:`mltree.likelihood.flow_slopes`), and about how
lnL curves: by the changes between two states that are expected, as in expectation and maximisation,
whose step along each axis is the first one here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from mltree.arrays import Float64
from mltree.likelihood.cases import Case
from mltree.model.eigen import ModelArrays
from mltree.model.exchangeability_slopes import exchangeability_slopes
from mltree.model.parameters import bounds, shared_exchangeabilities, vector
from mltree.model.partitioned import PartitionModel
from mltree.model.points import arrays_of, with_vector
from mltree.model.substitution import Model
from mltree.search.quasi_newton import Guided
from mltree.search.requests import Steps, flow_slopes, part_log_likelihoods
from mltree.settings import ModelSettings
from mltree.tree.topology import Tree

__all__ = ["share_exchangeabilities"]


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
    rest: Float64
    """f64 [variables]: the other parameters, which stay."""
    here: Case | None = None
    """What the fit is computed under where the climb stands."""

    @classmethod
    def of(cls, fit: SharedFit, part: int, settings: ModelSettings, epsilon: float) -> _PartClimb:
        """From the exchangeabilities that the model has."""
        model = fit.model.models[part]
        count = shared_exchangeabilities(model)
        low, high = np.array(bounds(model)[:count]).T
        start, rest = np.split(vector(model), [count])
        climb = Guided(start, low, high, settings.step, CAREFUL * epsilon)
        return cls(fit, part, climb, rest)

    @property
    def model(self) -> Model:
        """The part's, as the climb began."""
        return self.fit.model.models[self.part]

    def vectors(self, points: Float64) -> Float64:
        """f64 [n, variables]: all parameters at some points."""
        return np.concatenate([points, np.tile(self.rest, (len(points), 1))], axis=1)

    def end(self) -> Model:
        """The part's model where the climb stands."""
        return with_vector(self.model, self.vectors(self.climb.x[None])[0])

    def case(self, arrays: ModelArrays) -> Case:
        """The fit's, with the part under a model."""
        fit, models = self.fit, list(self.fit.model.arrays())
        models[self.part] = arrays
        return Case(tuple(models), fit.weights, fit.first_part)

    def note(self, values: Float64, cases: Sequence[Case]) -> None:
        """Go on from the lnL f64 [n] of cases at the points."""
        if values.max() > self.climb.value:
            self.here = cases[int(values.argmax())]
        self.climb.note(values)

    def tell(self, slopes: Float64) -> None:
        """Take in f64 [M, S, S], by the rates of classes."""
        model, case = self.end(), self.standing
        found = exchangeability_slopes(model.rates, case.models[self.part].frequencies, slopes)
        count = len(self.climb.x)
        slope, changes = (
            np.asarray(np.bincount(model.rate_classes, own, count), np.float64) for own in found
        )
        self.climb.tell(slope, changes)

    @property
    def standing(self) -> Case:
        """The case of where the climb stands; there is one once lnL are known."""
        if self.here is None:
            raise ValueError("no lnL is known")
        return self.here


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
            cases = [own.standing for own in lost]
            slopes = yield from flow_slopes([own.fit.tree for own in lost], cases)
            for own, of_parts in zip(lost, slopes, strict=True):
                own.tell(of_parts[own.part])
    for own in climbs:
        models = list(own.fit.model.models)
        models[own.part] = own.end()
        own.fit.model = own.fit.model.with_parts(models)


def _take_steps(climbs: Sequence[_PartClimb]) -> Steps[None]:
    """Let climbs stand on the best ends of their next steps."""
    ends = [own.climb.points() for own in climbs]
    trees = [own.fit.tree for own, points in zip(climbs, ends, strict=True) for _ in points]
    cases = list(_cases(climbs, ends))
    lnls = yield from part_log_likelihoods(trees, list(chain.from_iterable(cases)))
    first = 0
    for own, under in zip(climbs, cases, strict=True):
        own.note(lnls[first : first + len(under), own.part], under)
        first += len(under)


def _cases(climbs: Sequence[_PartClimb], ends: Sequence[Float64]) -> Iterator[list[Case]]:
    """The cases of each climb's ends; the eigen systems of all are found at once."""
    wholes = [own.fit.model for own in climbs]
    found = arrays_of(
        [own.model for own in climbs],
        [own.vectors(points) for own, points in zip(climbs, ends, strict=True)],
        [
            np.full(len(points), whole.scalers[own.part])
            for own, whole, points in zip(climbs, wholes, ends, strict=True)
        ],
        [whole.shapes[own.part] for own, whole in zip(climbs, wholes, strict=True)],
    )
    for own, arrays in zip(climbs, found, strict=True):
        yield [own.case(one) for one in arrays]
