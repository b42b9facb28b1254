"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mltree.system.errors import InputError
from mltree.system.files import is_folder, is_there, open_own, read_own, write_together, write_whole


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


def test_nobodys_file_or_link_is_written_through_on_the_way(tmp_path: Path) -> None:
    """Drafts once had names that anybody could tell before."""
    path, precious = tmp_path / "fig.svg", tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "fig.svg.partial").symlink_to(precious)
    write_whole(path, b"new")
    (tmp_path / "fig.svg.partial").unlink()
    (tmp_path / "fig.svg.partial").write_text("the user's own")
    write_whole(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert precious.read_text() == "precious"
    assert (tmp_path / "fig.svg.partial").read_text() == "the user's own"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_link_in_a_files_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    path, precious = tmp_path / "x", tmp_path / "precious"
    precious.write_text("precious")
    path.symlink_to(precious)
    write_whole(path, b"new")
    assert (path.is_symlink(), path.read_text(), precious.read_text()) == (False, "new", "precious")


def test_pipes_and_devices_are_no_files_to_replace_or_wait_for(tmp_path: Path) -> None:
    pipe, null = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    null.symlink_to(os.devnull)
    for path, what in ((pipe, "pipe"), (null, "device")):
        with pytest.raises(InputError, match=f"is a {what}, not a file"):
            write_whole(path, b"")
        with pytest.raises(InputError, match=f"is a {what}, not a file"):
            read_own(path)
    with pytest.raises(InputError, match="is a pipe"):
        open_own(pipe, os.O_RDWR)
    with pytest.raises(InputError, match="cannot read .*: Is a directory"):
        read_own(tmp_path)
    assert sorted(tmp_path.iterdir()) == [null, pipe]


def test_what_is_written_piece_by_piece_is_no_link(tmp_path: Path) -> None:
    """But to a device, which nothing can be lost of; nor is a file made where a link leads."""
    for target in (tmp_path / "precious", tmp_path / "nowhere"):
        path = tmp_path / f"to {target.name}"
        path.symlink_to(target)
        (tmp_path / "precious").write_text("precious")
        with pytest.raises(InputError, match="is a link"):
            open_own(path, os.O_WRONLY | os.O_TRUNC)
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "null").symlink_to(os.devnull)
    os.close(open_own(tmp_path / "null", os.O_WRONLY))
    file = open_own(tmp_path / "new", os.O_RDWR)
    os.write(file, b"new")
    os.close(file)
    assert read_own(tmp_path / "new") == b"new"
