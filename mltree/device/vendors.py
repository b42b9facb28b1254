"""OpenCL runtimes that pip has installed, shown to the loader before it looks around.

Intel's wheels (``mltree[intel]``) put the runtime into the environment's ``lib``, but their ICD
file names a folder of the machine that built them, and the loader looks into no environment. So
it is given a folder with the system's ICD files and one that names the runtime.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import MutableMapping
from pathlib import Path
from tempfile import mkdtemp

from mltree.device.cache import cache_folder

__all__ = ["show_installed"]

SYSTEM = Path("/etc/OpenCL/vendors")

INTEL = "libintelocl.so"

VARIABLE = "OCL_ICD_VENDORS"
"""Where the loader looks for ICD files instead of :data:`SYSTEM`; a user's own choice stands."""


def show_installed(
    environment: MutableMapping[str, str] = os.environ,
    prefix: Path | None = None,
    system: Path = SYSTEM,
) -> None:
    """Have the loader find what pip has installed; to be called before it is loaded.

    ``prefix``: of the Python environment; this one's where None.
    """
    runtime = (prefix or Path(sys.prefix)) / "lib" / INTEL
    if VARIABLE in environment or not runtime.is_file():
        return
    try:
        files = {file.name: file.read_text() for file in sorted(system.glob("*.icd"))}
        folder = _folder_of({**files, f"{INTEL}.icd": f"{runtime}\n"})
    except (OSError, UnicodeDecodeError):
        return
    environment[VARIABLE] = str(folder)


def _folder_of(files: dict[str, str]) -> Path:
    """A folder with these files, made once for each content."""
    folder = cache_folder() / f"vendors-{hashlib.sha256(repr(files).encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(dir=folder.parent))
        for name, text in files.items():
            (made / name).write_text(text)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(made)
            if not folder.is_dir():
                raise
    return folder
