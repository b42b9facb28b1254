"""A device beyond its arithmetic: the same bits however it is run, and faults that are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.device import build, worker
from mltree.device.layout import PIECE, Layout, cpu_layout, gpu_layout, longest_walk
from mltree.device.session import Session
from mltree.device.worker import Worker
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program import builders
from mltree.program.contract import Function
from mltree.program.ops.sites import Sites
from mltree.system.errors import DeviceError, WorkerFault
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

OpenDevice = Callable[..., Session]
MakeProblem = Callable[..., "Problem"]
MakeLikelihood = Callable[..., TreeLikelihood]

NO_CONTROL = np.zeros((0, 8))


def everything(engine: TreeLikelihood, problem: Problem) -> list[np.ndarray]:
    """All that a search asks for, of two trees side by side."""
    trees, cases = [tree.copy() for tree in problem.trees], problem.cases
    found = Neighbourhood(trees[0])
    scan = found.scan(found.extend(4))
    results: list[np.ndarray] = [
        engine.log_likelihoods(trees, cases),
        engine.site_log_likelihoods(trees[0], cases[0]),
        *engine.derivatives(trees[0], cases[0])[1:],
        engine.insertions(trees, cases, scan),
        *engine.refine(trees, cases, found.scan(np.arange(0, found.size, 4))),
        engine.join_lengths(trees, cases, found.prunes),
        engine.smooth(trees, cases, 1e-3),
    ]
    return results + [tree.lengths for tree in trees]


def assert_same_bits(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def problem(make_problem: MakeProblem) -> Problem:
    """Enough patterns for several chunks of every layout."""
    return make_problem(7, 1100, trees=2, alpha=0.6, invariant=0.1, categories=4)


def test_the_same_bits_again_and_by_either_dispatch(
    open_device: OpenDevice, likelihood: MakeLikelihood, problem: Problem
) -> None:
    first = everything(likelihood(open_device, problem), problem)
    for dispatch in ("launch", "persistent"):
        engine = likelihood(open_device, problem, dispatch=dispatch)
        assert_same_bits(everything(engine, problem), first)
        assert_same_bits(everything(engine, problem), first)


def test_a_program_runs_again_after_buffers_have_grown(
    open_native: OpenDevice, likelihood: MakeLikelihood, problem: Problem
) -> None:
    """Its arguments are set anew, though they are taken for known where nothing has moved."""
    engine = likelihood(open_native, problem)
    one, many = problem.trees[:1], problem.trees * 20
    first = engine.log_likelihoods(one, problem.cases[:1])
    again = engine.log_likelihoods(one, problem.cases[:1])
    engine.derivatives(problem.trees[1], problem.cases[1])
    engine.log_likelihoods(many, problem.cases * 20)
    np.testing.assert_array_equal(engine.log_likelihoods(one, problem.cases[:1]), first)
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("groups", [1, 2, 7])
def test_the_same_bits_with_any_number_of_work_groups(
    open_device: OpenDevice,
    likelihood: MakeLikelihood,
    problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
    groups: int,
) -> None:
    expected = everything(likelihood(open_device, problem, dispatch="launch"), problem)
    monkeypatch.setattr(Worker, "most_groups", groups)
    engine = likelihood(open_device, problem, dispatch="launch")
    assert_same_bits(everything(engine, problem), expected)


def test_the_same_bits_with_room_for_few_stacks(
    open_device: OpenDevice,
    likelihood: MakeLikelihood,
    problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Levels of walks that fit no local memory: under C60 those of all groups take 77 GiB."""
    expected = everything(likelihood(open_device, problem), problem)
    monkeypatch.setattr(worker, "MOST_LOCAL", 0)
    taken = []
    for share in (worker.STACK_SHARE, 0.0):
        monkeypatch.setattr(worker, "STACK_SHARE", share)
        engine = likelihood(open_device, problem, dispatch="launch")
        assert_same_bits(everything(engine, problem), expected)
        taken.append(engine.engine.engine.memory.size("stack"))
    assert taken[1] < taken[0], "a lone work-group's"


def test_order_of_patterns_only_moves_the_last_bits(
    open_device: OpenDevice, likelihood: MakeLikelihood, problem: Problem
) -> None:
    """Padding lanes weigh nothing: one pattern more or less changes lnL by just that pattern."""
    sites = likelihood(open_device, problem).site_log_likelihoods(problem.tree, problem.case)
    lnl = likelihood(open_device, problem).log_likelihoods([problem.tree], [problem.case])[0]
    assert sites.shape == problem.patterns.weights.shape
    assert lnl == pytest.approx(problem.patterns.weights @ sites, rel=1e-12)


