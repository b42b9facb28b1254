"""Tables for several trees of one launch: each with its own lengths, slots and model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mltree.likelihood.api import Likelihood
from mltree.search.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem


def test_a_scan_of_several_trees_scores_each_under_its_own_model(
    make_problem: Callable[..., Problem], reference: Callable[..., Likelihood]
) -> None:
    problem = make_problem(7, 30, trees=3)
    likelihood = reference(problem)
    together = Neighbourhood(problem.trees)
    scan = together.scan(together.extend(25))
    scores = likelihood.insertions(problem.trees, problem.models, scan)
    refined, lengths = likelihood.refine(problem.trees, problem.models, scan)
    for n, (tree, model) in enumerate(zip(problem.trees, problem.models, strict=True)):
        alone = Neighbourhood(tree)
        own = alone.scan(alone.extend(25))
        mine = together.tree == n
        single = likelihood.insertions([tree], [model], own)
        np.testing.assert_allclose(scores[mine], single, rtol=1e-10)
        best, three = likelihood.refine([tree], [model], own)
        np.testing.assert_allclose(refined[mine], best, rtol=1e-9)
        np.testing.assert_allclose(lengths[mine], three, rtol=1e-4, atol=1e-6)
