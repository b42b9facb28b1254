"""Which trees of a search go on, and which rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.fit.settings import PerturbationSettings, PhaseSettings, SearchSettings
from mltree.likelihood.requests import Steps, perform
from mltree.system.events import Event, StartTree, TreePerturbed
from mltree.tree.random_trees import random_topology
from mltree.tree.splits import topology_key
from mltree.treesearch.checkpoint import Lineage
from mltree.treesearch.driver import EndStarts, Finish, Perturb, StartingTree, beginning
from mltree.treesearch.explored import Lesson
from mltree.treesearch.quest import Quest

if TYPE_CHECKING:
    from simulated import Simulated

PHASE = PhaseSettings(3, np.inf)

Make = Callable[..., Quest]


@pytest.fixture
def data(make_case: Callable[..., Simulated]) -> Simulated:
    return make_case(8, 120)


@pytest.fixture
def make_quest(data: Simulated) -> Make:
    def make(emit: Callable[[Event], None] = lambda _: None, **settings: object) -> Quest:
        rng = np.random.default_rng(4)
        starts = [StartingTree(random_topology(8, rng), f"random {n}") for n in range(1, 6)]
        chosen = SearchSettings(phases=(PHASE,), **settings)  # type: ignore[arg-type]
        return Quest(chosen, beginning(starts, data.model, chosen, rng), emit)

    return make


def test_of_equal_trees_the_best_goes_on(data: Simulated, make_quest: Make) -> None:
    quest = make_quest()
    worse, better = (Lineage(data.tree.copy(), lnl, "x") for lnl in (-9e3, -8e3))
    over = perform(data.likelihood, quest.round([worse, better], PHASE))
    assert (worse.active, worse.lnl, worse.rounds) == (False, -9e3, 0)
    assert better.rounds == 1
    assert over == (not better.active)


def test_a_tree_from_which_nothing_was_found_is_not_asked_again(
    data: Simulated, make_quest: Make
) -> None:
    quest = make_quest()
    quest.state.explored.ended([topology_key(data.tree)])
    lineage = Lineage(data.tree.copy(), -9e3, "x")
    assert perform(data.likelihood, quest.round([lineage], PHASE))
    assert (lineage.rounds, quest.state.rounds) == (0, 0)


def test_starts_come_in_until_those_before_agree(data: Simulated, make_quest: Make) -> None:
    events: list[Event] = []
    quest = make_quest(events.append, starts_at_once=2)
    state = quest.state
    assert (len(state.lineages), len(state.waiting), state.starts) == (2, 3, 2)
    for lineage, lnl in zip(state.lineages, (-100.0, -150.0), strict=True):
        lineage.lnl = lnl
    assert quest.reached(state.lineages) == 1
    assert perform(data.likelihood, quest.admit())
    assert (len(state.lineages), len(state.waiting), state.starts) == (4, 1, 4)
    assert [event.origin for event in events if isinstance(event, StartTree)] == [
        "random 3",
        "random 4",
    ]
    assert all(np.isfinite(lineage.lnl) and lineage.active for lineage in state.lineages[2:])
    for lineage, lnl in zip(state.lineages, (-100.05, -150.0, -100.0, -101.0), strict=True):
        lineage.lnl = lnl
    assert quest.reached(state.lineages) == 1
    assert quest.reached(state.lineages, within=0.1) == 2
    assert not perform(data.likelihood, quest.admit())
    assert (len(state.lineages), len(state.waiting)) == (4, 1)


def test_the_starts_of_one_shape_count_together(make_quest: Make) -> None:
    quest = make_quest()
    one, other, third, *_ = quest.state.lineages
    one.lnl, other.lnl, third.lnl = -3.0, -5.0, -4.0
    other.tree, other.starts = one.tree.copy(), 4
    assert quest.reached([one, other, third]) == 5


def test_rivals_are_pooled_trees_of_other_shapes_that_are_as_good(
    data: Simulated, make_quest: Make
) -> None:
    quest = make_quest(max_survivors=4, cull_margin=0.0)
    wrong, *others = (lineage.tree for lineage in quest.state.lineages)
    best = Lineage(wrong.copy(), -np.inf, "x")
    for rank, tree in enumerate([data.tree, wrong, *others]):
        quest.state.pool.add(tree, -float(rank))
    rivals = perform(data.likelihood, quest.rivals(best))
    first = [tree.copy() for tree in (wrong, data.tree, *others[:2])]
    epsilon = quest.settings.final_smooth_epsilon
    own, *lnls = data.likelihood.smooth(first, [quest.case] * 4, epsilon)
    assert best.lnl == pytest.approx(own)
    wanted = [lnl for lnl in lnls if lnl > own]
    assert len(wanted) > 0
    assert [one.lnl for one in rivals] == pytest.approx(wanted)


def test_a_search_that_ends_on_another_tree_looks_again(data: Simulated, make_quest: Make) -> None:
    quest = make_quest()
    state = quest.state
    state.lineages = state.lineages[:1]
    state.pool.add(data.tree, -9e3)
    state.explored.ended([1])
    state.act = 7
    assert perform(data.likelihood, Finish(looks_again=True).step(quest))
    assert topology_key(state.best.tree) == topology_key(data.tree)
    assert (state.act, state.explored.has_ended([1])) == (5, [False])
    assert perform(data.likelihood, Finish(looks_again=True).step(quest))
    assert state.act == 5


@pytest.mark.parametrize(("gain", "kept"), [(0.04, 1), (0.06, 0)])
def test_under_a_model_that_is_better_by_much_idle_prunes_are_forgotten(
    make_quest: Make, gain: float, kept: int
) -> None:
    quest = make_quest()
    explored, lineage = quest.state.explored, quest.state.lineages[0]
    nothing, one = np.empty(0, np.uint64), np.ones(1, np.uint64)
    explored.add([], idle=[Lesson(nothing, nothing, one)])
    explored.ended([1])
    lineage.lnl = -9e3
    (fit,) = quest.fits(lineage)
    fit.lnl = lineage.lnl + gain
    quest.adopt(lineage, fit)
    assert (explored.idle.size, explored.has_ended([1])) == (kept, [False])


@pytest.mark.parametrize(("agreement", "returned"), [(2, 4), (3, 4), (4, 0)])
def test_starts_that_agree_stand_for_half_of_the_copies(
    data: Simulated, make_quest: Make, agreement: int, returned: int
) -> None:
    quest = make_quest(agreement=agreement)
    state = quest.state
    for lineage, lnl in zip(state.lineages, (-100.0, -150.0, -120.0, -101.0, -102.0), strict=True):
        lineage.lnl = lnl
    state.lineages[0].starts = 3
    assert perform(data.likelihood, EndStarts().step(quest))
    assert (quest.settings.perturbation.returns, state.returned) == (8, returned)


def test_where_they_stand_for_all_none_is_made(data: Simulated, make_quest: Make) -> None:
    events: list[Event] = []
    settings = PerturbationSettings(copies=2, patience=1, agreement_share=1.0)
    quest = make_quest(events.append, perturbation=settings)
    quest.state.lineages = quest.state.lineages[:1]
    quest.state.best.starts = 2
    perform(data.likelihood, EndStarts().step(quest))
    assert perform(data.likelihood, Perturb().step(quest))
    assert (quest.state.copies, quest.state.batches) == ([], 0)


def test_a_search_without_a_phase_ends_on_its_tree(data: Simulated, make_quest: Make) -> None:
    quest = make_quest()
    key = topology_key(quest.state.lineages[0].tree)
    quest.state.lineages = quest.state.lineages[:1]
    quest.state.pool.add(data.tree, -9e3)
    assert perform(data.likelihood, Finish().step(quest))
    assert (topology_key(quest.state.best.tree), quest.state.act) == (key, 0)


class Counted:
    """An act that does nothing but count."""

    times = 0

    def step(self, quest: Quest) -> Steps[bool]:
        self.times += 1
        yield from ()
        return True


def test_a_copy_that_is_better_has_a_model_of_its_own(data: Simulated, make_quest: Make) -> None:
    events: list[Event] = []
    quest = make_quest(events.append, perturbation=PerturbationSettings(copies=2, patience=3))
    quest.state.lineages = quest.state.lineages[:1]
    perform(data.likelihood, quest.smooth(quest.state.lineages, 0.1))
    before = quest.state.best.lnl
    refit = Counted()
    perturb = Perturb((refit,))
    while not perform(data.likelihood, perturb.step(quest)):
        pass
    lnls = [before, *(event.lnl for event in events if isinstance(event, TreePerturbed))]
    gains = np.diff(lnls)
    assert refit.times == (gains > quest.settings.rounds.min_gain).sum()
    assert 0 < refit.times < len(gains)
