"""The model optimiser: better, bounded, and true to what the user fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.fit import model_optimiser
from mltree.fit.coordinate_ascent import ascend_best
from mltree.fit.fits import Fit, best_fit, starts_of
from mltree.fit.model_optimiser import optimise_models
from mltree.fit.settings import BranchSettings, ModelSettings, SearchSettings
from mltree.likelihood.requests import perform, perform_all
from mltree.models.grammar import parse_model
from mltree.models.parameters import bounds, vector, with_vector
from mltree.models.partitioned import SCALER_MAX, SCALER_MIN, Linkage, PartitionModel, alone
from mltree.system.events import ignore

if TYPE_CHECKING:
    from simulated import Simulated

BRANCHES = BranchSettings()
NO_SCALE = ModelSettings(scale_limit=0.0)

TOLERANCE = 0.01
"""lnL that a fit may end below what another optimiser finds: the final epsilon of the field."""

LOWER_TOP = 0.1
"""The same from afar, which may end on another top: in four of 120 fits 0.02 to 0.06 higher."""

ON_RIDGE = 0.03
"""The same of free rates that share lengths: two of 120 such fits stop 0.014 and 0.020 short."""

MakeParts = Callable[..., "Simulated"]
Textbook = Callable[..., np.ndarray]


class Counting:
    """A likelihood that counts launches and points."""

    def __init__(self, case: Simulated) -> None:
        self._likelihood = case.likelihood
        self.points: list[int] = []
        self.parts: list[int] = []
        """Of the cases of each launch."""

    def part_log_likelihoods(self, trees, cases):
        self.points.append(len(trees))
        self.parts.append(len(cases[0].models))
        return self._likelihood.part_log_likelihoods(trees, cases)

    def outruns_host(self, tree):
        return self._likelihood.outruns_host(tree)

    def rate_curves(self, tree, case, rates):
        return self._likelihood.rate_curves(tree, case, rates)


def optimise(
    case: Simulated, model: str, settings: ModelSettings | None = None, scale: float = 1.0
):
    """The fit of a model to a case, and the launches that it took."""
    fit = fit_of(case, model)
    fit.tree.lengths *= scale
    before = lnl_of(case, fit)
    likelihood = Counting(case)
    perform(likelihood, optimise_models([fit], settings or ModelSettings(), BRANCHES, 1e-4))
    assert fit.lnl == pytest.approx(lnl_of(case, fit), abs=1e-9)
    assert fit.lnl >= before
    return fit, len(likelihood.points)


def lnl_of(case: Simulated, fit: Fit) -> float:
    return case.likelihood.log_likelihoods([fit.tree], [fit.case])[0]


def fit_of(case: Simulated, text: str) -> Fit:
    return Fit(case.tree.copy(), alone(parse_model(text, case.patterns.alphabet)))


def test_searches_share_launches_and_change_nothing(case: Simulated) -> None:
    """Models of several searches, which are as many fits of one, and the same bits."""
    texts = ("GTR+FE+G2", "JC+G2", "HKY+FO+G2", "K80+G2", "JC+R2", "HKY+R2")
    lone = [optimise(case, text) for text in texts]
    fits, likelihood = [fit_of(case, text) for text in texts], Counting(case)
    searches = (optimise_models([fit], ModelSettings(), BRANCHES, 1e-4) for fit in fits)
    ended = perform_all(likelihood, searches, len(texts))
    assert sorted(number for number, _ in ended) == list(range(len(texts)))
    assert len(likelihood.points) == max(launches for _, launches in lone)
    for own, (other, _) in zip(fits, lone, strict=True):
        assert own.lnl == other.lnl
        np.testing.assert_array_equal(own.tree.lengths, other.tree.lengths)
        np.testing.assert_array_equal(vector(own.model.lone), vector(other.model.lone))


def test_climbs_to_a_stationary_point(case: Simulated) -> None:
    found, _ = optimise(case, "GTR+FE+G2")
    assert found.lacking == 0.0
    for factor in (1.01, 0.99):
        longer = replace(found.tree, lengths=found.tree.lengths * factor)
        assert lnl_of(case, Fit(longer, found.model)) < found.lnl
        model = found.model.lone
        gamma = replace(model.heterogeneity, alpha=model.heterogeneity.alpha * factor)
        steeper = alone(replace(model, heterogeneity=gamma))
        assert lnl_of(case, Fit(found.tree, steeper)) < found.lnl


def test_the_tree_length_is_a_parameter(case: Simulated) -> None:
    found, _ = optimise(case, "JC+G2{0.6}", scale=0.2)
    factor = found.tree.lengths / (0.2 * case.tree.lengths)
    assert factor[0] == pytest.approx(5.0, rel=0.3)
    np.testing.assert_allclose(factor, factor[0], rtol=1e-12)


def test_fixed_parameters_stay(case: Simulated) -> None:
    found, launches = optimise(case, "K80{3.0}+G2{0.6}", NO_SCALE, scale=0.5)
    assert found.model.lone.heterogeneity.alpha == 0.6
    np.testing.assert_array_equal(found.tree.lengths, case.tree.lengths * 0.5)
    assert found.lacking == 0.0
    assert launches == 1


def test_frequencies_can_be_estimated(case: Simulated) -> None:
    found, _ = optimise(case, "HKY+FO+G2")
    assert found.model.lone.frequencies.sum() == pytest.approx(1.0)
    assert found.model.lone.frequencies.std() > 0


def test_few_launches_do(case: Simulated) -> None:
    """Newton's steps from the defaults, and one launch that sees that nothing is left to gain."""
    far, launches = optimise(case, "GTR+FE+G2")
    assert launches <= 8
    before, likelihood = far.lnl, Counting(case)
    perform(likelihood, optimise_models([far], ModelSettings(), BRANCHES, 1e-2))
    assert far.lnl >= before
    assert len(likelihood.points) == 1


