"""Device time is shared out by the marks that work-groups leave."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mltree.contract import Function, Mark
from mltree.device.timing import DeviceTimes


def marks(elapsed: int, *groups: dict[Function, int]) -> np.ndarray:
    words = np.zeros(Mark.BOOKS + len(groups) * len(Function), np.uint64)
    words[Mark.ELAPSED] = elapsed
    for n, book in enumerate(groups):
        for function, ticks in book.items():
            words[Mark.BOOKS + n * len(Function) + function] = ticks
    return words


def event(start: int, end: int) -> SimpleNamespace:
    return SimpleNamespace(profile=SimpleNamespace(start=start, end=end))


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
