"""Rows of site lnL: of trees and of their neighbours, on every engine, in any batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.likelihood import site_rows
from mltree.likelihood.interchanges import Quartets, neighbours
from mltree.likelihood.site_rows import rows_of_neighbours, rows_of_trees
from mltree.program.engine import Room
from mltree.tree.moves import nni
from mltree.tree.topology import Tree

LOWER, UPPER = 1e-6, 100.0


def interchanged(tree: Tree, row: int) -> Tree:
    """The tree whose row it is among the neighbours'."""
    other = tree.copy()
    nni(other, int(tree.inner_edges[row // 2]), row % 2)
    return other


SHORT, LOWER_TOP = 0.005, 0.5
"""lnL that another optimiser may find more, or less; and of lengths that have several tops: of 120
such optima three are 0.006, 0.37 and 0.44 lower."""


def five_branches(tree: Tree, edge: int) -> list[int]:
    """The branches around an inner one, and that."""
    halves = tree.edge_halves[edge]
    around = [tree.edge[half] for end in halves for half in tree.siblings(int(end))]
    return [*map(int, around), edge]


def best_lnl(used: Any, tree: Tree, model: Any, edge: int) -> float:
    """The highest lnL that the five branches around one lead to, by another optimiser."""
    branches = five_branches(tree, edge)
    own = tree.copy()

    def cost(logs: np.ndarray) -> tuple[float, np.ndarray]:
        own.lengths[branches] = np.exp(logs)
        lnl, slope, _ = used.derivatives(own, model)
        return -lnl, -slope[branches] * own.lengths[branches]

    start = np.log(tree.lengths[branches])
    bounds = [(np.log(LOWER), np.log(UPPER))] * len(branches)
    return -float(minimize(cost, start, jac=True, bounds=bounds, options={"ftol": 1e-14}).fun)


@pytest.fixture(scope="module")
def best_of(make_problem: Any, reference: Any) -> Callable[[int], tuple[Any, dict[int, float]]]:
    """best_of(case): a problem, and the best lnL of one neighbour across each of its branches."""

    @cache
    def make(case: int) -> tuple[Any, dict[int, float]]:
        problem = make_problem(6, 30, seed=case, alpha=0.7)
        edges, used = problem.tree.inner_edges.tolist(), reference(problem)
        best = {}
        for k, edge in enumerate(edges):
            row = 2 * k + (k + case) % 2
            best[row] = best_lnl(used, interchanged(problem.tree, row), problem.case, edge)
        return problem, best

    return make


@pytest.mark.cases(1, 40)
def test_neighbours_are_as_good_as_their_five_branches_allow(
    case: int, best_of: Any, open_engine: Any, likelihood: Any, reference: Any
) -> None:
    problem, best = best_of(case)
    weights = problem.patterns.weights
    used = likelihood(open_engine, problem)
    rows = rows_of_neighbours(used, problem.tree, problem.case, weights, problem.tree.inner_edges)
    assert len(rows.lnl) == 2 * len(problem.tree.inner_edges) + 1
    for row, lnl in best.items():
        assert -(LOWER_TOP if case else SHORT) < rows.lnl[row] - lnl < SHORT
    own = reference(problem).log_likelihoods([problem.tree], [problem.case])
    assert rows.lnl[-1] == pytest.approx(own[0], rel=1e-9)
    np.testing.assert_allclose(rows.sites() @ weights, rows.lnl, rtol=1e-9)


def test_rows_of_trees_are_their_site_lnls(
    open_engine: Any, make_problem: Any, likelihood: Any, reference: Any
) -> None:
    problem = make_problem(9, 50, trees=4)
    used = likelihood(open_engine, problem)
    rows = rows_of_trees(used, problem.trees, problem.cases, problem.patterns.weights)
    slow = reference(problem)
    for lnl, sites, tree, model in zip(
        rows.lnl, rows.sites(), problem.trees, problem.cases, strict=True
    ):
        expected = slow.site_log_likelihoods(tree, model)
        np.testing.assert_allclose(sites, expected, rtol=1e-9)
        assert lnl == pytest.approx(float(expected @ problem.patterns.weights), rel=1e-9)


def test_resampled_rows_are_products_and_the_data_come_back(
    open_engine: Any, make_problem: Any, likelihood: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(8, 45, trees=3)
    weights = problem.patterns.weights
    used = likelihood(open_engine, problem)
    before = used.log_likelihoods(problem.trees, problem.cases)
    rows = rows_of_trees(used, problem.trees, problem.cases, weights)
    drawn = np.random.default_rng(1).integers(0, 5, (11, 45)).astype(np.float64)
    whole = rows.resampled(drawn)
    np.testing.assert_allclose(whole, rows.sites() @ drawn.T, rtol=1e-9)
    monkeypatch.setattr(site_rows, "RESAMPLED_BYTES", 8 * 45 * 4)
    np.testing.assert_array_equal(rows.resampled(drawn), whole)
    np.testing.assert_array_equal(used.log_likelihoods(problem.trees, problem.cases), before)


class Narrow:
    """An engine with room for a tree, and for a quartet or two beside it."""

    def __init__(self, engine: Any, n_tips: int) -> None:
        self._engine = engine
        most = 3 * (n_tips - 2) + 13
        self.room = Room(most, 3 * (n_tips - 2), 13)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_batches_change_no_bit(open_engine: Any, make_problem: Any, likelihood: Any) -> None:
    problem = make_problem(9, 40, trees=5)
    weights = problem.patterns.weights
    used = likelihood(open_engine, problem)

    def both() -> list[tuple[np.ndarray, np.ndarray]]:
        neighbours = rows_of_neighbours(
            used, problem.tree, problem.case, weights, problem.tree.inner_edges
        )
        found = [(neighbours.lnl, neighbours.sites())]
        trees = rows_of_trees(used, problem.trees, problem.cases, weights)
        return [*found, (trees.lnl, trees.sites())]

    whole = both()
    used.engine = Narrow(used.engine, 9)
    for (lnl, sites), (again, again_sites) in zip(whole, both(), strict=True):
        np.testing.assert_array_equal(again, lnl)
        np.testing.assert_array_equal(again_sites, sites)
        np.testing.assert_allclose(sites @ weights, lnl, rtol=1e-9)


def test_lengths_travel_with_subtrees(make_problem: Any) -> None:
    tree = make_problem(11, 5).tree
    others = neighbours(tree, tree.inner_edges)
    for row, (halves, lengths) in enumerate(zip(others.halves, others.lengths, strict=True)):
        other, edge = interchanged(tree, row), int(tree.inner_edges[row // 2])
        here = Quartets.of(other, np.array([edge], np.int32))
        mine = {tuple(sorted(tree.twin[halves[ends]].tolist())) for ends in ([0, 1], [2, 3])}
        theirs = {tuple(sorted(other.twin[here.halves[0, e]].tolist())) for e in ([0, 1], [2, 3])}
        assert mine == theirs
        assert sorted(lengths) == sorted(other.lengths[five_branches(other, edge)])
        for half, length in zip(halves, lengths, strict=False):
            assert length == tree.lengths[tree.edge[half]]
