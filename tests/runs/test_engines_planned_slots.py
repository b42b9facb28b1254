"""Replicate slots, planned: as many as work or room allow, within the memory that is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mltree.data.patterns import drawn, usual_sizes
from mltree.device.discovery import REFERENCE
from mltree.device.memory import CPU_BATCH, CPU_SPREAD
from mltree.device.session import Session
from mltree.device.shards import ShardedEngine
from mltree.fit.settings import REPLICATE
from mltree.program.cases import Case
from mltree.runs.demand import slots_of
from mltree.runs.engines import EnginePlan, Engines, Resources, Workload
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

MakeProblem = Callable[..., "Problem"]

BOUNDS = (1e-6, 100.0)
TAXA, PATTERNS = 12, 400
STARTS = REPLICATE.parsimony_starts


@pytest.fixture
def problem(make_problem: MakeProblem) -> Problem:
    return make_problem(TAXA, PATTERNS)


def engines_of(
    problem: Problem, device: str = "0", limit: int | None = None, **others: Any
) -> Engines:
    resources = Resources(device=device, memory_limit=limit)
    work = Workload.of_patterns(problem.patterns, problem.categories, BOUNDS, **others)
    return Engines(resources, work)


def planned(problem: Problem, device: str = "0", limit: int | None = None) -> EnginePlan:
    (plan,) = engines_of(problem, device, limit).plans
    return plan


def test_slots_have_the_blocks_and_chunks_of_the_whole(problem: Problem) -> None:
    whole = planned(problem)
    for count in (1, 2, 30):
        plan = whole.with_replicate_slots(problem.patterns, [250], count, STARTS)
        assert plan.layouts[0].vw == whole.layouts[0].vw
        engine = plan.open_replicate_slots(problem.patterns).engine
        assert isinstance(engine, Session)
        assert engine.parts == plan.replicate_slots <= count
        chunks = whole.layouts[0].chunk_blocks(PATTERNS)
        assert engine._chunk_blocks == chunks


def test_parts_have_as_many_chunks_whatever_was_drawn(make_problem: MakeProblem) -> None:
    """Some replicates have a chunk's patterns of the first part, others more."""
    problem = make_problem(TAXA, PATTERNS + 30)
    parts = replace(problem.patterns, ends=(PATTERNS, PATTERNS + 30), weights=np.ones(430))
    whole = planned(replace(problem, patterns=parts))
    layout = whole.layouts[0]
    chunk = layout.vw * layout.chunk_blocks(PATTERNS + 30)
    few, many = usual_sizes(parts)[0] - 60, usual_sizes(parts)[0]
    counts = set()
    for drawn_here in (few, many):
        sizes = whole.with_replicate_slots(parts, [drawn_here, 19], 1, STARTS).slot_sizes
        assert sizes[0] >= drawn_here
        assert sizes[1] in (19, 30 // chunk * chunk + 1)
        counts.add(-(-sizes[0] // chunk))
    assert len(counts) == 1
    assert -(-few // chunk) < -(-many // chunk) in counts


def test_there_are_as_many_as_work_suits(problem: Problem) -> None:
    """On a CPU what is in the caches; and no more than fit in what the user allows."""
    whole, few = planned(problem), planned(problem, limit=1 << 22)
    one = STARTS * slots_of(TAXA) * whole.layouts[0].cla_bytes(250)
    assert whole.with_replicate_slots(problem.patterns, [250], 1, STARTS).replicate_slots == 1
    for plan, limit in ((whole, CPU_SPREAD * CPU_BATCH), (few, 1 << 22)):
        if not plan.devices[0].is_cpu:
            continue
        count = plan.with_replicate_slots(problem.patterns, [250], 1000, STARTS).replicate_slots
        assert 0.7 * limit < count * one <= limit


@pytest.mark.parametrize("count", [1, 100])
def test_what_is_taken_was_planned(problem: Problem, count: int) -> None:
    """By searches in all slots, buffers that hold no CLAs among it."""
    plan = planned(problem).with_replicate_slots(problem.patterns, [260], count, 1)
    memory = plan.memory
    assert memory is not None
    assert memory.trees == plan.replicate_slots
    used = plan.open_replicate_slots(problem.patterns)
    trees = [tree.copy() for tree in problem.trees * plan.replicate_slots]
    cases = [Case((problem.model,), first_part=slot) for slot in range(plan.replicate_slots)]
    rng = np.random.default_rng(1)
    for slot in range(plan.replicate_slots):
        weights = np.where(rng.permutation(PATTERNS) < 250, 1.0, 0.0)
        used.load_patterns(slot, drawn(problem.patterns, weights, [260]))
    around = Neighbourhood(trees)
    scan = around.scan(around.extend(2))
    assert used.trees_at_once(trees, cases) == plan.replicate_slots
    used.insertions(trees, cases, scan)
    used.refine(trees, cases, scan)
    engine = used.engine
    assert isinstance(engine, Session)
    size = {name: engine.memory.size(name) for name in ("cla", "scaler", "tips")}
    assert size["cla"] + size["scaler"] <= 1.05 * (memory.clas + memory.near)
    assert size["tips"] == pytest.approx(memory.tips, rel=0.05)
    used.close()
    assert engine.memory.size("cla") < 1000
    lnl = used.log_likelihoods(trees[:1], cases[:1])
    assert np.isfinite(lnl).all()


def test_a_run_plans_for_what_takes_most(problem: Problem) -> None:
    """A lone tree on all patterns, or the replicates that follow."""
    alone, many = engines_of(problem).memory, engines_of(problem, replicates=100).memory
    assert alone is not None
    assert many is not None
    assert many.clas + many.near > alone.clas + alone.near
    assert many.trees > 1
    search = engines_of(problem, trees=60)
    assert engines_of(problem, trees=60, replicates=1).memory == search.memory


def test_who_has_none(problem: Problem) -> None:
    """Several state counts, and the reference, which then has all trees side by side."""
    assert engines_of(problem).has_replicate_slots
    shapes = ((problem.categories, 1),) * 2
    joint = Workload(groups=(problem.patterns,) * 2, shapes=shapes, bounds=BOUNDS)
    assert not Engines(Resources(device="0"), joint).has_replicate_slots
    reference = engines_of(problem, REFERENCE, replicates=9)
    assert not reference.has_replicate_slots
    assert reference.plans[0].trees == 9 * STARTS


@pytest.mark.parametrize(("device", "limit"), [("0,0", None), ("0", 2_200_000)])
def test_shards_have_them_too(make_problem: MakeProblem, device: str, limit: int | None) -> None:
    """Of several devices, or of one whose memory holds no tree: one by one there."""
    problem = make_problem(TAXA, 900)
    plan = planned(problem, device, limit).with_replicate_slots(problem.patterns, [560], 20, STARTS)
    assert isinstance(plan.open_replicate_slots(problem.patterns).engine, ShardedEngine)
    assert (plan.replicate_slots == 1) == (limit is not None)
