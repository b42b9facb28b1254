"""Branch lengths beyond the bounds count as the bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-3, 2.0)


def beyond(tree: Tree) -> Tree:
    """A copy with a branch of length zero, one all but zero, and two much too long."""
    copy = tree.copy()
    copy.lengths[:4] = (0.0, 1e-9, 50.0, 1e6)
    return copy


@pytest.mark.parametrize("passes", [1, 100])
def test_smoothing_begins_and_ends_within_the_bounds(
    passes: int, make_problem: Callable[..., Problem], reference: Callable[..., TreeLikelihood]
) -> None:
    problem = make_problem(7, 30)
    tree, case = beyond(problem.tree), problem.case
    clipped = tree.copy()
    np.clip(tree.lengths, *BOUNDS, out=clipped.lengths)
    likelihood = reference(problem, BOUNDS)
    before = likelihood.log_likelihoods([clipped], [case])[0]
    lnl = likelihood.smooth([tree], [case], 1e-3, passes)[0]
    assert tree.lengths.min() >= BOUNDS[0]
    assert tree.lengths.max() <= BOUNDS[1]
    if passes == 1:
        np.testing.assert_array_equal(tree.lengths, clipped.lengths)
        assert lnl == pytest.approx(before, rel=1e-12)
    else:
        assert lnl > before
