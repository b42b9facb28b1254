"""Freed memory stays with the process: that is measured in a process of its own."""

import platform
import subprocess
import sys

import pytest

from mltree.system.process import host_memory

FAULTS = """
import resource
import numpy as np
from mltree.system.process import tune_malloc
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
    "tune_malloc does nothing",
)
def test_arrays_come_without_page_faults() -> None:
    assert faults("tune_malloc()") < 2000


def test_the_memory_is_the_machines_or_what_its_limit_says() -> None:
    whole = host_memory()
    assert whole > 1 << 28
    program = "from mltree.system.process import host_memory; print(host_memory())"
    limited = f"ulimit -v {1 << 20}; exec {sys.executable} -c '{program}'"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, check=True, text=True)
    assert int(done.stdout) == min(whole, 1 << 30)
