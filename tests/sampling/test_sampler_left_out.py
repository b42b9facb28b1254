"""Samplers of data without constant sites (+ASC): exact answers, and Geweke's test."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import DEVICES, FUZZING, layout_of

from mltree.data.alphabet import BINARY
from mltree.data.patterns import Ascertainment, Correction, Patterns, with_unseen
from mltree.device.session import Session
from mltree.likelihood.left_out import AscertainedPart, LeftOut, ascertained_parts
from mltree.models.eigen import p_matrices
from mltree.models.grammar import parse_model
from mltree.models.partitioned import PartitionModel, alone
from mltree.program.contract import LEAST_SHAPE, Chain, Scalar, TimeChain
from mltree.program.ops.sweeps import ChainTree
from mltree.program.ops.time_trees import TimeTreeWords
from mltree.program.random_numbers import Stream
from mltree.sampling.model_space import ModelSpace
from mltree.sampling.priors import (
    ExponentialLengths,
    Fixed,
    GammaDistribution,
    LogNormal,
    Priors,
)
from mltree.sampling.sampler import (
    Sampler,
    SamplerSettings,
    empty_words,
    first_tree,
    hang_tree,
)
from mltree.sampling.shares import ChainData, ChainShares
from mltree.sampling.time_space import TimeData, TimeSpace
from mltree.sampling.tree_priors import join_at_random
from mltree.system.arrays import Bool, Float64

BOUNDS = (1e-8, 100.0)
LEWIS = Ascertainment(Correction.LEWIS)
STAMATAKIS = Ascertainment(Correction.STAMATAKIS, (9.0, 4.0))
FELSENSTEIN = Ascertainment(Correction.FELSENSTEIN, (24.0,))


def binary(codes: np.ndarray, weights: Float64, about: Ascertainment) -> Patterns:
    """Binary characters, their constant patterns behind them."""
    codes = (codes + 1).astype(np.uint8) if BINARY.certain_codes[0] else codes.astype(np.uint8)
    names = tuple(f"t{n}" for n in range(len(codes)))
    places = np.arange(codes.shape[1], dtype=np.int32)
    return with_unseen(Patterns(names, codes, weights, places, BINARY), [about])


def variable_columns(tips: int) -> np.ndarray:
    """u8[T, L]: all columns but the constant ones."""
    columns = np.array(list(itertools.product((0, 1), repeat=tips))).T
    return columns[:, 1:-1]


def sampler_of(
    patterns: Patterns,
    model: PartitionModel,
    priors: Priors,
    kind: type[Sampler],
    settings: SamplerSettings,
    trees: TimeSpace | None = None,
) -> Sampler:
    layout = layout_of(DEVICES[0], "native", patterns, model.categories[0]).of(patterns)
    engine = Session(DEVICES[0].handle, patterns, layout, BOUNDS)
    left_out = LeftOut(ascertained_parts([patterns]))
    columns = left_out.columns if kind is Sampler else np.arange(patterns.n_patterns)
    space = ModelSpace(model, priors)
    shape = None if trees is None else trees.shape
    unseen = tuple(columns.tolist())
    data = ChainData(patterns.n_tips, space, patterns.weights, unseen, time=shape)
    shares = ChainShares([engine], data)
    return kind(shares, data, priors, settings, left_out=left_out, trees=trees)


# The exact posterior of four taxa, by importance sampling from the prior.

RATE = 5.0
TOPOLOGIES = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))


def exact_lnz(columns: np.ndarray, weights: Float64, about: Ascertainment, draws: int) -> Float64:
    """f64[3]: ln of the mean likelihood of each topology, CFN's model and Exp(RATE) lengths."""
    lengths = np.random.default_rng(1).exponential(1 / RATE, (draws, 5))
    same = (1 + np.exp(-2 * lengths)) / 2
    p = np.stack([same, 1 - same], axis=-1)  # of no difference, and of one

    def chance(column: np.ndarray, tips: tuple[int, ...]) -> Float64:
        a, b, c, d = column[list(tips)].tolist()
        total = np.zeros(draws)
        for x, y in itertools.product((0, 1), repeat=2):
            ends = p[:, 0, a ^ x] * p[:, 1, b ^ x] * p[:, 2, c ^ y] * p[:, 3, d ^ y]
            total += 0.5 * ends * p[:, 4, x ^ y]
        return total

    found = []
    for tips in TOPOLOGIES:
        lnl = sum(w * np.log(chance(c, tips)) for c, w in zip(columns.T, weights, strict=True))
        constant = [chance(np.full(4, state), tips) for state in (0, 1)]
        if about is LEWIS:
            lnl -= weights.sum() * np.log1p(-sum(constant))
        elif about is FELSENSTEIN:
            lnl += about.counts[0] * np.log(sum(constant))
        else:
            lnl += sum(n * np.log(c) for n, c in zip(about.counts, constant, strict=True))
        most = lnl.max()
        found.append(most + np.log(np.exp(lnl - most).mean()))
    return np.array(found)


