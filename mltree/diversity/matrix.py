"""Matrices of distances in files, tile by tile: NumPy's, HDF5 as ``ssu`` has it, parts, TSV.

A matrix lies in a draft beside its file until it is whole. A line of the draft's journal for every
tile lets a run that was killed go on. Rows are written as a whole where memory holds the tiles so
long: a system call for each row of a tile took longer than the distances.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.diversity.table import few, h5py
from mltree.diversity.unifrac import (
    STRIP,
    Tile,
    UnifracEngine,
    UnifracProblem,
    tile_side,
    tiles_of,
)
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.files import naming
from mltree.system.process import host_memory, map_blocks
from mltree.system.values import Value
from mltree.tree.topology import NONE

Distances = NDArray[np.floating[Any]]

DRAFT, JOURNAL = ".unfinished", ".tiles"
"""Endings of a matrix that is being written, and of the list of its tiles that are."""

MEMORY_SHARE = 0.25
"""Share of the machine's memory that tiles take until the rows of a band are whole."""

WRITTEN_BYTES, LEAST_STRIP = 1 << 23, 16
"""Bytes of rows that are written at once, and rows at least."""

PAGE, LEAST_DIRECT, RETRIED = max(4096, mmap.PAGESIZE), 1 << 20, 32
"""Bytes of a page; bytes that may be written past the system's cache; writes between two tries of
the slower way."""

AHEAD = 2
"""Tiles of a device that are computed or wait while one is written."""

SMALLER = "--precision single takes half, --matrix none nothing: --nearest and --pcoa need none"

SSU_FORMAT, SSU_VERSION = b"BDSM", b"2020.12"
"""Marks of the files of ``ssu`` 1.2."""


def computed(
    engines: Sequence[UnifracEngine], tiles: Iterable[Tile]
) -> Iterator[tuple[Tile, Distances]]:
    """Tiles with their distances, in order, while the next ones are computed."""
    free: SimpleQueue[UnifracEngine] = SimpleQueue()
    for engine in engines:
        free.put(engine)

    def compute(tile: Tile) -> Distances:
        engine = free.get()
        try:
            return engine.tile(*tile)
        finally:
            free.put(engine)

    with ThreadPoolExecutor(len(engines)) as pool:
        ahead = iter(tiles)
        waiting: list[tuple[Tile, Future[Distances]]] = []
        try:
            while True:
                room = AHEAD * len(engines) - len(waiting)
                waiting += [(tile, pool.submit(compute, tile)) for tile in islice(ahead, room)]
                if not waiting:
                    return
                tile, future = waiting.pop(0)
                yield tile, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def digest(problem: UnifracProblem) -> str:
    """Twenty digits that tell apart the distances of all samples, tables, trees and metrics."""
    samples = problem.samples
    total = hashlib.sha256(json.dumps([samples.ids, problem.metric.label, problem.single]).encode())
    arrays = samples.indptr, samples.tip, samples.counts, samples.branches.parent
    for array in (*arrays, samples.branches.length):
        total.update(array.data)
    return total.hexdigest()[:20]


def empty_at(offset: int, shape: tuple[int, int], kind: np.dtype[Any]) -> Distances:
    """An array that lies to pages of memory as its place in a file does to the file's."""
    size = shape[0] * shape[1] * kind.itemsize
    raw = np.empty(size + PAGE, np.uint8)
    start = (offset - raw.ctypes.data) % PAGE
    return raw[start : start + size].view(kind).reshape(shape)


