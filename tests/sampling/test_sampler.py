"""The sampler against exact answers: the prior, a quartet's posterior, ln Z; and against faults."""

from __future__ import annotations

import itertools
from collections import Counter
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DEVICES, layout_of
from scipy import stats
from simulated import joined, patterns_of, simulate

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.device.session import Session
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.program.contract import Chain, Move
from mltree.program.engine import ChainRoom
from mltree.program.ops.sweeps import ChainTree
from mltree.sampling.model_space import ModelSpace
from mltree.sampling.priors import ExponentialLengths, GammaDirichletLengths, Priors
from mltree.sampling.sampler import (
    Sampler,
    SamplerSettings,
    empty_words,
    hang_tree,
    newick_of_words,
)
from mltree.sampling.shares import ChainData, ChainShares
from mltree.system.arrays import Float64
from mltree.tree.newick import write_newick
from mltree.tree.topology import random_topology

BOUNDS = (1e-8, 100.0)
EXPONENTIAL = Priors(branch_lengths=ExponentialLengths(10.0))

QUARTET = {frozenset((0, 1)): 0.7331, frozenset((0, 2)): 0.1254, frozenset((0, 3)): 0.1415}
"""Posterior of the trees of the quartet below under JC and Exp(10), by importance sampling with a
standard error of 0.0007; MrBayes 3.2.7 agrees."""
QUARTET_LNZ = -515.2070

PRIMATES = Path(__file__).parents[2] / "datasets" / "primates.phy"


def engine_of(patterns: Patterns, model: PartitionModel) -> Any:
    """A session on the first device, in its own layout."""
    info = DEVICES[0]
    layout = layout_of(info, "native", patterns, model.categories[0]).of(patterns)
    return Session(info.handle, patterns, layout, BOUNDS)


def sampler_of(
    patterns: Patterns, text: str, priors: Priors, *, prior_only: bool = False, **settings: Any
) -> Sampler:
    model = alone(parse_model(text, DNA))
    engine = engine_of(patterns, model)
    shape = {"runs": 2, "rungs": 4, "seed": 1, **settings}
    data = ChainData(
        tips=patterns.n_tips,
        space=ModelSpace(model, priors),
        weights=patterns.weights * (not prior_only),
    )
    return Sampler(ChainShares([engine], data), data, priors, SamplerSettings(**shape))


def quartet() -> Patterns:
    """Humans, chimpanzees, gorillas and orangutans, the first 200 sites."""
    rows = dict(line.split() for line in PRIMATES.read_text().splitlines()[1:] if line.strip())
    taxa = ("Homo_sapiens", "Pan", "Gorilla", "Pongo")
    codes = [[1 << "ACGT".index(letter) for letter in rows[taxon][:200]] for taxon in taxa]
    return patterns_of(np.array(codes, np.uint8))


def split_of(words: np.ndarray) -> list[frozenset[int]]:
    """The tips below each inner branch."""
    chain, below = ChainTree(words), {}
    for v in reversed(list(chain.preorder())):
        tips = v < chain.tips
        children = () if tips else (int(chain.left[v]), int(chain.right[v]))
        below[v] = frozenset([v]) if tips else below[children[0]] | below[children[1]]
    return [tips for v, tips in below.items() if v >= chain.tips and chain.parent[v] != 0]


def prior_samples(sampler: Sampler, iterations: int) -> list[np.ndarray]:
    samples = []
    for number in range(iterations):
        sampler.iterate()
        if number >= 20:
            samples += [row.copy() for row in sampler.words]
    return samples


def any_patterns(tips: int) -> Patterns:
    rng = np.random.default_rng(tips)
    return patterns_of(rng.choice([1, 2, 4, 8], (tips, 12)).astype(np.uint8))


