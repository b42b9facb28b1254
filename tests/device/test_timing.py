"""Device time is shared out by the marks that work-groups leave."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from mltree.data.patterns import Patterns
from mltree.device.layout import Blocks
from mltree.device.timing import Breakdown, Cost, DeviceTimes, Stopwatch
from mltree.program import builders
from mltree.program.contract import Control, Function, Mark
from mltree.program.ops.operation import CASE
from mltree.program.program import Program
from mltree.tree.topology import random_topology


def marks(elapsed: int, *groups: dict[Function, int]) -> np.ndarray:
    words = np.zeros(Mark.BOOKS + len(groups) * len(Function), np.uint64)
    words[Mark.ELAPSED] = elapsed
    for n, book in enumerate(groups):
        for function, ticks in book.items():
            words[Mark.BOOKS + n * len(Function) + function] = ticks
    return words


def event(start: int, end: int, submit: int | None = None) -> SimpleNamespace:
    submit = start if submit is None else submit
    return SimpleNamespace(profile=SimpleNamespace(submit=submit, start=start, end=end))


def test_events_are_shared_out_by_ticks() -> None:
    times = DeviceTimes(from_events=True)
    times.launched("sites", event(1_000, 3_000))  # type: ignore[arg-type]
    times.launched("sites", event(5_000, 7_000))  # type: ignore[arg-type]
    times.settle()
    times.settle()
    words = marks(0, {Function.NEWVIEW: 30}, {Function.NEWVIEW: 30, Function.EVALUATE: 20})
    told = times.by_function({"sites": words})
    assert told[Function.NEWVIEW] == pytest.approx(4e-6 * 60 / 80)
    assert told[Function.EVALUATE] == pytest.approx(4e-6 * 20 / 80)
    assert sum(told.values()) == pytest.approx(4e-6)
    assert times.launches["sites"] == 2


def test_a_clock_in_nanoseconds_needs_no_events() -> None:
    times = DeviceTimes(from_events=False)
    times.launched("scan", event(0, 10**9))  # type: ignore[arg-type]
    times.settle()
    told = times.by_function({"scan": marks(5_000, {Function.SCAN: 3, Function.BARRIER: 1})})
    assert told[Function.SCAN] == pytest.approx(5e-6 * 3 / 4)
    assert told[Function.BARRIER] == pytest.approx(5e-6 / 4)


def test_nothing_ran() -> None:
    told = DeviceTimes(from_events=True).by_function({"sites": marks(0, {})})
    assert set(told) == set(Function)
    assert not any(told.values())


def clock(*times: float) -> Callable[[], float]:
    return iter(times).__next__


def test_a_stopwatch_adds_up_its_blocks() -> None:
    watch = Stopwatch(clock(1.0, 3.0, 10.0, 10.5), clock(0.0, 0.25, 1.0, 1.25))
    for _ in range(2):
        with watch:
            pass
    assert (watch.wall, watch.cpu) == (2.5, 0.5)


def test_what_a_driver_builds_late_is_no_wait() -> None:
    times = DeviceTimes(from_events=True)
    times.waiting.wall, times.building.wall = 3.0, 1.0
    for worker in ("sites", "sites", "scan"):
        times.launched(worker, event(start=10**9, end=2 * 10**9, submit=0))  # type: ignore[arg-type]
    times.settle()
    told = times.breakdown(dict.fromkeys(Function, 0.0), 136, SimpleNamespace(int_ptr=1))
    assert (told.builds, told.waits) == (3.0, 1.0)


PATTERNS = 100
CLA = 136
"""Bytes of a pattern: DNA in four categories."""


def costs_of(*runs: tuple[Program, int, float | None]) -> dict[Function, Cost]:
    """Costs after programs ran on so many patterns, with so many passes of every group."""
    times = DeviceTimes(from_events=True)
    for program, n_patterns, passes in runs:
        times.sent(program, n_patterns)
        control = np.zeros((program.groups, len(Control)))
        control[:, Control.PASSES] = passes or 0.0
        times.repeated(program, n_patterns, control)
    told = times.breakdown(dict.fromkeys(Function, 1.0), CLA, SimpleNamespace(int_ptr=1))
    return dict(told.functions)


def test_work_is_operations_times_patterns() -> None:
    program = builders.traversal([random_topology(7, np.random.default_rng(1))])
    cost = costs_of((program, PATTERNS, None), (program, 10, None))[Function.NEWVIEW]
    assert cost.operations == 2 * (7 - 2)
    assert cost.pattern_nodes == (7 - 2) * (PATTERNS + 10)
    inner_written, inner_read = 5, 4
    tips = 2 * 5 - inner_read
    assert cost.bytes == (PATTERNS + 10) * ((inner_written + inner_read) * CLA + tips)


def test_a_tree_on_some_parts_has_their_patterns_alone() -> None:
    parts = slice(0, 10), slice(10, 33), slice(33, 100)
    patterns = cast("Patterns", SimpleNamespace(parts=parts, n_patterns=100))
    blocks = Blocks.of(patterns, vw=8, chunk_blocks=2)
    cases = np.zeros(2, CASE)
    assert blocks.patterns_of(cases[:0]) == 100
    cases["first_part"], cases["parts"] = [0, 1], [1, 2]
    assert blocks.patterns_of(cases[:1]) == 10
    assert blocks.patterns_of(cases) == (10 + 90) / 2


def test_passes_are_counted_from_the_control_records() -> None:
    tree = random_topology(7, np.random.default_rng(1))
    once = costs_of((builders.derivatives([tree]), PATTERNS, None))
    thrice = costs_of((builders.smoothing([tree], 10), PATTERNS, 3))
    for function in (Function.NEWVIEW, Function.EVALUATE, Function.DERIVE, Function.PMATRICES):
        assert thrice[function].operations == 3 * once[function].operations
        assert thrice[function].bytes == 3 * once[function].bytes
    assert thrice[Function.OPTIMISE].operations == 3
    assert thrice[Function.OPTIMISE].pattern_nodes == 0


def one_each(seconds: float, device: int) -> Breakdown:
    cost = Cost(seconds, operations=2, pattern_nodes=20, bytes=200)
    functions = dict.fromkeys(Function, cost)
    return Breakdown(functions, 1.0, 2.0, 0.5, (SimpleNamespace(int_ptr=device),))


def test_devices_side_by_side_take_as_long_as_the_slowest() -> None:
    told = Breakdown.side_by_side([one_each(1.0, 1), one_each(3.0, 2)])
    assert told.functions[Function.SCAN] == Cost(3.0, 4, 40, 400)
    assert (told.builds, told.waits, told.idle_cpu) == (2.0, 4.0, 1.0)
    assert len(told.devices) == 2


def test_engines_one_after_the_other_add_up() -> None:
    told = Breakdown.one_after_the_other([one_each(1.0, 1), one_each(3.0, 1)])
    assert told.functions[Function.SCAN] == Cost(4.0, 4, 40, 400)
    assert len(told.devices) == 1
    assert told.device_seconds == pytest.approx(4.0 * len(Function))
