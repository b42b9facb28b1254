"""The process: its CPUs, threads, memory and limits, and Python processes that inherit nothing."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mltree.system.errors import InputError

# Python processes that call a function and inherit nothing but the environment.


def clean_start(function: Callable[..., object], *arguments: Any) -> list[str]:
    """The command line of a process that calls a function of a module.

    It runs without the user's settings (``-I``), on this process's own path: it does not matter
    where from or by whom mltree was imported.

    arguments  as JSON has them
    """
    name = function.__name__
    code = (
        "import json, sys; sys.path[:], *arguments = json.loads(sys.argv[1]);"
        f"from {function.__module__} import {name}; {name}(*arguments)"
    )
    return [sys.executable, "-I", "-c", code, json.dumps([sys.path, *arguments])]


# How many CPUs a run takes: as many as its process may use, unless its user says otherwise.
#
# Four things limit them: the CPUs that the process may run on (``taskset``, Slurm's and PBS's
# bindings), the quota of its cgroup (containers, Slurm again), what a Slurm job was given for a
# task, and ``--threads``, whose value reaches the drivers through the environment. The first three
# are facts; the smallest counts. Drivers look at none but the first, and PoCL not even at that, so
# all of them are told (:mod:`mltree.device.pocl.environment`).

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


# The process's memory and limits: what it may take, and that what is freed stays with it.

ADDRESS_SPACE, ADDRESS_SPACE_THREAD = 212 << 20, 44 << 20
"""Bytes that Python, NumPy and SciPy map, and those that OpenBLAS maps for each of its threads: it
ends the process where it cannot. A search of 12 taxa on two threads ended so at 264 MiB, and ran at
293."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The parameters of glibc's ``mallopt``."""

KEPT = 1 << 28
"""Bytes that may lie idle at the end of the heap."""

OWN_MAPPING = 1 << 25
"""Bytes from which on a block is the system's affair: as large as glibc allows."""


def host_memory() -> int:
    """Bytes that the process may have: the machine's, or what ulimit -v says."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


def check_limits() -> None:
    """Make sure that NumPy can be loaded: OpenBLAS ends the process, or interrupts it, otherwise.

    Raises:
        InputError: the process may map too little memory, or start too few threads.
    """
    number, limit = threads().number, resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = ADDRESS_SPACE + ADDRESS_SPACE_THREAD * number
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise InputError(
            f"the process may map {limit >> 20:,} MiB of memory (ulimit -v), and needs "
            f"{needed >> 20:,} to start",
            hint="raise the limit; fewer --threads need less",
        )
    if not may_start(number):
        raise InputError(FEW_THREADS, hint="raise the limit, or give --threads fewer")


def keep_freed_memory() -> None:
    """Have glibc, where there is one, ask the system less often for memory.

    By itself it takes arrays from 128 KiB on from the system and gives them back, and every page of
    the next one is a fault: NumPy took three times as long for bits of 700 KB.
    """
    with suppress(OSError, TypeError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, OWN_MAPPING)
        mallopt(TRIM_THRESHOLD, KEPT)


# Work of the host in shares, several of them at once.
#
# Where the device computes by itself, the host lays out one share of a round while the device has
# another, and shares are laid out side by side: NumPy leaves Python's lock alone meanwhile.

Share = TypeVar("Share")
Done = TypeVar("Done")

MOST = 8
"""Shares at once: with more, threads wait for Python's lock."""

LEAST_BLOCKS = 2
"""Of a share."""

_lock = threading.Lock()
_pools = 0
_seconds = 0.0


def in_shares(work: Callable[[Share], Done], shares: Sequence[Share], at_once: int) -> list[Done]:
    """What the work makes of every share, in their order; so many of them at once."""
    global _pools  # noqa: PLW0603
    at_once = min(at_once, len(shares), MOST)
    if at_once < 2:
        return [work(share) for share in shares]
    with _lock:
        _pools += 1
    try:
        with ThreadPoolExecutor(at_once, "share") as pool:
            return list(pool.map(lambda share: _timed(work, share), shares))
    finally:
        with _lock:
            _pools -= 1


def in_blocks(work: Callable[[slice], Done], count: int, size: int) -> list[Done]:
    """What the work makes of every block of ``size`` among ``count`` things, in their order.

    There is one block at least, perhaps an empty one. Blocks do not depend on how many CPUs there
    are: neither do sums over them.
    """
    blocks = [slice(first, min(first + size, count)) for first in range(0, max(count, 1), size)]
    most = len(blocks) // LEAST_BLOCKS
    if most < 2:
        return [work(block) for block in blocks]
    at_once = min(threads().number, most, MOST)
    ends = [len(blocks) * n // at_once for n in range(at_once + 1)]
    runs = [blocks[first:end] for first, end in pairwise(ends)]
    return list(chain.from_iterable(in_shares(lambda run: [*map(work, run)], runs, at_once)))


def in_advance(work: Callable[[Share], Done], shares: Iterable[Share]) -> Iterator[Done]:
    """What the work makes of every share, in their order; of the next while one is used.

    With one thread, of each when it is asked for.
    """
    if threads().number < 2:
        yield from map(work, shares)
        return
    with ThreadPoolExecutor(1, "advance") as pool:
        coming: Future[Done] | None = None
        for share in shares:
            done, coming = coming, pool.submit(_timed, work, share)
            if done is not None:
                yield done.result()
        if coming is not None:
            yield coming.result()


def _timed(work: Callable[[Share], Done], share: Share) -> Done:
    global _seconds  # noqa: PLW0603
    began = time.thread_time()
    try:
        return work(share)
    finally:
        spent = time.thread_time() - began
        with _lock:
            _seconds += spent


def are_at_work() -> bool:
    """Whether shares are worked on just now: whoever polls keeps them from Python's lock."""
    return _pools > 0


def cpu_seconds() -> float:
    """CPU seconds of this thread, and of all shares that others have worked on."""
    return time.thread_time() + _seconds
