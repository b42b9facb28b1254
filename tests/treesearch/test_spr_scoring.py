"""Scores of the scan against trees that really make the move, scored by plain pruning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.models.partitioned import Linkage
from mltree.tree.moves import SprLengths, spr
from mltree.treesearch import spr as scoring
from mltree.treesearch.move_cache import MoveCache
from mltree.treesearch.spr import (
    MoveRules,
    Neighbourhood,
    ScoredMoves,
    ScoreMoves,
    rescore,
    scan,
    shortlist,
)

if TYPE_CHECKING:
    from simulated import Simulated


Textbook = Callable[..., np.ndarray]


@pytest.fixture(params=["lone", *Linkage])
def data(
    request: pytest.FixtureRequest, case: Simulated, make_parts: Callable[..., Simulated]
) -> Simulated:
    """One part, and two under every linkage."""
    return case if request.param == "lone" else make_parts(7, (60, 40), linkage=request.param)


def test_a_score_is_the_lnl_after_the_move(data: Simulated, textbook_lnls: Textbook) -> None:
    phase, rounds = PhaseSettings(25, np.inf), RoundSettings(waves=(1, 3))
    found, s0 = scan(data.likelihood, [data.tree], [data.under], [0.0], phase, rounds)
    assert found.size == s0.size > 50
    for c in range(found.size):
        moved = data.tree.copy()
        spr(moved, int(found.prune[c]), int(found.target[c]))
        lnl = textbook_lnls(data.patterns, moved, data.under.models).sum()
        assert s0[c] == pytest.approx(lnl, rel=1e-10)


def test_rescored_lengths_give_the_rescored_lnl(data: Simulated, textbook_lnls: Textbook) -> None:
    cases = [data.under]
    found = Neighbourhood(data.tree)
    selected = np.arange(*found.extend(3).indices(10**9)[:2], 5, dtype=np.int32)
    (moves,) = rescore(data.likelihood, cases, found, selected)
    s0 = data.likelihood.insertions([data.tree], cases, found.scan(selected))
    assert np.isfinite(moves.lnl).all()
    for n in range(selected.size):
        moved = data.tree.copy()
        spr(moved, int(moves.prune[n]), int(moves.target[n]), SprLengths(*moves.lengths[n]))
        lnl = textbook_lnls(data.patterns, moved, data.under.models).sum()
        assert moves.lnl[n] == pytest.approx(lnl, rel=1e-10)
    assert np.median(moves.lnl - s0) > 0


def test_the_cut_saves_work_and_keeps_the_best(make_case: Callable[..., Simulated]) -> None:
    case = make_case(20, 100, 3)
    cases = [case.under]
    lnl = case.likelihood.smooth([case.tree], cases, 0.01)
    rounds = RoundSettings(waves=(1, 3))
    all_of, every = scan(
        case.likelihood, [case.tree], cases, lnl, PhaseSettings(25, np.inf), rounds
    )
    some_of, some = scan(case.likelihood, [case.tree], cases, lnl, PhaseSettings(25, 10.0), rounds)
    assert some_of.size < all_of.size
    assert some.max() == every.max()


def test_several_trees_score_as_each_alone(make_case: Callable[..., Simulated]) -> None:
    case = make_case(8, 100)
    other = case.tree.copy()
    other.lengths[:] = 0.1
    trees, cases = [case.tree, other], [case.under] * 2
    phase, rounds = PhaseSettings(25, 30.0), RoundSettings(waves=(2,))
    lnls = case.likelihood.log_likelihoods(trees, cases)
    found, together = scan(case.likelihood, trees, cases, lnls, phase, rounds)
    both = rescore(case.likelihood, cases, found, shortlist(found, together, lnls - 20, 2))
    for n, tree in enumerate(trees):
        mine, s0 = scan(case.likelihood, [tree], cases[:1], [lnls[n]], phase, rounds)
        np.testing.assert_allclose(together[found.tree == n], s0, rtol=1e-12)
        picks = shortlist(mine, s0, [lnls[n] - 20], 2)
        (alone,) = rescore(case.likelihood, cases[:1], mine, picks)
        np.testing.assert_array_equal(both[n].target, alone.target)
        np.testing.assert_allclose(both[n].lnl, alone.lnl, rtol=1e-12)
        np.testing.assert_allclose(both[n].lengths, alone.lengths, rtol=1e-9)


def test_the_shortlist_is_the_best_few_of_every_prune(case: Simulated) -> None:
    found = Neighbourhood(case.tree)
    found.extend(25)
    s0 = np.random.default_rng(4).normal(size=found.size)
    listed = shortlist(found, s0, [-0.5], 3)
    assert (np.diff(listed) > 0).all()
    for prune in np.unique(found.prune):
        mine = np.flatnonzero(found.prune == prune)
        best = [c for c in mine[np.argsort(-s0[mine])][:3] if s0[c] > -0.5]
        assert sorted(best) == [c for c in listed if found.prune[c] == prune]


def test_of_equal_candidates_the_first_are_listed(case: Simulated) -> None:
    found = Neighbourhood(case.tree)
    found.extend(25)
    s0 = np.random.default_rng(4).integers(0, 3, size=found.size).astype(np.float64)
    listed = set(shortlist(found, s0, [-1.0], 4).tolist())
    for prune in np.unique(found.prune):
        mine = np.flatnonzero(found.prune == prune)
        best = mine[np.argsort(-s0[mine], kind="stable")][:4]
        assert {int(c) for c in mine} & listed == set(best.tolist())


def test_shares_score_as_the_whole(data: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    other = data.tree.copy()
    other.lengths[:] *= 1.5
    trees, cases = [data.tree, other], [data.under] * 2
    lnls = data.likelihood.log_likelihoods(trees, cases).tolist()
    rules = MoveRules(PhaseSettings(25, 40.0), RoundSettings(waves=(2, 3), window_share=1.0))
    known = [MoveCache(), MoveCache()]

    def scored() -> list[ScoredMoves]:
        return ScoreMoves(trees, cases, lnls, known, rules).answer(data.likelihood)

    whole = scored()
    for found in whole:  # so that some prunes and moves are known to be hopeless the second time
        known[0].add([found.update])
    whole += scored()
    monkeypatch.setattr(scoring, "LEAST_SHARE", 12)
    monkeypatch.setattr(data.likelihood, "planners", 3)
    known = [MoveCache(), MoveCache()]
    shared = scored()
    for found in shared:
        known[0].add([found.update])
    shared += scored()
    assert sum(found.moves.prune.size for found in whole) > 50
    for one, many in zip(whole, shared, strict=True):
        assert many.insertions == one.insertions
        for keys, of_shares in zip(one.update, many.update, strict=True):
            np.testing.assert_array_equal(np.sort(of_shares), np.sort(keys))
        first, second = (
            moves.at(np.lexsort((moves.target, moves.prune))) for moves in (one.moves, many.moves)
        )
        for column, of_shares in zip(first, second, strict=True):
            np.testing.assert_array_equal(of_shares, column)
