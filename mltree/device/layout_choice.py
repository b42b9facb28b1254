"""The layout of a device for an alignment: as kept, measured (by ``speed``), or by the rules."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mltree.device.build import cache_folder, cache_notice, source_hash
from mltree.device.discovery import DeviceInfo
from mltree.device.layout import (
    FEW_HELD,
    QUAD,
    QUAD_LANES,
    QUAD_STATES,
    SMALL_MATRIX,
    Layout,
    cpu_layout,
    gpu_layout,
    gpu_rows,
    most_rows,
    without_fp64,
)
from mltree.device.memory import cla_memory
from mltree.system.errors import DeviceError, InputError
from mltree.system.files import write_whole
from mltree.system.values import Value

# Measurements of a device lie in the cache folder, in a file that is named by all that its figures
# depend on, the OpenCL sources included. One that cannot be read counts as absent. A CPU has one,
# however many cores a process has: layouts decide the last bits, which are the same for any ranks
# and threads. Only bandwidth goes by the cores.

CATEGORIES = 4
"""Rate categories of the data that layouts are measured on: Γ4."""

SIZES = (4_096, 32_768)
"""Patterns up to which an alignment is little or middling; beyond, it is much."""


class DataKind(Value):
    """The kind of data that a layout is chosen for."""

    states: int
    categories: int
    single: bool
    """fp32 CLAs."""
    size: int
    """0 little, 1 middling, 2 much (:data:`SIZES`)."""

    @classmethod
    def of(cls, states: int, categories: int, single: bool, n_patterns: int) -> DataKind:
        """The kind of an alignment under a model."""
        size = sum(n_patterns > limit for limit in SIZES)
        return cls(states, categories, single, size)

    @property
    def key(self) -> str:
        """For the file."""
        precision = "single" if self.single else "double"
        return f"{self.states} states, {self.categories} categories, {precision}, {self.size}"


class LayoutChoice(Value):
    """The layout that was fastest."""

    vw: int
    rows: int | None
    """Nodes of a level side by side; None where that is left to the rules."""


class Calibration(Value):
    """Measurements of one device."""

    copy_bytes: float | None = None
    """Bytes a second that a copy reads and writes; None where nobody has measured."""
    layouts: Mapping[str, LayoutChoice] = field(default_factory=dict)
    """By :attr:`DataKind.key`."""

    def choice(self, kind: DataKind) -> LayoutChoice | None:
        """The measured layout for a kind of data; with other categories, its VW alone."""
        exact = self.layouts.get(kind.key)
        if exact is not None:
            return exact
        like = self.layouts.get(replace(kind, categories=CATEGORIES).key)
        return None if like is None else replace(like, rows=None)


def load(device: DeviceInfo) -> Calibration:
    """Measurements of a device; empty where there is no file or it cannot be read."""
    try:
        return _read(device)
    except _UNREADABLE:
        return Calibration()


def complaint(device: DeviceInfo) -> str | None:
    """The complaint about a device's file that cannot be read, or None."""
    try:
        _read(device)
    except FileNotFoundError:
        return None
    except _UNREADABLE:
        return (
            f"{_path(device)} is damaged: layouts go by the rules until `mltree devices` measures "
            "them again"
        )
    return None


def notices(devices: Sequence[DeviceInfo]) -> list[str]:
    """Notices about the cache folder before these devices are used."""
    return [text for text in (cache_notice(), *map(complaint, devices)) if text is not None]


def save(device: DeviceInfo, calibration: Calibration) -> None:
    """Keep what is known of a device, all or nothing; a folder that cannot be written is left."""
    by_units = _copy_bytes(device)
    if calibration.copy_bytes is not None:
        by_units[str(device.compute_units)] = calibration.copy_bytes
    layouts = {kind: asdict(choice) for kind, choice in calibration.layouts.items()}
    content = {"device": device.name, "copy_bytes": by_units, "layouts": layouts}
    with suppress(OSError, InputError):
        (path := _path(device)).parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(content, indent=1).encode())


