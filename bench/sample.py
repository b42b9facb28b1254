"""Bayesian samples: CPU seconds to agreement and to enough of them, beside MrBayes.

Each program is one process on one core, has the same priors, and is stopped when it has used its
CPU seconds. Meanwhile it is watched how many samples it has written by which CPU second.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from bench.contenders import ONE_THREAD
from bench.data import Dataset, Source
from bench.markdown import markdown_table
from bench.results import Row, Run
from mltree.sampling.mrbayes_files import files_of, read_runs
from mltree.sampling.summaries import Posterior, RunSamples
from mltree.system.errors import InputError

__all__ = ["SETS", "measure", "table"]

AGREEMENT, ENOUGH = 0.01, 625.0
"""ASDSF, and effective samples of the slowest split, that are waited for."""

WATCHED = 0.5
"""Seconds between two looks at a process."""

FEWEST = 20
"""Samples of a run from which on its splits are compared."""

LOOKS = 60
"""Numbers of samples, in equal ratios, at which ASDSF is computed."""

MODELS = {
    "JC": "lset nst=1; prset statefreqpr=fixed(equal);",
    "GTR+FO+G4": "lset nst=6 rates=gamma ngammacat=4;",
}
"""Models as mltree has them, and MrBayes' commands for the same ones with the same priors."""

SETS = {"primates": "GTR+FO+G4", "sim27x1949": "JC"}
"""Alignments and their models; the second is of the size of DS1."""

PRIORS = 'branch_lengths = "Exponential(10)"\n'
MRBAYES_PRIORS = "prset brlenspr=unconstrained:exp(10.0) shapepr=exponential(1.0);"

THINNED = 100
"""MrBayes' generations from a sample to the next."""


class Watch(NamedTuple):
    """Samples that a process had written at some time."""

    cpu: float
    """CPU seconds used, of the process and its children."""
    rows: int
    """Samples of the first run."""


class _Sampling(NamedTuple):
    name: str
    command: list[str]
    prefix: str
    burn_in: float
    """Share of each run that the program leaves out by default."""


def measure(run: Run, source: Source, sets: Sequence[str], cpu: float) -> None:
    """Add a row for each program and alignment: ``cpu`` CPU seconds each, one after the other."""
    for name in sets:
        model = SETS.get(name, "GTR+FO+G4")
        dataset = source.dataset(name)
        for one in _samplings(dataset, model, source.seed):
            with TemporaryDirectory() as folder:
                _prepare(Path(folder), dataset, model, source.seed)
                watched, status = _watch(one.command, Path(folder), cpu)
                row = _findings(str(Path(folder, one.prefix)), watched, one.burn_in)
            run.add(
                {
                    "what": "sampling", "kind": "mltree" if one.name == "mltree" else "rival",
                    "contender": one.name, "dataset": name, "model": model, "threads": 1,
                    "status": status, "load": os.getloadavg()[0], **row,
                }
            )  # fmt: skip


def table(run: Run) -> str:
    """The rows as a Markdown table."""
    head = (
        "alignment, model", "program", "CPU s", "of burn-in", f"to ASDSF < {AGREEMENT:g}",
        f"to ESS {ENOUGH:.0f} of splits", "slowest split's ESS/s", "lnL's ESS/s",
    )  # fmt: skip
    body = [
        [
            f"{row['dataset']}, {row['model']}",
            row["contender"],
            *(_shown(row.get(key)) for key in _KEYS),
        ]
        for row in run.rows
    ]
    return markdown_table(head, body)


_KEYS = ("cpu", "burn_in_cpu", "cpu_to_asdsf", "cpu_to_ess", "split_ess_rate", "lnl_ess_rate")


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _samplings(dataset: Dataset, model: str, seed: int) -> Iterator[_Sampling]:
    mltree = [
        sys.executable, "-m", "mltree", "sample", str(dataset.alignment), "--model", model,
        "--prior", "prior.toml", "--stop", "100000000", "--seed", str(seed), "--threads", "1",
        "--prefix", "ours",
    ]  # fmt: skip
    yield _Sampling("mltree", mltree, "ours", 0.0)
    if (mrbayes := shutil.which("mb")) is not None:
        yield _Sampling("MrBayes", [mrbayes, "data.nex"], "theirs", 0.25)


