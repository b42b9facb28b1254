"""Opening the engine that a user asked for: an OpenCL device, or the NumPy reference."""

from __future__ import annotations

import re
from typing import NamedTuple

from mltree.alignment.patterns import Patterns
from mltree.device.discovery import (
    DeviceInfo,
    check_width,
    choose_devices,
    choose_layout,
    find_devices,
    notices,
)
from mltree.device.layout import Layout
from mltree.device.memory import LEAST_BATCH, room_on
from mltree.device.panels import PanelEngine
from mltree.device.seats import Place
from mltree.device.session import Session
from mltree.device.speed import known_bandwidth, measured_speeds
from mltree.device.timing import Breakdown
from mltree.errors import InputError
from mltree.events import MemoryPlanned
from mltree.likelihood.engine import Engine, Room
from mltree.likelihood.reference import ReferenceEngine
from mltree.settings import PRESETS

__all__ = [
    "REFERENCE",
    "copy_bandwidth",
    "device_notices",
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

HOST_BYTES = 122 << 20
"""Of a process with PoCL, its kernels and a search's own arrays: searches of 12 to 150 taxa. The
first ones on a machine take as much again while their kernels are compiled."""

ADDRESSABLE = 1 << 63
"""Bytes, more than any memory has: OpenCL's sizes are 64-bit numbers."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def memory_plan(
    patterns: Patterns,
    categories: int,
    device: str | None,
    mixed: bool = False,
    trees: int | None = None,
    vw: int | None = None,
    memory_limit: int | None = None,
) -> MemoryPlanned | None:
    """What a run will take, nothing allocated yet; None by the reference engine.

    Arguments as of :func:`open_engine`.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    if device == REFERENCE:
        return None
    devices = choose_devices(device)
    layout = _layout(devices[0], patterns, categories, mixed, vw)
    room = room_on(devices[0].handle, layout, patterns.n_patterns, memory_limit)
    demand = _Demand.of(patterns, room, trees)
    most, slot = room.most * len(devices), layout.cla_bytes(patterns.n_patterns)
    own = min(demand.own, most)
    clas, near = own * slot, min(demand.near, most - own) * slot
    matrices, tips = demand.lengths * layout.matrix_bytes, patterns.codes.nbytes
    on_host = clas + near + matrices + tips if all(info.is_cpu for info in devices) else 0
    return MemoryPlanned(
        device=", ".join(info.name for info in devices),
        layout=str(layout),
        trees=demand.trees,
        slots=_slots(patterns),
        clas=clas,
        near=near,
        tips=tips,
        matrices=matrices,
        process=HOST_BYTES + on_host,
        available=sum(info.memory for info in devices),
    )


def _slots(patterns: Patterns) -> int:
    """CLAs of a tree: one for every directed edge out of an inner node."""
    return 3 * (patterns.n_tips - 2)


class _Demand(NamedTuple):
    """What a run asks of a device at most."""

    trees: int
    """Trees that stand side by side."""
    own: int
    """CLA slots of those."""
    near: int
    """CLA slots of near vectors beside them."""
    lengths: int
    """Branch lengths of the largest launch."""

    @classmethod
    def of(cls, patterns: Patterns, room: Room, trees: int | None) -> _Demand:
        """Of a search that has so many trees, or of the evaluation of one where None.

        Trees have as many prunes as slots, and a shortlist has so many insertions of each. A scan
        has every length, its half, and the join of both sides of every prune; re-scoring has three
        for every near vector.
        """
        slots, edges = _slots(patterns), 2 * patterns.n_tips - 3
        if trees is None:
            return cls(1, slots, 0, edges)
        side_by_side = min(trees, room.trees_at_once(slots, beside=LEAST_BATCH))
        own = side_by_side * slots
        near = min(room.near_at_once(own), PRESETS["default"].rounds.keep * own)
        lengths = max(side_by_side * 2 * (edges + slots), 3 * near)
        return cls(side_by_side, own, near, lengths)


def copy_bandwidth(spent: Breakdown) -> float | None:
    """Bytes a second that the devices copy together; None where there is none.

    Measured in 0.1 s where no run has done so before.
    """
    handles = {handle.int_ptr for handle in spent.devices}
    used = [info for info in find_devices() if info.handle.int_ptr in handles]
    return sum(map(known_bandwidth, used)) or None


def device_notices(device: str | None) -> list[str]:
    """What the user should know of the machine before a run; nothing by the reference engine."""
    return [] if device == REFERENCE else notices(choose_devices(device))


def open_engine(
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    device: str | None,
    mixed: bool,
    memory_limit: int | None = None,
    trees: int | None = None,
    vw: int | None = None,
) -> Engine:
    """An engine that holds the patterns.

    A lone session where one device has room for a tree's CLAs, else panels. ``trees``: that
    a search will have; None where one is evaluated.
    ``device`` may name several (see :func:`mltree.device.discovery.choose_devices`);
    ``memory_limit``: bytes that CLAs may take on each; ``vw``: patterns of a block.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    if device == REFERENCE:
        return ReferenceEngine(patterns, categories, length_bounds)
    devices = choose_devices(device)
    layouts = [_layout(info, patterns, categories, mixed, vw) for info in devices]
    room = room_on(devices[0].handle, layouts[0], patterns.n_patterns, memory_limit)
    if len(devices) == 1 and _slots(patterns) + LEAST_BATCH <= room.most:
        demand = _Demand.of(patterns, room, trees)
        return Session(
            devices[0].handle, patterns, layouts[0], length_bounds, memory_limit=memory_limit,
            slots=demand.own + demand.near,
        )  # fmt: skip
    speeds = measured_speeds(devices, layouts, patterns)
    places = [
        Place(info.handle, layout, speed, memory_limit)
        for info, layout, speed in zip(devices, layouts, speeds, strict=True)
    ]
    return PanelEngine(patterns, places, length_bounds, _slots(patterns) + LEAST_BATCH)


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
