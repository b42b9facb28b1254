"""Root-to-tip regression, and roots that suit a clock."""

import numpy as np
import pytest
from dated_trees import simulated

from mltree.dating.rooting import PLACES, best_branches, regression


def test_regression_is_numpys():
    rng = np.random.default_rng(1)
    dates = rng.uniform(2000.0, 2010.0, 30)
    distances = 0.01 * (dates - 1990.0) + rng.normal(0.0, 0.01, 30)
    distances[7] += 1.0
    dates[3] = np.nan
    found = regression(distances, dates)
    used = np.isfinite(dates)
    slope, intercept = np.polyfit(dates[used] - 2000.0, distances[used], 1)
    assert found.rate == pytest.approx(slope)
    assert found.intercept == pytest.approx(intercept - 2000.0 * slope)
    assert found.origin == pytest.approx(2000.0 - intercept / slope)
    correlation = np.corrcoef(dates[used], distances[used])[0, 1]
    assert found.r_squared == pytest.approx(correlation**2)
    assert np.flatnonzero(found.is_outlier).tolist() == [7]


@pytest.mark.cases(5, 100)
def test_best_branch_is_that_of_all_places(case):
    tree, dates, _ = simulated(case, 12, 0.3)
    times = np.full(tree.n_nodes, np.nan)
    times[list(tree.tips)] = dates[list(tree.tips)]
    by_name = {tree.labels[tip]: times[tip] for tip in tree.tips}

    def squares(node, share):
        rooted = tree.rooted_above(node, share)
        tips = list(rooted.tips)
        own = np.array([by_name[rooted.labels[tip]] for tip in tips])
        found = regression(rooted.heights[tips], own)
        return (found.residuals**2).sum() if found.rate > 0.0 else np.inf

    nodes = [node for node in range(1, tree.n_nodes) if tree.parent[node]]
    every = [squares(node, share) for node in nodes for share in PLACES]
    (node, share), *_ = best_branches(tree, times, 3)
    assert squares(node, share) <= min(every) * (1.0 + 1e-6)
