"""Building the workers: which source, which options, and a cache that is never stale."""

from __future__ import annotations

import hashlib
import warnings
from functools import cache
from pathlib import Path

import pyopencl as cl

from mltree.device.layout import Layout
from mltree.errors import DeviceError
from mltree.likelihood.program import Program, Scan, Sites, Tripods, Walk

__all__ = [
    "WORKERS",
    "build_worker",
    "is_nvidia",
    "local_memory",
    "resident_groups",
    "source_folder",
    "source_hash",
    "worker_of",
]

WORKERS = ("sites", "scan", "tripod", "walk")
"""Front files of the worker; a run builds only those that it needs."""

SOURCES = (".cl", ".h")
"""Endings of the files that a build may read; prose stands beside them."""

SPIN_LIMIT = 1 << 22
"""Polls of the grid barrier before it reports a fault: seconds, where a pass takes microseconds."""

NVIDIA_REGISTERS = 255
"""Most registers of a work-item. Which builds use fewer the driver tells only in the log of a
fresh build, and -cl-nv-maxrregcount changes nothing beside a required work-group size."""

NVIDIA_LOCAL_MEMORY = 96 * 1024
"""Local memory of a compute unit that groups may share; newer chips have up to 228 KiB."""

NVIDIA_GROUPS = 16
"""Work-groups of a compute unit (compute capability 8.6; others hold up to 32)."""

NVIDIA_ITEMS = 1536
"""Work-items of a compute unit (compute capability 8.6; others hold up to 2048)."""

NVIDIA_REGISTER_FILE = 65_536
"""Registers of a compute unit (compute capability 5 to 10)."""


@cache
def source_folder() -> Path:
    """Where the OpenCL sources are: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent.parent
    for folder in (package / "opencl", package.parent / "opencl"):
        if (folder / "worker.h").is_file():
            return folder
    raise DeviceError("the OpenCL sources are missing", hint="reinstall mltree")


@cache
def source_hash() -> str:
    """12 hexadecimal digits that change with any OpenCL source, and with nothing else."""
    digest = hashlib.sha256()
    for path in sorted(source_folder().iterdir()):
        if path.suffix in SOURCES:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def is_nvidia(device: cl.Device) -> bool:
    """Whether the device takes NVIDIA's options and reports its registers."""
    return "nvidia" in str(device.vendor).lower()


def build_worker(context: cl.Context, device: cl.Device, name: str, layout: Layout) -> cl.Kernel:
    """The kernel of one front file (:data:`WORKERS`).

    Raises:
        DeviceError: the driver could not compile it; carries the end of its log.
    """
    options = [
        "-I",
        str(source_folder()),
        "-cl-mad-enable",
        f"-DSPIN_LIMIT={SPIN_LIMIT}",
        f"-DSOURCE_HASH=0x{source_hash()}",
        *layout.options(),
    ]
    try:
        with warnings.catch_warnings():  # NVIDIA's compiler talks about its registers
            warnings.simplefilter("ignore", cl.CompilerWarning)
            program = cl.Program(context, f'#include "{name}.cl"\n').build(options)
    except cl.RuntimeError as error:
        log = str(error).strip().splitlines()
        raise DeviceError(
            f"{device.name}: the {name} worker does not compile: {log[-1] if log else error}",
            hint=f"layout {layout}; please report this with the driver's version",
        ) from error
    return cl.Kernel(program, "worker")


def local_memory(kernel: cl.Kernel, device: cl.Device) -> int:
    """Bytes of local memory that a work-group takes, beside what its arguments ask for."""
    size = kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, device)
    return int(str(size))


def resident_groups(items: int, local: int) -> int:
    """Work-groups of so many items and bytes that one of NVIDIA's compute units surely holds."""
    warps = -(-items // 32)
    registers = min(NVIDIA_REGISTERS + 1, NVIDIA_REGISTER_FILE // (32 * warps))
    fits = (
        NVIDIA_REGISTER_FILE // (32 * warps * registers),
        NVIDIA_LOCAL_MEMORY // (local + 1024),
        NVIDIA_GROUPS,
        NVIDIA_ITEMS // (32 * warps),
    )
    return max(1, min(fits))


def worker_of(program: Program) -> str:
    """The front file that has the program's own stage."""
    for stage in program.stages:
        if isinstance(stage, Scan):
            return "scan"
        if isinstance(stage, Tripods):
            return "tripod"
        if isinstance(stage, Walk):
            return "walk"
        if isinstance(stage, Sites):
            return "sites"
    return "sites"
