"""Finding OpenCL devices, describing each, and choosing those of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyopencl as cl

from mltree.device import check_process
from mltree.device.build import cache_folder, has_matrix_unit
from mltree.device.memory import MEMORY_SHARE
from mltree.device.pocl.pocl import (
    few_threads,
    little_room,
    name_cpu,
    prepare_process,
    why_unloadable,
)
from mltree.system.errors import DeviceError
from mltree.system.process import process_threads, threads
from mltree.system.ranks import local_rank
from mltree.system.values import Value


class DeviceInfo(Value):
    """One device, as ``mltree devices`` lists it."""

    index: int
    """Number that ``--device`` takes."""
    name: str
    platform: str
    driver: str
    is_cpu: bool
    has_fp64: bool
    compute_units: int
    memory: int
    """Bytes of global memory."""
    largest_buffer: int
    """Bytes of the largest single allocation."""
    local_memory: int
    """Bytes of local memory of a work-group."""
    vector_width: int
    """Doubles of a native vector: VW on a CPU where nothing was measured."""
    handle: cl.Device
    has_matrix_unit: bool = False
    """True if its warps multiply matrices of doubles (``opencl/matrix_tiles.h``)."""
    sharers: int = 1
    """Ranks that compute on it, this one among them."""

    def is_called(self, asked: str) -> bool:
        """True if it is ``cpu`` or ``gpu``, as asked for, or has that in its name or platform's."""
        asked, names = asked.lower(), f"{self.name} {self.platform}".lower()
        return bool(asked.strip()) and (asked in names or asked == ("gpu", "cpu")[self.is_cpu])

    def memory_limit(self, limit: int | None) -> int | None:
        """Bytes that CLAs of this rank may take: its part, where several share the memory.

        Its largest buffer is no part of that: each of them may have one.

        limit  that the user sets to all of them together; None where there is none
        """
        if self.sharers == 1:
            return limit
        whole = int(MEMORY_SHARE * self.memory)
        return (whole if limit is None else min(whole, limit)) // self.sharers


ALL = "all"
"""Word that ``--device`` takes for every GPU, or the CPU where there is none."""

REFERENCE = "reference"
"""Word that ``--device`` takes for the NumPy reference, which computes without a device."""

FULL_UNIT = 1 << 13
"""Numbers of a CLA for each compute unit from which on one tree fills a GPU."""

SHARE_OF_CORE = 1 << 23
"""Numbers of all CLAs of a tree for each core of a rank from which on ranks share the patterns: a
pass over them takes some 10 ms, and asking a rank 1 to 3. CPU seconds of rank 0, the busier of two,
when they share trees and moves / patterns: 3.9 / 3.4 of 60 taxa x 8,000 sites (`fast`, 4.7 alone),
20.0 / 13.9 of 60 x 30,000 (25.7 alone)."""

NO_DEVICE_HINT = (
    "`pip install 'pyopencl[pocl]'` installs a CPU device; `mltree devices` lists all devices"
)

REFERENCE_HINT = f"--device {REFERENCE} computes without one, slowly"


def find_devices() -> list[DeviceInfo]:
    """Every usable device, GPUs first. A platform that is broken is passed over.

    Raises:
        DeviceError: drivers were loaded before this process was forked.
    """
    pairs = []
    for platform in _platforms():
        try:
            devices = platform.get_devices()
        except cl.Error:
            continue
        pairs += [(device.type & cl.device_type.CPU != 0, device) for device in devices]
    pairs.sort(key=lambda pair: pair[0])
    return [_describe(index, device) for index, (_, device) in enumerate(pairs)]


def _platforms() -> list[cl.Platform]:
    if (little_room() or few_threads()) is not None:
        return []
    check_process()
    prepare_process()
    try:
        platforms: list[cl.Platform] = cl.get_platforms()
    except cl.Error:
        return []
    return platforms


def _describe(index: int, device: cl.Device) -> DeviceInfo:
    is_cpu = bool(device.type & cl.device_type.CPU)
    if is_cpu:
        name_cpu(device)
        device = _cores_of_call(device)
    return DeviceInfo(
        index=index,
        name=device.name.strip(),
        platform=device.platform.name.strip(),
        driver=device.driver_version.strip(),
        is_cpu=is_cpu,
        has_fp64="cl_khr_fp64" in device.extensions,
        compute_units=device.max_compute_units,
        memory=device.global_mem_size,
        largest_buffer=device.max_mem_alloc_size,
        local_memory=device.local_mem_size,
        vector_width=max(1, device.native_vector_width_double),
        handle=device,
        has_matrix_unit=has_matrix_unit(device),
    )