@pytest.mark.parametrize("tips", [5, 8])
def test_prior_of_topologies_is_uniform(tips: int) -> None:
    """P(split of k of n) = (2k - 3)!! (2 (n - k) - 3)!! / (2n - 5)!!"""
    settings = {"runs": 32, "rungs": 2, "sweeps": 6, "prior_only": True}
    sampler = sampler_of(any_patterns(tips), "JC", EXPONENTIAL, **settings)
    samples = prior_samples(sampler, 120)
    sizes = Counter(min(len(s), tips - len(s)) for row in samples for s in split_of(row))

    def odd(n: int) -> float:
        return float(np.prod(np.arange(n, 0, -2))) if n > 0 else 1.0

    for k, count in sizes.items():
        wanted = odd(2 * k - 3) * odd(2 * (tips - k) - 3) / odd(2 * tips - 5)
        splits = comb(tips, k) / (2 if 2 * k == tips else 1)
        assert count / len(samples) / splits == pytest.approx(wanted, rel=0.06), k


@pytest.mark.parametrize(
    ("priors", "twin"),
    [
        (EXPONENTIAL, stats.gamma(11, scale=0.1)),
        (
            Priors(),
            stats.gamma(1, scale=10),
        ),
    ],
    ids=["exponential", "gamma-dirichlet"],
)
def test_prior_of_the_tree_length(priors: Priors, twin) -> None:
    sampler = sampler_of(any_patterns(7), "JC", priors, prior_only=True, runs=64, rungs=1, sweeps=4)
    totals = [ChainTree(row).lengths[1:].sum() for row in prior_samples(sampler, 60)]
    quantiles = twin.cdf(np.array(totals))
    counts = np.histogram(quantiles, 10, (0, 1))[0] / len(quantiles)
    np.testing.assert_allclose(counts, 0.1, atol=0.02)


def test_prior_of_parameters() -> None:
    sampler = sampler_of(
        any_patterns(5), "HKY+G4", EXPONENTIAL, prior_only=True, runs=64, rungs=1, burn_in=300
    )
    while not sampler.is_sampling:
        sampler.advance()
    values = []
    for _ in range(150):
        sampler.advance()
        values.append(sampler.space.values(sampler.points))
    labels, every = sampler.space.labels, np.concatenate(values)
    kappa = stats.lognorm(1.25, scale=np.e).cdf(every[:, labels.index("kappa")])
    alpha = stats.expon.cdf(every[:, labels.index("alpha")])
    share = stats.beta(1, 3).cdf(every[:, labels.index("pi(C)")])
    for quantiles in (kappa, alpha, share):
        assert quantiles.mean() == pytest.approx(0.5, abs=0.04)
        assert quantiles.var() == pytest.approx(1 / 12, rel=0.15)


@pytest.mark.cases(1, 8)
def test_posterior_and_ln_z_of_a_quartet(case: int) -> None:
    """Whatever the fault in a ratio, this notices it: see the faults planted below."""
    frequencies, error, lnz, lnz_error = sampled_quartet(case)
    for split, wanted in QUARTET.items():
        found = frequencies[split]
        assert abs(found - wanted) < 4 * error[split] + 0.002, split
    assert abs(lnz - QUARTET_LNZ) < 0.02 + 3 * lnz_error


def sampled_quartet(case: int, iterations: int = 400) -> tuple[dict, dict, float, float]:
    """Frequencies of the splits, their standard errors between runs; ln Z and its error."""
    sampler = sampler_of(quartet(), "JC", EXPONENTIAL, runs=16, rungs=8, seed=case, sweeps=2,
                         burn_in=300, rests=case % 2 == 0)  # fmt: skip
    while not sampler.is_sampling:
        sampler.advance()
    counts = [Counter() for _ in range(16)]
    for _ in range(iterations):
        sampler.advance()
        for run, chain in enumerate(sampler.cold.tolist()):
            (below,) = split_of(sampler.words[chain])
            side = below if 0 in below else frozenset(range(4)) - below
            counts[run][side] += 1
    of_runs = {s: np.array([c[s] / iterations for c in counts]) for s in QUARTET}
    lnz = sampler.ladders.log_evidence
    mean = {s: float(f.mean()) for s, f in of_runs.items()}
    error = {s: float(f.std(ddof=1) / 4) for s, f in of_runs.items()}
    return mean, error, float(lnz.mean()), float(lnz.std(ddof=1) / 4)