def _path(device: DeviceInfo) -> Path:
    units = "" if device.is_cpu else str(device.compute_units)
    parts = device.name, device.platform, device.driver, units, source_hash()
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return cache_folder() / f"calibration-{digest[:16]}.json"


_UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""Exceptions that reading any file at all can end in: json recurses into what is nested."""


def _read(device: DeviceInfo) -> Calibration:
    content = _content(device)
    copy_bytes = content["copy_bytes"].get(str(device.compute_units))
    layouts = {
        str(key): LayoutChoice(_positive(choice["vw"]), _positive(choice["rows"]))
        for key, choice in content["layouts"].items()
    }
    return Calibration(None if copy_bytes is None else _bandwidth(copy_bytes), layouts)


def _copy_bytes(device: DeviceInfo) -> dict[str, float]:
    """Measured copy bandwidth, bytes a second, by compute units."""
    try:
        known = _content(device)["copy_bytes"]
        return {str(int(units)): _bandwidth(value) for units, value in known.items()}
    except _UNREADABLE:
        return {}


def _content(device: DeviceInfo) -> Any:
    return json.loads(_path(device).read_text(encoding="utf-8"))


def _bandwidth(number: Any) -> float:
    value = float(number)
    if not 0 < value < math.inf:
        raise ValueError(number)
    return value


def _positive(number: object) -> int:
    if not isinstance(number, int) or number < 1:
        raise ValueError(number)
    return number


KeptLayouts = Mapping[str, tuple[int, int]]
"""VW and rows by :func:`layout_key`; a search checkpoints them, since VW decides its bits."""

CPU_WIDTHS = (1, 4, 8, 16)
"""Patterns of a block on a CPU: RAxML's AVX layout, and what vector types hold."""

CPU_BLOCK = 8
"""Patterns of a CPU's block that two vectors of doubles may hold, so that sums do not wait for each
other. CPU seconds on AVX2, with vectors of 4 doubles, blocks of 4 -> 8: DNA searches of 47 taxa
22.6 -> 18.0, of 64 12.1 -> 9.6, of 59 in 8 parts 12.4 -> 10.1; a choice of models 10.7 -> 6.8; a
protein 7.3 -> 9.4."""

GPU_WIDTHS = (8, 16, 32, 64)
"""Patterns of a block on a GPU; less leaves neighbours little to read together, and VW=1 ends in
INVALID_KERNEL_ARGS on NVIDIA."""

GPU_WIDE_PATTERNS = 16_384
"""From here on 32 work-items share a block, below it 8, which gives four times the work-groups. On
an H200 8 won at 1,727 patterns (derivatives 0.43 against 0.69 ms) and 32 at 262,144; where they
cross in between was not measured. Each work-item takes two patterns, which read a P matrix once:
derivatives 0.41 -> 0.30 ms, insertion scan 6.5 -> 9.9 G/s at 200 x 1,727. Proteins of few patterns
are the exception: two vectors of 20 states do not fit the registers of a large work-group."""


def choose_layout(
    device: DeviceInfo,
    states: int,
    codes: int,
    categories: int,
    n_patterns: int,
    single: bool = False,
    vw: int | None = None,
    kept: KeptLayouts | None = None,
) -> Layout:
    """The layout for a device and an alignment: as kept or measured there, else by the rules.

    vw      overrides them all
    single  fp32 CLAs, which devices without fp64 have in any case
    kept    counts instead of what was measured: nothing is where it is empty
    """
    size = (states, codes, categories, n_patterns)
    if vw is not None:
        return rule_layout(device, *size, single, vw)
    kind = DataKind.of(states, categories, single or not device.has_fp64, n_patterns)
    known = load(device) if kept is None else _kept_of(device, kept)
    choice = known.choice(kind)
    if choice is None or choice.vw not in _widths(device):
        return rule_layout(device, *size, single)
    return rule_layout(device, *size, single, choice.vw, choice.rows)


