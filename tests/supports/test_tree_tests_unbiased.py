import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom, norm

from mltree.supports.tree_tests import SCALES, Multiscale, fit, normal_quantile, normal_share

ROOT = np.sqrt(np.array(SCALES))
REPLICATES = np.full(len(SCALES), 10_000.0)


def expected_share(d: float, c: float) -> np.ndarray:
    return norm.cdf(-(d * ROOT + c / ROOT))


@pytest.mark.parametrize(("d", "c"), [(1.2, 0.3), (-0.8, 0.2), (2.5, 0.9), (0.0, 0.0), (0.4, -0.5)])
def test_counts_that_follow_the_law_give_its_p_value(d: float, c: float) -> None:
    p, error = fit((REPLICATES * expected_share(d, c))[None], REPLICATES)
    assert p[0] == pytest.approx(norm.sf(d - c), abs=1e-9)
    assert 0 < error[0] < 0.06


@pytest.mark.cases(5, 200)
def test_the_fit_is_the_likeliest(case: int) -> None:
    rng = np.random.default_rng(case)
    d, c = rng.normal(1.0, 1.0), rng.normal(0.3, 0.3)
    counts = rng.binomial(10_000, expected_share(d, c)).astype(np.float64)
    if np.count_nonzero((counts > 0) & (counts < 10_000)) < 2:
        return

    def cost(at: np.ndarray) -> float:
        return -float(binom.logpmf(counts, 10_000, expected_share(*at)).sum())

    best = minimize(cost, [d, c], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    p, _ = fit(counts[None], REPLICATES)
    assert p[0] == pytest.approx(norm.sf(best.x[0] - best.x[1]), abs=1e-5)


def test_errors_are_those_of_repetitions() -> None:
    rng = np.random.default_rng(1)
    counts = rng.binomial(1000, expected_share(1.1, 0.3), (400, len(SCALES)))
    p, error = fit(counts.astype(np.float64), np.full(len(SCALES), 1000.0))
    assert error.mean() == pytest.approx(p.std(), rel=0.15)


def normal_replicates(
    rng: np.random.Generator, mean: np.ndarray, spread: float, scale: float, count: int
) -> np.ndarray:
    """LnL of trees under resampled data of so many times the sites, of independent trees."""
    noise = rng.normal(size=(mean.size, count)) * spread * np.sqrt(scale)
    return scale * mean[:, None] + noise


@pytest.mark.parametrize("lead", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_between_two_trees_it_is_the_normal_test(lead: float) -> None:
    """The border between two trees is flat: p is that of their difference, of deviation √2."""
    rng = np.random.default_rng(int(10 * lead))
    lnl = np.array([0.0, -lead])
    counter = Multiscale(2)
    for scale, size in enumerate(SCALES):
        counter.count(scale, normal_replicates(rng, lnl, 1.0, size, 20_000))
    test = counter.test()
    expected = norm.sf(lead / np.sqrt(2))
    for found, error, p in zip(test.values, test.errors, (1 - expected, expected), strict=True):
        assert abs(found - p) <= 5 * error


def test_replicates_may_come_in_pieces() -> None:
    rng = np.random.default_rng(5)
    lnl = np.array([0.0, -1.0, -2.0])
    whole, pieces = Multiscale(3), Multiscale(3)
    for scale, size in enumerate(SCALES):
        drawn = normal_replicates(rng, lnl, 1.0, size, 300)
        whole.count(scale, drawn)
        for piece in np.split(drawn, 3, axis=1):
            pieces.count(scale, piece)
    np.testing.assert_array_equal(whole.test().values, pieces.test().values)


def test_trees_far_behind_are_rejected_and_the_best_is_kept() -> None:
    """None of the replicates has them as the best."""
    rng = np.random.default_rng(6)
    lnl = np.array([0.0, -12.0, -40.0, -4000.0])
    counter = Multiscale(len(lnl))
    for scale, size in enumerate(SCALES):
        counter.count(scale, normal_replicates(rng, lnl, 1.0, size, 2000))
    test = counter.test()
    assert test.values[0] > 0.99
    assert (test.values[1:] < 1e-3).all()
    assert test.is_kept.tolist() == [True, False, False, False]
    assert np.isfinite(test.errors).all()


def test_trees_that_do_not_differ_share() -> None:
    counter = Multiscale(2)
    for scale in range(len(SCALES)):
        counter.count(scale, np.zeros((2, 50)))
    np.testing.assert_allclose(counter.test().values, 0.5)


def test_the_normal_distribution_is_scipys() -> None:
    z = np.linspace(-8, 8, 201)
    np.testing.assert_allclose(normal_share(z), norm.cdf(z), rtol=1e-13)
    share = np.concatenate([10.0 ** -np.arange(1, 15), np.linspace(0.01, 0.99, 99)])
    np.testing.assert_allclose(normal_quantile(share), norm.ppf(share), rtol=1e-13, atol=1e-15)
