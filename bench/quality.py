"""``bench search`` and ``bench analyses``: mltree beside the rivals.

A search is timed and judged over alignments and seeds; a whole analysis (model choice, tree,
SH-aLRT, ultrafast bootstrap) is one command of each program, on one core.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from bench import processes
from bench.contenders import ONE_THREAD, Contender
from bench.data import Dataset, sha256
from bench.provenance import ROOT
from bench.race import Race
from bench.results import Row, Run, identity, repeated
from bench.rivals import Rival
from bench.table1 import judge_rows
from mltree.data.alignments import read_alignment

__all__ = ["ANALYSED", "SHIPPED", "Field", "measure", "measure_analyses"]

SHIPPED = ("primates", "animals", "frogs", "laurasiatherian", "carnivores", "proteins")
"""Alignments of ``datasets/`` that a run takes unless others are named."""

LEAST = 1.0
"""Seconds below which a process is not worth its start."""


@dataclass(frozen=True)
class Field:
    """The programs that run."""

    presets: Sequence[str]
    contenders: Sequence[Contender]
    rivals: Sequence[Rival]
    threads: Sequence[int]
    """Of each rival."""


@dataclass(frozen=True)
class Entry:
    """One contender with one seed on one dataset."""

    race: Race
    dataset: Dataset
    contender: Contender | None = None
    rival: Rival | None = None
    threads: int = 1
    """Of the rival."""

    def identity(self) -> str:
        """What its row will be about."""
        if self.rival is not None:
            row = self.race.row(self.rival.title, "rival", self.threads, self.dataset)
        else:
            assert self.contender is not None
            row = self.race.row(self._title(), "mltree", self.contender.threads, self.dataset)
        return identity(row)

    def run(self, deadline: float, earlier: Row | None) -> Row | None:
        """Its row; None if it cannot be run, or ``earlier`` says all that could be found out.

        ``deadline`` is a moment of ``time.monotonic``.
        """
        allowed = min(self.race.timeout, deadline - time.monotonic())
        late = earlier is not None and earlier["status"] == "timeout"
        if allowed < LEAST or (earlier and not (late and earlier["limit_s"] < allowed - LEAST)):
            return None
        race = replace(self.race, timeout=allowed)
        if self.rival is not None:
            row = race.rival(self.rival, self.threads, self.dataset)
            return None if row["status"] == "not run" else row
        assert self.contender is not None
        return {**race.mltree(self.contender, self.dataset), "contender": self._title()}

    def _title(self) -> str:
        assert self.contender is not None
        return f"{self.race.preset} preset, {self.contender.name}"


def measure(
    run: Run,
    race: Race,
    datasets: Sequence[Dataset],
    seeds: Sequence[int],
    field: Field,
    judge: Contender | None,
    *,
    within: float = float("inf"),
    resume: bool = False,
) -> None:
    """Fill the run with a row per dataset, seed and contender; lnLs by one judge.

    What has not ended ``within`` so many seconds is late. With ``resume`` rows that the run has
    already are kept, but for those that were late earlier than they would be now.
    """
    deadline = time.monotonic() + within
    seen = run.seen() if resume else {}
    alignments = run.settings.setdefault("alignments", {})
    for dataset in datasets:
        alignments[dataset.name] = {
            "model": dataset.model,
            "origin": dataset.origin,
            "sha256": sha256(dataset.alignment),
        }
    entries = [
        entry
        for dataset in datasets
        for seed in seeds
        for entry in _entries(replace(race, seed=seed), dataset, field)
    ]
    for row in _rows(entries, race.jobs, deadline, seen):
        _add(run, row)
    for dataset in datasets if judge is not None else ():
        rows = [row for row in run.rows if row["dataset"] == dataset.name]
        assert judge is not None
        judge_rows(run, dataset, rows, judge)


def _entries(race: Race, dataset: Dataset, field: Field) -> Iterator[Entry]:
    for preset in field.presets:
        for contender in field.contenders:
            yield Entry(replace(race, preset=preset), dataset, contender)
    for rival in field.rivals:
        for threads in field.threads:
            yield Entry(race, dataset, rival=rival, threads=threads)


def _rows(
    entries: Sequence[Entry], jobs: int, deadline: float, seen: dict[str, Row]
) -> Iterator[Row]:
    """Rows as they come in: mltree's one by one, those of rivals ``jobs`` at a time."""

    def row(entry: Entry) -> Row | None:
        return entry.run(deadline, seen.get(entry.identity()))

    for entry in entries:
        if (jobs == 1 or entry.rival is None) and (found := row(entry)) is not None:
            yield found
    with ThreadPoolExecutor(jobs) as pool:
        together = [entry for entry in entries if jobs > 1 and entry.rival is not None]
        for future in as_completed([pool.submit(row, entry) for entry in together]):
            if (found := future.result()) is not None:
                yield found


