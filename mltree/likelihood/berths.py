"""The likelihood of trees over what replicates drew, each in a berth of its own.

A *berth* is a range of parts with room for what any of them drew (:mod:`mltree.alignment.drawn`).
Replicates take turns in it, so that kernels compute no pattern that a replicate has no weight for.
"""

from __future__ import annotations

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.likelihood.api import Likelihood
from mltree.likelihood.classes import Columns
from mltree.likelihood.engine import BerthEngine

__all__ = ["BerthLikelihood"]


class BerthLikelihood(Likelihood):
    """The likelihood of trees over patterns that come and go."""

    def __init__(
        self,
        engine: BerthEngine,
        length_bounds: tuple[float, float],
        columns: Columns,
        planners: int = 1,
    ) -> None:
        super().__init__(engine, length_bounds, columns, planners)
        self._berths, self._parts = engine, columns.parts
        self._rows = np.array(self._rows)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.likelihood.engine.BerthEngine.load_patterns`."""
        self._berths.load_patterns(first_part, patterns)
        first = self._parts[first_part].start
        self._rows[0, first : first + patterns.n_patterns] = patterns.weights
        self._resident = None
