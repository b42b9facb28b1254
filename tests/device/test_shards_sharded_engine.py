"""Slices of patterns, on several devices or one after the other: a lone session's bits."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from launches import Beside

from mltree.data.patterns import drawn, empty_slots
from mltree.device.layout import without_fp64
from mltree.device.session import Session
from mltree.device.shards import DeviceSpec, ShardedEngine, ShardGroup
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.program import builders
from mltree.program.cases import Case, Cases
from mltree.program.contract import CONTROL_WORDS, Control, Function
from mltree.program.engine import NO_CONTROL, Engine
from mltree.program.ops.edges import EvaluateSites
from mltree.program.ops.operation import CASE
from mltree.program.ops.reduce import Reduce
from mltree.program.program import Program
from mltree.runs.engines import ReplicateLikelihood
from mltree.system.errors import DeviceError, NumericalError, WorkerFault
from mltree.system.ranks import LONE, Ranks
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)

OpenDevice = Callable[..., Session]

PATTERNS = 1100
"""The last block of every layout is not full."""


@pytest.fixture(scope="module", params=[8, 64, 256], ids="chunks of {}".format)
def chunk(request: pytest.FixtureRequest) -> Iterator[int]:
    """Patterns of a CPU's chunk: some rounds of lanes, fewer chunks than lanes, and few."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mltree.device.layout.MIN_CPU_CHUNK", request.param)
        yield request.param


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    return make_problem(7, PATTERNS, trees=2, alpha=0.6, invariant=0.1, categories=4)


def slices(
    session: Session,
    problem: Problem,
    shares: tuple[float, ...],
    memory_limit: int | None = None,
    slots: int = 100,
    ranks: Ranks = LONE,
) -> ShardedEngine:
    specs = [DeviceSpec(session.device, session.layout, share, memory_limit) for share in shares]
    return ShardedEngine(
        problem.patterns, specs, BOUNDS, slots,
        ranks=ranks, elsewhere=lambda: ShardGroup(specs).answer,
    )  # fmt: skip


def everything(engine: TreeLikelihood, problem: Problem) -> list[np.ndarray]:
    """All that a search asks for, of two trees side by side, in an order that needs old CLAs."""
    trees, cases = [tree.copy() for tree in problem.trees], problem.cases
    found = Neighbourhood(trees[0])
    scan = found.scan(found.extend(4))
    results: list[np.ndarray] = [
        engine.log_likelihoods(trees, cases),
        engine.site_log_likelihoods(trees[0], cases[0]),
        *engine.derivatives(trees[0], cases[0])[1:],
        engine.insertions(trees, cases, scan),
        engine.join_lengths(trees, cases, found.prunes),
        *engine.refine(trees, cases, found.scan(np.arange(0, found.size, 4))),
        engine.insertions(trees, cases, scan),
        engine.smooth(trees, cases, 1e-3),
        engine.insertions(trees, cases, scan),
    ]
    return results + [tree.lengths for tree in trees]


@pytest.fixture(scope="module")
def lone(chunk: int, open_device: OpenDevice, problem: Problem) -> list[np.ndarray]:
    session = open_device(problem.patterns, problem.categories)
    return everything(TreeLikelihood(session, BOUNDS), problem)


