"""Time trees and data together: Geweke's joint test, and calibration by simulation.

Joint test: chains without data first; then each chain's data are drawn under its present tree
before each iteration, and all means have to stay (see ``test_sampler_joint.py``).

Calibration (Talts, Betancourt, Simpson, Vehtari and Gelman 2018): each chain draws a state from the
prior and data under it, and samples the posterior from another start. The rank of the first state
among the samples is equally likely to be any.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from conftest import DEVICES, FUZZING, layout_of
from scipy import stats

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.device.session import Session
from mltree.models.eigen import p_matrices
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.program.contract import CHAIN_WORDS, Chain, Scalar
from mltree.program.ops.time_trees import TimeTreeWords
from mltree.sampling.calibrations import NodeCalibration
from mltree.sampling.model_space import ModelSpace
from mltree.sampling.priors import Beta, GammaDistribution, LogNormal, Normal, Priors
from mltree.sampling.sampler import Sampler, SamplerSettings
from mltree.sampling.shares import ChainData, ChainShares
from mltree.sampling.time_space import TimeData, TimeSpace
from mltree.system.arrays import Float64

TIPS, SITES = 4, 20
CHAINS, ITERATIONS = (96, 1500) if FUZZING else (40, 50)
PRIOR_SWEEPS, FURTHEST = 10, 4.5
"""Sweeps of an iteration without data; largest difference of means, in standard errors."""

EARLIEST, LATEST = np.array([0.0, 0.2, 0.0, 0.5]), np.array([0.0, 0.2, 0.6, 0.5])
PRIORS = Priors(
    population_size=LogNormal(-0.5, 0.4),
    growth_rate=Normal(0.3, 0.4),
    birth_rate=LogNormal(0.5, 0.4),
    reproductive_number=LogNormal(0.2, 0.4),
    removal_rate=LogNormal(0.0, 0.4),
    sampling_proportion=Beta(3.0, 2.0),
    sampling_fraction=Beta(3.0, 3.0),
    clock_rate=LogNormal(-1.0, 0.5),
    clock_spread=GammaDistribution(4.0, 8.0),
    noise_variance=GammaDistribution(4.0, 8.0),
    grid_precision=GammaDistribution(3.0, 1.0),
)


def all_patterns() -> Patterns:
    """Each pattern of the taxa once."""
    codes = 1 << np.array(list(itertools.product(range(4), repeat=TIPS)), np.uint8).T
    count = codes.shape[1]
    names = tuple(f"t{n}" for n in range(TIPS))
    return Patterns(names, codes, np.ones(count), np.arange(count, dtype=np.int32), DNA)


class Joint:
    """Chains over time trees that have a row of weights each."""

    def __init__(self, tree_prior: str, clock: str, seed: int, count: int = CHAINS) -> None:
        self.count = count
        self.rng, self.patterns = np.random.default_rng(seed), all_patterns()
        model = alone(parse_model("HKY{3}+FU{0.4/0.3/0.2/0.1}", DNA))
        dates = np.zeros((2, TIPS)) if tree_prior == "yule" else (EARLIEST, LATEST)
        age = NodeCalibration("pair", (0, 1), GammaDistribution(4.0, 4.0))
        data = TimeData(self.patterns.taxa, *dates, (age,), 0.0)
        grid = {"cells": 3, "width": 0.5} if tree_prior in ("skygrid", "skyline") else {}
        self.space = TimeSpace(data, clock, tree_prior, PRIORS, **grid)
        layout = layout_of(DEVICES[0], "native", self.patterns, 1).of(self.patterns)
        self.engine = Session(DEVICES[0].handle, self.patterns, layout, (1e-8, 100.0))
        chains = ChainData(
            tips=TIPS,
            space=ModelSpace(model, PRIORS),
            weights=np.zeros(self.patterns.n_patterns),
            regrafts=1,
            time=self.space.shape,
        )
        self.arrays = next(iter(model.arrays()))
        shares = ChainShares([self.engine], chains)
        (share,) = shares._own._shares
        for sweeps in (0, 1):  # each chain has weights of its own
            program = share._program(self.count, sweeps, 0)
            program.stages[0].records["weights"] = np.arange(self.count)
            program.cases["weights"] = np.arange(self.count)
        settings = SamplerSettings(runs=self.count, rungs=1, seed=seed)
        self.sampler = Sampler(shares, chains, PRIORS, settings, (), None, self.space)
        self.without_data()
        for _ in range(40):
            self.sampler.iterate(adapts=True)
            self.sampler.in_round += 1

    @property
    def trees(self) -> list[TimeTreeWords]:
        return [TimeTreeWords(row, self.space.shape) for row in self.sampler.words]

    def without_data(self) -> None:
        self.engine.load_weights(np.zeros((self.count, 4**TIPS)))
        self.sampler.words[:, Chain.LNL] = 0

    def draw_data(self) -> None:
        rows = np.empty((self.count, 4**TIPS))
        for row, tree in zip(rows, self.trees, strict=True):
            shares = self.chances(tree)
            assert shares.sum() == pytest.approx(1, abs=1e-9)
            row[:] = self.rng.multinomial(SITES, shares / shares.sum())
        self.engine.load_weights(rows)
        self.sampler._launch(0, np.ones(self.count, np.bool_))

    def chances(self, tree: TimeTreeWords) -> Float64:
        """Probabilities f64[L] of all patterns, from the root down."""
        lengths = np.array([tree.length(v) if v != tree.root else 0 for v in range(tree.nodes)])
        p = p_matrices(self.arrays, lengths)
        tips = (self.patterns.codes[..., None] >> np.arange(4)) & 1

        def across(v: int) -> Float64:
            own = tips[v] if v < TIPS else below(v)
            return np.asarray(own @ p[v].transpose(0, 2, 1))

        def below(v: int) -> Float64:
            return across(int(tree.left[v])) * across(int(tree.right[v]))

        return np.asarray(np.einsum("kli,i->l", below(tree.root), self.arrays.frequencies))

    def statistics(self) -> Float64:
        """f64[C, q]: scalars, heights, rates and topologies, and what goes together."""
        rows = []
        for tree in self.trees:
            scalars = np.log(np.abs(tree.scalars[:, 0]) + 0.1)
            inner = np.sort(tree.heights[TIPS:])
            rates = np.delete(tree.rates, tree.root)
            pairs = [float(tree.parent[0] == tree.parent[n]) for n in (1, 2, 3)]
            values = [*scalars, *inner, inner[-1] ** 2, tree.heights[2], *pairs]
            values += [rates.mean(), tree.rates[0], np.log(rates + 1e-3).var(), *tree.cells[0]]
            values += [tree.whole_duration, scalars[Scalar.CLOCK] * np.log(inner[-1])]
            rows.append(values)
        return np.array(rows, np.float64)

    def means(self, *, draws_data: bool, iterations: int) -> Float64:
        """f64[C, q]: means over iterations."""
        total: Any = 0.0
        for _ in range(iterations):
            if draws_data:
                self.draw_data()
            for _ in range(1 if draws_data else PRIOR_SWEEPS):
                self.sampler.iterate()
            total = total + self.statistics()
        return np.asarray(total / iterations)


def furthest(joint: Joint) -> float:
    """The largest difference between means with data and without, in standard errors."""
    prior = joint.means(draws_data=False, iterations=ITERATIONS)
    found = joint.means(draws_data=True, iterations=ITERATIONS)
    error = (prior.var(axis=0, ddof=1) + found.var(axis=0, ddof=1)) / CHAINS
    z = (found.mean(axis=0) - prior.mean(axis=0)) / np.sqrt(np.maximum(error, 1e-24))
    return float(np.abs(z).max())


CASES = list(itertools.product(("coalescent", "expgrowth", "skygrid", "yule"), ("ucln", "wn")))
CASES += [
    ("skyline", "ucln"),
    ("coalescent", "strict"),
    ("coalescent", "ucgd"),
    ("bd", "ucln"),
    ("bd", "strict"),
]
SHORT = [("coalescent", "ucln"), ("skygrid", "wn"), ("bd", "strict"), ("skyline", "ucln")]


@pytest.mark.parametrize(("tree_prior", "clock"), CASES if FUZZING else SHORT)
def test_time_trees_keep_their_prior_while_data_are_drawn(tree_prior: str, clock: str) -> None:
    assert furthest(Joint(tree_prior, clock, 4)) < FURTHEST


def test_a_jacobian_of_the_clock_that_is_forgotten_is_noticed() -> None:
    """Without the factor e^s of its scaling a log-normal clock has a mean that is lower by S^2."""
    joint = Joint("coalescent", "strict", 5)
    prior = joint.means(draws_data=False, iterations=ITERATIONS)
    for tree in joint.trees:
        tree.scalars[Scalar.CLOCK, 2] -= PRIORS.clock_rate.deviation**2  # type: ignore[attr-defined]
    found = joint.means(draws_data=True, iterations=ITERATIONS)
    error = (prior.var(axis=0, ddof=1) + found.var(axis=0, ddof=1)) / CHAINS
    z = (found.mean(axis=0) - prior.mean(axis=0)) / np.sqrt(np.maximum(error, 1e-24))
    assert abs(z[Scalar.CLOCK]) > FURTHEST


SETS, THINNING = (1000, 10) if FUZZING else (100, 3)
SAMPLES, FORGETTING = 49, 40
"""Samples of each set of data, THINNING iterations apart, and iterations left out before: samples
that are alike cover too little, a tip's date of 1,000 sets by 3 % where they are 3 apart."""

