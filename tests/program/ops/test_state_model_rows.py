"""Models as rows, and back."""

import numpy as np
import pytest

from mltree.models.eigen import random_reversible
from mltree.program.ops.state import ModelRow, model_rows


def test_model_rows_come_back_as_they_went_in() -> None:
    rng = np.random.default_rng(7)
    models = [random_reversible(5, rng, categories=3) for _ in range(2)]
    rows = model_rows(models)
    assert rows.shape == (2, 2 * 5 + 4 * 5 * 5 + 2 * 3)
    for row, model in zip(rows, models, strict=True):
        values, *squares, frequencies, rates, weights = np.split(
            row, np.cumsum([5, 25, 25, 25, 25, 5, 3])
        )
        right, left, generator, twice = (square.reshape(5, 5) for square in squares)
        np.testing.assert_allclose(twice, generator @ generator)
        np.testing.assert_array_equal(values, model.eigenvalues)
        np.testing.assert_array_equal(right, model.right)
        np.testing.assert_array_equal(left, model.left)
        np.testing.assert_array_equal(rates, model.rates)
        np.testing.assert_array_equal(weights, model.weights)
        np.testing.assert_allclose(left.T, frequencies[:, None] * right)
        np.testing.assert_allclose(generator.sum(axis=1), 0, atol=1e-12)
        np.testing.assert_allclose(frequencies @ generator, 0, atol=1e-12)
        assert -frequencies @ np.diag(generator) == pytest.approx(1.0)


def test_a_model_is_spread_over_its_categories() -> None:
    model = random_reversible(5, np.random.default_rng(7), categories=3)
    row = ModelRow.of(model)
    for category in range(3):
        np.testing.assert_array_equal(row.eigenvalues[0, category], model.eigenvalues)
        np.testing.assert_array_equal(row.right[0, category], model.right)
        np.testing.assert_array_equal(row.left[0, category], model.left)
        np.testing.assert_array_equal(row.generator[0, category], model.generator)
        np.testing.assert_array_equal(row.frequencies[0, category], model.frequencies)
