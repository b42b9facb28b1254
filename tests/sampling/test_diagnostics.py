"""Diagnostics against ArviZ, SciPy, formulas, and chains whose answer is known."""

import math
import warnings
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ks_2samp, norm

from mltree.sampling import diagnostics


def chains(phi: float, shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """Autoregressive chains [V, R, n] with standard normal values."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=shape) * math.sqrt(1 - phi * phi)
    values = np.empty(shape)
    values[..., 0] = rng.normal(size=shape[:2])
    for step in range(1, shape[2]):
        values[..., step] = phi * values[..., step - 1] + noise[..., step]
    return values


WAVES = np.sin(np.arange(120) ** 1.3).reshape(1, 3, 40) + np.arange(3)[None, :, None] / 5
"""Three runs of 40 values without random numbers."""

GOLDEN = {
    diagnostics.rhat: 1.0339311755750744,
    diagnostics.ess: 150.37363662386647,
    diagnostics.ess_of_mean: 178.07770162500384,
    diagnostics.ess_of_tails: 51.44579244262427,
}
"""ArviZ 0.23.4's ``rhat`` and ``ess`` of methods ``rank``, ``bulk``, ``mean`` and ``tail``."""


@pytest.mark.parametrize("function", GOLDEN, ids=lambda function: function.__name__)
def test_values_are_those_of_arviz(function: Callable[[np.ndarray], np.ndarray]) -> None:
    assert function(WAVES)[0] == pytest.approx(GOLDEN[function], rel=1e-9)


@pytest.mark.cases(6, 200)
def test_any_chains_have_arvizs_values(case: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
        rng = np.random.default_rng(case)
        shape = (3, int(rng.integers(2, 9)), int(rng.integers(4, 300)))
        values = chains(float(rng.uniform(-0.95, 0.99)), shape, case)
        values[1] = np.round(values[1])
        values[2] = values[2] > rng.normal()
        for variable, row in enumerate(values):
            of_arviz = {
                diagnostics.rhat: arviz.rhat(row),
                diagnostics.split_rhat: arviz.rhat(row, method="split"),
                diagnostics.ess: arviz.ess(row),
                diagnostics.ess_of_mean: arviz.ess(row, method="mean"),
                diagnostics.ess_of_tails: arviz.ess(row, method="tail"),
            }
            # A quantile that is one of the values: SciPy's rounding may miss it.
            if variable > 0 or (row.size - 1) % 20 == 0:
                del of_arviz[diagnostics.ess_of_tails]
            for function, expected in of_arviz.items():
                assert function(values)[variable] == pytest.approx(
                    float(expected), rel=1e-8, nan_ok=True
                ), function.__name__


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, -0.4])
def test_effective_sizes_are_those_of_autoregression(phi: float) -> None:
    shape = (20, 4, 2500)
    expected = 4 * 2500 * (1 - phi) / (1 + phi)
    for function in (diagnostics.ess, diagnostics.ess_of_mean):
        assert np.median(function(chains(phi, shape, 1))) == pytest.approx(expected, rel=0.1)


def test_pieces_are_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    values = chains(0.5, (7, 2, 50), 3)
    whole = diagnostics.rhat(values)
    monkeypatch.setattr(diagnostics, "AT_ONCE", 150)
    np.testing.assert_array_equal(diagnostics.rhat(values), whole)


def test_runs_apart_have_a_large_rhat() -> None:
    values = chains(0.0, (1, 4, 500), 2)
    assert diagnostics.rhat(values)[0] < 1.01
    assert diagnostics.rhat(values + np.arange(4)[None, :, None])[0] > 1.5
    wide = values * np.array([1, 1, 1, 9])[None, :, None]  # same mean, another spread
    assert diagnostics.rhat(wide)[0] > 1.1
    trend = values[:, :1] + np.linspace(0, 4, 500)  # a single run that drifts
    assert diagnostics.rhat(trend)[0] > 1.3


