"""Eigen systems of patterns that have state frequencies of their own (PMSF).

Wang, Minh, Susko & Roger (2018, Syst. Biol. 67:216-235): in place of a mixture of profiles, site i
has one vector π_i, the mean of the profiles' under their probabilities there. With the
exchangeabilities r of the model

    Q_i[a, b] = c_i r[a, b] π_i[b],   -Σ_a π_i[a] Q_i[a, a] = 1

and rates among sites multiply it as any other matrix. Q_i = V diag(λ) V⁻¹ with V = diag(1/√π_i) U
and V⁻¹ = Uᵀ diag(√π_i), U orthonormal: λ, U and √π_i are all that there is to keep.
"""

from __future__ import annotations

import numpy as np

from mltree.alignment.site_frequencies import SiteSystems
from mltree.arrays import Float64
from mltree.model.eigen import decompose

__all__ = ["site_systems"]


AT_ONCE = 64
"""Matrices that are decomposed together: they stay in a level-2 cache (5,000 of 20 states took 3.5
instead of 5.3 s on one core)."""


def site_systems(exchangeabilities: Float64, frequencies: Float64) -> SiteSystems:
    """The eigen systems of f64 [S(S-1)/2] exchangeabilities with each of f64 [L, S] frequencies.

    Raises: ModelError as :func:`mltree.model.eigen.rate_matrix`.
    """
    distinct, which = np.unique(frequencies, axis=0, return_inverse=True)
    each = [
        _decomposed(exchangeabilities, distinct[first : first + AT_ONCE])
        for first in range(0, len(distinct), AT_ONCE)
    ]
    parts = (np.concatenate(tables) for tables in zip(*each, strict=True))
    square = np.zeros((frequencies.shape[1],) * 2)
    square[np.triu_indices(len(square), 1)] = exchangeabilities
    eigenvalues, vectors, roots = parts
    return SiteSystems(eigenvalues, vectors, roots, square + square.T).take(which.ravel())


def _decomposed(
    exchangeabilities: Float64, frequencies: Float64
) -> tuple[Float64, Float64, Float64]:
    count, one = len(frequencies), np.ones((len(frequencies), 1))
    shared = np.broadcast_to(exchangeabilities, (count, len(exchangeabilities)))
    arrays = decompose(shared, frequencies, one, one)
    roots = np.sqrt(arrays.frequencies)
    return arrays.eigenvalues, arrays.right * roots[..., None], roots
