import sys

import numpy as np
import pytest
from scipy.stats import chisquare, poisson

from mltree.supports import poisson as module
from mltree.supports.poisson import PoissonCounts


def rng() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(7))


@pytest.mark.parametrize("mean", [0.003, 0.5, 0.97, 1.4, 6.0, 31.0])
def test_a_table_gives_what_the_distribution_says(mean: float) -> None:
    drawn = np.zeros(200_000, np.uint16)
    PoissonCounts(np.full(drawn.size, mean)).draw(rng(), drawn)
    found = np.bincount(drawn)
    expected = poisson.pmf(np.arange(found.size), mean) * drawn.size
    often = expected >= 5
    found = np.append(found[often], found[~often].sum())
    expected = np.append(expected[often], drawn.size - expected[often].sum())
    assert chisquare(found, expected).pvalue > 1e-4


def test_shares_of_two_counts_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """With eight shares, most of them hold several counts: the chances are the same."""
    monkeypatch.setattr(module, "SHARES", 8)
    table = module._Table(2.0)
    shares = np.tile(np.arange(8, dtype=np.uint16), 20_000)
    found = np.bincount(table.draw(shares, rng()), minlength=12)[:8]
    expected = poisson.pmf(np.arange(8), 2.0) * shares.size
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(expected.max()))


def test_each_has_its_own_mean() -> None:
    """Those of tables, those without one, those too large for one, and nothing at all."""
    means = np.array([0.0, 1.0, 2.0, 100.0] * 300 + [7.0] * 5)
    np.random.default_rng(1).shuffle(means)
    counts = PoissonCounts(means)
    bits = rng()
    drawn = np.full((400, means.size), 9.0)
    for row in drawn:
        counts.draw(bits, row)
    error = np.sqrt(means / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - means) <= 5 * error).all()
    np.testing.assert_allclose(drawn.var(axis=0), means, rtol=0.5)
    alike = [drawn[:, means == mean].var() for mean in (1.0, 2.0, 7.0, 100.0)]
    np.testing.assert_allclose(alike, [1.0, 2.0, 7.0, 100.0], rtol=0.1)


def test_nothing_has_no_counts() -> None:
    drawn = np.ones(3)
    PoissonCounts(np.zeros(3)).draw(rng(), drawn)
    assert not drawn.any()


def test_a_profiler_changes_nothing() -> None:
    """It holds on to arrays whose methods it sees, which can then not be resized."""
    drawn = [np.zeros(200, np.uint16) for _ in range(2)]
    PoissonCounts(np.full(200, 1.0)).draw(rng(), drawn[0])
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        PoissonCounts(np.full(200, 1.0)).draw(rng(), drawn[1])
    finally:
        sys.setprofile(before)
    np.testing.assert_array_equal(*drawn)
