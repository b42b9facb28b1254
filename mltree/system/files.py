"""Files that are written whole or not at all, and errors that name them."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from mltree.system.errors import InputError
from mltree.system.process import uninterrupted

DRAFT = ".partial"
"""Ending of a file that is being written."""

TOKEN_BYTES = 8
"""Random bytes in a draft's name, so that nobody can have a link or file of that name."""


def is_there(path: str | Path) -> bool:
    """True for the name of a file or folder; False for names that no file can have."""
    return _mode(path) != 0


def is_folder(path: str | Path) -> bool:
    """True for the name of a folder; False for names that no file can have."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: str | Path) -> int:
    """The mode of a file; 0 where there is none."""
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


@contextmanager
def naming(path: Path, verb: str = "write") -> Iterator[None]:
    """Turn errors of the system into errors of one line that name the file.

    Raises:
        InputError: a full disk, no permission, a folder of that name, a name that is too long, ...
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot {verb} {path}: {reason}") from error


def unusable(path: Path, problem: str, is_ours: bool = True) -> InputError:
    """The error of a run that cannot continue from a file; ``problem``: ``is damaged``, ..."""
    hint = f"{'use --redo to start afresh' if is_ours else 'rename it'}, or another --prefix"
    return InputError(f"the file {problem}", file=str(path), hint=hint)


def draft_name(name: str, token: str = "") -> str:
    """Name of a file while it is written; the token is random by default."""
    return f"{name}.{token or secrets.token_hex(TOKEN_BYTES)}{DRAFT}"


def refuse_special(path: Path, may_be_device: bool = False) -> None:
    """Make sure that a path is a regular file, a folder or free.

    Raises: InputError: it is a pipe, a socket or, unless it may be, a device.
    """
    mode = _mode(path)
    is_fine = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (may_be_device and stat.S_ISCHR(mode))
    if mode and not is_fine:
        raise _special(path, mode)


def open_own(path: Path, flags: int) -> int:
    """Open or create a file that is written piece by piece; returns its descriptor.

    Links are not followed, except to a device such as /dev/null: the target is another's file.

    Raises:
        InputError: the name is a link's, a pipe's or a socket's.
        OSError: the file cannot be opened.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC  # a pipe that nobody reads would be waited for
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        file = _open_linked_device(path, flags)
    mode = os.fstat(file).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        os.close(file)
        raise _special(path, mode)
    return file


def _open_linked_device(path: Path, flags: int) -> int:
    """Open the device that a link leads to. Raises InputError where it leads to anything else."""
    if stat.S_ISCHR(_mode(path)):
        file = os.open(path, flags)
        if stat.S_ISCHR(os.fstat(file).st_mode):
            return file
        os.close(file)
    hint = "remove the link, or give another --prefix"
    raise InputError(f"{path} is a link, and files are not written through links", hint=hint)


def read_own(path: Path) -> bytes:
    """The content of a file that a run has left.

    Raises: InputError: it cannot be read, or is no regular file.
    """
    with naming(path, "read"):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            mode = os.fstat(file).st_mode
            if not stat.S_ISREG(mode):
                raise _special(path, mode)
            return opened.read()


def _special(path: Path, mode: int) -> InputError:
    kinds = (("pipe", stat.S_ISFIFO), ("folder", stat.S_ISDIR), ("socket", stat.S_ISSOCK))
    kind = next((name for name, is_one in kinds if is_one(mode)), "device")
    return InputError(f"{path} is a {kind}, not a file", hint="remove it, or give another name")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step: readers see the old file or the new one.

    Raises: InputError: the file cannot be written.
    """
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: all are on the disk before any takes its name.

    Raises: InputError: a file cannot be written.
    """
    drafts = {path: path.with_name(draft_name(path.name)) for path in contents}
    with uninterrupted():
        try:
            for path, draft in drafts.items():
                refuse_special(path)
                with naming(path):
                    _write_through(draft, contents[path])
            for path, draft in drafts.items():
                with naming(path):
                    draft.replace(path)
        except InputError:
            for draft in drafts.values():
                with suppress(OSError):
                    draft.unlink()
            raise


def _write_through(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


# Standard streams, which may be closed or full before a run has ended, or be a terminal.

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tabs and line feeds, and those that turn the direction of text."""


def sanitised(text: str) -> str:
    """The text with control characters escaped: names of files and tips may hold escape codes."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def discard(stream: IO[Any]) -> None:
    """Redirect a stream to the null device, with all that it still holds."""
    with suppress(OSError, ValueError):  # not a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def toml_of(content: bytes, file: str) -> dict[str, Any]:
    """The values of a TOML file. Raises: InputError where it is none."""
    if sys.version_info >= (3, 11):
        import tomllib  # novm
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise InputError("not TOML: brackets within brackets", file=file) from None
    except ValueError as error:  # tomllib's own and those of UTF-8
        raise InputError(f"not TOML: {error}", file=file) from None
