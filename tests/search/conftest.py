"""Small data sets and likelihoods for the tests of the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from mltree.alignment.alphabet import DNA
from mltree.alignment.patterns import Patterns
from mltree.likelihood.api import Likelihood
from mltree.likelihood.reference import ReferenceEngine
from mltree.model.eigen import p_matrices
from mltree.model.grammar import parse_model
from mltree.model.substitution import Model
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree

BOUNDS = (1e-6, 100.0)

GTR_G2 = "GTR{1.3/3.1/0.7/1.1/4.2/1}+FU{0.3/0.2/0.2/0.3}+G2m{0.6}"
"""What data evolve under, unless a test says otherwise."""


@dataclass(frozen=True)
class Case:
    """A simulated alignment with the tree and model that it came from."""

    patterns: Patterns
    tree: Tree
    model: Model
    likelihood: Likelihood


def simulate(tree: Tree, model: Model, sites: int, rng: np.random.Generator) -> np.ndarray:
    """u8 [T, sites] of DNA codes (1, 2, 4, 8), evolved along the tree."""
    arrays = model.arrays()
    category = rng.choice(arrays.rates.size, size=sites, p=arrays.weights)
    states = np.empty((tree.n_nodes, sites), dtype=np.intp)
    states[0] = rng.choice(4, size=sites, p=arrays.frequencies)
    todo = [0]
    while todo:
        half = todo.pop()
        for h in (half,) if half == 0 else tree.siblings(half):
            below = int(tree.twin[h])
            p = p_matrices(arrays, tree.lengths[tree.edge[h]][None])[0]
            cumulative = p[category, states[h // 3]].cumsum(axis=1)
            draw = rng.random((sites, 1))
            states[below // 3] = np.minimum((draw > cumulative).sum(axis=1), 3)
            if below >= 3 * tree.n_tips:
                todo.append(below)
    return np.left_shift(1, states[: tree.n_tips]).astype(np.uint8)


def patterns_of(codes: np.ndarray) -> Patterns:
    columns, index, counts = np.unique(codes, axis=1, return_inverse=True, return_counts=True)
    return Patterns(
        taxa=tuple(f"t{n:02d}" for n in range(len(codes))),
        codes=np.ascontiguousarray(columns),
        weights=counts.astype(np.float64),
        site_pattern=index.ravel().astype(np.int32),
        alphabet=DNA,
    )


@pytest.fixture(scope="session")
def make_case() -> Callable[..., Case]:
    """make_case(tips, sites, seed, model): simulated data on a random tree."""

    def make(n_tips: int = 8, sites: int = 200, seed: int = 1, text: str = GTR_G2) -> Case:
        rng = np.random.default_rng(seed)
        tree = random_topology(n_tips, rng)
        tree.lengths[:] = rng.uniform(0.05, 0.3, tree.n_edges)
        model = parse_model(text, DNA)
        patterns = patterns_of(simulate(tree, model, sites, rng))
        engine = ReferenceEngine(patterns, model.arrays().n_categories, BOUNDS)
        return Case(patterns, tree, model, Likelihood(engine, BOUNDS))

    return make


@pytest.fixture(scope="session")
def case(make_case: Callable[..., Case]) -> Case:
    return make_case()


@pytest.fixture(scope="session")
def make_rugged() -> Callable[..., Patterns]:
    """make_rugged(tips, sites, histories, seed): columns that evolved along different trees.

    As after recombination: no tree fits, and many lie on tops of their own.
    """

    def make(n_tips: int, sites: int, histories: int, seed: int) -> Patterns:
        rng = np.random.default_rng(seed)
        model = parse_model("JC", DNA)
        parts = []
        for _ in range(histories):
            tree = random_topology(n_tips, rng)
            tree.lengths[:] = rng.exponential(0.1, tree.n_edges) + 1e-4
            parts.append(simulate(tree, model, sites // histories, rng))
        return patterns_of(np.concatenate(parts, axis=1))

    return make
