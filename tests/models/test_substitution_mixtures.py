"""Mixtures: the published tables, their terms, and how classes and rates go together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.models import parameters
from mltree.models.eigen import fitted, p_matrices
from mltree.models.grammar import format_model, parse_model
from mltree.models.parameters import arrays_of, with_vector
from mltree.models.partitioned import PartitionModel, alone
from mltree.models.substitution import PAIRED, PROFILES, Model, paired_mixture, profile_mixture
from mltree.system.errors import ModelError


def counted(text: str) -> Model:
    model = parse_model(text, PROTEIN)
    if model.frequency_mode == "FC":
        return replace(model, frequencies=np.linspace(1, 3, 20) / 40)
    return model


@pytest.mark.parametrize("name", PROFILES)
def test_profiles(name: str) -> None:
    mixture = profile_mixture(name)
    assert mixture.n_classes == len(mixture.frequencies) == int(name[1:])
    np.testing.assert_allclose(mixture.frequencies.sum(axis=1), 1.0)
    assert mixture.weights.sum() == pytest.approx(1.0)
    assert len({row.tobytes() for row in mixture.frequencies}) == mixture.n_classes


@pytest.mark.parametrize("name", PAIRED)
def test_paired_tables(name: str) -> None:
    mixture = paired_mixture(name)
    assert mixture.tables.exchangeabilities.shape == (4, 190)
    assert parameters.free_parameters(parse_model(name, PROTEIN)) == {"LG4M": 1, "LG4X": 6}[name]


MODELS = [
    "LG+C10", "C20", "WAG+C10+I{0.2}+R3", "LG+C10+F+G4", "LG4M", "LG4X+I", "PROTGTR+C10+FO",
    "MIX{LG,WAG+FO}+G4", "MIX{LG:1:0.2,JTT:3:0.8}+I{0.1}+R2", "PROTGTR+FMIX{FO,FE}+I",
]  # fmt: skip


@pytest.mark.parametrize("text", MODELS)
def test_arrays(text: str) -> None:
    """One substitution per site and unit of length, over all classes and categories."""
    arrays = counted(text).arrays()
    weights = arrays.weights.reshape(arrays.n_systems, -1)
    assert arrays.weights.sum() == pytest.approx(1.0)
    assert (arrays.weights * arrays.rates).sum() == pytest.approx(1.0)
    short = 1e-6
    changed = 0.0
    for n, row in enumerate(weights):
        own = replace(
            arrays,
            **{name: getattr(arrays, name)[n] for name in
               ("eigenvalues", "right", "left", "frequencies", "generator", "direct")},
            rates=arrays.rates.reshape(weights.shape)[n], weights=row,
        )  # fmt: skip
        stay = np.diagonal(p_matrices(own, np.array([short]))[0], axis1=1, axis2=2)
        changed += float((row[:, None] * own.frequencies * (1 - stay)).sum())
    assert changed == pytest.approx(short, rel=1e-3)


@pytest.mark.parametrize("text", MODELS)
def test_points_of_an_optimiser_are_models(text: str) -> None:
    model = counted(text)
    x = parameters.vector(model)
    points = np.stack([x, x + 0.1])
    (found,) = arrays_of([model], [points], [np.ones(2)], alone(model).shapes)
    for point, arrays in zip(points, found, strict=True):
        expected = with_vector(model, point).arrays()
        for name, value in vars(expected).items():
            np.testing.assert_allclose(getattr(arrays, name), value, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("text", ["LG+C10{1/2/1/1/1/1/1/1/1/1}+G4{0.5}", "LG4M+G4{0.7}",
                                  "LG4X+R4{0.9/0.1/1.5/1.5}{0.25/0.25/0.25/0.25}",
                                  "MIX{LG,WAG+FO}+G4{0.5}", "PROTGTR+FMIX{FO,FE}",
                                  "LG+FMIX{optimize:1:0.3,FE:2:0.7}+I{0.2}"])  # fmt: skip
def test_what_is_written_is_read(text: str) -> None:
    model = parse_model(text, PROTEIN)
    again = parse_model(format_model(model), PROTEIN)
    np.testing.assert_allclose(again.arrays().rates, model.arrays().rates, atol=1e-5)
    np.testing.assert_allclose(again.arrays().weights, model.arrays().weights, atol=1e-5)
    assert parameters.names(again) == []
    assert model.with_values(model.values()).arrays().weights == pytest.approx(
        model.arrays().weights
    )


def test_own_class_takes_part_with_a_weight() -> None:
    model = counted("LG+C10+F+G4")
    assert model.mixture is not None
    assert (model.mixture.n_classes, model.mixture.free_weights) == (11, 10)
    assert parameters.free_parameters(model) == 19 + 10 + 1
    given = counted("LG+C10{1/1/1/1/1/1/1/1/1/1/5}+F")
    assert given.mixture is not None
    assert given.mixture.free_weights == 0
    assert given.arrays().weights[-1] == pytest.approx(1 / 3)


def test_frequencies_that_no_term_tells_make_no_class(tmp_path: Path) -> None:
    """PROTGTR's and a file's: IQ-TREE 2.0.7 has ten classes for GTR20+C10 and own.dat+C10."""
    rng = np.random.default_rng(1)
    file = tmp_path / "own.dat"
    rows = [" ".join(map(str, rng.uniform(0.1, 2.0, n))) for n in range(1, 20)]
    file.write_text("\n".join([*rows, " ".join(["0.05"] * 20)]))
    for text in ("GTR20+C10+G4", "PROTGTR+G4+C10", f"PROTGTR{{{file}}}+C10"):
        model = parse_model(text, PROTEIN)
        assert model.mixture is not None
        assert (model.mixture.n_classes, model.mixture.free_weights) == (10, 0)
        again = parse_model(format_model(model), PROTEIN)
        assert again.mixture is not None
        assert again.mixture.n_classes == 10
    assert parameters.free_parameters(parse_model("GTR20+C10+G4", PROTEIN)) == 189 + 1
    with_own = counted("GTR20+FO+C10")
    assert with_own.mixture is not None
    assert (with_own.mixture.n_classes, with_own.mixture.free_weights) == (11, 10)


def test_parts_are_filled_up() -> None:
    models = (counted("LG+C10+G4"), counted("WAG+FC+R5"), parse_model("GTR+FE+G4", DNA))
    both = PartitionModel(models, ("a", "b", "c"), scalers=np.ones(3))
    assert both.shapes == ((10, 50), (10, 50), (1, 4))
    mixed, plain, _ = both.arrays()
    assert (plain.n_systems, plain.n_categories) == (10, 50)
    assert plain.weights.sum() == pytest.approx(1.0)
    assert np.count_nonzero(plain.weights) == 5
    assert np.count_nonzero(mixed.weights) == 40
    assert fitted(mixed, 2.0, 10, 50).rates == pytest.approx(2 * mixed.rates)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LG+C15", "cannot read the profiles"),
        ("LG+C10{1/2}", "expected 10 weights, not 2"),
        ("LG+C10{0/0/0/0/0/0/0/0/0/0}", "nor all zero"),
        ("LG+C10{1/1/1/1/1/1/1/1/1/1/5}", "expected 10 weights, not 11"),
        ("LG4X+C10", "classes of its own"),
        ("LG4X+G8", "4 rates, one for each"),
        ("LG4M+F", "frequencies of its own"),
        ("C20+C10", "classes of its own"),
    ],
)
def test_what_cannot_be(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_model(text, PROTEIN)
    with pytest.raises(ModelError, match="profiles are for proteins"):
        parse_model("GTR+C10", DNA)
