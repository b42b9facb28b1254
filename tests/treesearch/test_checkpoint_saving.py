"""When a file is written, and what is told where it cannot be."""

from __future__ import annotations

import pytest

from mltree.fit.settings import CheckpointSettings
from mltree.system.errors import InputError
from mltree.system.events import Event, Notice
from mltree.treesearch.checkpoint import Saving

RULES = CheckpointSettings(first=2.0, growth=0.5, longest=10.0, share=0.1)


class Disk:
    """Takes a while to write; refuses while it is full."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.now, self.written, self.is_full = 0.0, [], False
        self._seconds = seconds

    def write(self) -> None:
        self.now += self._seconds
        if self.is_full:
            raise InputError("no room")
        self.written.append(self.now)

    def offered(self, saving: Saving, until: int, events: list[Event]) -> list[bool]:
        """Whether it was written, second by second."""
        found = []
        while self.now < until:
            self.now += 1.0
            found.append(saving.offer(self.write, events.append))
        return found


def test_soon_then_more_rarely_and_in_the_end() -> None:
    disk = Disk()
    saving = Saving(RULES, "on", lambda: disk.now)
    found = disk.offered(saving, 60, [])
    assert disk.written == [2, 4, 8, 16, 26, 36, 46, 56]
    assert sum(found) == len(disk.written)
    assert saving.offer(disk.write, pytest.fail, is_last=True)
    assert disk.written[-1] == 60


def test_what_takes_long_is_written_rarely() -> None:
    disk = Disk(seconds=3.0)
    disk.offered(Saving(RULES, "on", lambda: disk.now), 400, [])
    assert 3.0 * len(disk.written) == pytest.approx(0.1 * 400, rel=0.15)


def test_what_cannot_be_written_is_told_of_once_at_a_time() -> None:
    disk, events = Disk(), []
    saving = Saving(RULES, "on we go", lambda: disk.now)
    for is_full in (True, False, True):
        disk.is_full = is_full
        assert any(disk.offered(saving, int(disk.now) + 40, events)) != is_full
    assert events == [Notice("no room; on we go")] * 2
