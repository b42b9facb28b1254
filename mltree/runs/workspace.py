"""The workspace of a run: files of its prefix, their locks, its log, journals to resume from.

results     ``bestTree``, ``support``, ...: written together, whole or not at all
log         locked while the run lasts; its lines are all that was printed
lock        empty, there while a command runs; a byte locked for each kind of file being written
checkpoint  state of a search (:mod:`mltree.treesearch.checkpoint`), gone when the search has ended
journals    ``replicates``, ``loci``: finished work, line by line
events      record of all events (:mod:`mltree.report.record`)
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from mltree.data.source import STDIN
from mltree.system.errors import InputError
from mltree.system.files import (
    DRAFT,
    draft_name,
    naming,
    open_own,
    refuse_special,
    sanitised,
    unusable,
    write_together,
)
from mltree.system.process import before_exit, cancel_before_exit, uninterrupted
from mltree.system.values import Value

# The files of a run: named by a prefix, never overwritten unasked, never half-written.

PIPED = "stdin"
"""Name of an alignment from standard input."""

LOCK = "lock"
"""Kind of the lock file: a byte a kind is locked while files of these kinds are written. A search
and an evaluation under one prefix leave each other alone, two commands that write one file do not.
"""

EVERYBODYS = 0
"""Byte of the lock file that all its users lock, shared."""


class Workspace(Value):
    """The files of one run: ``<folder>/<name>.mltree.<kind>``."""

    folder: Path
    name: str

    @classmethod
    def of(cls, prefix: str | None, alignment: str) -> Workspace:
        """The workspace of a prefix, which may hold a folder: ``results/frogs``.

        Without a prefix the files lie beside the alignment and are named after it; a prefix that is
        only a folder (``results/``) takes that name as well, and the folder of loci ``.`` has its
        own. Standard input is named ``stdin``.
        """
        alignment = PIPED if alignment == STDIN else alignment
        folder, name = os.path.split(prefix or alignment)
        if name in {"", ".", ".."}:
            path = Path(alignment)
            file_name = path.resolve().name if path.name in {"", ".."} else path.name
            return cls(Path(folder, name), file_name)
        return cls(Path(folder), name)

    def path(self, kind: str) -> Path:
        """Path of a kind of file, such as ``bestTree``: ``<prefix>.mltree.<kind>``."""
        return self.folder / f"{self.name}.mltree.{kind}"

    def check(self, kinds: Iterable[str], inputs: Iterable[str] = ()) -> None:
        """Make sure, before a run, that it can write its files and overwrites none that it reads.

        ``inputs``: names of possible input files.

        Raises:
            InputError: the folder cannot be written to, or a name cannot be a file's.
        """
        with naming(self.folder):
            if not _is_folder(self.folder):
                hint = "make it, or change --prefix"
                raise InputError(f"there is no folder {self.folder}", hint=hint)
        if not os.access(self.folder, os.W_OK):
            raise InputError(f"cannot write to {self.folder}", hint="give --prefix another folder")
        paths = list(dict.fromkeys(map(self.path, kinds)))
        for path in paths:
            with naming(path):
                _is_folder(path.with_name(draft_name(path.name)))  # the longest name, or it raises
                if _is_folder(path):
                    raise InputError(f"{path} is a folder", hint="remove it, or change --prefix")
            refuse_special(path, may_be_device=True)  # a log may go to /dev/null
        refuse_inputs(paths, inputs, "change --prefix")

    def claim(self, kinds: Iterable[str], redo: bool, instead: str = "") -> None:
        """Make sure, before a run, that it overwrites no results unasked.

        ``instead``: command that makes use of the results.

        Raises:
            InputError: a file exists and ``redo`` is off.
        """
        existing = [path for kind in kinds if _is_taken(path := self.path(kind))]
        if existing and not redo:
            hint = "--redo overwrites the files of an earlier run, --prefix writes others"
            hint += f"; to add to them: {instead}" if instead else ""
            raise InputError(f"{existing[0]} already exists", hint=hint)
        for path in existing:
            refuse_special(path)

    @contextmanager
    def held(self, kinds: Iterable[str]) -> Iterator[None]:
        """Lock files of these kinds against every other command, on any host.

        Removes drafts that a killed command has left of them. A file system without locks has none.

        Raises:
            InputError: another command writes one of them.
        """
        kinds = list(kinds)
        with uninterrupted():  # a signal in between would leave the file
            file = self._open_lock()
            release = partial(_release, file, self.path(LOCK))
            before_exit(release)
        try:
            for kind in kinds:
                self._lock(file, kind)
            self._sweep(kinds)
            yield
        finally:
            cancel_before_exit(release)
            release()
            os.close(file)

    @contextmanager
    def taken(self, kinds: Sequence[str], redo: bool, inputs: Iterable[str] = ()) -> Iterator[None]:
        """Check, lock and claim files of these kinds while a command lasts.

        Raises:
            InputError: as :meth:`check`, :meth:`held` and :meth:`claim`.
        """
        self.check(kinds, inputs)
        with self.held(kinds):
            self.claim(kinds, redo)
            yield

    def _open_lock(self) -> int:
        """Open the lock file: the one of that name, since its last holder may have removed it."""
        path = self.path(LOCK)
        with naming(path):
            while True:
                file = open_own(path, os.O_RDWR)
                try:
                    fcntl.lockf(file, fcntl.LOCK_SH, 1, EVERYBODYS)  # not while it is removed
                except OSError:
                    return file  # a file system without locks
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file), path.stat()):
                        return file
                os.close(file)

    def _lock(self, file: int, kind: str) -> None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte_of(kind))
        except (BlockingIOError, PermissionError):
            hint = "wait for it to end, or give another --prefix"
            message = f"{self.path(kind)} is being written by another run"
            raise InputError(message, hint=hint) from None
        except OSError:
            pass  # a file system without locks

    def _sweep(self, kinds: Iterable[str]) -> None:
        """Remove the drafts of commands that were killed while they wrote files of these kinds."""
        names = "|".join(re.escape(self.path(kind).name) for kind in kinds)
        pattern = re.compile(rf"({names})\.[0-9a-f]+{re.escape(DRAFT)}")
        with suppress(OSError):
            for path in self.folder.iterdir():
                if pattern.fullmatch(path.name):
                    path.unlink()

    def write(self, texts: Mapping[str, str]) -> list[Path]:
        """Write files of these kinds, all or none, and return their paths.

        Raises:
            InputError: they cannot be written.
        """
        contents = {self.path(kind): text.encode() for kind, text in texts.items()}
        write_together(contents)
        return list(contents)

    def replace(self, texts: Mapping[str, str], stale: Iterable[str]) -> list[Path]:
        """Write files as :meth:`write` does, and delete those that are obsolete beside them."""
        with uninterrupted():
            paths = self.write(texts)
            for kind in stale:
                self.remove(kind)
        return paths

    def holds(self, kind: str, text: str) -> bool:
        """Tell if a file has this text already."""
        try:
            return self.path(kind).read_bytes() == text.encode()
        except OSError:
            return False

    def is_among(self, kind: str, names: Iterable[str]) -> bool:
        """Tell if a file is one of those named; a name may lead nowhere."""
        return _identity(self.path(kind)) in {_identity(Path(name)) for name in names if name}

    def remove(self, kind: str) -> None:
        """Delete a file, if there is one.

        Raises:
            InputError: it cannot be deleted.
        """
        path = self.path(kind)
        with naming(path, "remove"):
            path.unlink(missing_ok=True)


def _byte_of(kind: str) -> int:
    """Byte of the lock file for a kind."""
    return EVERYBODYS + 1 + zlib.crc32(kind.encode())


def _release(file: int, path: Path) -> None:
    """Unlock the lock file, and remove it if nobody else has it open and it is ours."""
    with suppress(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # all of it: nobody else has any
        if os.fstat(file).st_size == 0 and os.path.samestat(os.fstat(file), path.stat()):
            path.unlink()
    with suppress(OSError):
        fcntl.lockf(file, fcntl.LOCK_UN)


# Files of the user's own names (-o).


def claim_files(paths: Sequence[Path], inputs: Iterable[str], redo: bool) -> None:
    """Make sure, before any work, that files named by the user can be written.

    ``inputs``: names of possible input files.

    Raises:
        InputError: a file exists and ``redo`` is off, cannot be written, is named twice, or is an
            input.
    """
    refuse_inputs(paths, inputs, "change -o")
    for path in paths:
        _claim_file(path, redo)


def _claim_file(path: Path, redo: bool) -> None:
    with naming(path):
        if not _is_folder(path.parent):
            raise InputError(f"there is no folder {path.parent}", hint="make it, or change -o")
        if _is_folder(path):
            raise InputError(f"{path} is a folder", hint="name a file in it")
        refuse_special(path)
        if _is_taken(path) and not redo:
            raise InputError(f"{path} already exists", hint="--redo overwrites it")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write to {path.parent}", hint="write to another folder")


def refuse_inputs(paths: Sequence[Path], inputs: Iterable[str], hint: str) -> None:
    """Make sure that files to be written are distinct, and none is an input.

    Raises:
        InputError: two names are one file's.
    """
    written: dict[object, Path] = {}
    for path in paths:
        if written.setdefault(_identity(path), path) is not path:
            raise InputError(f"two outputs would be one file: {path}", hint="name another")
    for name in inputs:
        output = written.get(_identity(Path(name))) if name and name != STDIN else None
        if output is not None:
            hint = f"{hint}, or give a copy of the input"
            raise InputError(f"{output} is read, and would be overwritten", hint=hint)


def _identity(path: Path) -> object:
    """Key equal for names of one file: device and inode, or the real path if there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in str(path) else str(path)
    return status.st_dev, status.st_ino


