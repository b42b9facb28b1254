"""Panels of an alignment give a lone session's bits, side by side or one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.contract import CONTROL_WORDS, REDUCE_WIDTH
from mltree.device.panels import PanelEngine, Place, ordered_sum
from mltree.device.session import Session
from mltree.errors import DeviceError
from mltree.likelihood import programs
from mltree.likelihood.api import Likelihood
from mltree.search.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)
TIPS = 9
SLOTS = 3 * (TIPS - 2)
PATTERNS = 2500
"""Ten chunks of 256 patterns on a CPU, 313 of 8 on a GPU; the last one not full."""


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    return make_problem(TIPS, PATTERNS, trees=2)


@pytest.fixture(scope="module")
def lone(open_native: Callable[..., Session], problem: Problem) -> Session:
    return open_native(problem.patterns, problem.categories)


def side_by_side(problem: Problem, lone: Session, shares: list[float]) -> PanelEngine:
    places = [Place(lone.device, lone.layout, share) for share in shares]
    return PanelEngine(problem.patterns, places, BOUNDS, SLOTS)


def streamed(problem: Problem, lone: Session, devices: int, memory: int) -> PanelEngine:
    place = Place(lone.device, lone.layout, memory_limit=memory)
    return PanelEngine(problem.patterns, [place] * devices, BOUNDS, SLOTS)


def everything(engine: Session | PanelEngine, problem: Problem) -> list[np.ndarray]:
    """What a search asks for, in an order that needs CLAs of earlier programs."""
    likelihood = Likelihood(engine, BOUNDS)
    trees = [tree.copy() for tree in problem.trees]
    found = Neighbourhood(problem.tree)
    scan = found.scan(found.extend(4))
    some = found.scan(np.arange(0, found.size, 5))
    numbers = np.zeros(found.prunes.size, np.int32)
    lnl, slope, curve = likelihood.derivatives(problem.tree, problem.model)
    results = [np.array([lnl]), slope, curve]
    results.append(likelihood.insertions(problem.trees, problem.models, scan))
    results += likelihood.refine(problem.trees, problem.models, some)
    results.append(likelihood.join_lengths(problem.trees, problem.models, numbers, found.prunes))
    results.append(likelihood.insertions(problem.trees, problem.models, scan))
    results.append(likelihood.log_likelihoods(problem.trees, problem.models))
    results.append(likelihood.site_log_likelihoods(problem.tree, problem.model))
    results.append(likelihood.smooth(trees, problem.models, 1e-3))
    results.append(likelihood.insertions(trees, problem.models, scan))
    return results + [tree.lengths for tree in trees]


@pytest.fixture(scope="module")
def expected(lone: Session, problem: Problem) -> list[np.ndarray]:
    return everything(lone, problem)


def assert_same_bits(engine: PanelEngine, problem: Problem, expected: list[np.ndarray]) -> None:
    for got, wanted in zip(everything(engine, problem), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("shares", [[1.0, 1.0], [3.0, 1.0, 2.0]])
def test_panels_on_several_devices(
    problem: Problem, lone: Session, expected: list[np.ndarray], shares: list[float]
) -> None:
    engine = side_by_side(problem, lone, shares)
    assert engine.n_panels == len(shares)
    assert_same_bits(engine, problem, expected)


@pytest.mark.parametrize("devices", [1, 2])
def test_panels_one_after_the_other(
    problem: Problem, lone: Session, expected: list[np.ndarray], devices: int
) -> None:
    whole = 2 * SLOTS * lone.layout.cla_bytes(PATTERNS)
    engine = streamed(problem, lone, devices, whole // 3)
    assert_same_bits(engine, problem, expected)
    assert engine.n_panels > devices
    assert f"{engine.n_panels // devices} panels" in engine.notice


def test_a_chunk_that_does_not_fit(problem: Problem, lone: Session) -> None:
    with pytest.raises(DeviceError, match="do not fit"):
        streamed(problem, lone, 1, 1000)


def test_more_devices_than_chunks(make_problem: Callable[..., Problem], lone: Session) -> None:
    """Devices that get no chunk sit idle."""
    little = make_problem(TIPS, 3)
    engine = side_by_side(little, lone, [1.0] * 3)
    assert engine.n_panels == 1
    assert np.isfinite(Likelihood(engine, BOUNDS).log_likelihoods(little.trees, little.models))


@pytest.mark.parametrize("patterns", [5, PATTERNS])
def test_sums_in_the_device_s_order(
    open_native: Callable[..., Session],
    make_problem: Callable[..., Problem],
    patterns: int,
) -> None:
    problem = make_problem(TIPS, patterns)
    session = open_native(problem.patterns, problem.categories)
    Likelihood(session, BOUNDS).log_likelihoods(problem.trees, problem.models)
    program, no_control = programs.derivatives(problem.trees), np.zeros((0, CONTROL_WORDS))
    sums = session.run(program, problem.tree.lengths, no_control).sums
    np.testing.assert_array_equal(ordered_sum(session.partials(program)), sums)


def test_sums_of_many_chunks() -> None:
    partials = np.random.default_rng(1).normal(size=(3, 5 * REDUCE_WIDTH + 7))
    np.testing.assert_allclose(ordered_sum(partials), partials.sum(axis=1), rtol=1e-12)
