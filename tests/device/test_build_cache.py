"""The cache folder is the user's own and private; where there is none, a run has one to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.device import build as cache
from mltree.device.build import find_folder, is_trusted, kept_files
from mltree.system.errors import DeviceError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What XDG_CACHE_HOME names; the temporary folder is beside it."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    root = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    monkeypatch.setattr(cache, "gettempdir", lambda: str(temporary))
    return root


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_users_folder_is_made_and_closed_to_others(root: Path) -> None:
    folder = find_folder()
    assert folder == cache.Folder(root / "mltree", None)
    assert mode(folder.path) == 0o700
    folder.path.chmod(0o755)
    assert find_folder() == folder
    assert mode(folder.path) == 0o700


def of_file(root: Path) -> None:
    root.write_text("a file")


def of_link(root: Path) -> None:
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    root.mkdir()
    (root / "mltree").symlink_to(elsewhere)


def of_all(root: Path) -> None:
    (root / "mltree").mkdir(parents=True)
    (root / "mltree").chmod(0o777)


def of_group(root: Path) -> None:
    (root / "mltree").mkdir(parents=True)
    (root / "mltree").chmod(0o770)


def above_all(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)


UNFIT = {
    of_file: "File exists",
    of_link: "is a link or a file",
    of_all: "others may write to",
    of_group: "others may write to",
    above_all: "everybody may replace what is in",
}


@pytest.mark.parametrize("spoil", UNFIT, ids=lambda spoil: spoil.__name__)
def test_a_folder_that_others_can_fill_is_not_taken(
    root: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(root)
    folder = find_folder()
    assert folder.path.parent.parent == root.parent / "temporary"
    assert mode(folder.path) == mode(folder.path.parent) == 0o700
    assert UNFIT[spoil] in (folder.notice or "")


def test_another_users_folder_is_not_taken(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = find_folder().path
    assert is_trusted(own)
    monkeypatch.setattr(cache.os, "geteuid", lambda: os.getuid() + 1)
    assert not is_trusted(own)
    assert "belongs to another user" in (find_folder().notice or "")


def test_a_shared_folder_with_the_sticky_bit_is_one_to_be_in(root: Path) -> None:
    root.mkdir()
    root.chmod(0o1777)
    assert find_folder().notice is None


def test_a_home_that_is_not_there_is_not_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = root.parent / "home"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(home))
    assert f"the home folder {home} is not there" in (find_folder().notice or "")
    assert not home.exists()


def test_full_disks_everywhere_are_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LEAST_ROOM", 1 << 70)
    with pytest.raises(DeviceError, match="no folder can keep compiled kernels") as raised:
        find_folder()
    assert raised.value.message.count("MiB left, of") == 3
    assert "XDG_CACHE_HOME" in (raised.value.hint or "")
    assert not list((root.parent / "temporary").iterdir())


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
from mltree.device.build import find_folder
find_folder()
"""


def test_a_limit_on_the_size_of_files_is_found_by_writing() -> None:
    found = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False
    )
    assert "no folder can keep compiled kernels" in found.stderr
    assert found.stderr.count("has no room for 1 MiB") == 3


ENDING = """
import os
from mltree.device.build import cache_folder
path = cache_folder()
if os.fork() == 0:
    raise SystemExit
os.wait()
assert path.is_dir(), "a child's end takes it away"
print(path)
"""


def test_the_folder_of_a_run_goes_with_it(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": "/proc", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", ENDING]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    assert path.is_relative_to(tmp_path)
    assert not path.parent.exists()


def test_files_are_kept_once_for_each_content(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda: root)
    root.mkdir()
    one, two = (kept_files("tools", {"a": text}, mode=0o700) for text in ("one", "two"))
    assert one == kept_files("tools", {"a": "one"}, mode=0o700) != two
    assert [(x / "a").read_text() for x in (one, two)] == ["one", "two"]
    assert mode(one / "a") == 0o700
    assert {x.name for x in root.iterdir()} == {one.name, two.name}
