"""The host's memory: how much there is; what is freed stays for the process's next array."""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress

__all__ = ["host_memory", "keep_freed_memory"]

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


def keep_freed_memory() -> None:
    """Have glibc, where there is one, ask the system less often for memory.

    By itself it takes arrays from 128 KiB on from the system and gives them back, and every page of
    the next one is a fault: NumPy took three times as long for bits of 700 KB.
    """
    with suppress(OSError, TypeError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, OWN_MAPPING)
        mallopt(TRIM_THRESHOLD, KEPT)