def _prepare(folder: Path, dataset: Dataset, model: str, seed: int) -> None:
    """Write the files that both programs read."""
    Path(folder, "prior.toml").write_text(PRIORS)
    convert = [sys.executable, "-m", "mltree", "convert", str(dataset.alignment)]
    subprocess.run([*convert, "-o", "data.nex", "-q"], cwd=folder, check=True)
    commands = (
        f"set autoclose=yes nowarn=yes usebeagle=no seed={seed} swapseed={seed}; "
        f"{MODELS[model]} {MRBAYES_PRIORS} mcmc ngen=1000000000 samplefreq={THINNED} "
        f"printfreq=100000 diagnfreq=100000000 nruns=2 nchains=4 checkpoint=no filename=theirs;"
    )
    with Path(folder, "data.nex").open("a") as file:
        file.write(f"begin mrbayes;\n{commands}\nend;\n")


def _watch(command: Sequence[str], folder: Path, cpu: float) -> tuple[list[Watch], str]:
    """Run a process until it has used so many CPU seconds, and stop it then."""
    with Path(folder, "output.txt").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
    watched: list[Watch] = []
    while process.poll() is None:
        time.sleep(WATCHED)
        with suppress(OSError, IndexError):
            watched.append(Watch(_cpu_of(process.pid), _rows(folder)))
        if watched and watched[-1].cpu >= cpu:
            break
    is_stopped = process.poll() is None
    if is_stopped:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)  # MrBayes takes no notice
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if watched:
        watched.append(Watch(watched[-1].cpu, _rows(folder)))
    return watched, "done" if is_stopped else "failed"


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _rows(folder: Path) -> int:
    """Samples in the table of the first run; 0 before there is one."""
    found = sorted(folder.glob("*.run1.p"))
    return max(0, found[0].read_bytes().count(b"\n") - 2) if found else 0


def _findings(prefix: str, watched: Sequence[Watch], burn_in: float) -> Row:
    """Rates and times of a sample; None where they cannot be said."""
    total = watched[-1].cpu if watched else 0.0
    row: Row = {"cpu": total, "samples": 0}
    try:
        runs, _ = read_runs(files_of(prefix))
        posterior = Posterior.of(runs, burn_in)
    except InputError:
        return row
    samples = min(len(run.values) for run in runs)
    begun = _begun(watched)
    spent = total - begun  # CPU seconds in which all samples came
    ess = posterior.split_ess
    slowest = float(np.min(ess)) if len(ess) else None
    lnl = posterior.ess["LnL"]
    share = 1 - burn_in
    rate = None if slowest is None else slowest / (spent * share)
    return row | {
        "samples": samples,
        "burn_in_cpu": begun + spent * burn_in,
        "asdsf": posterior.asdsf,
        "cpu_to_asdsf": _agreed(runs, burn_in, begun, spent),
        "cpu_to_ess": None if rate is None else begun + ENOUGH / rate / share,
        "split_ess": slowest,
        "split_ess_rate": rate,
        "lnl_ess": lnl,
        "lnl_ess_rate": lnl / (spent * share),
    }


def _begun(watched: Sequence[Watch]) -> float:
    """CPU seconds before the first sample: where the line of samples over CPU seconds begins."""
    changed = [b for a, b in pairwise(watched) if b.rows > a.rows]
    if len(changed) < 2:
        return max((watch.cpu for watch in watched if watch.rows == 0), default=0.0)
    first, last = changed[0], changed[-1]
    pace = (last.rows - first.rows) / max(1e-9, last.cpu - first.cpu)
    return min(max(0.0, first.cpu - first.rows / pace), first.cpu)


def _agreed(runs: Sequence[RunSamples], burn_in: float, begun: float, spent: float) -> float | None:
    """CPU seconds after which runs agreed, and did so to the end; None if they did not."""
    whole = min(min(len(run.values), run.trees.n_trees if run.trees else 0) for run in runs)
    if whole < FEWEST:
        return None
    reached = None
    for count in np.unique(np.geomspace(FEWEST, whole, LOOKS).astype(int))[::-1].tolist():
        part = [
            replace(
                run, values=run.values[:count], generations=run.generations[:count],
                trees=run.trees and run.trees.part(0, count),
            )
            for run in runs
        ]  # fmt: skip
        asdsf = Posterior.of(part, burn_in).asdsf
        if math.isnan(asdsf) or asdsf >= AGREEMENT:
            break
        reached = begun + spent * count / whole
    return reached
