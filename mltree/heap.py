"""The process's memory and limits: what it may take, and that what is freed stays with it."""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress

from mltree.errors import InputError
from mltree.threads import FEW_THREADS, may_start, threads

__all__ = ["check_limits", "host_memory", "keep_freed_memory"]

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
