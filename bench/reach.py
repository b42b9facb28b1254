"""``bench reach``: whole runs as loci, taxa, sites and ranks grow, and whether their bits agree."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bench.processes import Finished
from bench.processes import run as run_process
from bench.results import Row, Run, repeated
from mltree.analyses.simulate import letters, sites
from mltree.data.alphabet import DNA
from mltree.models.grammar import parse_model
from mltree.tree.topology import random_topology

__all__ = ["AXES", "SMOKE", "Axes", "measure"]

Axes: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""Sizes and numbers of ranks, fewer ranks first: of loci, and of the taxa and the sites of one
alignment."""

AXES: Axes = {
    "loci": tuple((loci, ranks) for loci in (8, 32, 128) for ranks in (1, 2, 4)),
    "taxa": tuple((taxa, ranks) for taxa in (50, 100) for ranks in (1, 2, 4)),
    "sites": tuple((sites, ranks) for sites in (30_000, 120_000) for ranks in (1, 2, 4)),
}
SMOKE: Axes = {"loci": ((3, 1), (3, 2)), "taxa": ((12, 1), (12, 2)), "sites": ()}

TAXA, SITES = 20, 300
"""Of a locus."""

SEARCH_SITES = 8_000
"""Of the one alignment, as taxa grow."""

SEARCH_TAXA = 60
"""As sites grow; ranks share those out."""

MODEL = "GTR+G4"


def measure(
    run: Run,
    axes: Axes,
    repetitions: int,
    timeout: float,
    seed: int,
    by_mpi: bool,
) -> None:
    """Fill the run with a row per point, and a check of every one against the fewest ranks.

    Each rank has one thread. Without an mpiexec one rank is all that is measured by MPI.
    """
    starter = "mpiexec" if by_mpi else "--ranks"
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}") or shutil.which(
        "mpiexec"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole: dict[tuple[str, int], bytes] = {}
        every = [(axis, *point) for axis, points in axes.items() for point in points]
        for axis, size, ranks in every:
            if by_mpi and ranks > 1 and launcher is None:
                continue
            taxa, length = _shape(axis, size)
            if axis == "loci":
                what, kind = _loci(folder, size, seed), "bestTrees"
            else:
                what, kind = _alignment(folder, taxa, length, seed), "bestTree"
            command = [sys.executable, "-m", "mltree", "search", *what, "--model", MODEL,
                       "--prefix", "x", "--redo"]  # fmt: skip
            if by_mpi or ranks == 1:
                command += ["--threads", "1"]
            else:
                command += ["--ranks", str(ranks), "--threads", str(ranks)]
            if by_mpi and ranks > 1:
                command = [str(launcher), "-n", str(ranks), *command]
            found, first = [], []
            for _ in range(repetitions):
                found.append(run_process(command, folder, timeout))
                if axis != "loci":
                    first.append(_cpu_of_rank_0(folder))
            row = _row(axis, size, ranks, found, first)
            if ranks > 1:
                row["starter"] = starter
            run.add(row)
            print({key: row[key] for key in ("axis", "point", "status")}, flush=True)
            if row["status"] == "done":
                trees = (folder / f"x.mltree.{kind}").read_bytes()
                agree = whole.setdefault((axis, size), trees) == trees
                run.check(
                    what="bits of one rank", axis=axis, point=[size, ranks],
                    **({"starter": starter} if ranks > 1 else {}), holds=agree,
                )  # fmt: skip


def _cpu_of_rank_0(folder: Path) -> float:
    """CPU seconds of the first rank of a search, which has most to do; 0 where it did not end."""
    try:
        result = json.loads((folder / "x.mltree.json").read_text(encoding="utf-8"))
    except OSError:
        return 0.0
    return float(result["spent"]["cpu"])


def _shape(axis: str, size: int) -> tuple[int, int]:
    """Taxa and sites."""
    return {
        "loci": (TAXA, SITES), "taxa": (size, SEARCH_SITES), "sites": (SEARCH_TAXA, size),
    }[axis]  # fmt: skip


def _row(
    axis: str, size: int, ranks: int, found: Sequence[Finished], first: Sequence[float]
) -> Row:
    taxa, count = _shape(axis, size)
    row: Row = {"axis": axis, "point": [size, ranks], "taxa": taxa, "sites": count}
    failed = next((one for one in found if one.status != "done"), None)
    if failed is not None:
        return {**row, "status": failed.status, "output": failed.output}
    return {
        **row,
        "status": "done",
        "wall_s": repeated([one.wall for one in found]),
        "cpu_s": repeated([one.user for one in found]),
        **({"rank_0_cpu_s": repeated(first)} if first else {}),
    }


def _loci(folder: Path, count: int, seed: int) -> list[str]:
    """What names a folder of loci, each evolved along a tree of its own."""
    loci = folder / f"loci{count}"
    loci.mkdir(exist_ok=True)
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        _write(loci / f"{number:05d}.fa", TAXA, SITES, 0.05, rng)
    return [loci.name, "--preset", "fast"]


def _alignment(folder: Path, taxa: int, count: int, seed: int) -> list[str]:
    """What names an alignment of so many taxa and sites; a long one is searched by ``fast``."""
    file = folder / f"taxa{taxa}x{count}.fa"
    _write(file, taxa, count, 0.02, np.random.default_rng([seed, taxa]))
    return [file.name, *(["--preset", "fast"] if count > SEARCH_SITES else [])]


def _write(file: Path, taxa: int, count: int, length: float, rng: np.random.Generator) -> None:
    """Sequences under the model's defaults; ``length``: of a branch, in the mean."""
    tree = random_topology(taxa, rng)
    tree.lengths[:] = rng.exponential(length, tree.n_edges) + 1e-4
    rows = letters(sites(tree, parse_model("JC+G4{0.7}", DNA).arrays(), count, rng), DNA)
    text = "".join(f">t{tip}\n{row.tobytes().decode()}\n" for tip, row in enumerate(rows))
    file.write_text(text, encoding="utf-8")
