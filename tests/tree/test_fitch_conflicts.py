"""Trees that no data can have come from are told from those whose lnL is finite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.system.errors import NumericalError
from mltree.tree.fitch import find_conflict

if TYPE_CHECKING:
    from conftest import Problem

MakeProblem = Callable[..., "Problem"]


@pytest.mark.cases(30, 1000)
def test_a_conflict_is_an_lnl_of_minus_infinity(
    make_problem: MakeProblem, reference: Callable[..., TreeLikelihood], case: int
) -> None:
    """The reference engine, which knows nothing of conflicts, finds a likelihood or none."""
    rng = np.random.default_rng(case)
    problem = make_problem(int(rng.integers(4, 12)), 6, seed=case)
    tree = problem.tree
    tree.lengths[rng.random(tree.n_edges) < rng.choice([0.1, 0.3, 0.6, 1.0])] = 0
    codes = problem.patterns.codes.copy()
    codes[:, rng.random(6) < rng.choice([0.0, 0.8, 1.0])] = codes[0, 0]
    problem = replace(problem, patterns=replace(problem.patterns, codes=codes))
    conflict = find_conflict(tree, problem.patterns)
    likelihood = reference(problem)
    if conflict is None:
        assert np.isfinite(likelihood.log_likelihoods([tree], [problem.case])[0])
        return
    with pytest.raises(NumericalError), np.errstate(all="ignore"):
        likelihood.log_likelihoods([tree], [problem.case])
    allowed = problem.patterns.alphabet.tip_table[codes[:, conflict.site]] > 0
    tips = list(conflict.tips)
    assert not allowed[tips].all(axis=0).any()
    assert allowed[tips[:-1]].all(axis=0).any()


def test_both_kinds_occur(make_problem: MakeProblem) -> None:
    problem = make_problem(8, 6)
    tree = problem.tree
    assert find_conflict(tree, problem.patterns) is None
    tree.lengths[:] = 0
    assert find_conflict(tree, problem.patterns) is not None
