"""First trees by distances: exact under a clock, with groups and heights that are fixed."""

import numpy as np
import pytest
from dated_trees import serial_coalescent

from mltree.sampling.tree_priors import fitted_heights, nearest_joins, rate_by_ages


def distances_of(parents, ages, labels, rate):
    """Distances of the tips of a tree under a strict clock, f64[T, T], and ages of the tips."""
    lines = []
    for node in (node for node, label in enumerate(labels) if label):
        line = [node]
        while parents[line[-1]] >= 0:
            line.append(int(parents[line[-1]]))
        lines.append(line)
    apart = np.zeros((len(lines), len(lines)))
    for one, line in enumerate(lines):
        for other in range(one):
            shared = next(node for node in lines[other] if node in line)
            apart[one, other] = 2 * ages[shared] - ages[line[0]] - ages[lines[other][0]]
    return rate * (apart + apart.T), ages[[line[0] for line in lines]]


@pytest.fixture
def dated(case):
    """Distances, ages of tips and all ages of a random coalescent tree, and the clock's rate."""
    rng = np.random.default_rng(case)
    tips, rate = int(rng.integers(4, 40)), float(rng.uniform(0.01, 1.0))
    parents, dates, labels = serial_coalescent(rng, tips, 0.5)
    return *distances_of(parents, -dates, labels, rate), -dates, rate


@pytest.mark.cases(5, 200)
def test_a_clock_s_tree_is_found(dated):
    distances, ages, every, rate = dated
    joins = nearest_joins(distances, ages, rate)
    found = [join.height for join in joins]
    np.testing.assert_allclose(np.sort(found), np.sort(inner_of(every, ages)), rtol=1e-2)


def inner_of(every, ages):
    """Ages of the inner nodes: all but those of the tips."""
    left = list(every)
    for age in ages.tolist():
        left.remove(age)
    return left


@pytest.mark.cases(5, 200)
def test_heights_keep_order_between_those_that_are_fixed(dated, case):
    distances, ages, _, rate = dated
    rng, tips = np.random.default_rng(case), len(ages)
    group = rng.choice(tips, max(2, tips // 3), replace=False).tolist()
    joins = nearest_joins(distances, ages, rate, [group])
    below = {tip: {tip} for tip in range(tips)}
    for node, join in enumerate(joins, tips):
        below[node] = below[join.one] | below[join.other]
    assert set(group) in below.values()
    top = 2 * tips - 2
    mine = next(node for node, own in below.items() if own == set(group))
    oldest = float(max(ages[group]))
    fixed = {mine: oldest + 0.1, top: float(ages.max()) + 5.0}
    heights = fitted_heights(joins, ages, fixed, 1.3)
    assert heights[mine] == fixed[mine]
    assert heights[top] == fixed[top]
    for node, join in enumerate(joins, tips):
        assert heights[node] > max(heights[join.one], heights[join.other])
    assert fitted_heights(joins, ages, {mine: oldest - 0.1}, 1.3) is None


def test_sequences_that_are_alike_have_a_tree():
    joins = nearest_joins(np.zeros((300, 300)), np.zeros(300), 1.0)
    heights = fitted_heights(joins, np.zeros(300), {}, 1.3)
    assert (np.diff(heights[299:]) > 0.0).all()


@pytest.mark.cases(5, 200)
def test_ages_tell_the_rate(dated):
    distances, ages, _, rate = dated
    found = rate_by_ages(distances, ages)
    assert found is None or found == pytest.approx(rate, rel=0.5)
    assert rate_by_ages(distances, np.zeros(len(ages))) is None
