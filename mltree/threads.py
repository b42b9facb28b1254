"""How many CPUs a run takes: as many as its process may use, unless its user says otherwise.

Four things limit them: the CPUs that the process may run on (``taskset``, Slurm's and PBS's
bindings), the quota of its cgroup (containers, Slurm again), what a Slurm job was given for a task,
and ``--threads``, whose value reaches the drivers through the environment. The first three are
facts; the smallest counts. Drivers look at none but the first, and PoCL not even at that, so all of
them are told (:mod:`mltree.device.surroundings`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "FEW_THREADS",
    "VARIABLE",
    "Threads",
    "limit_drivers",
    "may_start",
    "share_out",
    "threads",
]

VARIABLE = "MLTREE_THREADS"
"""What ``--threads`` sets, and what may be set instead of it."""

SLURM = "SLURM_CPUS_PER_TASK"

DRIVERS = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "DPCPP_CPU_NUM_CUS")
"""Variables that limit PoCL up to 4 and from 5 on, and Intel's runtime."""

LIBRARIES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""The same for NumPy's linear algebra."""

FEW_THREADS = "the system refuses to start threads (ulimit -u, or a container's limit of processes)"
"""Complaint if :func:`may_start` returns False."""


class Threads(NamedTuple):
    """How many, and why."""

    number: int
    source: str
    """``CPU affinity``, ``cgroup quota``, ``SLURM_CPUS_PER_TASK`` or ``--threads``; and among how
    many processes that number was shared out."""
    usable: int
    """What the machine grants; ``--threads`` may ask for more."""


_sharers = 1


def share_out(processes: int) -> None:
    """Take this process's part of what so many share; called before any driver is loaded."""
    global _sharers  # noqa: PLW0603
    _sharers = processes


def threads(
    environment: Mapping[str, str] = os.environ,
    cgroups: Path = Path("/sys/fs/cgroup"),
    own_cgroup: Path = Path("/proc/self/cgroup"),
) -> Threads:
    """The CPUs that a run takes."""
    limits = [(_affinity(), "CPU affinity")]
    limits += [(quota, "cgroup quota") for quota in _quotas(cgroups, own_cgroup)]
    if (tasks := _positive(environment.get(SLURM, ""))) is not None:
        limits.append((tasks, SLURM))
    usable, source = min(limits, key=lambda limit: limit[0])
    number = usable
    if (asked := _positive(environment.get(VARIABLE, ""))) is not None:
        number, source = asked, "--threads"
    if _sharers > 1:
        number, source = max(1, number // _sharers), f"{source}, {number} for {_sharers} ranks"
    return Threads(number, source, usable)


def limit_drivers(environment: MutableMapping[str, str] = os.environ) -> None:
    """Tell OpenCL drivers and NumPy, before any is loaded.

    What a user has told them already stands where it is less; ``--threads`` overrules it.
    """
    found = threads(environment)
    for variable in (*DRIVERS, *LIBRARIES):
        told = _positive(environment.get(variable, ""))
        keeps = told is not None and told < found.number and VARIABLE not in environment
        environment[variable] = str(told if keeps else found.number)


def may_start(count: int) -> bool:
    """True if the process may have so many more threads; they are started and ended."""
    end = threading.Event()
    started = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        end.set()
        for thread in started:
            thread.join()
    return True


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has none
        return os.cpu_count() or 1


def _positive(text: str) -> int | None:
    """A whole number from 1 on; None for anything else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


def _quotas(root: Path, own: Path) -> Iterator[int]:
    """CPUs that the process's cgroups and those around them grant, whole ones, one at least.

    Version 2 has ``cpu.max`` ("200000 100000", microseconds in a period), version 1 a file for each
    of the two numbers, below the folder of its controller.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            for folder in _upwards(root, group):
                yield from _quota(folder / "cpu.max")
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / controllers, group):
                yield from _quota(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _upwards(root: Path, group: str) -> Iterator[Path]:
    """The folder of a cgroup, and those around it up to the root."""
    path = root / group.strip("/")
    while path != root and root in path.parents:
        yield path
        path = path.parent
    yield root


def _quota(*files: Path) -> Iterator[int]:
    """CPUs of a quota and its period, which are in these files; nothing where there is no limit."""
    with suppress(OSError):
        quota, period = map(_positive, " ".join(file.read_text() for file in files).split()[:2])
        if quota is not None and period is not None:
            yield max(1, quota // period)
