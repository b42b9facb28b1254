"""Geweke's joint test (2004, JASA 99:799-804): samplers of parameters and of data, in turn.

Chains start from draws of the prior. Between any two iterations each chain's data are drawn anew,
under its present tree and parameters; so the parameters' distribution stays the prior, if and only
if iterations leave the posterior what it is. Each chain has a row of weights over all patterns.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import DEVICES, FUZZING, layout_of

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.device.session import Session
from mltree.models.eigen import ModelArrays, p_matrices
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.program.contract import Chain
from mltree.program.ops.sweeps import ChainTree
from mltree.program.random_numbers import Stream
from mltree.sampling.model_space import ModelSpace, Simplex
from mltree.sampling.priors import (
    ExponentialLengths,
    GammaDirichletLengths,
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
from mltree.system.arrays import Float64

BOUNDS = (1e-8, 100.0)
TIPS, SITES = (5, 25) if FUZZING else (4, 15)
CHAINS, ITERATIONS, DRAWS = (96, 2000, 50_000) if FUZZING else (40, 40, 1_000)
FURTHEST = 4.0
"""Largest difference of a mean from the prior's, in standard errors."""

SETTINGS = {
    "exponential": ("HKY+G2", Priors(
        branch_lengths=ExponentialLengths(6.0), kappa=LogNormal(0.5, 0.8),
        alpha=GammaDistribution(3.0, 2.0),
    )),
    "gamma-dirichlet": ("GTR+I", Priors(
        branch_lengths=GammaDirichletLengths(3.0, 2.0, 0.8, 0.5),
    )),
}  # fmt: skip


def all_patterns() -> Patterns:
    """Each pattern of the taxa once."""
    codes = 1 << np.array(list(itertools.product(range(4), repeat=TIPS)), np.uint8).T
    count = codes.shape[1]
    names = tuple(f"t{n}" for n in range(TIPS))
    return Patterns(names, codes, np.ones(count), np.arange(count, dtype=np.int32), DNA)


def drawn_points(space: ModelSpace, count: int, rng: np.random.Generator) -> Float64:
    """Parameters f64[count, n] drawn from their priors."""
    points = np.empty((0, space.size))
    stream = Stream(int(rng.integers(1 << 32)), 0, 0, 0, 0)
    while len(points) < count:
        made = np.empty((count, space.size))
        for block in space.blocks:
            if isinstance(block, Simplex):
                n = len(block.labels)
                shares = rng.dirichlet(np.full(n, block.prior.concentration), count)
                logs = np.log(shares / shares[:, block.reference, None]) + block.offset
                made[:, block.span] = np.delete(logs, block.reference, axis=1)
                continue
            values = np.array([block.prior.draw(stream) for _ in range(count)])
            is_share = block.labels[0] == "pinvar"
            made[:, block.span.start] = np.log(values / (1 - values) if is_share else values)
        points = np.vstack([points, made[np.isfinite(space.log_prior(made))]])
    return points[:count]


def chances(words: Float64, arrays: ModelArrays, codes: np.ndarray) -> Float64:
    """Probabilities f64[L] of patterns u8[T, L], by Felsenstein's recursion."""
    chain = ChainTree(words)
    p = p_matrices(arrays, chain.lengths)
    tips = (codes[..., None] >> np.arange(4)) & 1

    def across(v: int) -> Float64:
        if v < TIPS:
            return np.asarray(tips[v] @ p[v].transpose(0, 2, 1))
        below = across(int(chain.left[v])) * across(int(chain.right[v]))
        return np.asarray(below @ p[v].transpose(0, 2, 1))

    root = across(int(chain.left[0])) * tips[0]
    return np.asarray(np.einsum("k,kli,i->l", arrays.weights, root, arrays.frequencies))


