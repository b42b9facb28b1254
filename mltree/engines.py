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
    """An engine that holds the patterns."""
    if device == REFERENCE:
        return ReferenceEngine(patterns, categories, length_bounds)
    import pyopencl as cl

    from mltree.device.layout import cpu_layout
    from mltree.device.pocl import name_unknown_cpu
    from mltree.device.session import Session

    chosen = cl.get_platforms()[0].get_devices()[0]
    name_unknown_cpu(chosen)
    a = patterns.alphabet
    layout = cpu_layout(a.n_states, a.n_codes, categories, 8, precision == "mixed")
    return Session(chosen, patterns, layout, length_bounds)
