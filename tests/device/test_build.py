"""What makes a build another one."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

from mltree.device import build
from mltree.device.discovery import choose_device
from mltree.device.layout import QUAD, gpu_layout, most_rows
from mltree.device.worker import MOST_LOCAL
from mltree.system.errors import DeviceError

Hash = Callable[[], str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the OpenCL sources, which builds are made from."""
    copy = Path(shutil.copytree(build.source_folder(), tmp_path / "opencl"))
    monkeypatch.setattr(build, "source_folder", lambda: copy)
    return copy


@pytest.fixture
def source_hash() -> Hash:
    """Not kept from call to call."""
    return build.source_hash.__wrapped__


@pytest.mark.parametrize("name", ["scan.cl", "contract.h"])
def test_every_source_counts(folder: Path, source_hash: Hash, name: str) -> None:
    before = source_hash()
    with (folder / name).open("a") as file:
        file.write("// another line\n")
    assert source_hash() != before


def test_prose_does_not_count(folder: Path, source_hash: Hash) -> None:
    before = source_hash()
    (folder / "README.md").write_text("another text")
    (folder / "scan.cl~").write_text("an editor's copy")
    assert source_hash() == before


@pytest.mark.parametrize(
    ("capability", "name", "rows", "local", "groups"),
    [
        ((9, 0), "walk", 1, 40_000, 4),  # registers
        ((9, 0), "sites", 4, 30_000, 1),
        ((9, 0), "triplet", 1, 20_000, 2),
        ((8, 6), "walk", 1, 40_000, 2),  # local memory
        ((7, 5), "walk", 1, 40_000, 1),
        ((7, 5), "sites", 16, 60_000, 1),  # never none
    ],
)
def test_as_many_groups_as_a_unit_surely_holds(
    capability: tuple[int, int], name: str, rows: int, local: int, groups: int
) -> None:
    device = SimpleNamespace(
        compute_capability_major_nv=capability[0], compute_capability_minor_nv=capability[1]
    )
    layout = gpu_layout(4, 16, 4, 64, False, rows, width=2)
    assert build.resident_groups(device, name, layout, local) == groups


@pytest.mark.parametrize("worker", build.WORKERS)
@pytest.mark.parametrize(
    ("states", "categories", "vw"),
    [(4, 1, 16), (4, 5, 16), (20, 4, 8), (20, 5, 8), (20, 5, 32), (61, 4, 8), (61, 32, 8)],
)
@pytest.mark.parametrize("items", [1, QUAD])
def test_a_group_fits_the_registers_quarter_by_quarter(
    worker: str, states: int, categories: int, vw: int, items: int
) -> None:
    """A quarter of a unit takes every fourth warp: 15 warps need as many registers as 16."""
    alone = gpu_layout(states, states, categories, vw, False, 1, state_items=items)
    layout = replace(alone, rows=most_rows(alone))
    warps = -(-math.prod(layout.group(worker)) // 32)
    of_warp = -(-32 * build.register_limit(worker, layout) // 256) * 256
    assert -(-warps // 4) * of_warp <= 65_536 // 4


@pytest.mark.parametrize("worker", build.WORKERS)
def test_a_group_fits_local_memory_under_the_largest_mixture(worker: str) -> None:
    """C60+F+G4: what a work-group keeps grows with its work-items, not with its categories."""
    device = choose_device(None).handle
    layout = replace(gpu_layout(4, 16, 61 * 4, 64, False, 1, width=2), systems=61)
    kernel = build.build_worker(cl.Context([device]), device, worker, layout)
    assert build.local_memory(kernel, device) <= MOST_LOCAL


def _runs(device: cl.Device) -> int:
    """What a kernel says that is built for a driver that keeps none itself."""
    context = cl.Context([device])
    source = "__kernel void worker(__global int *x) { x[0] = ANSWER; }"
    kernel = cl.Kernel(build._build(context, device, source, ["-DANSWER=7"]), "worker")
    queue, found = cl.CommandQueue(context), np.zeros(1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    cl.enqueue_copy(queue, found, buffer)
    return int(found[0])


@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")
def test_binaries_are_kept_where_the_driver_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = choose_device(None).handle
    monkeypatch.setattr(build, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(build, "is_pocl", lambda _: False)
    monkeypatch.setattr(build, "is_nvidia", lambda _: False)
    assert _runs(device) == 7
    (kept,) = tmp_path.glob("binary-*")
    whole = kept.read_bytes()
    for damaged in (b"damaged", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        kept.write_bytes(damaged)
        assert _runs(device) == 7
        assert kept.read_bytes() != damaged, "built anew, and kept"
    kept.write_bytes(whole)
    real, given = cl.Program, []

    def program(*arguments: object) -> object:
        given.append(len(arguments))
        return real(*arguments)

    monkeypatch.setattr(cl, "Program", program)
    assert _runs(device) == 7
    assert given == [3], "a binary for a device, and no source"


def test_kernels_are_new_until_they_were_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "cache_folder", lambda: tmp_path)
    monkeypatch.delenv("POCL_CACHE_DIR", raising=False)
    monkeypatch.setattr(build.cl, "Program", lambda *_: SimpleNamespace(build=lambda _: "program"))
    monkeypatch.setattr(build.cl, "Kernel", lambda *_: "kernel")
    device = choose_device(None).handle
    layout = gpu_layout(4, 16, 4, 32, False, 1)
    assert not build.is_built(device, layout)
    assert build.build_worker(cl.Context([device]), device, "sites", layout) == "kernel"
    assert build.is_built(device, layout)
    assert not build.is_built(device, gpu_layout(4, 16, 8, 32, False, 1))
    for name in ("parted", "site_systems", "tip_lookup", "fp64"):
        assert not build.is_built(device, replace(layout, **{name: not getattr(layout, name)}))
    assert not build.is_built(device, replace(layout, systems=2))
    monkeypatch.setattr(build, "source_hash", lambda: "another")
    assert not build.is_built(device, layout)


def test_builds_are_silent(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    device = choose_device(None).handle
    with (folder / "parsimony.cl").open("a") as file:
        file.write("__kernel void of_doubtful_worth(__global int *x) { int unused; *x = 1.5; }\n")
    build.build_kernels(cl.Context([device]), device, "parsimony", EDGES=1)
    assert capfd.readouterr().err == ""


def test_kernels_that_do_not_compile_are_one_line(folder: Path) -> None:
    device = choose_device(None).handle
    with (folder / "widen.cl").open("a") as file:
        file.write("__kernel void broken(")
    with pytest.raises(DeviceError, match=r"widen\.cl does not compile: ") as raised:
        build.build_kernels(cl.Context([device]), device, "widen", FP64=1)
    assert "\n" not in raised.value.message
    assert "driver's version" in raised.value.hint


def test_a_device_has_one_context() -> None:
    device, again = choose_device(None).handle, choose_device(None).handle
    assert build.context_on(device) is build.context_on(again)


def test_a_program_is_loaded_once_for_each_context(monkeypatch: pytest.MonkeyPatch) -> None:
    device = choose_device(None).handle
    own, other = cl.Context([device]), cl.Context([device])
    real, given = build._build, []

    def built(*arguments: object) -> cl.Program:
        given.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "_build", built)
    for context in (own, own, other):
        build.build_kernels(context, device, "widen", FP64=1)
    build.build_kernels(own, device, "widen", FP64=1, WIDTH=2)
    assert [arguments[0] for arguments in given] == [own, other, own]
