"""A run's log: locked by one, left as it was by who never began, patient with a full disk."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from mltree.runs.workspace import RunLog
from mltree.system.errors import InputError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.log"


def lines(path: Path) -> list[str]:
    """The log's lines but for signatures, whose time changes."""
    return [line for line in path.read_text().splitlines() if "writes this log" not in line]


def test_it_has_what_was_written_before_it_began(path: Path) -> None:
    with RunLog(path) as log:
        log.write("one\n")
        assert lines(path) == []
        log.begin(append=False)
        log.write("two\n")
    assert lines(path) == ["one", "two"]
    assert path.read_text().startswith(f"process {os.getpid()} on ")


OLD = "process 7 on a host writes this log from 2026-01-01 00:00:00\nold\n"


@pytest.mark.parametrize(("append", "expected"), [(True, ["old", "new"]), (False, ["new"])])
def test_it_goes_on_or_starts_afresh(path: Path, append: bool, expected: list[str]) -> None:
    path.write_text(OLD)
    with RunLog(path) as log:
        log.begin(append)
        log.write("new\n")
    assert lines(path) == expected


@pytest.mark.parametrize("old", [None, OLD, OLD[:5]])
def test_a_run_that_never_begins_leaves_it_as_it_was(path: Path, old: str | None) -> None:
    if old is not None:
        path.write_text(old)
    with suppress(ZeroDivisionError), RunLog(path) as log:
        log.write("one\n")
        _ = 1 / 0
    assert (path.read_text() if path.exists() else None) == old


def test_its_last_line_says_why(path: Path) -> None:
    with suppress(InputError), RunLog(path) as log:
        log.begin(append=False)
        raise InputError("no more trees")
    assert lines(path) == ["stopped: no more trees"]


def test_another_run_is_told_whose_it_is(path: Path) -> None:
    held = rf"x.log is being written by process {os.getpid()} on "
    with RunLog(path):
        with pytest.raises(InputError, match=held) as raised, RunLog(path):
            pass
        assert "--prefix" in str(raised.value.hint)
    with RunLog(path):
        pass


def test_a_lock_ends_with_its_process_however_that_ends(path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from mltree.runs.workspace import RunLog; "
        "log = RunLog(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"process {holder.pid} on "), RunLog(path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with RunLog(path) as log:
        log.begin(append=False)


@pytest.mark.cases(1, 20)
def test_it_is_never_held_twice(path: Path, case: int) -> None:
    """Runs that come and go, each of which may remove the file that others have just opened."""
    inside, twice, taken = [], [], []

    def come_and_go() -> None:
        for _ in range(100):
            with suppress(InputError), RunLog(path):
                inside.append(1)
                twice.extend(inside[1:])
                taken.append(1)
                inside.pop()

    threads = [threading.Thread(target=come_and_go) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken
    assert not twice
    assert not path.exists()


def test_a_file_system_without_locks_is_told_of(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with RunLog(path) as log:
        assert log.is_locked
    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLog(path) as log:
        assert not log.is_locked


def test_what_a_full_disk_refuses_comes_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunLog(path) as log:
        log.begin(append=False)
        write = os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda file, text: write(file, text[:3]))
            log.write("in pieces\n")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda *_: write(os.open("/dev/full", os.O_WRONLY), b"x"))
            with pytest.raises(InputError, match=r"x\.log: No space left"):
                log.write("late\n")
        log.write("in time\n")
    assert lines(path) == ["in pieces", "late", "in time"]


def test_a_full_disk_is_noticed_before_anything_is_done(path: Path) -> None:
    path.symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"x\.log: No space left"):
        RunLog(path)
    assert path.is_symlink()


def test_what_is_no_file_of_its_own_is_not_locked(path: Path) -> None:
    path.symlink_to("/dev/null")
    with RunLog(path) as one, RunLog(path) as other:
        one.begin(append=False)
        other.begin(append=True)


def test_no_text_is_too_odd(path: Path) -> None:
    with RunLog(path) as log:
        log.begin(append=False)
        log.write("prefix \udcff\n")
    assert lines(path) == [r"prefix \udcff"]


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_what_is_no_log_is_left_alone(path: Path, tmp_path: Path, kind: str) -> None:
    """A link too, whatever it leads to: it may be another run's log."""
    notes = path if kind == "file" else tmp_path / "notes"
    notes.write_text(OLD if kind == "link" else "notes of the user's\n")
    if kind == "link":
        path.symlink_to(notes)
    elif kind == "pipe":
        os.mkfifo(path)
    before = notes.read_text()
    with pytest.raises(InputError, match={"file": "not an mltree log"}.get(kind, f"is a {kind}")):
        RunLog(path)
    assert notes.read_text() == before
