"""PoCL is told of a CPU by a name that means what the CPU can do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pyopencl as cl
import pytest

from mltree.device.build import is_pocl
from mltree.device.discovery import find_devices
from mltree.device.pocl import pocl
from mltree.device.pocl.pocl import fitting_name, name_cpu

V2 = {"sse2", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"}
AVX = V2 | {"avx"}
V3 = AVX | {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("name", "flags", "fitting"),
    [
        pytest.param("znver3", V3, "znver3", id="Zen 3"),
        pytest.param("znver3", V4, "skylake-avx512", id="Zen 4"),
        pytest.param("generic", V4, "skylake-avx512", id="Zen 5"),
        pytest.param("generic", V3, "haswell", id="a new one"),
        pytest.param("icelake-server", V4, "icelake-server", id="Ice Lake"),
        pytest.param("icelake-server", V3, "haswell", id="Ice Lake, AVX-512 hidden"),
        pytest.param("skylake", V2, "penryn", id="Pentium Gold"),
        pytest.param("haswell", V3 - {"fma", "abm"}, "ivybridge", id="Haswell, FMA hidden"),
        pytest.param("znver2", V3 - {"movbe"}, "znver2", id="Zen 2, what no library needs hidden"),
        pytest.param("ivybridge", AVX, "sandybridge", id="Ivy Bridge, F16C hidden"),
        pytest.param("bdver2", AVX | {"xop", "fma4", "f16c"}, "bdver2", id="Piledriver"),
        pytest.param("knl", V3 | {"avx512f"}, "knl", id="Knights Landing"),
        pytest.param("haswell", {"sse2"}, "x86-64", id="Haswell, all hidden"),
        pytest.param("sandybridge", AVX, "sandybridge", id="Sandy Bridge"),
        pytest.param("generic", set(), "generic", id="nothing is known"),
    ],
)
def test_a_cpu_is_named_by_what_it_can_do(name: str, flags: set[str], fitting: str) -> None:
    assert fitting_name(name, flags) == fitting


def test_pocl_compiles_its_library_for_the_cpu_of_this_machine() -> None:
    """LLVM ends the process where the CPU's name and the library do not fit."""
    for device in (info.handle for info in find_devices() if info.is_cpu):
        if is_pocl(device):
            program = cl.Program(cl.Context([device]), KERNEL).build()
            assert program.all_kernels()[0].function_name == "logs"


KERNEL = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
kernel void logs(global double8 *x) { x[0] = log(x[0]) + sqrt(x[1]) + exp2(x[2]); }
"""
"""What LLVM ended the process at on a Zen 4."""


def test_memory_of_other_drivers_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocl, "_find_name", lambda *_: pytest.fail("it was"))
    platform = SimpleNamespace(name="Somebody")
    other = SimpleNamespace(platform=platform, version="OpenCL 3.0 x-gnu-generic", int_ptr=8)
    name_cpu(cast("cl.Device", other))
