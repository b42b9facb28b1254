"""Every test against its definition, written out in loops, and against relations between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from mltree.supports import tree_tests
from mltree.supports.tree_tests import (
    bootstrap_proportions,
    deviations,
    expected_weights,
    kishino_hasegawa,
    leads,
    shimodaira_hasegawa,
    weighted_tests,
)


class Data(NamedTuple):
    weights: np.ndarray
    sites: np.ndarray
    lnl: np.ndarray
    resampled: np.ndarray

    @property
    def trees(self) -> range:
        return range(len(self.lnl))

    @property
    def centred(self) -> np.ndarray:
        return self.resampled - self.resampled.mean(axis=1, keepdims=True)


def random_data(case: int, trees: int = 5, replicates: int = 60) -> Data:
    rng = np.random.default_rng([case, trees])
    patterns = 25
    weights = rng.integers(1, 6, patterns).astype(np.float64)
    sites = -rng.exponential(3.0, patterns) + rng.normal(scale=0.2, size=(trees, patterns))
    drawn = rng.multinomial(int(weights.sum()), weights / weights.sum(), replicates)
    return Data(weights, sites, sites @ weights, sites @ drawn.T)


def others(data: Data, tree: int) -> list[int]:
    return [other for other in data.trees if other != tree]


@pytest.mark.cases(4, 100)
def test_kh_and_sh_are_those_of_the_definitions(case: int) -> None:
    data = random_data(case)
    centred, replicates = data.centred, data.resampled.shape[1]
    kh, sh = (test(data.lnl, data.resampled) for test in (kishino_hasegawa, shimodaira_hasegawa))
    for tree in data.trees:
        rival = max(others(data, tree), key=lambda other: data.lnl[other])
        lead = data.lnl[rival] - data.lnl[tree]
        single = several = 0
        for k in range(replicates):
            single += centred[rival, k] - centred[tree, k] > lead
            several += max(centred[:, k]) - centred[tree, k] > lead
        assert kh.values[tree] == single / replicates
        assert sh.values[tree] == several / replicates
        assert kh.is_kept[tree] == (kh.values[tree] >= 0.05)
    assert (kh.values <= sh.values).all()
    assert sh.values[data.lnl.argmax()] == 1


@pytest.mark.cases(4, 100)
def test_weighted_tests_are_those_of_the_definitions(
    case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.supports.tree_tests.BLOCK", 7)
    data = random_data(case)
    centred, replicates = data.centred, data.resampled.shape[1]
    n_sites = int(data.weights.sum())
    deviation = np.zeros((len(data.lnl), len(data.lnl)))
    columns = np.repeat(data.sites, data.weights.astype(int), axis=1)
    for one in data.trees:
        for other in data.trees:
            difference = columns[one] - columns[other]
            deviation[one, other] = np.sqrt(n_sites * difference.var(ddof=1))
    np.testing.assert_allclose(deviations(data.sites, data.weights), deviation, atol=1e-5)
    wkh, wsh = weighted_tests(data.lnl, data.resampled, deviation)
    for tree in data.trees:
        rest = others(data, tree)
        lead = {o: (data.lnl[o] - data.lnl[tree]) / deviation[tree, o] for o in rest}
        rival = max(rest, key=lead.__getitem__)
        single = several = 0
        for k in range(replicates):
            again = {o: (centred[o, k] - centred[tree, k]) / deviation[tree, o] for o in rest}
            single += again[rival] > lead[rival]
            several += max(again.values()) > lead[rival]
        assert wkh.values[tree] == pytest.approx(single / replicates)
        assert wsh.values[tree] == pytest.approx(several / replicates)
    assert (wkh.values <= wsh.values).all()


@pytest.mark.cases(4, 100)
def test_shares_are_those_of_the_definitions(case: int) -> None:
    data = random_data(case)
    data.resampled[1, :20] = data.resampled[0, :20]  # trees that are as good
    proportions, weights = np.zeros(len(data.lnl)), np.zeros(len(data.lnl))
    for column in data.resampled.T:
        best = [tree for tree in data.trees if column[tree] == max(column)]
        proportions[best] += 1 / len(best)
        likelihood = np.exp(column - max(column))
        weights += likelihood / likelihood.sum()
    bp, elw = bootstrap_proportions(data.resampled), expected_weights(data.resampled)
    for test, expected in ((bp, proportions), (elw, weights)):
        np.testing.assert_allclose(test.values, expected / data.resampled.shape[1])
        kept = np.sort(test.values[test.is_kept])[::-1]
        assert kept.sum() > 0.95 - tree_tests.ROUNDING or test.is_kept.all()
        assert kept[:-1].sum() <= 0.95 + tree_tests.ROUNDING
        assert kept.min() >= test.values[~test.is_kept].max(initial=0)


def test_two_trees_have_one_test() -> None:
    data = random_data(3, trees=2, replicates=500)
    kh = kishino_hasegawa(data.lnl, data.resampled).values
    wkh, wsh = weighted_tests(data.lnl, data.resampled, deviations(data.sites, data.weights))
    worse = data.lnl.argmin()
    assert shimodaira_hasegawa(data.lnl, data.resampled).values[worse] == kh[worse]
    np.testing.assert_array_equal(wkh.values, kh)
    np.testing.assert_array_equal(wsh.values, kh)


@pytest.mark.cases(3, 50)
def test_the_order_of_the_trees_does_not_matter(case: int) -> None:
    data = random_data(case)
    order = np.random.default_rng(case).permutation(len(data.lnl))
    for test in (kishino_hasegawa, shimodaira_hasegawa):
        here = test(data.lnl, data.resampled).values[order]
        np.testing.assert_array_equal(here, test(data.lnl[order], data.resampled[order]).values)
    for share in (bootstrap_proportions, expected_weights):
        np.testing.assert_allclose(
            share(data.resampled).values[order], share(data.resampled[order]).values
        )


def test_trees_that_do_not_differ_are_kept_by_all_tests() -> None:
    data = random_data(1)
    sites = np.repeat(data.sites[:1], 3, axis=0)
    lnl, resampled = sites @ data.weights, np.repeat(data.resampled[:1], 3, axis=0)
    tests = [
        *weighted_tests(lnl, resampled, deviations(sites, data.weights)),
        bootstrap_proportions(resampled),
        expected_weights(resampled),
    ]
    for test in tests:
        assert np.isfinite(test.values).all()
    np.testing.assert_allclose(tests[2].values, 1 / 3)
    np.testing.assert_allclose(tests[3].values, 1 / 3)


def test_leads_are_over_the_best_other_tree() -> None:
    np.testing.assert_array_equal(leads(np.array([-3.0, -1.0, -7.0])), [2, -2, 6])
    np.testing.assert_array_equal(leads(np.array([-1.0, -1.0, -7.0])), [0, 0, 6])


def test_errors_are_those_of_repetitions() -> None:
    """Of 200 sets of 100 replicates each. Centred by their own means, p-values vary less."""
    data = random_data(2, replicates=20_000)
    sets = np.split(data.resampled, 200, axis=1)
    for make in (bootstrap_proportions, expected_weights):
        spread = np.std([make(drawn).values for drawn in sets], axis=0)
        claimed = np.mean([make(drawn).errors for drawn in sets], axis=0)
        np.testing.assert_allclose(claimed, spread, rtol=0.3, atol=0.004)
    tests = [shimodaira_hasegawa(data.lnl, drawn) for drawn in sets]
    spread = np.std([test.values for test in tests], axis=0)
    claimed = np.mean([test.errors for test in tests], axis=0)
    assert (claimed > spread - 0.004).all()
    assert (claimed < 2 * spread + 0.004).all()


@pytest.mark.parametrize("compared", [1, 64, 1 << 17])
def test_weighted_tests_pass_over_trees_beyond_doubt(
    monkeypatch: pytest.MonkeyPatch, compared: int
) -> None:
    """Trees that are near, far and beyond any doubt, however many replicates are taken at once."""
    monkeypatch.setattr(tree_tests, "COMPARED", compared)
    rng = np.random.default_rng(4)
    lnl = -np.abs(rng.normal(0, [1.0] * 5 + [30.0] * 5 + [1e4] * 5))
    resampled = lnl[:, None] + rng.normal(0, 3, (15, 40)) + rng.normal(0, 20, 40)
    deviation = np.abs(rng.normal(4, 1, (15, 15)))
    deviation = deviation + deviation.T
    np.fill_diagonal(deviation, 0.0)
    centred = resampled - resampled.mean(axis=1, keepdims=True)
    expected = []
    for tree in range(15):
        others = [other for other in range(15) if other != tree]
        lead = max((lnl[other] - lnl[tree]) / deviation[tree, other] for other in others)
        ahead = [(centred[other] - centred[tree]) / deviation[tree, other] for other in others]
        expected.append((np.max(ahead, axis=0) > lead).mean())
    _, several = weighted_tests(lnl, resampled, deviation)
    np.testing.assert_array_equal(several.values, expected)
    assert 0 < np.count_nonzero(expected) < 15