NINE_TENTHS = slice(SAMPLES // 20 + 1, SAMPLES - SAMPLES // 20)
"""Ranks of the middle nine tenths, of 0 .. SAMPLES."""


def ranks(shift: float = 0.0) -> Float64:
    """f64[SETS, q]: ranks of states that made the data; samples have another prior of the clock."""
    joint = Joint("coalescent", "ucln", 6, SETS)
    joint.means(draws_data=False, iterations=3)
    first = joint.statistics()
    joint.draw_data()
    words = joint.sampler.words
    words[:, CHAIN_WORDS:] = np.roll(words[:, CHAIN_WORDS:], 1, axis=0)
    for tree in joint.trees:
        tree.scalars[Scalar.CLOCK, 2] += shift
    found = np.zeros_like(first)
    for iteration in range(FORGETTING + SAMPLES * THINNING):
        joint.sampler.iterate()
        if iteration >= FORGETTING and iteration % THINNING == 0:
            found += joint.statistics() < first
    varies = first.std(axis=0) > 0
    is_continuous = np.array([len(np.unique(column)) > SETS // 2 for column in first.T])
    return found[:, varies & is_continuous]


def least_chance(found: Float64) -> float:
    """The least probability that ranks of any column are as far from equally frequent."""
    bins = [
        np.bincount((column * 10 // (SAMPLES + 1)).astype(int), minlength=10) for column in found.T
    ]
    return float(min(stats.chisquare(one).pvalue for one in bins))


def test_intervals_cover_what_made_the_data() -> None:
    found = ranks()
    assert found.shape[1] > 8
    within = (found >= NINE_TENTHS.start) & (found < NINE_TENTHS.stop)
    share = (NINE_TENTHS.stop - NINE_TENTHS.start) / (SAMPLES + 1)
    bound = 3.2 * math.sqrt(share * (1 - share) / SETS)  # 0.03 of 1,000 sets
    assert np.abs(within.mean(axis=0) - share).max() < bound
    assert least_chance(found) > 1e-4


def test_another_prior_than_that_of_the_data_is_noticed() -> None:
    assert least_chance(ranks(shift=-0.6)) < 1e-6
