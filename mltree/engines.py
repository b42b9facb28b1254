"""Opening the engine that a user asked for: an OpenCL device, or the NumPy reference."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mltree.alignment.patterns import Patterns
from mltree.device.discovery import DeviceInfo, choose_devices, choose_layout
from mltree.device.layout import Layout
from mltree.device.memory import cla_memory
from mltree.device.panels import PanelEngine, Place
from mltree.device.session import Session
from mltree.device.speed import measured_speeds
from mltree.errors import InputError
from mltree.likelihood.engine import Engine
from mltree.likelihood.reference import ReferenceEngine

__all__ = [
    "REFERENCE",
    "MemoryNeed",
    "is_exact",
    "memory_need",
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

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class MemoryNeed:
    """What one tree of a search takes on a device."""

    device: DeviceInfo
    layout: str
    slots: int
    """CLAs: one for every directed edge out of an inner node."""
    tree_bytes: int
    """Of those CLAs with their scaling counts."""
    tip_bytes: int
    """Of all tips, one byte a pattern; shared by all trees."""


def memory_need(device: DeviceInfo, patterns: Patterns, categories: int) -> MemoryNeed:
    """The plan for an alignment, nothing allocated."""
    layout = _layout(device, patterns, categories)
    slots = 3 * (patterns.n_tips - 2)
    cla = layout.cla_bytes(patterns.n_patterns)
    return MemoryNeed(device, str(layout), slots, slots * cla, patterns.codes.nbytes)


def open_engine(
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    device: str | None,
    mixed: bool,
    memory_limit: int | None = None,
    trees: int = 1,
) -> Engine:
    """An engine that holds the patterns.

    A lone session where one device has room for the CLAs of so many trees, else panels.
    ``device`` may name several (see :func:`mltree.device.discovery.choose_devices`);
    ``memory_limit``: bytes that CLAs may take on each.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    if device == REFERENCE:
        return ReferenceEngine(patterns, categories, length_bounds)
    devices = choose_devices(device)
    slots = trees * 3 * (patterns.n_tips - 2) + NEAR_VECTORS
    layouts = [_layout(info, patterns, categories, mixed) for info in devices]
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
    size = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if size == 0:
        raise InputError(f"{text!r} is no size of memory", hint="write 512M or 1.5G")
    return size


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