@pytest.mark.parametrize("about", [LEWIS, STAMATAKIS, FELSENSTEIN], ids=lambda one: one.text)
@pytest.mark.cases(1, 6)
def test_posterior_and_ln_z_of_a_quartet(case: int, about: Ascertainment) -> None:
    columns = variable_columns(4)
    weights = np.random.default_rng(case).multinomial(14, np.full(14, 1 / 14)) * 1.0
    exact = exact_lnz(columns, weights, about, 400_000)
    model = alone(parse_model("BIN+FE", BINARY))
    priors = Priors(branch_lengths=ExponentialLengths(RATE))
    settings = SamplerSettings(runs=16, rungs=5, seed=case, burn_in=200, rests=case % 2 == 0)
    patterns = binary(columns, weights, about)
    sampler = sampler_of(patterns, model, priors, Sampler, settings)
    while not sampler.is_sampling:
        sampler.advance()
    count = np.zeros((16, 3))
    for _ in range(600):
        sampler.advance()
        for run, chain in enumerate(sampler.cold.tolist()):
            count[run, sister_of_0(sampler.words[chain]) - 1] += 1
    shares = count / 600
    wanted = np.exp(exact - exact.max())
    error = shares.std(axis=0, ddof=1) / 4
    assert (abs(shares.mean(axis=0) - wanted / wanted.sum()) < 4 * error + 0.004).all()
    lnz = sampler.ladders.log_evidence
    assert abs(lnz.mean() - np.logaddexp.reduce(exact) + np.log(3)) < 0.02 + 4 * lnz.std() / 4


def sister_of_0(words: Float64) -> int:
    """The tip that is beside tip 0 in a quartet: that one hangs from the top."""
    chain = ChainTree(words)
    top = int(chain.left[0])
    return next(int(v) for v in (chain.left[top], chain.right[top]) if v < 4)


# The same of three taxa in time, of one date under a known clock, or of several.

THREE = variable_columns(3)
DATES = {"level": np.zeros(3), "dated": np.array([0.0, 0.2, 0.5])}
OF_TIME = Priors(birth_rate=Fixed(1.5), population_size=Fixed(0.7), clock_rate=LogNormal(-0.5, 0.5))


def drawn_trees(which: str, draws: int) -> tuple[np.ndarray, Float64, Float64]:
    """Pairs of tips that join first, heights f64[draws, 2] and clocks, drawn from the prior."""
    rng = np.random.default_rng(2)
    pairs = np.array([(0, 1), (0, 2), (1, 2)])[rng.integers(3, size=draws)]
    if which == "level":
        waits = rng.exponential(1 / 1.5, (draws, 2)) / np.array([3, 2])
        return pairs, waits.cumsum(axis=1), np.ones(draws)
    first = 0.2 + rng.exponential(0.7, draws)
    later, last = 0.5 + rng.exponential([0.7 / 3, 0.7], (draws, 2)).T
    joined = first < 0.5
    pairs[joined] = 0, 1
    low = np.where(joined, first, later)
    top = np.where(joined, last, later + last - 0.5)
    return pairs, np.column_stack([low, top]), np.exp(rng.normal(-0.5, 0.5, draws))


def chances_of_three(column: np.ndarray, which: str, drawn: tuple[Any, ...]) -> Float64:
    """Probabilities of a column under CFN's model, by a sum over the states of two ancestors."""
    pairs, heights, clock = drawn
    ages, third = DATES[which], 3 - pairs.sum(axis=1)
    ends = [pairs[:, 0], pairs[:, 1], third]
    tops = [heights[:, 0], heights[:, 0], heights[:, 1]]
    lengths = [clock * (top - ages[tip]) for tip, top in zip(ends, tops, strict=True)]
    same = [(1 + np.exp(-2 * length)) / 2 for length in [*lengths, clock * np.ptp(heights, axis=1)]]
    total = np.zeros(len(pairs))
    for low, top in itertools.product((0, 1), repeat=2):
        each = np.where(low == top, same[3], 1 - same[3]) / 2
        for tip, ancestor, of in zip(ends, (low, low, top), same, strict=False):
            each = each * np.where(column[tip] == ancestor, of, 1 - of)
        total += each
    return total


