"""Panels of patterns, on several devices or one after the other: a lone session's bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.contract import Function
from mltree.device.panels import PanelEngine, Place, ordered_sum
from mltree.device.session import Session
from mltree.errors import DeviceError, NumericalError
from mltree.likelihood.api import Likelihood
from mltree.search.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)

OpenDevice = Callable[..., Session]


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    """Enough patterns for several chunks of every layout, the last one not full."""
    return make_problem(7, 1100, trees=2, alpha=0.6, invariant=0.1, categories=4)


def panels(
    session: Session,
    problem: Problem,
    shares: tuple[float, ...],
    memory_limit: int | None = None,
    slots: int = 100,
) -> PanelEngine:
    places = [Place(session.device, session.layout, share, memory_limit) for share in shares]
    return PanelEngine(problem.patterns, places, BOUNDS, slots)


def everything(engine: Likelihood, problem: Problem) -> list[np.ndarray]:
    """All that a search asks for, of two trees side by side, in an order that needs old CLAs."""
    trees, models = [tree.copy() for tree in problem.trees], problem.models
    found = Neighbourhood(trees[0])
    scan = found.scan(found.extend(4))
    number = np.zeros(found.prunes.size, np.int32)
    results: list[np.ndarray] = [
        engine.log_likelihoods(trees, models),
        engine.site_log_likelihoods(trees[0], models[0]),
        *engine.derivatives(trees[0], models[0])[1:],
        engine.insertions(trees, models, scan),
        engine.join_lengths(trees, models, number, found.prunes),
        *engine.refine(trees, models, found.scan(np.arange(0, found.size, 4))),
        engine.insertions(trees, models, scan),
        engine.smooth(trees, models, 1e-3),
        engine.insertions(trees, models, scan),
    ]
    return results + [tree.lengths for tree in trees]


@pytest.fixture(scope="module")
def lone(open_device: OpenDevice, problem: Problem) -> list[np.ndarray]:
    session = open_device(problem.patterns, problem.categories)
    return everything(Likelihood(session, BOUNDS), problem)


@pytest.mark.parametrize("shares", [(1.0,), (1.0, 1.0), (2.0, 3.0, 2.0)], ids=str)
def test_shared_between_devices(
    open_device: OpenDevice, problem: Problem, lone: list[np.ndarray], shares: tuple[float, ...]
) -> None:
    session = open_device(problem.patterns, problem.categories)
    engine = panels(session, problem, shares)
    assert engine.n_panels == len(shares)
    got = everything(Likelihood(engine, BOUNDS), problem)
    for mine, theirs in zip(got, lone, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert engine.timings()[Function.NEWVIEW] > 0


@pytest.mark.parametrize("shares", [(1.0,), (1.0, 2.0)], ids=str)
def test_more_than_the_memory(
    open_device: OpenDevice, problem: Problem, lone: list[np.ndarray], shares: tuple[float, ...]
) -> None:
    """The CLAs of the whole alignment take three times what a device may give, and more."""
    session = open_device(problem.patterns, problem.categories)
    whole = 100 * session.layout.cla_bytes(problem.patterns.n_patterns)
    engine = panels(session, problem, shares, whole // 3)
    assert engine.n_panels > len(shares)
    assert "panels, one after the other" in engine.notice
    got = everything(Likelihood(engine, BOUNDS), problem)
    for mine, theirs in zip(got, lone, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_panels_become_smaller_where_more_is_asked(
    open_device: OpenDevice, problem: Problem, lone: list[np.ndarray]
) -> None:
    session = open_device(problem.patterns, problem.categories)
    limit = 60 * session.layout.cla_bytes(problem.patterns.n_patterns)
    engine = panels(session, problem, (1.0,), limit, slots=5)
    assert engine.n_panels == 1
    got = everything(Likelihood(engine, BOUNDS), problem)
    for mine, theirs in zip(got, lone, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_limit_that_holds_no_chunk_is_an_error(open_device: OpenDevice, problem: Problem) -> None:
    session = open_device(problem.patterns, problem.categories)
    with pytest.raises(DeviceError, match="do not fit into") as raised:
        panels(session, problem, (1.0,), 1000)
    assert "--memory-limit" in (raised.value.hint or "")


def test_a_sum_that_is_no_number_is_an_error(open_native: OpenDevice, problem: Problem) -> None:
    session = open_native(problem.patterns, problem.categories)
    engine = Likelihood(panels(session, problem, (1.0, 1.0)), BOUNDS)
    tree = problem.tree.copy()
    tree.lengths[0] = np.nan
    with pytest.raises(NumericalError):
        engine.log_likelihoods([tree], [problem.model])


@pytest.mark.parametrize("chunks", [1, 31, 32, 33, 100])
def test_sums_in_order(chunks: int) -> None:
    """32 strided sums, added one after the other."""
    partials = (
        np.random.default_rng(chunks).normal(size=(3, chunks)) * 10.0 ** np.arange(3)[:, None]
    )
    for row, total in zip(partials, ordered_sum(partials), strict=True):
        strided = [reduce(add, row[v::32].tolist(), 0.0) for v in range(32)]
        assert total == reduce(add, strided)


def test_trees_beside_a_tree_do_not_change_its_bits(
    open_device: OpenDevice, problem: Problem
) -> None:
    """More CLAs make smaller tiles."""
    engine = Likelihood(open_device(problem.patterns, problem.categories), BOUNDS)
    alone = engine.log_likelihoods([problem.tree], [problem.model])
    many = engine.log_likelihoods([problem.tree] * 30, [problem.model] * 30)
    np.testing.assert_array_equal(many, alone[0])
    assert engine.derivatives(problem.tree, problem.model)[0] == alone[0]
