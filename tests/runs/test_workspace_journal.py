"""Journals: whatever a kill leaves of a file, its whole lines count and the rest is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltree.runs.workspace import Entry, Head, Journal, MemoryJournal
from mltree.system.errors import InputError

HEAD = Head("mine", {"a device": (4, 2)})
ENTRIES = {
    2: Entry(-1.0 / 3.0, "(a,b,c);"),
    1: Entry(-1e-300, "(b,(a,'c d'),e);"),
    4: Entry(0, "x"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.begin(HEAD)
        for number, entry in ENTRIES.items():
            journal.add(number, entry)
    return path


def test_a_journal_comes_back_wherever_it_was_cut(path: Path) -> None:
    whole = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:size])
        lines = sum(end <= size for end in ends)
        with Journal(path) as journal:
            assert journal.head == HEAD
            assert list(journal.done.items()) == list(ENTRIES.items())[: lines - 1]
            journal.begin(HEAD)
        assert path.exists() == (lines > 1)  # one that has nothing was for nothing


def test_a_damaged_line_ends_what_counts(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"'c d'")] ^= 1
    path.write_bytes(content)
    with Journal(path) as journal:
        assert list(journal.done) == [2]
        journal.begin(HEAD)
        journal.add(7, ENTRIES[4])
    with Journal(path) as journal:
        assert list(journal.done) == [2, 7]


def test_trees_in_order_end_before_the_first_that_is_missing(path: Path) -> None:
    with Journal(path) as journal:
        assert journal.in_order == 2
        assert journal.newicks(2) == "(b,(a,'c d'),e);\n(a,b,c);\n"
        journal.begin(HEAD)
        journal.add(3, ENTRIES[4])
        assert journal.in_order == 4


def test_a_journal_has_one_owner_and_one_writer(path: Path) -> None:
    with Journal(path) as journal:
        with pytest.raises(InputError, match="replicates of other data, options"):
            journal.begin(Head("another's", HEAD.layouts))
        with pytest.raises(InputError, match="is being written by another run"):
            Journal(path)
    with Journal(path) as journal:
        assert journal.done == ENTRIES


@pytest.mark.parametrize("text", ["hello\n", "00000000 {}\n", ">a\nACGT\n"])
def test_a_file_that_is_no_journal_stays(text: str, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text(text)
    with pytest.raises(InputError, match="has no replicates"):
        Journal(path)
    assert path.read_text() == text


def test_an_old_journal_goes_once_the_new_run_begins(path: Path) -> None:
    old = path.read_bytes()
    with Journal(path, afresh=True) as journal:
        assert not journal.done
    assert path.read_bytes() == old
    with Journal(path, afresh=True) as journal:
        journal.begin(Head("another's", {}))
        journal.add(1, ENTRIES[1])
    with Journal(path) as journal:
        assert journal.head == Head("another's", {})
        assert journal.done == {1: ENTRIES[1]}


def test_one_in_memory_answers_like_one_on_file(path: Path) -> None:
    with MemoryJournal() as memory, Journal(path) as journal:
        memory.begin(HEAD)
        for number, entry in ENTRIES.items():
            memory.add(number, entry)
        assert memory.done == journal.done
        assert memory.newicks(memory.in_order) == journal.newicks(journal.in_order)


@pytest.mark.parametrize("afresh", [True, False])
@pytest.mark.parametrize("text", ["notes", "notes\n", "0123456", "01234567 [1]\n"])
def test_what_is_no_journal_is_left_alone(path: Path, text: str, afresh: bool) -> None:
    """But for the beginning of a first line, which a kill may have left."""
    path.write_text(text)
    if text == "0123456":
        with Journal(path, afresh) as journal:
            journal.begin(HEAD)
            journal.add(1, ENTRIES[1])
        return
    with pytest.raises(InputError, match="has no replicates"), Journal(path, afresh) as journal:
        journal.begin(HEAD)
    assert path.read_text() == text
