"""What stays on the device from one call to the next, and when it is stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program.cases import Case
from mltree.tree.moves import nni
from mltree.tree.topology import Tree
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

MakeLikelihood = Callable[..., TreeLikelihood]


def scores(likelihood: TreeLikelihood, tree: Tree, case: Case) -> np.ndarray:
    found = Neighbourhood(tree)
    return likelihood.insertions([tree], [case], found.scan(found.extend(25)))


@pytest.mark.parametrize("change", ["model", "length", "topology"])
def test_whatever_changes_makes_the_vectors_stale(
    change: str,
    make_problem: Callable[..., Problem],
    open_native: Callable[..., object],
    likelihood: MakeLikelihood,
    reference: MakeLikelihood,
) -> None:
    """Scores of a second call are those of a likelihood that never saw the first."""
    problem = make_problem(7, 30, trees=2)
    tree, case = problem.tree.copy(), problem.case
    used = likelihood(open_native, problem)
    first = scores(used, tree, case)
    np.testing.assert_array_equal(scores(used, tree, case), first)
    if change == "model":
        case = problem.cases[1]
    elif change == "length":
        tree.lengths[tree.inner_edges[0]] *= 3.0
    else:
        nni(tree, int(tree.inner_edges[0]), 1)
    second = scores(used, tree, case)
    assert np.abs(second - first).max() > 1e-3
    np.testing.assert_allclose(second, scores(reference(problem), tree, case), rtol=1e-9)
