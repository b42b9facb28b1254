"""Memory that is freed stays with the process, for the next array of that size."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["keep_freed_memory"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The parameters of glibc's ``mallopt``."""

KEPT = 1 << 28
"""Bytes that may lie idle at the end of the heap."""

OWN_MAPPING = 1 << 25
"""Bytes from which on a block is the system's affair: as large as glibc allows."""


def keep_freed_memory() -> None:
    """Have glibc, where there is one, ask the system less often for memory.

    By itself it takes arrays from 128 KiB on from the system and gives them back, and every page of
    the next one is a fault: NumPy took three times as long for bits of 700 KB.
    """
    with suppress(OSError, TypeError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, OWN_MAPPING)
        mallopt(TRIM_THRESHOLD, KEPT)
