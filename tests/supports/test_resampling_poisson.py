import sys

import numpy as np
import pytest
from scipy.stats import chisquare, poisson

from mltree.supports import resampling as module
from mltree.supports.resampling import PoissonCounts


def rng() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(7))


@pytest.mark.parametrize("mean", [0.003, 0.5, 0.97, 1.4, 6.0, 31.0])
def test_a_table_gives_what_the_distribution_says(mean: float) -> None:
    drawn = np.zeros((1, 200_000), np.uint16)
    PoissonCounts(np.full(drawn.size, mean)).draw([rng()], drawn)
    assert pvalue(drawn, mean) > 1e-4


def pvalue(drawn: np.ndarray, mean: float) -> float:
    """Of a test whether these are Poisson counts."""
    found = np.bincount(drawn.ravel())
    expected = poisson.pmf(np.arange(found.size), mean) * drawn.size
    often = expected >= 5
    found = np.append(found[often], found[~often].sum())
    expected = np.append(expected[often], drawn.size - expected[often].sum())
    return float(chisquare(found, expected).pvalue)


def test_shares_of_several_counts_are_told_apart() -> None:
    """As if every share held several: the chances are the same."""
    counts = PoissonCounts(np.repeat([0.7, 2.0], 100_000))
    for table in counts._tables:
        table.counts[:] = module.UNTOLD
    drawn = np.zeros((2, 200_000), np.uint16)
    counts.draw([rng()], drawn)
    assert pvalue(drawn[:, :100_000], 0.7) > 1e-4
    assert pvalue(drawn[:, 100_000:], 2.0) > 1e-4


@pytest.mark.parametrize("rows", [1, 4])
def test_what_one_gives_does_not_depend_on_the_others(rows: int) -> None:
    means = np.array([0.0, 1.0, 2.0, 100.0] * 300 + [7.0] * 5)
    counts, together = PoissonCounts(means, rows), np.zeros((3 * rows, means.size))
    counts.draw([np.random.default_rng(n) for n in range(3)], together)
    for n, own in enumerate(np.split(together, 3)):
        alone = np.zeros((rows, means.size))
        counts.draw([np.random.default_rng(n)], alone)
        np.testing.assert_array_equal(alone, own)


def test_each_has_its_own_mean() -> None:
    """Those of tables, those without one, those too large for one, and nothing at all."""
    means = np.array([0.0, 1.0, 2.0, 100.0] * 300 + [7.0] * 5)
    np.random.default_rng(1).shuffle(means)
    counts = PoissonCounts(means)
    bits = rng()
    drawn = np.full((400, means.size), 9.0)
    for row in drawn:
        counts.draw([bits], row[None])
    error = np.sqrt(means / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - means) <= 5 * error).all()
    np.testing.assert_allclose(drawn.var(axis=0), means, rtol=0.5)
    alike = [drawn[:, means == mean].var() for mean in (1.0, 2.0, 7.0, 100.0)]
    np.testing.assert_allclose(alike, [1.0, 2.0, 7.0, 100.0], rtol=0.1)


def test_nothing_has_no_counts() -> None:
    drawn = np.ones((2, 3))
    PoissonCounts(np.zeros(3)).draw([rng()], drawn)
    assert not drawn.any()


def test_a_profiler_changes_nothing() -> None:
    """It holds on to arrays whose methods it sees, which can then not be resized."""
    drawn = [np.zeros((1, 200), np.uint16) for _ in range(2)]
    PoissonCounts(np.full(200, 1.0)).draw([rng()], drawn[0])
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        PoissonCounts(np.full(200, 1.0)).draw([rng()], drawn[1])
    finally:
        sys.setprofile(before)
    np.testing.assert_array_equal(*drawn)