@pytest.mark.parametrize("rests", [False, True])
def test_a_sampler_goes_on_with_the_same_bits(rests: bool) -> None:
    rng = np.random.default_rng(1)
    model = parse_model("HKY{3}+FU{0.3/0.2/0.2/0.3}+G4{0.5}", DNA)
    tree = random_topology(6, rng)
    tree.lengths[:] = 0.1
    patterns = patterns_of(simulate(tree, model, 60, rng))
    settings = {"runs": 2, "rungs": 8, "most_rungs": 6, "burn_in": 170, "rests": rests}
    straight = sampler_of(patterns, "HKY+G4", Priors(), **settings)
    for _ in range(180):
        straight.advance()
    resumed = sampler_of(patterns, "HKY+G4", Priors(), **settings)
    for number in range(180):
        resumed.advance()
        if number in (3, 49, 80, 149, 155, 172):
            state = resumed.state()
            resumed = sampler_of(patterns, "HKY+G4", Priors(), **settings)
            resumed.restore(state)
    one, other = straight.state(), resumed.state()
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name], equal_nan=True), name
    assert straight.is_sampling
    assert straight.settings.rungs <= 6


@pytest.mark.parametrize("runs", [2, 4, 64])
def test_any_number_of_runs_settles(runs: int) -> None:
    """Runs settle whose lnL forgets itself within ten iterations, but not while it rises."""
    sampler = sampler_of(quartet(), "JC", Priors(), runs=2, rungs=1)
    noise = np.random.default_rng(runs).normal(size=(400, runs))
    for n in range(1, len(noise)):
        noise[n] = 0.8 * noise[n - 1] + 0.6 * noise[n]
    sampler.trace = noise
    assert sampler.is_settled
    sampler.trace = noise + np.linspace(-3, 0, 400)[:, None]
    assert not sampler.is_settled


@pytest.mark.parametrize(("rests", "taxa", "rounds"), [(True, 6, 3), (True, 51, 4), (False, 6, 4)])
def test_burn_in_ends_sooner_where_hot_chains_rest_and_taxa_are_few(
    monkeypatch, rests: bool, taxa: int, rounds: int
) -> None:
    """Burn-in ends behind its least rounds where all is settled, and not before it is."""
    sampler = sampler_of(any_patterns(6), "JC", Priors(), rests=rests)
    sampler.tips = taxa
    monkeypatch.setattr(Sampler, "is_settled", True)
    for number in range(1, rounds + 1):
        assert not sampler.is_sampling
        sampler.round, sampler.trace = number - 1, np.zeros((9, 2))
        sampler._end_round()
    assert sampler.is_sampling
    monkeypatch.setattr(Sampler, "is_settled", False)
    sampler.is_sampling, sampler.round = False, rounds
    sampler._end_round()
    assert not sampler.is_sampling


def test_hot_chains_rest_longer_once_the_ladder_is_fitted() -> None:
    sampler = sampler_of(any_patterns(6), "JC", Priors(), runs=2, rungs=4, rests=True)
    sampler.ladders.take_heats(np.array([1.0, 0.6, 0.2, 0.0]))
    every = []
    for sampler.round in (0, 2):
        before, due = sampler.words[:, Chain.SWEEP].copy(), np.zeros(4)
        for _ in range(16):
            due += np.bincount(sampler.rungs[sampler._due], minlength=4) / 2
            sampler.iterate()
        every.append(due.tolist())
        assert (sampler.words[:, Chain.SWEEP] - before).sum() == 2 * due.sum()
    assert every == [[16, 16, 8, 2], [16, 16, 4, 1]]


@pytest.mark.parametrize(
    ("round_", "barrier", "wanted"),
    [(1, 80, 1), (1, 70, 8), (2, 38, 1), (2, 37, 16), (2, 5, 6), (2, 0, 4)],
)
def test_a_barrier_beyond_all_ladders_leaves_one_rung(
    monkeypatch, round_: int, barrier: float, wanted: int
) -> None:
    sampler = sampler_of(quartet(), "JC", Priors(), runs=2, rungs=8, most_rungs=16)
    monkeypatch.setattr(type(sampler.ladders), "barrier", barrier)
    monkeypatch.setattr(type(sampler.shares), "room", ChainRoom())
    sampler.round = round_
    assert sampler._wanted_rungs() == wanted
    sampler.fit(1)
    assert len(sampler.words) == 2
    sampler.round = 2
    monkeypatch.setattr(type(sampler.ladders), "barrier", 0)
    assert sampler._wanted_rungs() == 1
    sampler.advance()
    assert np.isfinite(sampler.lnl).all()


