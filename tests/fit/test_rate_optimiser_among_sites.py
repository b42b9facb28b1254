"""Free rates fitted to curves before all else: as good as full stencils, for fewer points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.data.alphabet import DNA, PROTEIN
from mltree.fit.fits import Fit
from mltree.fit.model_optimiser import optimise_models
from mltree.fit.rate_optimiser import fit_among_sites
from mltree.fit.settings import BranchSettings, ModelSettings
from mltree.likelihood.requests import RateCurves, perform
from mltree.models.grammar import parse_model
from mltree.models.parameters import bounds, vector, with_vector
from mltree.models.partitioned import Linkage, alone
from mltree.models.substitution import Model
from mltree.program.cases import Case
from mltree.tree.topology import random_topology

if TYPE_CHECKING:
    from simulated import Simulated

BRANCHES = BranchSettings()
EPSILON = 1e-3
SHORT = 0.01
"""lnL that an end may lack to what SciPy goes on to from there."""

TRUTH = "GTR{1/3/1/1/4/1}+FU{0.3/0.2/0.2/0.3}+R4{0.02/0.3/1.2/5}{0.25/0.25/0.3/0.2}"


class Watched:
    """A likelihood that counts points, and may be a GPU that one tree fills."""

    def __init__(self, data: Simulated, *, outruns: bool = False) -> None:
        self._likelihood, self._outruns = data.likelihood, outruns
        self.points, self.asked = 0, 0

    def part_log_likelihoods(self, trees, cases):
        self.points += len(trees)
        return self._likelihood.part_log_likelihoods(trees, cases)

    def outruns_host(self, tree):
        return self._outruns or self._likelihood.outruns_host(tree)

    def rate_curves(self, tree, case, rates):
        self.asked += 1
        return self._likelihood.rate_curves(tree, case, rates)


def fitted(data: Simulated, text: str, likelihood: Watched) -> Fit:
    model = alone(parse_model(text, data.patterns.alphabet))
    fit = Fit(data.tree.copy(), replace(model, least_categories=data.model.categories[0]))
    start = data.likelihood.log_likelihoods([fit.tree], [fit.case])[0]
    perform(likelihood, optimise_models([fit], ModelSettings(), BRANCHES, EPSILON))
    lnl = data.likelihood.log_likelihoods([fit.tree], [fit.case])[0]
    assert fit.lnl == pytest.approx(lnl, abs=1e-9)
    assert fit.lnl >= start
    return fit


def gain_of_scipy(data: Simulated, fit: Fit) -> float:
    """lnL that L-BFGS-B finds above the end of a fit, in its model and its tree's scale."""
    model: Model = fit.model.lone

    def loss(x: np.ndarray) -> float:
        own = with_vector(model, x[:-1])
        tree = fit.tree.with_lengths(fit.tree.lengths * np.exp(x[-1]))
        return -float(
            data.likelihood.log_likelihoods([tree], [Case(fit.model.with_parts([own]).arrays())])[0]
        )

    limits = [*bounds(model), (-1.0, 1.0)]
    start = np.append(vector(model), 0.0)
    return -minimize(loss, start, bounds=limits, options={"maxiter": 30}).fun - fit.lnl


@pytest.mark.parametrize("text", ["JC+R4", "JC+I+R3", "HKY+FO+R2", "JC+R3+FO"])
@pytest.mark.cases(1, 40)
def test_ends_where_scipy_finds_no_more(
    case: int, text: str, make_case: Callable[..., Simulated]
) -> None:
    data = make_case(6, 150, case, TRUTH)
    likelihood = Watched(data)
    fit = fitted(data, text, likelihood)
    assert likelihood.asked
    assert gain_of_scipy(data, fit) < SHORT


def test_no_stencil_where_nothing_else_is_free(make_case: Callable[..., Simulated]) -> None:
    """The lnL where it starts and where it ends are all that is asked for."""
    data = make_case(6, 150, 3, TRUTH)
    likelihood = Watched(data)
    fit = fitted(data, "JC+R4", likelihood)
    assert fit.lacking == 0.0
    assert likelihood.points <= 2
    again = Watched(data)
    perform(again, optimise_models([fit], ModelSettings(), BRANCHES, 0.1))
    assert again.points <= 2


def test_none_are_asked_of_a_device_that_is_quicker(make_case: Callable[..., Simulated]) -> None:
    data = make_case(6, 150, 3, TRUTH)
    likelihood = Watched(data, outruns=True)
    fit = fitted(data, "JC+R3", likelihood)
    assert not likelihood.asked
    assert gain_of_scipy(data, fit) < SHORT


def test_one_part_of_many_is_asked_for_alone(make_parts: Callable[..., Simulated]) -> None:
    data = make_parts(5, (60, 50, 40), 2, Linkage.UNLINKED, ("JC+G2m{1}", TRUTH, "JC+G2m{1}"))
    texts = ("JC+G4m", "JC+R4", "JC+G4m")
    models = [parse_model(text, data.patterns.alphabet) for text in texts]
    model = data.model.with_parts(models)
    asked = []

    class Parts(Watched):
        def rate_curves(self, tree, case, rates):
            asked.append((len(case.models), case.first_part))
            return super().rate_curves(tree, case, rates)

    whole = Fit(data.tree.copy(), model)
    perform(Parts(data), optimise_models([whole], ModelSettings(), BRANCHES, EPSILON))
    assert set(asked) == {(1, 1)}
    slow = Fit(data.tree.copy(), model)
    perform(
        Watched(data, outruns=True), optimise_models([slow], ModelSettings(), BRANCHES, EPSILON)
    )
    assert whole.part_lnls is not None
    assert slow.part_lnls is not None
    np.testing.assert_allclose(whole.part_lnls, slow.part_lnls, atol=SHORT)


def test_given_rates_are_left_alone(
    make_case: Callable[..., Simulated],
) -> None:
    data = make_case(6, 60, 4)
    likelihood = Watched(data)
    fitted(data, "JC+R2{0.2/2}{0.5/0.5}", likelihood)
    assert not likelihood.asked


def test_rates_that_go_with_classes_are_left_alone(make_case: Callable[..., Simulated]) -> None:
    tree = make_case(6, 60, 4).tree
    fit = Fit(tree, alone(parse_model("LG4X", PROTEIN)))
    asked = list(fit_among_sites([fit], ModelSettings(), EPSILON))
    assert asked == []


def test_curves_are_of_each_tree_s_own_rates() -> None:
    """Joined and shared out, and none where a tree's lnL takes less time."""
    trees = [random_topology(tips, np.random.default_rng(1)) for tips in (4, 5, 6)]
    case = Case((parse_model("JC", DNA).arrays(),))

    class Curved:
        def outruns_host(self, tree):
            return tree.n_tips == 5

        def rate_curves(self, tree, case, rates):
            return [(tree.n_tips, len(case.models), rates)]

    one = RateCurves(trees[:1], [case], [[0.1]])
    other = RateCurves(trees[1:], [case, case], [[0.2], [0.3]])
    joined = one.joined_with([other])
    alone = [*one.answer(Curved()), *other.answer(Curved())]
    assert alone == [[(4, 1, [0.1])], [], [(6, 1, [0.3])]]
    assert joined.answer(Curved()) == alone
    shares = joined.shares(2)
    assert len(shares) == 2
    assert joined.whole([share.answer(Curved()) for share in shares]) == alone