@pytest.mark.parametrize("which", DATES)
@pytest.mark.parametrize("about", [LEWIS, STAMATAKIS], ids=["lewis", "stamatakis"])
@pytest.mark.cases(1, 6)
def test_posterior_and_ln_z_of_three_taxa_in_time(
    case: int, which: str, about: Ascertainment
) -> None:
    weights = np.random.default_rng(case).multinomial(14, np.full(6, 1 / 6)) * 1.0
    drawn = drawn_trees(which, 400_000)
    rows = [np.log(chances_of_three(column, which, drawn)) for column in THREE.T]
    constant = [chances_of_three(np.full(3, state), which, drawn) for state in (0, 1)]
    lnl = weights @ np.array(rows)
    if about is LEWIS:
        lnl -= weights.sum() * np.log1p(-sum(constant))
    else:
        lnl += sum(n * np.log(c) for n, c in zip(about.counts, constant, strict=True))
    mass = np.exp(lnl - lnl.max())
    facts = np.column_stack([*drawn[1].T, drawn[2], drawn[0].sum(axis=1) == 1])
    expected = mass @ facts / mass.sum()

    patterns = binary(THREE, weights, about)
    time = TimeData(patterns.taxa, DATES[which], DATES[which], (), 0.0)
    prior = "yule" if which == "level" else "coalescent"
    priors = replace(OF_TIME, clock_rate=Fixed(1.0)) if which == "level" else OF_TIME
    space = TimeSpace(time, "strict", prior, priors)
    settings = SamplerSettings(runs=16, rungs=5, seed=case, burn_in=200)
    model = alone(parse_model("BIN+FE", BINARY))
    sampler = sampler_of(patterns, model, priors, Sampler, settings, space)
    while not sampler.is_sampling:
        sampler.advance()
    total = np.zeros((16, 4))
    for _ in range(600):
        sampler.advance()
        for run, chain in enumerate(sampler.cold.tolist()):
            tree = TimeTreeWords(sampler.words[chain], space.shape)
            low, top = np.sort(tree.heights[3:])
            total[run] += low, top, tree.clock, tree.parent[0] == tree.parent[1]
    means = total / 600
    error = means.std(axis=0, ddof=1) / 4
    assert (abs(means.mean(axis=0) - expected) < 4 * error + 0.004 * (1 + expected)).all()
    lnz, exact = sampler.ladders.log_evidence, lnl.max() + np.log(mass.mean())
    assert abs(lnz.mean() - exact) < 0.02 + 4 * lnz.std() / 4


# Geweke's joint test: parameters keep their prior while variable sites are drawn under them.

TIPS, SITES = 5, 20
CHAINS, ITERATIONS, DRAWS = (96, 1500, 20_000) if FUZZING else (48, 60, 1_000)
FURTHEST = 4.0
PRIORS = Priors(branch_lengths=ExponentialLengths(6.0), alpha=GammaDistribution(3.0, 2.0))


class ManyData(Sampler):
    """Chains with data of their own: all columns are given as left out, with drawn weights."""

    rows: Float64

    def chances(self, number: int, arrays: Any, codes: np.ndarray) -> Float64:
        """Probabilities f64[L] of columns under a chain's tree."""
        return column_chances(self.words[number], arrays, codes)

    def statistics(self) -> Float64:
        """f64[C, q]: facts of each chain's state."""
        return statistics_of(self.words, self.space, self.points)

    def _drawn_weights(self, left_out: LeftOut) -> Float64:
        (part,) = left_out.parts
        rows, logs = self.rows.copy(), self.found[:, 1:]
        heats, rng = np.ones(len(rows)), np.random.default_rng([self.settings.seed, self.launches])
        rows[:, part.unseen] = part.drawn(float(SITES), heats, logs[:, part.unseen], rng)
        self.words[:, Chain.LNL] = (rows * logs).sum(axis=1)
        return rows

    def _corrected_lnl(self, left_out: LeftOut, found: Float64) -> Float64:
        (part,), logs = left_out.parts, found[:, 1:]
        added = part.corrects(np.full(len(logs), float(SITES)), logs[:, part.unseen])
        return (self.rows * logs).sum(axis=1) + added

    def _decide(self, left_out: LeftOut, *given: Any) -> Bool:
        columns = np.arange(self.rows.shape[1])
        return super()._decide(SimpleNamespace(parts=left_out.parts, columns=columns), *given)

    def draw_data(self, rng: np.random.Generator, codes: np.ndarray) -> None:
        """Draw variable sites under each chain's state; learn what they say."""
        (stack,) = self.space.stacks(self.points)
        self.rows = np.zeros((len(self.words), codes.shape[1]))
        logs = []
        for number, (row, arrays) in enumerate(zip(self.rows, stack, strict=True)):
            chances = self.chances(number, arrays, codes)
            logs.append(np.log(chances))
            seen = chances[:-2] / chances[:-2].sum()
            row[:-2] = rng.multinomial(SITES, seen)
        self.found = np.column_stack([np.zeros(len(logs)), logs])
        self.words[:, Chain.LNL] = self._corrected_lnl(self._left_out, self.found)


