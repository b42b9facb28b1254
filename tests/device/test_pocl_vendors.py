"""The loader is shown what is here but registered nowhere, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.device import build as cache
from mltree.device.pocl.pocl import ENVIRONMENT, INTEL, VARIABLES, show_installed

VARIABLE = VARIABLES[0]
NVIDIA = "libnvidia-opencl.so.1"

Show = Callable[..., dict[str, str] | None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(cache, "cache_folder", lambda: folder)
    return folder


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Registered runtimes: one."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    (folder / "other.icd").write_text("libother.so\n")
    return folder


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment with Intel's runtime."""
    library = tmp_path / "environment" / "lib" / INTEL
    library.parent.mkdir(parents=True)
    library.touch()
    return tmp_path / "environment"


@pytest.fixture
def show(tmp_path: Path, system: Path) -> Show:
    """show(prefix, libraries): the ICD files that the loader is shown; None: the system's."""

    def show(prefix: Path = tmp_path, libraries: tuple[str, ...] = ()) -> dict[str, str] | None:
        environment: dict[str, str] = {}
        show_installed(environment, prefix, system, libraries.__contains__)
        if not environment:
            return None
        return {file.name: file.read_text() for file in Path(environment[VARIABLE]).iterdir()}

    return show


def test_an_installed_runtime_stands_beside_the_systems(
    show: Show, prefix: Path, folder: Path
) -> None:
    for _ in range(2):
        assert show(prefix) == {
            "other.icd": "libother.so\n",
            "libintelocl.icd": f"{prefix / 'lib' / INTEL}\n",
        }
    assert len(list(folder.iterdir())) == 1


def test_a_driver_without_its_file_is_shown(show: Show) -> None:
    assert show(libraries=(NVIDIA,)) == {
        "other.icd": "libother.so\n",
        "libnvidia-opencl.icd": f"{NVIDIA}\n",
    }
    shown = show(libraries=(NVIDIA, "libamdocl64.so"))
    assert shown is not None
    assert shown["libamdocl64.icd"] == "libamdocl64.so\n"


def test_a_driver_on_a_machine_without_any_file(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    show_installed(environment, tmp_path, tmp_path / "nothing", lambda library: library == NVIDIA)
    (file,) = Path(environment[VARIABLE]).iterdir()
    assert file.read_text() == f"{NVIDIA}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{NVIDIA}\n", "libnvidia-opencl.so", "/usr/lib/libnvidia-opencl.so.580.1\n",
        f"\n /usr/lib64/{NVIDIA} \n",
    ],
)  # fmt: skip
def test_a_registered_driver_is_not_listed_twice(show: Show, system: Path, text: str) -> None:
    (system / "nvidia.icd").write_text(text)
    assert show(libraries=(NVIDIA,)) is None


def test_what_an_environment_registers_counts(show: Show, prefix: Path) -> None:
    own = prefix / ENVIRONMENT
    own.mkdir(parents=True)
    (own / "intel.icd").write_text(f"{prefix / 'lib' / INTEL}")
    assert show(prefix) is None
    assert set(show(prefix, (NVIDIA,)) or ()) == {
        "intel.icd", "libnvidia-opencl.icd", "other.icd",
    }  # fmt: skip


def test_a_new_driver_is_seen(show: Show, prefix: Path, system: Path) -> None:
    for text in ("libone.so\n", "libtwo.so\n"):
        (system / "other.icd").write_text(text)
        assert (show(prefix) or {})["other.icd"] == text


def test_where_all_is_registered_nothing_changes(show: Show) -> None:
    assert show() is None


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_users_own_folder_stands(variable: str, prefix: Path, system: Path) -> None:
    environment = {variable: "/somewhere"}
    show_installed(environment, prefix, system)
    assert environment == {variable: "/somewhere"}


def test_the_systems_own_search_finds_libraries(tmp_path: Path, system: Path) -> None:
    """No driver is here, so that of the system's C library is one for the test."""
    from mltree.device.pocl import pocl as vendors

    assert vendors._is_loadable("libc.so.6")
    assert not vendors._is_loadable("libno-such-driver.so.1")


def test_a_cache_that_cannot_be_written_stops_nothing(
    show: Show, prefix: Path, folder: Path
) -> None:
    folder.rmdir()
    folder.write_text("a file")
    assert show(prefix) is None
