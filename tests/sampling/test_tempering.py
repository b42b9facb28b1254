"""Ladders: swaps keep what they swap, heats are evenly spread, ln Z is that of a known integral."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mltree.sampling.tempering import Ladders, barriers, first_heats, refitted, spaced

DIMENSIONS, VARIANCE = 8, 0.05
"""A normal likelihood exp(-|x|^2 / 2 VARIANCE) under a standard normal prior."""


def lnls_at(heats: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Exact samples of lnL of that problem at each heat."""
    variance = 1 / (1 + heats / VARIANCE)
    x = rng.normal(size=(*heats.shape, DIMENSIONS)) * np.sqrt(variance)[..., None]
    return -(x**2).sum(axis=-1) / (2 * VARIANCE)


def test_heats_run_from_posterior_to_prior() -> None:
    for rungs in (2, 5, 30):
        heats = first_heats(rungs)
        assert heats[0] == 1
        assert heats[-1] == 0
        assert (np.diff(heats) < 0).all()
    assert first_heats(1).tolist() == [1]


def test_barrier_of_a_known_problem() -> None:
    """Between two near heats it is the deviation of lnL over sqrt(pi) times their distance."""
    heats = np.array([1.0, 0.9, 0.8])
    spread = np.array([3.0, 3.0, 3.0])
    np.testing.assert_allclose(barriers(heats, spread), 0.1 * 3 / math.sqrt(math.pi))
    falling = barriers(np.array([1.0, 0.0]), np.array([1.0, 100.0]))
    rate = lambda heat: 1 / (heat * math.sqrt(math.pi) + (1 - heat) * math.sqrt(math.pi) / 100)  # noqa: E731
    grid = np.linspace(0, 1, 200_001)
    assert falling[0] == pytest.approx(np.trapezoid(rate(grid), grid), rel=1e-4)


@pytest.mark.parametrize("rungs", [4, 9])
def test_refitted_heats_have_barriers_that_rise_by_one_factor(rungs: int) -> None:
    def deviation(heats: np.ndarray) -> np.ndarray:
        return 1 / (0.01 + heats)

    heats = first_heats(40)
    fitted = spaced(heats, deviation(heats), rungs)
    assert fitted[0] == 1
    assert fitted[-1] == 0
    each = barriers(fitted, deviation(fitted))
    ratios = each[1:] / each[:-1]
    np.testing.assert_allclose(ratios, ratios[0], rtol=0.02)
    again = refitted(fitted, deviation(fitted))
    np.testing.assert_allclose(again, fitted, rtol=0.02, atol=1e-6)


def test_swaps_keep_every_chain_and_are_the_same_again() -> None:
    made = []
    for _ in range(2):
        rng, ladders = np.random.default_rng(1), Ladders(3, 6, 9)
        for _ in range(50):
            ladders.swap(lnls_at(ladders.chain_heats, rng))
            assert (np.sort(ladders.rung, axis=1) == np.arange(6)).all()
            of_chains = np.take_along_axis(ladders.heats, ladders.rung, axis=1)
            assert np.array_equal(ladders.chain_heats, of_chains)
        made.append(ladders.rung.copy())
    assert np.array_equal(*made)
    assert (ladders.tried.sum(axis=0) == 75).all(), "pairs take turns"


def test_swaps_are_balanced(monkeypatch) -> None:
    """Heat times lnL of both rungs, and the probability of the swap, there and back."""
    grid = np.array([-31.0, -30.4, -27.5, -24.0])
    ln = np.array([(a, b, c) for a in grid for b in grid for c in grid])
    for parity in (0, 1):
        rungs = slice(parity, parity + 2)
        swapped = ln.copy()
        swapped[:, rungs] = ln[:, rungs][:, ::-1]
        chances, weights = [], []
        for lnls in (ln, swapped):
            ladders = Ladders(len(ln), 3, 1)
            ladders.heats[:] = 1.0, 0.37, 0.0
            ladders.rounds = parity
            chances.append(1 - ladders_rejections(ladders, lnls, parity, monkeypatch))
            weights.append(np.exp(lnls @ ladders.heats[0]))
        flow, back = weights[0] * chances[0], weights[1] * chances[1]
        np.testing.assert_allclose(flow, back, rtol=1e-12)


def ladders_rejections(ladders: Ladders, lnls: np.ndarray, pair: int, monkeypatch) -> np.ndarray:
    """Probabilities that a pair's swap is rejected; draws on both sides of them are decided so."""
    expected = Ladders(ladders.runs, ladders.rungs, 1)
    expected.restore(ladders.state())
    expected.swap(lnls)
    rejected = expected.rejected[:, pair]
    for side, is_taken in ((1 - 1e-9, True), (1 + 1e-9, False)):
        twin = Ladders(ladders.runs, ladders.rungs, 1)
        twin.restore(ladders.state())
        monkeypatch.setattr(twin, "_draws", lambda _, side=side: (1 - rejected[:, None]) * side)
        twin.swap(lnls)
        moved = (twin.rung != ladders.rung).any(axis=1)
        assert (moved[rejected > 0] == is_taken).all()
    return rejected


def test_ln_z_and_round_trips_of_a_known_problem() -> None:
    rng, ladders = np.random.default_rng(5), Ladders(8, 8, 1)
    for size in (200, 400, 1500):
        ladders.begin()
        for _ in range(size):
            ladders.swap(lnls_at(ladders.chain_heats, rng))
        if size < 1500:
            ladders.refit()
    expected = -DIMENSIONS / 2 * math.log(1 + 1 / VARIANCE)
    found = ladders.log_evidence
    error = found.std(ddof=1) / len(found) ** 0.5
    assert abs(found.mean() - expected) < 4 * error + 0.01
    assert error < 0.05
    assert (ladders.trips > 10).all()
    mean = -DIMENSIONS / (2 * (1 + VARIANCE))
    assert ladders.mean_lnl[:, 0].mean() == pytest.approx(mean, abs=0.1)


def test_a_ladder_goes_on_from_its_state() -> None:
    one, other = Ladders(2, 4, 3), Ladders(2, 4, 3)
    rng = np.random.default_rng(2)
    lnls = [rng.normal(size=(2, 4)) * 3 for _ in range(20)]
    for lnl in lnls[:10]:
        one.swap(lnl)
    other.restore(one.state())
    for lnl in lnls[10:]:
        one.swap(lnl)
        other.swap(lnl)
    assert np.array_equal(one.rung, other.rung)
    assert np.array_equal(one.log_evidence, other.log_evidence)