def test_fits_side_by_side_end_as_they_do_alone_in_as_many_launches_as_the_slowest(
    case: Simulated, make_case: Callable[..., Simulated]
) -> None:
    texts = ["GTR+FE+G2", "JC+G2", "HKY+FO+G2"]
    lone = [optimise(case, text) for text in texts]
    fits = [fit_of(case, text) for text in texts]
    likelihood = Counting(case)
    perform(likelihood, optimise_models(fits, ModelSettings(), BRANCHES, 1e-4))
    assert [fit.lnl for fit in fits] == [fit.lnl for fit, _ in lone]
    assert len(likelihood.points) == max(launches for _, launches in lone)


def test_parameters_that_want_to_be_infinite_end_at_their_bounds(
    make_case: Callable[..., Simulated],
) -> None:
    even = make_case(sites=400, seed=3, text="JC+G2{100}")
    found, launches = optimise(even, "JC+G2")
    assert found.model.lone.heterogeneity.alpha == pytest.approx(1000.0)
    assert found.lacking == 0.0
    assert launches < 14


def test_too_few_iterations_are_no_convergence(case: Simulated) -> None:
    found, launches = optimise(case, "GTR+FE+G2", ModelSettings(iterations=2))
    assert launches == 2
    assert found.lacking > 0.0


def test_only_rates_with_two_maxima_have_a_second_start(case: Simulated) -> None:
    def starts(text: str):
        return starts_of(alone(parse_model(text, case.patterns.alphabet)))

    for text in ("GTR+G4", "GTR+I", "GTR+I+G4{0.5}", "GTR+I{0.2}+G4", "GTR"):
        assert len(starts(text)) == 1
    few, other = starts("GTR+I+G4")
    assert other.lone.p_invariant > 0.5 > few.lone.p_invariant
    assert starts_of(other)[1].lone.p_invariant < 0.01
    (kept, _) = starts("GTR+I+G4")
    assert kept.lone.p_invariant == few.lone.p_invariant


FREE = ("K80+FE+G2m", "F81+FE+G2m", "K80+FE+G2m")
"""What the parts are fitted by: a rate and alpha, alpha alone, and both again."""

FREE_RATES = ("K80+FE+R2", "F81+FE+R2", "K80+FE+G2m")
"""The same, rates among sites of two parts free."""