def test_acceptance_is_adapted_in_burn_in_only() -> None:
    sampler = sampler_of(quartet(), "HKY+G4", Priors(), runs=4, rungs=4, burn_in=350)
    while not sampler.is_sampling:
        sampler.advance()
    window, size, heats = (x.copy() for x in (sampler.window, sampler.walks.size,
                                              sampler.ladders.heats))  # fmt: skip
    for _ in range(100):
        sampler.advance()
    assert np.array_equal(sampler.window, window)
    assert np.array_equal(sampler.walks.size, size)
    assert np.array_equal(sampler.ladders.heats, heats)
    scaled = sampler.counts[0, 1, Move.SCALE] / sampler.counts[0, 0, Move.SCALE]
    assert 0.1 < scaled < 0.6
    taken = sampler.walks.taken[0, 0] / sampler.walks.tried[0, 0]
    assert 0.2 < taken < 0.9
    assert (sampler.words[:, Chain.SWEEP] == sampler.iteration).all()


def test_a_state_is_written_as_its_tree_is() -> None:
    """The shortcut from words to Newick gives the same text as the tree does."""
    rng = np.random.default_rng(5)
    for tips in (4, 5, 9, 40):
        tree = random_topology(tips, rng)
        tree.lengths[:] = rng.exponential(0.1, len(tree.lengths))
        words = empty_words(1, tips)[0]
        hang_tree(words, tree)
        assert newick_of_words(words) == write_newick(tree, [str(n + 1) for n in range(tips)])


# Parts with branch lengths of their own.

PRIORS_OF_PARTS = {
    "exponential": (Priors(branch_lengths=ExponentialLengths(10.0)), stats.gamma(9, scale=0.1)),
    "gamma-dirichlet": (
        Priors(branch_lengths=GammaDirichletLengths(3.0, 2.0, 2.0, 0.8)),
        stats.gamma(3, scale=0.5),
    ),
}
QUARTET_RATE = 8.0
TOPOLOGIES = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))


def parts_sampler(
    patterns: Patterns, priors: Priors, *, prior_only: bool = False, **settings: int
) -> Sampler:
    """A sampler of all parts of the patterns, under JC."""
    parts, jc = len(patterns.parts), parse_model("JC", DNA)
    sizes = np.array([patterns.weights[part].sum() for part in patterns.parts])
    names = tuple(f"part{n}" for n in range(parts))
    model = PartitionModel(
        (jc,) * parts, names, Linkage.UNLINKED, np.ones(parts), sizes / sizes.sum()
    )
    weights = patterns.weights * (not prior_only)
    data = ChainData(patterns.n_tips, ModelSpace(model, priors), weights)
    shares = ChainShares([engine_of(patterns, model)], data)
    return Sampler(shares, data, priors, SamplerSettings(**settings))


def _inner_shares(words: Float64) -> Float64:
    chain = ChainTree(words)
    lengths = chain.length_sets[:, 1:]
    return (lengths * (1 - chain.is_outer)).sum(axis=1) / lengths.sum(axis=1)


