"""The log of a run, which is its lock as well: who holds the log has the prefix.

The lock is ``flock``'s: it ends with its process, however that ends, so that none is ever stale,
and there is no file of its own to be left over. NFS passes it on to the server (Linux has done so
since 2.6.12), and so do other file systems for clusters, where they have locks at all.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import time
from pathlib import Path
from types import TracebackType

from mltree.errors import InputError
from mltree.files import naming, open_own
from mltree.stopping import unbroken
from mltree.streams import harmless

__all__ = ["RunLog"]

_OWNER = re.compile(rb"^process (\d+ on .*) writes this log from ", re.MULTILINE)

_BEGINNING = b"process "
"""First words of every log."""


def _encoded(text: str) -> bytes:
    """What a terminal may be shown too."""
    return harmless(text).encode(errors="backslashreplace")


class RunLog:
    """A log file, locked from the start, that is left as it was unless the run begins."""

    def __init__(self, path: Path) -> None:
        """Lock the file.

        Raises:
            InputError: another run writes it, it is no log of mltree's, or it cannot be written.
        """
        self.path = path
        self.is_locked = True
        """False where the file system has no locks."""
        self._pending = b""
        self._has_begun = False
        with naming(path):
            self._file = self._open()
        status = os.fstat(self._file)
        self._is_regular, self._size = stat.S_ISREG(status.st_mode), status.st_size
        try:
            self._expect_own()
            self._sign()
        except InputError:
            self.close()
            raise

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close the log; an error is its last line."""
        self.close("" if error is None else f"stopped: {error or type(error).__name__}\n")

    def begin(self, append: bool, head: str = "") -> None:
        """Write from now on, after what is there already or instead of it; ``head``: lines first.

        Raises:
            InputError: it cannot be written.
        """
        with unbroken():
            if not append:
                self._cut(0)
                self._sign()
            self._pending = _encoded(head) + self._pending
            self._has_begun = True
            self.write("")

    def write(self, text: str) -> None:
        """Add lines; kept until the run begins.

        Raises:
            InputError: they cannot be written now; they are kept, and go out with the next.
        """
        with unbroken():
            self._pending += _encoded(text)
            while self._has_begun and self._pending:
                with naming(self.path):
                    sent = os.write(self._file, self._pending)
                self._pending = self._pending[sent:]

    def close(self, last: str = "") -> None:
        """Let go of the file after a last line; what a run that never began wrote is taken back."""
        with unbroken():
            try:
                if self._has_begun:
                    self.write(last)
                else:
                    self._take_back()
            except (InputError, OSError):
                pass  # a full disk; the user knows, and has the rest on the terminal
            finally:
                os.close(self._file)

    def _expect_own(self) -> None:
        """Make sure that the file is a log, whose lines are ours to replace."""
        with naming(self.path, "read"):
            beginning = os.pread(self._file, len(_BEGINNING), 0) if self._is_regular else b""
        if not _BEGINNING.startswith(beginning):
            hint = "rename it, or give another --prefix"
            raise InputError(f"{self.path} is no log of mltree's", hint=hint)

    def _sign(self) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f"process {os.getpid()} on {socket.gethostname()} writes this log from {when}\n"
        with naming(self.path):
            os.write(self._file, line.encode())

    def _open(self) -> int:
        """The file, locked: the one of that name, since a run may have removed the one opened."""
        while True:
            file = open_own(self.path, os.O_RDWR | os.O_APPEND)
            try:
                self._lock(file)
                if os.path.samestat(os.fstat(file), self.path.stat()):
                    return file
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(file)
                raise
            os.close(file)

    def _lock(self, file: int) -> None:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return  # /dev/null, say: nobody's own
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{self.path} is being written by {_owner(file)}",
                hint="wait for it to end, or give another --prefix",
            ) from error
        except OSError:
            self.is_locked = False

    def _take_back(self) -> None:
        if self._is_regular and self._size == 0:
            self.path.unlink()
        self._cut(self._size)

    def _cut(self, size: int) -> None:
        if self._is_regular:
            os.ftruncate(self._file, size)


def _owner(file: int) -> str:
    """Whoever signed a log last."""
    with os.fdopen(file, "rb", closefd=False) as log:
        signatures = _OWNER.findall(log.read())
    return f"process {signatures[-1].decode()}" if signatures else "another run"
