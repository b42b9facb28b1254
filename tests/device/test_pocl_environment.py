"""Drivers are told where to keep kernels and what links them, and a user's own settings stand."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from mltree.device.pocl import pocl as environment
from mltree.device.pocl.linker import SUMS, sum_of
from mltree.device.pocl.pocl import CHANGED, KERNELS, for_a_call, prepare, prepare_process
from mltree.system.errors import DeviceError
from mltree.system.process import DRIVERS, LIBRARIES

POCL = KERNELS["POCL_CACHE_DIR"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache" / "mltree"
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(environment, "cache_folder", lambda: folder)
    monkeypatch.setattr(environment, "cache_notice", lambda: None)
    monkeypatch.setattr("mltree.device.build.cache_folder", lambda: folder)
    return folder


@pytest.fixture
def prepared() -> dict[str, str]:
    environment = {"PATH": "/usr/bin"}
    prepare(environment)
    return environment


def test_kernels_are_kept_in_the_private_folder(prepared: dict[str, str], folder: Path) -> None:
    assert prepared["POCL_CACHE_DIR"] == str(folder / POCL)
    assert prepared["CUDA_CACHE_PATH"] == str(folder / "nvidia")
    assert "XDG_CACHE_HOME" not in prepared
    assert (folder / POCL).stat().st_mode & 0o777 == 0o700


def test_a_users_own_folder_stands_where_it_is_private(tmp_path: Path, folder: Path) -> None:
    own, open_to_all = tmp_path / "own", tmp_path / "open"
    for path, mode in ((own, 0o755), (open_to_all, 0o777)):
        path.mkdir()
        path.chmod(mode)
    environment = {"POCL_CACHE_DIR": str(own), "CUDA_CACHE_PATH": str(open_to_all)}
    prepare(environment)
    assert environment["POCL_CACHE_DIR"] == str(own)
    assert environment["CUDA_CACHE_PATH"] == str(folder / "nvidia")


def test_what_stands_in_the_way_goes(tmp_path: Path, folder: Path) -> None:
    (folder / POCL).write_text("a file")
    (folder / "nvidia").symlink_to(tmp_path)
    prepare({})
    for name in (POCL, "nvidia"):
        assert (folder / name).is_dir()
        assert not (folder / name).is_symlink()


def test_an_empty_path_does_not_mean_here(folder: Path) -> None:
    environment = {"PATH": ""}
    prepare(environment)
    assert "" not in environment["PATH"].split(os.pathsep)


def test_processes_of_a_run_share_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "cache_notice", lambda: "no home")
    variables: dict[str, str] = {}
    prepare(variables)
    assert variables["XDG_CACHE_HOME"] == str(folder.parent)


def test_a_linker_comes_first_on_the_path_once(prepared: dict[str, str], folder: Path) -> None:
    first, *rest = prepared["PATH"].split(os.pathsep)
    assert rest == ["/usr/bin"]
    assert Path(first).parent == folder
    before = prepared["PATH"]
    prepare(prepared)
    assert prepared["PATH"] == before


@pytest.mark.parametrize("kind", ["plain", "a b", "long"])
def test_the_linker_runs_by_any_python(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = sys.executable
    if kind != "plain":
        link = tmp_path / (kind if kind == "a b" else "l" * 130)
        link.symlink_to(sys.executable)
        python = str(link)
    monkeypatch.setattr(sys, "executable", python)
    variables: dict[str, str] = {}
    prepare(variables)
    command = Path(variables["PATH"].split(os.pathsep)[0]) / "ld"
    found = subprocess.run(
        [command, "-shared"], env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert "not one object file" in found.stderr


def test_without_any_folder_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise DeviceError("no folder")

    monkeypatch.setattr(environment, "cache_folder", none)
    variables: dict[str, str] = {}
    prepare(variables)
    assert set(variables) == {*DRIVERS, *LIBRARIES}


def test_all_that_is_changed_is_known(prepared: dict[str, str]) -> None:
    assert set(prepared) <= set(CHANGED)


def test_imports_change_nothing() -> None:
    """But for pyopencl's, which sets variables of its own."""
    code = (
        "import os, pyopencl; before = dict(os.environ);"
        "import mltree, mltree.device.session, mltree.runs.engines, mltree.analyses.search;"
        "assert os.environ == before, set(os.environ.items()) ^ set(before.items())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_call_puts_the_environment_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_kept", {})
    monkeypatch.delenv("POCL_CACHE_DIR", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    before = dict(os.environ)
    with for_a_call():
        prepare_process()
        during = dict(os.environ)
        assert during["POCL_CACHE_DIR"]
        assert during["PATH"] != before["PATH"]
    assert dict(os.environ) == before
    with for_a_call():
        assert dict(os.environ) == during, "a kernel may have to be compiled"
    assert dict(os.environ) == before


BUILD = """
import sys
looked = set()
def note(event, arguments):
    if event in ("os.listdir", "os.scandir"):
        looked.add(str(arguments[0]))
sys.addaudithook(note)
import numpy as np, pyopencl as cl
from mltree.device.build import build_kernels, context_on
from mltree.device.discovery import find_devices
device = next(info.handle for info in find_devices() if info.is_cpu)
context = context_on(device)
kernel, = build_kernels(context, device, "widen", FP64=1).all_kernels()
queue, wide = cl.CommandQueue(context), np.zeros(128)
buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE, size) for size in (256, 1024)]
cl.enqueue_copy(queue, buffers[0], np.full(128, 3, np.uint16))
kernel(queue, (128,), (128,), *buffers, np.uint64(0), np.uint64(128))
cl.enqueue_copy(queue, wide, buffers[1])
print(kernel.function_name, wide.sum(), flush=True)
"""

LOOKED = """
cache, pocl = sys.argv[1:]
print(sorted(x for x in looked if x in (cache, pocl) or x.startswith(pocl)), flush=True)
"""


def _built(root: Path, more: str = "") -> str:
    """Output of a process that builds a kernel, keeps it below a root, and runs it."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(root)}
    environment.pop("POCL_CACHE_DIR", None)
    command = [
        sys.executable,
        "-c",
        BUILD + more,
        *map(str, (root / "mltree", root / "mltree" / POCL)),
    ]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.parametrize("kind", ["program.bc", "*.so"])
@pytest.mark.parametrize("damage", ["half", "zeros", "noise"])
def test_what_is_damaged_is_compiled_again(kind: str, damage: str, tmp_path: Path) -> None:
    pocl = tmp_path / "mltree" / POCL
    assert _built(tmp_path) == "widen 384.0\n"
    (file,) = pocl.rglob(kind)
    whole, made = file.read_bytes(), file.stat().st_ino
    assert _built(tmp_path) == "widen 384.0\n"
    assert file.stat().st_ino == made, "kept"
    half = len(whole) // 2
    noise = random.Random(1).randbytes(half)
    file.write_bytes({"half": b"", "zeros": bytes(half), "noise": noise}[damage] + whole[:half])
    assert _built(tmp_path) == "widen 384.0\n"
    (file,) = pocl.rglob(kind)
    assert file.stat().st_size == len(whole), "made again"
    assert (pocl / SUMS / sum_of(file.read_bytes())).exists()


def test_a_start_looks_at_what_it_needs_alone(tmp_path: Path) -> None:
    """However many programs are kept, the files of this build's are all that is looked at."""
    assert _built(tmp_path) == "widen 384.0\n"
    pocl = tmp_path / "mltree" / POCL
    (program,) = {file.parent for file in pocl.rglob("program.bc")}
    first, looked = _built(tmp_path, LOOKED).splitlines()
    assert first == "widen 384.0"
    paths = {Path(path) for path in ast.literal_eval(looked)}
    assert program in paths
    assert all(path.is_relative_to(program) for path in paths)


def test_a_kept_program_without_its_record_is_not_loaded(tmp_path: Path) -> None:
    """A process that was killed may have left half of it, of the right size."""
    assert _built(tmp_path) == "widen 384.0\n"
    pocl = tmp_path / "mltree" / POCL
    (kept,) = pocl.rglob("program.bc")
    kept.write_bytes(kept.read_bytes()[:-64].ljust(kept.stat().st_size, b"\xcc"))
    (record,) = (tmp_path / "mltree").glob("built-*")
    record.unlink()
    assert _built(tmp_path) == "widen 384.0\n"
    assert len(list(pocl.rglob("program.bc"))) == 2
