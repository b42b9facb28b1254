"""Freed memory stays with the process: that is measured in a process of its own."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from mltree.heap import keep_freed_memory
{keep}
big = np.ones(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    first, second = big[: 1 << 17] + 1, big[: 1 << 17] + 2
    first += second
    del first, second
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: str) -> int:
    script = FAULTS.format(keep=keep)
    return int(
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    )


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc",
    reason="the thresholds are glibc's: musl and macOS have no mallopt that sets them, and then "
    "keep_freed_memory does nothing",
)
def test_arrays_come_without_page_faults() -> None:
    assert faults("keep_freed_memory()") < 2000
