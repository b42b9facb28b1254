"""Which OpenCL devices there are, what matters about each, and which one a run gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyopencl as cl

from mltree.device import calibration
from mltree.device.cache import cache_folder, cache_notice
from mltree.device.info import DeviceInfo
from mltree.device.layout import (
    SMALL_MATRIX,
    Layout,
    cpu_layout,
    gpu_layout,
    gpu_rows,
    most_rows,
    without_fp64,
)
from mltree.device.pocl import little_room, name_unknown_cpu, why_unloadable
from mltree.errors import DeviceError

__all__ = [
    "ALL",
    "DeviceInfo",
    "block_widths",
    "check_width",
    "choose_device",
    "choose_devices",
    "choose_layout",
    "find_devices",
    "no_device",
    "notices",
]

ALL = "all"
"""What ``--device`` takes for every GPU, or the CPU where there is none."""

NO_DEVICE_HINT = (
    "`pip install 'pyopencl[pocl]'` brings a CPU device; `mltree devices` lists what is found"
)

REFERENCE = "--device reference computes without one, slowly"

CPU_WIDTHS = (1, 4, 8, 16)
"""Patterns of a block on a CPU: RAxML's AVX layout, and what vector types hold."""

GPU_WIDTHS = (8, 16, 32, 64)
"""Patterns of a block on a GPU; less leaves neighbours little to read together, and VW=1 ends in
INVALID_KERNEL_ARGS on NVIDIA."""

GPU_WIDE_PATTERNS = 16_384
"""From here on 32 work-items share a block, below it 8, which gives four times the work-groups. On
an H200 8 won at 1,727 patterns (derivatives 0.43 against 0.69 ms) and 32 at 262,144; where they
cross in between was not measured. Each work-item takes two patterns, which read a P matrix once:
derivatives 0.41 -> 0.30 ms, insertion scan 6.5 -> 9.9 G/s at 200 x 1,727. Proteins of few patterns
are the exception: two vectors of 20 states do not fit the registers of a large work-group."""


def find_devices() -> list[DeviceInfo]:
    """Every usable device, GPUs first. A platform that is broken is passed over."""
    found = []
    for platform in _platforms():
        try:
            devices = platform.get_devices()
        except cl.Error:
            continue
        found += [(device.type & cl.device_type.CPU != 0, device) for device in devices]
    found.sort(key=lambda pair: pair[0])
    return [_describe(index, device) for index, (_, device) in enumerate(found)]


def _platforms() -> list[cl.Platform]:
    if little_room() is not None:
        return []
    try:
        platforms: list[cl.Platform] = cl.get_platforms()
    except cl.Error:
        return []
    return platforms


def _describe(index: int, device: cl.Device) -> DeviceInfo:
    is_cpu = bool(device.type & cl.device_type.CPU)
    if is_cpu:
        name_unknown_cpu(device)
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
    )


def no_device() -> DeviceError:
    """Why none was found: what is wrong with the machine, else that there is none."""
    try:
        cache_folder()
    except DeviceError as error:
        return error
    if (reason := little_room() or why_unloadable()) is not None:
        return DeviceError(f"no OpenCL device can be used: {reason}", hint=REFERENCE)
    if platforms := _platforms():
        names = ", ".join(platform.name.strip() for platform in platforms)
        return DeviceError(f"no OpenCL device is offered by {names}", hint=REFERENCE)
    return DeviceError("no OpenCL device was found", hint=f"{NO_DEVICE_HINT}; {REFERENCE}")


def notices(devices: Sequence[DeviceInfo]) -> list[str]:
    """What the user should know of the machine before these devices are used."""
    found = [cache_notice(), *map(calibration.complaint, devices)]
    return [text for text in found if text is not None]


def choose_device(wanted: str | None) -> DeviceInfo:
    """The device of that number or part of a name; the first (a GPU, if any) where None.

    Raises:
        DeviceError: there is no such device, or none at all.
    """
    devices = find_devices()
    if not devices:
        raise no_device()
    if wanted is None:
        return devices[0]
    kinds = {"cpu": True, "gpu": False}
    for device in devices:
        if wanted == str(device.index):
            return device
    for device in devices if wanted.strip() else []:
        if wanted.lower() in f"{device.name} {device.platform}".lower():
            return device
        if kinds.get(wanted.lower()) == device.is_cpu:
            return device
    names = ", ".join(f"{device.index}: {device.name}" for device in devices)
    raise DeviceError(f"no device matches {wanted!r}", hint=f"there are {names}")


def choose_devices(wanted: str | None) -> list[DeviceInfo]:
    """The devices of a list such as ``0,1``, or all of them; see :func:`choose_device`.

    A CPU that several platforms offer is one CPU: ``all`` takes it once, and not beside a GPU.

    Raises:
        DeviceError: there is no such device, or none at all.
    """
    if wanted is not None and wanted.lower() == ALL:
        found = find_devices()
        return [device for device in found if not device.is_cpu] or [choose_device(None)]
    if wanted is None or "," not in wanted:
        return [choose_device(wanted)]
    return [choose_device(name.strip()) for name in wanted.split(",")]


def choose_layout(
    device: DeviceInfo,
    states: int,
    codes: int,
    categories: int,
    n_patterns: int,
    single: bool = False,
    vw: int | None = None,
    is_measured: bool = True,
) -> Layout:
    """The layout for a device and an alignment: as kept or measured there, else by the rules.

    ``vw`` overrides the block's width; ``is_measured`` False asks for the rules' layout.
    """
    single = single or not device.has_fp64
    kind = calibration.Kind.of(states, categories, single, n_patterns)
    is_free = is_measured and vw is None
    measured = calibration.choice(device, kind) if is_free else None
    if measured and measured.vw not in _widths(device):
        measured = None
    vw = measured.vw if measured else vw
    if device.is_cpu:
        native = device.vector_width * (2 if single else 1)
        layout = cpu_layout(states, codes, categories, vw or min(native, 16), single)
    else:
        is_wide = n_patterns >= GPU_WIDE_PATTERNS
        width = 2 if is_wide or states <= SMALL_MATRIX else 1
        block = vw or width * (32 if is_wide else 8)
        width = min(width, block)
        rows = gpu_rows(block, categories, n_patterns, device.compute_units, width)
        layout = gpu_layout(states, codes, categories, block, single, rows, width)
        if measured and measured.rows:  # with more patterns a work-item, perhaps, than here
            layout = replace(layout, rows=min(measured.rows, most_rows(layout)))
    if is_free:
        calibration.keep(device, kind, layout.vw, layout.rows)
    return layout if device.has_fp64 else without_fp64(layout)


def block_widths(device: DeviceInfo) -> tuple[int, ...]:
    """Block widths worth measuring: on a CPU those that fill its vectors."""
    if not device.is_cpu:
        return GPU_WIDTHS
    return tuple(width for width in CPU_WIDTHS if width >= min(device.vector_width, 16))


def _widths(device: DeviceInfo) -> tuple[int, ...]:
    return CPU_WIDTHS if device.is_cpu else GPU_WIDTHS


def check_width(device: DeviceInfo, vw: int) -> None:
    """Make sure that a block may be so wide.

    Raises:
        DeviceError: it may not, there.
    """
    widths = _widths(device)
    if vw not in widths:
        raise DeviceError(
            f"{device.name}: no blocks of {vw} patterns",
            hint=f"--vw takes {', '.join(map(str, widths))} there",
        )