class Joint:
    """Minus lnL of models, lengths and scalers together on log scales, by pruning: for SciPy."""

    def __init__(self, data: Simulated, model: PartitionModel, lnls: Textbook) -> None:
        self._data, self._model, self._lnls = data, model, lnls
        self._sizes = [len(vector(part)) for part in model.models]
        self._shape = data.tree.lengths.shape
        scales = model.n_parts if model.linkage == Linkage.SCALED else 0
        self.bounds = [bound for part in model.models for bound in bounds(part)]
        self.bounds += [(np.log(1e-6), np.log(100.0))] * int(np.prod(self._shape))
        self.bounds += [(np.log(SCALER_MIN), np.log(SCALER_MAX))] * scales

    def __call__(self, x: np.ndarray) -> float:
        data, model = self._data, self._model
        parameters, lengths, scalers = np.split(
            x, np.cumsum([sum(self._sizes), int(np.prod(self._shape))])
        )
        own = np.split(parameters, np.cumsum(self._sizes)[:-1])
        models = [with_vector(part, point) for part, point in zip(model.models, own, strict=True)]
        fitted = model.with_parts(models, np.exp(scalers) if scalers.size else None)
        tree = replace(data.tree, lengths=np.exp(lengths).reshape(self._shape))
        return -float(self._lnls(data.patterns, tree, fitted.arrays()).sum())

    def vector(self, fit: Fit) -> np.ndarray:
        scalers = fit.model.scalers if fit.model.linkage == Linkage.SCALED else []
        points = [vector(part) for part in fit.model.models]
        return np.concatenate([*points, np.log(fit.tree.lengths).ravel(), np.log(scalers)])

    def has_room(self, fit: Fit) -> bool:
        """Whether no scaler is at a bound, which is nearer while their mean is held at 1."""
        scalers = fit.model.scalers
        return bool(((scalers > 1.01 * SCALER_MIN) & (scalers < 0.99 * SCALER_MAX)).all())

    def optimiser(self, start: np.ndarray, iterations: int) -> float:
        """The lnL where L-BFGS-B ends."""
        options = {"maxiter": iterations, "maxfun": 10**6}
        return -minimize(self, start, method="L-BFGS-B", bounds=self.bounds, options=options).fun


def parted(data: Simulated, texts: Sequence[str] = FREE) -> Fit:
    """Models that are to be found, and lengths far from those that fit."""
    texts = texts[: data.model.n_parts]
    models = tuple(parse_model(text, data.patterns.alphabet) for text in texts)
    model = replace(data.model, models=models, scalers=np.ones(len(models)))
    return Fit(replace(data.tree, lengths=np.full_like(data.tree.lengths, 0.1)), model)


@pytest.mark.parametrize("linkage", list(Linkage))
@pytest.mark.cases(1, 40)
def test_parts_end_where_another_optimiser_ends(
    case: int, linkage: Linkage, make_parts: MakeParts, textbook_lnls: Textbook
) -> None:
    """Models, lengths and scalers together; SciPy finds no more, from afar or from there."""
    sizes = (90, 60, 40)[: 2 + case % 2]
    texts = ("K80{3}+FE+G2m{0.7}", "F81+FE+G2m{2}", "K80{5}+FE+G2m{1}")[: len(sizes)]
    data = make_parts(4, sizes, case, linkage, texts)
    fit = parted(data)
    joint = Joint(data, fit.model, textbook_lnls)
    start = joint.vector(fit)
    found = perform(data.likelihood, ascend_best([fit], SearchSettings(), ignore))
    lnls = textbook_lnls(data.patterns, found.tree, found.model.arrays())
    assert found.lnl == pytest.approx(lnls.sum(), rel=1e-11)
    if joint.has_room(found):
        assert found.lnl > joint.optimiser(start, 200) - LOWER_TOP
        assert found.lnl > joint.optimiser(joint.vector(found), 20) - TOLERANCE


@pytest.mark.parametrize("linkage", list(Linkage))
@pytest.mark.cases(1, 40)
def test_free_rates_of_parts_end_at_a_maximum(
    case: int, linkage: Linkage, make_parts: MakeParts, textbook_lnls: Textbook
) -> None:
    """SciPy finds no more from there; nor does a part whose neighbours have other rates."""
    texts = ("K80{3}+FE+R2{0.2/1.5}{0.4/0.6}", "F81+FE+R2{0.1/3}{0.6/0.4}", "K80{5}+FE+G2m{1}")
    sizes = (90, 60, 40)[: 2 + case % 2]
    data = make_parts(4, sizes, case, linkage, texts[: len(sizes)])
    fit = parted(data, FREE_RATES[1:] * 2 if case % 4 == 1 else FREE_RATES)
    joint = Joint(data, fit.model, textbook_lnls)
    found = perform(data.likelihood, ascend_best([fit], SearchSettings(), ignore))
    lnls = textbook_lnls(data.patterns, found.tree, found.model.arrays())
    assert found.lnl == pytest.approx(lnls.sum(), rel=1e-11)
    if joint.has_room(found):
        assert found.lnl > joint.optimiser(joint.vector(found), 20) - ON_RIDGE


