"""OpenCL runtimes that are here but registered nowhere, shown to the loader before it looks around.

Intel's wheels (``mltree[intel]``) put the runtime into the environment's ``lib``, but their ICD
file names a folder of the machine that built them, and the loader looks into no environment.
Containers are given NVIDIA's driver without its ICD file (container toolkit's issue 682). So the
loader is given a folder with the ICD files that are registered, and one for each of these.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path

from mltree.device.cache import kept_files

__all__ = ["VARIABLES", "show_installed"]

SYSTEM = Path("/etc/OpenCL/vendors")

ENVIRONMENT = Path("etc/OpenCL/vendors")
"""The same within a conda environment, whose loader looks there."""

INTEL = "libintelocl.so"

DRIVERS = ("libnvidia-opencl.so.1", "libamdocl64.so")
"""Libraries that ICD files of GPU drivers name: NVIDIA's and ROCm's. (Intel's lies where only its
ICD file leads.)"""

VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")
"""Where the loader looks for ICD files instead of :data:`SYSTEM`; a user's own choice stands."""


def _is_loadable(library: str) -> bool:
    """Whether the loader, which searches as the system does, will find a library."""
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
        found = [library for library in DRIVERS if _kind(library) not in registered]
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
