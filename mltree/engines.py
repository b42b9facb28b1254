"""Opening the engine that a user asked for: an OpenCL device, or the NumPy reference."""

from __future__ import annotations

import re

from mltree.alignment.patterns import Patterns
from mltree.device.discovery import (
    DeviceInfo,
    check_width,
    choose_devices,
    choose_layout,
    find_devices,
)
from mltree.device.layout import Layout
from mltree.device.memory import cla_memory
from mltree.device.panels import PanelEngine, Place
from mltree.device.session import Session
from mltree.device.speed import known_bandwidth, measured_speeds
from mltree.device.timing import Breakdown
from mltree.errors import InputError
from mltree.events import MemoryPlanned
from mltree.likelihood.engine import Engine
from mltree.likelihood.reference import ReferenceEngine

__all__ = [
    "REFERENCE",
    "copy_bandwidth",
    "is_exact",
    "memory_plan",
    "open_engine",
    "open_exact",
    "open_session",
    "panel_notice",
    "parse_size",
]

REFERENCE = "reference"
"""The name that ``--device`` takes for the engine without a device."""

NEAR_VECTORS = 64
"""CLAs beside the trees' own that a search should have room for: it refines as many at once."""

ADDRESSABLE = 1 << 63
"""Bytes, more than any memory has: OpenCL's sizes are 64-bit numbers."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def memory_plan(
    patterns: Patterns,
    categories: int,
    device: str | None,
    mixed: bool = False,
    trees: int = 1,
    vw: int | None = None,
) -> MemoryPlanned | None:
    """What so many trees will take, nothing allocated yet; None by the reference engine.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    if device == REFERENCE:
        return None
    devices = choose_devices(device)
    layout = _layout(devices[0], patterns, categories, mixed, vw)
    slots, edges = _slots(patterns), 2 * patterns.n_tips - 3
    return MemoryPlanned(
        device=", ".join(info.name for info in devices),
        layout=str(layout),
        trees=trees,
        slots=slots,
        clas=trees * slots * layout.cla_bytes(patterns.n_patterns),
        tips=patterns.codes.nbytes,
        matrices=trees * edges * layout.matrix_bytes,
        available=sum(info.memory for info in devices),
    )


def _slots(patterns: Patterns) -> int:
    """CLAs of a tree: one for every directed edge out of an inner node."""
    return 3 * (patterns.n_tips - 2)


def copy_bandwidth(spent: Breakdown) -> float | None:
    """Bytes a second that the devices copy together; None where there is none.

    Measured in 0.1 s where no run has done so before.
    """
    handles = {handle.int_ptr for handle in spent.devices}
    used = [info for info in find_devices() if info.handle.int_ptr in handles]
    return sum(map(known_bandwidth, used)) or None


def open_engine(
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    device: str | None,
    mixed: bool,
    memory_limit: int | None = None,
    trees: int = 1,
    vw: int | None = None,
) -> Engine:
    """An engine that holds the patterns.

    A lone session where one device has room for the CLAs of so many trees, else panels.
    ``device`` may name several (see :func:`mltree.device.discovery.choose_devices`);
    ``memory_limit``: bytes that CLAs may take on each; ``vw``: patterns of a block.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    if device == REFERENCE:
        return ReferenceEngine(patterns, categories, length_bounds)
    devices = choose_devices(device)
    slots = trees * _slots(patterns) + NEAR_VECTORS
    layouts = [_layout(info, patterns, categories, mixed, vw) for info in devices]
    limit = memory_limit or cla_memory(devices[0].handle)
    if len(devices) == 1 and slots * layouts[0].cla_bytes(patterns.n_patterns) <= limit:
        handle = devices[0].handle
        return Session(handle, patterns, layouts[0], length_bounds, memory_limit=memory_limit)
    speeds = measured_speeds(devices, layouts, patterns)
    places = [
        Place(info.handle, layout, speed, memory_limit)
        for info, layout, speed in zip(devices, layouts, speeds, strict=True)
    ]
    return PanelEngine(patterns, places, length_bounds, slots)


def open_exact(
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    device: str | None,
    memory_limit: int | None = None,
) -> Engine:
    """An fp64 engine for final scores: the device where it can, else the reference."""
    if device == REFERENCE or not all(info.has_fp64 for info in choose_devices(device)):
        device = REFERENCE
    return open_engine(patterns, categories, length_bounds, device, False, memory_limit)


def is_exact(engine: Engine) -> bool:
    """Whether an engine computes in fp64 throughout."""
    if isinstance(engine, PanelEngine):
        return not any(layout.single for layout in engine.layouts)
    return not (isinstance(engine, Session) and engine.layout.single)


def panel_notice(engine: Engine) -> str | None:
    """How an alignment was split into panels, and why; None where it was not."""
    return engine.notice if isinstance(engine, PanelEngine) else None


def parse_size(text: str) -> int:
    """Bytes of ``512M``, ``1.5GiB`` and the like.

    Raises:
        InputError: it is no size.
    """
    found = re.fullmatch(r"([0-9]+\.?[0-9]*)\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * _UNITS[found[2].upper()] if found else 0.0
    if not 1 <= size < ADDRESSABLE:
        raise InputError(f"{text!r} is no size of memory", hint="write 512M or 1.5G")
    return int(size)


def open_session(
    device: DeviceInfo,
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    mixed: bool = False,
    vw: int | None = None,
) -> Session:
    """A session on one device; ``vw`` overrides the layout's block width."""
    layout = _layout(device, patterns, categories, mixed, vw)
    return Session(device.handle, patterns, layout, length_bounds)


def _layout(
    device: DeviceInfo,
    patterns: Patterns,
    categories: int,
    mixed: bool = False,
    vw: int | None = None,
) -> Layout:
    if vw is not None:
        check_width(device, vw)
    alphabet = patterns.alphabet
    return choose_layout(
        device,
        alphabet.n_states,
        alphabet.n_codes,
        categories,
        patterns.n_patterns,
        mixed,
        vw,
    )