def _is_taken(path: Path) -> bool:
    """Tell if anything has that name, a broken link included."""
    return os.path.lexists(path)


def _is_folder(path: Path) -> bool:
    """Tell if a path is a folder; raises other system errors, unlike Path.is_dir."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


# The log, which is the lock of its prefix as well: ``flock``'s, which ends with its process,
# however that ends, so that no lock is ever stale and no lock file left over. NFS passes it on to
# the server (Linux since 2.6.12), and so do other cluster file systems, if they have locks at all.

_OWNER = re.compile(rb"^process (\d+ on .*) writes this log from ", re.MULTILINE)

_BEGINNING = b"process "
"""First words of every log."""


def _encoded(text: str) -> bytes:
    """Bytes of a text without control characters."""
    return sanitised(text).encode(errors="backslashreplace")


class RunLog:
    """A log file, locked from the start, that stays unchanged unless the run begins."""

    def __init__(self, path: Path) -> None:
        """Open and lock the file.

        Raises:
            InputError: another run writes the file, it is not an mltree log, or cannot be written.
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
        """Write from now on, behind the content or instead of it; ``head``: first lines.

        Raises:
            InputError: it cannot be written.
        """
        with uninterrupted():
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
        with uninterrupted():
            self._pending += _encoded(text)
            while self._has_begun and self._pending:
                with naming(self.path):
                    sent = os.write(self._file, self._pending)
                self._pending = self._pending[sent:]

    def close(self, last: str = "") -> None:
        """Close the file after a last line; a run that never began takes back what it wrote."""
        with uninterrupted():
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
        """Make sure that the file is a log of mltree's, or empty."""
        with naming(self.path, "read"):
            beginning = os.pread(self._file, len(_BEGINNING), 0) if self._is_regular else b""
        if not _BEGINNING.startswith(beginning):
            hint = "rename it, or give another --prefix"
            raise InputError(f"{self.path} is not an mltree log", hint=hint)

    def _sign(self) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f"process {os.getpid()} on {socket.gethostname()} writes this log from {when}\n"
        with naming(self.path):
            os.write(self._file, line.encode())

    def _open(self) -> int:
        """Open and lock the file of that name, again if a run has removed the one opened."""
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
    """Process that signed a log last."""
    with os.fdopen(file, "rb", closefd=False) as log:
        signatures = _OWNER.findall(log.read())
    return f"process {signatures[-1].decode()}" if signatures else "another run"


