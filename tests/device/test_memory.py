"""A device's memory: what is asked of it, and what happens when it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pytest

from mltree.device.discovery import find_devices
from mltree.device.layout import gpu_layout
from mltree.device.memory import (
    BUFFER_SHARE,
    LEAST_BATCH,
    MEMORY_SHARE,
    Memory,
    cla_memory,
    room_on,
)
from mltree.device.session import Session
from mltree.device.shards import DeviceSpec, ShardedEngine
from mltree.device.worker import Worker
from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.requests import perform
from mltree.system.errors import DeviceError
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.spr import spr_round

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)
GIB = 1 << 30

OpenDevice = Callable[..., Session]


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    return make_problem(9, 700, trees=5, alpha=0.7)


def searched(engine: Any, problem: Problem) -> list[np.ndarray]:
    """What a round makes of several trees: it smooths, scans, re-scores and tries."""
    likelihood, trees = TreeLikelihood(engine, BOUNDS), [tree.copy() for tree in problem.trees]
    lnls = likelihood.smooth(trees, [problem.case] * len(trees), 0.1)
    candidates = [CandidateTree(tree, lnl, "start") for tree, lnl in zip(trees, lnls, strict=True)]
    phase, settings = PhaseSettings(8, 60.0, fully_smoothed=3), RoundSettings(keep=4, window=60.0)
    perform(likelihood, spr_round(candidates, [problem.case] * len(candidates), phase, settings))
    return [lnls, *(tree.lengths for tree in trees), np.array([one.lnl for one in candidates])]


def assert_same_bits(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_ranks_share_what_a_device_may_hold() -> None:
    for device in find_devices():
        assert device.memory_limit(None) is None
        assert device.memory_limit(70) == 70
        assert replace(device, sharers=3).memory_limit(70) == 23
        own = int(MEMORY_SHARE * device.memory) // 3
        assert replace(device, sharers=3).memory_limit(1 << 60) == own
        assert replace(device, sharers=3).memory_limit(None) == own


def test_each_of_several_ranks_may_fill_a_buffer() -> None:
    """A GPU's largest is a quarter of its memory, which four of them share."""
    device = h200(largest=139.8 / 4)
    info = replace(find_devices()[0], handle=device, memory=device.global_mem_size, sharers=4)
    own = cla_memory(device, info.memory_limit(None))
    assert own == int(MEMORY_SHARE * device.global_mem_size) // 4 < cla_memory(device)
    assert cla_memory(device, replace(info, sharers=2).memory_limit(None)) == cla_memory(device)


BOOKS = 1 << 20
"""Bytes of the ticks that a GPU's many work-groups count."""


@dataclass
class Quota:
    """A device that has no more than so many bytes for buffers, whatever it says."""

    most: int
    refusals: int = 0

    def at_allocation(self, patched: pytest.MonkeyPatch) -> None:
        """It says so when a buffer is made."""
        allocate = Memory._allocate

        def refuse(memory: Memory, size: int) -> cl.Buffer:
            if memory.bytes_held + size > self.most:
                self.refuse()
            return allocate(memory, size)

        patched.setattr(Memory, "_allocate", refuse)

    def at_first_use(self, patched: pytest.MonkeyPatch) -> None:
        """It says so when a kernel needs the buffers, as NVIDIA's driver does."""
        arguments, launch = Worker.arguments, Worker.launch

        def noticed(worker: Worker, memory: Memory, *others: Any) -> list[Any]:
            worker.memory = memory  # type: ignore[attr-defined]
            return arguments(worker, memory, *others)

        def refuse(worker: Worker, *others: Any) -> cl.Event:
            if worker.memory.bytes_held > self.most:  # type: ignore[attr-defined]
                self.refuse()
            return launch(worker, *others)

        patched.setattr(Worker, "arguments", noticed)
        patched.setattr(Worker, "launch", refuse)

    def refuse(self) -> None:
        self.refusals += 1
        raise cl.MemoryError("clEnqueueSomething failed: MEM_OBJECT_ALLOCATION_FAILURE")


@pytest.fixture(params=["at_allocation", "at_first_use"])
def quota(request: pytest.FixtureRequest) -> Callable[[pytest.MonkeyPatch, int], Quota]:
    def impose(patched: pytest.MonkeyPatch, most: int) -> Quota:
        found = Quota(most)
        getattr(found, request.param)(patched)
        return found

    return impose


def opened(kind: str, open_native: OpenDevice, problem: Problem) -> Session | ShardedEngine:
    session = open_native(problem.patterns, problem.categories)
    if kind == "session":
        return session
    specs = [DeviceSpec(session.device, session.layout) for _ in range(2)]
    return ShardedEngine(problem.patterns, specs, BOUNDS, 100)


