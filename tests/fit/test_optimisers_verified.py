"""An optimiser with an expected maximum, right or wrong."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.fit.optimisers import TrustRegion, advance

TOP = np.array([0.4, -0.3])
EPSILON = 1e-6


def bowl(x: np.ndarray) -> np.ndarray:
    return 5.0 - ((x - TOP) ** 2).sum(axis=1)


def optimiser(expected: float, starts: np.ndarray) -> tuple[TrustRegion, list[int]]:
    """Return the optimiser at its end, and how many points each launch had."""
    found = TrustRegion(starts, np.full(2, -9.0), np.full(2, 9.0), 1e-3, EPSILON, maximum=expected)
    points = []
    while not found.done:
        points.append(len(found.points()))
        advance([found], [bowl(found.points())])
    np.testing.assert_allclose(found.x, TOP, atol=1e-3)
    assert found.converged
    assert found.value == bowl(found.x[None])[0]
    return found, points


def test_an_expected_maximum_is_evaluated_once() -> None:
    found, points = optimiser(5.0, np.stack([TOP, np.zeros(2)]))
    assert points == [2]
    assert found.predicted_gain == 0.0


@pytest.mark.parametrize(
    ("expected", "first"), [(5.5, TOP), (4.5, TOP), (bowl(np.ones((1, 2)))[0], np.ones(2))]
)
def test_another_value_than_expected_starts_an_optimisation(
    expected: float, first: np.ndarray
) -> None:
    """Another value than the expected one, or a better start beside it."""
    _, points = optimiser(expected, np.stack([first, np.zeros(2)]))
    assert points[0] == 2
    assert len(points) > 1
