"""The loader is shown what pip installed, beside what the system has, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltree.device import vendors
from mltree.device.vendors import INTEL, VARIABLE, show_installed


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment with Intel's runtime."""
    library = tmp_path / "environment" / "lib" / INTEL
    library.parent.mkdir(parents=True)
    library.touch()
    return tmp_path / "environment"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    folder = tmp_path / "vendors"
    folder.mkdir()
    (folder / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(vendors, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_an_installed_runtime_stands_beside_the_systems(
    prefix: Path, system: Path, folder: Path
) -> None:
    for _ in range(2):
        environment: dict[str, str] = {}
        show_installed(environment, prefix, system)
        shown = {file.name: file.read_text() for file in Path(environment[VARIABLE]).iterdir()}
        assert shown == {
            "nvidia.icd": "libnvidia-opencl.so.1\n",
            f"{INTEL}.icd": f"{prefix / 'lib' / INTEL}\n",
        }
    assert len(list(folder.iterdir())) == 1


def test_a_new_driver_is_seen(prefix: Path, system: Path) -> None:
    found = []
    for text in ("libone.so\n", "libtwo.so\n"):
        (system / "other.icd").write_text(text)
        environment: dict[str, str] = {}
        show_installed(environment, prefix, system)
        found.append((Path(environment[VARIABLE]) / "other.icd").read_text())
    assert found == ["libone.so\n", "libtwo.so\n"]


def test_without_the_runtime_nothing_changes(tmp_path: Path, system: Path) -> None:
    environment: dict[str, str] = {}
    show_installed(environment, tmp_path, system)
    assert environment == {}


def test_the_users_own_folder_stands(prefix: Path, system: Path) -> None:
    environment = {VARIABLE: "/somewhere"}
    show_installed(environment, prefix, system)
    assert environment == {VARIABLE: "/somewhere"}


def test_a_cache_that_cannot_be_written_stops_nothing(
    prefix: Path, system: Path, folder: Path
) -> None:
    folder.write_text("a file")
    environment: dict[str, str] = {}
    show_installed(environment, prefix, system)
    assert environment == {}
