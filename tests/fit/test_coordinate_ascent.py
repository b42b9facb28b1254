"""Model and branches in turn: to the end, from every start, and with a word where it is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from simulated import simulate

import mltree
from mltree.data.alphabet import DNA
from mltree.fit import coordinate_ascent
from mltree.fit.coordinate_ascent import ascend_best
from mltree.fit.fits import Fit
from mltree.fit.settings import ModelSettings, SearchSettings
from mltree.likelihood.requests import perform
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, alone
from mltree.report.lines import describe
from mltree.system.events import Event, StoppedShort
from mltree.tree.newick import write_newick
from mltree.tree.topology import random_topology, uniform_tree

if TYPE_CHECKING:
    from simulated import Simulated

SETTINGS = SearchSettings()


class Approaching:
    """A likelihood whose smoothings gain a share of the last gain, whatever the trees are."""

    def __init__(self, gain: float, pace: float) -> None:
        self.lacking, self.pace = gain / (1.0 - pace), pace
        self.smoothings = 0

    def smooth(self, trees, cases, epsilon, *, floors):
        self.smoothings += 1
        self.lacking *= self.pace
        return np.full(len(trees), -self.lacking)


def fit_of(case: Simulated, text: str = "GTR+FE+G2") -> Fit:
    tree = case.tree.copy()
    tree.lengths[:] = 0.1
    return Fit(tree, alone(parse_model(text, case.patterns.alphabet)))


def ascended(likelihood, fits: list[Fit], settings: SearchSettings = SETTINGS, **options):
    events: list[Event] = []
    steps = ascend_best(fits, settings, events.append, **options)
    return perform(likelihood, steps), events


def test_ends_where_neither_gains(case: Simulated) -> None:
    found, events = ascended(case.likelihood, [fit_of(case)])
    again, _ = ascended(case.likelihood, [Fit(found.tree.copy(), found.model, lnl=found.lnl)])
    assert found.lnl <= again.lnl < found.lnl + 0.005
    assert not events


def test_the_better_of_two_is_taken(case: Simulated) -> None:
    stuck = fit_of(case, "JC+G2{100}")
    free = fit_of(case)
    for fits in ([stuck, free], [free, stuck]):
        found, _ = ascended(case.likelihood, [Fit(f.tree.copy(), f.model) for f in fits])
        assert found.model.lone.name == "GTR"


def test_slow_turns_go_on_although_each_gains_little(case: Simulated) -> None:
    """Turns that gain 0.9 of the last one: at a gain of 0.01 there is 0.09 to come."""
    slow = Approaching(gain=0.02, pace=0.9)
    settings = replace(SETTINGS, max_ascent_turns=100)
    _, events = ascended(slow, [fit_of(case)], settings, parameters=False)
    assert slow.lacking < SETTINGS.ascent_epsilon
    assert not events
    quick = Approaching(gain=0.02, pace=0.05)
    ascended(quick, [fit_of(case)], settings, parameters=False)
    assert quick.smoothings <= 3


def test_a_long_ridge_is_walked_to_its_end(case: Simulated) -> None:
    """At the pace that +I+G showed on simulated data, whose maximum lay 0.022 behind 20 turns."""
    slow = Approaching(gain=0.6, pace=0.85)
    _, events = ascended(slow, [fit_of(case)], parameters=False)
    assert slow.lacking < SETTINGS.ascent_epsilon
    assert not events


@pytest.mark.parametrize("seed", [2, 24])
def test_the_way_of_a_slow_turn_is_followed_further(
    seed: int, make_parts: Callable[..., Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free rates of two parts that share lengths: 54 and 23 turns without, to lower lnLs."""
    texts = ("K80{3}+FE+R2{0.2/1.5}{0.4/0.6}", "F81+FE+R2{0.1/3}{0.6/0.4}")
    data = make_parts(4, (90, 60), seed, Linkage.LINKED, texts)
    alphabet, lengths = data.patterns.alphabet, np.full_like(data.tree.lengths, 0.1)
    models = [parse_model(text, alphabet) for text in ("K80+FE+R2", "F81+FE+R2")]
    ends = []
    for fast, turns in ((coordinate_ascent.FAST_TURNS, 20), (1000, 60)):
        monkeypatch.setattr(coordinate_ascent, "FAST_TURNS", fast)
        fit = Fit(data.tree.with_lengths(lengths), data.model.with_parts(models))
        settings = replace(SETTINGS, max_ascent_turns=turns)
        found, events = ascended(data.likelihood, [fit], settings)
        (lnl,) = data.likelihood.log_likelihoods([found.tree], [found.case])
        assert found.lnl == pytest.approx(lnl, abs=1e-9)
        assert not events
        ends.append(found.lnl)
    assert ends[0] > ends[1] + 0.005


