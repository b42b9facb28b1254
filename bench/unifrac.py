"""``bench unifrac``: whole runs on tables of published shapes, beside ``ssu``, and kernels alone.

Tables are simulated: a random tree whose tips stand in order, environments with pools of their own
of tips that cluster there, lognormal abundances, one depth. Shapes are those of McDonald et al.
2018, Nature Methods 15:847, and Sfiligoi et al. 2022, mSystems 7:e00028-22.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench.processes import Finished
from bench.processes import run as run_process
from bench.results import Row, Run, repeated
from mltree.device.discovery import choose_devices
from mltree.device.unifrac import DeviceUnifrac
from mltree.diversity.branches import place
from mltree.diversity.table import h5py, read_table
from mltree.diversity.unifrac import UnifracProblem, metrics_of, tiles_of

__all__ = ["SHAPES", "SMOKE", "kernel_times", "measure", "simulated"]

SHAPES = {
    "1000": (1_000, 20_000),
    "5452": (5_452, 100_000),
    "10000": (10_000, 124_904),
    "25145": (25_145, 249_492),
    "50085": (50_085, 307_054),
    "113721": (113_721, 752_131),
    "307237": (307_237, 1_264_795),
}
"""Samples and tips by name."""

SMOKE = (60, 400)

ENVIRONMENTS, CLUSTER, DEPTH = 40, 25, 1_000
"""Pools of tips; tips of a cluster in a pool; counts of a sample."""

SLAB = 1_000
"""Samples that a process draws at a time."""

TIMED = 60_000
"""Samples up to which kernels alone are timed: they go over the matrix once more."""

INTEGERS, OPERATIONS = 64, {4: 2, 8: 6}
"""32-bit integers that a compute unit of NVIDIA's takes in a cycle, and those that a minimum and a
sum of so many bytes need."""


def simulated(folder: Path, samples: int, tips: int, seed: int) -> tuple[str, Path, Path]:
    """A table (BIOM 2.1) and a tree of this shape, kept in a folder, and their name."""
    folder.mkdir(parents=True, exist_ok=True)
    table, tree = (folder / f"unifrac-{samples}-{tips}-{seed}.{kind}" for kind in ("biom", "nwk"))
    if not (table.exists() and tree.exists()):
        rng = np.random.default_rng(seed)
        tree.write_text(_newick(rng, tips))
        _write_table(rng, table, samples, tips)
    return f"{samples} x {tips}", table, tree


def _newick(rng: np.random.Generator, tips: int) -> str:
    """A random tree whose tips are numbered from left to right; short branches above many tips."""
    parts: list[str] = []
    stack: list[tuple[int, int] | str] = [(0, tips)]
    draws = iter(rng.random(4 * tips).tolist())
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        first, stop = item
        length = f":{0.001 + 0.2 * next(draws) / (stop - first) ** 0.3:.5f}"
        if stop - first == 1:
            parts.append(f"t{first}{length}")
        else:
            middle = first + 1 + int(next(draws) * (stop - first - 1))
            parts.append("(")
            stack += [f"){length}", (middle, stop), ",", (first, middle)]
    return "".join(parts).rpartition(":")[0] + ";\n"  # ssu passes over a root's length


def _write_table(rng: np.random.Generator, path: Path, samples: int, tips: int) -> None:
    """The counts of every sample, drawn from the pool of one environment."""
    pools = []
    for _ in range(ENVIRONMENTS):
        size = int(rng.integers(2_000, 9_000)) // CLUSTER + 1
        centres = rng.choice(tips, min(size, tips), replace=False)
        near = centres[:, None] + rng.integers(-40, 41, (centres.size, CLUSTER))
        pool = np.unique(np.clip(near, 0, tips - 1))
        pools.append((pool, np.exp(rng.normal(0, 2.5, pool.size))))
    slabs = [(rng.integers(1 << 62), min(SLAB, samples - i)) for i in range(0, samples, SLAB)]
    with ProcessPoolExecutor(initializer=_POOLS.extend, initargs=(pools,)) as workers:
        drawn = list(workers.map(_drawn, slabs))
    columns, counts, sizes = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    is_used = np.zeros(tips, bool)
    is_used[columns] = True
    used = np.flatnonzero(is_used)
    indices = (np.cumsum(is_used, dtype=np.int32) - 1)[columns]
    module = h5py()
    with module.File(path, "w") as store:
        attributes: dict[str, Any] = {"id": "simulated", "type": "OTU table"}
        attributes["format-version"] = np.array([2, 1])
        attributes |= {"shape": np.array([used.size, samples]), "nnz": len(indices)}
        attributes |= {"format-url": "http://biom-format.org", "generated-by": "mltree bench"}
        store.attrs.update({**attributes, "creation-date": "2026-01-01T00:00:00"})
        keys = indices.astype(np.int64) * len(indices) + np.arange(len(indices))
        keys.sort()
        order = keys % len(indices)
        entries = np.repeat(np.arange(samples, dtype=np.int32), sizes)
        rows = np.concatenate(([0], np.cumsum(np.bincount(indices))))
        axes = (
            ("sample", [f"S{i:06d}" for i in range(samples)], counts, indices, indptr),
            ("observation", [f"t{tip}" for tip in used], counts[order], entries[order], rows),
        )
        for axis, ids, data, inner, starts in axes:
            group = store.create_group(axis)
            group.create_dataset("ids", data=np.array(ids, object), dtype=module.string_dtype())
            group.create_group("metadata")
            group.create_group("group-metadata")
            group["matrix/data"], group["matrix/indices"] = data.astype(np.float64), inner
            group["matrix/indptr"] = starts.astype(np.int32)


_POOLS: list[tuple[Any, Any]] = []
"""Tips and abundances of every environment, in a process that draws samples."""


def _drawn(slab: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Tips and counts of so many samples, and how many tips each has; from a seed."""
    seed, samples = slab
    rng = np.random.default_rng(seed)
    columns, counts, sizes = [], [], []
    for _ in range(samples):
        pool, abundance = _POOLS[rng.integers(ENVIRONMENTS)]
        weight = abundance * np.exp(rng.normal(0, 1.5, pool.size)) * (rng.random(pool.size) < 0.5)
        weight[rng.integers(pool.size)] += 1e-9
        drawn = rng.multinomial(DEPTH, weight / weight.sum())
        found = np.flatnonzero(drawn)
        columns.append(pool[found].astype(np.int32))
        counts.append(drawn[found].astype(np.int32))
        sizes.append(found.size)
    return np.concatenate(columns), np.concatenate(counts), np.array(sizes)


