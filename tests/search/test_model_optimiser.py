"""The model optimiser: better, bounded, and true to what the user fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.model.grammar import parse_model
from mltree.search.model_optimiser import Fit, optimise_models, with_other_rates
from mltree.settings import BranchSettings, ModelSettings

if TYPE_CHECKING:
    from conftest import Case

BRANCHES = BranchSettings()
NO_SCALE = ModelSettings(scale_limit=0.0)


class Counting:
    """A likelihood that counts launches and points."""

    def __init__(self, case: Case) -> None:
        self._likelihood = case.likelihood
        self.points: list[int] = []

    def log_likelihoods(self, trees, models):
        self.points.append(len(trees))
        return self._likelihood.log_likelihoods(trees, models)


def optimise(case: Case, model: str, settings: ModelSettings | None = None, scale: float = 1.0):
    """The fit of a model to a case, and the launches that it took."""
    fit = Fit(case.tree.copy(), parse_model(model, case.patterns.alphabet))
    fit.tree.lengths *= scale
    before = lnl_of(case, fit)
    likelihood = Counting(case)
    optimise_models(likelihood, [fit], settings or ModelSettings(), BRANCHES, 1e-4)
    assert fit.lnl == pytest.approx(lnl_of(case, fit), abs=1e-9)
    assert fit.lnl >= before
    return fit, len(likelihood.points)


def lnl_of(case: Case, fit: Fit) -> float:
    return case.likelihood.log_likelihoods([fit.tree], [fit.model.arrays()])[0]


def test_climbs_to_a_stationary_point(case: Case) -> None:
    found, _ = optimise(case, "GTR+FE+G2")
    assert found.converged
    for factor in (1.01, 0.99):
        longer = replace(found.tree, lengths=found.tree.lengths * factor)
        assert lnl_of(case, Fit(longer, found.model)) < found.lnl
        steeper = replace(found.model, alpha=found.model.alpha * factor)
        assert lnl_of(case, Fit(found.tree, steeper)) < found.lnl


def test_the_tree_length_is_a_parameter(case: Case) -> None:
    found, _ = optimise(case, "JC+G2{0.6}", scale=0.2)
    factor = found.tree.lengths / (0.2 * case.tree.lengths)
    assert factor[0] == pytest.approx(5.0, rel=0.3)
    np.testing.assert_allclose(factor, factor[0], rtol=1e-12)


def test_fixed_parameters_stay(case: Case) -> None:
    found, launches = optimise(case, "K80{3.0}+G2{0.6}", NO_SCALE, scale=0.5)
    assert found.model.alpha == 0.6
    np.testing.assert_array_equal(found.tree.lengths, case.tree.lengths * 0.5)
    assert found.converged
    assert launches == 1


def test_frequencies_can_be_estimated(case: Case) -> None:
    found, _ = optimise(case, "HKY+FO+G2")
    assert found.model.frequencies.sum() == pytest.approx(1.0)
    assert found.model.frequencies.std() > 0


def test_few_launches_do(case: Case) -> None:
    """Newton's steps from the defaults, and one launch that sees that nothing is left to gain."""
    far, launches = optimise(case, "GTR+FE+G2")
    assert launches <= 8
    before, likelihood = far.lnl, Counting(case)
    optimise_models(likelihood, [far], ModelSettings(), BRANCHES, 1e-2)
    assert far.lnl >= before
    assert len(likelihood.points) == 1


def test_fits_side_by_side_end_as_they_do_alone_in_as_many_launches_as_the_slowest(
    case: Case, make_case: Callable[..., Case]
) -> None:
    texts = ["GTR+FE+G2", "JC+G2", "HKY+FO+G2"]
    alone = [optimise(case, text) for text in texts]
    fits = [Fit(case.tree.copy(), parse_model(text, case.patterns.alphabet)) for text in texts]
    likelihood = Counting(case)
    optimise_models(likelihood, fits, ModelSettings(), BRANCHES, 1e-4)
    assert [fit.lnl for fit in fits] == [fit.lnl for fit, _ in alone]
    assert len(likelihood.points) == max(launches for _, launches in alone)


def test_parameters_that_want_to_be_infinite_end_at_their_bounds(
    make_case: Callable[..., Case],
) -> None:
    even = make_case(sites=400, seed=3, text="JC+G2{100}")
    found, launches = optimise(even, "JC+G2")
    assert found.model.alpha == pytest.approx(100.0)
    assert found.converged
    assert launches < 12


def test_too_few_iterations_are_no_convergence(case: Case) -> None:
    found, launches = optimise(case, "GTR+FE+G2", ModelSettings(iterations=2))
    assert launches == 2
    assert not found.converged


def test_only_rates_with_two_maxima_have_a_second_start(case: Case) -> None:
    def starts(text: str):
        return with_other_rates(parse_model(text, case.patterns.alphabet))

    for text in ("GTR+G4", "GTR+I", "GTR+I+G4{0.5}", "GTR+I{0.2}+G4", "GTR"):
        assert len(starts(text)) == 1
    few, other = starts("GTR+I+G4")
    assert other.p_invariant > 0.5 > few.p_invariant
    assert with_other_rates(other)[1].p_invariant < 0.01
    (kept, _) = starts("GTR+I+G4")
    assert kept.p_invariant == few.p_invariant
