"""The files that a run leaves behind: named by a prefix, never overwritten unasked, never half."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from mltree.alignment.source import STDIN
from mltree.errors import InputError
from mltree.files import DRAFT, naming, write_together
from mltree.values import Value

__all__ = ["Outputs", "claim_file"]

PIPED = "stdin"
"""What stands for an alignment's path where it has none."""


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

    def check(self, kinds: Sequence[str]) -> None:
        """Make sure, before a run, that it can write its files.

        Raises:
            InputError: their folder cannot be written to, or a name cannot be a file's.
        """
        with naming(self.folder):
            if not _is_folder(self.folder):
                hint = "make it, or change --prefix"
                raise InputError(f"there is no folder {self.folder}", hint=hint)
        if not os.access(self.folder, os.W_OK):
            raise InputError(f"cannot write to {self.folder}", hint="give --prefix another folder")
        for path in map(self.path, kinds):
            with naming(path):
                for own in (path, path.with_name(path.name + DRAFT)):
                    if (what := _obstacle(own)) is not None:
                        hint = "remove it, or change --prefix"
                        raise InputError(f"{own} is {what}", hint=hint)

    def claim(self, kinds: Sequence[str], redo: bool) -> None:
        """Make sure, before a run, that it overwrites no results unasked.

        Raises:
            InputError: a file exists and ``redo`` is off.
        """
        found = [path for kind in kinds if (path := self.path(kind)).exists()]
        if found and not redo:
            raise InputError(
                f"{found[0]} exists already",
                hint="--redo overwrites the files of an earlier run, --prefix writes others",
            )

    def write(self, texts: Mapping[str, str]) -> list[Path]:
        """Write files of these kinds, all or none; returns their paths.

        Raises:
            InputError: they cannot be written.
        """
        contents = {self.path(kind): text.encode() for kind, text in texts.items()}
        write_together(contents)
        return list(contents)

    def remove(self, kind: str) -> None:
        """Delete a file, where there is one.

        Raises:
            InputError: it cannot be deleted.
        """
        path = self.path(kind)
        with naming(path, "remove"):
            path.unlink(missing_ok=True)


def claim_file(path: Path, redo: bool) -> None:
    """Make sure, before any work, that a file of the user's own name can be written.

    Raises:
        InputError: it exists and ``redo`` is off, or it cannot be written there.
    """
    with naming(path):
        if not _is_folder(path.parent):
            raise InputError(f"there is no folder {path.parent}", hint="make it, or change -o")
        if _is_folder(path):
            raise InputError(f"{path} is a folder", hint="name a file in it")
        if path.exists() and not redo:
            raise InputError(f"{path} exists already", hint="--redo overwrites it")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write to {path.parent}", hint="write to another folder")


def _is_folder(path: Path) -> bool:
    """Whether there is one; unlike Path.is_dir, it raises what else the system says."""
    return stat.S_ISDIR(_mode(path))


def _obstacle(path: Path) -> str | None:
    """What has a file's name and cannot be written, or hangs whoever reads it."""
    mode = _mode(path)
    found = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((what for is_such, what in found if is_such(mode)), None)


def _mode(path: Path) -> int:
    """What the system says of a file; 0 where there is none."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
