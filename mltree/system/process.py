"""The process: CPUs, threads, memory, limits; isolated subprocesses; parallel maps on threads."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mltree.system.errors import InputError


def isolated_command(function: Callable[..., object], *arguments: Any) -> list[str]:
    """The command line of a Python process that calls a function of a module.

    The process runs without the user's settings (``-I``) on the ``sys.path`` of this one, so that
    it imports the same mltree, and inherits nothing but the environment.

    arguments  of the function; written as JSON
    """
    name = function.__name__
    code = (
        "import json, sys; sys.path[:], *arguments = json.loads(sys.argv[1]);"
        f"from {function.__module__} import {name}; {name}(*arguments)"
    )
    return [sys.executable, "-I", "-c", code, json.dumps([sys.path, *arguments])]


# The number of CPUs of a run: the least of CPU affinity (``taskset``, Slurm's and PBS's bindings),
# the quota of the cgroup (containers, Slurm again) and a Slurm task's CPUs, unless ``--threads``
# sets another. Drivers heed affinity at most, and PoCL not even that, so all of them get the number
# by environment variables (:mod:`mltree.device.pocl.pocl`).

VARIABLE = "MLTREE_THREADS"
"""Environment variable that ``--threads`` sets, and that may be set in its place."""

SLURM = "SLURM_CPUS_PER_TASK"

DRIVERS = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "DPCPP_CPU_NUM_CUS")
"""Variables that limit the threads of PoCL up to 4, PoCL from 5 on, and Intel's runtime."""

LIBRARIES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables that limit the threads of NumPy's linear algebra."""

FEW_THREADS = "the system refuses to start threads (ulimit -u, or a container's limit of processes)"
"""Complaint if :func:`can_start_threads` returns False."""


class Threads(NamedTuple):
    """Number of threads of a run, and its source."""

    number: int
    source: str
    """``CPU affinity``, ``cgroup quota``, ``SLURM_CPUS_PER_TASK``, ``--threads`` or, of a call from
    Python, ``threads=``, with the number of ranks that share those CPUs."""
    usable: int
    """CPUs that the machine grants; ``--threads`` may ask for more."""


_n_processes = 1


def divide_cpus(processes: int) -> None:
    """Share the CPUs with other processes; called before any driver is loaded."""
    global _n_processes  # noqa: PLW0603
    _n_processes = processes


_most: int | None = None
"""CPUs that a call from Python computes on at most; None for all of the process."""


@contextmanager
def at_most(number: int | None) -> Iterator[None]:
    """Context of a call from Python, with its ``threads``; of one inside another the inner."""
    global _most  # noqa: PLW0603
    before, _most = _most, _most if number is None else number
    try:
        yield
    finally:
        _most = before


def threads(
    environment: Mapping[str, str] = os.environ,
    cgroups: Path = Path("/sys/fs/cgroup"),
    own_cgroup: Path = Path("/proc/self/cgroup"),
) -> Threads:
    """The number of threads of a run or call, by its environment, affinity and cgroup."""
    process = process_threads(environment, cgroups, own_cgroup)
    if _most is None or _most >= process.number:
        return process
    return Threads(_most, "threads=", process.usable)


