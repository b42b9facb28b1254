"""The events of a run as JSON lines in a file, from which a report is drawn later.

Nothing depends on it: where it cannot be written, the run goes on without it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mltree.errors import InputError
from mltree.files import naming, open_own
from mltree.stopping import unbroken

__all__ = ["Record", "expect_record"]

_BEGINNING = b'{"event": '
"""First words of every record."""


def expect_record(path: Path) -> None:
    """Make sure that events may be written to a file: there is none, or it has events.

    Raises:
        InputError: it is somebody's, or a link or a pipe.
    """
    with naming(path), suppress(FileNotFoundError):
        path.lstat()
        file = open_own(path, os.O_RDWR)
        try:
            beginning = os.pread(file, len(_BEGINNING), 0)
        finally:
            os.close(file)
        if not _BEGINNING.startswith(beginning):
            hint = "rename it, or give another --prefix"
            raise InputError(f"{path} has no events of mltree's", hint=hint)


class Record:
    """Lines that are kept until there is a file for them, and then written as they come."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._path: Path | None = None

    def begin(self, path: Path, append: bool) -> None:
        """Write to a file from now on, after what is there already or instead of it."""
        self._path = path
        with unbroken():
            try:
                os.close(open_own(path, os.O_WRONLY | (0 if append else os.O_TRUNC)))
            except (OSError, InputError):
                self._give_up()
        self._write()

    def write(self, line: str) -> None:
        """Add an event, as :func:`mltree.report.progress.as_json` has it."""
        self._pending.append(line + "\n")
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        with unbroken():
            try:
                with os.fdopen(open_own(self._path, os.O_WRONLY | os.O_APPEND), "a") as file:
                    file.writelines(self._pending)
            except (OSError, InputError):
                self._give_up()
        self._pending.clear()

    def _give_up(self) -> None:
        """Half a line is no line to a reader, and the rest is for nobody."""
        self._path = None
