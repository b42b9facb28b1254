"""The files that a run leaves behind: named by a prefix, never overwritten unasked, never half."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from mltree.alignment.source import STDIN
from mltree.errors import InputError
from mltree.files import DRAFT, draft_name, naming, open_own, refuse_special, write_together
from mltree.stopping import before_leaving, no_longer, unbroken
from mltree.values import Value

__all__ = ["Outputs", "claim_files"]

PIPED = "stdin"
"""What stands for an alignment's path where it has none."""

LOCK = "lock"
"""Kind of the file whose bytes, one a kind, are locked while files of these kinds are written: a
search and an evaluation under one prefix leave each other alone, two commands for one file do not.
It is empty, and there only as long as a command runs."""

EVERYBODYS = 0
"""The byte of the lock's file that all who have it open share."""


class Outputs(Value):
    """The file names of one run."""

    folder: Path
    name: str

    @classmethod
    def of(cls, prefix: str | None, alignment: str) -> Outputs:
        """The outputs for a prefix, which may hold a folder: ``results/frogs``.

        Without one they lie beside the alignment, named after it; a prefix that is only a folder
        (``results/``) takes that name as well, and the folder of loci ``.`` has its own. What comes
        from standard input is named ``stdin``.
        """
        alignment = PIPED if alignment == STDIN else alignment
        folder, name = os.path.split(prefix or alignment)
        if name in {"", ".", ".."}:
            path = Path(alignment)
            own = path.resolve().name if path.name in {"", ".."} else path.name
            return cls(Path(folder, name), own)
        return cls(Path(folder), name)

    def path(self, kind: str) -> Path:
        """``<prefix>.mltree.<kind>``, for example of kind ``bestTree``."""
        return self.folder / f"{self.name}.mltree.{kind}"

    def check(self, kinds: Iterable[str], inputs: Iterable[str] = ()) -> None:
        """Make sure, before a run, that it can write its files, and that none is one it reads.

        ``inputs``: what may be files that it reads.

        Raises:
            InputError: their folder cannot be written to, or a name cannot be a file's.
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

    def claim(self, kinds: Iterable[str], redo: bool) -> None:
        """Make sure, before a run, that it overwrites no results unasked.

        Raises:
            InputError: a file exists and ``redo`` is off.
        """
        found = [path for kind in kinds if _is_taken(path := self.path(kind))]
        if found and not redo:
            raise InputError(
                f"{found[0]} exists already",
                hint="--redo overwrites the files of an earlier run, --prefix writes others",
            )
        for path in found:
            refuse_special(path)

    @contextmanager
    def held(self, kinds: Iterable[str]) -> Iterator[None]:
        """Keep every other command from files of these kinds, on any host, while this one lasts.

        What a killed command has left half-written of them is removed. Where the file system has
        no locks there are none.

        Raises:
            InputError: another command writes one of them.
        """
        kinds = list(kinds)
        file = self._open_lock()
        release = partial(_release, file, self.path(LOCK))
        before_leaving(release)
        try:
            for kind in kinds:
                self._lock(file, kind)
            self._sweep(kinds)
            yield
        finally:
            no_longer(release)
            release()
            os.close(file)

    @contextmanager
    def taken(self, kinds: Sequence[str], redo: bool, inputs: Iterable[str] = ()) -> Iterator[None]:
        """Check, hold and claim the files of these kinds while a command lasts.

        Raises:
            InputError: as `check`, `held` and `claim`.
        """
        self.check(kinds, inputs)
        with self.held(kinds):
            self.claim(kinds, redo)
            yield

    def _open_lock(self) -> int:
        """The lock's file: the one of that name, since its last holder may have removed it."""
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
        """Write files of these kinds, all or none; returns their paths.

        Raises:
            InputError: they cannot be written.
        """
        contents = {self.path(kind): text.encode() for kind, text in texts.items()}
        write_together(contents)
        return list(contents)

    def replace(self, texts: Mapping[str, str], stale: Iterable[str]) -> list[Path]:
        """Write files as `write` does, and delete those that are of no use beside them."""
        with unbroken():
            paths = self.write(texts)
            for kind in stale:
                self.remove(kind)
        return paths

    def holds(self, kind: str, text: str) -> bool:
        """True if a file has this text already."""
        try:
            return self.path(kind).read_bytes() == text.encode()
        except OSError:
            return False

    def is_among(self, kind: str, names: Iterable[str]) -> bool:
        """True if a file is one of those of these names; a name may lead nowhere."""
        return _identity(self.path(kind)) in {_identity(Path(name)) for name in names if name}

    def remove(self, kind: str) -> None:
        """Delete a file, where there is one.

        Raises:
            InputError: it cannot be deleted.
        """
        path = self.path(kind)
        with naming(path, "remove"):
            path.unlink(missing_ok=True)


def _byte_of(kind: str) -> int:
    """The byte of the lock's file that stands for a kind."""
    return EVERYBODYS + 1 + zlib.crc32(kind.encode())


def _release(file: int, path: Path) -> None:
    """Let go of a lock's file, and remove it where nobody else has it and it is ours."""
    with suppress(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # all of it: nobody else has any
        if os.fstat(file).st_size == 0 and os.path.samestat(os.fstat(file), path.stat()):
            path.unlink()
    with suppress(OSError):
        fcntl.lockf(file, fcntl.LOCK_UN)


def claim_files(paths: Sequence[Path], inputs: Iterable[str], redo: bool) -> None:
    """Make sure, before any work, that files of the user's own names can be written.

    ``inputs``: what may be files that the command reads.

    Raises:
        InputError: one exists and ``redo`` is off, it cannot be written there, two are the same
            file, or it is one that is read.
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
            raise InputError(f"{path} exists already", hint="--redo overwrites it")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write to {path.parent}", hint="write to another folder")


def refuse_inputs(paths: Sequence[Path], inputs: Iterable[str], hint: str) -> None:
    """Make sure that files to be written are different ones, and none is read.

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
    """Equal for names of one file: device and inode, or where there is no file its whole path."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in str(path) else str(path)
    return found.st_dev, found.st_ino


def _is_taken(path: Path) -> bool:
    """True if anything has that name, a broken link included."""
    return os.path.lexists(path)


def _is_folder(path: Path) -> bool:
    """Whether there is one; unlike Path.is_dir, it raises what else the system says."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
