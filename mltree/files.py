"""Files that are written whole or not at all, and errors that name them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from mltree.errors import InputError
from mltree.stopping import unbroken

__all__ = ["DRAFT", "is_folder", "is_there", "naming", "unusable", "write_together", "write_whole"]

DRAFT = ".partial"
"""Ending of a file that is being written."""


def is_there(path: str | Path) -> bool:
    """Whether a name leads anywhere; not one that no file can have."""
    return _mode(path) != 0


def is_folder(path: str | Path) -> bool:
    """Whether a name is a folder's; not one that no file can have."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: str | Path) -> int:
    """What the system says of a file; 0 of none."""
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


@contextmanager
def naming(path: Path, verb: str = "write") -> Iterator[None]:
    """What the system refuses is an error of one line that names the file.

    Raises:
        InputError: a full disk, no permission, a folder of that name, a name that is too long, ...
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot {verb} {path}: {reason}") from error


def unusable(path: Path, what: str) -> InputError:
    """The error of a run that cannot go on from a file, which ``what``: is damaged, ..."""
    hint = "use --redo to start afresh, or another --prefix"
    return InputError(f"the file {what}", file=str(path), hint=hint)


def write_whole(path: Path, content: bytes) -> None:
    """Put bytes into a file in one step: whoever looks sees the old file or the new one.

    Raises:
        InputError: the file cannot be written.
    """
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: none takes its name before all are safely on the disk.

    Raises:
        InputError: a file cannot be written.
    """
    drafts = {path: path.with_name(path.name + DRAFT) for path in contents}
    with unbroken():
        try:
            for path, draft in drafts.items():
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
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
