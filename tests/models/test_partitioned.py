"""Models of parts: how their arrays go together, and what their scalers mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import fitted, p_matrices
from mltree.models.grammar import format_model, parse_model
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)

TEXTS = ("GTR{1/3/1/2/4/1}+FU{0.4/0.1/0.2/0.3}+G4{0.5}", "JC", "HKY{3}+FE+I{0.2}+G2{0.8}")
"""Of 4, 1 and 3 categories."""

SIZES = (9, 4, 13)
"""Patterns."""


def parts(
    linkage: Linkage = Linkage.LINKED, scalers: Sequence[float] = (1.0, 1.0, 1.0)
) -> PartitionModel:
    shares = np.array(SIZES) / sum(SIZES)
    models = tuple(parse_model(text, DNA) for text in TEXTS)
    return PartitionModel(models, ("a", "b", "c"), linkage, np.array(scalers), shares)


@pytest.fixture
def problem(make_problem: Callable[..., Problem]) -> Problem:
    """An alignment in three parts."""
    found = make_problem(6, sum(SIZES))
    ends = tuple(np.cumsum(SIZES).tolist())
    return replace(found, patterns=replace(found.patterns, ends=ends))


def part_lnls(problem: Problem, tree: Tree, model: PartitionModel) -> np.ndarray:
    """f64[parts] by the reference, all parts of one engine."""
    engine = ReferenceEngine(problem.patterns, max(model.categories), BOUNDS)
    likelihood = TreeLikelihood(engine, BOUNDS)
    return likelihood.part_log_likelihoods([tree], [Case(model.arrays())])[0]


def lone_lnls(problem: Problem, tree: Tree, model: PartitionModel) -> list[float]:
    """Every part by itself, in as many categories as its model has."""
    lnls = []
    for span, own, scaler in zip(problem.patterns.parts, model.models, model.scalers, strict=True):
        patterns = replace(
            problem.patterns,
            codes=problem.patterns.codes[:, span],
            weights=problem.patterns.weights[span],
            ends=(),
        )
        arrays = own.arrays()
        likelihood = TreeLikelihood(ReferenceEngine(patterns, arrays.n_categories, BOUNDS), BOUNDS)
        scaled = Tree(tree.twin, tree.edge, scaler * tree.lengths, tree.n_tips)
        lnls.append(float(likelihood.log_likelihoods([scaled], [Case((arrays,))])[0]))
    return lnls


def test_categories_that_a_part_lacks_change_nothing(problem: Problem) -> None:
    model = parts()
    assert model.categories == (4, 4, 4)
    assert [arrays.n_categories for arrays in model.arrays()] == [4, 4, 4]
    assert [np.count_nonzero(arrays.weights) for arrays in model.arrays()] == [4, 1, 3]
    for arrays in model.arrays():
        assert arrays.weights.sum() == pytest.approx(1.0)
        assert arrays.weights @ arrays.rates == pytest.approx(1.0)
    expected = lone_lnls(problem, problem.tree, model)
    np.testing.assert_allclose(part_lnls(problem, problem.tree, model), expected, rtol=1e-12)


def test_only_parts_of_one_state_count_are_filled_up_alike() -> None:
    proteins = (parse_model("LG+G2{0.5}", PROTEIN), parse_model("WAG", PROTEIN))
    dna = parts().models[:2]
    model = PartitionModel((dna[1], proteins[0], dna[0], proteins[1]), ("a", "b", "c", "d"))
    model = replace(model, scalers=np.ones(4), shares=np.full(4, 0.25))
    assert model.categories == (4, 2, 4, 2)
    assert [arrays.n_categories for arrays in model.arrays()] == [4, 2, 4, 2]


def test_what_fits_is_left_as_it_is() -> None:
    arrays = parts().models[0].arrays()
    assert fitted(arrays, 1.0, 1, 4) is arrays
    assert alone(parts().models[0]).arrays()[0].n_categories == 4


def test_arrays_are_made_once() -> None:
    """An engine knows models by who they are."""
    model = parts(Linkage.SCALED, (0.5, 2.0, 1.0))
    assert all(one is other for one, other in zip(model.arrays(), model.arrays(), strict=True))


def test_a_scaler_makes_the_branches_of_its_part_longer(problem: Problem) -> None:
    model = parts(Linkage.SCALED, (0.3, 2.5, 1.0))
    expected = lone_lnls(problem, problem.tree, model)
    np.testing.assert_allclose(part_lnls(problem, problem.tree, model), expected, rtol=1e-12)
    t = np.array([0.2])
    for arrays, own, scaler in zip(model.arrays(), model.models, model.scalers, strict=True):
        k = own.arrays().n_categories
        np.testing.assert_allclose(
            p_matrices(arrays, t)[0, :k], p_matrices(own.arrays(), scaler * t)[0], atol=1e-14
        )


@pytest.mark.cases(5, 200)
def test_normalised_scalers_have_a_mean_of_1_over_the_sites(problem: Problem, case: int) -> None:
    rng = np.random.default_rng(case)
    model = parts(Linkage.SCALED, np.exp(rng.normal(size=3)).tolist())
    usual, factor = model.normalised()
    assert usual.scalers @ usual.shares == pytest.approx(1.0)
    np.testing.assert_allclose(usual.scalers * factor, model.scalers)
    assert (usual.models, usual.names, usual.linkage) == (model.models, model.names, model.linkage)
    tree = problem.tree
    longer = Tree(tree.twin, tree.edge, factor * tree.lengths, tree.n_tips)
    before = part_lnls(problem, tree, model)
    np.testing.assert_allclose(part_lnls(problem, longer, usual), before, rtol=1e-12)
    assert usual.normalised()[1] == pytest.approx(1.0)


@pytest.mark.parametrize("linkage", [Linkage.LINKED, Linkage.UNLINKED])
def test_without_scalers_nothing_is_normalised(linkage: Linkage) -> None:
    model = parts(linkage)
    assert model.normalised() == (model, 1.0)


def test_mean_lengths_weigh_parts_by_their_sites(problem: Problem) -> None:
    model = parts(Linkage.UNLINKED)
    linked = problem.tree.lengths
    assert model.mean_lengths(linked) is linked
    own = np.random.default_rng(3).exponential(size=(3, linked.size))
    expected = [sum(n * t for n, t in zip(SIZES, of, strict=True)) / sum(SIZES) for of in own.T]
    np.testing.assert_allclose(model.mean_lengths(own), expected)
    same = np.tile(linked, (3, 1))
    np.testing.assert_allclose(model.mean_lengths(same), linked)


def test_other_models_of_the_same_parts() -> None:
    model = parts(Linkage.SCALED, (0.5, 2.0, 1.0))
    others = model.with_parts(model.models[::-1])
    assert others.models == model.models[::-1]
    assert (others.names, others.linkage) == (model.names, model.linkage)
    np.testing.assert_array_equal(others.scalers, model.scalers)
    np.testing.assert_array_equal(others.shares, model.shares)
    assert others.categories == (4, 4, 4)
    scaled = model.with_parts(model.models, np.array([2.0, 0.5, 1.0]))
    assert scaled.scalers.tolist() == [2.0, 0.5, 1.0]
    np.testing.assert_allclose(scaled.arrays()[0].rates, 4.0 * model.arrays()[0].rates, rtol=1e-12)


def test_a_lone_model_speaks_for_itself() -> None:
    (own, *_) = parts().models
    model = alone(own)
    assert model.lone is own
    assert model.n_parts == 1
    assert model.text == format_model(own)
    assert parts(Linkage.SCALED).text == "3 parts, scaled branch lengths"
    with pytest.raises(ValueError, match="too many values"):
        _ = parts().lone
