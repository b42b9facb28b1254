"""Builds of the workers: sources, options, and a cache that is never stale."""

from __future__ import annotations

import atexit
import hashlib
import math
import os
import secrets
import shutil
import stat
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile, gettempdir, mkdtemp
from typing import cast

import platformdirs
import pyopencl as cl

from mltree.device import check_process
from mltree.device.layout import FEW_HELD, Layout
from mltree.device.pocl.linker import POCL_FOLDER, SUMS, has_sum, keep_sum
from mltree.program.ops.operation import kernels
from mltree.program.program import Program
from mltree.system.errors import DeviceError, InputError
from mltree.system.files import write_whole
from mltree.system.values import Value

# The cache folder. Compiled kernels run with the user's rights, so a folder that another user owns,
# or may write to, is not taken, nor one that has no room. Then a private folder serves the run and
# goes with it: kernels are compiled anew, which takes seconds.

LEAST_ROOM = 32 << 20
"""Bytes that a folder has to have left: a run's kernels take 1 to 5 MB, all that there are 20."""

PROBE = 1 << 20
"""Bytes written for trial, in 1 ms: quotas show nowhere else. Kernels have 0.2 MB at most."""

MEMORY_DISK = Path("/dev/shm")
"""The last resort of containers that have no other folder to write to."""


class Folder(Value):
    """The cache folder of this process."""

    path: Path
    notice: str | None = None
    """Reason why the folder is not the user's own; None where it is."""


class _Unfit(OSError):
    """Reason why a folder cannot serve as a cache."""


def cache_folder() -> Path:
    """The folder, which exists, belongs to the user, and is open to nobody else.

    Raises:
        DeviceError: there is none that could be.
    """
    return _folder_of_run().path


def cache_notice() -> str | None:
    """Notice about the folder; None where it is the usual one."""
    return _folder_of_run().notice


@cache
def _folder_of_run() -> Folder:
    return find_folder()


