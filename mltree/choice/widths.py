"""Categories that engines are built for, and the likelihoods of a choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from mltree.alignment.patterns import Patterns
from mltree.likelihood.api import Likelihood
from mltree.model.candidates import MOST_FREE_RATES
from mltree.model.substitution import Model
from mltree.placement import Resources, place
from mltree.ranks import here

__all__ = ["WIDTHS", "Likelihoods", "engine_width", "in_lots"]

WIDTHS = (4, 5, 8, MOST_FREE_RATES)
"""A candidate of fewer is filled up with some of weight 0, for a build takes longer than they
do."""

LOT = 256
"""Fits side by side: what 2,100 of 100 parts' matrices ask for at once takes 250 MB of the host."""


def engine_width(models: Sequence[Model]) -> int:
    """Categories of the engine that some models are fitted on."""
    most = max(model.arrays().n_categories for model in models)
    return min(width for width in WIDTHS if width >= most)


def in_lots(parts: Sequence[int], models: Sequence[Model]) -> Iterator[tuple[int, list[int]]]:
    """A width and numbers of fits, of about :data:`LOT` at a time and all of a part together.

    ``parts``: of the fits, those of a part one after the other; ``models``: that are fitted.
    """
    widths = [engine_width([model]) for model in models]
    for width in WIDTHS:
        lot: list[int] = []
        suiting = (n for n in range(len(parts)) if widths[n] == width)
        for _, own in groupby(suiting, key=parts.__getitem__):
            if len(lot) >= LOT:
                yield width, lot
                lot = []
            lot += own
        if lot:
            yield width, lot


class Likelihoods:
    """Of trees of single parts, by their categories, each opened when it is first asked for."""

    def __init__(
        self,
        patterns: Patterns,
        resources: Resources,
        bounds: tuple[float, float],
        known: Mapping[int, Likelihood],
    ) -> None:
        """``bounds``: of branch lengths; ``known``: those that are open."""
        self._patterns, self._resources, self._bounds = patterns, resources, bounds
        self._open = dict(known)

    def __call__(self, width: int) -> Likelihood:
        """That of so many categories.

        Raises:
            DeviceError: a device cannot be found or used.
        """
        if width not in self._open:
            placement = place(
                self._resources, self._patterns, width, self._bounds, apart=True, among=here()
            )
            self._open[width] = placement.likelihood(self._patterns)
        return self._open[width]
