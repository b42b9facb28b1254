"""Which engine a run gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree import engines
from mltree.device.discovery import choose_device, choose_layout
from mltree.device.panels import PanelEngine
from mltree.device.session import Session
from mltree.device.speed import measured_speeds
from mltree.errors import DeviceError, InputError
from mltree.likelihood.api import Likelihood
from mltree.search.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    return make_problem(9, 1000)


def lnl(engine: engines.Engine, problem: Problem) -> float:
    return float(Likelihood(engine, BOUNDS).log_likelihoods([problem.tree], [problem.model])[0])


@pytest.mark.parametrize(
    ("device", "limit", "panels"),
    [("0,0", None, 2), ("0", 3_000_000, 2), ("0, 0", 3_000_000, 2)],
)
def test_panels(problem: Problem, device: str, limit: int | None, panels: int) -> None:
    arguments = (problem.patterns, problem.categories, BOUNDS)
    lone = engines.open_engine(*arguments, "0", mixed=False)
    assert isinstance(lone, Session)
    assert engines.panel_notice(lone) is None
    engine = engines.open_engine(*arguments, device, mixed=False, memory_limit=limit)
    assert isinstance(engine, PanelEngine)
    if choose_device("0").is_cpu:
        assert engine.n_panels == panels
    assert engines.panel_notice(engine)
    assert engines.is_exact(engine)
    assert lnl(engine, problem) == lnl(lone, problem)


def test_all_devices(problem: Problem) -> None:
    engine = engines.open_exact(problem.patterns, problem.categories, BOUNDS, "all")
    assert np.isfinite(lnl(engine, problem))
    with pytest.raises(DeviceError, match="no device matches"):
        engines.open_engine(problem.patterns, problem.categories, BOUNDS, "0,nowhere", mixed=False)


def test_speeds_of_unlike_devices_are_measured(problem: Problem) -> None:
    device = choose_device("0")
    alphabet = problem.patterns.alphabet
    size = (alphabet.n_states, alphabet.n_codes, problem.categories, 1000)
    layout = choose_layout(device, *size)
    assert measured_speeds([device] * 3, [layout] * 3, problem.patterns) == [1.0] * 3
    other = replace(device, name="another")
    speeds = measured_speeds([device, other], [layout, layout], problem.patterns)
    assert 0 < speeds[0] / speeds[1] < np.inf
    assert speeds != [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("4K", 4096), ("1.5G", 3 << 29), ("2MiB", 2 << 20), ("1 gb", 1 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert engines.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "much", "-1G", "0", "1X", "0.5", "1_0", "٣G", "9" * 400, "9000000T"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(InputError, match="size of memory"):
        engines.parse_size(text)


@pytest.mark.parametrize("trees", [None, 8])
def test_the_memory_plan_is_what_is_taken(problem: Problem, trees: int | None) -> None:
    arguments = (problem.patterns, problem.categories)
    plan = engines.memory_plan(*arguments, "0", trees=trees)
    assert plan is not None
    engine = engines.open_engine(*arguments, BOUNDS, "0", mixed=False, trees=trees)
    assert isinstance(engine, Session)
    likelihood = Likelihood(engine, BOUNDS)
    if trees is None:
        likelihood.derivatives(problem.tree, problem.model)
    else:
        several = [problem.tree.copy() for _ in range(plan.trees)]
        found = Neighbourhood(several)
        likelihood.refine(several, [problem.model] * plan.trees, found.scan(found.extend(9)))
    size = engine.memory.size
    assert size("cla") + size("scaler") == plan.clas + plan.near
    matrices = size("pmatrix") + engine.layout.tip_lookup * size("tip_pmatrix")
    assert plan.matrices / 2 < matrices <= plan.matrices
    assert abs(size("tips") - plan.tips) < problem.patterns.n_tips * engine.layout.vw
    assert plan.available == choose_device("0").memory
    both = engines.memory_plan(*arguments, "0,0")
    assert both is not None
    assert both.available == 2 * plan.available


def test_the_plan_keeps_to_a_limit(problem: Problem) -> None:
    """Fewer trees side by side, then fewer insertions, then panels."""
    arguments = (problem.patterns, problem.categories)
    plans = []
    for limit in (64_000_000, 16_000_000, 6_000_000, 2_000_000):
        plan = engines.memory_plan(*arguments, "0", trees=8, memory_limit=limit)
        assert plan is not None
        assert plan.clas + plan.near <= limit
        plans.append(plan)
        engine = engines.open_engine(
            *arguments, BOUNDS, "0", mixed=False, trees=8, memory_limit=limit
        )
        assert isinstance(engine, PanelEngine) == (limit == 2_000_000)
    if choose_device("0").is_cpu:
        assert [plan.trees for plan in plans] == [5, 5, 1, 1]


def test_the_reference_engine_has_no_plan(problem: Problem) -> None:
    assert engines.memory_plan(problem.patterns, 4, engines.REFERENCE) is None


def test_bandwidths_of_devices_add_up(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engines.open_engine(problem.patterns, problem.categories, BOUNDS, "0", mixed=False)
    monkeypatch.setattr(engines, "known_bandwidth", lambda device: 2.0)
    assert isinstance(engine, Session)
    spent = engine.breakdown()
    assert engines.copy_bandwidth(spent) == 2.0
    assert engines.copy_bandwidth(replace(spent, devices=())) is None
