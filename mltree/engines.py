"""Opening the engine that a user asked for: an OpenCL device, or the NumPy reference."""

from __future__ import annotations

from mltree.alignment.patterns import Patterns
from mltree.likelihood.engine import Engine
from mltree.likelihood.reference import ReferenceEngine

__all__ = ["REFERENCE", "open_engine"]

REFERENCE = "reference"
"""The name that ``--device`` takes for the engine without a device."""


def open_engine(
    patterns: Patterns,
    categories: int,
    length_bounds: tuple[float, float],
    device: str | None,
    precision: str,
) -> Engine:
    """An engine that holds the patterns.

    Raises:
        DeviceError: the device cannot be found or used.
    """
    if device == REFERENCE:
        return ReferenceEngine(patterns, categories, length_bounds)
    from mltree.device.discovery import choose_device, choose_layout
    from mltree.device.session import Session

    chosen = choose_device(device)
    alphabet = patterns.alphabet
    layout = choose_layout(
        chosen,
        alphabet.n_states,
        alphabet.n_codes,
        categories,
        patterns.n_patterns,
        precision == "mixed",
    )
    return Session(chosen.handle, patterns, layout, length_bounds)
