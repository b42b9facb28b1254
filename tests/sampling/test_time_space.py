"""Time trees without data: chains give the prior that closed forms and simulations have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import DEVICES, FUZZING, layout_of
from dated_trees import births_and_deaths
from scipy import integrate, stats
from simulated import patterns_of

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.dating.dates import CalibrationRow
from mltree.device.session import Session
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.program.contract import Scalar, TimeChain
from mltree.program.ops.time_trees import TimeTreeWords
from mltree.sampling.calibrations import NodeCalibration, calibrations_of
from mltree.sampling.model_space import ModelSpace
from mltree.sampling.priors import (
    Beta,
    Fixed,
    GammaDistribution,
    LogNormal,
    Normal,
    Priors,
    Uniform,
)
from mltree.sampling.sampler import Sampler, SamplerSettings
from mltree.sampling.shares import ChainData, ChainShares
from mltree.sampling.time_space import CLOCKS, TREE_PRIORS, TimeData, TimeSpace
from mltree.sampling.tree_priors import (
    birth_death_log_density,
    coalescent_log_density,
    grid_warp,
    growth_warp,
    join_at_random,
    skyline_log_density,
)
from mltree.system.arrays import Float64
from mltree.system.errors import InputError

RUNS, SWEEPS, BURN_IN = 32, 8, 10
FURTHEST = 4.5
"""Standard errors between a mean of chains and what it must be, at most."""


def any_patterns(tips: int) -> Patterns:
    rng = np.random.default_rng(tips)
    return patterns_of(rng.choice([1, 2, 4, 8], (tips, 12)).astype(np.uint8))


def level(tips: int, *calibrations: NodeCalibration) -> TimeData:
    names = tuple(f"t{tip}" for tip in range(tips))
    return TimeData(names, np.zeros(tips), np.zeros(tips), calibrations)


def sampler_of(
    data: TimeData,
    tree_prior: str,
    priors: Priors,
    clock: str = "strict",
    runs: int = RUNS,
    **grid: Any,
) -> Sampler:
    """Chains without data, each a run of its own."""
    space = TimeSpace(data, clock, tree_prior, priors, **grid)
    patterns, model = any_patterns(len(data.taxa)), alone(parse_model("JC", DNA))
    layout = layout_of(DEVICES[0], "native", patterns, 1).of(patterns)
    engine = Session(DEVICES[0].handle, patterns, layout, (1e-8, 100.0))
    chains = ChainData(
        tips=len(data.taxa),
        space=ModelSpace(model, priors),
        weights=np.zeros(patterns.n_patterns),
        regrafts=1,
        time=space.shape,
    )
    settings = SamplerSettings(runs=runs, rungs=1, seed=5, sweeps=SWEEPS)
    return Sampler(ChainShares([engine], chains), chains, priors, settings, (), None, space)


Statistics = Callable[[TimeTreeWords], list[float]]


def means_of(sampler: Sampler, statistics: Statistics, iterations: int) -> tuple[Float64, Float64]:
    """Means over chains and iterations, and standard errors between chains."""
    space = sampler.trees
    assert isinstance(space, TimeSpace)
    for _ in range(BURN_IN):
        sampler.iterate(adapts=True)
        sampler.in_round += 1
    total = 0.0
    for _ in range(iterations):
        sampler.iterate()
        rows = [statistics(TimeTreeWords(row, space.shape)) for row in sampler.words]
        total = total + np.array(rows)
    means = np.asarray(total) / iterations
    return means.mean(axis=0), means.std(axis=0, ddof=1) / math.sqrt(len(means))


def expect(found: tuple[Float64, Float64], *expected: float) -> None:
    means, errors = found
    z = (means - np.array(expected)) / errors
    assert (np.abs(z) < FURTHEST).all(), (means, expected, np.round(z, 1))


def height(tree: TimeTreeWords) -> float:
    return float(tree.heights[tree.root])


def is_balanced(tree: TimeTreeWords) -> float:
    """1 for four tips in two pairs."""
    children = int(tree.left[tree.root]), int(tree.right[tree.root])
    return float(min(children) >= tree.tips)


@pytest.mark.parametrize(("tips", "mean"), [(4, 0.541667), (10, 0.964484)])
def test_height_of_yule_trees(tips: int, mean: float) -> None:
    sampler = sampler_of(level(tips), "yule", Priors(birth_rate=Fixed(2.0)))
    assert mean == pytest.approx(sum(1 / (2 * k) for k in range(2, tips + 1)), abs=1e-6)

    def statistics(tree: TimeTreeWords) -> list[float]:
        children = {int(tree.left[v]) for v in range(tips, tree.nodes)}
        return [height(tree), is_balanced(tree), float(len(children))]

    means, errors = means_of(sampler, statistics, 40)
    expect((means[:1], errors[:1]), mean)
    if tips == 4:
        expect((means[1:2], errors[1:2]), 1 / 3)


def test_height_of_coalescent_trees() -> None:
    priors = Priors(population_size=Fixed(1e4), clock_rate=Fixed(1e-6))
    sampler = sampler_of(level(4), "coalescent", priors)
    expect(means_of(sampler, lambda t: [height(t), is_balanced(t)], 40), 15_000, 1 / 3)
    ages = np.array([0.0, 0.0, 5000.0, 5000.0])
    joined = 1 - math.exp(-0.5)  # of the two lineages until the others come
    mean = 5000 + joined * 40_000 / 3 + (1 - joined) * 15_000
    assert mean == pytest.approx(19_344.2, abs=0.05)
    serial = TimeData(("a", "b", "c", "d"), ages, ages, (), 0.0)
    expect(means_of(sampler_of(serial, "coalescent", priors), lambda t: [height(t)], 40), mean)


DATES = np.array([0.0, 0.0, 0.3, 0.5, 0.9, 0.9])
SERIAL = TimeData(tuple("abcdef"), DATES, DATES, (), 0.0)


def simulated_heights(inverse: Callable[[Float64], Float64], count: int = 4000) -> Float64:
    """f64[count, 2]: heights of the root and of the latest join, in time changed by a function."""
    rng, found = np.random.default_rng(3), np.zeros((count, 2))
    warped = _warped_by(inverse, DATES)
    for row in found:
        heights, joins = np.concatenate([warped, np.zeros(5)]), []

        def join(_one: int, _other: int, at: float) -> int:
            joins.append(at)  # noqa: B023
            heights[5 + len(joins)] = at  # noqa: B023
            return 5 + len(joins)  # noqa: B023

        join_at_random(list(range(6)), heights, join, rng, 1.0)
        row[:] = joins[-1], joins[0]
    return inverse(found.ravel()).reshape(count, 2)


def _warped_by(inverse: Callable[[Float64], Float64], dates: Float64) -> Float64:
    """The numbers that a rising function takes to dates, by bisection."""
    low, high = np.zeros_like(dates), np.full_like(dates, 1e3)
    for _ in range(80):
        middle = (low + high) / 2
        is_low = inverse(middle) < dates
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return low


def expect_simulated(sampler: Sampler, inverse: Callable[[Float64], Float64]) -> None:
    found = means_of(sampler, lambda t: [height(t), float(t.heights[t.tips :].min())], 40)
    simulated = simulated_heights(inverse)
    error = np.hypot(found[1], simulated.std(axis=0) / math.sqrt(len(simulated)))
    expect((found[0], error), *simulated.mean(axis=0).tolist())


def test_heights_under_growth_are_those_of_simulations() -> None:
    priors = Priors(population_size=Fixed(2.0), growth_rate=Fixed(1.5), clock_rate=Fixed(0.1))
    sampler = sampler_of(SERIAL, "expgrowth", priors)
    expect_simulated(sampler, lambda x: np.log1p(1.5 * 2.0 * x) / 1.5)
    warp = growth_warp(2.0, 1.5)
    assert math.log1p(3.0 * warp(np.array([0.7]))[0]) / 1.5 == pytest.approx(0.7)


def test_heights_under_a_skygrid_are_those_of_simulations(monkeypatch: Any) -> None:
    sizes = np.log([0.3, 3.0, 0.5])
    sampler = sampler_of(SERIAL, "skygrid", Priors(clock_rate=Fixed(0.1)), cells=3, width=0.6)
    space = sampler.trees
    assert isinstance(space, TimeSpace)
    program = sampler.shares

    def with_sizes(launch: Any) -> Any:
        for row in launch.words:
            TimeTreeWords(row, space.shape).cells[0] = sizes
        return program(launch)

    sampler.shares = with_sizes  # type: ignore[assignment]
    space_windows = space.write_windows

    def still(words: Float64, windows: Float64) -> None:
        windows = windows.copy()
        windows[:, 14:16] = 0.0  # sizes and their precision stay
        space_windows(words, windows)

    monkeypatch.setattr(space, "write_windows", still)
    warp = grid_warp(sizes, 0.6)
    expect_simulated(sampler, lambda x: _warped_by(warp, x))


@pytest.mark.parametrize(("death", "sampled"), [(0.0, 1.0), (0.6, 0.4)])
def test_births_and_deaths_have_an_integral_of_one(death: float, sampled: float) -> None:
    """Three tips: three topologies, each with two heights in order."""

    def density(low: float, top: float) -> float:
        both = np.array([low, top])
        log_density = birth_death_log_density(both, rate=1.3, death=death, sampled=sampled)
        return 3 * math.exp(log_density)

    whole, _ = integrate.dblquad(density, 0, 60, 0, lambda top: top)
    assert whole == pytest.approx(1.0, abs=1e-5)
    root, _ = integrate.dblquad(lambda x, y: y * density(x, y), 0, 60, 0, lambda top: top)
    priors = Priors(
        birth_rate=Fixed(1.3), relative_death=Fixed(death), sampling_fraction=Fixed(sampled)
    )
    sampler = sampler_of(level(3), "bd", priors)
    expect(means_of(sampler, lambda t: [height(t)], 40), root)


def test_coalescents_have_an_integral_of_one() -> None:
    """Two tips of one date and one that is older: the first two join before it comes, or not."""
    tips, warp = np.array([0.0, 0.0, 0.5]), growth_warp(0.8, 0.7)

    def density(low: float, top: float) -> float:
        both = np.array([low, top])
        ways = 1 if low < 0.5 else 3
        inverse = math.log(0.8) - 0.7 * both
        return (
            ways * math.exp(coalescent_log_density(tips, both, warp, inverse)) if top > 0.5 else 0
        )

    whole = sum(
        integrate.dblquad(density, max(low, 0.5), 40, low, lambda top, high=high: min(top, high))[0]
        for low, high in ((0.0, 0.5), (0.5, 40.0))
    )
    assert whole == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("events", [(1, 1), (2,)])
def test_skylines_have_an_integral_of_one(events: tuple[int, ...]) -> None:
    """As above: sizes change with the first event, or not."""
    tips, log_sizes = np.array([0.0, 0.0, 0.5]), np.log([0.8, 0.3])[: len(events)]

    def density(low: float, top: float) -> float:
        ways = 1 if low < 0.5 else 3
        log_density = skyline_log_density(tips, np.array([top, low]), log_sizes, events)
        return ways * math.exp(log_density) if top > 0.5 else 0

    whole = sum(
        integrate.dblquad(density, max(low, 0.5), 40, low, lambda top, high=high: min(top, high))[0]
        for low, high in ((0.0, 0.5), (0.5, 40.0))
    )
    assert whole == pytest.approx(1.0, abs=1e-4)


def test_sizes_and_groups_of_a_skyline_keep_their_prior() -> None:
    """Given sizes and groups, densities of trees integrate to one: their own priors are left.

    Of three groups of the five events (1, 1, 3) has a chance of one in six, as each other has.
    """
    sampler = sampler_of(SERIAL, "skyline", FREE, cells=3)

    def statistics(tree: TimeTreeWords) -> list[float]:
        first, second, third = np.exp(tree.cells[0]).tolist()
        of_groups = [float(events) for events in tree.cells[2]]
        of_sizes = [first, first**2, second / first, (second / first) ** 2, third / second]
        return [*of_sizes, *of_groups, float(of_groups == [1, 1, 3])]

    moments = math.exp(0.5**2 / 2), math.exp(2 * 0.5**2)
    expect(means_of(sampler, statistics, 60), *moments, 1, 2, 1, 5 / 3, 5 / 3, 5 / 3, 1 / 6)


def test_a_rate_that_is_given_counts_without_dates() -> None:
    """Nothing else tells of time: heights are in its units, or in substitutions by default."""
    for rate in (Fixed(0.2), LogNormal(-1.0, 0.1)):
        space = TimeSpace(level(4), "strict", "yule", Priors(clock_rate=rate))
        assert space.scalars[Scalar.CLOCK] == rate
    space = TimeSpace(level(4), "strict", "yule", Priors())
    assert space.scalars[Scalar.CLOCK] == Fixed(1.0)


def test_a_skyline_has_as_many_groups_as_events_at_most() -> None:
    with pytest.raises(InputError, match="6 groups of a skyline: the tree has 5 events"):
        TimeSpace(SERIAL, "strict", "skyline", FREE, cells=6)


def test_a_tip_has_a_distribution_within_its_interval() -> None:
    """The tip is younger than all others, and nothing else tells of its date."""
    earliest, latest = np.array([2.0, 2.0, 0.0]), np.array([2.0, 2.0, 1.0])
    rows = [CalibrationRow("c", ("c",), "Normal(0.6, 0.3)", False, False, None, None)]
    found = calibrations_of(rows, tuple("abc"), sampled=[2])
    with pytest.raises(InputError, match="one taxon has no crown"):
        calibrations_of(rows, tuple("abc"))
    data = TimeData(tuple("abc"), earliest, latest, tuple(found), 0.0)
    sampler = sampler_of(data, "coalescent", Priors(population_size=Fixed(1.0)))
    normal = stats.truncnorm(-2, 4 / 3, 0.6, 0.3)
    found_means = means_of(sampler, lambda t: [float(t.heights[2]), float(t.heights[2] ** 2)], 60)
    expect(found_means, normal.mean(), normal.var() + normal.mean() ** 2)
    words = sampler.words[0]
    columns = dict(zip(sampler.trees.labels, sampler.trees.values(words), strict=True))
    tree = TimeTreeWords(words, sampler.trees.shape)
    assert columns["mrca.age(c)"] == columns["height(c)"] == tree.heights[2]
    assert columns["Tree.height"] == height(tree) - tree.heights[2]


FREE = Priors(
    population_size=LogNormal(0.0, 0.5),
    growth_rate=Normal(0.5, 0.4),
    birth_rate=LogNormal(0.5, 0.4),
    relative_death=Beta(2.0, 3.0),
    sampling_fraction=Beta(4.0, 2.0),
    clock_rate=LogNormal(-1.0, 0.5),
    clock_spread=GammaDistribution(4.0, 10.0),
    noise_variance=GammaDistribution(4.0, 10.0),
    grid_precision=GammaDistribution(3.0, 1.0),
)
"""Priors of scalars that have the means which chains without data must show."""


EVERY = list(itertools.product(TREE_PRIORS, CLOCKS))
SHORT = [("bd", "ucln"), ("coalescent", "wn"), ("expgrowth", "ucgd"), ("skygrid", "strict")]
SHORT += [("skyline", "ucln")]


@pytest.mark.parametrize(("tree_prior", "clock"), EVERY if FUZZING else SHORT)
def test_scalars_and_rates_keep_their_priors(tree_prior: str, clock: str) -> None:
    """The marginal of each scalar is its prior: given it, densities of trees integrate to one."""
    data = level(5) if tree_prior in ("bd", "yule") else SERIAL
    grid = {"cells": 3, "width": 0.6} if tree_prior in ("skygrid", "skyline") else {}
    sampler = sampler_of(data, tree_prior, FREE, clock, **grid)
    space = sampler.trees
    assert isinstance(space, TimeSpace)
    free = [which for which, prior in space.scalars.items() if not isinstance(prior, Fixed)]
    free = [which for which in free if not (grid and which == 2)]

    def statistics(tree: TimeTreeWords) -> list[float]:
        values = tree.scalars[free, 0]
        rates = tree.rates[np.arange(tree.nodes) != tree.root]
        of_rates = [] if clock == "strict" else [float(rates.mean()), float(tree.rates[0])]
        return [*values.tolist(), *(values**2).tolist(), *of_rates]

    expected = [space.scalars[which] for which in free]
    quantiles = (np.arange(1000) + 0.5) / 1000
    draws = [np.array([prior.quantile(float(q)) for q in quantiles]) for prior in expected]
    moments = [float(d.mean()) for d in draws] + [float((d**2).mean()) for d in draws]
    of_rates = [] if clock == "strict" else [1.0, 1.0]
    expect(means_of(sampler, statistics, 40), *moments, *of_rates)


SETS, DRAWS, THINNING = (1000, 49, 3) if FUZZING else (150, 19, 3)
"""Histories that are simulated, draws of each chain, and iterations from one to the next."""

OF_BIRTHS = Priors(
    reproductive_number=LogNormal(0.3, 0.3),
    removal_rate=LogNormal(0.0, 0.4),
    sampling_proportion=Beta(4.0, 4.0),
    clock_rate=Fixed(0.1),
)


def drawn_history(rng: np.random.Generator, tips: int, present: float) -> Any:
    """Scalars from their priors, each history as probable as its rate of births, and its tree.

    With a share of the present any origin in 15 units of time is alike; without, time ends with the
    last of all tips.
    """
    while True:
        number, removal = np.exp([rng.normal(0.3 + 0.3**2, 0.3), rng.normal(0.4**2, 0.4)])
        share = rng.beta(4.0, 4.0)
        rates = number * removal, (1 - share) * removal, share * removal
        ends = {"until": 15 * rng.random(), "tips": tips + 1} if present else {"tips": tips}
        found = births_and_deaths(rng, *rates, **ends, present=present)
        if found is not None and len(found[0]) == 2 * tips - 1:
            return (removal, number, share), *found


def least_chance_of_ranks(present: float, priors: Priors) -> float:
    """The least probability that ranks of the truth among draws, given dates alone, are uniform."""
    rng, tips = np.random.default_rng(11), 5
    dates = np.arange(float(tips))
    data = TimeData(tuple("abcde"), dates, dates, (), 0.0)
    sampler = sampler_of(data, "bd", replace(priors, sampling_fraction=Fixed(present)), runs=SETS)
    space = sampler.trees
    assert isinstance(space, TimeSpace)
    trees = [TimeTreeWords(row, space.shape) for row in sampler.words]
    which = [Scalar.SIZE, Scalar.GROWTH, Scalar.SAMPLING]
    for tree in trees:
        tree.scalars[which, 0], tree.heights[:], tree.parent[:] = drawn_history(rng, tips, present)
        for u in range(tips, tree.nodes):
            tree.left[u], tree.right[u] = np.flatnonzero(tree.parent == u)
        tree.time[TimeChain.ROOT] = np.flatnonzero(tree.parent == -1)[0]
        tree.earliest[:tips] = tree.latest[:tips] = tree.heights[:tips]

    def statistics() -> Float64:
        rows = [TimeTreeWords(row, space.shape) for row in sampler.words]
        heights = [np.sort(tree.heights[tips:]) for tree in rows]
        return np.column_stack([heights, [tree.scalars[which, 0] for tree in rows]])

    truth = statistics()
    for draw in range(-BURN_IN, DRAWS):
        for _ in range(THINNING):
            sampler.iterate(adapts=draw < 0)
            sampler.in_round += 1
        if draw == 0:
            below = np.zeros_like(truth)
        if draw >= 0:
            below += statistics() < truth
    counts = [np.bincount((b * 10 // (DRAWS + 1)).astype(int), minlength=10) for b in below.T]
    return float(min(stats.chisquare(count).pvalue for count in counts))


@pytest.mark.parametrize("present", [0.0, 0.5])
def test_births_deaths_and_sampling_that_were_simulated_are_covered(present: float) -> None:
    assert least_chance_of_ranks(present, OF_BIRTHS) > 1e-4


def test_another_number_of_births_than_was_simulated_is_noticed() -> None:
    priors = replace(OF_BIRTHS, reproductive_number=LogNormal(0.0, 0.3))
    assert least_chance_of_ranks(0.0, priors) < 1e-6


def test_calibrations_multiply_the_prior() -> None:
    """Three tips, of which two are a group of a uniform age: the density by quadrature."""
    one = NodeCalibration("pair", (0, 1), Uniform(0.4, 0.7), is_monophyletic=True)
    data = level(3, one)
    priors = Priors(birth_rate=Fixed(2.0), clock_rate=LogNormal(0.0, 0.3))
    sampler = sampler_of(data, "yule", priors)

    def density(low: float, top: float) -> float:
        return math.exp(birth_death_log_density(np.array([low, top]), rate=2.0))

    whole, _ = integrate.dblquad(lambda y, x: density(x, y), 0.4, 0.7, lambda x: x, 40)
    root, _ = integrate.dblquad(lambda y, x: y * density(x, y), 0.4, 0.7, lambda x: x, 40)
    pair, _ = integrate.dblquad(lambda y, x: x * density(x, y), 0.4, 0.7, lambda x: x, 40)

    def statistics(tree: TimeTreeWords) -> list[float]:
        assert tree.parent[0] == tree.parent[1]
        return [height(tree), float(tree.heights[int(tree.parent[0])])]

    expect(means_of(sampler, statistics, 80), root / whole, pair / whole)


def test_dates_of_tips_are_sampled_within_their_intervals() -> None:
    """Two tips, one of an age between 0 and 2, and a third: by quadrature over ages."""
    data = TimeData(("a", "b", "c"), np.zeros(3), np.array([2.0, 0.0, 0.0]), (), 0.0)
    priors = Priors(population_size=Fixed(1.0), clock_rate=Fixed(0.1))
    sampler = sampler_of(data, "coalescent", priors)

    def of_age(age: float) -> float:
        """Mean height of the root: the two others may join before the third comes."""
        apart = math.exp(-age)
        # joined by then: all wait for one pair; else three lineages are there at that time
        return age + (1 - apart) * 1.0 + apart * (1 / 3 + 1.0)

    mean, _ = integrate.quad(of_age, 0, 2)
    expect(means_of(sampler, lambda t: [height(t), float(t.heights[0])], 60), mean / 2, 1.0)
