"""Matrices of distances in files, tile by tile: NumPy's, HDF5 as ``ssu`` has it, parts, TSV.

A matrix lies in a draft beside its file until it is whole. A line of the draft's journal for every
tile lets a run that was killed go on.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.diversity.table import few, h5py
from mltree.diversity.unifrac import STRIP, Tile, UnifracEngine, UnifracProblem, tiles_of
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.files import naming
from mltree.system.process import map_blocks
from mltree.system.values import Value

Distances = NDArray[np.floating[Any]]

DRAFT, JOURNAL = ".unfinished", ".tiles"
"""Endings of a matrix that is being written, and of the list of its tiles that are."""

AHEAD = 2
"""Tiles of a device that are computed or wait while one is written."""

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
        total.update(array.tobytes())
    return total.hexdigest()[:20]


class Draft:
    """A square matrix in a file, as much of it as is written yet."""

    def __init__(self, path: Path, kind: str, problem: UnifracProblem) -> None:
        """Open the draft that a killed run has left, or begin one.

        path  the file when it is whole;  kind  ``npy`` or ``hdf5``

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
            mapped = self._mapped(problem)
            self.matrix: Distances = mapped
            self._offset = mapped.offset
            self._file = os.open(self.draft, os.O_WRONLY)

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

    def add(self, tile: Tile, block: Distances) -> None:
        """Write a tile, and note that it is written, unless it is there."""
        if name_of(tile) in self.done:
            return
        block = np.ascontiguousarray(block, self.matrix.dtype)
        first_row, first_column = tile.rows.start, tile.columns.start

        def write(strip: slice) -> None:
            self._write(first_row + strip.start, first_column, block[strip])

        def mirror(strip: slice) -> None:
            rows = np.ascontiguousarray(block[:, strip].T)
            self._write(first_column + strip.start, first_row, rows)

        with naming(self.draft):
            map_blocks(write, block.shape[0], STRIP)
            if not tile.is_diagonal:
                map_blocks(mirror, block.shape[1], STRIP)
        with naming(self._journal), self._journal.open("a", encoding="ascii") as journal:
            journal.write(name_of(tile) + "\n")

    def _write(self, row: int, column: int, block: Distances) -> None:
        """Write rows into the file: pages that are mapped would each be fetched first."""
        size = block.dtype.itemsize
        for number, values in enumerate(block, row):
            place = self._offset + (number * self.matrix.shape[1] + column) * size
            if os.pwrite(self._file, values.data, place) != values.nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def finish(self, more: Mapping[str, Any]) -> Path:
        """Give the matrix its name; ``more``: arrays that HDF5 has beside it."""
        self.matrix = np.empty((0, 0))
        os.close(self._file)
        with naming(self.path):
            if self.kind == "hdf5":
                with h5py().File(self.draft, "r+") as store:
                    for name, array in more.items():
                        store[name] = array
            self.draft.replace(self.path)
            self._journal.unlink(missing_ok=True)
        return self.path


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
        values = np.array(block, np.float64)
        if is_diagonal:
            np.fill_diagonal(values, np.inf)
        best, index = self._distance[rows], self._index[rows]
        limit = best[:, -1]
        if self.k <= values.shape[1]:
            limit = np.minimum(limit, np.partition(values, self.k - 1, axis=1)[:, self.k - 1])
        row, column = np.nonzero((values <= limit[:, None]) & np.isfinite(values))
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
