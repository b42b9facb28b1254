"""How busy a device is: what a GPU's driver says of it, or what the process takes of the CPUs.

NVIDIA's driver answers through its management library (NVML), which comes with it; a GPU whose
driver has none is not asked. OpenCL itself knows neither how busy a device is nor how much of its
memory others have taken.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import pyopencl as cl

from mltree.device.info import DeviceInfo

__all__ = ["GpuLoad", "gpu_load", "load_meter", "occupied"]

LIBRARY = "libnvidia-ml.so.1"

BUSY = 50
"""Per cent of the last moments in which a GPU computed for others: half of it is theirs."""

OFTEN = 1.0
"""Seconds between two looks; NVML averages over a sixth of a second to one."""


class GpuLoad(NamedTuple):
    """What NVML says of a GPU."""

    busy: int
    """Per cent of the last moments in which it computed, for whomever."""
    free: int
    """Bytes of memory that nobody has taken."""
    total: int


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


@cache
def _library() -> Any:
    """NVML, ready; None where there is none."""
    with suppress(OSError):
        library = ctypes.CDLL(LIBRARY)
        if library.nvmlInit_v2() == 0:
            return library
    return None


def gpu_load(device: cl.Device) -> GpuLoad | None:
    """How busy an NVIDIA GPU is; None where nobody can tell."""
    library = _library() if "nvidia" in str(device.platform.name).lower() else None
    if library is None:
        return None
    with suppress(cl.Error, AttributeError):
        domain, bus, slot = device.pci_domain_id_nv, device.pci_bus_id_nv, device.pci_slot_id_nv
        address = f"{domain:08x}:{bus:02x}:{slot >> 3:02x}.0"
        handle = ctypes.c_void_p()
        use, memory = _Utilisation(), _Memory()
        answers = (
            library.nvmlDeviceGetHandleByPciBusId_v2(address.encode(), ctypes.byref(handle))
            or library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use))
            or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        )
        if answers == 0:
            return GpuLoad(use.gpu, memory.free, memory.total)
    return None


def occupied(device: DeviceInfo, needed: int) -> str | None:
    """What the user should know about a GPU that others use, or have filled; None where none do.

    ``needed``: bytes that a run will take there.
    """
    load = None if device.is_cpu else gpu_load(device.handle)
    if load is None:
        return None
    gib = 2**30
    if load.free < needed:
        return (
            f"{device.name} has {load.free / gib:.1f} of {load.total / gib:.1f} GiB free, and "
            f"{needed / gib:.1f} are wanted: others use it (nvidia-smi says who; --device takes "
            "another, --memory-limit less)"
        )
    if load.busy >= BUSY:
        return (
            f"{device.name} is {load.busy} % busy with others' work: this will take longer "
            "(nvidia-smi says whose; --device takes another)"
        )
    return None


def load_meter(
    device: DeviceInfo, clock: Callable[[], float] = time.monotonic
) -> Callable[[], str]:
    """What says in a word how busy a device is; it looks once in a while, however often asked."""
    cpu = _CpuMeter(clock)
    said, looked = "", -OFTEN

    def text() -> str:
        nonlocal said, looked
        if clock() - looked >= OFTEN:
            said, looked = cpu() if device.is_cpu else _gpu_text(device.handle), clock()
        return said

    return text


def _gpu_text(device: cl.Device) -> str:
    load = gpu_load(device)
    return "" if load is None else f"GPU {load.busy} %"


class _CpuMeter:
    """CPU time of the process since it was last asked, 100 % for each CPU."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock(), time.process_time()

    def __call__(self) -> str:
        now, cpu = self._clock(), time.process_time()
        (then, before), self._last = self._last, (now, cpu)
        return f"CPU {(cpu - before) / (now - then):.0%}" if now > then else ""
