"""Rates of sites: which few are kept, against every choice there is; and their term."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.models.grammar import format_model, parse_model
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.models.rates import SiteRates, fitted_rates, rates_for
from mltree.system.errors import ModelError


@pytest.mark.cases(20, 1000)
def test_the_rates_that_are_kept_are_the_best_few(case: int) -> None:
    """Of lnLs that rise and fall once, by trying every choice."""
    rng = np.random.default_rng([5, case])
    many, patterns = int(rng.integers(3, 9)), int(rng.integers(1, 30))
    count = int(rng.integers(1, many + 1))
    rates = np.sort(rng.exponential(size=many))
    steps = rng.exponential(size=(many - 1, patterns))
    rising = np.arange(many - 1)[:, None] < rng.integers(0, many, patterns)
    lnls = np.concatenate([np.zeros((1, patterns)), np.where(rising, steps, -steps)]).cumsum(axis=0)
    weights = rng.integers(1, 9, patterns).astype(np.float64)
    found = fitted_rates(lnls, weights, rates, count)
    best = max((lnls[list(few)].max(axis=0) @ weights) for few in combinations(range(many), count))
    assert found.lnl == pytest.approx(best)
    of_patterns = found.rates[found.category]
    own = np.searchsorted(rates, of_patterns * found.speed * (1 - 1e-12))
    assert lnls[own, np.arange(patterns)] @ weights == pytest.approx(best)
    assert of_patterns @ weights == pytest.approx(weights.sum())
    assert len(found.rates) == count


def test_more_rates_than_there_are_to_choose_from() -> None:
    found = fitted_rates(np.array([[-1.0, -2.0], [-2.0, -1.0]]), np.ones(2), np.array([1.0, 3]), 4)
    assert found.lnl == -2.0
    np.testing.assert_allclose(found.rates[found.category], [0.5, 1.5])


def test_few_patterns_share_fewer_rates() -> None:
    assert [rates_for(patterns, 25) for patterns in (1, 640, 10**6)] == [4, 5, 25]
    assert rates_for(10**6, 2) == 2


def test_it_is_read_and_written() -> None:
    for text, count in (("GTR+FC+PSR", 25), ("HKY+psr7", 7)):
        form = parse_model(text, DNA).heterogeneity
        assert isinstance(form, SiteRates)
        assert form.most == count
    assert format_model(parse_model("JC+PSR", DNA)) == "JC+PSR"
    assert format_model(parse_model("JC+PSR9", DNA)) == "JC+PSR9"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GTR+PSR{1}", "cannot read the rates of sites +PSR{1}"),
        ("GTR+PSR1", "+PSR1: between 2 and 49 rates are possible"),
        ("GTR+PSR+G4", "both +P and +G"),
        ("GTR+PSR+I", "+PSR does not go with +I"),
        ("GTR+PSR+ASC_LEWIS", "+PSR does not go with +ASC"),
        ("GTR+CAT", "cannot read the profiles +CAT"),
        ("GTRCAT", "unknown model 'GTRCAT'"),
    ],
)
def test_what_does_not_go_with_it(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_model(text, DNA)
    assert message in caught.value.message
    if "CAT" in text:
        assert "+PSR" in (caught.value.hint or "")


def test_no_mixture_has_it() -> None:
    with pytest.raises(ModelError, match=r"\+PSR does not go with mixtures"):
        parse_model("LG+C10+PSR", PROTEIN)


def test_all_parts_have_it_and_share_their_branch_lengths() -> None:
    psr, gamma = parse_model("GTR+PSR", DNA), parse_model("GTR+G4", DNA)
    PartitionModel((gamma, gamma), ("a", "b"), Linkage.UNLINKED).check_site_rates()
    with pytest.raises(ModelError, match=r"1 of 2 parts have \+PSR"):
        PartitionModel((psr, gamma), ("a", "b")).check_site_rates()
    with pytest.raises(ModelError, match="branch lengths of every part's own"):
        PartitionModel((psr, psr), ("a", "b"), Linkage.UNLINKED).check_site_rates()


def test_under_gamma_nothing_else_changes() -> None:
    model = PartitionModel((parse_model("HKY{3}+FU{0.1/0.2/0.3/0.4}+PSR", DNA),))
    text = format_model(model.under_gamma.lone, precision=1)
    assert text == "HKY{1.0/3.0}+FU{0.1/0.2/0.3/0.4}+G4m{1.0}"
    assert not model.under_gamma.has_site_rates


def test_patterns_that_tell_nothing_of_their_rate_do_not_slow_the_others() -> None:
    rng = np.random.default_rng(6)
    rates = np.geomspace(0.01, 10.0, 9)
    lnls = -(np.subtract.outer(np.log(rates), rng.normal(size=20)) ** 2)
    weights = rng.integers(1, 9, 20).astype(np.float64)
    alone = fitted_rates(lnls, weights, rates, 4)
    silent = np.full((9, 30), -1.4)
    beside = fitted_rates(np.hstack([lnls, silent]), np.append(weights, np.ones(30)), rates, 4)
    assert beside.speed == pytest.approx(alone.speed)
    np.testing.assert_allclose(beside.rates, alone.rates)
    np.testing.assert_array_equal(beside.category[:20], alone.category)
    average = np.abs(np.log(alone.rates)).argmin()
    assert (beside.category[20:] == average).all()
    assert fitted_rates(silent, np.ones(30), rates, 4).speed == 1.0
