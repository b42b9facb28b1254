"""Parameters as points: densities have their Jacobians, points give the models that they name."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.data.alphabet import BINARY, DNA, PROTEIN, Alphabet
from mltree.models.grammar import parse_model
from mltree.models.parameters import with_vector
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.sampling.model_space import ModelSpace, Positive, Proportion, Simplex
from mltree.sampling.priors import Beta, Priors, Uniform
from mltree.system.errors import ModelError

MODELS = (
    ("JC", DNA),
    ("K80+G4", DNA),
    ("HKY+I+G4", DNA),
    ("TN93+R3", DNA),
    ("GTR+FO+I+G4", DNA),
    ("LG+FO+G4", PROTEIN),
    ("BIN+FO+G4", BINARY),
)


def space_of(text: str, alphabet: Alphabet) -> ModelSpace:
    return ModelSpace(alone(parse_model(text, alphabet)), Priors())


@pytest.mark.parametrize(("text", "alphabet"), MODELS, ids=lambda x: str(x)[:12])
def test_density_is_that_of_natural_values_times_the_jacobian(text: str, alphabet) -> None:
    space, rng = space_of(text, alphabet), np.random.default_rng(1)
    for block in space.blocks:
        x = space.start[block.span] + rng.normal(size=block.size) * 0.3
        count = block.size

        def free(at: np.ndarray, block=block) -> np.ndarray:
            values = block.shares(at) if isinstance(block, Simplex) else block.values(at)
            kept = np.delete(values, block.reference) if isinstance(block, Simplex) else values
            return np.asarray(kept)

        steps = np.eye(count) * 1e-5
        slopes = np.array([(free(x + s) - free(x - s)) / 2e-5 for s in steps])
        log_jacobian = np.linalg.slogdet(slopes)[1]
        values = block.shares(x) if isinstance(block, Simplex) else block.values(x)[0]
        assert isinstance(block, Simplex | Positive | Proportion)
        natural = block.prior.log_density(values)
        assert block.log_density(x) == pytest.approx(float(natural + log_jacobian), abs=1e-8)


@pytest.mark.parametrize(("text", "alphabet"), MODELS, ids=lambda x: str(x)[:12])
def test_arrays_are_those_of_the_model_at_the_point(text: str, alphabet) -> None:
    space = space_of(text, alphabet)
    points = space.start + np.random.default_rng(2).normal(size=(3, space.size)) * 0.2
    (stack,) = space.stacks(points)
    for point, arrays in zip(points, stack, strict=True):
        model = with_vector(space.model.lone, point)
        for name, table in vars(model.arrays()).items():
            np.testing.assert_allclose(getattr(arrays, name), table, rtol=1e-9, atol=1e-12)
        values = dict(zip(space.labels, space.values(point[None])[0], strict=True))
        if "alpha" in values:
            assert values["alpha"] == pytest.approx(model.heterogeneity.alpha)
        if "pinvar" in values:
            assert values["pinvar"] == pytest.approx(model.p_invariant)
        if "pi(A)" in values:
            assert values["pi(A)"] == pytest.approx(model.frequencies[0])


def test_names_are_mrbayes() -> None:
    labels = space_of("GTR+FO+I+G4", DNA).labels
    assert labels[:2] == ["r(A<->C)", "r(A<->G)"]
    assert labels[6:] == ["pi(A)", "pi(C)", "pi(G)", "pi(T)", "pinvar", "alpha"]


def test_rates_of_parts_have_mean_one() -> None:
    models = (parse_model("HKY+G4", DNA), parse_model("JC", DNA))
    shares = np.array([0.3, 0.7])
    whole = PartitionModel(models, ("a", "b"), Linkage.SCALED, np.array([0.5, 1.2142857]), shares)
    space = ModelSpace(whole, Priors())
    assert space.labels[-2:] == ["m{1}", "m{2}"]
    assert space.labels[0] == "kappa{1}"
    points = space.start + np.random.default_rng(3).normal(size=(4, space.size)) * 0.4
    rates = space.values(points)[:, -2:]
    np.testing.assert_allclose(rates @ shares, 1, rtol=1e-12)
    np.testing.assert_allclose(space.values(space.start[None])[0, -2:], [0.5, 1.2142857], rtol=1e-6)
    speeds = np.array([[own.weights @ own.rates for own in s] for s in space.stacks(points)]).T
    np.testing.assert_allclose(speeds, rates, rtol=1e-9)
    assert [group.stop - group.start for group in space.groups] == [5, 1]


def test_small_shapes_have_their_prior() -> None:
    """Shapes below the least of a search: a flat prior may have much of its mass there."""
    space = space_of("HKY+G4a", DNA)
    points = np.tile(space.start, (2, 1))
    points[:, -1] = np.log([0.005, 0.0005])
    density, beyond = space.log_prior(points)
    points[0, -1] = np.log(0.05)
    assert density - space.log_prior(points)[0] == pytest.approx(0.045 - np.log(10))  # Exp(1)
    assert beyond == -np.inf
    (stack,) = space.stacks(points)
    assert np.isfinite(stack[0].rates).all()


def test_out_of_bounds_is_impossible() -> None:
    space = space_of("HKY+G4", DNA)
    point = space.start[None].copy()
    point[0, -1] = 50.0
    assert space.log_prior(point)[0] == -np.inf
    assert np.isfinite(space.log_prior(space.start[None]))[0]


def test_a_start_that_a_prior_excludes_is_moved_to_where_it_has_a_density() -> None:
    model = alone(parse_model("HKY+I+G4", DNA))
    priors = Priors(kappa=Uniform(8, 20), alpha=Beta(2, 2), p_invariant=Uniform(0.6, 0.8))
    space = ModelSpace(model, priors)
    assert np.isfinite(space.log_prior(space.start[None]))[0]
    values = dict(zip(space.labels, space.values(space.start[None])[0], strict=True))
    assert 8 < values["kappa"] < 20
    assert 0.6 < values["pinvar"] < 0.8
    outside = space.start[None].copy()
    outside[0, -1] = 1.0
    assert space.log_prior(outside)[0] == -np.inf, "alpha above 1"
    with pytest.raises(ModelError, match=r"alpha is between .* Uniform\(1e\+06, 2e\+06\)"):
        ModelSpace(model, Priors(alpha=Uniform(1e6, 2e6)))


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(ModelError, match="190 exchangeabilities"):
        space_of("PROTGTR", PROTEIN)
