"""Tables for several trees of one launch: each with its own lengths, slots and model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program import builders, planner
from mltree.tree.moves import nni
from mltree.tree.topology import Forest, Tree
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem


def test_a_scan_of_several_trees_scores_each_under_its_own_model(
    make_problem: Callable[..., Problem], reference: Callable[..., TreeLikelihood]
) -> None:
    problem = make_problem(7, 30, trees=3)
    likelihood = reference(problem)
    together = Neighbourhood(problem.trees)
    scan = together.scan(together.extend(25))
    scores = likelihood.insertions(problem.trees, problem.cases, scan)
    refined, lengths = likelihood.refine(problem.trees, problem.cases, scan)
    for n, (tree, case) in enumerate(zip(problem.trees, problem.cases, strict=True)):
        alone = Neighbourhood(tree)
        own = alone.scan(alone.extend(25))
        mine = together.tree == n
        single = likelihood.insertions([tree], [case], own)
        np.testing.assert_allclose(scores[mine], single, rtol=1e-10)
        best, three = likelihood.refine([tree], [case], own)
        np.testing.assert_allclose(refined[mine], best, rtol=1e-9)
        np.testing.assert_allclose(lengths[mine], three, rtol=1e-4, atol=1e-6)


@pytest.mark.cases(25, 1000)
def test_only_what_a_change_made_stale_is_computed_again(
    make_problem: Callable[..., Problem], reference: Callable[..., TreeLikelihood], case: int
) -> None:
    """Random moves and lengths: the CLAs renewed are those that differ, to the bit of all anew."""
    rng = np.random.default_rng(case)
    problem = make_problem(int(rng.integers(5, 12)), 6, trees=2, seed=case)
    before = [tree.copy() for tree in problem.trees]
    after = [changed(tree, rng) for tree in before]
    used, fresh = reference(problem), reference(problem)
    for likelihood, trees in ((used, before), (used, after), (fresh, after)):
        found = Neighbourhood(trees)
        likelihood.insertions(trees, problem.cases, found.scan(found.extend(2)))
    stale = planner.is_stale(Forest(before), Forest(after))
    old = reference(problem)
    found = Neighbourhood(before)
    old.insertions(before, problem.cases, found.scan(found.extend(2)))
    inner = Forest(after).inner
    for slot, half in enumerate(inner.tolist()):
        own, anew, was = (each.engine.cla[slot, 0] for each in (used, fresh, old))
        np.testing.assert_array_equal(own.values, anew.values)
        np.testing.assert_array_equal(own.counts, anew.counts)
        if not stale[half]:
            np.testing.assert_array_equal(own.values, was.values)


def changed(tree: Tree, rng: np.random.Generator) -> Tree:
    """Nothing, some lengths, interchanges, or all of it."""
    moved = tree.copy()
    if rng.random() < 0.7:
        moved.lengths[rng.integers(tree.n_edges, size=2)] *= 2.0
    for _ in range(rng.integers(3)):
        nni(moved, int(rng.choice(moved.inner_edges)), int(rng.integers(2)))
    return moved


def test_a_pendant_branch_makes_few_stale(make_problem: Callable[..., Problem]) -> None:
    """Its own length concerns what looks at it from across: one of three at every other node."""
    tree = make_problem(40, 4).tree
    longer = tree.copy()
    longer.lengths[tree.edge[0]] *= 2
    stale = planner.is_stale(Forest([tree]), Forest([longer]))
    assert stale.sum() == 2 * (tree.n_tips - 2)
    assert builders.renewal([tree], [tree.copy()]) is None