# Journals: a line for each finished replicate or locus, written as soon as it ends, so that a kill
# at any time loses none. A line begins with the CRC-32 of its rest: readers drop a line that a kill
# has cut. The first line identifies the run; no other run's records are ever added.

AnyJournal = TypeVar("AnyJournal", bound="LineJournal[Any, Any]")
Key = TypeVar("Key", int, str)
Record = TypeVar("Record", bound=tuple[Any, ...])


class Entry(NamedTuple):
    """A finished replicate."""

    lnl: float
    """Natural log, under the replicate's weights."""
    newick: str
    """One line, without its end."""


class Head(Value):
    """First line of a journal: the run that it belongs to."""

    fingerprint: str
    """Hash of everything that decides the results
    (:func:`mltree.treesearch.checkpoint.fingerprint`)."""
    layouts: Mapping[str, tuple[int, int]]
    """VW and rows of each device's layout: resumed work goes on with the same bits."""


class LineJournal(Generic[Key, Record]):
    """A locked file of records, one a line, by their keys."""

    FORMAT: ClassVar[str]
    """Name of the format, changed whenever the file changes its shape or its meaning."""
    WHAT: ClassVar[str]
    """Plural noun for the records."""
    RECORD: ClassVar[type[Any]]
    """Named tuple that a line has behind its key; JSON restores its fields."""

    def __init__(self, path: Path, afresh: bool = False) -> None:
        """Open the file, or make it; ``afresh``: replace its content once the run begins.

        Raises:
            InputError: the file is no journal, of another version, or another run writes it.
        """
        self.path = path
        self.head: Head | None = None
        """None in a new journal."""
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

    def __enter__(self: AnyJournal) -> AnyJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close the file; remove it if it has no record."""
        with uninterrupted():
            if not (self.done or (self._is_old and os.fstat(self._file).st_size)):
                with suppress(OSError):
                    self.path.unlink()
            os.close(self._file)

    def begin(self, head: Head) -> None:
        """Go on with the work of this run.

        Raises:
            InputError: the journal is another run's.
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
        """Write a record.

        Raises:
            InputError: it cannot be written.
        """
        self._append([key, *record])
        self.done[key] = record

    def _append(self, value: Any) -> None:
        body = json.dumps(value).encode()
        line = b"%08x %b\n" % (zlib.crc32(body), body)
        with uninterrupted(), naming(self.path):
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
        """Make sure that the file begins as journals do, or is empty."""
        with naming(self.path, "read"):
            beginning = os.pread(self._file, len(b"%08x {" % 0), 0)
        if not re.match(rb"[0-9a-f]{0,8}$|[0-9a-f]{8} \{?$", beginning):
            raise unusable(self.path, f"has no {self.WHAT}", is_ours=False)

    def _cut(self, size: int) -> None:
        with naming(self.path):
            os.ftruncate(self._file, size)

    def _head_of(self, value: Any) -> Head | None:
        """The journal's head; None if the line is none."""
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
    """Journal of a bootstrap: replicates by number, from 1."""

    FORMAT, WHAT, RECORD = "mltree replicates 2", "replicates", Entry

    @property
    def in_order(self) -> int:
        """Number of replicates before the first missing one."""
        count = 0
        while count + 1 in self.done:
            count += 1
        return count

    def newicks(self, count: int) -> str:
        """The first ``count`` trees, a line each."""
        return "".join(f"{self.done[k].newick}\n" for k in range(1, count + 1))


class MemoryJournal(Journal):
    """A journal without a file, for replicates that are not resumed."""

    def __init__(self) -> None:
        self.path = Path("memory")
        self.head = None
        self.done = {}
        self._is_old = False

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def _append(self, value: Any) -> None:
        """Do nothing."""


def _value(line: bytes) -> Any:
    """Value of a line; None if it is cut or damaged."""
    mark, _, body = line[:-1].partition(b" ")
    if not line.endswith(b"\n") or mark != b"%08x" % zlib.crc32(body):
        return None
    return json.loads(body)
