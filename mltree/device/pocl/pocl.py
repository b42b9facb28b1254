"""The CPU name that PoCL compiles for, and the memory and threads that it needs.

PoCL from PyPI carries LLVM 14, which names CPUs by their family and takes what it does not know
for the nearest. A Zen 5 is "generic", which PoCL's own compiler then refuses ("unknown target CPU
'generic'", PoCL's issue 1049). A Zen 4 is a "znver3", which has no AVX-512, while PoCL takes its
library of functions by what the CPU reports, with AVX-512: LLVM ends the process ("Cannot
select"). And what a hypervisor hides of a CPU would be executed all the same. No option or
environment variable reaches the name, so where it does not fit the CPU it is replaced where PoCL
keeps it, in its device record, by the CPU that the library is for.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import struct
from functools import cache
from pathlib import Path

import pyopencl as cl

from mltree.system.process import FEW_THREADS, can_start_threads, threads

ADDRESS_SPACE = 1 << 30
"""Bytes that the process may have to map while PoCL compiles: searches of 12 taxa reached 0.81 GB,
0.15 of it before PoCL was loaded, and crashed without a word where they were given less."""

ADDRESS_SPACE_CORE = 16 << 20
"""The same for each core: PoCL has a thread there, with a stack of 8 MiB."""

SPARE_THREADS = 4
"""Threads and processes of a run beside one for each CPU."""

PLATFORM = "Portable Computing Language"

_RECORD_BYTES = 4096
"""Bytes of PoCL's device record that are searched for the name (3.0: at about 1 kB)."""

_NAME = re.compile(r"-(?:gnu|musl)-(.+)$")
"""The end of a device's version: ``… pthread-x86_64-unknown-linux-gnu-znver3``."""

_AVX = {"avx", "cx16", "popcnt"}

_LEVELS = {
    "skylake-avx512": {"avx512f"},
    "haswell": {*_AVX, "abm", "avx2", "bmi1", "bmi2", "f16c", "fma"},
    "bdver1": {*_AVX, "fma4", "xop"},
    "ivybridge": {*_AVX, "f16c"},
    "sandybridge": _AVX,
    "penryn": {"cx16", "sse4_1"},
    "core2": {"cx16", "ssse3"},
    "x86-64": {"sse2"},
}
"""The CPUs that PoCL's libraries of functions are for, the best first, and the flags of
``/proc/cpuinfo`` by which it takes one (its ``pocl_llvm_utils.cc``, which names them so from 4.0
on). Code for "x86-64-v4", the last level by its own name, keeps on the stack what it computes:
insertion scans on a Zen 4 took twice the time."""

_KNOWN = {
    "skylake-avx512": (
        "skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake-client",
        "icelake-server", "rocketlake", "tigerlake", "sapphirerapids",
    ),
    "haswell": (
        "haswell", "broadwell", "skylake", "alderlake", "bdver4", "znver1", "znver2", "znver3",
    ),
    "bdver1": ("bdver1", "bdver2", "bdver3"),
    "ivybridge": ("ivybridge", "btver2"),
    "sandybridge": ("sandybridge",),
}  # fmt: skip
"""CPUs of LLVM 14 by those; names of others, older ones, are left as they are."""

_names: dict[int, ctypes.Array[ctypes.c_char]] = {}
"""The replacement strings, alive as long as PoCL points at them."""


def is_pocl(device: cl.Device) -> bool:
    """True for a device of PoCL."""
    return str(device.platform.name).strip() == PLATFORM


def why_unloadable() -> str | None:
    """The error that keeps the PoCL of pyopencl from being loaded, or None."""
    try:
        for library in Path(cl.__file__).parent.glob(".libs/libpocl*.so*"):
            ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return None


def little_room() -> str | None:
    """The complaint where the process may map too little memory, or None: PoCL ends it then.

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


@cache
def few_threads() -> str | None:
    """Return the complaint if the process may start fewer threads than PoCL needs, or None.

    It starts one for each CPU of the run, and a process to link a kernel, and mltree a few more.
    """
    return None if can_start_threads(threads().number + SPARE_THREADS) else FEW_THREADS


def name_cpu(device: cl.Device) -> None:
    """Give a PoCL device a name of its CPU that it can compile for, where it has none.

    Does nothing on other devices, and nothing that can fail: what cannot be read is left alone.
    """
    found = _NAME.search(device.version.rstrip()) if is_pocl(device) else None
    if found is None or device.int_ptr in _names:
        return
    try:
        name = fitting_name(found[1], set(Path("/proc/cpuinfo").read_text().split()))
        address = None if name == found[1] else _find_name(device.int_ptr, found[1])
    except OSError:
        return
    if address is not None:
        _names[device.int_ptr] = ctypes.create_string_buffer(name.encode())
        pointer = ctypes.addressof(_names[device.int_ptr])
        ctypes.c_uint64.from_address(address).value = pointer


def fitting_name(name: str, flags: set[str]) -> str:
    """The CPU to compile for: as LLVM names it, where PoCL's library by its flags is for such.

    flags  of ``/proc/cpuinfo``
    """
    level = next((level for level, needed in _LEVELS.items() if needed <= flags), None)
    named = next((level for level, cpus in _KNOWN.items() if name in cpus), level)
    return level if level and (name == "generic" or level != named) else name


def _find_name(record: int, name: str) -> int | None:
    """Address of the word in the device record that points at the name.

    Reads through ``/proc/self/mem``, where a wild address is an error and not a crash.
    """
    wanted = name.encode() + b"\0"
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        words = os.pread(memory, _RECORD_BYTES, record)
        for index, (word,) in enumerate(struct.iter_unpack("=Q", words[: len(words) & ~7])):
            if _reads(memory, word, len(wanted)) == wanted:
                return record + 8 * index
    finally:
        os.close(memory)
    return None


def _reads(memory: int, address: int, count: int) -> bytes:
    try:
        return os.pread(memory, count, address) if 0 < address < 1 << 62 else b""
    except OSError:
        return b""
