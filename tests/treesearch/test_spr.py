"""Rounds on trees that cannot be lured down, by a likelihood that promises too much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.requests import perform
from mltree.models.partitioned import Linkage
from mltree.program.cases import Case
from mltree.program.planner import ScanTasks
from mltree.tree.moves import nni
from mltree.tree.splits import robinson_foulds, same_topology
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.move_cache import MoveCache
from mltree.treesearch.spr import Neighbourhood, RoundOutcome, spr_round

if TYPE_CHECKING:
    from simulated import Simulated

PHASE = PhaseSettings(25, np.inf)

LEFT = 0.5
"""lnL of a part that a smoothing may leave: that its last pass gained little bounds it loosely."""

ROUNDING = 1e-8
"""lnL: what another order of sums may take away."""


class Flatterer:
    """A likelihood whose joint re-scoring promises gains that no tree keeps."""

    def __init__(self, case: Simulated, rng: np.random.Generator, most: float = 100.0) -> None:
        self._true, self._rng, self._most = case.likelihood, rng, most
        self.log_likelihoods = case.likelihood.log_likelihoods
        self.insertions = case.likelihood.insertions
        self.join_lengths = case.likelihood.join_lengths
        self.trees_at_once = case.likelihood.trees_at_once
        self.planners = case.likelihood.planners

    def smooth(
        self, trees: Sequence[Tree], cases: Sequence[Case], epsilon: float, *, floors: np.ndarray
    ) -> np.ndarray:
        return self._true.smooth(trees, cases, epsilon, floors=floors)

    def refine(
        self, trees: Sequence[Tree], cases: Sequence[Case], scan: ScanTasks, floors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        lnl, lengths = self._true.refine(trees, cases, scan, floors)
        return lnl + self._rng.uniform(0.0, self._most, lnl.size), lengths


def candidates_of(case: Simulated, trees: Sequence[Tree]) -> list[CandidateTree]:
    """Copies of trees with branch lengths that fit."""
    copies = [tree.copy() for tree in trees]
    lnls = case.likelihood.smooth(copies, [case.under] * len(copies), 1e-4)
    return [CandidateTree(tree, float(lnl), "user") for tree, lnl in zip(copies, lnls, strict=True)]


def under(case: Simulated, candidates: Sequence[CandidateTree]) -> list[Case]:
    return [case.under] * len(candidates)


def true_lnl(case: Simulated, tree: Tree) -> float:
    return float(case.likelihood.log_likelihoods([tree], [case.under])[0])


@pytest.mark.parametrize("fully_smoothed", [0, 4])
@pytest.mark.cases(3, 200)
def test_no_round_loses(
    case: int, fully_smoothed: int, make_case: Callable[..., Simulated]
) -> None:
    """Forty sites: many wrong trees are but a little worse, and must not be taken."""
    data, rng = make_case(6, 40, case), np.random.default_rng(case)
    candidates = candidates_of(data, [data.tree, random_topology(6, rng)])
    before = [candidate.copy() for candidate in candidates]
    phase = PhaseSettings(25, np.inf, fully_smoothed=fully_smoothed)
    likelihood = Flatterer(data, rng)
    outcomes = perform(
        likelihood, spr_round(candidates, under(data, candidates), phase, RoundSettings())
    )
    for candidate, old, outcome in zip(candidates, before, outcomes, strict=True):
        assert candidate.lnl >= old.lnl
        assert true_lnl(data, candidate.tree) == pytest.approx(candidate.lnl, abs=ROUNDING)
        assert (outcome.moves > 0) == (candidate.lnl > old.lnl)
        if not outcome.moves:
            np.testing.assert_array_equal(candidate.tree.twin, old.tree.twin)
            np.testing.assert_array_equal(candidate.tree.lengths, old.tree.lengths)


@pytest.mark.parametrize("refusals", [1, 9])
def test_a_batch_that_fails_is_halved(make_case: Callable[..., Simulated], refusals: int) -> None:
    """Every try starts from the same tree; after the last half nothing is left to try."""
    data = make_case(9, 60)
    (start,) = candidates_of(data, [random_topology(9, np.random.default_rng(2))])
    before = start.copy()
    away: list[int] = []

    class Stubborn(Flatterer):
        def smooth(self, trees, cases, epsilon, *, floors):  # type: ignore[no-untyped-def]
            away.append(robinson_foulds(trees[0], before.tree))
            return np.array([before.lnl + (1.0 if len(away) > refusals else -1.0)])

    likelihood = Stubborn(data, np.random.default_rng(1), most=0.0)
    settings = RoundSettings(window=np.inf)
    (outcome,) = perform(likelihood, spr_round([start], [data.under], PHASE, settings))
    assert away == sorted(away, reverse=True)
    assert away[0] > away[-1] > 0
    if refusals < 9:
        assert len(away) == refusals + 1
        assert start.lnl == before.lnl + 1.0
        assert robinson_foulds(start.tree, before.tree) == away[-1]
    else:
        assert outcome.moves == 0
        assert same_topology(start.tree, before.tree)
        assert start.lnl == before.lnl


@pytest.mark.parametrize(("fully_smoothed", "moves"), [(0, 0), (8, 1)])
def test_full_smoothing_redeems_what_scores_too_low(
    make_case: Callable[..., Simulated], fully_smoothed: int, moves: int
) -> None:
    """An interchange away from the truth, and every candidate scored just below the tree."""
    data = make_case(7, 200)
    tree = data.tree.copy()
    nni(tree, int(tree.inner_edges[0]), 0)
    (start,) = candidates_of(data, [tree])
    before = start.lnl

    class Doubter(Flatterer):
        def refine(self, trees, cases, scan, floors):  # type: ignore[no-untyped-def]
            lnl, lengths = data.likelihood.refine(trees, cases, scan)
            return np.minimum(lnl, before) - 0.5, lengths

    likelihood = Doubter(data, np.random.default_rng(1))
    phase = PhaseSettings(2, np.inf, fully_smoothed=fully_smoothed)
    settings = RoundSettings(window=np.inf)
    (outcome,) = perform(likelihood, spr_round([start], [data.under], phase, settings))
    assert outcome.moves == moves
    assert (start.lnl > before + 1.0) == bool(moves)
    assert start.active == bool(moves)


@pytest.mark.parametrize("skips_stalled", [False, True])
def test_nothing_is_looked_at_again_where_nothing_gained(
    make_case: Callable[..., Simulated], skips_stalled: bool
) -> None:
    """After a round that found nothing; in the repair of copies, after every round."""
    data = make_case(9, 300)
    phase = PhaseSettings(25, np.inf, skips_stalled=skips_stalled)
    settings = RoundSettings(rejection=1e3, window=np.inf)
    tree = data.tree.copy()
    nni(tree, int(tree.inner_edges[0]), 0)
    candidates, cache = candidates_of(data, [tree]), MoveCache()

    def round_() -> RoundOutcome:
        steps = spr_round(candidates, under(data, candidates), phase, settings, caches=[cache])
        (outcome,) = perform(data.likelihood, steps)
        return outcome

    assert round_().moves > 0
    while (last := round_()).moves:
        pass
    every = Neighbourhood(candidates[0].tree)
    every.extend(phase.radius)
    assert (last.insertions < every.size) == skips_stalled
    assert round_().insertions == 0


def test_outcomes_count_what_was_done(case: Simulated) -> None:
    wrong = random_topology(case.tree.n_tips, np.random.default_rng(3))
    candidates = candidates_of(case, [wrong, case.tree])
    keep = 2
    settings = RoundSettings(keep=keep, window=np.inf, waves=())
    outcomes = perform(
        case.likelihood, spr_round(candidates, under(case, candidates), PHASE, settings)
    )
    n_tips = case.tree.n_tips
    assert [outcome.insertions for outcome in outcomes] == [4 * (n_tips - 3) * (n_tips - 2)] * 2
    prunes = 3 * (n_tips - 2)
    assert all(prunes < outcome.rescored <= keep * prunes for outcome in outcomes)
    assert outcomes[0].moves > 0
    assert [candidate.rounds for candidate in candidates] == [1, 1]


@pytest.mark.parametrize(
    ("gain", "max_rounds", "active"), [(0.1, 100, True), (1e6, 100, False), (0.1, 1, False)]
)
def test_a_lineage_rests_when_rounds_gain_little_or_are_spent(
    case: Simulated, gain: float, max_rounds: int, active: bool
) -> None:
    (candidate,) = candidates_of(case, [random_topology(8, np.random.default_rng(3))])
    phase = PhaseSettings(2, np.inf, min_round_gain=gain)
    settings = RoundSettings(max_rounds=max_rounds)
    (outcome,) = perform(case.likelihood, spr_round([candidate], [case.under], phase, settings))
    assert outcome.moves > 0
    assert candidate.active == active


def test_a_lineage_without_a_move_rests(case: Simulated) -> None:
    (candidate,) = candidates_of(case, [case.tree])
    phase = PhaseSettings(25, np.inf, min_round_gain=0.0)
    for _ in range(5):
        before = candidate.lnl
        steps = spr_round([candidate], [case.under], phase, RoundSettings())
        (outcome,) = perform(case.likelihood, steps)
        if not candidate.active:
            break
    assert (outcome.moves, candidate.lnl, candidate.active) == (0, before, False)


@pytest.mark.parametrize("linkage", list(Linkage))
@pytest.mark.cases(1, 60)
def test_rounds_on_parts_tell_the_lnl_of_their_trees(
    case: int,
    linkage: Linkage,
    make_parts: Callable[..., Simulated],
    part_alone: Callable[..., Simulated],
    textbook_lnls: Callable[..., np.ndarray],
) -> None:
    """Round by round, until each part of each tree has no better lengths than it would alone."""
    data, rng = make_parts(6, (50, 30), case, linkage), np.random.default_rng(case)
    wrong = random_topology(6, rng)
    wrong.lengths = np.full_like(data.tree.lengths, 0.1)
    candidates = candidates_of(data, [wrong, data.tree])
    settings = RoundSettings(keep=3, window=10.0)
    moves = 0
    while active := [candidate for candidate in candidates if candidate.active]:
        before = [candidate.lnl for candidate in active]
        outcomes = perform(data.likelihood, spr_round(active, under(data, active), PHASE, settings))
        for candidate, old in zip(active, before, strict=True):
            candidate.tree.validate()
            lnls = textbook_lnls(data.patterns, candidate.tree, data.under.models)
            assert candidate.lnl == pytest.approx(lnls.sum(), rel=1e-11)
            assert candidate.lnl >= old
        moves += sum(outcome.moves for outcome in outcomes)
    assert moves > 0 or candidates[0].lnl > candidates[1].lnl - settings.min_gain
    for candidate in candidates if linkage == Linkage.UNLINKED else ():
        here = replace(data, tree=candidate.tree)
        lnls = textbook_lnls(data.patterns, candidate.tree, data.under.models)
        for part in range(2):
            lone = part_alone(here, part)
            (lnl,) = lone.likelihood.smooth([lone.tree], [lone.under], 1e-4)
            assert lnls[part] <= lnl + ROUNDING
            assert lnls[part] == pytest.approx(lnl, abs=LEFT)