def _add(run: Run, row: Row) -> None:
    run.add(row)
    clock = row.get("whole_s") or row.get("user_s")
    seconds = clock["median"] if clock else row["status"]
    who = f"{row['contender']} x{row['threads'] or ''}"
    print(f"{row['dataset']} seed {row['seed']} {who}: {seconds}", flush=True)


# Whole analyses: model choice, tree, SH-aLRT and ultrafast bootstrap by one command on one core.

ANALYSED = (
    "primates", "animals", "sim24x400lg", "proteins", "laurasiatherian", "frogs", "sim123x700",
    "sim200x500",
)  # fmt: skip
"""Alignments of 12 to 200 taxa, of DNA and of proteins."""

REPLICATES = 1000
"""Replicates of SH-aLRT and of the ultrafast bootstrap."""

HALF = 0.5
"""CPU seconds of mltree, at most, as a share of IQ-TREE's."""

NO_WORSE = 0.1
"""Units of lnL and of BIC within which results are equally good."""

_PIQTREE = """
import sys, _piqtree
path, seed, options = sys.argv[1:]
rows = [line.split(None, 1) for line in open(path).read().splitlines()[1:] if line.strip()]
names, sequences = [row[0] for row in rows], ["".join(row[1].split()) for row in rows]
_piqtree.iq_build_tree(names, sequences, "MFP", int(seed), 1000, 1, options)
"""
"""Program for the Python of an environment with piqtree, which has IQ-TREE as a library."""


