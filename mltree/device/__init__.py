"""OpenCL devices: finding them, building the worker for them, and running programs on them."""

import os

NO_CACHE = "PYOPENCL_NO_CACHE"
"""What pyopencl looks for when it is imported: drivers and :mod:`mltree.device.build` keep what
they have built."""

_is_ours = NO_CACHE not in os.environ
if _is_ours:
    os.environ[NO_CACHE] = "1"
try:
    import pyopencl as pyopencl
finally:
    if _is_ours:
        del os.environ[NO_CACHE]
