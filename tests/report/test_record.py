"""The record of a run's events: all of them, in a file that nothing depends on."""

import os
from pathlib import Path

import pytest

from mltree.report.record import Record, expect_record
from mltree.system.errors import InputError


def test_events_before_the_file_are_kept_for_it(tmp_path: Path) -> None:
    path, record = tmp_path / "x.events", Record()
    record.write("one")
    assert not path.exists()
    record.begin(path, append=False)
    record.write("two")
    assert path.read_text() == "one\ntwo\n"


def test_a_run_that_goes_on_appends(tmp_path: Path) -> None:
    path = tmp_path / "x.events"
    for append, wanted in ((True, "one\n"), (True, "one\none\n"), (False, "one\n")):
        record = Record()
        record.write("one")
        record.begin(path, append)
        assert path.read_text() == wanted


def test_what_cannot_be_written_is_let_go(tmp_path: Path) -> None:
    record = Record()
    record.begin(tmp_path / "no" / "x.events", append=False)
    record.write("one")
    path = tmp_path / "y.events"
    record.begin(path, append=False)
    path.unlink()
    path.mkdir()
    record.write("two")
    path.rmdir()
    record.write("three")
    assert not path.exists()


def test_only_a_record_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.events"
    expect_record(path)
    assert not path.exists()
    for text in ("", '{"eve', '{"event": "RunStarted"}\n'):
        path.write_text(text)
        expect_record(path)
    path.write_text("notes\n")
    with pytest.raises(InputError, match="is not a file of mltree"):
        expect_record(path)
    link, pipe = tmp_path / "y.events", tmp_path / "z.events"
    link.symlink_to(path)
    os.mkfifo(pipe)
    for odd, message in ((link, "is a link"), (pipe, "is a pipe")):
        with pytest.raises(InputError, match=message):
            expect_record(odd)
        record = Record()
        record.begin(odd, append=False)
        record.write("one")
    assert path.read_text() == "notes\n"
