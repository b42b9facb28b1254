"""The cache folder is the user's own and private; where there is none, a run has one to itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.device import build as cache
from mltree.device.build import IN_USE, find_folder, is_trusted, kept_files, prune
from mltree.device.pocl.linker import SUMS, keep_sum
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


PERIOD = IN_USE


@pytest.fixture
def programs(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PoCL's folder of ten programs of 1,000 bytes: number n was last used n + 1 periods ago."""
    monkeypatch.setattr(cache, "cache_folder", lambda: root)
    pocl = root / "pocl-programs"
    monkeypatch.setenv("POCL_CACHE_DIR", str(pocl))
    for number in range(10):
        program = pocl / "AB" / f"C{number}"
        program.mkdir(parents=True)
        content = bytes([number]) * 1000
        (program / "program.bc").write_bytes(content)
        keep_sum(pocl, content)
        (root / f"built-{number}").write_text(f"name\nAB/C{number}\n")
        (root / f"compiled-{number}").touch()
        sums = pocl / SUMS / cache.hashlib.sha256(content).hexdigest()
        for path in (root / f"built-{number}", program, sums):
            _used(path, number + 1)
    return pocl


def _used(path: Path, periods: float) -> None:
    used = time.time() - periods * PERIOD
    os.utime(path, (used, used))


def _left(programs: Path) -> set[int]:
    """Numbers of the programs that are left, whole."""
    left = {int(path.name[1:]) for path in programs.glob("AB/*")}
    for kind in ("built", "compiled"):
        assert {int(path.name[-1]) for path in programs.parent.glob(f"{kind}-*")} == left
    return left


@pytest.mark.parametrize(
    ("most", "most_bytes", "recent", "left"),
    [(10, 10_000, 0, 10), (4, 10_000, 0, 4), (10, 3_500, 0, 3), (2, 10_000, 5, 5), (0, 0, 0, 0)],
)
def test_what_was_used_least_recently_goes(
    programs: Path, most: int, most_bytes: int, recent: int, left: int
) -> None:
    for number in range(recent):
        assert cache.has_sum(programs, bytes([number]) * 1000), "looked at before PoCL is"
        _used(programs.parent / f"built-{number}", 0.9)
    prune(most, most_bytes)
    assert _left(programs) == set(range(left))
    assert len(list((programs / SUMS).iterdir())) <= left + 1
    assert all(cache.has_sum(programs, bytes([number]) * 1000) for number in range(left))
    assert not list(programs.glob("tempfile_*"))


def test_what_no_record_names_goes_once_it_is_old(programs: Path) -> None:
    for name, periods in (("AB/old", 2), ("CD/old", 2), ("AB/new", 0), ("tempfile_x", 2)):
        (programs / name).mkdir(parents=True)
        _used(programs / name, periods)
    (programs / "tempfile_y").touch()
    _used(programs / "tempfile_y", 2)
    prune()
    names = {str(path.relative_to(programs)) for path in programs.glob("*/*")}
    assert "AB/new" in names
    assert not {"AB/old", "CD/old"} & names
    assert not list(programs.glob("tempfile_*"))
    assert len(list(programs.glob("AB/C*"))) == 10


def test_nothing_is_looked_for_twice_in_a_short_while(programs: Path) -> None:
    prune()
    prune(0, 0)
    assert _left(programs) == set(range(10))
    _used(programs.parent / "pruned", 1.1)
    prune(0, 0)
    assert not _left(programs)


def test_programs_in_a_users_own_folder_stay(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = programs.rename(tmp_path / "own")
    monkeypatch.setenv("POCL_CACHE_DIR", str(own))
    prune(0, 0)
    assert len(list(own.glob("AB/*"))) == 10
    assert not list(programs.parent.glob("built-*"))
