"""What matters about a device."""

from __future__ import annotations

import pyopencl as cl

from mltree.values import Value

__all__ = ["DeviceInfo"]


class DeviceInfo(Value):
    """One device, as ``mltree devices`` lists it."""

    index: int
    """What ``--device`` takes."""
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
    """Whether its warps multiply matrices of doubles (``opencl/quads.h``)."""
    sharers: int = 1
    """Ranks that compute on it, this one among them."""