def column_chances(words: Float64, arrays, codes: np.ndarray) -> Float64:
    """Probabilities f64[L] of columns, by Felsenstein's recursion."""
    chain, tips = ChainTree(words), BINARY.tip_table[codes]
    p = p_matrices(arrays, chain.lengths)

    def across(v: int) -> Float64:
        if v < TIPS:
            return np.asarray(tips[v] @ p[v].transpose(0, 2, 1))
        below = across(int(chain.left[v])) * across(int(chain.right[v]))
        return np.asarray(below @ p[v].transpose(0, 2, 1))

    root = across(int(chain.left[0])) * tips[0]
    return np.asarray(np.einsum("k,kli,i->l", arrays.weights, root, arrays.frequencies))


def statistics_of(words: Float64, space: ModelSpace, points: Float64) -> Float64:
    chains = [ChainTree(row) for row in words]
    lengths = np.array([chain.lengths[1:] for chain in chains])
    total, longest = np.log(lengths.sum(axis=1)), lengths.max(axis=1)
    joined = np.array([chain.parent[1] == chain.parent[2] for chain in chains]) * 1.0
    values = np.minimum(space.values(points), 8.0)
    return with_squares(np.column_stack([total, longest, np.log(lengths[:, :2]), joined]), values)


def with_squares(of_trees: Float64, values: Float64) -> Float64:
    """Facts of trees and parameters, their squares, and what the first goes together with."""
    own = np.column_stack([of_trees, values])
    return np.column_stack([own, own**2, values * of_trees[:, :1]])


def drawn_points(space: ModelSpace, count: int, rng: np.random.Generator) -> Float64:
    """Parameters f64[count, 2] drawn from their priors: ln of a ratio of shares, ln(alpha)."""
    stream, points = Stream(int(rng.integers(1 << 32)), 0, 0, 0, 0), np.empty((0, 2))
    while len(points) < count:  # within the bounds of the model
        share = rng.random(count)
        alphas = np.array([PRIORS.alpha.draw(stream) for _ in range(count)])
        made = np.column_stack([np.log(share / (1 - share)), np.log(alphas)])
        points = np.vstack([points, made[np.isfinite(space.log_prior(made))]])
    return points[:count]


OF_DATED = Priors(
    alpha=PRIORS.alpha,
    population_size=Fixed(1.0),
    clock_rate=LogNormal(-0.5, 0.4),
    clock_spread=Fixed(0.4),
    noise_variance=Fixed(0.2),
)
AGES = np.array([0.0, 0.0, 0.3, 0.5, 0.0])


def dated_space(clock: str = "ucln") -> TimeSpace:
    names = tuple(f"t{tip}" for tip in range(TIPS))
    return TimeSpace(TimeData(names, AGES, AGES, (), 0.0), clock, "coalescent", OF_DATED)


class ManyDated(ManyData):
    """The same of trees in time, with rates of branches."""

    def chances(self, number: int, arrays: Any, codes: np.ndarray) -> Float64:
        tree, tips = TimeTreeWords(self.words[number], dated_space().shape), BINARY.tip_table[codes]
        p = p_matrices(arrays, np.array([tree.length(v) for v in range(tree.nodes)]))

        def below(v: int) -> Float64:
            if v < TIPS:
                return np.broadcast_to(tips[v], (len(arrays.weights), *tips[v].shape))
            each = [
                below(x) @ p[x].transpose(0, 2, 1) for x in map(int, (tree.left[v], tree.right[v]))
            ]
            return np.asarray(each[0] * each[1])

        return np.asarray(
            np.einsum("k,kli,i->l", arrays.weights, below(tree.root), arrays.frequencies)
        )

    def statistics(self) -> Float64:
        return statistics_in_time(self.words, self.space.values(self.points))


