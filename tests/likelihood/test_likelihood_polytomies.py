"""Branches of trees with polytomies: all but the artificial edges are brought to a maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program.cases import Case
from mltree.tree.newick import read_newick
from mltree.tree.topology import Tree

Make = Callable[..., Any]

SHORTEST = 1e-6


def polytomous(n_tips: int, rng: np.random.Generator, most: int = 5) -> Tree:
    """A random tree with nodes of up to so many subtrees; a star where ``most`` is 0."""
    names = [f"t{n}" for n in range(n_tips)]
    nodes = [f"{name}:{rng.exponential(0.1):.4f}" for name in rng.permutation(names).tolist()]
    while most and len(nodes) > most:
        rng.shuffle(nodes)
        cut = int(rng.integers(2, most + 1))
        nodes[:cut] = [f"({','.join(nodes[:cut])}):{rng.exponential(0.1):.4f}"]
    return read_newick(f"({','.join(nodes)});", names)[0]


@pytest.mark.cases(4, 100)
def test_what_is_no_branch_stays_nothing(
    open_engine: Make, make_problem: Make, likelihood: Make, case: int
) -> None:
    """And branches end where the slope of lnL is 0, or where they can be no shorter."""
    rng = np.random.default_rng(case)
    n_tips = int(rng.integers(4, 16))
    problem = make_problem(n_tips, 40, seed=case)
    used = likelihood(open_engine, problem)
    trees = [polytomous(n_tips, rng, most) for most in (5, 3, 0)]
    before = used.log_likelihoods(trees, [problem.case] * 3)
    for _ in range(5):  # the data are noise, on which a smoothing may end after its last pass
        lnl = used.smooth(trees, [problem.case] * 3, 1e-9)
    assert (lnl > before).all()
    np.testing.assert_allclose(used.log_likelihoods(trees, [problem.case] * 3), lnl, rtol=1e-9)
    for tree in trees:
        tree.validate()
        branches = slice(tree.n_branches)
        _, slope, _ = used.derivatives(tree, problem.case)
        own = tree.lengths[branches]
        free = (own > 2 * SHORTEST) & (own < 50)
        assert np.abs(slope[branches][free] * own[free]).max(initial=0.0) < 1e-2
        assert (own >= SHORTEST).all()
        assert (slope[branches][own <= SHORTEST] < 1e-2).all()


@pytest.mark.cases(2, 30)
def test_another_optimiser_finds_the_same(make_problem: Make, reference: Make, case: int) -> None:
    """From where it ended: L-BFGS-B, with artificial edges of 0, gains nothing."""
    rng = np.random.default_rng(case + 1000)
    n_tips = int(rng.integers(4, 9))
    problem = make_problem(n_tips, 50, seed=case)
    used: TreeLikelihood = reference(problem)
    tree = polytomous(n_tips, rng, 4)
    (lnl,) = used.smooth([tree], [problem.case], 1e-9)

    def downhill(logs: np.ndarray) -> tuple[float, np.ndarray]:
        own = tree.copy()
        own.lengths[: tree.n_branches] = np.exp(logs)
        value, slope, _ = used.derivatives(own, problem.case)
        return -value, -(slope * own.lengths)[: tree.n_branches]

    bounds = [(np.log(SHORTEST), np.log(100.0))] * tree.n_branches
    start = np.log(tree.lengths[: tree.n_branches])
    found = minimize(downhill, start, jac=True, method="L-BFGS-B", bounds=bounds)
    assert lnl == pytest.approx(-found.fun, abs=1e-4)


def test_parts_with_lengths_of_their_own(make_problem: Make, reference: Make) -> None:
    rng = np.random.default_rng(5)
    problem = make_problem(12, 60, seed=5)
    used: TreeLikelihood = reference(problem)
    tree = polytomous(12, rng)
    twin = tree.copy()
    unlinked = tree.with_lengths(tree.lengths[None])
    case: Case = problem.case
    linked = used.smooth([twin], [case], 1e-6)
    assert used.smooth([unlinked], [case], 1e-6) == pytest.approx(linked, rel=1e-12)
    np.testing.assert_allclose(unlinked.lengths[0], twin.lengths)
    assert not unlinked.lengths[:, tree.n_branches :].any()


def test_a_program_is_not_mistaken_for_that_of_the_resolved_tree(
    make_problem: Make, reference: Make
) -> None:
    problem = make_problem(9, 60, seed=6)
    used: TreeLikelihood = reference(problem)
    tree = polytomous(9, np.random.default_rng(6), 0)
    binary = tree.resolved(0.1)
    kept, resolved = (used.smooth([one], [problem.case], 1e-6)[0] for one in (tree, binary))
    assert resolved > kept + 0.1
    assert not tree.lengths[tree.n_branches :].any()