@pytest.mark.parametrize("linkage", list(Linkage))
def test_parts_are_optimised_apart_given_the_lengths(
    linkage: Linkage, make_parts: MakeParts, part_alone: Callable[..., Simulated]
) -> None:
    """Every part ends as alone, its branches scaled where the linkage lets it scale them."""
    data = make_parts(5, (90, 60, 40), 3, linkage, ("K80{3}+FE+G2m{0.7}",) * 3)
    fit = parted(data)
    lengths = fit.tree.lengths.copy()
    likelihood = Counting(data)
    perform(likelihood, optimise_models([fit], ModelSettings(), BRANCHES, 1e-4))
    assert fit.lnl == pytest.approx(sum(fit.part_lnls), abs=1e-9)
    assert fit.lnl == pytest.approx(lnl_of(data, fit), abs=1e-9)
    assert fit.lacking == 0.0
    settings = NO_SCALE if linkage == Linkage.LINKED else ModelSettings()
    launches = []
    for part in range(3):
        lone = part_alone(replace(data, tree=replace(data.tree, lengths=lengths)), part)
        lone.tree.lengths[:] = 0.1
        watched = Counting(lone)
        own = Fit(lone.tree, alone(parse_model(FREE[part], data.patterns.alphabet)))
        perform(watched, optimise_models([own], settings, BRANCHES, 1e-4))
        launches.append(len(watched.points))
        assert fit.part_lnls[part] == pytest.approx(own.lnl, abs=1e-6)
        np.testing.assert_allclose(
            vector(fit.model.models[part]), vector(own.model.lone), atol=1e-4
        )
        scale = own.tree.lengths[0] / 0.1
        if linkage == Linkage.SCALED:
            assert fit.model.scalers[part] == pytest.approx(scale, rel=1e-4)
        if linkage == Linkage.UNLINKED:
            np.testing.assert_allclose(fit.tree.lengths[part], own.tree.lengths, rtol=1e-4)
    if linkage != Linkage.UNLINKED:
        np.testing.assert_array_equal(fit.tree.lengths, lengths)
    assert len(likelihood.points) == max(launches)


@pytest.mark.parametrize("linkage", list(Linkage))
def test_parts_that_go_on_alone_end_with_the_same_bits(
    linkage: Linkage, make_parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is near its maximum is done first; the others have trees of their own."""
    data = make_parts(5, (90, 60, 40), 3, linkage, ("K80{3}+FE+G2m{0.7}",) * 3)
    ends, parts = [], []
    for records in (0, model_optimiser.RECORDS):
        monkeypatch.setattr(model_optimiser, "RECORDS", records)
        fit, likelihood = parted(data), Counting(data)
        near = fit.model.with_parts([data.model.models[0], *fit.model.models[1:]])
        fit.model = near
        perform(likelihood, optimise_models([fit], ModelSettings(), BRANCHES, 1e-4))
        ends.append((fit.lnl, fit.model.text, fit.tree.lengths.tobytes()))
        parts.append(likelihood.parts)
    assert ends[0] == ends[1]
    assert set(parts[0]) == {3}
    assert 1 in parts[1]


def test_a_curvature_from_nearby_spares_points_and_leads_to_the_same_end(case: Simulated) -> None:
    fit = fit_of(case, "GTR+FO+G2")
    perform(case.likelihood, optimise_models([fit], ModelSettings(), BRANCHES, 1e-4))
    afresh, onwards = (Fit(fit.tree.copy(), fit.model) for _ in range(2))
    onwards.curvatures = fit.curvatures
    points = []
    for one in (afresh, onwards):
        likelihood = Counting(case)
        perform(likelihood, optimise_models([one], ModelSettings(), BRANCHES, 1e-4))
        points.append(sum(likelihood.points))
    assert onwards.lnl == pytest.approx(afresh.lnl, abs=2e-4)
    assert points[1] < points[0]


def test_the_best_of_fits_is_put_together_part_by_part(
    make_parts: MakeParts, textbook_lnls: Textbook
) -> None:
    data = make_parts(5, (60, 40), 4, Linkage.UNLINKED)
    fits = []
    for better in range(2):
        fit = Fit(data.tree.copy(), data.model)
        fit.tree.lengths[1 - better] *= 5.0
        poor = parse_model("JC+G2m{50}", data.patterns.alphabet)
        models = [part if n == better else poor for n, part in enumerate(data.model.models)]
        fit.model = data.model.with_parts(models)
        fit.part_lnls = textbook_lnls(data.patterns, fit.tree, fit.model.arrays())
        fit.lnl = float(fit.part_lnls.sum())
        fits.append(fit)
    fits[0].lacking = 0.25
    best = best_fit(fits)
    lnls = textbook_lnls(data.patterns, best.tree, best.model.arrays())
    assert best.lnl == pytest.approx(lnls.sum(), rel=1e-12)
    expected = textbook_lnls(data.patterns, data.tree, data.under.models)
    np.testing.assert_allclose(best.part_lnls, expected)
    np.testing.assert_array_equal(best.tree.lengths, data.tree.lengths)
    assert best.lacking == 0.25