def test_stopping_short_is_reported(case: Simulated) -> None:
    slow = Approaching(gain=1.0, pace=0.99)
    _, events = ascended(slow, [fit_of(case)], parameters=False)
    (event,) = events
    assert event.what == "branch lengths"
    assert event.lacking == pytest.approx(slow.lacking, rel=0.9)
    assert f"about {event.lacking:.2g} lnL below it" in describe(event)
    settings = replace(SETTINGS, max_ascent_turns=1)
    _, events = ascended(case.likelihood, [fit_of(case)], settings)
    assert events == [StoppedShort("model and branch lengths", None)]
    assert "lnL" not in describe(events[0])


def test_a_model_that_stops_short_is_reported(case: Simulated) -> None:
    settings = replace(SETTINGS, model=ModelSettings(iterations=1), max_ascent_turns=40)
    found, events = ascended(case.likelihood, [fit_of(case)], settings)
    (event,) = events
    whole, _ = ascended(case.likelihood, [Fit(found.tree.copy(), found.model)])
    assert event.lacking == pytest.approx(whole.lnl - found.lnl, rel=0.5, abs=0.01)


def test_lengths_alone_leave_the_model(case: Simulated) -> None:
    start = fit_of(case)
    found, events = ascended(case.likelihood, [start], parameters=False)
    assert found.model is start.model
    assert np.ptp(found.tree.lengths) > 0
    assert not events


@pytest.mark.parametrize("extrapolated", [False, True])
def test_a_gain_behind_a_turn_without_one_is_followed(extrapolated: bool) -> None:
    """By rounding, a rough turn may gain exactly nothing."""
    fit = Fit(
        random_topology(4, np.random.default_rng(1)), alone(parse_model("JC", DNA)), lnl=-10.0
    )
    progress = coordinate_ascent.Progress(fit)
    progress.update(-10.0)
    assert (progress.gain, progress.remaining_gain) == (0.0, 0.0)
    progress.extrapolated, fit.lnl = extrapolated, -9.5
    progress.update(-10.0)
    assert progress.remaining_gain == pytest.approx(0.5 * 0.95 / 0.05)
    progress.update(-9.5)
    assert progress.remaining_gain == 0.0


@pytest.mark.parametrize("seed", [3, 14])
@pytest.mark.cases(1, 20)
def test_rates_among_sites_end_at_the_best_of_their_maxima(seed: int, case: int) -> None:
    """As high as at given proportions and alphas; 15 and 8 lower without a look around."""
    rng = np.random.default_rng(seed if case == 0 else [seed, case])
    tree = uniform_tree(30, 0.2, rng)
    given = f"I{{{rng.choice([0.7, 0.8, 0.9])}}}+G4{{{rng.uniform(0.15, 0.35)}}}"
    codes = simulate(tree, parse_model(f"HKY{{3}}+FE+{given}", DNA), 800, rng)
    names = [f"t{n}" for n in range(30)]
    letters = np.array(list(" AC G   T"))[codes]
    rows = dict(zip(names, map("".join, letters), strict=True))
    newick = write_newick(tree, names)
    found = mltree.evaluate(rows, tree=newick, model="HKY+FE+I+G4").lnl
    for p in (0.3, 0.6, 0.7, 0.8, 0.85):
        for alpha in (0.1, 0.2, 0.3, 0.5, 1.0):
            held = mltree.evaluate(rows, tree=newick, model=f"HKY+FE+I{{{p}}}+G4{{{alpha}}}")
            assert found > held.lnl - 0.05, (p, alpha)
