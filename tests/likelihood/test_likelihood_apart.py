"""Trees of single parts on CLAs of the patterns of those alone: less memory, the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mltree.data.patterns import Patterns
from mltree.device.memory import Memory
from mltree.device.session import Session
from mltree.likelihood.likelihood import TreeLikelihood, trees_at_once, turns_at_once
from mltree.models.eigen import random_reversible
from mltree.program.cases import Case, Cases
from mltree.program.engine import Room
from mltree.runs import engines
from mltree.runs.engines import Engines, Resources, Workload
from mltree.system.errors import DeviceMemoryError
from mltree.tree.topology import Tree, random_topology

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)
CATEGORIES = 4
LEAST_ROWS = 14
"""Whole slots of the least budget of a test: of trees on the largest part, or a few more."""

OpenSession = Callable[..., Session]


@dataclass(frozen=True)
class Apart:
    """Trees of the same taxa, each on one of several parts."""

    patterns: Patterns
    trees: list[Tree]
    cases: list[Case]

    def answers(self, used: TreeLikelihood) -> list[np.ndarray]:
        """LnLs, lengths and the parts' own columns of the patterns' lnLs."""
        trees = [tree.copy() for tree in self.trees]
        lnls = used.smooth(trees, self.cases, 1e-3)
        scored = used.part_log_likelihoods(trees, self.cases)
        rows = used.site_rows(trees, self.cases)
        own = [self.patterns.parts[case.first_part] for case in self.cases]
        columns = [row[span] for row, span in zip(rows, own, strict=True)]
        return [lnls, scored, *(tree.lengths for tree in trees), *columns]


@pytest.fixture
def apart(make_problem: Callable[..., Problem], case: int) -> Apart:
    """Parts of any size, one of them perhaps with most of the patterns; trees in any order."""
    rng = np.random.default_rng([23, case])
    parts, n_tips = int(rng.integers(3, 9)), int(rng.integers(4, 9))
    sizes = rng.choice([1, 7, 40, 90, 400], parts)
    problem = make_problem(n_tips, int(sizes.sum()), seed=case)
    patterns = replace(problem.patterns, ends=tuple(np.cumsum(sizes).tolist()))
    numbers = rng.integers(0, parts, int(rng.integers(5, 25)))
    numbers = np.sort(numbers) if case % 2 else numbers
    trees, cases = [], []
    for part in numbers.tolist():
        tree = random_topology(n_tips, rng)
        tree.lengths[:] = rng.exponential(0.2, tree.n_edges) + 1e-4
        trees.append(tree)
        model = random_reversible(4, rng, categories=CATEGORIES)
        cases.append(Case((model,), first_part=part))
    return Apart(patterns, trees, cases)


def assert_same_bits(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.cases(6, 100)
def test_no_bit_depends_on_the_budget(open_device: OpenSession, apart: Apart) -> None:
    """And CLAs take no more than it, or what one tree of the largest part does."""
    whole = open_device(apart.patterns, CATEGORIES)
    expected = apart.answers(TreeLikelihood(whole, BOUNDS))
    slot = whole.layout.cla_bytes(whole._blocks.width)
    slots = 3 * (apart.patterns.n_tips - 2)
    for rows in (1, LEAST_ROWS, 3 * slots):
        used = open_device(apart.patterns, CATEGORIES, apart=True, memory_limit=2 * rows * slot)
        assert_same_bits(apart.answers(TreeLikelihood(used, BOUNDS)), expected)
        held = used.memory.size("cla") + used.memory.size("scaler")
        alone = slots * np.diff(used.room.starts).max()
        assert held <= (max(used.room.most, alone) + 1) * slot


@pytest.mark.cases(3, 30)
def test_a_device_that_refuses(
    open_native: OpenSession, apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has room for is less than it says: smaller batches, the same bits."""
    expected = apart.answers(TreeLikelihood(open_native(apart.patterns, CATEGORIES), BOUNDS))
    used = open_native(apart.patterns, CATEGORIES, apart=True)
    slots = 3 * (apart.patterns.n_tips - 2)
    slot = used.layout.cla_bytes(used._blocks.width)
    most = int((slots * np.diff(used.room.starts).max() + 2) * slot)
    reserve = Memory.reserve
    refused = []

    def grudging(self: Memory, name: str, size: int, *rest: Any, **others: Any) -> None:
        if name == "cla" and size > most:
            refused.append(size)
            raise DeviceMemoryError("no room")
        reserve(self, name, size, *rest, **others)

    monkeypatch.setattr(Memory, "reserve", grudging)
    assert_same_bits(apart.answers(TreeLikelihood(used, BOUNDS)), expected)
    assert used.memory.size("cla") <= most


