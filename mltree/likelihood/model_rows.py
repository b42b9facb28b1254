"""Models as the flat rows that engines read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltree import contract
from mltree.model.eigen import ModelArrays
from mltree.model.portable import product

__all__ = ["RowLayout", "model_rows"]

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RowLayout:
    """Where things lie in a model row of S states and K categories."""

    states: int
    categories: int

    @property
    def words(self) -> int:
        """Numbers in a row."""
        square = self.states * self.states
        return 2 * self.states + contract.MODEL_SQUARES * square + 2 * self.categories

    def unpack(self, row: Float64) -> tuple[Float64, ...]:
        """(eigenvalues, right, left, pi_right, Q, Q Q, frequencies, rates, weights)."""
        s, k = self.states, self.categories
        sizes = [s, *[s * s] * contract.MODEL_SQUARES, s, k, k]
        shapes = [(s,), *[(s, s)] * contract.MODEL_SQUARES, (s,), (k,), (k,)]
        parts = np.split(row, np.cumsum(sizes)[:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))


def model_rows(models: Sequence[ModelArrays]) -> Float64:
    """f64[M, words], a row per model (see ``opencl/session.h``)."""
    eigenvalues, right, left, frequencies, rates, weights = (
        np.stack(parts) for parts in zip(*(vars(model).values() for model in models), strict=True)
    )
    generator = product(right * eigenvalues[:, None, :], left)
    pi_right = frequencies[:, :, None] * right
    squares = (right, left, pi_right, generator, product(generator, generator))
    flat = [square.reshape(len(models), -1) for square in squares]
    return np.concatenate([eigenvalues, *flat, frequencies, rates, weights], axis=1)
