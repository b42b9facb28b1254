"""What makes a build another one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.device import build

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
