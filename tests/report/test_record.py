"""The record of a run's events: all of them, in a file that nothing depends on."""

from pathlib import Path

from mltree.report.record import Record


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
