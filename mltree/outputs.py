"""The files that a run leaves behind: named by a prefix, never overwritten unasked, never half."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mltree.errors import InputError

__all__ = ["Outputs", "write_atomically"]


@dataclass(frozen=True)
class Outputs:
    """The file names of one run; ``prefix`` may hold a folder: ``results/frogs``."""

    prefix: Path

    @classmethod
    def of(cls, prefix: str | None, alignment: str) -> Outputs:
        """The outputs for a prefix; without one they lie beside the alignment, named after it."""
        return cls(Path(prefix or alignment))

    def path(self, kind: str) -> Path:
        """``<prefix>.mltree.<kind>``, for example of kind ``bestTree``."""
        return self.prefix.with_name(f"{self.prefix.name}.mltree.{kind}")

    def claim(self, kinds: Sequence[str], redo: bool) -> None:
        """Make sure, before the run, that its files can be written.

        Raises:
            InputError: a file exists and ``redo`` is off, or its folder cannot be written to.
        """
        folder = self.prefix.parent
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}", hint="make it, or change --prefix")
        if not os.access(folder, os.W_OK):
            raise InputError(f"cannot write to {folder}", hint="give --prefix another folder")
        found = [path for kind in kinds if (path := self.path(kind)).exists()]
        if found and not redo:
            raise InputError(
                f"{found[0]} exists already",
                hint="--redo overwrites the files of an earlier run, --prefix writes others",
            )

    def write(self, kind: str, text: str) -> Path:
        """Write one file whole; returns its path."""
        path = self.path(kind)
        write_atomically(path, text)
        return path


def write_atomically(path: Path, text: str) -> None:
    """Put text into a file in one step: whoever looks sees the old file or the new one.

    Raises:
        InputError: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}") from error
