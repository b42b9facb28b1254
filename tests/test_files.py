"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mltree.errors import InputError
from mltree.files import is_folder, is_there, write_together, write_whole


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    write_whole(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot write .*x: No space left"):
        write_whole(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_belong_together_are_all_written_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    sync, calls = os.fsync, iter([False, True])
    monkeypatch.setattr(os, "fsync", lambda file: full(file) if next(calls) else sync(file))
    with pytest.raises(InputError, match="other"):
        write_together({one: b"1", other: b"2"})
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    write_together({one: b"1", other: b"2"})
    assert (one.read_bytes(), other.read_bytes()) == (b"1", b"2")


def test_what_the_system_refuses_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, reason in (
        ("folder", "directory"),
        ("no/x", "No such"),
        ("x" * 250, "too long"),
    ):
        with pytest.raises(InputError, match=f"cannot write .*{name}: .*{reason}"):
            write_whole(tmp_path / name, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert is_folder(tmp_path)
    assert is_there(tmp_path / "x")
    for none in ("y", "x/y", "y" * 300, "a\0b"):
        assert not is_there(tmp_path / none)
        assert not is_folder(tmp_path / none)
    assert not is_folder(tmp_path / "x")