def statistics_in_time(words: Float64, values: Float64) -> Float64:
    rows = []
    for tree in (TimeTreeWords(row, dated_space().shape) for row in words):
        heights, rates = np.sort(tree.heights[TIPS:]), np.log(np.delete(tree.rates, tree.root))
        joined = tree.parent[0] == tree.parent[1]
        rows.append([heights[-1], math.log(tree.clock), heights[0], rates.mean(), rates[0], joined])
    return with_squares(np.array(rows, np.float64), np.minimum(values, 8.0))


def drawn_in_time(count: int, rng: np.random.Generator, clock: str) -> Float64:
    """Words of trees that are drawn from the prior."""
    words = dated_space().empty(count)
    for row in words:
        tree, following = TimeTreeWords(row, dated_space().shape), itertools.count(TIPS)
        tree.heights[:TIPS] = AGES

        def join(one: int, other: int, height: float) -> int:
            u = next(following)  # noqa: B023
            tree.left[u], tree.right[u], tree.heights[u] = one, other, height  # noqa: B023
            tree.parent[one] = tree.parent[other] = u  # noqa: B023
            return u

        tree.time[TimeChain.ROOT] = join_at_random(list(range(TIPS)), tree.heights, join, rng, 1.0)
        tree.scalars[Scalar.CLOCK, 0] = np.exp(rng.normal(-0.5, 0.4))
        tree.rates[:] = np.exp(rng.normal(-(0.4**2) / 2, 0.4, tree.nodes))
        if clock == "wn":
            lengths = [tree.clock * tree.duration(v) / 0.2 for v in range(tree.nodes)]
            shapes = np.maximum(lengths, LEAST_SHAPE)
            tree.rates[:] = rng.gamma(shapes) / shapes
    return words


def deviations(seed: int, clock: str = "none") -> Float64:
    """f64[q]: differences of means between chains and the prior, in standard errors."""
    rng, model = np.random.default_rng(seed), alone(parse_model("BIN+FO+G2", BINARY))
    columns = variable_columns(TIPS)
    patterns = binary(columns, np.zeros(columns.shape[1]), LEWIS)
    settings = SamplerSettings(runs=CHAINS, rungs=1, seed=seed, sweeps=2)
    is_dated = clock != "none"
    kind, trees = (ManyDated, dated_space(clock)) if is_dated else (ManyData, None)
    sampler = sampler_of(patterns, model, PRIORS, kind, settings, trees)
    assert isinstance(sampler, ManyData)
    sampler.points = drawn_points(sampler.space, CHAINS, rng)
    total = np.zeros_like(sampler.statistics())
    for _ in range(ITERATIONS):
        sampler.draw_data(rng, patterns.codes)
        sampler.iterate()
        total += sampler.statistics()
    means, points = total / ITERATIONS, drawn_points(sampler.space, DRAWS, rng)
    if is_dated:
        words = drawn_in_time(DRAWS, rng, clock)
        expected = statistics_in_time(words, sampler.space.values(points))
    else:
        words = empty_words(DRAWS, TIPS)
        for number, row in enumerate(words):
            hang_tree(row, first_tree(TIPS, PRIORS, Stream(77, 0, number, 0, 0)))
        expected = statistics_of(words, sampler.space, points)
    error = means.var(axis=0, ddof=1) / CHAINS + expected.var(axis=0) / DRAWS
    return np.asarray((means.mean(axis=0) - expected.mean(axis=0)) / np.sqrt(error))


@pytest.mark.parametrize("clock", ["none", "ucln", "wn"] if FUZZING else ["none", "ucln"])
@pytest.mark.cases(1, 3)
def test_parameters_keep_their_prior_while_variable_sites_are_drawn(case: int, clock: str) -> None:
    found = deviations(20 + case, clock)
    assert np.abs(found).max() < FURTHEST, np.round(found, 1)


@pytest.mark.parametrize("clock", ["none", "ucln"])
def test_sites_drawn_too_few_are_noticed(monkeypatch: pytest.MonkeyPatch, clock: str) -> None:
    drawn = AscertainedPart.drawn
    monkeypatch.setattr(AscertainedPart, "drawn", lambda *given: np.floor(drawn(*given) * 0.7))
    assert np.abs(deviations(8, clock)).max() > FURTHEST
