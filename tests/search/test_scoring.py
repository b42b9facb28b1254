"""Scores of the scan against trees that really make the move, scored by plain pruning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.model.eigen import p_matrices
from mltree.search.neighbourhood import Neighbourhood
from mltree.search.scoring import rescore, scan, shortlist
from mltree.settings import PhaseSettings, RoundSettings
from mltree.tree.moves import SprLengths, spr
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from conftest import Case


def textbook_lnl(case: Case, tree: Tree) -> float:
    """Felsenstein's pruning from tip 0, one recursive call a node, no scaling."""
    arrays = case.model.arrays()
    table = case.patterns.alphabet.tip_table

    def below(half: int) -> np.ndarray:
        node = half // 3
        if node < tree.n_tips:
            vector = table[case.patterns.codes[node]]
            return np.repeat(vector[:, None, :], arrays.n_categories, axis=1)
        result = 1.0
        for sibling in tree.siblings(half):
            p = p_matrices(arrays, tree.lengths[tree.edge[[sibling]]])[0]
            result = result * np.einsum("kij,lkj->lki", p, below(int(tree.twin[sibling])))
        return np.asarray(result)

    p = p_matrices(arrays, tree.lengths[tree.edge[[0]]])[0]
    far = np.einsum("kij,lkj->lki", p, below(int(tree.twin[0])))
    sites = np.einsum("k,i,lki->l", arrays.weights, arrays.frequencies, below(0) * far)
    return float(case.patterns.weights @ np.log(sites))


def test_a_score_is_the_lnl_after_the_move(case: Case) -> None:
    models = [case.model.arrays()]
    phase = PhaseSettings(25, np.inf)
    found, s0 = scan(
        case.likelihood, [case.tree], models, [0.0], phase, RoundSettings(waves=(1, 3))
    )
    assert found.size == s0.size > 50
    for c in range(found.size):
        moved = case.tree.copy()
        spr(moved, int(found.prune[c]), int(found.target[c]))
        assert s0[c] == pytest.approx(textbook_lnl(case, moved), rel=1e-10)


def test_rescored_lengths_give_the_rescored_lnl(case: Case) -> None:
    models = [case.model.arrays()]
    found = Neighbourhood(case.tree)
    selected = np.arange(*found.extend(3).indices(10**9)[:2], 5, dtype=np.int32)
    (moves,) = rescore(case.likelihood, [case.tree], models, found, selected)
    s0 = case.likelihood.insertions([case.tree], models, found.scan(selected))
    assert np.isfinite(moves.lnl).all()
    for n in range(selected.size):
        moved = case.tree.copy()
        spr(moved, int(moves.prune[n]), int(moves.target[n]), SprLengths(*moves.lengths[n]))
        assert moves.lnl[n] == pytest.approx(textbook_lnl(case, moved), rel=1e-10)
    assert np.median(moves.lnl - s0) > 0


def test_the_cut_saves_work_and_keeps_the_best(make_case: Callable[..., Case]) -> None:
    case = make_case(20, 100, 3)
    models = [case.model.arrays()]
    lnl = case.likelihood.smooth([case.tree], models, 0.01)
    rounds = RoundSettings(waves=(1, 3))
    all_of, every = scan(
        case.likelihood, [case.tree], models, lnl, PhaseSettings(25, np.inf), rounds
    )
    some_of, some = scan(case.likelihood, [case.tree], models, lnl, PhaseSettings(25, 10.0), rounds)
    assert some_of.size < all_of.size
    assert some.max() == every.max()


def test_several_trees_score_as_each_alone(make_case: Callable[..., Case]) -> None:
    case = make_case(8, 100)
    other = case.tree.copy()
    other.lengths[:] = 0.1
    trees, models = [case.tree, other], [case.model.arrays()] * 2
    phase, rounds = PhaseSettings(25, 30.0), RoundSettings(waves=(2,))
    lnls = case.likelihood.log_likelihoods(trees, models)
    found, together = scan(case.likelihood, trees, models, lnls, phase, rounds)
    both = rescore(case.likelihood, trees, models, found, shortlist(found, together, lnls - 20, 2))
    for n, tree in enumerate(trees):
        mine, s0 = scan(case.likelihood, [tree], models[:1], [lnls[n]], phase, rounds)
        np.testing.assert_allclose(together[found.tree == n], s0, rtol=1e-12)
        picks = shortlist(mine, s0, [lnls[n] - 20], 2)
        (alone,) = rescore(case.likelihood, [tree], models[:1], mine, picks)
        np.testing.assert_array_equal(both[n].target, alone.target)
        np.testing.assert_allclose(both[n].lnl, alone.lnl, rtol=1e-12)
        np.testing.assert_allclose(both[n].lengths, alone.lengths, rtol=1e-9)


def test_the_shortlist_is_the_best_few_of_every_prune(case: Case) -> None:
    found = Neighbourhood(case.tree)
    found.extend(25)
    s0 = np.random.default_rng(4).normal(size=found.size)
    listed = shortlist(found, s0, [-0.5], 3)
    assert (np.diff(listed) > 0).all()
    for prune in np.unique(found.prune):
        mine = np.flatnonzero(found.prune == prune)
        best = [c for c in mine[np.argsort(-s0[mine])][:3] if s0[c] > -0.5]
        assert sorted(best) == [c for c in listed if found.prune[c] == prune]
