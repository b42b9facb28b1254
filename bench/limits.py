"""What a device can do at most: copy bandwidth and arithmetic rate, measured in the same run."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from mltree.device.speed import copy_bandwidth

__all__ = ["Limits", "measure_limits"]

TRIES = 10
"""The fastest of so many: a limit is what is possible."""

_STEPS = 4096
_CHAINS = 8
_SOURCE = """
#if DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
kernel void multiply_add(global SCALAR *out, SCALAR b) {
  const VECTOR start = (VECTOR)((SCALAR)get_global_id(0) * (SCALAR)1e-9);
  VECTOR s = start, t = start + b, u = t + b, v = u + b, w = v + b, x = w + b, y = x + b, z = y + b;
  for (int step = 0; step < STEPS; step++) {
    s = s * b + b; t = t * b + b; u = u * b + b; v = v * b + b;
    w = w * b + b; x = x * b + b; y = y * b + b; z = z * b + b;
  }
  const VECTOR sum = s + t + u + v + w + x + y + z;
  out[get_global_id(0)] = FIRST(sum);
}
"""


@dataclass(frozen=True)
class Limits:
    """A device's limits."""

    copy_bytes: float
    """Bytes a second that a copy reads and writes together."""
    flops_double: float | None
    """Multiplications and additions a second in fp64; None where the device has no doubles."""
    flops_single: float


def measure_limits(device: cl.Device) -> Limits:
    """Measure a device, in about a second."""
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    double = _rate(context, queue, double=True) if "cl_khr_fp64" in device.extensions else None
    return Limits(copy_bandwidth(device, TRIES), double, _rate(context, queue, double=False))


def _rate(context: cl.Context, queue: cl.CommandQueue, *, double: bool) -> float:
    device = context.devices[0]
    on_cpu = bool(device.type & cl.device_type.CPU)
    lanes = (8 if double else 16) if on_cpu else 1
    scalar = "double" if double else "float"
    vector = f"{scalar}{lanes}" if on_cpu else scalar
    options = [
        f"-DDOUBLE={int(double)}", f"-DSCALAR={scalar}", f"-DVECTOR={vector}",
        f"-DFIRST(x)={'(x).s0' if on_cpu else '(x)'}", f"-DSTEPS={_STEPS}",
        "-cl-mad-enable",
    ]  # fmt: skip
    kernel = cl.Program(context, _SOURCE).build(options=options).multiply_add
    items = device.max_compute_units * (256 if on_cpu else 4096)
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, items * 8)
    kernel.set_args(out, (np.float64 if double else np.float32)(0.999))
    group = None if on_cpu else (256,)
    work = 2.0 * items * lanes * _STEPS * _CHAINS
    return work / _fastest(
        queue, lambda: cl.enqueue_nd_range_kernel(queue, kernel, (items,), group)
    )


def _fastest(queue: cl.CommandQueue, enqueue: object) -> float:
    assert callable(enqueue)
    best = np.inf
    for _ in range(TRIES):
        start = time.perf_counter()
        enqueue()
        queue.finish()
        best = min(best, time.perf_counter() - start)
    return float(best)
