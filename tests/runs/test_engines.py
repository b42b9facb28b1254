"""Where a run computes: what is planned, what is shown, and that it is what is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mltree.device import discovery
from mltree.device.discovery import REFERENCE, choose_device, find_devices
from mltree.device.session import Session
from mltree.device.shards import ShardedEngine
from mltree.device.worker import BUILDS
from mltree.program.engine import Engine, ReferenceEngine
from mltree.runs import engines as module
from mltree.runs.demand import (
    BUILDER_BYTES,
    COMPILING_BYTES,
    GPU_BUILDER_BYTES,
    LAUNCHED_BYTES,
    RowCounts,
)
from mltree.runs.engines import EnginePlan, Engines, Resources, Workload
from mltree.system.errors import DeviceError
from mltree.system.events import Busy, DeviceChosen, Event, MemoryPlanned, Notice
from mltree.system.ranks import LONE, Ranks
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    return make_problem(9, 1000)


def planned(problem: Problem, trees: int | None = None, **resources: Any) -> Engines:
    patterns, categories = problem.patterns, problem.categories
    work = Workload.of_patterns(patterns, categories, BOUNDS, trees)
    return Engines(Resources(**{"device": "0", **resources}), work)


def plan_of(engines: Engines) -> EnginePlan:
    (plan,) = engines.plans
    return plan


def lnl(engines: Engines, problem: Problem) -> float:
    return float(engines.likelihood.log_likelihoods([problem.tree], [problem.case])[0])


def layouts_of(engine: Engine) -> set[object]:
    if isinstance(engine, ShardedEngine):
        return {shard.layout for shard in engine._group.shards}
    return {engine.layout} if isinstance(engine, Session) else set()


def test_ranks_share_the_memory_of_a_device(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is planned, and what is opened; the same comes out."""
    lone = planned(problem, 40, memory_limit=1 << 23)
    monkeypatch.setattr(discovery, "local_rank", lambda: (1, 2))
    shared = planned(problem, 40, memory_limit=1 << 23)
    assert lone.memory is not None
    assert shared.memory is not None
    assert shared.memory.clas + shared.memory.near <= 1 << 22 < lone.memory.clas + lone.memory.near
    engine, most = shared.likelihood.engine, plan_of(shared).room.most
    assert engine.room.most == most <= plan_of(lone).room.most // 2
    assert lnl(shared, problem) == lnl(lone, problem)