@pytest.mark.parametrize("kind", ["session", "slices"])
@pytest.mark.parametrize("trees", [2.5, 1.8])
def test_a_device_that_refuses_memory_is_asked_for_less(
    open_native: OpenDevice,
    problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
    quota: Callable[[pytest.MonkeyPatch, int], Quota],
    kind: str,
    trees: float,
) -> None:
    """The search goes on in smaller batches, or slices, to the same bits."""
    expected = searched(open_native(problem.patterns, problem.categories), problem)
    engine = opened(kind, open_native, problem)
    layout = engine.layout if isinstance(engine, Session) else engine._group.shards[0].layout
    slots = 3 * (problem.tree.n_tips - 2)
    most = int(trees * slots * layout.cla_bytes(problem.patterns.n_patterns))
    most += BOOKS * (layout.lanes > 1)
    imposed = quota(monkeypatch, most if kind == "session" else most * 2 // 3)
    assert_same_bits(searched(engine, problem), expected)
    assert imposed.refusals > 0
    assert engine.room.most < 5 * slots or kind == "slices"


@pytest.mark.parametrize("kind", ["session", "slices"])
def test_no_room_for_a_single_tree_is_one_line(
    open_native: OpenDevice,
    problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
    quota: Callable[[pytest.MonkeyPatch, int], Quota],
    kind: str,
) -> None:
    engine = opened(kind, open_native, problem)
    quota(monkeypatch, 300_000)
    with pytest.raises(DeviceError) as caught:
        searched(engine, problem)
    assert "\n" not in caught.value.message
    assert engine.name.split(",")[0] in caught.value.message
    assert caught.value.hint


def h200(largest: float = 34.9) -> Any:
    """What the OpenCL driver tells of one."""
    return SimpleNamespace(
        type=cl.device_type.GPU,
        max_compute_units=132,
        max_mem_alloc_size=int(largest * GIB),
        global_mem_size=int(139.8 * GIB),
    )


def test_proteins_that_filled_the_largest_buffer() -> None:
    """775 taxa x 3,838 patterns on an H200: eight trees' CLAs are 43 GiB, its largest buffer 35."""
    layout = gpu_layout(20, 23, 4, 32, False, 1)
    slots, slot = 3 * 773, layout.cla_bytes(3838)
    assert 8 * slots * slot > 40 * GIB
    room = room_on(h200(), layout, 3838)
    own = room.trees_at_once(slots, beside=LEAST_BATCH) * slots
    assert 4 * slots <= own < 8 * slots
    assert (own + room.near_at_once(own)) * slot <= BUFFER_SHARE * 34.9 * GIB
    assert room.near_at_once(own) >= LEAST_BATCH


def test_no_limit_makes_a_device_larger() -> None:
    """One that is beyond its largest buffer had CLAs asked for that it refused."""
    device, layout = h200(), gpu_layout(4, 16, 4, 16, False, 8, 2)
    own = room_on(device, layout, 100_000)
    assert room_on(device, layout, 100_000, 200 * GIB) == own
    assert room_on(device, layout, 100_000, 10 * GIB).most < own.most
    assert cla_memory(device, 200 * GIB) == cla_memory(device)
    assert cla_memory(device, 10 * GIB) == 10 * GIB


def test_little_data_leaves_a_gpu_all_its_trees() -> None:
    layout = gpu_layout(4, 16, 4, 16, False, 8, 2)
    room = room_on(h200(), layout, 1000)
    assert room.trees_at_once(3 * 98) > 100
    assert room.near > 10_000


@pytest.mark.parametrize("limit", [None, 12 * GIB], ids=["all of it", "one of several ranks"])
def test_trees_leave_a_gpu_room_for_near_vectors(limit: int | None) -> None:
    """Replicates of 200 taxa filled all but a twentieth of it, and took ten times as long."""
    layout, slots = gpu_layout(4, 16, 4, 16, False, 8, 2), 3 * 198
    room = room_on(h200(17.0), layout, 60_000, limit)
    own = slots * room.trees_at_once(slots)
    assert room.near_at_once(own) >= min(room.near, 0.33 * room.most)
    assert own + slots > 0.6 * room.most


@pytest.mark.parametrize("units", [1, 2, 8, 64])
@pytest.mark.parametrize("patterns", [50, 900, 20_000, 1_000_000])
def test_what_suits_a_cpu(
    open_native: OpenDevice, problem: Problem, units: int, patterns: int
) -> None:
    """What its cores' caches hold, or 8 CLAs of long alignments; never all that fits."""
    layout = open_native(problem.patterns, problem.categories).layout
    cpu = SimpleNamespace(
        type=cl.device_type.CPU,
        max_compute_units=units,
        max_mem_alloc_size=64 * GIB,
        global_mem_size=128 * GIB,
    )
    room = room_on(cpu, layout, patterns)
    slot = layout.cla_bytes(patterns)
    assert room.near == LEAST_BATCH or room.near * slot <= max(1 << 24, units << 21)
    assert room.near >= LEAST_BATCH
    assert room.trees <= room.near < room.most
    assert room.trees_at_once(3 * 998) == max(1, room.trees // 2994)
