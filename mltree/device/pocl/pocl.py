"""PoCL's needs: a CPU name that it can compile for, memory and threads, and what drivers read.

PoCL from PyPI carries LLVM 14, which names CPUs by their family and takes what it does not know
for the nearest. A Zen 5 is "generic", which PoCL's own compiler then refuses ("unknown target CPU
'generic'", PoCL's issue 1049). A Zen 4 is a "znver3", which has no AVX-512, while PoCL takes its
library of functions by what the CPU reports, with AVX-512: LLVM ends the process ("Cannot
select"). And what a hypervisor hides of a CPU would be executed all the same. No option or
environment variable reaches the name, so where it does not fit the CPU it is replaced where PoCL
keeps it, in its device record, by the CPU that the library is for.

Drivers read environment variables when they are loaded and whenever they compile. A command sets
them for good when it first looks for devices; a call of the library (:func:`for_a_call`) leaves the
environment as it was.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shlex
import struct
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pyopencl as cl

from mltree.device.build import (
    cache_folder,
    cache_notice,
    is_pocl,
    is_trusted,
    kept_files,
)
from mltree.device.pocl import linker
from mltree.system.errors import DeviceError
from mltree.system.process import (
    DRIVERS,
    FEW_THREADS,
    LIBRARIES,
    can_start_threads,
    limit_drivers,
    threads,
)

ADDRESS_SPACE = 1 << 30
"""Bytes that the process may have to map while PoCL compiles: searches of 12 taxa reached 0.81 GB,
0.15 of it before PoCL was loaded, and crashed without a word where they were given less."""

ADDRESS_SPACE_CORE = 16 << 20
"""The same for each core: PoCL has a thread there, with a stack of 8 MiB."""

SPARE_THREADS = 4
"""Threads and processes of a run beside one for each CPU."""

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
    named = _NAME.search(device.version.rstrip()) if is_pocl(device) else None
    if named is None or device.int_ptr in _names:
        return
    try:
        name = fitting_name(named[1], set(Path("/proc/cpuinfo").read_text().split()))
        address = None if name == named[1] else _find_name(device.int_ptr, named[1])
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
    text = name.encode() + b"\0"
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        words = os.pread(memory, _RECORD_BYTES, record)
        for index, (word,) in enumerate(struct.iter_unpack("=Q", words[: len(words) & ~7])):
            with suppress(OSError):
                if 0 < word < 1 << 62 and os.pread(memory, len(text), word) == text:
                    return record + 8 * index
    finally:
        os.close(memory)
    return None


# OpenCL runtimes that are installed but registered nowhere are shown to the loader.
#
# Intel's wheels (``mltree[intel]``) put the runtime into the environment's ``lib``, but their ICD
# file names a folder of the machine that built them, and the loader looks into no environment.
# Containers are given NVIDIA's driver without its ICD file (container toolkit's issue 682). So the
# loader is given a folder with the ICD files that are registered, and one for each of these.

SYSTEM = Path("/etc/OpenCL/vendors")

ENVIRONMENT = Path("etc/OpenCL/vendors")
"""The same within a conda environment, whose loader looks there."""

INTEL = "libintelocl.so"

VENDOR_DRIVERS = ("libnvidia-opencl.so.1", "libamdocl64.so")
"""Libraries that ICD files of GPU drivers name: NVIDIA's and ROCm's. (Intel's lies where only its
ICD file leads.)"""

VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")
"""Variables that lead the loader to other ICD files than :data:`SYSTEM`; a user's own stand."""


