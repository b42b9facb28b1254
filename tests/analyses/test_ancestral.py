"""Marginal states against a sum over all states of all inner nodes, one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.linalg import expm

from mltree.analyses.ancestral import inner_nodes, marginal_states
from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns, compress_parts
from mltree.models.eigen import ModelArrays, random_reversible
from mltree.tree.topology import Tree, random_topology


def enumerated(tree: Tree, patterns: Patterns, arrays: ModelArrays) -> np.ndarray:
    """f64 [T-2, L, S]: the definition itself, by SciPy's matrix exponential."""
    nodes = [half // 3 for half in inner_nodes(tree)]
    ends = tree.edge_halves // 3
    found = np.zeros((len(nodes), patterns.n_patterns, arrays.n_states))
    tips = patterns.alphabet.tip_table[patterns.codes]
    stacked = [np.atleast_2d(arrays.eigenvalues), arrays.right, arrays.left, arrays.frequencies]
    systems = [
        x.reshape(arrays.n_systems, *x.shape[-n:])
        for x, n in zip(stacked, (1, 2, 2, 1), strict=True)
    ]
    for k, (rate, weight) in enumerate(zip(arrays.rates, arrays.weights, strict=True)):
        values, right, left, pi = (x[k * arrays.n_systems // arrays.n_categories] for x in systems)
        q = right * values @ left
        p = [expm(q * rate * t) for t in tree.lengths]
        for states in product(range(arrays.n_states), repeat=len(nodes)):
            state = dict(zip(nodes, states, strict=True))
            joint = np.full(patterns.n_patterns, weight * pi[states[0]])
            for edge, pair in enumerate(ends.tolist()):
                tip, *inner = sorted(pair)
                if tip < tree.n_tips:
                    joint = joint * (tips[tip] @ p[edge][state[inner[0]]])
                else:
                    above, below = sorted(pair, key=nodes.index)
                    joint = joint * p[edge][state[above], state[below]]
            for n, own in enumerate(states):
                found[n, :, own] += joint
    return found / found.sum(axis=2, keepdims=True)


def drawn(rng: np.random.Generator, taxa: int, sites: int) -> Patterns:
    """Any characters: ambiguous ones and gaps as well."""
    codes = rng.integers(1, DNA.n_codes, (taxa, sites)).astype(np.uint8)
    return compress_parts(tuple(f"t{n}" for n in range(taxa)), codes, DNA, (sites,))


@pytest.mark.cases(4, 100)
def test_states_are_those_of_all_histories(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(case)
    if case % 2:
        monkeypatch.setattr("mltree.analyses.ancestral.AT_ONCE", 3000)
    taxa = int(rng.integers(4, 6 if case < 50 else 7))
    tree = random_topology(taxa, rng)
    tree.lengths[:] = rng.exponential(0.3, tree.n_edges)
    patterns = drawn(rng, taxa, 12)
    arrays = random_reversible(4, rng, categories=2)
    if case % 3 == 0:  # sites that cannot change among them
        rates = np.array([0.0, 1.0 / arrays.weights[1]])
        arrays = replace(arrays, rates=rates)
    if case % 4 == 1:  # a mixture
        other = random_reversible(4, rng, categories=2)
        pairs = zip(vars(arrays).values(), vars(other).values(), strict=True)
        both = [np.stack(pair) for pair in pairs]
        arrays = ModelArrays(*both[:-2], both[-2].ravel(), both[-1].ravel() / 2)
    found = marginal_states(tree, patterns, arrays)
    assert found == pytest.approx(enumerated(tree, patterns, arrays), rel=1e-9, abs=1e-12)


def test_large_trees_do_not_vanish() -> None:
    """Likelihoods far below what a number can hold."""
    rng = np.random.default_rng(1)
    tree = random_topology(1200, rng)
    tree.lengths[:] = 1.0
    patterns = drawn(rng, 1200, 3)
    found = marginal_states(tree, patterns, random_reversible(4, rng, categories=4))
    assert np.isfinite(found).all()
    assert found.sum(axis=2) == pytest.approx(1.0)


def test_nodes_are_told_from_tip_0_outwards() -> None:
    tree = random_topology(9, np.random.default_rng(2))
    halves = inner_nodes(tree)
    assert len({half // 3 for half in halves}) == 7
    assert tree.twin[halves[0]] == 0