def measure(
    run: Run,
    data: Sequence[tuple[str, Path, Path]],
    metrics: Sequence[str],
    *,
    precisions: Sequence[str],
    matrix: str,
    ssu: str | None,
    threads: int | None,
    device: str | None,
    repetitions: int,
    timeout: float,
) -> None:
    """Fill the run with whole processes, mltree's and ``ssu``'s in turns, and kernels alone.

    data  of each table its name, its file, and the file of its tree
    """
    for dataset, *paths in data:
        table, tree = (Path(path).resolve() for path in paths)
        for metric in metrics:
            for precision in precisions:
                shape: Row = {"dataset": dataset, "kind": metric, "precision": precision}
                commands = {"mltree": _command(table, tree, metric, precision, matrix, device)}
                if threads is not None:
                    commands["mltree"] += ["--threads", str(threads)]
                if ssu is not None:
                    bits = "fp32" if precision == "single" else "fp64"
                    commands["ssu"] = [ssu, "-i", str(table), "-t", str(tree), "-o", "y.h5",
                                       "-m", f"{metric}_{bits}", "-r", f"hdf5_{bits}",
                                       "--pcoa", "0"]  # fmt: skip
                with tempfile.TemporaryDirectory() as folder:  # the kernels are compiled before
                    _, *small = simulated(Path(folder), *SMOKE, 1)
                    command = _command(small[0], small[1], metric, precision, "none", device)
                    run_process(command, Path(folder), timeout)
                for name, results in _in_turns(commands, threads, repetitions, timeout).items():
                    run.add({"contender": name, **shape, "matrix": matrix, **_times(results)})
                run.add({"contender": "kernels", **shape, **kernel_times(
                    table, tree, metric, precision, device)})  # fmt: skip
                run.save()