def test_little_memory_means_batches(
    open_device: OpenDevice, likelihood: MakeLikelihood, problem: Problem
) -> None:
    plenty = likelihood(open_device, problem)
    expected = plenty.log_likelihoods(problem.trees, problem.cases)
    slot = open_device(problem.patterns, problem.categories).layout.cla_bytes(1100)
    little = likelihood(open_device, problem, memory_limit=20 * slot)
    assert little.engine.room.most == 20
    got = little.log_likelihoods(problem.trees, problem.cases)
    np.testing.assert_array_equal(got, expected)
    found = Neighbourhood(problem.tree)
    arguments = ([problem.tree], [problem.case], found.scan(found.extend(3)))
    little = likelihood(open_device, problem, memory_limit=30 * slot)
    for mine, theirs in zip(little.refine(*arguments), plenty.refine(*arguments), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_times_are_told_by_function(
    open_native: OpenDevice, likelihood: MakeLikelihood, problem: Problem
) -> None:
    session = open_native(problem.patterns, problem.categories)
    engine = likelihood(lambda *_: session, problem)
    everything(engine, problem)
    times = session.timings()
    assert set(times) == set(Function)
    assert all(seconds >= 0 for seconds in times.values())
    for function in (Function.NEWVIEW, Function.DERIVE, Function.SCAN, Function.TRIPLET):
        assert times[function] > 0, function


def test_a_buffer_that_does_not_fit_is_a_device_error(
    open_native: OpenDevice, problem: Problem
) -> None:
    session = open_native(problem.patterns, problem.categories)
    with pytest.raises(DeviceError, match="cannot allocate .* MiB for cla") as raised:
        session.memory.reserve("cla", 1 << 60)
    assert raised.value.hint
    program = builders.traversal([problem.tree])
    session.load_models(problem.models)
    assert np.isfinite(session.run(program, problem.tree.lengths, NO_CONTROL).sums).all()


def test_a_build_that_fails_is_a_device_error(
    open_native: OpenDevice,
    problem: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = open_native(problem.patterns, problem.categories)
    monkeypatch.setattr(build, "source_folder", lambda: tmp_path)
    with pytest.raises(DeviceError, match="the scan worker does not compile") as raised:
        build.build_worker(session._context, session.device, "scan", session.layout)
    assert "layout VW=" in (raised.value.hint or "")


def test_an_unknown_op_is_a_worker_fault(open_native: OpenDevice, problem: Problem) -> None:
    session = open_native(problem.patterns, problem.categories)
    session.load_models(problem.models)
    program = builders.traversal([problem.tree])
    program.pieces[0][4] = 99
    with pytest.raises(WorkerFault, match=r"stopped in stage 1 \(Sites\): unknown_op"):
        session.run(program, problem.tree.lengths, NO_CONTROL)
    good = session.run(builders.traversal([problem.tree]), problem.tree.lengths, NO_CONTROL)
    assert np.isfinite(good.sums).all()


def test_a_barrier_that_cannot_complete_is_a_worker_fault(
    open_native: OpenDevice, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More work-groups than the device holds at once wait for each other, but not for ever."""
    monkeypatch.setattr(build, "SPIN_LIMIT", 1 << 12)
    session = open_native(problem.patterns, problem.categories, dispatch="persistent")
    session.load_models(problem.models)
    program = builders.traversal([problem.tree])
    expected = session.run(program, problem.tree.lengths, NO_CONTROL).sums
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "resident", lambda own, _: own.most_groups)
        crowded = builders.traversal([problem.tree])
        patch.setattr(Sites, "jobs", lambda *_: 1 << 20)
        with pytest.raises(WorkerFault, match="barrier") as raised:
            session.run(crowded, problem.tree.lengths, NO_CONTROL)
    assert "--device" in (raised.value.hint or "")
    again = session.run(program, problem.tree.lengths, NO_CONTROL).sums
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize(
    ("layout", "trees", "patterns", "longest"),
    [
        (gpu_layout(4, 16, 4, 64, False, 1, 2), 1, 65_536, 50),  # whole trees
        (gpu_layout(4, 16, 4, 64, False, 1, 2), 8, 8_192, 50),
        (gpu_layout(4, 16, 4, 64, False, 1, 2), 1, 8_192, PIECE),
        (gpu_layout(4, 16, 4, 16, False, 16, 2), 1, 1_024, PIECE),
        (gpu_layout(20, 25, 4, 8, False, 16), 1, 1_024, PIECE),
        (cpu_layout(4, 16, 4, 8, False), 8, 65_536, 0),  # levels
    ],
)
def test_walks_go_as_far_as_keeps_a_gpu_busy(
    layout: Layout, trees: int, patterns: int, longest: int
) -> None:
    device, data = SimpleNamespace(max_compute_units=132), make_patterns(patterns)
    assert longest_walk(layout, device.max_compute_units, data, trees) == longest


def make_patterns(count: int) -> Patterns:
    """Gaps only, of 50 taxa."""
    return Patterns(
        taxa=tuple(f"t{n}" for n in range(50)),
        codes=np.zeros((50, count), np.uint8),
        weights=np.ones(count),
        site_pattern=np.arange(count, dtype=np.int32),
        alphabet=DNA,
    )
