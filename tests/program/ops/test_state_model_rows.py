"""Models as rows, and back."""

import numpy as np
import pytest

from mltree.models.eigen import random_reversible
from mltree.program.ops.state import RowLayout, model_rows


def test_model_rows_come_back_as_they_went_in() -> None:
    rng = np.random.default_rng(7)
    models = [random_reversible(5, rng, categories=3) for _ in range(2)]
    rows = model_rows(models)
    layout = RowLayout(5, 3)
    assert rows.shape == (2, layout.words)
    for row, model in zip(layout.unpack(rows), models, strict=True):
        values, right, left, generator, twice, *rest = row
        frequencies, rates, weights = rest
        np.testing.assert_allclose(twice, generator @ generator)
        for category in range(3):
            np.testing.assert_array_equal(values[category], model.eigenvalues)
            np.testing.assert_array_equal(right[category], model.right)
            np.testing.assert_array_equal(left[category], model.left)
        np.testing.assert_array_equal(rates, model.rates)
        np.testing.assert_array_equal(weights, model.weights)
        np.testing.assert_allclose(left.swapaxes(1, 2), frequencies[..., None] * right)
        np.testing.assert_allclose(generator.sum(axis=2), 0, atol=1e-12)
        for pi, q in zip(frequencies, generator, strict=True):
            np.testing.assert_allclose(pi @ q, 0, atol=1e-12)
            assert -pi @ np.diag(q) == pytest.approx(1.0)
