"""Many models at once: to the bit what each says by itself."""

from dataclasses import replace

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.models.grammar import parse_model
from mltree.models.parameters import arrays_of, vector, with_vector, with_vectors
from mltree.models.partitioned import PartitionModel
from mltree.models.substitution import Model, arrays_of_all

FORMS = (
    "GTR+FO+G4", "GTR+FO+G4", "GTR+FE+G4{0.5}", "HKY+FE+I+G4", "K80+I", "K80{2.5}+R3", "JC",
    "JC+G2m", "TN93+FE+R2", "GTR{1/2/3/4/5/1}+FE+G4", "MIX{JC,HKY+FO}+G2",
)  # fmt: skip
OF_PROTEINS = ("LG+G4", "WAG+I", "LG+FO+G4", "LG+C10+G4", "LG4X")


def models_of(rng: np.random.Generator) -> list[Model]:
    """Each form three times, at values of its own, in any order."""
    texts = [(text, DNA) for text in FORMS] + [(text, PROTEIN) for text in OF_PROTEINS]
    started = [parse_model(*texts[n]) for n in rng.permutation(3 * len(texts)) % len(texts)]
    return [with_vector(model, moved(model, rng)) for model in started]


def moved(model: Model, rng: np.random.Generator) -> np.ndarray:
    """A vector near the model's own."""
    x = vector(model)
    return x + rng.normal(scale=0.2, size=x.size)


def assert_same(found: object, expected: object) -> None:
    """The same bits in every table."""
    assert vars(found).keys() == vars(expected).keys()
    for name, table in vars(expected).items():
        np.testing.assert_array_equal(vars(found)[name], table, err_msg=name)


@pytest.mark.cases(2, 50)
def test_vectors_of_many_models(case):
    rng = np.random.default_rng(case)
    models = models_of(rng)
    vectors = [moved(model, rng) for model in models]
    for model, x, found in zip(models, vectors, with_vectors(models, vectors), strict=True):
        expected = with_vector(model, x)
        np.testing.assert_array_equal(vector(found), vector(expected))
        assert_same(found.arrays(), expected.arrays())


@pytest.mark.cases(2, 50)
def test_arrays_of_many_models(case):
    models = models_of(np.random.default_rng(case))
    alone = [replace(model) for model in models]  # which know no arrays yet
    for own, found in zip(alone, arrays_of_all(models), strict=True):
        assert_same(found, own.arrays())


@pytest.mark.cases(2, 50)
def test_points_of_many_models(case):
    rng = np.random.default_rng(case)
    models = models_of(rng)
    points = [np.stack([moved(m, rng) for _ in range(rng.integers(1, 5))]) for m in models]
    scalers = [rng.uniform(0.5, 2.0, len(own)) for own in points]
    shapes = PartitionModel(tuple(models), scalers=np.ones(len(models))).shapes
    # Those of some parts may be computed with more categories than others of their form.
    shapes = [(s, k + s * int(rng.integers(2))) for s, k in shapes]
    together = arrays_of(models, points, scalers, shapes)
    for n, model in enumerate(models):
        (alone,) = arrays_of([model], [points[n]], [scalers[n]], [shapes[n]])
        for x, scaler, found, own in zip(points[n], scalers[n], together[n], alone, strict=True):
            assert_same(found, own)
            expected = with_vector(model, x).arrays()
            width = expected.n_categories // expected.n_systems
            kept = found.rates.reshape(found.n_systems, -1)[: expected.n_systems, :width]
            np.testing.assert_allclose(kept.ravel(), expected.rates * scaler, rtol=1e-14)
