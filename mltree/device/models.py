"""Eigen systems, series and gamma quantiles on a device: opencl/models.cl and its transfers."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import pyopencl as cl

from mltree.device.build import build_kernels, context_on
from mltree.device.discovery import DeviceInfo
from mltree.device.memory import Memory, NamingDevice
from mltree.device.worker import BUILDS, Build
from mltree.models import portable
from mltree.models.eigen import MOST_DOUBLINGS, MOST_TERMS, SERIES_OCTAVES, uniformised
from mltree.models.portable import FACTORIALS, LOG_TERMS, Formula, jacobi
from mltree.models.rates import halley
from mltree.system.arrays import Float64

GROUP, WIDE_GROUP, WIDE_STATES = 64, 256, 20
"""Work-items of a GPU's group that has a matrix, or as many quantiles; and of one that has a matrix
of so many states or more, each of whose 600 rotations moves thousands of numbers."""

PLANE_BYTES = 24
"""Bytes of a rotation: two indices, a cosine and a sine."""

WORTH = 0.1
"""Seconds of NumPy that are worth a device's 60 ms of loading kernels."""


class DeviceModels:
    """Computes formulas of models on one OpenCL device, once that is worth it."""

    def __init__(self, info: DeviceInfo) -> None:
        """Build nothing before it is needed."""
        self._info, self._device = info, info.handle
        self._is_cpu = info.is_cpu
        self._naming = NamingDevice(info.handle)
        self._lock = Lock()
        self._spent = 0.0
        """Seconds that NumPy took until now."""
        self._built: dict[int, dict[str, cl.Kernel]] = {}
        """Kernels by the work-items of their groups."""
        self._formulas: dict[Formula, Formula] = {
            jacobi: self._eigensystem,
            halley: self._gamma_quantiles,
            uniformised: self._series,
        }

    def __call__(self, formula: Formula, *arrays: Float64) -> tuple[Float64, ...]:
        """Compute one of the formulas; by NumPy at first, and while the device does another."""
        if self._is_early(formula, arrays[0]) or not self._lock.acquire(blocking=False):
            began = time.perf_counter()
            found = formula(*arrays)
            self._spent += time.perf_counter() - began
            return found
        try:
            with self._naming:
                return self._formulas[formula](*arrays)
        finally:
            self._lock.release()

    def _is_early(self, formula: Formula, array: Float64) -> bool:
        """True while little was computed, or others build the kernels, 2 s on a new GPU."""
        if self._spent < WORTH or not array.size:
            return True
        build = Build("models", items=GROUP if formula is halley else _items(array.shape[-1]))
        if self._is_cpu or build.items in self._built:
            return False
        BUILDS.start(self._info, [build])
        return BUILDS.is_under_way(self._device, build)

    def _eigensystem(self, a: Float64) -> tuple[Float64, Float64]:
        memory, (count, states, _) = self._memory, a.shape
        memory.put("matrices", a)
        for name in ("work", "vectors"):
            memory.reserve(name, a.nbytes)
        memory.reserve("values", a.nbytes // states)
        buffers = memory.several("matrices", "work", "values", "vectors")
        local = cl.LocalMemory(PLANE_BYTES * (states + 1) // 2), cl.LocalMemory(4)
        sizes = np.int32(states), np.int64(0)
        self._launch("eigen_systems", count, _items(states), *buffers, *sizes, *local)
        values = memory.fetch("values", (count, states), np.float64)
        return values, memory.fetch("vectors", (count, states, states), np.float64)

    def _series(self, generators: Float64, *of_system: Float64) -> tuple[Float64, Float64, Float64]:
        memory, (count, states, _), size = self._memory, generators.shape, generators.nbytes
        given = ("generators", "eigenvalues", "right", "left", "frequencies", "weights")
        for name, array in zip(given, (generators, *of_system), strict=True):
            memory.put(name, array)
        heads = count, SERIES_OCTAVES + 4
        most = {"powers": MOST_TERMS, "doublings": MOST_DOUBLINGS, "work": 2}
        for name, bytes_ in {"heads": 8 * math.prod(heads), **most}.items():
            memory.reserve(name, bytes_ * (size if name in most else 1))
        buffers = memory.several(*given, "factorials", "heads", *most)
        local = cl.LocalMemory(16 * states), cl.LocalMemory(4)
        sizes = np.int32(states), np.int64(0)
        self._launch("uniformised", count, _items(states), *buffers, *sizes, *local)
        head = memory.fetch("heads", heads, np.float64)
        square = count, states, states
        powers = memory.fetch("powers", (int(head[:, 3].max()), *square), np.float64)
        return head, powers, memory.fetch("doublings", (int(head[:, -1].max()), *square), float)

    def _gamma_quantiles(
        self, shapes: Float64, excesses: Float64, shares: Float64, logs: Float64
    ) -> tuple[Float64, Float64]:
        memory, size = self._memory, (len(shapes), len(shares))
        given = {"shapes": shapes, "excesses": excesses, "shares": shares, "logs": logs}
        for name, array in given.items():
            memory.put(name, array)
        for name in ("ratios", "below"):
            memory.reserve(name, 8 * size[0] * size[1])
        buffers = memory.several(*given, "factorials", "log_terms", "ratios", "below")
        groups = -(-size[0] * size[1] // (1 if self._is_cpu else GROUP))
        self._launch("gamma_quantiles", groups, GROUP, *buffers, *map(np.int32, size), np.int64(0))
        ratios = memory.fetch("ratios", size, np.float64)
        return ratios, memory.fetch("below", size, np.float64)

    def _launch(self, name: str, groups: int, items: int, *arguments: Any) -> None:
        """Launch so many groups, of so many work-items on a GPU."""
        items = 1 if self._is_cpu else items
        kernel = self._kernels(items)[name]
        kernel.set_args(*arguments)
        cl.enqueue_nd_range_kernel(self._memory.queue, kernel, (groups * items,), (items,))

    @cached_property
    def _memory(self) -> Memory:
        context = context_on(self._device)
        memory = Memory(context, cl.CommandQueue(context, self._device), nullcontext())
        memory.put("factorials", np.array(FACTORIALS))
        memory.put("log_terms", np.array(LOG_TERMS))
        return memory

    def _kernels(self, items: int) -> dict[str, cl.Kernel]:
        if items not in self._built:
            context = context_on(self._device)
            program = build_kernels(context, self._device, "models", ITEMS=items)
            kernels = program.all_kernels()
            self._built[items] = {kernel.function_name: kernel for kernel in kernels}
        return self._built[items]


def _items(states: int) -> int:
    return WIDE_GROUP if states >= WIDE_STATES else GROUP


def speed_up_models(device: DeviceInfo) -> None:
    """Have a device that knows doubles compute formulas of models, from now on."""
    if portable.on_device is None and device.has_fp64:
        portable.on_device = DeviceModels(device)