class RowsFile:
    """Writes rows of a matrix through the system's cache of files, or past it where that is faster.

    The cache takes new memory, which on some virtual machines comes at 0.3 GB/s; disks differ too.
    No page is written in both ways.
    """

    def __init__(self, path: Path, is_read: bool) -> None:
        """``is_read``: soon, so that all goes through the cache."""
        self._file, self._direct = os.open(path, os.O_WRONLY), NONE
        if not is_read and hasattr(os, "O_DIRECT"):
            with suppress(OSError):  # some file systems have a cache or nothing
                self._direct = os.open(path, os.O_WRONLY | os.O_DIRECT)
        self.is_direct = self._direct != NONE
        """True while the file system takes writes past the cache."""
        self._pace = {False: 0.0, True: 0.0}
        """Seconds a byte, through the cache and past it; 0 before the first try."""
        self._count = 0

    def write(self, values: Distances, at: int) -> None:
        """Write a contiguous array from :func:`empty_at` to a byte of the file and on."""
        size = values.nbytes
        if size < LEAST_DIRECT or not self.is_direct:
            self._through(values.data.cast("B"), at)
            return
        self._count += 1
        is_direct = self._pace[True] < self._pace[False]  # at first, so that both are tried
        if self._count % RETRIED == 0:
            is_direct = not is_direct
        start = time.perf_counter()
        (self._past if is_direct else self._through)(values.data.cast("B"), at)
        pace, before = (time.perf_counter() - start) / size, self._pace[is_direct]
        self._pace[is_direct] = (before + pace) / 2 if before else pace

    def _through(self, data: memoryview, at: int) -> None:
        _write_all(self._file, data, at)

    def _past(self, data: memoryview, at: int) -> None:
        """Whole pages past the cache, what is before and behind them through it."""
        start = -at % PAGE
        stop = start + (len(data) - start) // PAGE * PAGE
        self._through(data[:start], at)
        try:
            _write_all(self._direct, data[start:stop], at + start)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
            self.is_direct = False
            self._through(data[start:stop], at + start)
        self._through(data[stop:], at + stop)

    def close(self) -> None:
        """Close both descriptors of the file."""
        os.close(self._file)
        if self._direct != NONE:
            os.close(self._direct)


def _write_all(file: int, data: memoryview, at: int) -> None:
    while len(data):
        count = os.pwrite(file, data, at)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, at = data[count:], at + count


