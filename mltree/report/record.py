"""The events of a run as JSON lines in a file, from which a report is drawn later.

Nothing depends on it: where it cannot be written, the run goes on without it.
"""

from __future__ import annotations

from pathlib import Path

from mltree.stopping import unbroken

__all__ = ["Record"]


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
                path.open("a" if append else "w").close()
            except OSError:
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
                with self._path.open("a") as file:
                    file.writelines(self._pending)
            except OSError:
                self._give_up()
        self._pending.clear()

    def _give_up(self) -> None:
        """Half a line is no line to a reader, and the rest is for nobody."""
        self._path = None
