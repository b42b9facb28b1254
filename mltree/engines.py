"""Opening the engine that a user asked for: an OpenCL device, or the NumPy reference."""

from __future__ import annotations

from dataclasses import dataclass

from mltree.alignment.patterns import Patterns
from mltree.device.discovery import DeviceInfo, choose_device, choose_layout
from mltree.device.session import Session
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
]

REFERENCE = "reference"
"""The name that ``--device`` takes for the engine without a device."""


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
    alphabet = patterns.alphabet
    layout = choose_layout(
        device, alphabet.n_states, alphabet.n_codes, categories, patterns.n_patterns
    )
    slots = 3 * (patterns.n_tips - 2)
    cla = layout.cla_bytes(patterns.n_patterns)
    return MemoryNeed(device, str(layout), slots, slots * cla, patterns.codes.nbytes)


def open_engine(
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    device: str | None,
    mixed: bool,
) -> Engine:
    """An engine that holds the patterns.

    Raises:
        DeviceError: the device cannot be found or used.
    """
    if device == REFERENCE:
        return ReferenceEngine(patterns, categories, length_bounds)
    return open_session(choose_device(device), patterns, categories, length_bounds, mixed)


def open_exact(
    patterns: Patterns, categories: int, length_bounds: tuple[float, float], device: str | None
) -> Engine:
    """An fp64 engine for final scores: the device where it can, else the reference."""
    if device == REFERENCE or not choose_device(device).has_fp64:
        device = REFERENCE
    return open_engine(patterns, categories, length_bounds, device, mixed=False)


def is_exact(engine: Engine) -> bool:
    """Whether an engine computes in fp64 throughout."""
    return not (isinstance(engine, Session) and engine.layout.single)


def open_session(
    device: DeviceInfo,
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    mixed: bool = False,
    vw: int | None = None,
) -> Session:
    """A session on one device; ``vw`` overrides the layout's block width."""
    alphabet = patterns.alphabet
    layout = choose_layout(
        device,
        alphabet.n_states,
        alphabet.n_codes,
        categories,
        patterns.n_patterns,
        mixed,
        vw,
    )
    return Session(device.handle, patterns, layout, length_bounds)