_parts: dict[tuple[int, int], cl.Device] = {}
"""Some cores of a CPU, by its handle and their number."""


def _cores_of_call(cpu: cl.Device) -> cl.Device:
    """As many cores of a CPU as the call from Python may use; all where the driver cannot divide.

    A driver has its threads from when it is loaded on.
    """
    number = threads().number
    if process_threads().number <= number or cpu.max_compute_units <= number:
        return cpu
    key = cpu.int_ptr, number
    if key not in _parts:
        by, end = (
            getattr(cl.device_partition_property, f"BY_COUNTS{e}") for e in ("", "_LIST_END")
        )
        try:
            (_parts[key],) = cpu.create_sub_devices([by, number, end])  # type: ignore[list-item]
        except cl.Error:
            return cpu
    return _parts[key]


def no_device() -> DeviceError:
    """Error that says why no device was found: the machine's trouble, or that there is none."""
    try:
        cache_folder()
    except DeviceError as error:
        return error
    if (reason := little_room() or few_threads() or why_unloadable()) is not None:
        return DeviceError(f"no OpenCL device can be used: {reason}", hint=REFERENCE_HINT)
    if platforms := _platforms():
        names = ", ".join(platform.name.strip() for platform in platforms)
        return DeviceError(f"no OpenCL device is offered by {names}", hint=REFERENCE_HINT)
    return DeviceError("no OpenCL device was found", hint=f"{NO_DEVICE_HINT}; {REFERENCE_HINT}")


def choose_device(asked: str | None) -> DeviceInfo:
    """The device of that number or part of a name; the first (a GPU, if any) where None.

    A number is no part of a name: the H200 is not device 2.

    Raises:
        DeviceError: there is no such device, or none at all.
    """
    devices = find_devices()
    if not devices:
        raise no_device()
    if asked is None:
        return devices[0]
    for device in devices:
        if asked == str(device.index) or (not asked.isdecimal() and device.is_called(asked)):
            return device
    names = "; ".join(f"device {device.index} is {device.name}" for device in devices)
    raise DeviceError(f"no device matches {asked!r}", hint=names)


def choose_devices(asked: str | None) -> list[DeviceInfo]:
    """The devices of a list such as ``0,1``, or all of them, or none; see :func:`choose_device`.

    A CPU that several platforms offer is one CPU: ``all`` takes it once, and not beside a GPU.
    Ranks of one host share out what is listed, or GPUs like the first where nothing is.

    Raises:
        DeviceError: there is no such device, or none at all.
    """
    if asked == REFERENCE:
        return []
    number, ranks = local_rank()
    if asked is not None and asked.lower() == ALL:
        devices = [device for device in find_devices() if not device.is_cpu]
    elif asked is None and ranks > 1:
        first = choose_device(None)
        alike = [device for device in find_devices() if device.name == first.name]
        devices = [first] if first.is_cpu else alike[:ranks]
    else:
        names = [None] if asked is None else asked.split(",")
        devices = [choose_device(name and name.strip()) for name in names]
    devices = devices or [choose_device(None)]
    first_own = number % len(devices)
    sharers = len(range(first_own, ranks, len(devices)))
    return [replace(device, sharers=sharers) for device in devices[first_own::ranks]]


def company_pays(devices: Sequence[DeviceInfo], cla_size: int) -> bool:
    """True if trees side by side take less time than one after the other.

    On CPUs they do not, nor on GPUs that the CLAs of one tree, of so many numbers each, fill alone.
    """
    gpus = [device for device in devices if not device.is_cpu]
    return bool(gpus) and cla_size < FULL_UNIT * sum(device.compute_units for device in gpus)


def shares_pay(devices: Sequence[DeviceInfo], ranks: int, cla_size: int, tree_size: int) -> bool:
    """True if ranks are better off with a share of the patterns each than with all of them.

    They are where a share is work enough: it fills half of a GPU, which no other rank has, or takes
    a CPU longer than to be asked. A CLA has ``cla_size`` numbers, all of a tree ``tree_size``.
    """
    if ranks == 1 or not devices:
        return False
    units = sum(device.compute_units for device in devices) * ranks
    if devices[0].is_cpu:
        return tree_size >= SHARE_OF_CORE * units
    return devices[0].sharers == 1 and cla_size >= FULL_UNIT // 2 * units
