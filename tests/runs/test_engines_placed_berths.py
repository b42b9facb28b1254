"""Berths, planned: as many as there is work or room for, within what was said of their memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.data.patterns import drawn, usual_sizes
from mltree.device.discovery import REFERENCE
from mltree.device.memory import CPU_BATCH
from mltree.device.panels import PanelEngine
from mltree.device.session import Session
from mltree.fit.settings import REPLICATE
from mltree.program.cases import Case
from mltree.runs.demand import slots_of
from mltree.runs.engines import (
    JointPlacement,
    Placement,
    Resources,
    can_have_berths,
    place,
    plan_berths,
    with_replicates,
)
from mltree.treesearch.scoring import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

MakeProblem = Callable[..., "Problem"]

BOUNDS = (1e-6, 100.0)
TAXA, PATTERNS = 12, 400
STARTS = REPLICATE.parsimony_starts


@pytest.fixture
def problem(make_problem: MakeProblem) -> Problem:
    return make_problem(TAXA, PATTERNS)


def placed(problem: Problem, device: str = "0", limit: int | None = None) -> Placement:
    resources = Resources(device=device, memory_limit=limit)
    return place(resources, problem.patterns, problem.categories, BOUNDS)


def test_berths_have_the_blocks_and_chunks_of_the_whole(problem: Problem) -> None:
    whole = placed(problem)
    for count in (1, 2, 30):
        plan = plan_berths(whole, problem.patterns, [250], count, STARTS)
        assert plan.placement.layouts[0].vw == whole.layouts[0].vw
        engine = plan.open(problem.patterns).engine
        assert isinstance(engine, Session)
        assert engine.parts == plan.count <= count
        chunks = whole.layouts[0].chunk_blocks(PATTERNS)
        assert engine._chunk_blocks == chunks


def test_parts_have_as_many_chunks_whatever_was_drawn(make_problem: MakeProblem) -> None:
    """Some replicates have a chunk's patterns of the first part, others more."""
    problem = make_problem(TAXA, PATTERNS + 30)
    parts = replace(problem.patterns, ends=(PATTERNS, PATTERNS + 30), weights=np.ones(430))
    whole = placed(replace(problem, patterns=parts))
    layout = whole.layouts[0]
    chunk = layout.vw * layout.chunk_blocks(PATTERNS + 30)
    few, many = usual_sizes(parts)[0] - 60, usual_sizes(parts)[0]
    counts = set()
    for drawn_here in (few, many):
        sizes = plan_berths(whole, parts, [drawn_here, 19], 1, STARTS).sizes
        assert sizes[0] >= drawn_here
        assert sizes[1] in (19, 30 // chunk * chunk + 1)
        counts.add(-(-sizes[0] // chunk))
    assert len(counts) == 1
    assert -(-few // chunk) < -(-many // chunk) in counts


def test_there_are_as_many_as_work_suits(problem: Problem) -> None:
    """On a CPU what is in the caches; and no more than fit in what the user allows."""
    whole, few = placed(problem), placed(problem, limit=1 << 22)
    one = STARTS * slots_of(TAXA) * whole.layouts[0].cla_bytes(250)
    assert plan_berths(whole, problem.patterns, [250], 1, STARTS).count == 1
    for placement, limit in ((whole, CPU_BATCH), (few, 1 << 22)):
        if not placement.devices[0].is_cpu:
            continue
        count = plan_berths(placement, problem.patterns, [250], 1000, STARTS).count
        assert 0.7 * limit < count * one <= limit


@pytest.mark.parametrize("count", [1, 100])
def test_what_is_taken_was_planned(problem: Problem, count: int) -> None:
    """By searches in all berths, buffers that hold no CLAs among it."""
    plan = plan_berths(placed(problem), problem.patterns, [260], count, 1)
    memory = plan.placement.memory
    assert memory is not None
    assert memory.trees == plan.count
    used = plan.open(problem.patterns)
    trees = [tree.copy() for tree in problem.trees * plan.count]
    cases = [Case((problem.model,), first_part=berth) for berth in range(plan.count)]
    rng = np.random.default_rng(1)
    for berth in range(plan.count):
        weights = np.where(rng.permutation(PATTERNS) < 250, 1.0, 0.0)
        used.load_patterns(berth, drawn(problem.patterns, weights, [260]))
    around = Neighbourhood(trees)
    scan = around.scan(around.extend(2))
    assert used.trees_at_once(trees, cases) == plan.count
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
    one = JointPlacement((placed(problem),))
    groups = [problem.patterns]
    alone, many = one.memory, with_replicates(one, groups, 100).memory
    assert alone is not None
    assert many is not None
    assert many.clas + many.near > alone.clas + alone.near
    assert many.trees > 1
    search = JointPlacement((replace(one.each[0], trees=60),))
    assert with_replicates(search, groups, 1).memory == search.memory


def test_who_has_none(problem: Problem) -> None:
    """Several state counts, and the reference, which then has all trees side by side."""
    lone, joint = JointPlacement((placed(problem),)), JointPlacement((placed(problem),) * 2)
    assert can_have_berths(lone, [problem.patterns])
    assert not can_have_berths(joint, [problem.patterns] * 2)
    reference = JointPlacement((placed(problem, REFERENCE),))
    assert not can_have_berths(reference, [problem.patterns])
    assert with_replicates(reference, [problem.patterns], 9).each[0].trees == 9 * STARTS


@pytest.mark.parametrize(("device", "limit"), [("0,0", None), ("0", 2_200_000)])
def test_panels_have_them_too(make_problem: MakeProblem, device: str, limit: int | None) -> None:
    """Of several devices, or of one whose memory holds no tree: one by one there."""
    problem = make_problem(TAXA, 900)
    plan = plan_berths(placed(problem, device, limit), problem.patterns, [560], 20, STARTS)
    assert isinstance(plan.open(problem.patterns).engine, PanelEngine)
    assert (plan.count == 1) == (limit is not None)