def test_constants_and_few_samples_tell_nothing() -> None:
    constant = np.full((1, 2, 10), 3.0)
    assert math.isnan(diagnostics.rhat(constant)[0])
    assert diagnostics.ess(constant)[0] == 20
    assert np.isnan(diagnostics.ess(np.zeros((2, 2, 3)))).all()
    assert diagnostics.ess(np.empty((0, 2, 30))).shape == (0,)
    values = chains(0.1, (3, 2, 30), 1)
    values[1, 0, 3] = -math.inf
    for function in (diagnostics.ess, diagnostics.rhat, diagnostics.ess_of_tails):
        assert np.isnan(function(values)).tolist() == [False, True, False]


def test_the_scale_reduction_factor_is_gelmans_and_rubins() -> None:
    values = chains(0.3, (1, 5, 80), 4)[0]
    n, runs = 80, 5
    within = np.mean([np.var(run, ddof=1) for run in values])
    between = n * np.var(values.mean(axis=1), ddof=1)
    variance = (n - 1) / n * within + between / n + between / (n * runs)
    assert diagnostics.psrf(list(values)) == pytest.approx(math.sqrt(variance / within))
    assert math.isnan(diagnostics.psrf([values[0]]))
    assert math.isnan(diagnostics.psrf([values[0], values[1][:1]]))
    assert math.isnan(diagnostics.psrf([np.ones(4), np.ones(4)]))


@pytest.mark.cases(20, 500)
def test_the_interval_is_the_shortest_of_all(case: int) -> None:
    rng = np.random.default_rng(case)
    values = np.round(rng.gamma(1.5, size=int(rng.integers(1, 60))), int(rng.integers(1, 5)))
    mass = float(rng.choice([0.5, 0.9, 0.95, 1.0]))
    low, high = diagnostics.hpd(values, mass)
    pairs = ((a, b) for a in values for b in values if a <= b)
    enough = [(a, b) for a, b in pairs if np.mean((values >= a) & (values <= b)) >= mass - 1e-12]
    assert (low, high) in enough
    assert high - low == min(b - a for a, b in enough)


def test_deviations_of_frequencies_are_averaged() -> None:
    frequencies = np.array([[0.5, 0.7, 0.6], [0.05, 0.0, 0.02], [1.0, 1.0, 1.0], [0.0, 0.1, 0.0]])
    counted = [np.std(row, ddof=1) for row in frequencies[[0, 2, 3]]]
    mean, most = diagnostics.asdsf(frequencies)
    assert mean == pytest.approx(np.mean(counted))
    assert most == pytest.approx(max(counted))
    assert all(map(math.isnan, diagnostics.asdsf(frequencies[:, :1])))
    assert diagnostics.asdsf(frequencies[[1]]) == (0.0, 0.0)


@pytest.mark.parametrize("share", [0.005, 0.05, 0.1, 0.3, 0.45])
@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_a_climb_is_burnt_in(share: float, phi: float) -> None:
    values = chains(phi, (5, 2, 2000), 7)
    climb = int(share * 2000)
    values[3, 1, :climb] -= np.linspace(300, 0, climb)  # one run of one variable
    found = diagnostics.burn_in(values)
    assert share - diagnostics.BURN_IN_STEP / 2 <= found <= share + 2 * diagnostics.BURN_IN_STEP


def test_sound_runs_are_kept_whole() -> None:
    found = [diagnostics.burn_in(chains(0.8, (10, 2, 1000), seed)) for seed in range(60)]
    assert sum(share > 0 for share in found) <= 4


def test_constants_need_no_burn_in() -> None:
    assert diagnostics.burn_in(np.ones((2, 2, 100))) == 0.0
    assert diagnostics.burn_in(np.empty((0, 2, 100))) == 0.0
    assert diagnostics.burn_in(np.ones((2, 2, 0))) == 0.0
    assert diagnostics.burn_in(np.full((1, 1, 50), -np.inf)) == 0.0


