"""Eigen systems of patterns against the rate matrices that they are of."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.models.eigen import AT_ONCE, rate_matrix, site_systems


@pytest.mark.parametrize("patterns", [1, AT_ONCE + 1])
def test_they_make_up_the_rate_matrices(patterns: int) -> None:
    rng = np.random.default_rng(patterns)
    exchangeabilities = np.exp(rng.normal(size=190))
    frequencies = rng.dirichlet(np.full(20, 0.5), patterns)
    frequencies = np.concatenate([frequencies, frequencies[:1]])
    systems = site_systems(exchangeabilities, frequencies)
    made = (systems.right * systems.eigenvalues[:, None]) @ systems.left
    shared = np.broadcast_to(exchangeabilities, (patterns + 1, 190))
    np.testing.assert_allclose(made, rate_matrix(shared, frequencies), atol=1e-6)
    np.testing.assert_allclose(systems.frequencies, frequencies, atol=1e-8)
    np.testing.assert_array_equal(systems.vectors[0], systems.vectors[-1])
    some = systems.take(np.array([patterns, 0]))
    np.testing.assert_array_equal(some.roots, systems.roots[[patterns, 0]])
