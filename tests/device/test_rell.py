"""RELL products of every shape: patches and tiles that are full, cut off, and alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.device.session import Session
from mltree.device.shards import DeviceSpec, ShardedEngine
from mltree.program import builders
from mltree.program.cases import Cases
from mltree.program.engine import NO_CONTROL, Engine
from mltree.program.ops.edges import EvaluateSites
from mltree.program.ops.reduce import RELL, Rell
from mltree.program.program import Program

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)

SHAPES = [(1, 1, 1), (2, 3, 7), (33, 65, 40), (5, 130, 333), (70, 9, 1025)]
"""Trees, rows of weights, patterns."""


def products(
    engine: Engine, problem: Problem, n_trees: int, weights: np.ndarray, by_part: bool = False
) -> np.ndarray:
    """f64[n_trees, R], or [parts, n_trees, R]: of a tree with other lengths each time."""
    records = Cases.alike(n_trees, len(problem.patterns.parts)).records.copy()
    records["model"], records["weights"] = 0, 0
    engine.load_models([problem.model] * len(problem.patterns.parts))
    engine.load_weights(problem.patterns.weights[None])
    lengths = np.random.default_rng(n_trees).exponential(0.2, (n_trees, problem.tree.n_edges))
    trees = [problem.tree] * n_trees
    sites = builders.walk(trees, 8, EvaluateSites, Cases(records))
    engine.run(sites, lengths.ravel() + 1e-4, NO_CONTROL)
    engine.load_weights(weights)
    parts, count = len(problem.patterns.parts), n_trees * len(weights)
    program = builders.rell(n_trees, len(weights), parts)
    if by_part:
        records = [(0, n_trees, 0, len(weights), n * count, n, 1) for n in range(parts)]
        program = Program((Rell(np.array(records, RELL)),), 1)
    sums: np.ndarray = engine.run(program, np.zeros(0), NO_CONTROL).sums
    return sums.reshape(*[parts] * by_part, n_trees, len(weights))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape_is_the_matrix_product(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    shape: tuple[int, int, int],
) -> None:
    n_trees, rows, n_patterns = shape
    problem = make_problem(5, n_patterns)
    session = open_device(problem.patterns, problem.categories)
    weights = np.random.default_rng(shape).poisson(1.0, (rows, n_patterns)).astype(np.float64)
    found = products(session, problem, n_trees, weights)
    expected = session.site_log_likelihoods(n_trees) @ weights.T
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "who"), [(np.float64, "host"), (np.uint16, "host"), (np.uint16, "device")]
)
def test_weights_that_go_slab_by_slab_are_all_there(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    who: str,
) -> None:
    """Whoever makes whole weights of 16 bits, though it is a CPU."""
    problem = make_problem(5, 333)
    session = open_device(problem.patterns, problem.categories)
    weights = np.random.default_rng(4).poisson(1.0, (23, 333)).astype(np.float64)
    expected = products(session, problem, 3, weights)
    monkeypatch.setattr("mltree.device.memory.SLAB", 8 * 333 * 5)
    monkeypatch.setattr(Session, "_widens", lambda *_: who == "device")
    found = products(session, problem, 3, weights.astype(kind))
    np.testing.assert_array_equal(found, expected)


def test_slices_of_parts_have_a_lone_session_s_bits(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several patches each, over chunks that lie on two devices."""
    monkeypatch.setattr("mltree.device.layout.MIN_CPU_CHUNK", 8)
    problem = make_problem(5, 700)
    problem = replace(problem, patterns=replace(problem.patterns, ends=(11, 12, 400, 700)))
    session = open_device(problem.patterns, problem.categories)
    specs = [DeviceSpec(session.device, session.layout, share) for share in (1.0, 1.6)]
    slices = ShardedEngine(problem.patterns, specs, BOUNDS, 100)
    assert slices.n_slices == 2
    weights = np.random.default_rng(3).poisson(1.0, (67, 700)).astype(np.float64)
    expected = products(session, problem, 37, weights)
    np.testing.assert_array_equal(products(slices, problem, 37, weights), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lanes_side_by_side_give_the_same_bits(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, int, int],
) -> None:
    """A small product on a GPU, whose few patches would leave most of it idle."""
    n_trees, rows, n_patterns = shape
    problem = make_problem(5, n_patterns)
    weights = np.random.default_rng(shape).poisson(1.0, (rows, n_patterns)).astype(np.float64)
    found = []
    for small in (True, False):
        monkeypatch.setattr("mltree.device.session.splits_lanes", lambda *_, small=small: small)
        session = open_device(problem.patterns, problem.categories)
        found.append(products(session, problem, n_trees, weights))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("small", [True, False])
def test_products_of_parts_are_told_apart(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    monkeypatch: pytest.MonkeyPatch,
    small: bool,
) -> None:
    """A record each, of sites that begin on any chunk: a GPU mixed up those of small products."""
    monkeypatch.setattr("mltree.device.layout.MIN_CPU_CHUNK", 8)
    problem, ends = make_problem(5, 700), (11, 12, 400, 700)
    problem = replace(problem, patterns=replace(problem.patterns, ends=ends))
    weights = np.random.default_rng(3).poisson(1.0, (7, 700)).astype(np.float64)
    monkeypatch.setattr("mltree.device.session.splits_lanes", lambda *_: small)
    session = open_device(problem.patterns, problem.categories)
    found = products(session, problem, 3, weights, by_part=True)
    sites = session.site_log_likelihoods(3)
    expected = [sites[:, part] @ weights[:, part].T for part in problem.patterns.parts]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-12)
    monkeypatch.setattr("mltree.device.session.splits_lanes", lambda *_: not small)
    session = open_device(problem.patterns, problem.categories)
    again = products(session, problem, 3, weights, by_part=True)
    np.testing.assert_array_equal(found, again)
