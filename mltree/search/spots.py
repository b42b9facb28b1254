"""Where the weights of replicates are while their trees are searched, several side by side.

As rows of weights over all patterns, whatever the likelihood; or, where it has berths, with the
patterns that were drawn alone: those of 63 % of the sites, for all the work on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from mltree.alignment.drawn import drawn
from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64
from mltree.search.requests import Request, SearchLikelihood

__all__ = ["Berths", "LoadWeights", "Spot", "Spots", "WeightRows"]


class Spot(NamedTuple):
    """What a replicate has of a likelihood."""

    row: int
    """Of weights."""
    first_part: int
    """Where its parts begin."""


class Spots(ABC):
    """Spots of one likelihood, for searches that come and go."""

    def __init__(self, count: int) -> None:
        self.count = count
        """Searches that there is one for at a time."""
        self._free = list(range(count))[::-1]
        self._fresh: dict[int, Float64] = {}
        """Weights that the likelihood lacks, by spot."""

    def take(self, weights: Float64) -> Spot:
        """One for weights f64[L], which the likelihood has after :meth:`load`."""
        number = self._free.pop()
        self._fresh[number] = weights
        return self._spot(number)

    def give_back(self, spot: Spot) -> None:
        """It is of no more use."""
        self._free.append(self._number(spot))

    def load(self, likelihood: SearchLikelihood) -> None:
        """Hand over what the likelihood lacks."""
        fresh, self._fresh = self._fresh, {}
        if fresh:
            self._load(likelihood, fresh)

    @abstractmethod
    def _spot(self, number: int) -> Spot: ...

    @abstractmethod
    def _number(self, spot: Spot) -> int: ...

    @abstractmethod
    def _load(self, likelihood: SearchLikelihood, fresh: dict[int, Float64]) -> None: ...


class WeightRows(Spots):
    """A row of weights each, over the same patterns."""

    def __init__(self, count: int, n_patterns: int) -> None:
        super().__init__(count)
        self._table: Float64 = np.zeros((count, n_patterns))

    def _spot(self, number: int) -> Spot:
        return Spot(number, 0)

    def _number(self, spot: Spot) -> int:
        return spot.row

    def _load(self, likelihood: SearchLikelihood, fresh: dict[int, Float64]) -> None:
        for row, weights in fresh.items():
            self._table[row] = weights
        likelihood.load_weights(self._table)


@runtime_checkable
class _WithBerths(Protocol):
    """What is asked of :class:`mltree.likelihood.berths.BerthLikelihood`."""

    def load_patterns(self, first_part: int, patterns: Patterns) -> None: ...


class Berths(Spots):
    """A berth each: as many parts as the alignment has, with what was drawn of them."""

    def __init__(self, count: int, patterns: Patterns, sizes: Sequence[int]) -> None:
        """``patterns``: that are drawn from; ``sizes``: of a berth, part by part."""
        super().__init__(count)
        self._patterns, self._sizes = patterns, tuple(sizes)

    def _spot(self, number: int) -> Spot:
        return Spot(0, number * len(self._sizes))

    def _number(self, spot: Spot) -> int:
        return spot.first_part // len(self._sizes)

    def _load(self, likelihood: SearchLikelihood, fresh: dict[int, Float64]) -> None:
        if not isinstance(likelihood, _WithBerths):
            raise ValueError("a likelihood without berths")
        for number, weights in fresh.items():
            own = drawn(self._patterns, weights, self._sizes)
            likelihood.load_patterns(self._spot(number).first_part, own)


class LoadWeights(Request, eq=False):
    """That the likelihood has what is drawn: once for all replicates that begin together."""

    spots: Spots

    @property
    def kind(self) -> Hashable:
        """Of the same spots."""
        return type(self), id(self.spots)

    def answer(self, likelihood: SearchLikelihood) -> Sequence[None]:
        """Nothing."""
        self.spots.load(likelihood)
        return [None] * len(self.trees)
