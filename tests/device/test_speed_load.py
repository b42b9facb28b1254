"""How busy a GPU is, as NVIDIA's management library says; here one that says what a test wants."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from mltree.device import speed as module
from mltree.device.discovery import DeviceInfo
from mltree.device.speed import gpu_load, load_meter, occupied

GIB = 2**30


@dataclass
class Library:
    """NVML with one GPU, at PCI address 0:3:6."""

    busy: int = 0
    free: int = 100 * GIB
    status: int = 0
    asked: bytes = b""

    def nvmlDeviceGetHandleByPciBusId_v2(self, address: bytes, handle: Any) -> int:  # noqa: N802
        self.asked = address
        return self.status

    def nvmlDeviceGetUtilizationRates(self, handle: Any, use: Any) -> int:  # noqa: N802
        ctypes.cast(use, ctypes.POINTER(ctypes.c_uint))[0] = self.busy
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802
        numbers = ctypes.cast(memory, ctypes.POINTER(ctypes.c_ulonglong))
        numbers[0], numbers[1] = 140 * GIB, self.free
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(module, "_library", lambda: made)
    return made


def device(platform: str = "NVIDIA CUDA") -> DeviceInfo:
    handle = SimpleNamespace(
        platform=SimpleNamespace(name=platform), pci_domain_id_nv=0, pci_bus_id_nv=3,
        pci_slot_id_nv=6 << 3,
    )  # fmt: skip
    return DeviceInfo(
        index=0, name="Big GPU", platform=platform, driver="1", is_cpu=False, has_fp64=True,
        compute_units=100, memory=140 * GIB, largest_buffer=35 * GIB, local_memory=1 << 15,
        vector_width=1, handle=handle,
    )  # fmt: skip


def test_it_asks_for_the_gpu_at_its_address(library: Library) -> None:
    library.busy = 7
    assert gpu_load(device().handle) == (7, 100 * GIB, 140 * GIB)
    assert library.asked == b"00000000:03:06.0"


def test_who_cannot_tell_is_not_asked(library: Library) -> None:
    assert gpu_load(device("Portable Computing Language").handle) is None
    library.status = 3  # NVML_ERROR_NOT_SUPPORTED
    assert gpu_load(device().handle) is None
    assert occupied(device(), GIB) is None
    assert load_meter(device())() == ""


@pytest.mark.parametrize(
    ("busy", "free", "expected"),
    [
        (0, 100, None),
        (49, 100, None),
        (80, 100, "Big GPU is 80 % busy with other work"),
        (80, 3, "Big GPU has 3.0 of 140.0 GiB free, and the run needs 8.0"),
    ],
)
def test_a_gpu_that_others_use_is_told_of(
    library: Library, busy: int, free: int, expected: str | None
) -> None:
    library.busy, library.free = busy, free * GIB
    found = occupied(device(), 8 * GIB)
    assert found is None if expected is None else (found or "").startswith(expected)
    assert occupied(replace(device(), is_cpu=True), 8 * GIB) is None


def test_the_meter_looks_once_a_second(library: Library) -> None:
    times = iter([5.0, 5.0, 5.0, 5.5, 6.0, 6.0])
    meter = load_meter(device(), lambda: next(times))
    said = []
    for library.busy in (10, 20, 30):
        said.append(meter())
    assert said == ["GPU 10 %", "GPU 10 %", "GPU 30 %"]


def test_a_cpu_is_as_busy_as_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now, cpu = 0.0, 0.0
    monkeypatch.setattr(module.time, "process_time", lambda: cpu)
    meter = load_meter(replace(device(), is_cpu=True), lambda: now)
    now, cpu = 2.0, 3.0
    assert meter() == "CPU 150%"
