"""Proposals of parameters: chains keep a distribution that is known, and draws serve it well."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.sampling.proposals import Walks
from mltree.system.arrays import Bool, Float64

CHAINS, STEPS, SEED = 400, 400, 3
FURTHEST = 4.5
"""Standard errors between a mean of chains and what it must be, at most."""


def log_density(x: Float64) -> Float64:
    """Two coordinates: a skew one, and one that is normal about a parabola of it."""
    return x[:, 0] - np.exp(x[:, 0]) - 2 * (x[:, 1] - x[:, 0] ** 2 / 4) ** 2


MOMENTS = np.array([-0.57721566, 0.49453038, 1.97811199])
"""Means of the first coordinate, of the second, and of the first one's square: ln of Exp(1)."""


def step(walks: Walks, x: Float64, number: int, *, adapts: bool, of_draws: float = 1.0) -> Bool:
    """Step all chains, which are of one rung, with the ratio of draws times a factor."""
    rungs = np.zeros(len(x), np.int64)
    counters = np.column_stack([rungs, np.arange(len(x)), np.full(len(x), number)])
    proposed = walks.propose(x, counters, rungs, 0)
    change = log_density(proposed.points) - log_density(x)
    uniform = np.random.default_rng([SEED, number]).random(len(x))
    taken = np.log(uniform) < change + of_draws * proposed.log_ratio
    walks.tell(rungs, 0, taken, proposed.walks, adapts=adapts)
    x[taken] = proposed.points[taken]
    walks.learn(x, rungs)
    return taken


def fitted(x: Float64) -> Walks:
    walks = Walks([slice(0, 2)], 1, SEED)
    for burn_in in range(3):
        for number in range(100):
            step(walks, x, 100 * burn_in + number, adapts=True)
        walks.refit()
    return walks


def furthest(of_draws: float) -> float:
    """Largest difference between means of chains and the moments, in standard errors."""
    x = np.zeros((CHAINS, 2))
    walks, total = fitted(x), np.zeros((CHAINS, 3))
    for number in range(STEPS):
        step(walks, x, 1000 + number, adapts=False, of_draws=of_draws)
        total += np.column_stack([x, x[:, 0] ** 2])
    means = total / STEPS
    errors = means.std(axis=0, ddof=1) / CHAINS**0.5
    return float(np.abs((means.mean(axis=0) - MOMENTS) / errors).max())


def test_chains_keep_a_known_distribution() -> None:
    assert furthest(1.0) < FURTHEST


def test_a_ratio_of_draws_that_is_dropped_is_noticed() -> None:
    assert furthest(0.0) > 2 * FURTHEST


def test_draws_forget_a_state_within_a_few_steps() -> None:
    x = np.zeros((CHAINS, 2))
    walks, before = fitted(x), x.copy()
    taken = [step(walks, x, 1000 + number, adapts=False).mean() for number in range(12)]
    assert 0.3 < np.mean(taken) < 0.95
    assert abs(np.corrcoef(before[:, 0], x[:, 0])[0, 1]) < 0.25


def test_nothing_is_drawn_before_the_first_fit() -> None:
    rungs = np.zeros(CHAINS, np.int64)
    counters = np.column_stack([rungs, np.arange(CHAINS), rungs])
    proposed = Walks([slice(0, 2)], 1, SEED).propose(np.zeros((CHAINS, 2)), counters, rungs, 0)
    assert proposed.walks.all()
    assert proposed.log_ratio == pytest.approx(0.0)
