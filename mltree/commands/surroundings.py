"""Where and with what a run was done: the head of its log, and of its ``mltree.json``."""

from __future__ import annotations

import hashlib
import os
import platform
import resource
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mltree import __version__
from mltree.alignment.source import STDIN, read_bytes
from mltree.device.discovery import DeviceInfo
from mltree.errors import InputError
from mltree.events.run import InputFile, ResourcesSpent, RunDescribed
from mltree.threads import threads

__all__ = ["describe_run", "expect_files", "input_files", "shown", "spent_so_far"]

PACKAGES = ("numpy", "scipy", "pyopencl", "pocl-binary-distribution")

KIB = 1 << 10


def describe_run(
    devices: Sequence[DeviceInfo],
    options: Mapping[str, tuple[Any, str]],
    resolved: Mapping[str, object],
    inputs: Iterable[str],
) -> RunDescribed:
    """All of it.

    options   as they were given, and where each is from
    resolved  values of those that the run has chosen itself
    inputs    what may be files; what is none is left out
    """
    found = threads()
    values = {**{name: value for name, (value, _) in options.items()}, **resolved}
    return RunDescribed(
        date=datetime.now().astimezone().isoformat(timespec="seconds"),
        host=platform.node(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        cpu=_cpu(),
        threads=found.number,
        threads_source=found.source,
        devices=tuple(_device(device) for device in devices) or ("none: NumPy reference",),
        versions=_versions(),
        options={
            name: (shown(value), options[name][1] if name in options else "default")
            for name, value in values.items()
            if value is not None
        },
        inputs=input_files(inputs),
    )


def shown(value: object) -> str:
    """The value of an option as logs and results have it."""
    return (
        str(getattr(value, "value", value)) if not isinstance(value, bool) else str(value).lower()
    )


def _device(device: DeviceInfo) -> str:
    units = f"{device.compute_units} compute units"
    return f"{device.name}: {device.platform}, driver {device.driver}, {units}"


def _cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()  # which asks a process


def _versions() -> dict[str, str]:
    found = {"mltree": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # noqa: PERF203
            continue
    return found


def input_files(names: Iterable[str]) -> tuple[InputFile, ...]:
    """The files among these names, each once, with their digests."""
    found = {}
    for name in names:
        if name == STDIN or _is_file(name):
            content = read_bytes(name)
            found[name] = InputFile(name, len(content), hashlib.sha256(content).hexdigest())
    return tuple(found.values())


def expect_files(inputs: Iterable[InputFile]) -> None:
    """Make sure that this rank sees the files that the first one reads; its standard input is its.

    Raises: InputError: one is another here.
    """
    for file in inputs:
        if file.path != STDIN and input_files([file.path]) != (file,):
            raise InputError("is not the file that rank 0 reads", file=file.path)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # no name that a file could have, such as a model's values
        return False


def spent_so_far(wall: float, device: float) -> ResourcesSpent:
    """CPU seconds and memory of the process and its children; ``wall``, ``device``: seconds."""
    usage, ended = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = usage.ru_utime + usage.ru_stime + ended.ru_utime + ended.ru_stime + _children_seconds()
    unit = 1 if sys.platform == "darwin" else KIB
    return ResourcesSpent(wall, cpu, device, usage.ru_maxrss * unit)


def _children_seconds() -> float:
    """CPU seconds of the processes that this one started and that still run, where Linux tells."""
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for process in listed.read_text().split():
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # its own, and of those it has waited for
    return ticks / os.sysconf("SC_CLK_TCK")