def process_threads(
    environment: Mapping[str, str] = os.environ,
    cgroups: Path = Path("/sys/fs/cgroup"),
    own_cgroup: Path = Path("/proc/self/cgroup"),
) -> Threads:
    """The number of threads of the process, which drivers are loaded with; see :func:`threads`."""
    limits = [(_affinity(), "CPU affinity")]
    limits += [(quota, "cgroup quota") for quota in _quotas(cgroups, own_cgroup)]
    if (tasks := _positive(environment.get(SLURM, ""))) is not None:
        limits.append((tasks, SLURM))
    usable, source = min(limits, key=lambda limit: limit[0])
    number = usable
    if (requested := _positive(environment.get(VARIABLE, ""))) is not None:
        number, source = requested, "--threads"
    if _n_processes > 1:
        number, source = (
            max(1, number // _n_processes),
            f"{source}, {number} for {_n_processes} ranks",
        )
    return Threads(number, source, usable)


def limit_drivers(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limit the threads of OpenCL drivers and NumPy, before any is loaded.

    A smaller limit that a user has set stays, unless ``--threads`` sets one.
    """
    number = process_threads(environment).number
    for variable in (*DRIVERS, *LIBRARIES):
        limit = _positive(environment.get(variable, ""))
        is_kept = limit is not None and limit < number and VARIABLE not in environment
        environment[variable] = str(limit if is_kept else number)


def can_start_threads(count: int) -> bool:
    """True if the process may start ``count`` more threads; starts and ends them to find out."""
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


@cache
def _quotas(root: Path, own_cgroup: Path) -> tuple[int, ...]:
    """:func:`_granted`, read once: a matrix asks for its threads tile by tile."""
    return tuple(_granted(root, own_cgroup))


def _granted(root: Path, own_cgroup: Path) -> Iterator[int]:
    """Whole CPUs, at least one, that each cgroup of the process and those around it grant.

    Version 2 has ``cpu.max`` ("200000 100000", microseconds in a period), version 1 a file for each
    of the two numbers, below the folder of its controller.
    """
    try:
        lines = own_cgroup.read_text().splitlines()
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
    """CPUs by the files of a quota and its period; nothing without a limit."""
    with suppress(OSError):
        quota, period = map(_positive, " ".join(file.read_text() for file in files).split()[:2])
        if quota is not None and period is not None:
            yield max(1, quota // period)


# Memory of the process.

ADDRESS_SPACE, ADDRESS_SPACE_THREAD = 212 << 20, 44 << 20
"""Bytes that Python, NumPy and SciPy map, and those that OpenBLAS maps for each of its threads,
without which it ends the process. A search of 12 taxa on two threads ended so at 264 MiB, and ran
at 293."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The parameters of glibc's ``mallopt``."""

KEPT_BYTES = 1 << 28
"""Freed bytes that may stay at the end of the heap."""

MMAP_BYTES = 1 << 25
"""Bytes from which on a block is mapped by itself: the largest that glibc allows."""


def host_memory() -> int:
    """Bytes of memory of the machine, or of ``ulimit -v`` where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


def check_limits() -> None:
    """Check that NumPy can be loaded, because OpenBLAS ends or interrupts the process otherwise.

    Raises: InputError: the process may map too little memory, or start too few threads.
    """
    number, limit = threads().number, resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = ADDRESS_SPACE + ADDRESS_SPACE_THREAD * number
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise InputError(
            f"the process may map {limit >> 20:,} MiB of memory (ulimit -v), and needs "
            f"{needed >> 20:,} to start",
            hint="raise the limit; fewer --threads need less",
        )
    if not can_start_threads(number):
        raise InputError(FEW_THREADS, hint="raise the limit, or give --threads fewer")


def tune_malloc() -> None:
    """Make glibc's malloc, where there is one, keep freed memory.

    By default malloc maps arrays from 128 KiB on one by one and unmaps them when freed, so that
    every page of the next array is a fault: NumPy took three times as long for bits of 700 KB.
    """
    with suppress(OSError, TypeError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)


# Parallel maps on threads: NumPy releases Python's lock while it computes. The host also prepares
# the next launch while a device computes.

Item = TypeVar("Item")
Mapped = TypeVar("Mapped")

MOST_THREADS = 8
"""Threads of a parallel map: more wait for Python's lock."""

LEAST_BLOCKS = 2
"""Blocks of a thread, below which fewer threads are used."""

_lock = threading.Lock()
_pools = 0
_seconds = 0.0


def parallel_map(
    work: Callable[[Item], Mapped], items: Sequence[Item], n_threads: int
) -> list[Mapped]:
    """``[work(item) for item in items]``, on up to ``n_threads`` threads."""
    global _pools  # noqa: PLW0603
    n_threads = min(n_threads, len(items), MOST_THREADS)
    if n_threads < 2:
        return [work(item) for item in items]
    with _lock:
        _pools += 1
    try:
        with ThreadPoolExecutor(n_threads, "map") as pool:
            return list(pool.map(lambda item: _timed(work, item), items))
    finally:
        with _lock:
            _pools -= 1


def map_blocks(work: Callable[[slice], Mapped], count: int, size: int) -> list[Mapped]:
    """Map the blocks of ``size`` among ``count`` items, on several threads, in order.

    There is at least one block, which may be empty. Blocks, and so sums over them, do not depend on
    the number of threads.
    """
    blocks = [slice(first, min(first + size, count)) for first in range(0, max(count, 1), size)]
    most = len(blocks) // LEAST_BLOCKS
    if most < 2:
        return [work(block) for block in blocks]
    n_threads = min(threads().number, most, MOST_THREADS)
    ends = [len(blocks) * n // n_threads for n in range(n_threads + 1)]
    runs = [blocks[first:end] for first, end in pairwise(ends)]
    return list(chain.from_iterable(parallel_map(lambda run: [*map(work, run)], runs, n_threads)))


def prefetched(work: Callable[[Item], Mapped], items: Iterable[Item]) -> Iterator[Mapped]:
    """``map(work, items)``, computing the next result while one is used.

    With one thread, every result is computed when it is requested.
    """
    if threads().number < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(1, "prefetch") as pool:
        pending: Future[Mapped] | None = None
        for item in items:
            done, pending = pending, pool.submit(_timed, work, item)
            if done is not None:
                yield done.result()
        if pending is not None:
            yield pending.result()


def _timed(work: Callable[[Item], Mapped], item: Item) -> Mapped:
    global _seconds  # noqa: PLW0603
    began = time.thread_time()
    try:
        return work(item)
    finally:
        spent = time.thread_time() - began
        with _lock:
            _seconds += spent


def is_mapping() -> bool:
    """True while a parallel map runs: polling threads would keep Python's lock from it."""
    return _pools > 0


def cpu_seconds() -> float:
    """CPU seconds of this thread, and of the work that maps have done on other threads."""
    return time.thread_time() + _seconds


# Ending on SIGINT, SIGTERM and SIGHUP.
#
# Python runs its signal handlers in the main thread, between two bytecodes, which may be minutes
# away: inside a launch, or a kernel build. So one thread receives the signals, and another runs the
# callback of :func:`on_signal` and ends the process at once: an interpreter that shuts down by its
# own rules while a thread is inside OpenCL waits for that thread, or aborts.
#
# Two rules follow: work that must not be cut in two, such as writing files, runs inside
# :func:`uninterrupted`; state that is to be kept can be written by another thread at any time. A
# second signal ends the process whatever it is doing. Ignored signals (``nohup``) stay ignored.

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ECHO = 0.5
"""Seconds within which a second signal is the first one again: GNU timeout signals a process and
then its group, a terminal the group that a make passes the signal on to."""

STDERR = 2
"""File descriptor of the standard error stream."""

GRACE = 0.2
"""Seconds within which a signal arrives."""

EXIT_SIGNAL = 128
"""Offset of a signal's number in a shell's exit code."""


class ExitMessage(NamedTuple):
    """Message and exit code of a process that a signal ends."""

    text: str = ""
    """One line on the files left and how to go on; may be empty."""
    code: int | None = None
    """Exit code; None for the signal's."""


_uninterrupted = threading.RLock()
_on_signal: list[Callable[[], ExitMessage]] = []
_before_exit: list[Callable[[], None]] = []
_received = threading.Event()


def install_handlers() -> None:
    """Handle all signals but those that are ignored (``nohup``, ``&`` in a script).

    Called once, by the main thread, before there are others.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    ignored = {number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, ignored)  # or LLVM handles them, see wait_for_exit
    for number in set(SIGNALS) - ignored:
        signal.signal(number, lambda *_: None)  # the number goes to the pipe by itself
        signal.siginterrupt(number, False)
    threading.Thread(target=_receive, args=(read_end,), name="signals", daemon=True).start()


def ignore_signals() -> None:
    """Ignore all signals: nothing is left to do but the interpreter's own end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def on_signal(message: Callable[[], ExitMessage]) -> Iterator[None]:
    """While active, a signal calls ``message`` in a thread of its own, and no earlier one."""
    _on_signal.append(message)
    try:
        yield
    finally:
        with _uninterrupted:
            _on_signal.remove(message)


def set_exit_message(message: ExitMessage) -> None:
    """Set the message of a signal for the rest of the process, in place of all callbacks."""
    _on_signal.append(lambda: message)


def before_exit(do: Callable[[], None]) -> None:
    """Add a function that a signal calls before the message is written."""
    _before_exit.append(do)


def cancel_before_exit(do: Callable[[], None]) -> None:
    """Remove a function that :func:`before_exit` added; no error where it was not."""
    with suppress(ValueError):
        _before_exit.remove(do)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay the end by a signal until the block is done."""
    with _uninterrupted:
        yield


def wait_for_exit() -> None:
    """Wait for the end of the process where a signal has arrived; called when a device failed.

    LLVM, which PoCL compiles with, handles signals first and removes the files that it is writing,
    so that a build fails while the signal's number may still be in the pipe.
    """
    if _received.wait(GRACE):
        threading.Event().wait()  # until the process ends


def _receive(pipe: int) -> None:
    """Begin the exit at the first signal, and exit at once at the second."""
    number = _next(pipe)
    _received.set()
    try:
        threading.Thread(target=_exit, args=(number,), name="exit", daemon=True).start()
    except RuntimeError:  # the system starts no more
        _exit(number)
    time.sleep(ECHO)
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while os.read(pipe, 1):
            pass
    os.set_blocking(pipe, True)
    os._exit(EXIT_SIGNAL + _next(pipe))


def _next(pipe: int) -> int:
    """The number of the next signal; blocks until then."""
    while True:
        number = os.read(pipe, 1)[0]
        if number in SIGNALS:
            return number


def _exit(number: int) -> None:
    """Call the callbacks, write the message, and end the process."""
    with _uninterrupted:
        code = None
        try:
            text, code = _on_signal[-1]() if _on_signal else ExitMessage()
            for do in _before_exit:
                do()
            line = f"mltree: stopped by {signal.Signals(number).name}{text and ': '}{text}\n"
            with suppress(OSError):  # a terminal that is gone, as after SIGHUP
                os.write(STDERR, line.encode(errors="backslashreplace"))
        except Exception:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(EXIT_SIGNAL + number if code is None else code)