def assert_same_bits(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def in_parts(engine: Engine, problem: Problem) -> list[np.ndarray]:
    """A tree on all parts and one on the last, under two rows of weights."""
    tree, count = problem.tree, len(problem.patterns.parts)
    weights = np.stack([problem.patterns.weights, problem.patterns.weights[::-1]])
    engine.load_models([problem.model] * count)
    engine.load_weights(weights)
    records = Cases.alike(2, count).records.copy()
    records["model"], records["weights"] = 0, [0, 1]
    both, last = Cases(records), Cases(np.array([(count - 1, 1, 0, 1)], CASE))
    lengths = np.tile(tree.lengths, 2)
    results = [engine.run(builders.derivatives([tree] * 2, both), lengths, NO_CONTROL).sums]
    results += [engine.run(builders.derivatives([tree], last), tree.lengths, NO_CONTROL).sums]
    sites = builders.walk([tree] * 2, 2, EvaluateSites, both)
    results += [engine.run(sites, lengths, NO_CONTROL).sums, engine.site_log_likelihoods(2)]
    return [*results, engine.run(builders.rell(2, 2, count), np.zeros(0), NO_CONTROL).sums]


@pytest.mark.parametrize(("shares", "slots"), [((2.0, 3.0), 100), ((1.0,), 100), ((1.0, 1.6), 15)])
def test_parts_and_rows_of_weights(
    chunk: int,
    open_device: OpenDevice,
    problem: Problem,
    shares: tuple[float, ...],
    slots: int,
) -> None:
    """Ranges of parts add up to a lone session's bits wherever their chunks lie."""
    patterns = replace(problem.patterns, ends=(3, 300, 301, 1000, PATTERNS))
    parted = replace(problem, patterns=patterns)
    session = open_device(patterns, problem.categories)
    limit = None
    if slots < 100:  # several slices a device
        limit = 60 * session.layout.cla_bytes(chunk)
    engine = slices(session, parted, shares, limit, slots)
    assert_same_bits(in_parts(engine, parted), in_parts(session, parted))


@pytest.mark.parametrize(
    ("shares", "slots", "ranks"),
    [((2.0, 3.0), 100, 1), ((1.0,), 15, 1), ((1.0, 1.6), 15, 1), ((1.0,), 100, 2), ((1.0,), 15, 2)],
)
@pytest.mark.parametrize("states", [4, 20])
def test_replicate_slots(
    chunk: int,
    open_device: OpenDevice,
    make_problem: Callable[..., Problem],
    shares: tuple[float, ...],
    slots: int,
    ranks: int,
    states: int,
) -> None:
    """Patterns that come into parts wherever those lie: also ones with systems of their own, and
    once slices have become smaller."""
    problem = make_problem(5, 700, states=states, trees=2, own_frequencies=states == 20)
    whole, sizes = problem.patterns, [400, 1]
    whole = replace(whole, ends=(650, 700))
    empty = empty_slots(whole, sizes, 3)
    rng = np.random.default_rng(4)
    rows = (rng.permuted(np.tile(np.arange(700) < 400, (4, 1)), axis=1)) * whole.weights
    rows[:, 650:] = 0.0
    rows[:, 660] = 2.0
    session = open_device(empty, problem.categories)
    size = chunk if session.layout.lanes == 1 else 64  # a GPU's chunks are never large
    limit = 60 * session.layout.cla_bytes(size) if slots < 100 else None
    specs = [DeviceSpec(session.device, session.layout, share, limit) for share in shares]
    beside, groups = Beside(ranks), lambda: ShardGroup(specs).answer
    engine = ShardedEngine(empty, specs, BOUNDS, slots, ranks=beside, elsewhere=groups)
    assert (engine.n_slices > len(shares) * ranks) == (slots < 100)
    found = []
    for one in (session, engine):
        used = ReplicateLikelihood(one, BOUNDS, Columns.of([empty]))
        results: list[np.ndarray] = []
        for loads in (((0, 0), (1, 1), (2, 2)), ((1, 3),), ((0, 1), (2, 0))):
            for number, row in loads:
                used.load_patterns(2 * number, drawn(whole, rows[row], sizes))
            cases = [Case((problem.models[n],) * 2, first_part=2 * n + 2) for n in (0, 1)]
            trees = [tree.copy() for tree in problem.trees]
            results += [used.part_log_likelihoods(trees, cases), used.smooth(trees, cases, 0.1)]
            results.append(used.part_log_likelihoods(trees, cases[::-1]))
            used.close()
        found.append(results)
    assert_same_bits(*found)


@pytest.mark.parametrize("has_fp64", [(True, False), (False, True)], ids=str)
def test_devices_with_and_without_fp64(
    open_native: OpenDevice, problem: Problem, has_fp64: tuple[bool, bool]
) -> None:
    """Each keeps its numbers as it can; the precision is that of the lesser one."""
    session = open_native(problem.patterns, problem.categories)
    layouts = [session.layout if has else without_fp64(session.layout) for has in has_fp64]
    specs = [DeviceSpec(session.device, layout) for layout in layouts]
    both = TreeLikelihood(ShardedEngine(problem.patterns, specs, BOUNDS, 100), BOUNDS)
    alone = TreeLikelihood(session, BOUNDS)
    expected = alone.log_likelihoods(problem.trees, problem.cases)
    got = both.log_likelihoods(problem.trees, problem.cases)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    trees = [tree.copy() for tree in problem.trees]
    smoothed = both.smooth(trees, problem.cases, 1e-2)
    assert (smoothed > got).all()


def test_a_device_too_slow_to_help_is_told_of(open_device: OpenDevice, problem: Problem) -> None:
    session = open_device(problem.patterns, problem.categories)
    engine = slices(session, problem, (1.0, 1e-3))
    assert engine.n_slices == 1
    assert engine.notice.endswith("takes none")
    assert engine.name == slices(session, problem, (1.0, 1.0)).name


@pytest.mark.parametrize(
    "shares", [(1.0,), (1.0, 1.0), (2.0, 3.0, 2.0), (3.0, 1.6, 2.0, 1.7)], ids=str
)
def test_shared_between_devices(
    open_device: OpenDevice, problem: Problem, lone: list[np.ndarray], shares: tuple[float, ...]
) -> None:
    session = open_device(problem.patterns, problem.categories)
    engine = slices(session, problem, shares)
    assert engine.n_slices == len(shares)
    got = everything(TreeLikelihood(engine, BOUNDS), problem)
    assert_same_bits(got, lone)
    assert engine.timings()[Function.NEWVIEW] > 0


@pytest.mark.parametrize(
    ("memory", "kept"), [(None, 16), (0.3, 16), (0.3, 1)], ids=["whole", "in turns", "forgetful"]
)
@pytest.mark.parametrize(("ranks", "shares"), [(2, (1.0,)), (3, (2.0, 3.0)), (33, (1.0,))], ids=str)
def test_shared_between_ranks(
    open_device: OpenDevice,
    problem: Problem,
    lone: list[np.ndarray],
    ranks: int,
    shares: tuple[float, ...],
    memory: float | None,
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has devices and patterns of its own; with more of them than lanes some have none."""
    monkeypatch.setattr("mltree.device.shards.PROGRAMS", kept)
    session = open_device(problem.patterns, problem.categories)
    limit = None
    if memory is not None:
        limit = int(memory * 100 * session.layout.cla_bytes(PATTERNS // ranks // len(shares)))
        limit = max(limit, 100 * session.layout.cla_bytes(256))
    beside = Beside(ranks)
    engine = slices(session, problem, shares, limit, ranks=beside)
    assert_same_bits(everything(TreeLikelihood(engine, BOUNDS), problem), lone)
    assert f"{ranks} ranks share the patterns" in engine.notice
    assert engine.name == slices(session, problem, shares).name
    assert engine.timings()[Function.NEWVIEW] > 0
    assert engine.breakdown().devices == (session.device,)
    (number,) = beside.kept
    del engine
    gc.collect()
    assert not beside.kept, f"{number} outlives its engine"


@pytest.mark.parametrize("shares", [(1.0,), (1.0, 2.0)], ids=str)
def test_more_than_the_memory(
    open_device: OpenDevice, problem: Problem, lone: list[np.ndarray], shares: tuple[float, ...]
) -> None:
    """The CLAs of the whole alignment take three times what a device may give, and more."""
    session = open_device(problem.patterns, problem.categories)
    whole = 100 * session.layout.cla_bytes(problem.patterns.n_patterns)
    engine = slices(session, problem, shares, whole // 3)
    assert engine.n_slices > len(shares)
    assert "slices, one after the other" in engine.notice
    got = everything(TreeLikelihood(engine, BOUNDS), problem)
    assert_same_bits(got, lone)


def test_a_fault_while_clas_are_written_again_is_told(
    open_native: OpenDevice, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_native(problem.patterns, problem.categories)
    limit = 100 * session.layout.cla_bytes(problem.patterns.n_patterns) // 3
    engine = TreeLikelihood(slices(session, problem, (1.0,), limit), BOUNDS)
    found = Neighbourhood(problem.tree)
    scan = found.scan(found.extend(4))
    engine.insertions([problem.tree], [problem.case], scan)

    def check(session: Session, program: Program, back: np.ndarray) -> None:
        if not any(isinstance(stage, Reduce) for stage in program.stages):
            raise WorkerFault("of a writer")

    monkeypatch.setattr(Session, "_check", check)
    with pytest.raises(WorkerFault, match="of a writer"):
        engine.insertions([problem.tree], [problem.case], scan)


def test_slices_become_smaller_where_more_is_asked(
    open_device: OpenDevice, problem: Problem, lone: list[np.ndarray]
) -> None:
    session = open_device(problem.patterns, problem.categories)
    limit = 60 * session.layout.cla_bytes(problem.patterns.n_patterns)
    engine = slices(session, problem, (1.0,), limit, slots=5)
    assert engine.n_slices == 1
    got = everything(TreeLikelihood(engine, BOUNDS), problem)
    assert_same_bits(got, lone)


def test_a_limit_that_holds_no_chunk_is_an_error(open_device: OpenDevice, problem: Problem) -> None:
    session = open_device(problem.patterns, problem.categories)
    with pytest.raises(DeviceError, match="do not fit into") as raised:
        slices(session, problem, (1.0,), 1000)
    assert "--memory-limit" in (raised.value.hint or "")


def test_a_sum_that_is_no_number_is_an_error(open_native: OpenDevice, problem: Problem) -> None:
    session = open_native(problem.patterns, problem.categories)
    engine = TreeLikelihood(slices(session, problem, (1.0, 1.0)), BOUNDS)
    tree = problem.tree.copy()
    tree.lengths[0] = np.nan
    with pytest.raises(NumericalError, match=r"a sum of stage 2 \(Reduce\)"):
        engine.log_likelihoods([tree], [problem.case])


def test_fewer_chunks_than_devices(
    open_native: OpenDevice, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone chunk has a lone reduction lane."""
    monkeypatch.setattr("mltree.device.layout.MIN_CPU_CHUNK", PATTERNS)
    monkeypatch.setattr("mltree.device.layout.MAX_CHUNKS", 1)
    monkeypatch.setattr("mltree.device.layout.MAX_GPU_CHUNKS", 1)
    session = open_native(problem.patterns, problem.categories)
    engine = slices(session, problem, (1.0, 2.0))
    assert engine.n_slices == 1
    expected = everything(TreeLikelihood(session, BOUNDS), problem)
    assert_same_bits(everything(TreeLikelihood(engine, BOUNDS), problem), expected)


@pytest.mark.parametrize("longest", [4, 100])
@pytest.mark.parametrize("memory", [1.0, 0.3])
def test_walks(
    open_native: OpenDevice,
    problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
    memory: float,
    longest: int,
) -> None:
    monkeypatch.setattr("mltree.device.layout.MIN_CPU_CHUNK", 8)
    session = open_native(problem.patterns, problem.categories)
    limit = int(memory * session.layout.cla_bytes(PATTERNS))
    engine = slices(session, problem, (3.0, 2.0), limit, slots=1)
    assert (engine.n_slices > 2) == (memory < 1)
    lengths = problem.tree.lengths
    program = builders.walk([problem.tree], longest, EvaluateSites)
    for each in (session, engine):
        each.load_models(problem.models)
    expected = session.run(program, lengths, NO_CONTROL).sums
    np.testing.assert_array_equal(engine.run(program, lengths, NO_CONTROL).sums, expected)
    sites = session.site_log_likelihoods()
    np.testing.assert_array_equal(engine.site_log_likelihoods(), sites)


def test_plans_are_remembered(
    open_native: OpenDevice, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that runs again goes to the devices as it did before."""
    session = open_native(problem.patterns, problem.categories)
    engine = slices(session, problem, (1.0, 2.0))
    engine.load_models(problem.models)
    program, control = builders.smoothing([problem.tree], 3), np.zeros((1, CONTROL_WORDS))
    control[0, [Control.ACTIVE, Control.MAX_PASSES, Control.FLOOR]] = 1, 3, -np.inf
    first = engine.run(program, problem.tree.lengths, control)
    assert first.control[0, Control.PASSES] == 3
    monkeypatch.setattr(Session, "_new_plan", None)
    again = engine.run(program, problem.tree.lengths, control)
    np.testing.assert_array_equal(again.lengths, first.lengths)
    np.testing.assert_array_equal(again.sums, first.sums)


def test_trees_beside_a_tree_do_not_change_its_bits(
    open_device: OpenDevice, problem: Problem
) -> None:
    """More CLAs make smaller tiles."""
    engine = TreeLikelihood(open_device(problem.patterns, problem.categories), BOUNDS)
    alone = engine.log_likelihoods([problem.tree], [problem.case])
    many = engine.log_likelihoods([problem.tree] * 30, [problem.case] * 30)
    np.testing.assert_array_equal(many, alone[0])
    assert engine.derivatives(problem.tree, problem.case)[0] == alone[0]
