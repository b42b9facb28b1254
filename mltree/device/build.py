"""Building the workers: which source, which options, and a cache that is never stale."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import pyopencl as cl

from mltree.device.layout import Layout
from mltree.errors import DeviceError

__all__ = ["WORKERS", "build_worker", "source_folder"]

WORKERS = ("sites", "scan", "tripod")
"""Front files of the worker; a run builds only those that it needs."""

SPIN_LIMIT = 1 << 24
"""Polls of the grid barrier before it reports a fault: seconds, where a pass takes microseconds."""

NVIDIA_REGISTERS = 128
"""Registers a work-item may use: 512 of them then fit a compute unit, so groups are resident."""


@cache
def source_folder() -> Path:
    """Where the OpenCL sources are: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent.parent
    for folder in (package / "opencl", package.parent / "opencl"):
        if (folder / "worker.h").is_file():
            return folder
    raise DeviceError("the OpenCL sources are missing", hint="reinstall mltree")


@cache
def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(source_folder().iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def build_worker(context: cl.Context, device: cl.Device, name: str, layout: Layout) -> cl.Kernel:
    """The kernel of one front file (:data:`WORKERS`) for one layout.

    Raises:
        DeviceError: the driver could not compile it; carries the end of its log.
    """
    options = [
        "-I",
        str(source_folder()),
        "-cl-mad-enable",
        f"-DSPIN_LIMIT={SPIN_LIMIT}",
        f"-DSOURCE_HASH=0x{_source_hash()}",
        *layout.options(),
    ]
    if "nvidia" in device.vendor.lower():
        options.append(f"-cl-nv-maxrregcount={NVIDIA_REGISTERS}")
    try:
        program = cl.Program(context, f'#include "{name}.cl"\n').build(options)
    except cl.RuntimeError as error:
        log = str(error).strip().splitlines()
        raise DeviceError(
            f"{device.name}: the {name} worker does not compile: {log[-1] if log else error}",
            hint=f"layout {layout}; please report this with the driver's version",
        ) from error
    return cl.Kernel(program, "worker")