def find_folder() -> Folder:
    """The user's cache folder where it is fit, else one for this process alone.

    Raises:
        DeviceError: there is no fit one.
    """
    reasons: list[str] = []
    for parent in (None, gettempdir, lambda: MEMORY_DISK):
        try:
            folder = _folder_of_process(Path(parent())) if parent else _own_folder()
        except OSError as error:  # noqa: PERF203
            reasons.append(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        else:
            notice = f"{reasons[0]}: kernels are compiled for this run alone" if reasons else None
            return Folder(folder, notice)
    raise DeviceError(
        f"no folder can keep compiled kernels: {'; '.join(reasons)}",
        hint="set XDG_CACHE_HOME to a folder of your own; --device reference needs none",
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
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _Unfit(f"{folder} is a link or a file")
    if status.st_uid != os.geteuid():
        raise _Unfit(f"{folder} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
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


WORKERS = tuple(kernels())
"""Front files of the worker; a run builds only those that it needs."""

SOURCES = (".cl", ".h")
"""Endings of the files that a build may read; prose stands beside them."""

BUILT, COMPILED, BINARY = "built", "compiled", "binary"
"""Kinds of files that the cache folder has of a build, by their names' beginning: its record, the
mark of a background build, and the binary where the driver keeps none itself."""

MOST_BUILT = 2_000
MOST_BYTES = 256 << 20
"""Builds that are kept, and bytes of them. A run has some 5 of 0.1 MB each."""

IN_USE = 7 * 24 * 3600.0
"""Seconds from its last use in which a build stays, however many there are: PoCL ends a process
whose program is gone once it needs it for work-groups of another size."""

BETWEEN_LOOKS = 3600.0
"""Seconds between two looks for builds that are to go."""

DRAFTS = "tempfile_"
"""Beginning of the names of what PoCL writes, and forgets, among its programs."""

FIRST_LEVEL = "[A-P][A-P]"
"""Names of the first level of folders that PoCL keeps programs in, which it never removes."""

PROGRAM = "program.bc"
"""The name of the file that PoCL keeps a program in."""

SPIN_LIMIT = 1 << 25
"""Polls of the grid barrier before it reports a fault: tens of seconds, where most passes take
microseconds, but a work-group's share of a large tree with 61 states a second."""

SINGLE_REGISTERS = 96
"""Registers of one that keeps fp32 CLAs (derivatives there 1.07 -> 1.03 ms)."""

MANY_REGISTERS = 255
"""The same with many states: the most there are."""

NVIDIA_REGISTER_FILE = 65_536
"""Registers of a compute unit (compute capability 5 to 12), a quarter for every fourth warp."""

NVIDIA_UNITS = {
    (7, 0): (96, 2048),
    (8, 0): (164, 2048),
    (8, 6): (100, 1536),
    (8, 7): (164, 1536),
    (8, 9): (100, 1536),
    (9, 0): (228, 2048),
    (10, 0): (228, 2048),
    (12, 0): (100, 1536),
}
"""KiB of local memory and work-items of a compute unit, by compute capability (CUDA C++ Programming
Guide, technical specifications). That the driver lends OpenCL all of it was seen on 9.0."""

POCL_PLATFORM = "Portable Computing Language"

MATRIX_CAPABILITY, WIDE_CAPABILITY = 8, 9
"""Compute capabilities from which on ``mma.sync`` takes doubles at all, and 16 rows of them (PTX
ISA 8.5). An H200 does 33 TFLOP/s with 8 rows at a time, as without it, and 66 with 16."""

NVIDIA_LEAST_UNIT = (64, 1024)
"""The same at compute capability 7.5, and at those that are not listed."""

NVIDIA_GROUPS = 16
"""Work-groups of a compute unit (compute capability 8.6; others hold up to 32)."""


@cache
def source_folder() -> Path:
    """Folder of the OpenCL sources: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent.parent
    for folder in (package / "opencl", package.parent / "opencl"):
        if (folder / "worker.h").is_file():
            return folder
    raise DeviceError("the OpenCL sources are missing", hint="reinstall mltree")


@cache
def source_hash() -> str:
    """12 hexadecimal digits that change with any OpenCL source, and with nothing else."""
    digest = hashlib.sha256()
    for path in sorted(source_folder().iterdir()):
        if path.suffix in SOURCES:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def is_nvidia(device: cl.Device) -> bool:
    """True for NVIDIA's own runtime, with its options and its kernels' clock."""
    return "nvidia" in str(device.platform.name).lower()


def is_pocl(device: cl.Device) -> bool:
    """True for a device of PoCL."""
    return str(device.platform.name).strip() == POCL_PLATFORM


def has_matrix_unit(device: cl.Device, capability: int = MATRIX_CAPABILITY) -> bool:
    """True if its warps multiply matrices of doubles (``opencl/matrix_tiles.h``)."""
    return is_nvidia(device) and device.compute_capability_major_nv >= capability


@cache
def context_on(device: cl.Device) -> cl.Context:
    """The context on a device: NVIDIA's driver takes 0.1 s for each, and programs belong to one."""
    return cl.Context([device])


def build_worker(context: cl.Context, device: cl.Device, name: str, layout: Layout) -> cl.Kernel:
    """The kernel of one front file (:data:`WORKERS`).

    Raises:
        DeviceError: the driver could not compile it; carries the end of its log.
    """
    about = f"the {name} worker", f"layout {layout}; "
    program = _compiled(context, device, *_worker_build(device, name, layout), *about)
    return cl.Kernel(program, "worker")


_programs: dict[tuple[cl.Context, str, tuple[str, ...]], cl.Program] = {}
"""The programs of this process, by context, source and options: PoCL takes 30 ms to load one."""


def has_programs() -> bool:
    """True if this process has loaded programs."""
    return bool(_programs)


def _compiled(
    context: cl.Context,
    device: cl.Device,
    source: str,
    options: list[str],
    what: str,
    hint: str = "",
) -> cl.Program:
    """The program, without what NVIDIA's compiler says about its registers."""
    check_process()
    key = context, source, tuple(options)
    if key in _programs:
        return _programs[key]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            _programs[key] = _build(context, device, source, options)
            return _programs[key]
    except cl.RuntimeError as error:
        log = str(error).strip().splitlines()
        raise DeviceError(
            f"{device.name}: {what} does not compile: {log[-1] if log else error}",
            hint=f"{hint}please report this with the driver's version",
        ) from error


def _worker_build(device: cl.Device, name: str, layout: Layout) -> tuple[str, list[str]]:
    """Source and options of a worker: all that its build depends on, beside device and driver."""
    limit = [f"-cl-nv-maxrregcount={register_limit(name, layout)}"] if is_nvidia(device) else []
    return f'#include "{name}.cl"\n', [
        *limit,
        *_plain_options(),
        "-cl-mad-enable",
        f"-DSPIN_LIMIT={SPIN_LIMIT}",
        f"-DSOURCE_HASH=0x{source_hash()}",
        f"-DWIDE_PRODUCTS={int(has_matrix_unit(device, WIDE_CAPABILITY))}",
        *layout.options(),
    ]


def build_kernels(context: cl.Context, device: cl.Device, name: str, **values: int) -> cl.Program:
    """The kernels of a file that knows no layout, such as ``parsimony`` or ``models``.

    values  of its ``-D``s

    Raises:
        DeviceError: the driver could not compile them.
    """
    return _compiled(context, device, *_kernels_build(name, **values), f"{name}.cl")


def _kernels_build(name: str, **values: int) -> tuple[str, list[str]]:
    """Source and options of kernels that know no layout."""
    options = [*_plain_options(), *(f"-D{key}={value}" for key, value in values.items())]
    return f'#include "{name}.cl" // {source_hash()}\n', options


def kernels_mark(device: cl.Device, name: str, **values: int) -> Path:
    """The file, beside the kernels, that says such kernels were built.

    Raises:
        DeviceError: there is no folder for it.
    """
    return _file_of(BUILT, device, *_kernels_build(name, **values))


def _plain_options() -> list[str]:
    """Options of every build: the sources' folder; no warnings, which PoCL counts on stderr."""
    return ["-I", str(source_folder()), "-w"]


def is_built(device: cl.Device, layout: Layout, workers: Sequence[str] = ("sites",)) -> bool:
    """True if the driver will find these workers, which an earlier run has built."""
    with suppress(OSError, DeviceError):
        marks = (mark(BUILT, device, name, layout.of_worker(name)) for name in workers)
        return all(path.exists() for path in marks)
    return False


def mark(kind: str, device: cl.Device, name: str, layout: Layout) -> Path:
    """The file, beside the kernels, that says a worker was ``built`` or ``compiled`` (CPUs).

    Raises:
        DeviceError: there is no folder for it.
    """
    return _file_of(kind, device, *_worker_build(device, name, layout))


def _file_of(kind: str, device: cl.Device, source: str, options: Sequence[str]) -> Path:
    """The file of a kind that belongs to one build by one driver."""
    parts = (device.name, device.platform.version, device.driver_version, source, *options)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return cache_folder() / f"{kind}-{digest[:16]}"


def _build(context: cl.Context, device: cl.Device, source: str, options: list[str]) -> cl.Program:
    """The program, from what an earlier run kept of it where it is whole."""
    program: cl.Program
    try:
        record = _file_of(BUILT, device, source, options)
    except DeviceError:
        program = cl.Program(context, source).build(options)
        return program
    is_new = not record.exists()
    if is_pocl(device) and POCL_FOLDER in os.environ:
        program = _build_on_pocl(context, source, options, record)
    elif is_nvidia(device) or is_pocl(device):
        program = cl.Program(context, source).build(options)
    else:
        binary = _file_of(BINARY, device, source, options)
        program = _build_with_binary(context, device, source, options, binary)
    with suppress(OSError):
        record.touch()  # the time of its last use
        if is_new:
            prune()
    return program


def _build_with_binary(
    context: cl.Context, device: cl.Device, source: str, options: list[str], path: Path
) -> cl.Program:
    """The program of a driver that keeps none itself; its binary is kept in a file."""
    with suppress(OSError, cl.Error):
        if (kept := _whole(path.read_bytes())) is not None:
            program: cl.Program = cl.Program(context, [device], [kept]).build(options)
            return program
    program = cl.Program(context, source).build(options)
    with suppress(InputError, OSError, cl.Error):
        path.parent.mkdir(parents=True, exist_ok=True)
        (binary,) = cast("list[bytes]", program.get_info(cl.program_info.BINARIES))
        write_whole(path, hashlib.sha256(binary).digest() + binary)
    return program


def _whole(kept: bytes) -> bytes | None:
    """The binary that was kept behind its sum; None where it is another now."""
    size = hashlib.sha256().digest_size
    binary = kept[size:]
    return binary if hashlib.sha256(binary).digest() == kept[:size] else None


# Programs of PoCL. It keeps each in a folder of two levels (``AB/CDE…/``) whose name only PoCL
# knows, loads what is there, and ends the process where a file is damaged. So each program is built
# under a name of its own, a function in its source; the record of the build has that name and the
# folders, and the files of these are compared with their sums before PoCL is let near them. A
# program without a record, or with a file that has no sum, is built under a new name.


def _build_on_pocl(
    context: cl.Context, source: str, options: list[str], record: Path
) -> cl.Program:
    """The program that an earlier run built, where all of its files are whole, or a new one."""
    folder = Path(os.environ[POCL_FOLDER])
    name = _kept_name(folder, record)
    if name is not None:
        program: cl.Program = cl.Program(context, source + _named(name)).build(options)
        if program.kernel_names:  # else PoCL keeps a part of it
            return program
    name = secrets.token_hex(8)
    before = _changes(folder)
    program = cl.Program(context, source + _named(name)).build(options)
    changed = [top for top, change in _changes(folder).items() if before.get(top) != change]
    with suppress(InputError, OSError):
        kept = _programs_of(folder, changed, name)
        for program_folder in kept:
            keep_sum(folder, (folder / program_folder / PROGRAM).read_bytes())
        write_whole(record, "\n".join([name, *kept]).encode())
    return program


def _named(name: str) -> str:
    """The function, called by nobody, that tells a program from all others."""
    return f"void build_{name}(void) {{}}\n"


def _kept_name(folder: Path, record: Path) -> str | None:
    """Name of the program of a record; None where there is none, or a damaged file of it."""
    name, *programs = _content(record) or [""]
    try:
        if programs and all(_is_whole(folder, folder / program) for program in programs):
            return name
    except OSError:
        return None
    for program in programs:
        _discard(folder, folder / program)
    return None


def _is_whole(folder: Path, program: Path) -> bool:
    """True if every file that PoCL keeps of a program is as it was made."""
    files = [program / PROGRAM, *program.rglob("*.so")]
    return all(has_sum(folder, file.read_bytes()) for file in files)


def _changes(folder: Path) -> dict[str, int]:
    """When a program was last made or removed, by the first level of its folder, in ns."""
    return {x.name: x.stat().st_mtime_ns for x in folder.glob(FIRST_LEVEL)}


def _programs_of(folder: Path, tops: Sequence[str], name: str) -> list[str]:
    """Folders, below those of the first level, of the program of this name.

    All that there are where none tells its name.
    """
    files = [file for top in tops for file in (folder / top).glob(f"*/{PROGRAM}")]
    named = [file for file in files if f"build_{name}".encode() in file.read_bytes()]
    return [str(file.parent.relative_to(folder)) for file in named or files]


def prune(most: int = MOST_BUILT, most_bytes: int = MOST_BYTES) -> None:
    """Remove the builds that were used least recently, unless that was done a short while ago.

    Other processes may build and load programs meanwhile: drivers compile again what is gone. A
    folder that the user gives PoCL may have programs of others, and is left alone.
    """
    folder, now = cache_folder(), time.time()
    done = folder / "pruned"
    if _last_use(done) > now - BETWEEN_LOOKS:
        return
    done.touch()
    pocl = Path(os.environ.get(POCL_FOLDER, ""))
    is_ours = pocl.parent == folder
    oldest, total, kept = now, 0, set[Path]()
    records = sorted(folder.glob(f"{BUILT}-*"), key=_last_use, reverse=True)
    for number, record in enumerate(records, 1):
        programs = {pocl / name for name in _content(record)[1:]} if is_ours else set()
        compiled, binary = (
            record.with_name(record.name.replace(BUILT, kind)) for kind in (COMPILED, BINARY)
        )
        total += sum(map(_size, (*programs, binary)))
        is_few = number <= most and total <= most_bytes
        if is_few or _last_use(record) > now - IN_USE:
            kept |= programs
            oldest = min(oldest, _last_use(record))
        else:
            for path in (record, compiled, binary):
                path.unlink(missing_ok=True)
    if is_ours:
        for path in {*pocl.glob(f"{FIRST_LEVEL}/*"), *pocl.glob(f"{DRAFTS}*")} - kept:
            if _last_use(path) < now - IN_USE:
                _discard(pocl, path)
        for path in (pocl / SUMS).glob("*"):
            if _last_use(path) < oldest - IN_USE:  # a sum is older than the record of its build
                path.unlink(missing_ok=True)


def _content(record: Path) -> list[str]:
    """Name of the program of a record, then its folders; nothing where it cannot be read."""
    try:
        return record.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []


def _discard(folder: Path, program: Path) -> None:
    """Remove a program, which no process sees in parts."""
    with suppress(OSError):
        program = program.rename(folder / f"{DRAFTS}{secrets.token_hex(8)}")
    shutil.rmtree(program, ignore_errors=True)
    with suppress(OSError):
        program.unlink(missing_ok=True)


def _last_use(path: Path) -> float:
    """Time of a file, in seconds; the start of all time where another process has removed it."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def _size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder; 0 where there is none."""
    files = [path, *path.rglob("*")]
    return sum(x.stat().st_size for x in files if x.is_file())


def local_memory(kernel: cl.Kernel, device: cl.Device) -> int:
    """Bytes of local memory that a work-group takes, beside what its arguments ask for."""
    size = kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, device)
    return int(str(size))


def resident_groups(device: cl.Device, name: str, layout: Layout, local: int) -> int:
    """Work-groups of a worker, with so many bytes, that a compute unit of NVIDIA's surely holds."""
    capability = device.compute_capability_major_nv, device.compute_capability_minor_nv
    kibibytes, most_items = NVIDIA_UNITS.get(capability, NVIDIA_LEAST_UNIT)
    items = _work_items(name, layout)
    fits = (
        NVIDIA_REGISTER_FILE // (items * _up_to(8, register_limit(name, layout))),
        kibibytes * 1024 // (local + 1024),
        NVIDIA_GROUPS,
        most_items // items,
    )
    return max(1, min(fits))


def register_limit(name: str, layout: Layout) -> int:
    """Registers that a work-item may take, so that at least one of the worker's groups fits."""
    most = MANY_REGISTERS
    if layout.held <= FEW_HELD:
        most = kernels()[name].registers
        if layout.single and name == "sites":
            most = SINGLE_REGISTERS
    return min(most, NVIDIA_REGISTER_FILE // _work_items(name, layout) // 8 * 8)


def _work_items(name: str, layout: Layout) -> int:
    """Work-items of a worker's group, in whole rounds of a warp for each quarter of a unit."""
    return _up_to(4 * 32, math.prod(layout.group(name)))


def _up_to(unit: int, number: int) -> int:
    return -(-number // unit) * unit


def worker_of(program: Program) -> str:
    """The front file that has the program's own stage."""
    return next((stage.kernel.front for stage in program.stages if stage.kernel), "sites")
