"""First trees by distances, exact under a clock; births and deaths as their equations have them."""

import itertools
import math

import numpy as np
import pytest
from dated_trees import births_and_deaths, serial_coalescent
from scipy import integrate

from mltree.sampling.tree_priors import (
    birth_death_log_density,
    fitted_heights,
    nearest_joins,
    rate_by_ages,
    serial_log_density,
)


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


def integrated(tips, inner, parents, births, deaths, sampling, present):
    """The density by the equations of births and deaths along each branch, step by step."""
    total, every = births + deaths + sampling, np.concatenate((tips, inner))
    end, start = 60.0, len(tips)

    def slopes(_, y):
        unseen, along = y[0], y[1:]
        none = deaths - total * unseen + births * unseen**2
        return np.concatenate([[none], (2 * births * unseen - total) * along])

    def along(low, high, unseen):
        """P(unseen) at the end of a stretch, and the factor of a lineage along it."""
        y = integrate.solve_ivp(slopes, (low, high), [unseen, 1.0], rtol=1e-10, atol=1e-14).y
        return y[0, -1], y[1, -1]

    marks = np.unique(np.concatenate(([0.0], every)))
    unseen, log_density = 1.0 - present, 0.0
    for low, high in itertools.pairwise(marks):
        unseen, factor = along(low, high, unseen)
        lineages = sum(
            every[v] <= low < (every[u] if (u := parents[v]) >= 0 else high)
            for v in range(len(every))
        )
        log_density += lineages * math.log(factor)
    at_once = int((tips == 0).sum()) if present > 0 else 0
    log_density += (start - 1) * math.log(2 * births) + (start - at_once) * math.log(sampling or 1)
    log_density += at_once * math.log(present or 1)

    def stem(_, y):
        return np.concatenate([slopes(0.0, y[:2]), [y[1]]])

    y = integrate.solve_ivp(stem, (marks[-1], end), [unseen, 1.0, 0.0], rtol=1e-10, atol=1e-14).y
    return log_density + math.log(births * y[2, -1]) - math.lgamma(start)


@pytest.fixture
def births(case):
    """Rates of births, deaths and sampling, a share at the present, and a tree of theirs."""
    rng = np.random.default_rng(case)
    while True:
        rates = rng.uniform(0.5, 3.0), rng.uniform(0.0, 2.0), rng.uniform(0.1, 2.0)
        present = float(rng.choice([0.0, rng.uniform(0.2, 1.0)]))
        ends = {"until": float(rng.uniform(0.5, 2.5)), "present": present}
        if not present:
            ends = {"tips": int(rng.integers(3, 12))}
        found = births_and_deaths(rng, *rates, **ends)
        if found is not None and len(found[0]) < 60:
            heights, parents = found
            tips = (len(heights) + 1) // 2
            return heights[:tips], heights[tips:], parents, *rates, present


@pytest.mark.cases(5, 200)
def test_births_and_deaths_through_time_are_those_of_their_equations(births):
    tips, inner, parents, *rates, present = births
    names = dict(zip(("births", "deaths", "sampling"), rates, strict=True))
    at_once = int((tips == 0).sum()) if present else 0
    found = serial_log_density(tips, inner, **names, present=present, at_once=at_once)
    expected = integrated(tips, inner, parents, *rates, present)
    assert found == pytest.approx(expected, abs=1e-5 * len(tips))


@pytest.mark.cases(5, 500)
def test_births_and_deaths_through_time_of_one_date_are_those_of_yule_and_bd(case):
    rng = np.random.default_rng(case)
    tips, rate = int(rng.integers(3, 40)), float(rng.lognormal())
    inner, death = rng.exponential(size=tips - 1) / rate, float(rng.choice([0.0, rng.random()]))
    sampled, births = float(rng.uniform(0.01, 1.0)), rate / (1 - death)
    rates = {"births": births, "deaths": death * births, "sampling": 0.0, "present": sampled}
    expected = birth_death_log_density(inner, rate=rate, death=death, sampled=sampled)
    found = serial_log_density(np.zeros(tips), inner, **rates, at_once=tips)
    assert found == pytest.approx(expected, abs=1e-9 * tips)
