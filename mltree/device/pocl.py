"""A CPU that is younger than PoCL's compiler.

PoCL from PyPI carries LLVM 14. On a CPU that LLVM does not know (Zen 4 and 5, say) it names the
target "generic", and its own compiler then refuses that name: "unknown target CPU 'generic'"
(PoCL's issue 1049). No option or environment variable reaches the name, so it is replaced where
PoCL keeps it, in its device record, by the instruction-set level that the CPU reports.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import pyopencl as cl

__all__ = ["name_unknown_cpu"]

_RECORD_BYTES = 4096
"""How far into PoCL's device record to look for the name (3.0: at about 1 kB)."""

_UNKNOWN = b"generic\0"

_LEVELS = (
    (b"x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    (b"x86-64-v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    (b"x86-64-v2", {"sse4_1", "sse4_2", "ssse3", "popcnt"}),
)
"""Names that LLVM knows, and the flags of ``/proc/cpuinfo`` that they stand for (x86-64 psABI)."""

_names: dict[int, ctypes.Array[ctypes.c_char]] = {}
"""The replacement strings, alive as long as PoCL points at them."""


def name_unknown_cpu(device: cl.Device) -> None:
    """Give a PoCL device whose CPU LLVM does not know a name that it can compile for.

    Does nothing on other devices, and nothing that can fail: what cannot be read is left alone.
    """
    if not device.version.rstrip().endswith("-generic") or device.int_ptr in _names:
        return
    level = _level()
    if level is None:
        return
    try:
        address = _find_name(device.int_ptr)
    except OSError:
        return
    if address is not None:
        _names[device.int_ptr] = ctypes.create_string_buffer(level)
        pointer = ctypes.addressof(_names[device.int_ptr])
        ctypes.c_uint64.from_address(address).value = pointer


def _level() -> bytes | None:
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return None
    return next((name for name, needed in _LEVELS if needed <= flags), None)


def _find_name(record: int) -> int | None:
    """Address of the word in the device record that points at the string "generic".

    Reads through ``/proc/self/mem``, where a wild address is an error and not a crash.
    """
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        words = os.pread(memory, _RECORD_BYTES, record)
        for index, (word,) in enumerate(struct.iter_unpack("=Q", words[: len(words) & ~7])):
            if _reads(memory, word) == _UNKNOWN:
                return record + 8 * index
    finally:
        os.close(memory)
    return None


def _reads(memory: int, address: int) -> bytes:
    try:
        return os.pread(memory, len(_UNKNOWN), address) if 0 < address < 1 << 62 else b""
    except OSError:
        return b""
