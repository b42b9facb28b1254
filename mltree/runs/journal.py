"""Journals: a line for everything that is done, a replicate or a locus, in the order they end.

A line is written as soon as its replicate has ended, so that a kill at any time loses none. It
begins with the CRC-32 of its rest: what a kill has cut in two is dropped by whoever reads it. The
first line says whose replicates they are; replicates are never added to those of another run.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from mltree.errors import InputError
from mltree.files import naming, open_own, unusable
from mltree.stopping import unbroken
from mltree.values import Value

__all__ = ["Entry", "Head", "Journal", "LineJournal", "MemoryJournal"]


Own = TypeVar("Own", bound="LineJournal[Any, Any]")
Key = TypeVar("Key", int, str)
Record = TypeVar("Record", bound=tuple[Any, ...])


class Entry(NamedTuple):
    """A replicate."""

    lnl: float
    """Natural log, under its weights."""
    newick: str
    """One line, without its end."""


class Head(Value):
    """Whose work a journal has."""

    fingerprint: str
    """Of everything that decides what its lines say; see :func:`.checkpoint.fingerprint`."""
    layouts: Mapping[str, tuple[int, int]]
    """VW and rows that the devices were given: the work goes on with the same bits."""


class LineJournal(Generic[Key, Record]):
    """The file, locked, with what is on it: records, a line each, by their keys."""

    FORMAT: ClassVar[str]
    """Raised whenever the file changes its shape or its meaning."""
    WHAT: ClassVar[str]
    """What it has a line for each of."""
    RECORD: ClassVar[type[Any]]
    """The named tuple that a line has after its key; JSON brings its fields back as they were."""

    def __init__(self, path: Path, afresh: bool = False) -> None:
        """Open it, or make it; ``afresh``: what it has is of no use, once the run begins.

        Raises:
            InputError: it is no journal, or of another version, or another run writes it.
        """
        self.path = path
        self.head: Head | None = None
        """None in a new one."""
        self.done: dict[Key, Record] = {}
        self._is_old = afresh
        with naming(path):
            self._file = open_own(path, os.O_RDWR | os.O_APPEND)
        try:
            self._lock()
            self._expect_own()
            if not afresh:
                self._read()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Let go of the file; one that has nothing was for nothing."""
        with unbroken():
            if not (self.done or (self._is_old and os.fstat(self._file).st_size)):
                with suppress(OSError):
                    self.path.unlink()
            os.close(self._file)

    def begin(self, head: Head) -> None:
        """Go on with the work of this run.

        Raises:
            InputError: it is another run's.
        """
        if self._is_old:
            self._cut(0)
            self._is_old = False
        if self.head is None:
            self.head = head
            layouts = dict(head.layouts)
            self._append({"format": self.FORMAT, "mark": head.fingerprint, "layouts": layouts})
        elif self.head.fingerprint != head.fingerprint:
            what = f"has {self.WHAT} of other data, options, version or device"
            raise unusable(self.path, what)

    def add(self, key: Key, record: Record) -> None:
        """Keep a record.

        Raises:
            InputError: it cannot be written.
        """
        self._append([key, *record])
        self.done[key] = record

    def _append(self, value: Any) -> None:
        body = json.dumps(value).encode()
        line = b"%08x %b\n" % (zlib.crc32(body), body)
        with unbroken(), naming(self.path):
            while line:
                line = line[os.write(self._file, line) :]

    def _read(self) -> None:
        with naming(self.path, "read"):
            content = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = 0
        for line in content.splitlines(keepends=True):
            value = _value(line)
            if value is None:
                break
            if self.head is None:
                self.head = self._head_of(value)
            else:
                key, *fields = value
                self.done[key] = self.RECORD(*fields)
            whole += len(line)
        if b"\n" in content and self.head is None:
            what = f"has no {self.WHAT} of this version of mltree, or is damaged"
            raise unusable(self.path, what)
        self._cut(whole)

    def _expect_own(self) -> None:
        """Make sure that the file begins as journals do: its lines are ours to replace."""
        with naming(self.path, "read"):
            beginning = os.pread(self._file, len(b"%08x {" % 0), 0)
        if not re.match(rb"[0-9a-f]{0,8}$|[0-9a-f]{8} \{?$", beginning):
            raise unusable(self.path, f"has no {self.WHAT}", is_ours=False)

    def _cut(self, size: int) -> None:
        with naming(self.path):
            os.ftruncate(self._file, size)

    def _head_of(self, value: Any) -> Head | None:
        """None where it is no head."""
        if not isinstance(value, dict) or value.get("format") != self.FORMAT:
            return None
        layouts = {device: (vw, rows) for device, (vw, rows) in value["layouts"].items()}
        return Head(value["mark"], layouts)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = "wait for it to end, or give another --prefix"
            raise InputError(f"{self.path} is being written by another run", hint=hint) from error
        except OSError:
            pass  # a file system without locks: whoever wrote the log has said so


class Journal(LineJournal[int, Entry]):
    """That of a bootstrap: its replicates by number, from 1."""

    FORMAT, WHAT, RECORD = "mltree replicates 2", "replicates", Entry

    @property
    def in_order(self) -> int:
        """Replicates up to the first that is missing."""
        count = 0
        while count + 1 in self.done:
            count += 1
        return count

    def newicks(self, count: int) -> str:
        """The trees of the first so many, a line each."""
        return "".join(f"{self.done[k].newick}\n" for k in range(1, count + 1))


class MemoryJournal(Journal):
    """The same without a file, for replicates that nobody goes on from."""

    def __init__(self) -> None:
        self.path = Path("memory")
        self.head = None
        self.done = {}
        self._is_old = False

    def __exit__(self, *_: object) -> None:
        """There is nothing to let go of."""

    def _append(self, value: Any) -> None:
        """Nobody reads it."""


def _value(line: bytes) -> Any:
    """What a line says; None where it is cut or damaged."""
    mark, _, body = line[:-1].partition(b" ")
    if not line.endswith(b"\n") or mark != b"%08x" % zlib.crc32(body):
        return None
    return json.loads(body)
