"""The environment variables that drivers read, when they are loaded and whenever they compile.

A command sets them for good when it first looks for devices; a call of the library
(:func:`for_a_call`) leaves the environment as it was.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from mltree.device.build import cache_folder, cache_notice, files_below, is_trusted, kept_files
from mltree.device.pocl import linker
from mltree.system.errors import DeviceError
from mltree.system.process import DRIVERS, LIBRARIES, limit_drivers

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
        found = [library for library in VENDOR_DRIVERS if _kind(library) not in registered]
        found = [library for library in found if is_loadable(library)]
        runtime = prefix / "lib" / INTEL
        if _kind(INTEL) not in registered and runtime.is_file():
            found.append(str(runtime))
        if found:
            files.update({f"{_kind(library)}.icd": f"{library}\n" for library in found})
            environment[VARIABLES[0]] = str(kept_files("vendors", files))
    except (OSError, UnicodeDecodeError):
        return


def _kind(library: str) -> str:
    """``libnvidia-opencl`` of any path and version."""
    return Path(library.strip()).name.partition(".so")[0]


PROGRAM_FILES = ("program.bc", ".so")
"""Endings of the files that PoCL keeps of a program."""

KERNELS = {linker.POCL_FOLDER: "pocl-programs", "CUDA_CACHE_PATH": "nvidia"}
"""Variables of PoCL's and NVIDIA's caches of kernels, and our folders for them. Left to itself
PoCL takes one under the temporary folder where there is no home, whoever made it."""

CHANGED = (*DRIVERS, *LIBRARIES, *KERNELS, "XDG_CACHE_HOME", "PATH", VARIABLES[0])
"""The variables that are set."""

MAKING = 60.0
"""Seconds from the start of a program's folder in which its sum may still be missing."""

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
    _drop_damaged(folder / KERNELS[linker.POCL_FOLDER])
    for variable, name in KERNELS.items():
        if variable not in environment or not is_trusted(Path(environment[variable])):
            environment[variable] = str(_made(folder / name))
    show_installed(environment)
    _bring_linker(environment)


def _drop_damaged(folder: Path) -> None:
    """Let PoCL compile those programs again whose files are not as they were made.

    It loads what is there, and ends the process where a library is cut off or damaged. A program
    that has no sum yet may be in the making (:func:`mltree.device.build.build_kernels`). A file
    whose sum was right has a stamp, and is read again only where its size or time has changed.

    folder  of its programs, each in a folder of two levels (``AB/CDE…/``)
    """
    kept = {path.name for path in linker.sums_in(folder)}
    for file in files_below(folder, *PROGRAM_FILES):
        program = folder.joinpath(*file.relative_to(folder).parts[:2])
        with suppress(OSError):
            status = file.stat()
            stamp = f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"
            if stamp in kept:
                continue
            content = file.read_bytes()
            if linker.sum_of(content) in kept:
                linker.keep(folder, stamp)
                continue
            is_new = file.suffix != ".so" and time.time() - program.stat().st_mtime < MAKING
            if not (is_new and content):
                shutil.rmtree(program, ignore_errors=True)


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
