"""Drivers are told where to keep kernels and what links them, and a user's own settings stand."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from mltree.device import surroundings
from mltree.device.surroundings import CHANGED, for_a_call, prepare, prepare_process
from mltree.errors import DeviceError
from mltree.threads import DRIVERS, LIBRARIES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache" / "mltree"
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(surroundings, "cache_folder", lambda: folder)
    monkeypatch.setattr(surroundings, "cache_notice", lambda: None)
    monkeypatch.setattr("mltree.device.cache.cache_folder", lambda: folder)
    return folder


@pytest.fixture
def prepared() -> dict[str, str]:
    environment = {"PATH": "/usr/bin"}
    prepare(environment)
    return environment


def test_kernels_are_kept_in_the_private_folder(prepared: dict[str, str], folder: Path) -> None:
    assert prepared["POCL_CACHE_DIR"] == str(folder / "pocl")
    assert prepared["CUDA_CACHE_PATH"] == str(folder / "nvidia")
    assert "XDG_CACHE_HOME" not in prepared
    assert (folder / "pocl").stat().st_mode & 0o777 == 0o700


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
    (folder / "pocl").write_text("a file")
    (folder / "nvidia").symlink_to(tmp_path)
    prepare({})
    for name in ("pocl", "nvidia"):
        assert (folder / name).is_dir()
        assert not (folder / name).is_symlink()


def test_an_empty_path_does_not_mean_here(folder: Path) -> None:
    environment = {"PATH": ""}
    prepare(environment)
    assert "" not in environment["PATH"].split(os.pathsep)


def test_processes_of_a_run_share_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "cache_notice", lambda: "no home")
    environment: dict[str, str] = {}
    prepare(environment)
    assert environment["XDG_CACHE_HOME"] == str(folder.parent)


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
    environment: dict[str, str] = {}
    prepare(environment)
    command = Path(environment["PATH"].split(os.pathsep)[0]) / "ld"
    found = subprocess.run(
        [command, "-shared"], env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert "not one object file" in found.stderr


def test_without_any_folder_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise DeviceError("no folder")

    monkeypatch.setattr(surroundings, "cache_folder", none)
    environment: dict[str, str] = {}
    prepare(environment)
    assert set(environment) == {*DRIVERS, *LIBRARIES}


def test_all_that_is_changed_is_known(prepared: dict[str, str]) -> None:
    assert set(prepared) <= set(CHANGED)


def test_a_call_puts_the_environment_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "_kept", {})
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


def test_programs_with_a_broken_file_go(folder: Path) -> None:
    whole = struct.pack("=4s28xQ14xHH4x", b"\x7fELF", 64, 56, 1).ljust(64, b"\0")
    whole += struct.pack("=8xQ16xQ16x", 0, 200) + bytes(80)
    libraries = {"whole": whole, "cut": whole[:-1], "cut short": whole[:90], "empty": b""}
    for name, content in libraries.items():
        library = folder / "pocl" / "AB" / name / "worker" / "1-1-1" / "worker.so"
        library.parent.mkdir(parents=True)
        library.write_bytes(content)
        (folder / "pocl" / "AB" / name / "program.bc").write_bytes(b"BC")
    (folder / "pocl" / "AB" / "no program").mkdir()
    (folder / "pocl" / "AB" / "no program" / "program.bc").touch()
    prepare({})
    assert [path.name for path in (folder / "pocl" / "AB").iterdir()] == ["whole"]
    assert len(list((folder / "pocl" / "AB").rglob("*.*"))) == 2


BUILD = """
from mltree.device.build import build_kernels, context_on
from mltree.device.discovery import find_devices
device = next(info.handle for info in find_devices() if info.is_cpu)
program = build_kernels(context_on(device), device, "widen", FP64=1)
print(program.all_kernels()[0].function_name, flush=True)
"""


def test_half_a_program_is_compiled_again(tmp_path: Path) -> None:
    def built() -> str:
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        environment.pop("POCL_CACHE_DIR", None)
        command = [sys.executable, "-c", BUILD]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        ).stdout

    assert built() == "widen\n"
    (program,) = (tmp_path / "mltree" / "pocl").glob("*/*/program.bc")
    size = program.stat().st_size
    os.truncate(program, size // 2)
    assert built() == "widen\n"
    (program,) = (tmp_path / "mltree" / "pocl").glob("*/*/program.bc")
    assert program.stat().st_size == size