@pytest.mark.parametrize("name", PRIORS_OF_PARTS)
def test_every_part_has_the_prior_of_lengths_and_all_topologies_are_alike(name: str) -> None:
    priors, total = PRIORS_OF_PARTS[name]
    patterns = joined([any_patterns(6), any_patterns(6), any_patterns(6)])
    shape = {"runs": 48, "rungs": 1, "seed": 3, "sweeps": 4}
    samples = prior_samples(parts_sampler(patterns, priors, prior_only=True, **shape), 90)
    lengths = np.array([ChainTree(row).length_sets[:, 1:].sum(axis=1) for row in samples])
    for of_part in lengths.T:
        counts = np.histogram(total.cdf(of_part), 10, (0, 1))[0] / len(of_part)
        np.testing.assert_allclose(counts, 0.1, atol=0.03)
    inner = np.array([_inner_shares(row) for row in samples])
    outer, of_inner = priors.branch_lengths.shapes
    wanted = stats.beta(3 * of_inner, 6 * outer)
    np.testing.assert_allclose(inner.mean(axis=0), wanted.mean(), rtol=0.03)
    np.testing.assert_allclose(inner.std(axis=0), wanted.std(), rtol=0.06)
    ranks = stats.rankdata(lengths, axis=0) / len(lengths)
    assert abs(np.corrcoef(ranks.T) - np.eye(3)).max() < 0.08, "parts know nothing of each other"
    sizes = Counter(min(len(s), 6 - len(s)) for row in samples for s in split_of(row))
    assert sizes[2] / len(samples) / 15 == pytest.approx(1 / 7, rel=0.06)
    assert sizes[3] / len(samples) / 10 == pytest.approx(9 / 105, rel=0.06)


# The exact posterior of four taxa, by importance sampling: given the topology, parts are
# independent, so that the marginal likelihood is the product of the parts' own.


def exact_lnz(patterns: Patterns, draws: int) -> Float64:
    """f64[3]: ln of the marginal likelihood of each topology, JC and Exp(QUARTET_RATE) lengths."""
    same = 0.25 + 0.75 * np.exp(
        -4 / 3 * np.random.default_rng(1).exponential(1 / QUARTET_RATE, (draws, 5))
    )
    p = np.stack([same, (1 - same) / 3], axis=-1)  # of no difference, and of one

    def chance(column: list[int], tips: tuple[int, ...]) -> Float64:
        a, b, c, d = (column[tip] for tip in tips)
        total = np.zeros(draws)
        for x, y in itertools.product(range(4), repeat=2):
            ends = p[:, 0, int(a != x)] * p[:, 1, int(b != x)]
            ends = ends * p[:, 2, int(c != y)] * p[:, 3, int(d != y)]
            total += 0.25 * ends * p[:, 4, int(x != y)]
        return total

    states = np.log2(patterns.codes).astype(int).T.tolist()
    found = np.zeros(3)
    for part in patterns.parts:
        for number, tips in enumerate(TOPOLOGIES):
            pairs = zip(states[part], patterns.weights[part], strict=True)
            lnl = sum(weight * np.log(chance(column, tips)) for column, weight in pairs)
            found[number] += lnl.max() + np.log(np.exp(lnl - lnl.max()).mean())
    return found


@pytest.mark.cases(1, 8)
def test_posterior_and_ln_z_of_a_quartet_in_two_parts(case: int) -> None:
    rng = np.random.default_rng(case)
    tree, jc = random_topology(4, rng), parse_model("JC", DNA)
    parts = []
    for sites in (18, 12):
        tree.lengths[:] = rng.exponential(0.12, 5)
        parts.append(patterns_of(simulate(tree, jc, sites, rng)))
    patterns = joined(parts)
    exact = exact_lnz(patterns, 400_000)
    priors = Priors(branch_lengths=ExponentialLengths(QUARTET_RATE))
    shape = {"runs": 16, "rungs": 8, "seed": case, "burn_in": 200, "rests": case % 2}
    sampler = parts_sampler(patterns, priors, **shape)
    while not sampler.is_sampling:
        sampler.advance()
    count = np.zeros((16, 3))
    for _ in range(600):
        sampler.advance()
        for run, chain in enumerate(sampler.cold.tolist()):
            (below,) = split_of(sampler.words[chain])
            side = below if 0 in below else frozenset(range(4)) - below
            (other,) = side - {0}
            count[run, other - 1] += 1
    shares, wanted = count / 600, np.exp(exact - np.logaddexp.reduce(exact))
    error = shares.std(axis=0, ddof=1) / 4
    assert (abs(shares.mean(axis=0) - wanted) < 4 * error + 0.01).all()
    lnz = sampler.ladders.log_evidence
    assert abs(lnz.mean() - np.logaddexp.reduce(exact) + np.log(3)) < 0.03 + 4 * lnz.std() / 4
