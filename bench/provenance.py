"""What a result was measured on: machine, devices, versions, command, commit."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from mltree import __version__
from mltree.device.discovery import find_devices

__all__ = ["ROOT", "commit_of", "cores", "provenance"]

ROOT = Path(__file__).parent.parent
"""The checkout."""

PACKAGES = ("numpy", "scipy", "pyopencl", "pocl-binary-distribution", "intel-opencl-rt")


def provenance(commit: str | None, seed: int, repetitions: int) -> dict[str, Any]:
    """Everything that a reader needs to judge or repeat a result."""
    return {
        "utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit_of(commit),
        "command": _command(),
        "seed": seed,
        "repetitions": repetitions,
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "pinned_to": cores(),
        "system": platform.system() + " " + platform.machine(),
        "python": platform.python_version(),
        "mltree": __version__,
        "packages": _versions(),
        "devices": [
            {
                "index": device.index,
                "name": device.name,
                "platform": device.platform,
                "driver": device.driver,
                "compute_units": device.compute_units,
                "memory_bytes": device.memory,
                "vector_width": device.vector_width,
            }
            for device in find_devices()
        ],
    }


def commit_of(given: str | None) -> str:
    """The commit: as given, from the environment (MLTREE_COMMIT), from git, or ``unknown``."""
    named = given or os.environ.get("MLTREE_COMMIT")
    if named:
        return named
    try:
        git = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return git.stdout.strip() or "unknown"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _command() -> str:
    """The command line, less its remark, which is stored by itself.

    Folders of this machine are nobody's business: only names stay.
    """
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    if "--remark" in words:
        at = words.index("--remark")
        del words[at : at + 2]
    return shlex.join(["python", "-m", "bench", *words])


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _versions() -> dict[str, str]:
    installed = {entry.name: entry.version for entry in metadata.distributions()}
    return {package: installed[package] for package in PACKAGES if package in installed}
