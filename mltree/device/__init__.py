"""OpenCL devices: finding them, building the worker for them, and running programs on them."""

from __future__ import annotations

import os

NO_CACHE = "PYOPENCL_NO_CACHE"
"""Variable that turns off pyopencl's own kernel cache at import: drivers and
:mod:`mltree.device.build` have theirs."""

_is_ours = NO_CACHE not in os.environ
if _is_ours:
    os.environ[NO_CACHE] = "1"
try:
    import pyopencl as pyopencl
finally:
    if _is_ours:
        del os.environ[NO_CACHE]
