"""Matrices in files: parts join to the same bits, killed runs go on, neighbours are the nearest."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mltree.diversity.matrix as matrix_module
import mltree.diversity.unifrac as module
from mltree.diversity.branches import place
from mltree.diversity.matrix import (
    DRAFT,
    Draft,
    Nearest,
    PartFile,
    RowsFile,
    computed,
    empty_at,
    merged,
    name_of,
    read_matrix,
    tsv_lines,
    whole_bands,
)
from mltree.diversity.table import table_of
from mltree.diversity.unifrac import (
    MatrixBlocks,
    Metric,
    ReferenceUnifrac,
    Tile,
    UnifracProblem,
    fill,
    tiles_of,
)
from mltree.system.errors import InputError


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALLEST_TILE", 8)


@pytest.fixture(params=[False, True], ids=["double", "single"])
def problem(request: pytest.FixtureRequest) -> UnifracProblem:
    rng = np.random.default_rng(1)
    counts = rng.poisson(1.0, (45, 12))
    counts[:, 0] += 1
    names = [f"t{i}" for i in range(12)]
    tree = "(((t0:1,t1:2):1,(t2:.5,t3:1,t4:.1):1):2,((t5:1,t6:1,t7:3):.3,(t8:1,(t9:1,t10:1):1,"
    tree += "t11:2):1):1);"
    samples = place(table_of((counts, [f"s{i}" for i in range(45)], names)), tree)
    return UnifracProblem(samples, Metric("weighted_normalized"), request.param)


def whole(problem: UnifracProblem) -> np.ndarray:
    every = slice(0, problem.samples.n_samples)
    return ReferenceUnifrac(problem).tile(every, every)


class Killed(Exception):
    """Stands for a signal."""


@pytest.mark.parametrize("memory", [1 << 40, 9_000, 5_000, 0], ids=["all", "some", "few", "none"])
@pytest.mark.parametrize("kind", ["npy", "hdf5"])
def test_a_killed_run_goes_on(
    kind: str, memory: int, problem: UnifracProblem, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever memory holds: tiles are in the file when their band is."""
    if kind == "hdf5":
        pytest.importorskip("h5py")
    monkeypatch.setattr(matrix_module, "host_memory", lambda: 4 * memory)
    path = tmp_path / "matrix"
    engine, tiles = ReferenceUnifrac(problem), tiles_of(45)
    assert len(tiles) == 21
    first = Draft(path, kind, problem)
    for tile in tiles[:10]:
        first.add(tile, engine.tile(*tile))
    first.matrix  # noqa: B018  # waits
    with first._journal.open("a") as journal:
        journal.write("8 1")  # a line that was not finished
    is_whole = whole_bands(45, np.dtype(problem.kind).itemsize) > 0
    del first
    monkeypatch.setattr(matrix_module, "host_memory", lambda: 4 * (memory // 2))
    again = Draft(path, kind, problem)
    assert len(again.done) == (6 if is_whole else 10)
    assert not path.exists()
    for tile in tiles:
        is_done = name_of(tile) in again.done
        again.add(tile, again.block(tile) if is_done else engine.tile(*tile))
    again.finish({"pcoa_method": np.array([b"FSVD"])})
    assert [file.name for file in tmp_path.iterdir()] == ["matrix"]
    if kind == "npy":
        stored = np.load(path)
    else:
        matrix = read_matrix(str(path))
        assert matrix.ids == problem.samples.ids
        stored = matrix.data.astype(problem.kind)
    assert (stored == whole(problem)).all()


def test_bands_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALLEST_TILE", 256)
    for gigabytes, bands in ((1, 0), (12, 6), (24, 14), (64, 16)):
        monkeypatch.setattr(matrix_module, "host_memory", lambda size=gigabytes: size << 30)
        assert whole_bands(50_085, 8) == bands


def test_a_full_disk_is_told_of_first(
    problem: UnifracProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_module.shutil, "disk_usage", lambda _: (1, 1, 100))
    with pytest.raises(InputError, match=r"a matrix of 0\.0 GB, and 0\.0 GB of the disk are free"):
        Draft(tmp_path / "m.npy", "npy", problem)


@pytest.mark.parametrize("is_refused", [False, True])
def test_rows_past_the_cache(
    is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ways of writing, tried in turns, make one matrix; a file system may know one alone."""
    monkeypatch.setattr(matrix_module, "LEAST_DIRECT", 1)
    monkeypatch.setattr(matrix_module, "RETRIED", 2)
    values = np.random.default_rng(1).random((2_000, 301))
    path = tmp_path / "rows"
    path.write_bytes(bytes(100 + values.nbytes))
    file = RowsFile(path, is_read=False)
    if not file.is_direct:
        pytest.skip("a file system without O_DIRECT")
    if is_refused:
        own, real = file._direct, os.pwrite

        def refuse(number: int, data: memoryview, at: int) -> int:
            if number == own:
                raise OSError(errno.EINVAL, "refused")
            return real(number, data, at)

        monkeypatch.setattr(os, "pwrite", refuse)

    def write(first: int) -> None:
        rows = values[first : first + 23]
        at = 100 + first * 301 * 8
        strip = empty_at(at, rows.shape, rows.dtype)
        strip[:] = rows
        file.write(strip, at)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(0, 2_000, 23)))
    assert is_refused or all(file._pace.values())
    assert file.is_direct != is_refused
    file.close()
    assert path.read_bytes() == bytes(100) + values.tobytes()


def test_a_draft_of_something_else_is_not_used(problem: UnifracProblem, tmp_path: Path) -> None:
    path = tmp_path / "matrix"
    draft = Draft(path, "npy", problem)
    for tile in tiles_of(45)[:6]:
        draft.add(tile, ReferenceUnifrac(problem).tile(*tile))
    draft.matrix  # noqa: B018  # waits
    assert len(Draft(path, "npy", problem).done) == 6
    other = UnifracProblem(problem.samples, Metric("unweighted"), problem.single)
    assert not Draft(path, "npy", other).done


def test_hdf5_is_ssu_s(problem: UnifracProblem, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    draft = Draft(tmp_path / "m.h5", "hdf5", problem)
    for tile, block in computed([ReferenceUnifrac(problem)], tiles_of(45)):
        draft.add(tile, block)
    with h5py.File(draft.finish({})) as store:
        assert store["order"][:2].tolist() == [b"s0", b"s1"]
        assert store["matrix"].dtype == problem.kind
        assert store["format"][()].tolist() == [b"BDSM"]
        assert store["version"][()].tolist() == [b"2020.12"]


@pytest.mark.parametrize("parts", [1, 3, 30])
def test_parts_join_to_the_same_bits(parts: int, problem: UnifracProblem, tmp_path: Path) -> None:
    paths = [tmp_path / f"part{i}" for i in range(parts)]
    for number, path in enumerate(paths, 1):
        file = PartFile(path, problem, (number, parts))
        for place_, tile in enumerate(file.tiles):
            if place_ == 2:  # killed in the midst of a tile
                file._file.write(b"torn")
                file._file.close()
                file = PartFile(path, problem, (number, parts))
                assert file.done == 2
            file.add(ReferenceUnifrac(problem).tile(*tile))
        file.finish()
    matrix = np.zeros((45, 45), problem.kind)
    for tile, block in merged(paths, problem):
        fill(matrix, tile, block)
    assert (matrix == whole(problem)).all()
    with pytest.raises(InputError, match="of another table, tree or metric"):
        list(merged(paths, UnifracProblem(problem.samples, Metric("unweighted"), problem.single)))
    paths[-1].write_bytes(paths[-1].read_bytes()[:-8])
    with pytest.raises(InputError, match="not whole"):
        list(merged(paths, problem))
    paths[0].unlink()
    with pytest.raises(InputError, match="this part of the matrix is missing"):
        list(merged(paths, problem))


def test_engines_share_tiles_in_order(problem: UnifracProblem) -> None:
    engines = [ReferenceUnifrac(problem) for _ in range(3)]
    tiles = tiles_of(45)
    results = list(computed(engines, tiles))
    assert [tile for tile, _ in results] == tiles
    reference = whole(problem)
    for tile, block in results:
        assert (block == reference[tile]).all()


def test_an_engine_s_error_comes_out() -> None:
    class Broken:
        def faith(self) -> np.ndarray:
            return np.zeros(1)

        def tile(self, rows: slice, columns: slice) -> np.ndarray:
            raise Killed

    with pytest.raises(Killed):
        list(computed([Broken()], tiles_of(45)))


@pytest.mark.parametrize("k", [1, 4, 60])
@pytest.mark.parametrize("n", [1, 2, 45])
def test_nearest(k: int, n: int) -> None:
    rng = np.random.default_rng(k)
    matrix = np.round(rng.random((n, n)), 1)  # many are equally near
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    nearest = Nearest(n, k)
    blocks = list(MatrixBlocks(matrix))
    for i in rng.permutation(len(blocks)):
        nearest.add(*blocks[i])
    index, distance = nearest.table
    expected = matrix + np.diag(np.full(n, np.inf))
    order = np.argsort(expected, axis=1, kind="stable")[:, : min(k, n - 1)]
    assert (index == order).all()
    assert (distance == np.take_along_axis(expected, order, 1)).all()
    lines = list(nearest.lines([f"s{i}" for i in range(n)]))
    assert len(lines) == 1 + n * min(k, n - 1)


def test_tsv_is_read_again(tmp_path: Path) -> None:
    matrix = np.array([[0, 1 / 3], [1 / 3, 0]])
    path = tmp_path / "m.tsv"
    path.write_text("".join(tsv_lines(matrix, ["a", "b c"])))
    stored = read_matrix(str(path))
    assert stored.ids == ("a", "b c")
    assert (stored.ordered(["b c", "a"]) == matrix[::-1, ::-1]).all()
    with pytest.raises(InputError, match="1 samples are not in the other matrix"):
        stored.ordered(["a", "x"])
    path.write_text("\ta\tb\na\t0\t1\n")
    with pytest.raises(InputError, match="not square"):
        read_matrix(str(path))
    path.write_text("nothing here")
    with pytest.raises(InputError, match="not a matrix|not square"):
        read_matrix(str(path))


def test_names_of_drafts_do_not_end_as_results() -> None:
    assert DRAFT == ".unfinished"
    assert Tile(slice(0, 2), slice(0, 3)).pairs == 6
