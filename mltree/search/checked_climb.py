"""A climb that may begin where it ends: at a maximum that something else has told."""

from __future__ import annotations

from typing import Any

import numpy as np

from mltree.arrays import Float64
from mltree.search.trust_region import Climb

__all__ = ["Checked"]


class Checked(Climb):
    """By Newton's steps, but only where the first of its starts has not the value it should have.

    That is looked at before anything is measured around it.
    """

    def __init__(self, told: float, starts: Float64, *rest: Any) -> None:
        """``told``: the value of the first start, if that is a maximum."""
        super().__init__(starts, *rest)
        self._told: float | None = told

    def points(self) -> Float64:
        """The starts, before all else."""
        return super().points() if self._told is None else self._ends

    def note(self, values: Float64) -> None:
        """Take in f64[m] values at the points."""
        if self._told is None:
            super().note(values)
            return
        best = int(values.argmax())
        self.x, self.value = self._ends[best], float(values[best])
        is_so = best == 0 and abs(values[0] - self._told) < self._epsilon
        self.done = self.converged = bool(is_so)
        self.promise = 0.0 if is_so else np.inf
        self._told, self._ends = None, self.x[None]