class JointSampler:
    """Chains whose data are drawn anew before each iteration."""

    def __init__(self, model_name: str, priors: Priors, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        patterns, model = all_patterns(), alone(parse_model(model_name, DNA))
        info, categories = DEVICES[0], model.categories[0]
        layout = layout_of(info, "native", patterns, categories).of(patterns)
        engine = Session(info.handle, patterns, layout, BOUNDS)
        settings = SamplerSettings(runs=CHAINS, rungs=1, seed=seed)
        data = ChainData(tips=TIPS, space=ModelSpace(model, priors), weights=patterns.weights)
        shares = ChainShares([engine], data)
        (share,) = shares._own._shares
        for sweeps in (0, 1):  # each chain has weights of its own
            program = share._program(CHAINS, sweeps, 0)
            program.stages[0].records["weights"] = np.arange(CHAINS)
            program.cases["weights"] = np.arange(CHAINS)
        self.engine, self.patterns = engine, patterns
        self.sampler = Sampler(shares, data, priors, settings)
        self.sampler.points = drawn_points(self.sampler.space, CHAINS, self.rng)

    def draw_data(self) -> None:
        """Draw data under each chain's state, and compute their lnL."""
        sampler = self.sampler
        (stack,) = sampler.space.stacks(sampler.points)
        rows = np.empty((CHAINS, 4**TIPS))
        for row, words, arrays in zip(rows, sampler.words, stack, strict=True):
            shares = chances(words, arrays, self.patterns.codes)
            assert shares.sum() == pytest.approx(1, abs=1e-9)
            row[:] = self.rng.multinomial(SITES, shares / shares.sum())
        self.engine.load_weights(rows)
        sampler.words[:, Chain.HEAT], sampler.words[:, Chain.PROPOSAL] = 1, 0
        sampler._launch(0, np.ones(CHAINS, np.bool_))

    def statistics(self) -> Float64:
        """f64[C, q] of the present states."""
        return statistics_of(self.sampler.words, self.sampler.space, self.sampler.points)


def statistics_of(words: Float64, space: ModelSpace, points: Float64) -> Float64:
    """First and second moments of parameters and lengths, and topologies."""
    chains = [ChainTree(row) for row in words]
    lengths = np.array([chain.lengths[1:] for chain in chains])
    values = space.values(points)
    values = np.where(values > 1, 1 + np.log(np.maximum(values, 1)), values)
    total, longest = np.log(lengths.sum(axis=1)), lengths.max(axis=1)
    first = np.log(lengths[:, :2])
    joined = np.array([chain.parent[1] == chain.parent[2] for chain in chains]) * 1.0
    own = np.column_stack([total, longest, first, joined, values])
    return np.column_stack([own, own[:, :4] ** 2, values**2, values * total[:, None]])


def prior_statistics(space: ModelSpace, priors: Priors, rng: np.random.Generator) -> Float64:
    """f64[draws, q] of states from the prior."""
    words = empty_words(DRAWS, TIPS)
    for number, row in enumerate(words):
        hang_tree(row, first_tree(TIPS, priors, Stream(77, 0, number, 0, 0)))
    return statistics_of(words, space, drawn_points(space, DRAWS, rng))


def deviations(joint: JointSampler, priors: Priors) -> Float64:
    """f64[q]: differences of means between chains and the prior, in standard errors."""
    total = np.zeros_like(joint.statistics())
    for _ in range(ITERATIONS):
        joint.draw_data()
        joint.sampler.iterate()
        total += joint.statistics()
    means = total / ITERATIONS
    expected = prior_statistics(joint.sampler.space, priors, np.random.default_rng(5))
    error = means.var(axis=0, ddof=1) / len(means) + expected.var(axis=0) / len(expected)
    return np.asarray((means.mean(axis=0) - expected.mean(axis=0)) / np.sqrt(error))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.cases(1, 3)
def test_parameters_keep_their_prior_while_data_are_drawn(name: str, case: int) -> None:
    model, priors = SETTINGS[name]
    found = deviations(JointSampler(model, priors, 10 + case), priors)
    assert np.abs(found).max() < FURTHEST, np.round(found, 1)


def test_a_jacobian_that_is_forgotten_is_noticed(monkeypatch) -> None:
    model, priors = SETTINGS["exponential"]
    joint = JointSampler(model, priors, 3)
    space = joint.sampler.space
    log_prior, logs = space.log_prior, [0, space.size - 1]  # kappa, alpha
    monkeypatch.setattr(
        space, "log_prior", lambda points: log_prior(points) - points[:, logs].sum(axis=1)
    )
    assert np.abs(deviations(joint, priors)).max() > FURTHEST