class Draft:
    """A square matrix in a file, as much of it as is written yet.

    The rows of a side of tiles are a band. A band whose tiles all fit in memory is written at once,
    others tile by tile. A tile is done when the file has its mirror image.
    """

    def __init__(
        self, path: Path, kind: str, problem: UnifracProblem, is_read: bool = True
    ) -> None:
        """Open the draft that a killed run has left, or begin one.

        path  the file when it is whole;  kind  ``npy`` or ``hdf5``;  is_read  True where the matrix
        is read once it is written

        Raises:
            InputError: it cannot be written, or HDF5 needs h5py.
        """
        self.path, self.kind = path, kind
        self.draft = path.with_name(path.name + DRAFT)
        self._journal = path.with_name(path.name + JOURNAL)
        self._head = f"{digest(problem)} {kind}\n"
        self.done = self._tiles_done()
        with naming(self.draft):
            if not self.done:
                self._begin(problem)
            self._matrix = self._mapped(problem)
            self._file = RowsFile(self.draft, is_read)
        tiles = tiles_of(len(self._matrix))
        self._bands = [tile.rows for tile in reversed(tiles) if tile.is_diagonal]
        n_bands, n_whole = len(self._bands), whole_bands(len(self._matrix), self._matrix.itemsize)
        self._first_whole = n_bands - n_whole
        missing = [tile for tile in tiles if name_of(tile) not in self.done]
        self._open = {band for tile in missing for band in self._numbers(tile)}
        self._blocks: dict[int, dict[int, Distances]] = {}
        self._writer = ThreadPoolExecutor(1, "matrix")
        self._writing: Future[None] | None = None

    def _numbers(self, tile: Tile) -> tuple[int, int]:
        """The bands of a tile's rows and columns."""
        side = self._bands[0].stop
        return tile.rows.start // side, tile.columns.start // side

    def _tiles_done(self) -> set[str]:
        if not (self.draft.is_file() and self._journal.is_file()):
            return set()
        head, *lines = self._journal.read_text(encoding="ascii").splitlines(keepends=True) or [""]
        return (
            {line.strip() for line in lines if line.endswith("\n")} if head == self._head else set()
        )

    def _begin(self, problem: UnifracProblem) -> None:
        shape = (problem.samples.n_samples,) * 2
        self.draft.unlink(missing_ok=True)
        needed = shape[0] ** 2 * np.dtype(problem.kind).itemsize
        free = shutil.disk_usage(self.path.absolute().parent)[2]
        if free < needed:
            text = (
                f"a matrix of {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of the disk are free"
            )
            raise InputError(text, file=str(self.path), hint=SMALLER)
        if self.kind == "npy":
            np.lib.format.open_memmap(self.draft, "w+", np.dtype(problem.kind), shape)
        else:
            _begin_hdf5(self.draft, problem)
        self._journal.write_text(self._head, encoding="ascii")

    def _mapped(self, problem: UnifracProblem) -> np.memmap[Any, Any]:
        if self.kind == "npy":
            return np.lib.format.open_memmap(self.draft, "r+")
        with h5py().File(self.draft, "r") as store:
            offset, shape = store["matrix"].id.get_offset(), store["matrix"].shape
        return np.memmap(self.draft, problem.kind, "r+", offset, shape)

    @property
    def matrix(self) -> Distances:
        """The matrix where it lies, once all that was added is there."""
        self._wait()
        return self._matrix

    def block(self, tile: Tile) -> Distances:
        """The distances of a tile that was done when the draft was opened."""
        return np.ascontiguousarray(self._matrix[tile.columns, tile.rows].T)

    def add(self, tile: Tile, block: Distances) -> None:
        """Write a tile and its mirror image, or keep it until its bands are whole.

        All tiles are to be added, those that were done before too.
        """
        block = np.ascontiguousarray(block, self._matrix.dtype)
        down, across = self._numbers(tile)
        for band, other in {across: down, down: across}.items():
            if band not in self._open:
                continue
            if band < self._first_whole:
                self._write(band, {other: block})
                continue
            blocks = self._blocks.setdefault(band, {})
            blocks[other] = block
            if len(blocks) == len(self._bands):
                self._wait()
                del self._blocks[band]
                self._writing = self._writer.submit(self._write_band, band, blocks)
        if across < self._first_whole:
            self._note([tile])

    def _wait(self) -> None:
        """Wait for the band that is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write_band(self, band: int, blocks: dict[int, Distances]) -> None:
        self._write(band, blocks)
        self._note([Tile(rows, self._bands[band]) for rows in self._bands[: band + 1]])

    def _note(self, tiles: Iterable[Tile]) -> None:
        """Note that tiles are in the file."""
        names = [name for tile in tiles if (name := name_of(tile)) not in self.done]
        with naming(self._journal), self._journal.open("a", encoding="ascii") as journal:
            journal.write("".join(f"{name}\n" for name in names))

    def _write(self, band: int, blocks: dict[int, Distances]) -> None:
        """Write blocks, by the band of their columns, into the rows of a band.

        Pages that are mapped would each be fetched first.
        """
        matrix, rows = self._matrix, self._bands[band]
        columns = slice(self._bands[min(blocks)].start, self._bands[max(blocks)].stop)
        width = columns.stop - columns.start

        def write(strip: slice) -> None:
            first = (rows.start + strip.start) * matrix.shape[1] + columns.start
            at = matrix.offset + first * matrix.itemsize
            values = empty_at(at, (strip.stop - strip.start, width), matrix.dtype)
            for other, block in blocks.items():
                start = self._bands[other].start - columns.start
                if other >= band:
                    values[:, start : start + block.shape[1]] = block[strip]
                    continue
                for place in range(0, len(block), STRIP):
                    part = block[place : place + STRIP, strip].T
                    values[:, start + place : start + place + part.shape[1]] = part
            if width == matrix.shape[1]:
                self._file.write(values, at)
            else:
                for number, row in enumerate(values):
                    self._file.write(row, at + number * matrix.strides[0])

        height = max(LEAST_STRIP, WRITTEN_BYTES // (width * matrix.itemsize))
        with naming(self.draft):
            map_blocks(write, rows.stop - rows.start, height)

    def finish(self, more: Mapping[str, Any]) -> Path:
        """Give the matrix its name; ``more``: arrays that HDF5 has beside it."""
        self._wait()
        self._writer.shutdown()
        self._matrix = np.memmap(self.draft, np.uint8, "r", shape=(1,))
        self._file.close()
        with naming(self.path):
            if self.kind == "hdf5" and more:
                with h5py().File(self.draft, "r+") as store:
                    for name, array in more.items():
                        store.pop(name, None)  # of a run that was killed here
                        store[name] = array
            self.draft.replace(self.path)
            self._journal.unlink(missing_ok=True)
        return self.path


def whole_bands(n_samples: int, size: int) -> int:
    """Bands, the last of the matrix, whose tiles memory holds until they are written at once.

    Beside two bands, one that is computed and one that is written, memory holds the tiles above
    bands that are computed: a quarter of the square of all whole bands at most.

    size  bytes of a distance
    """
    side = tile_side(n_samples)
    count = -(-n_samples // side)
    tiles = int(MEMORY_SHARE * host_memory()) // (side * side * size)
    return min(count, 2 * math.isqrt(max(0, tiles - 2 * count)))


def tiles_memory(n_samples: int, size: int) -> int:
    """Bytes of the tiles that are kept until they are written, at most."""
    side = tile_side(n_samples)
    bands = whole_bands(n_samples, size)
    kept = bands**2 // 4 + 2 * -(-n_samples // side) if bands else AHEAD + 1
    return kept * side * side * size


def name_of(tile: Tile) -> str:
    """A tile as journals have it."""
    return f"{tile.rows.start} {tile.columns.start}"


def _begin_hdf5(path: Path, problem: UnifracProblem) -> None:
    """The layout of ``ssu``; the matrix in one piece, so that it can be mapped."""
    module = h5py()
    with module.File(path, "w") as store:
        text = module.string_dtype("ascii")
        store["format"] = np.array([SSU_FORMAT])
        store["version"] = np.array([SSU_VERSION])
        ids = np.array([name.encode() for name in problem.samples.ids], object)
        store.create_dataset("order", data=ids, dtype=text)
        plan = module.h5p.create(module.h5p.DATASET_CREATE)
        plan.set_layout(module.h5d.CONTIGUOUS)
        plan.set_alloc_time(module.h5d.ALLOC_TIME_EARLY)
        plan.set_fill_time(module.h5d.FILL_TIME_NEVER)
        plan.set_obj_track_times(False)
        kind = module.h5t.NATIVE_FLOAT if problem.single else module.h5t.NATIVE_DOUBLE
        shape = (problem.samples.n_samples,) * 2
        space = module.h5s.create_simple(shape)
        module.h5d.create(store.id, b"matrix", kind, space, plan)


def tsv_lines(matrix: Distances, ids: Sequence[str]) -> Iterator[str]:
    """The lines of a matrix as scikit-bio and QIIME read them."""
    yield "\t".join(["", *ids]) + "\n"
    for name, row in zip(ids, matrix, strict=True):
        yield "\t".join([name, *map(repr, row.tolist())]) + "\n"


# Parts: some of the tiles, one after the other behind a line that says what they are.


class PartHead(Value):
    """The first line of a part: the matrix that it belongs to."""

    digest: str
    part: int
    parts: int
    samples: int
    bytes: int
    """Size of a distance."""


class PartFile:
    """The tiles of a part, in their order; what is behind the last whole one is written anew."""

    def __init__(self, path: Path, problem: UnifracProblem, part: tuple[int, int]) -> None:
        """Open what a killed run has left, or begin.

        Raises:
            InputError: it cannot be written.
        """
        self.path = path
        self.draft = path.with_name(path.name + DRAFT)
        size = np.dtype(problem.kind).itemsize
        head = PartHead(digest(problem), *part, problem.samples.n_samples, size)
        line = (json.dumps(head.__dict__) + "\n").encode()
        self.tiles = tiles_of(problem.samples.n_samples, part)
        with naming(self.draft):
            is_ours = self.draft.is_file() and _first_line(self.draft) == line
            self._file = self.draft.open("r+b" if is_ours else "wb")
            if not is_ours:
                self._file.write(line)
            left = os.fstat(self._file.fileno()).st_size - len(line) if is_ours else 0
            self.done, behind = 0, len(line)
            for tile in self.tiles:
                if (left := left - tile.pairs * size) < 0:
                    break
                self.done, behind = self.done + 1, behind + tile.pairs * size
            self._file.truncate(behind)
            self._file.seek(behind)

    def add(self, block: Distances) -> None:
        """Write the next tile."""
        self._file.write(np.ascontiguousarray(block).data)
        self._file.flush()

    def finish(self) -> Path:
        """Give the part its name."""
        with naming(self.path):
            self._file.close()
            self.draft.replace(self.path)
        return self.path


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


def merged(paths: Sequence[Path], problem: UnifracProblem) -> Iterator[tuple[Tile, Distances]]:
    """The tiles of all parts, of which each has its path, in order.

    Raises:
        InputError: a part is missing, not whole, or of something else.
    """
    for number, path in enumerate(paths, 1):
        with naming(path, "read"):
            if not path.is_file():
                hint = f"run --part {number}/{len(paths)} first"
                raise InputError("this part of the matrix is missing", file=str(path), hint=hint)
            line = _first_line(path)
        expected = (digest(problem), number, len(paths), problem.samples.n_samples)
        try:
            values = json.loads(line)
            is_ours = (
                tuple(values[name] for name in ("digest", "part", "parts", "samples")) == expected
            )
        except (ValueError, KeyError, TypeError):
            is_ours = False
        if not is_ours:
            raise InputError("a part of another table, tree or metric", file=str(path))
        tiles = tiles_of(problem.samples.n_samples, (number, len(paths)))
        numbers = np.memmap(path, problem.kind, "r", len(line)) if tiles else np.empty(0)
        if len(numbers) != sum(tile.pairs for tile in tiles):
            raise InputError("a part that is not whole", file=str(path))
        start = 0
        for tile in tiles:
            shape = tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start
            yield tile, numbers[start : start + tile.pairs].reshape(shape)
            start += tile.pairs


# The nearest of each sample.


class Nearest:
    """The k nearest others of every sample, from tiles in any order; of equal ones the first."""

    def __init__(self, n_samples: int, k: int) -> None:
        self.k = min(k, n_samples - 1)
        self._distance = np.full((n_samples, self.k), np.inf)
        self._index = np.full((n_samples, self.k), n_samples, np.int64)

    def add(self, tile: Tile, block: Distances) -> None:
        """Take a tile, and its mirror image."""
        if not self.k:
            return
        self._take(tile.rows, tile.columns, block, tile.is_diagonal)
        if not tile.is_diagonal:
            self._take(tile.columns, tile.rows, block.T, False)

    def _take(self, rows: slice, columns: slice, block: Distances, is_diagonal: bool) -> None:
        def take(strip: slice) -> None:
            values = np.array(block[strip], np.float64)
            if is_diagonal:
                values[np.arange(len(values)), np.arange(strip.start, strip.stop)] = np.inf
            self._take_rows(
                slice(rows.start + strip.start, rows.start + strip.stop), columns, values
            )

        map_blocks(take, rows.stop - rows.start, STRIP)

    def _take_rows(self, rows: slice, columns: slice, values: Float64) -> None:
        best, index = self._distance[rows], self._index[rows]
        limit = best[:, -1]
        if self.k <= values.shape[1] and not np.isfinite(limit).all():
            limit = np.minimum(limit, np.partition(values, self.k - 1, axis=1)[:, self.k - 1])
        row, column = np.nonzero((values <= limit[:, None]) & np.isfinite(values))
        if not row.size:
            return
        old_row = np.repeat(np.arange(len(best)), self.k)
        every_row = np.concatenate((old_row, row))
        every_index = np.concatenate((index.ravel(), column + columns.start))
        every_distance = np.concatenate((best.ravel(), values[row, column]))
        order = np.lexsort((every_index, every_distance, every_row))
        starts = np.searchsorted(every_row[order], np.arange(len(best)))
        chosen = order[starts[:, None] + np.arange(self.k)]
        self._distance[rows], self._index[rows] = every_distance[chosen], every_index[chosen]

    @property
    def table(self) -> tuple[Index, Float64]:
        """Numbers [N, k] of the nearest samples, the nearest first, and their distances."""
        return self._index, self._distance

    def lines(self, ids: Sequence[str]) -> Iterator[str]:
        """Lines of a TSV file: a sample, its rank, the other sample, the distance."""
        yield "sample\trank\tneighbour\tdistance\n"
        for name, indices, distances in zip(ids, *map(np.ndarray.tolist, self.table), strict=True):
            for rank, (other, distance) in enumerate(zip(indices, distances, strict=True), 1):
                yield f"{name}\t{rank}\t{ids[other]}\t{distance!r}\n"


# Matrices that were written before.


class StoredMatrix(NamedTuple):
    """A matrix of a file."""

    ids: tuple[str, ...]
    data: Float64

    def ordered(self, ids: Sequence[str]) -> Float64:
        """The distances of these samples, in their order. Raises: InputError: some are missing."""
        place = {name: row for row, name in enumerate(self.ids)}
        missing = [name for name in ids if name not in place]
        if missing:
            raise InputError(f"{len(missing)} samples are not in the other matrix: {few(missing)}")
        rows = np.array([place[name] for name in ids], np.intp)
        return self.data[np.ix_(rows, rows)]


def read_matrix(path: str) -> StoredMatrix:
    """A matrix of distances: TSV, or HDF5 as ``ssu`` and mltree write it.

    Raises:
        InputError: it cannot be read.
    """
    with naming(Path(path), "read"), Path(path).open("rb") as file:
        head = file.read(4)
    if head == b"\x89HDF":
        with h5py().File(path, "r") as store:
            ids = tuple(name.decode() for name in store["order"][()])
            return StoredMatrix(ids, store["matrix"][()].astype(np.float64))
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        ids = tuple(lines[0].split("\t")[1:])
        data = np.array([line.split("\t")[1:] for line in lines[1:] if line], np.float64)
    except (ValueError, IndexError, UnicodeDecodeError):
        raise InputError("not a matrix of distances", file=path) from None
    if data.shape != (len(ids), len(ids)):
        raise InputError("a matrix of distances that is not square", file=path)
    return StoredMatrix(ids, data)
