"""OpenCL devices: finding them, building the worker for them, and running programs on them."""

from __future__ import annotations

import os

from mltree.system.errors import DeviceError

NO_CACHE = "PYOPENCL_NO_CACHE"
"""Variable that turns pyopencl's kernel cache off: drivers and mltree have theirs."""

_is_ours = NO_CACHE not in os.environ
if _is_ours:
    os.environ[NO_CACHE] = "1"
try:
    import pyopencl as pyopencl
finally:
    if _is_ours:
        del os.environ[NO_CACHE]

_process: int | None = None
"""The process that loaded the drivers."""


def check_process() -> None:
    """Make sure that drivers are loaded in this process, or not loaded yet.

    A fork leaves their threads behind: PoCL would never answer the forked process.

    Raises:
        DeviceError: this process was forked from the one that loaded them.
    """
    global _process  # noqa: PLW0603
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise DeviceError(
            "OpenCL does not work in a process forked from one that has used it",
            hint="start processes with multiprocessing.get_context('spawn'), or make the first "
            "call of mltree in the forked process",
        )
