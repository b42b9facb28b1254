"""A memory brings back what was sent, as of the time it was asked for, or loses patience."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from mltree.device.discovery import find_devices
from mltree.device.memory import PINNED_BYTES, Memory, Watch, patience
from mltree.system.errors import DeviceError


class Entered:
    """Counts how often it is entered."""

    times = 0

    def __enter__(self) -> None:
        self.times += 1

    def __exit__(self, *_: object) -> None:
        pass


def test_a_memory_reads_what_was_written() -> None:
    device = find_devices()[0].handle
    context = cl.Context([device])
    memory = Memory(context, cl.CommandQueue(context), waiting := Entered())
    memory.reserve("x", 64)
    memory.write("x", np.zeros(8))
    memory.write("x", np.arange(3.0), offset=16)
    target = np.empty(4)
    memory.read("x", target, offset=8)
    np.testing.assert_array_equal(target, [0.0, 0.0, 1.0, 2.0])
    assert waiting.times == 1


@pytest.mark.parametrize("spin", [0.0, 1e-3])
@pytest.mark.parametrize("size", [8, PINNED_BYTES // 8 + 1])
def test_an_answer_is_of_the_time_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, spin: float, size: int
) -> None:
    """By a pinned buffer, as on GPUs, or not; what is sent later makes it stale."""
    monkeypatch.setattr(Watch, "over", lambda device: Watch("a device", spin))
    context = cl.Context([find_devices()[0].handle])
    memory = Memory(context, cl.CommandQueue(context), Entered())
    memory.reserve("x", 8 * size)
    target, first, second = np.empty(size), np.arange(1.0, size + 1), np.full(size, 7.0)
    memory.write("x", first)
    memory.ask("x", first.nbytes)
    memory.read("x", target)
    np.testing.assert_array_equal(target, first)
    memory.ask("x", first.nbytes)
    memory.write("x", second)
    memory.read("x", target)
    np.testing.assert_array_equal(target, second)
    part = np.empty(3)
    memory.ask("x", 8 * size)
    memory.read("x", part, offset=16)
    np.testing.assert_array_equal(part, second[:3])


def test_a_memory_loses_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    device = find_devices()[0].handle
    context = cl.Context([device])
    memory = Memory(context, cl.CommandQueue(context), Entered())
    memory.reserve("x", 64)
    given: list[float] = []

    def lose(watch: Watch, event: object, limit: float) -> None:
        given.append(limit)
        raise DeviceError("no answer")

    memory.write("x", np.zeros(8))
    memory.expect(1e9)
    monkeypatch.setattr(Watch, "wait", lose)
    with pytest.raises(DeviceError, match="no answer"):
        memory.read("x", np.empty(8))
    assert given == [patience(1e9)]