def test_distances_of_distributions_are_scipys() -> None:
    values = np.round(chains(0.0, (4, 3, 60), 5), 1)
    found = diagnostics.distribution_distances(values)
    for row, variable in zip(found, values, strict=True):
        expected = [ks_2samp(a, b).statistic for a, b in combinations(variable, 2)]
        np.testing.assert_allclose(row, expected)


def test_bounds_are_conveniences_at_its_size() -> None:
    """Fabreti and Höhna's threshold at an ESS of 625 and a level of 0.01 is 0.0921."""
    sizes = np.array([[625.0, 9000.0]])
    assert diagnostics.distance_bounds(sizes)[0, 0] == pytest.approx(0.0921, abs=1e-4)
    bound = diagnostics.difference_bounds(np.array([[0.5, 0.5]]), sizes)[0, 0]
    expected = norm.ppf(1 - 0.005) * math.sqrt(0.5 / 625) + 1 / 625
    assert bound == pytest.approx(expected)


def test_sound_runs_seldom_fail_comparisons() -> None:
    rng = np.random.default_rng(6)
    n, failures = 200, 0
    for _ in range(400):
        shares = rng.uniform(0.03, 0.97, 12)
        has = rng.random((12, 3, n)) < shares[:, None, None]
        frequencies = has.mean(axis=2)
        apart = diagnostics.frequency_differences(frequencies)
        sizes = np.full((12, 3), float(n))
        failures += (apart > diagnostics.difference_bounds(frequencies, sizes)).any()
    assert failures <= 12  # 1 % of 400 is 4
    values = rng.normal(size=(300, 3, n))
    apart = diagnostics.distribution_distances(values)
    one = [row > diagnostics.distance_bounds(np.full((1, 3), float(n)))[0] for row in apart]
    assert np.any(one, axis=1).sum() <= 9


def test_runs_of_other_modes_fail_comparisons() -> None:
    frequencies = np.array([[0.8, 0.2]])
    sizes = np.array([[400.0, 400.0]])
    bounds = diagnostics.difference_bounds(frequencies, sizes)
    assert (diagnostics.frequency_differences(frequencies) > bounds).all()


@pytest.mark.parametrize("runs", [9, 10, 32])
def test_many_runs_have_the_nested_rhat_of_their_groups(runs: int) -> None:
    """Margossian et al. 2024, equations 6 to 8, group by group, with halves as groups."""
    values = chains(0.5, (1, runs, 40), runs)
    groups = [values[0, runs * g // 4 : runs * (g + 1) // 4] for g in range(4)]
    supers = [group[:, part] for part in (slice(20), slice(20, 40)) for group in groups]
    between = np.var([group.mean() for group in supers], ddof=1)
    within = np.mean([group.mean(axis=1).var(ddof=1) + group.var(axis=1, ddof=1).mean()
                      for group in supers])  # fmt: skip
    expected = math.sqrt(between / within + 19 / 20)
    assert diagnostics.split_rhat(values)[0] == pytest.approx(expected, rel=3e-3)


def test_many_short_runs_agree_unless_one_is_stuck() -> None:
    rng = np.random.default_rng(4)
    has = (rng.random((40, 32, 100)) < 0.3).astype(np.float64)
    frequencies, sizes = has.mean(axis=2), np.full((40, 32), 100.0)
    assert diagnostics.split_rhat(has).max() < diagnostics.MOST_RHAT
    assert diagnostics.asdsf(frequencies)[0] < np.sqrt(0.3 * 0.7 / 800) * 1.3
    apart = diagnostics.frequency_differences(frequencies)
    assert (apart <= diagnostics.difference_bounds(frequencies, sizes)).all()
    frequencies[:, 7] = 1.0
    apart = diagnostics.frequency_differences(frequencies)
    assert (apart > diagnostics.difference_bounds(frequencies, sizes)).any(axis=1).all()
    has[:, :8] = rng.random((40, 8, 100)) < 0.6
    assert diagnostics.split_rhat(has).min() > diagnostics.MOST_RHAT
    assert diagnostics.asdsf(has.mean(axis=2))[0] > diagnostics.MOST_ASDSF