def _command(
    table: Path, tree: Path, metric: str, precision: str, matrix: str, device: str | None
) -> list[str]:
    command = [sys.executable, "-m", "mltree", "unifrac", str(table), "--tree", str(tree)]
    command += ["--metric", metric, "--precision", precision, "--matrix", matrix]
    command += ["--prefix", "x", "--redo", "--quiet"]
    return command if device is None else [*command, "--device", device]


def _in_turns(
    commands: dict[str, list[str]], threads: int | None, repetitions: int, timeout: float
) -> dict[str, list[Finished]]:
    """Each command as often as wanted, in a new folder each time: to remove a file takes time."""
    import os

    environment = dict(os.environ)
    if threads is not None:
        environment |= {"OMP_NUM_THREADS": str(threads), "POCL_MAX_PTHREAD_COUNT": str(threads)}
    results: dict[str, list[Finished]] = defaultdict(list)
    for _ in range(repetitions):
        for program, command in commands.items():
            with tempfile.TemporaryDirectory() as folder:
                results[program].append(run_process(command, Path(folder), timeout, environment))
    return results


def _times(results: Sequence[Finished]) -> Row:
    failed = next((one for one in results if one.status != "done"), None)
    if failed is not None:
        return {"status": failed.status, "output": failed.output}
    return {
        "status": "done",
        "wall_s": repeated([one.wall for one in results]),
        "cpu_s": repeated([one.user + one.system for one in results]),
        "peak_bytes": max(one.peak for one in results),
    }


class _Timed(DeviceUnifrac):
    """Counts seconds and launches of every kernel; waits for each."""

    seconds: dict[str, float]

    def _launch(self, name: str, size: Any, local: Any, arguments: Any) -> None:
        if not hasattr(self, "seconds"):
            self.seconds = defaultdict(float)
        self._memory.queue.finish()
        start = time.perf_counter()
        super()._launch(name, size, local, arguments)
        self._memory.queue.finish()
        self.seconds[name] += time.perf_counter() - start


def kernel_times(table: Path, tree: Path, metric: str, precision: str, device: str | None) -> Row:
    """Seconds of every kernel over the whole matrix, and the share of limits that is reached.

    A CPU has terms where a row has a common branch, a GPU of every row and common branch.
    """
    start = time.perf_counter()
    counts = read_table(str(table))
    reading = time.perf_counter() - start
    samples = place(counts, str(tree))
    placing = time.perf_counter() - start - reading
    parts = {"read_s": round(reading, 4), "place_s": round(placing, 4)}
    if samples.n_samples > TIMED:
        return {"status": "done", "branches": samples.branches.count, **parts}
    (chosen,) = metrics_of(metric)
    problem = UnifracProblem(samples, chosen, precision == "single")
    devices = choose_devices(device)
    if not devices:
        return {"status": "no device"}
    info = devices[0]
    start = time.perf_counter()
    engine = _Timed(problem, info.handle)
    loading = time.perf_counter() - start
    tiles = tiles_of(samples.n_samples)
    engine.tile(*tiles[0])  # compiles
    engine.seconds.clear()
    engine._columns = None
    start = time.perf_counter()
    for tile in tiles:
        engine.tile(*tile)
    wall = time.perf_counter() - start
    common: np.ndarray[Any, Any] = engine._memory.fetch("common", samples.n_samples, np.int32)
    before = np.concatenate(([0], np.cumsum(common.astype(np.int64))))
    terms = sum(
        (int(before[tile.rows.stop] - before[tile.rows.start]) if info.is_cpu
         else engine.n_common * (tile.rows.stop - tile.rows.start))
        * (tile.columns.stop - tile.columns.start)
        for tile in tiles
    )  # fmt: skip
    dense = engine.seconds.get("dense", 0.0)
    rate = terms / dense if dense else 0.0
    size = 4 if problem.is_short else 8
    handle = info.handle
    limit = handle.max_compute_units * INTEGERS * handle.max_clock_frequency * 1e6
    return {
        "status": "done",
        "device": info.name,
        "branches": samples.branches.count,
        "common": engine.n_common,
        "entries": engine._n_entries,
        **parts,
        "load_s": round(loading, 4),
        "tiles_s": round(wall, 4),
        "kernels_s": {name: round(spent, 4) for name, spent in engine.seconds.items()},
        "common_terms": terms,
        "terms_per_s": rate,
        "share_of_integers": None if info.is_cpu else round(rate * OPERATIONS[size] / limit, 4),
    }