def test_ranks_get_a_share_of_much_alone(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plans the memory of its own."""
    three = Ranks()
    three.size = 3
    resources, size = Resources(device="0"), (problem.categories, BOUNDS)
    among_three = Engines(resources, Workload.of_patterns(problem.patterns, *size, among=three))
    assert plan_of(among_three).among is LONE
    monkeypatch.setattr(discovery, "SHARE_OF_CORE", 1)
    monkeypatch.setattr(discovery, "FULL_UNIT", 2)
    lone = plan_of(planned(problem))
    among_three = Engines(resources, Workload.of_patterns(problem.patterns, *size, among=three))
    assert among_three.is_shared
    shared = plan_of(among_three)
    assert lone.among is LONE
    assert shared.among is three
    assert shared.is_sharded
    assert not lone.is_sharded
    assert shared.memory is not None
    assert lone.memory is not None
    assert shared.memory.clas == pytest.approx(lone.memory.clas / 3, rel=0.1)
    parted = replace(problem.patterns, ends=(400, 1000))
    work = Workload.of_patterns(parted, *size, apart=True, among=three)
    assert not Engines(resources, work).is_shared, "trees of single parts"


def test_planning_takes_nothing(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: object, **__: object) -> None:
        pytest.fail("opened")

    for name in ("Session", "ShardedEngine", "ReferenceEngine", "measured_speeds"):
        monkeypatch.setattr(f"mltree.runs.engines.{name}", taken)
    for device in ("0", "0,0", "all", REFERENCE):
        told: list[Event] = []
        planned(problem, device=device).show(told.append)
        assert {type(event) for event in told} <= {MemoryPlanned, Notice}
        assert any(isinstance(event, MemoryPlanned) for event in told) == (device != REFERENCE)


@pytest.mark.parametrize(
    "resources",
    [
        {}, {"mixed": True}, {"vw": 8}, {"memory_limit": 3_000_000}, {"device": "0,0"},
        {"device": "all", "mixed": True}, {"device": REFERENCE},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("trees", [None, 8])
def test_what_is_opened_is_what_was_planned(
    problem: Problem, trees: int | None, resources: dict[str, Any]
) -> None:
    told: list[Event] = []
    engines = planned(problem, trees, **resources)
    engine = engines.open(told.append).engine
    assert isinstance(engine, ShardedEngine) == plan_of(engines).is_sharded
    assert isinstance(engine, ReferenceEngine) == (not engines.devices)
    assert layouts_of(engine) == set(engines.layouts)
    assert engines.is_exact == (not resources.get("mixed", False))
    told = [event for event in told if not isinstance(event, Busy)]  # where nothing is built yet
    assert told[0] == DeviceChosen(engine.name)
    shares = [event.text for event in told if isinstance(event, Notice)]
    assert shares == ([engine.notice] if isinstance(engine, ShardedEngine) else [])


@pytest.mark.parametrize(
    ("device", "limit", "slices"),
    [("0,0", None, 2), ("0", 3_000_000, 2), ("0, 0", 3_000_000, 2)],
)
def test_shards_change_no_bit(
    problem: Problem, device: str, limit: int | None, slices: int
) -> None:
    lone, shared = planned(problem), planned(problem, device=device, memory_limit=limit)
    assert not plan_of(lone).is_sharded
    assert plan_of(shared).is_sharded
    if choose_device("0").is_cpu:
        engine = shared.likelihood.engine
        assert isinstance(engine, ShardedEngine)
        assert engine.n_slices == slices
    assert lnl(shared, problem) == lnl(lone, problem)


def test_other_patterns_are_refused(problem: Problem, make_problem: Callable[..., Problem]) -> None:
    with pytest.raises(ValueError, match="other patterns"):
        plan_of(planned(problem)).open(make_problem(9, 999).patterns)


def test_what_cannot_be_planned(problem: Problem) -> None:
    with pytest.raises(DeviceError, match="no device matches"):
        planned(problem, device="0,nowhere")
    with pytest.raises(DeviceError, match="no blocks of 3 patterns"):
        planned(problem, vw=3)


def test_a_search_that_goes_on_keeps_its_layouts(problem: Problem) -> None:
    size = (problem.patterns, problem.categories, BOUNDS)
    first = planned(problem)
    ((key, (vw, rows)),) = first.kept.items()
    assert (vw, rows) == (first.layouts[0].vw, first.layouts[0].rows)
    other = next(width for width in (8, 16) if width != vw)
    kept = {key: (other, rows), "another device's": (8, 1)}
    again = Engines(Resources(device="0"), Workload.of_patterns(*size, kept=kept))
    assert again.layouts[0].vw == other
    assert again.kept == kept
    given = Engines(Resources(device="0", vw=vw), Workload.of_patterns(*size, kept=kept))
    assert given.layouts[0].vw == vw
    assert given.kept == kept, "the width was no choice of the device's"


def test_exact_scores(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = planned(problem, mixed=True, vw=8, trees=5, memory_limit=10**9)
    exact = mixed.scoring
    assert exact.is_exact
    assert exact.devices == mixed.devices
    assert exact.resources == Resources(device="0", memory_limit=10**9)
    reference = lnl(planned(problem, device=REFERENCE), problem)
    assert lnl(exact, problem) == pytest.approx(reference, rel=1e-9)
    poor = [replace(device, has_fp64=False) for device in find_devices()]
    monkeypatch.setattr(discovery, "find_devices", lambda: poor)
    mixed = planned(problem)
    assert not mixed.is_exact
    told: list[Event] = []
    assert np.isfinite(float(mixed.open(told.append).engine.room.most))
    assert told[-1] == Notice("the device has no fp64: computes in mixed precision")
    assert mixed.scoring.devices == ()


@pytest.mark.parametrize("trees", [None, 8])
def test_the_memory_plan_is_what_is_taken(problem: Problem, trees: int | None) -> None:
    engines = planned(problem, trees)
    plan = engines.memory
    assert plan is not None
    likelihood = engines.likelihood
    engine = likelihood.engine
    assert isinstance(engine, Session)
    if trees is None:
        likelihood.derivatives(problem.tree, problem.case)
    else:
        several = [problem.tree.copy() for _ in range(plan.trees)]
        found = Neighbourhood(several)
        likelihood.refine(several, [problem.case] * plan.trees, found.scan(found.extend(9)))
    size = engine.memory.size
    assert size("cla") + size("scaler") == plan.clas + plan.near
    matrices = size("pmatrix") + engine.layout.tip_lookup * size("tip_pmatrix")
    assert plan.matrices / 2 < matrices <= plan.matrices
    assert abs(size("tips") - plan.tips) < problem.patterns.n_tips * engine.layout.vw
    assert plan.available == choose_device("0").memory
    both = planned(problem, device="0,0").memory
    assert both is not None
    assert both.available == 2 * plan.available


def test_the_plan_keeps_to_a_limit(problem: Problem) -> None:
    """Fewer trees side by side, then fewer insertions, then slices."""
    plans = []
    for limit in (64_000_000, 16_000_000, 6_000_000, 2_000_000):
        engines = planned(problem, trees=8, memory_limit=limit)
        plan = engines.memory
        assert plan is not None
        assert plan.clas + plan.near <= limit
        plans.append(plan)
        assert plan_of(engines).is_sharded == (limit == 2_000_000)
    if choose_device("0").is_cpu:
        assert [plan.trees for plan in plans] == [5, 5, 1, 1]


def test_the_reference_takes_no_device(problem: Problem) -> None:
    reference = planned(problem, device=REFERENCE)
    assert reference.memory is None
    assert reference.is_exact
    assert not plan_of(reference).is_sharded


def test_the_plan_has_the_rows_of_trees_that_are_tested(problem: Problem) -> None:
    """On the device, and fetched."""
    engines = planned(problem)
    plans = [replace(plan_of(engines), rows=RowCounts(sites=count)).memory for count in (0, 1000)]
    assert plans[0] is not None
    assert plans[1] is not None
    bytes_of_rows = 8 * 1000 * problem.patterns.n_patterns
    assert (plans[0].sites, plans[1].sites) == (0, bytes_of_rows)
    assert plans[1].on_devices - plans[0].on_devices == bytes_of_rows
    is_cpu = engines.devices[0].is_cpu
    assert plans[1].process - plans[0].process == (1 + is_cpu) * bytes_of_rows


def test_what_kernels_take_is_planned_until_they_run(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on it is in the memory that the process has taken already."""
    engines, process = planned(problem, trees=4), []
    monkeypatch.setattr(module, "resident_bytes", lambda: 1 << 28)
    for ran in (False, True):
        monkeypatch.setattr(module, "has_programs", lambda ran=ran: ran)
        assert engines.memory is not None
        process.append(engines.memory.process)
    assert process[0] - process[1] == LAUNCHED_BYTES


def test_the_plan_has_what_compiles_and_who_else_is_there(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = planned(problem, trees=4)
    plans = []
    for built, number, ranks in ((True, 0, 1), (False, 2, 1), (True, 0, 3)):
        monkeypatch.setattr(module, "is_built", lambda *_, built=built: built)
        monkeypatch.setattr(BUILDS, "processes", lambda *_, number=number: number)
        monkeypatch.setattr(module, "local_rank", lambda ranks=ranks: (0, ranks))
        plan = engines.memory
        assert plan is not None
        plans.append(plan)
    warm, cold, shared = plans
    is_cpu = engines.devices[0].is_cpu
    assert warm.others == 0
    assert cold.process - warm.process == is_cpu * COMPILING_BYTES
    assert cold.others == 2 * (BUILDER_BYTES if is_cpu else GPU_BUILDER_BYTES)
    assert shared.others == 2 * shared.process == 2 * warm.process
