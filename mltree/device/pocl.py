"""What PoCL needs to be told, and what it needs to have.

PoCL from PyPI carries LLVM 14. On a CPU that LLVM does not know (Zen 4 and 5, say) it names the
target "generic", and its own compiler then refuses that name: "unknown target CPU 'generic'"
(PoCL's issue 1049). No option or environment variable reaches the name, so it is replaced where
PoCL keeps it, in its device record, by the instruction-set level that the CPU reports.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from pathlib import Path

import pyopencl as cl

__all__ = ["is_pocl", "little_room", "name_unknown_cpu", "why_unloadable"]

ADDRESS_SPACE = 1 << 30
"""Bytes that the process may have to map while PoCL compiles: searches of 12 taxa reached 0.81 GB,
0.15 of it before PoCL was loaded, and crashed without a word where they were given less."""

ADDRESS_SPACE_CORE = 16 << 20
"""The same for each core: PoCL has a thread there, with a stack of 8 MiB."""

PLATFORM = "Portable Computing Language"

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


def is_pocl(device: cl.Device) -> bool:
    """Whether it is PoCL's."""
    return str(device.platform.name).strip() == PLATFORM


def why_unloadable() -> str | None:
    """What keeps the PoCL that came with pyopencl from being loaded; None where nothing does."""
    try:
        for library in Path(cl.__file__).parent.glob(".libs/libpocl*.so*"):
            ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return None


def little_room() -> str | None:
    """What is wrong where the process may map too little memory: PoCL ends it then.

    It does so as soon as it starts its threads, so that this is to be asked before.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = ADDRESS_SPACE + ADDRESS_SPACE_CORE * (os.cpu_count() or 1)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return None
    return (
        f"the process may map {limit >> 20:,} MiB of memory (ulimit -v), and PoCL's compiler needs "
        f"{needed >> 20:,}"
    )


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
