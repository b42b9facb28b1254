"""The cache folder, for files that can be made again, which nobody else can write to.

Compiled kernels run with the user's rights, so a folder that another user owns, or may write to,
is not taken, and neither is one that has no room. Then a private folder serves the run and goes
with it: kernels are compiled anew, which takes seconds.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile, gettempdir, mkdtemp

import platformdirs

from mltree.system.errors import DeviceError
from mltree.system.values import Value

LEAST_ROOM = 32 << 20
"""Bytes that a folder has to have left: the kernels of a run take 1 to 5 MB, those of every
alphabet and precision some 20."""

PROBE = 1 << 20
"""Bytes written for trial: quotas and limits on files show nowhere else. Kernels have
0.2 MB at most; it takes 1 ms."""

MEMORY_DISK = Path("/dev/shm")
"""The last resort of containers that have no other folder to write to."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Folder(Value):
    """The cache folder of this process."""

    path: Path
    notice: str | None = None
    """Reason why the folder is not the user's own; None where it is."""


class _Unfit(OSError):
    """A folder that cannot serve as a cache, and why."""


def cache_folder() -> Path:
    """The folder, which exists, belongs to the user, and is open to nobody else.

    Raises:
        DeviceError: there is none that could be.
    """
    return _found().path


def cache_notice() -> str | None:
    """Notice about the folder; None where it is the usual one."""
    return _found().notice


@cache
def _found() -> Folder:
    return find_folder()


def find_folder() -> Folder:
    """The user's cache folder where it is fit, else one for this process alone.

    Raises:
        DeviceError: there is no fit one.
    """
    reasons: list[str] = []
    for make in (_own_folder, _temporary_folder, _folder_in_memory):
        try:
            folder = make()
        except OSError as error:  # noqa: PERF203
            reasons.append(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        else:
            notice = f"{reasons[0]}: kernels are compiled for this run alone" if reasons else None
            return Folder(folder, notice)
    raise DeviceError(
        f"no folder can keep compiled kernels: {'; '.join(reasons)}",
        hint="name one of your own with XDG_CACHE_HOME; --device reference computes without",
    )


def is_trusted(folder: Path) -> bool:
    """True if a folder is the user's own and nobody else may write to it."""
    try:
        _check_owner(folder)
    except OSError:
        return False
    return True


def kept_files(kind: str, files: Mapping[str, str], mode: int = 0o600) -> Path:
    """Return a folder with these files, made once for each content.

    Raises:
        OSError: it cannot be made.
    """
    digest = hashlib.sha256(repr((sorted(files.items()), mode)).encode()).hexdigest()
    folder = cache_folder() / f"{kind}-{digest[:16]}"
    if not folder.is_dir():
        made = Path(mkdtemp(dir=folder.parent))
        try:
            for name, text in files.items():
                (made / name).write_text(text, encoding="utf-8")
                (made / name).chmod(mode)
            made.rename(folder)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            if not folder.is_dir():  # another process was not faster
                raise
    return folder


def files_below(folder: Path, *endings: str) -> set[Path]:
    """Files with such endings, however deep, while other processes make and remove some."""
    return {
        Path(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.endswith(endings)
    }


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def _own_folder() -> Path:
    """The user's cache folder, made where it is not there yet."""
    if not os.environ.get("XDG_CACHE_HOME", "").strip() and not _home().is_dir():
        raise _Unfit(f"the home folder {_home()} is not there")
    folder = Path(platformdirs.user_cache_dir("mltree", appauthor=False))
    if not folder.is_absolute():
        raise _Unfit(f"{folder} depends on where mltree is started")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    _check_owner(folder)
    folder.chmod(stat.S_IRWXU)
    _check_use(folder)
    return folder


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise _Unfit("the user has no home folder") from error


def _temporary_folder() -> Path:
    return _folder_of_process(Path(gettempdir()))


def _folder_in_memory() -> Path:
    return _folder_of_process(MEMORY_DISK)


def _folder_of_process(parent: Path) -> Path:
    """A private folder that is gone when the process ends."""
    made = Path(mkdtemp(prefix="mltree-", dir=parent)).absolute()
    folder = made / "mltree"
    try:
        folder.mkdir(mode=stat.S_IRWXU)
        _check_use(folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    atexit.register(_remove, made, os.getpid())
    return folder


def _remove(folder: Path, process: int) -> None:
    """Remove a folder at the end of the process that made it, not of one forked from it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _check_owner(folder: Path) -> None:
    """Make sure that nobody else can write to a folder, or put another in its place."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _Unfit(f"{folder} is a link or a file")
    if found.st_uid != os.geteuid():
        raise _Unfit(f"{folder} belongs to another user")
    if found.st_mode & _OTHERS_WRITE:
        raise _Unfit(f"others may write to {folder}")
    for above in folder.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _Unfit(f"everybody may replace what is in {above}")


def _check_use(folder: Path) -> None:
    """Make sure that kernels can be written to a folder, and run."""
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_NOEXEC:
        raise _Unfit(f"{folder} is on a disk whose programs may not run (noexec)")
    left = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and left < LEAST_ROOM:
        raise _Unfit(f"{folder} has {left / 2**20:.0f} MiB left, of {LEAST_ROOM >> 20} needed")
    with TemporaryFile(dir=folder, buffering=0) as file:
        if file.write(bytes(PROBE)) < PROBE:
            raise _Unfit(f"{folder} has no room for {PROBE >> 20} MiB")