@pytest.mark.cases(20, 500)
def test_batches_fit(case: int) -> None:
    """As many as fit by a sum over the trees, one by one; one at least."""
    rng = np.random.default_rng([29, case])
    parts = int(rng.integers(2, 12))
    shares = rng.dirichlet(np.ones(parts))
    starts = (0.0, *np.cumsum(shares)[:-1].tolist(), 1.0)
    model = random_reversible(4, rng)
    cases = [Case((model,), first_part=n) for n in rng.integers(0, parts, 30).tolist()]
    slots = rng.integers(1, 60, 30).astype(np.int32)
    room = Room(int(rng.integers(1, 200)), 1 << 20, 1, matrices=1 << 12, starts=starts)
    first = int(rng.integers(0, 25))

    def rows(until: int, *, shared: bool) -> float:
        """Whole slots of the batch from the first one on."""
        own = [case.first_part for case in cases[first:until]]
        needed = [
            sum(slots[n] for n in range(first, until) if cases[n].first_part == part)
            for part in set(own)
        ]
        most = slots[first] if shared else max(needed)
        return float(most * (starts[max(own) + 1] - starts[min(own)]))

    number = np.arange(30, dtype=np.int32)
    got = trees_at_once(slots[first:], number[first:], Cases.of(cases), room, parts)
    assert got == 1 or rows(first + got, shared=False) <= room.most + 1e-9
    assert first + got == 30 or rows(first + got + 1, shared=False) > room.most - 1e-9
    got = turns_at_once(int(slots[first]), 1 << 8, cases[first:], room)
    assert got == 1 or rows(first + got, shared=True) <= room.most + 1e-9
    if got < min(16, 30 - first):
        assert rows(first + got + 1, shared=True) > room.most - 1e-9


def test_trees_on_one_part_take_no_more_rows_than_the_largest_needs() -> None:
    """Where all have rows of their own, as wide as all parts, that suit an engine best."""
    model = random_reversible(4, np.random.default_rng(2))
    parts, slots = 4, np.array([20, 30, 25, 20, 30, 5, 20], np.int32)
    first = [0, 1, 2, 3, 0, 2, 1]
    table = Cases.of([Case((model,), first_part=part) for part in first])
    number = np.arange(len(first), dtype=np.int32)
    for trees, expected in ((40, 4), (49, 4), (50, 7), (1000, 7)):
        room = Room(most=1000, trees=trees, near=1)
        assert trees_at_once(slots, number, table, room, parts) == expected


@pytest.mark.cases(20, 500)
def test_neighbours_are_all_parts_in_order(case: int) -> None:
    rng = np.random.default_rng([31, case])
    parts = int(rng.integers(1, 30))
    starts = (0.0, *np.cumsum(rng.dirichlet(np.ones(parts)))[:-1].tolist(), 1.0)
    room = Room(int(rng.integers(1, 40)), 1, 1, starts=starts)
    ranges = room.neighbours(30, parts)
    assert [part for own in ranges for part in own] == list(range(parts))
    for own in ranges:
        size = 30 * (starts[own.stop] - starts[own.start])
        assert len(own) == 1 or size <= room.most
        if own.stop < parts:
            assert 30 * (starts[own.stop + 1] - starts[own.start]) > room.most
    assert Room(1, 1, 1).neighbours(30, parts) == [range(parts)]


def test_a_placement_plans_for_the_largest_part(
    make_problem: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU: the budget, or one tree of that part; in whole slots, and within a user's limit."""
    problem = make_problem(12, 1000)
    slots = 30
    monkeypatch.setattr(engines, "APART_BYTES", 1)
    rooms = []
    for largest in (100, 500):
        ends = (largest, *range(largest + 50, 1001, 50))
        patterns = replace(problem.patterns, ends=ends)
        placed = Engines(
            Resources(device="0"), Workload.of_patterns(patterns, 4, BOUNDS, apart=True)
        )
        assert placed.plans[0].apart == largest
        session = placed.likelihood.engine
        assert isinstance(session, Session)
        rooms.append(session.room.most)
        if placed.devices[0].is_cpu:
            assert slots * largest / 1000 <= session.room.most < slots
    assert (
        not Engines(
            Resources(device="0"), Workload.of_patterns(problem.patterns, 4, BOUNDS, apart=True)
        )
        .plans[0]
        .apart
    )
    assert rooms[0] < rooms[1] or not placed.devices[0].is_cpu
