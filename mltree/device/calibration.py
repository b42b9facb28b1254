"""What was measured of a device, kept in the user's cache folder: copy bandwidth, best layouts.

A file is named by everything that its figures depend on, the OpenCL sources included, so that it
is never stale; one that cannot be read counts as absent. Nothing is measured here
(:mod:`mltree.device.speed` does that): a run takes what it finds, or goes by the rules.

A CPU has one file, however many of its cores a process has: layouts decide a run's last bits, which
are those of its ranks, of ``--threads 1`` and of a whole node. Only bandwidth goes by the cores.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from mltree.device.build import source_hash
from mltree.device.cache import cache_folder, cache_notice, write_whole
from mltree.device.info import DeviceInfo
from mltree.values import Value

__all__ = [
    "CATEGORIES",
    "SIZES",
    "Calibration",
    "Choice",
    "Kind",
    "complaint",
    "load",
    "notices",
    "save",
]

CATEGORIES = 4
"""Of the data that layouts are measured on: Γ4."""

SIZES = (4_096, 32_768)
"""Patterns up to which an alignment is little or middling; beyond, it is much."""


class Kind(Value):
    """What a layout is chosen for."""

    states: int
    categories: int
    single: bool
    """fp32 CLAs."""
    size: int
    """0 little, 1 middling, 2 much (:data:`SIZES`)."""

    @classmethod
    def of(cls, states: int, categories: int, single: bool, n_patterns: int) -> Kind:
        """The kind of an alignment under a model."""
        size = sum(n_patterns > limit for limit in SIZES)
        return cls(states, categories, single, size)

    @property
    def key(self) -> str:
        """For the file."""
        precision = "single" if self.single else "double"
        return f"{self.states} states, {self.categories} categories, {precision}, {self.size}"


class Choice(Value):
    """The layout that was fastest."""

    vw: int
    rows: int | None
    """Nodes of a level side by side; None where that is left to the rules."""


class Calibration(Value):
    """What is known of one device."""

    copy_bytes: float | None = None
    """Bytes a second that a copy reads and writes; None where nobody has measured."""
    layouts: Mapping[str, Choice] = field(default_factory=dict)
    """By :attr:`Kind.key`."""

    def choice(self, kind: Kind) -> Choice | None:
        """The measured layout for a kind of data; with other categories, its VW alone."""
        exact = self.layouts.get(kind.key)
        if exact is not None:
            return exact
        like = self.layouts.get(replace(kind, categories=CATEGORIES).key)
        return None if like is None else replace(like, rows=None)


def load(device: DeviceInfo) -> Calibration:
    """What is known of a device; nothing, where there is no file or it cannot be read."""
    try:
        return _read(device)
    except _UNREADABLE:
        return Calibration()


def complaint(device: DeviceInfo) -> str | None:
    """What is wrong with the file of a device, if there is one."""
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
    """What the user should know of the cache folder before these devices are used."""
    found = [cache_notice(), *map(complaint, devices)]
    return [text for text in found if text is not None]


def save(device: DeviceInfo, calibration: Calibration) -> None:
    """Keep what is known of a device, all or nothing; a folder that cannot be written is left."""
    by_units = _copy_bytes(device)
    if calibration.copy_bytes is not None:
        by_units[str(device.compute_units)] = calibration.copy_bytes
    layouts = {kind: asdict(choice) for kind, choice in calibration.layouts.items()}
    content = {"device": device.name, "copy_bytes": by_units, "layouts": layouts}
    with suppress(OSError):
        write_whole(_path(device), json.dumps(content, indent=1).encode())


def _path(device: DeviceInfo) -> Path:
    units = "" if device.is_cpu else str(device.compute_units)
    parts = device.name, device.platform, device.driver, units, source_hash()
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return cache_folder() / f"calibration-{digest[:16]}.json"


_UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""What reading any file at all can end in: json recurses into what is nested."""


def _read(device: DeviceInfo) -> Calibration:
    content = _content(device)
    copy_bytes = content["copy_bytes"].get(str(device.compute_units))
    layouts = {
        str(key): Choice(_positive(choice["vw"]), _positive(choice["rows"]))
        for key, choice in content["layouts"].items()
    }
    return Calibration(None if copy_bytes is None else _bandwidth(copy_bytes), layouts)


def _copy_bytes(device: DeviceInfo) -> dict[str, float]:
    """What is known of the bandwidth, by compute units."""
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