def layout_key(device: DeviceInfo, layout: Layout, n_patterns: int) -> str:
    """Key that a layout is kept under: the device and the kind of data."""
    kind = DataKind.of(layout.states, layout.categories, layout.single, n_patterns)
    return _prefix(device) + kind.key


def kept_layouts(
    devices: Sequence[DeviceInfo], layouts: Sequence[Layout], n_patterns: int
) -> KeptLayouts:
    """Layouts that were chosen, one a device, to be chosen again."""
    return {
        layout_key(device, layout, n_patterns): (layout.vw, layout.rows)
        for device, layout in zip(devices, layouts, strict=True)
    }


def measured_layouts(devices: Sequence[DeviceInfo]) -> KeptLayouts:
    """All that was measured of these devices, to be kept."""
    return {
        _prefix(device) + kind: (choice.vw, choice.rows)
        for device in devices
        for kind, choice in load(device).layouts.items()
        if choice.rows is not None
    }


def _kept_of(device: DeviceInfo, kept: KeptLayouts) -> Calibration:
    prefix = _prefix(device)
    keys = [key for key in kept if key.startswith(prefix)]
    return Calibration(None, {key.removeprefix(prefix): LayoutChoice(*kept[key]) for key in keys})


def _prefix(device: DeviceInfo) -> str:
    return f"{device.platform}, {device.name}: "


def rule_layout(
    device: DeviceInfo,
    states: int,
    codes: int,
    categories: int,
    n_patterns: int,
    single: bool = False,
    vw: int | None = None,
    rows: int | None = None,
) -> Layout:
    """The layout by the rules, but for a block's width or a GPU's rows where they are given."""
    single = single or not device.has_fp64
    if device.is_cpu:
        layout = cpu_layout(
            states, codes, categories, vw or _cpu_width(device, states, single), single
        )
    else:
        items = QUAD if device.has_matrix_unit and states >= QUAD_STATES and not single else 1
        lanes, width = _gpu_shape(device, states, n_patterns, items)
        block = vw or lanes * width
        width = min(width, block if items == 1 else block // QUAD_LANES)
        layout = gpu_layout(states, codes, categories, block, single, 1, width, items)
        rows = rows or gpu_rows(layout, n_patterns, device.compute_units)
        # Rows may have been measured with more patterns a work-item than here.
        layout = replace(layout, rows=min(rows, most_rows(layout)))
    return layout if device.has_fp64 else without_fp64(layout)


def _cpu_width(device: DeviceInfo, states: int, single: bool) -> int:
    """Patterns of a block: those of a native vector, of two where few states leave registers."""
    native = device.vector_width * (2 if single else 1)
    twice = min(2 * native, CPU_BLOCK) if states <= SMALL_MATRIX else native
    return min(max(native, twice), 16)


def _gpu_shape(device: DeviceInfo, states: int, n_patterns: int, items: int) -> tuple[int, int]:
    """Lanes of a block, and patterns that each has."""
    if items > 1:
        is_full = n_patterns >= QUAD_LANES * 2 * device.compute_units
        return QUAD_LANES, 2 if is_full or states <= FEW_HELD * QUAD else 1
    is_wide = n_patterns >= GPU_WIDE_PATTERNS
    return 32 if is_wide else 8, 2 if is_wide or states <= SMALL_MATRIX else 1


def patterns_at_a_time(devices: Sequence[DeviceInfo], n_patterns: int, numbers: int) -> int:
    """Patterns, of ``n_patterns``, that all GPUs have room for at a time.

    numbers  of each pattern's CLAs, in a tree. Its user's limit does not count, nor do other ranks:
             the layout follows from it, and bits from that
    """
    gpus = [device for device in devices if not device.is_cpu]
    room = min((cla_memory(device.handle) for device in gpus), default=None)
    if room is None:
        return n_patterns
    return min(n_patterns, max(1, room // (numbers * np.dtype(np.float64).itemsize)))


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
