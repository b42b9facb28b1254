"""The model optimiser: better, bounded, and true to what the user fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.model.grammar import parse_model
from mltree.search.model_optimiser import optimise_model
from mltree.settings import BranchSettings, ModelSettings

if TYPE_CHECKING:
    from conftest import Case

BRANCHES = BranchSettings()


def optimise(case: Case, model: str, settings: ModelSettings | None = None, scale: float = 1.0):
    tree = case.tree.copy()
    tree.lengths *= scale
    start = parse_model(model, case.patterns.alphabet)
    before = case.likelihood.log_likelihoods([tree], [start.arrays()])[0]
    settings = settings or ModelSettings()
    found = optimise_model(case.likelihood, tree, start, settings, BRANCHES, 1e-4)
    after = case.likelihood.log_likelihoods([tree], [found.model.arrays()])[0]
    assert found.lnl == pytest.approx(after, abs=1e-9)
    assert found.lnl >= before
    return found, tree


def test_climbs_to_a_stationary_point(case: Case) -> None:
    found, tree = optimise(case, "GTR+FE+G2")
    step = 0.01
    for lengths in (tree.lengths * (1 + step), tree.lengths * (1 - step)):
        moved = replace(tree, lengths=lengths)
        assert case.likelihood.log_likelihoods([moved], [found.model.arrays()])[0] < found.lnl
    for alpha in (found.model.alpha * (1 + step), found.model.alpha * (1 - step)):
        moved = replace(found.model, alpha=alpha)
        assert case.likelihood.log_likelihoods([tree], [moved.arrays()])[0] < found.lnl


def test_the_tree_length_is_a_parameter(case: Case) -> None:
    found, tree = optimise(case, "JC+G2{0.6}", scale=0.2)
    assert found.scale == pytest.approx(5.0, rel=0.3)
    np.testing.assert_allclose(tree.lengths, case.tree.lengths * 0.2 * found.scale, rtol=1e-12)


def test_fixed_parameters_stay(case: Case) -> None:
    found, tree = optimise(case, "K80{3.0}+G2{0.6}", ModelSettings(scale_limit=0.0), scale=0.5)
    assert found.scale == 1.0
    assert found.model.alpha == 0.6
    np.testing.assert_array_equal(tree.lengths, case.tree.lengths * 0.5)


def test_frequencies_can_be_estimated(case: Case) -> None:
    found, _ = optimise(case, "HKY+FO+G2")
    assert found.model.frequencies.sum() == pytest.approx(1.0)
    assert found.model.frequencies.std() > 0


def test_few_launches_do(case: Case) -> None:
    """Newton's steps from the defaults, and one launch that sees that nothing is left to gain."""
    far, tree = optimise(case, "GTR+FE+G2")
    assert far.evaluations <= 8
    again = optimise_model(case.likelihood, tree, far.model, ModelSettings(), BRANCHES, 1e-2)
    assert again.evaluations == 1
    assert again.lnl >= far.lnl


def test_parameters_that_want_to_be_infinite_end_at_their_bounds(
    make_case: Callable[..., Case],
) -> None:
    even = make_case(sites=400, seed=3, text="JC+G2{100}")
    found, _ = optimise(even, "JC+G2")
    assert found.model.alpha == pytest.approx(100.0, rel=0.02)
    assert found.evaluations < ModelSettings().iterations
