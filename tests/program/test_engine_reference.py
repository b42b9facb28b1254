"""The reference against sums written out in full: every state of every inner node."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays, p_matrices
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from conftest import Problem

MakeProblem = Callable[..., "Problem"]
Reference = Callable[..., TreeLikelihood]


def site_likelihoods(tree: Tree, model: ModelArrays, tips: np.ndarray) -> np.ndarray:
    """f64 [L]: SUM over states of all nodes of pi P ... P, no pruning; tips f64 [T, L, S]."""
    p = p_matrices(model, tree.lengths)
    ends = tree.edge_halves // 3
    total = np.zeros(tips.shape[1])
    inner = range(tree.n_tips, tree.n_nodes)
    for states in product(range(model.n_states), repeat=len(inner)):
        state = dict(zip(inner, states, strict=True))
        for k, weight in enumerate(model.weights):
            term = np.full(tips.shape[1], weight * model.frequencies[states[0]])
            for edge, parent, child in _away_from(tree, ends):
                row = p[edge, k, state[parent]]
                term *= tips[child] @ row if child < tree.n_tips else row[state[child]]
            total += term
    return total


def _away_from(tree: Tree, ends: np.ndarray) -> list[tuple[int, int, int]]:
    """(edge, nearer node, further node) of every edge, seen from the first inner node."""
    todo, seen, found = [tree.n_tips], {tree.n_tips}, []
    while todo:
        node = todo.pop()
        for edge in np.flatnonzero((ends == node).any(axis=1)):
            other = int(ends[edge].sum()) - node
            if other not in seen:
                found.append((int(edge), node, other))
                seen.add(other)
                if other >= tree.n_tips:
                    todo.append(other)
    return found


@pytest.mark.parametrize(
    ("tips", "states", "categories"), [(3, 4, 4), (4, 4, 4), (5, 4, 2), (4, 2, 3), (4, 20, 1)]
)
def test_pruning_is_the_sum_over_all_states(
    make_problem: MakeProblem, reference: Reference, tips: int, states: int, categories: int
) -> None:
    problem = make_problem(tips, 12, states=states, categories=categories)
    vectors = problem.patterns.alphabet.tip_table[problem.patterns.codes]
    expected = np.log(site_likelihoods(problem.tree, problem.model, vectors))
    engine = reference(problem)
    got = engine.site_log_likelihoods(problem.tree, problem.case)
    np.testing.assert_allclose(got, expected, rtol=1e-11)
    lnl = engine.log_likelihoods([problem.tree], [problem.case])[0]
    assert lnl == pytest.approx(problem.patterns.weights @ expected, rel=1e-11)