_LAUNCHER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
with open("peak", "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
"""Small process that starts another: a child's peak memory begins with that of its parent."""

KIB = 1 << 10


@dataclass(frozen=True)
class Analyst:
    """A program that makes a whole analysis of ``alignment.phy`` in its working folder."""

    name: str
    kind: str
    command: Sequence[str]
    answer: Callable[[Path], Row]
    """Its model, lnL and BIC."""


def measure_analyses(
    run: Run, datasets: Sequence[Dataset], iqtree: str, seed: int, timeout: float
) -> None:
    """Fill the run with a row for mltree and one for IQ-TREE on each alignment, one at a time.

    ``iqtree``: an IQ-TREE program, or the Python of an environment with piqtree. mltree runs once
    before it is timed, so that its kernels are built.
    """
    for dataset in datasets:
        rows = {}
        for analyst in (_mltree(seed), _iqtree(iqtree, seed)):
            if analyst.kind == "mltree":
                _analysis(analyst, dataset, timeout)
            row = _analysis(analyst, dataset, timeout)
            row["seed"] = seed
            if row["status"] == "done":
                rows[analyst.kind] = row
            run.add(row)
            told = ("dataset", "contender", "status", "cpu_s", "lnl", "bic")
            print({name: row.get(name) for name in told}, flush=True)
        if len(rows) == 2:
            _check_analyses(run, dataset, rows["mltree"], rows["rival"])


def _check_analyses(run: Run, dataset: Dataset, own: Row, other: Row) -> None:
    """Half the CPU seconds at most, and lnL and BIC that are no worse."""
    share = own["cpu_s"]["median"] / other["cpu_s"]["median"]
    for what, value, holds in (
        ("share of IQ-TREE's CPU seconds", share, share <= HALF),
        ("lnL above IQ-TREE's", own["lnl"] - other["lnl"], own["lnl"] >= other["lnl"] - NO_WORSE),
        ("BIC above IQ-TREE's", own["bic"] - other["bic"], own["bic"] <= other["bic"] + NO_WORSE),
    ):
        run.check(what=what, dataset=dataset.name, value=round(value, 3), holds=bool(holds))


def _analysis(analyst: Analyst, dataset: Dataset, timeout: float) -> Row:
    """A row: seconds, memory, model, lnL and BIC of one program on one alignment."""
    read = read_alignment(dataset.alignment)
    row: Row = {
        "contender": analyst.name,
        "kind": analyst.kind,
        "dataset": dataset.name,
        "taxa": len(read.names),
        "sites": read.characters.shape[1],
        "data": read.alphabet.name,
        "threads": 1,
        "load_average": round(os.getloadavg()[0], 2),
    }
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**ONE_THREAD, **({"PYTHONPATH": paths} if analyst.kind == "mltree" else {})}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name).resolve()
        shutil.copyfile(dataset.alignment, folder / "alignment.phy")
        command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *analyst.command]
        ended = processes.run(command, folder, timeout, environment)
        row["status"] = ended.status
        if ended.status != "done":
            return {**row, "output": ended.output[-500:]}
        return {
            **row,
            "cpu_s": repeated([ended.user + ended.system]),
            "whole_s": repeated([ended.wall]),
            "peak_memory": int((folder / "peak").read_text()) * KIB,
            **analyst.answer(folder),
        }


def _mltree(seed: int) -> Analyst:
    command = [sys.executable, "-m", "mltree", "search", "alignment.phy", "--model", "auto",
               "--ufboot", str(REPLICATES), "--sh-alrt", str(REPLICATES), "--threads", "1",
               "--seed", str(seed), "--prefix", "x"]  # fmt: skip

    def answer(folder: Path) -> Row:
        result = json.loads((folder / "x.mltree.json").read_text(encoding="utf-8"))
        (table,) = json.loads((folder / "x.mltree.modelTest").read_text(encoding="utf-8"))
        best = table["best"]["bic"]
        free = next(one["parameters"] for one in table["models"] if one["model"] == best)
        lnl, sites = result["lnl"], result["data"]["sites"]
        bic = free * math.log(sites) - 2 * lnl
        return {"model": best, "lnl": round(lnl, 4), "bic": round(bic, 4)}

    return Analyst("mltree", "mltree", command, answer)


def _iqtree(program: str, seed: int) -> Analyst:
    if Path(program).name.startswith("python"):
        options = f"-alrt {REPLICATES} -seed {seed}"
        command = [program, "-c", _PIQTREE, "alignment.phy", str(seed), options]
    else:
        command = [program, "-s", "alignment.phy", "-m", "MFP", "-B", str(REPLICATES), "-alrt",
                   str(REPLICATES), "-T", "1", "-seed", str(seed)]  # fmt: skip

    def answer(folder: Path) -> Row:
        (report,) = folder.glob("*.iqtree")
        text = report.read_text(encoding="utf-8", errors="replace")
        return {
            "program": _said(r"^IQ-TREE (\S+)", text),
            "model": _said(r"Best-fit model according to BIC: (\S+)", text),
            "lnl": float(_said(r"Log-likelihood of the tree: (\S+)", text)),
            "bic": float(_said(r"\(BIC\) score: (\S+)", text)),
        }

    return Analyst("IQ-TREE", "rival", command, answer)


def _said(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else "nan"