def _is_loadable(library: str) -> bool:
    """True if the loader, which searches as the system does, will find a library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def show_installed(
    environment: MutableMapping[str, str],
    prefix: Path | None = None,
    system: Path = SYSTEM,
    is_loadable: Callable[[str], bool] = _is_loadable,
) -> None:
    """Have the loader find what is here; to be called before it is loaded.

    ``prefix``: of the Python environment; this one's where None. A runtime that is registered is
    not registered again: its devices would be listed twice.
    """
    if any(variable in environment for variable in VARIABLES):
        return
    prefix = prefix or Path(sys.prefix)
    try:
        folders = (prefix / ENVIRONMENT, system)
        files = {x.name: x.read_text() for folder in folders for x in sorted(folder.glob("*.icd"))}
        registered = {_kind(text) for text in files.values()}
        missing = [library for library in VENDOR_DRIVERS if _kind(library) not in registered]
        libraries = [library for library in missing if is_loadable(library)]
        runtime = prefix / "lib" / INTEL
        if _kind(INTEL) not in registered and runtime.is_file():
            libraries.append(str(runtime))
        if libraries:
            files.update({f"{_kind(library)}.icd": f"{library}\n" for library in libraries})
            environment[VARIABLES[0]] = str(kept_files("vendors", files))
    except (OSError, UnicodeDecodeError):
        return


def _kind(library: str) -> str:
    """``libnvidia-opencl`` of any path and version."""
    return Path(library.strip()).name.partition(".so")[0]


KERNELS = {linker.POCL_FOLDER: "pocl-programs", "CUDA_CACHE_PATH": "nvidia"}
"""Variables of PoCL's and NVIDIA's caches of kernels, and our folders for them. Left to itself
PoCL takes one under the temporary folder where there is no home, whoever made it."""

CHANGED = (*DRIVERS, *LIBRARIES, *KERNELS, "XDG_CACHE_HOME", "PATH", VARIABLES[0])
"""The variables that are set."""

LONGEST_SHEBANG = 120
"""Bytes of a script's first line that every Linux reads (127 before 5.1)."""

_kept: dict[str, str] = {}
"""Values that this process's variables were given; none before drivers are loaded."""


def prepare_process() -> None:
    """Prepare this process's environment, once, before drivers are loaded."""
    if not _kept:
        prepare()
        _kept.update({name: os.environ[name] for name in CHANGED if name in os.environ})


@contextmanager
def for_a_call() -> Iterator[None]:
    """Put the environment back at the end of a call, and as drivers need it until then.

    Drivers that are loaded go on to read it: PoCL compiles a kernel, and looks for a linker, when
    it meets a size of work-groups for the first time.
    """
    before = {name: os.environ.get(name) for name in CHANGED}
    os.environ.update(_kept)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None:
                os.environ[name] = value
            elif name in os.environ:
                del os.environ[name]


def prepare(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limit threads, keep kernels in a private folder, bring a linker, show unregistered drivers.

    Where no folder can be written, whoever asks for a device is told.
    """
    limit_drivers(environment)
    try:
        folder = cache_folder()
    except DeviceError:
        return
    if cache_notice() is not None:  # processes that this one starts share its folder
        environment["XDG_CACHE_HOME"] = str(folder.parent)
    for variable, name in KERNELS.items():
        if variable not in environment or not is_trusted(Path(environment[variable])):
            environment[variable] = str(_made(folder / name))
    show_installed(environment)
    _bring_linker(environment)


def _made(folder: Path) -> Path:
    """The folder, instead of whatever else has its name."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _bring_linker(environment: MutableMapping[str, str]) -> None:
    """Put a folder with an ``ld`` for PoCL's kernels in front of the PATH."""
    if not sys.executable:
        return
    source = Path(linker.__file__).read_text(encoding="utf-8")
    first_line = f"#!{sys.executable} -IS\n"
    if len(os.fsencode(first_line)) <= LONGEST_SHEBANG and " " not in sys.executable:
        files = {"ld": first_line + source}
    else:
        python = shlex.quote(sys.executable)
        script = f'#!/bin/sh\nexec {python} -IS "${{0%/*}}/linker.py" "$@"\n'
        files = {"ld": script, "linker.py": source}
    try:
        folder = kept_files("linker", files, mode=0o700)
    except OSError:
        return
    path = environment.get("PATH", os.defpath)
    if str(folder) not in path.split(os.pathsep):
        environment["PATH"] = os.pathsep.join(filter(None, (str(folder), path)))
