"""One contender, one alignment, one search: mltree's and the rivals' alike, each as a process."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contenders import ONE_THREAD, Contender
from bench.data import Dataset
from bench.processes import Finished, run
from bench.provenance import ROOT
from bench.results import Row, repeated
from bench.rivals import Job, NotRun, Rival
from mltree.data.alignments import read_alignment

__all__ = ["Race"]

LAPS = ("imports_s", "load_s", "open_s", "build_s", "search_s")
"""What a mltree process spends its time on; the rest of the whole is Python's own start."""

LINE = 80
"""Characters of a FASTA line."""


@dataclass(frozen=True)
class Race:
    """The terms of a race."""

    repetitions: int
    timeout: float
    """Seconds for one process."""
    seed: int
    preset: str
    """Of mltree; ``fast`` starts from the fixed tree, the others make their own starts."""
    jobs: int = 1
    """Rivals that run side by side; from two on their wall times are not kept."""

    def mltree(self, contender: Contender, dataset: Dataset) -> Row:
        """A row of results: one mltree contender on one dataset."""
        row = self.row(contender.name, "mltree", contender.threads, dataset)
        job = {
            "alignment": str(dataset.alignment),
            "model": dataset.model,
            "start": str(dataset.start) if dataset.start and self.preset == "fast" else None,
            "preset": self.preset,
            "seed": self.seed,
            "contender": contender.as_dict(),
        }
        core = _core(contender.threads)
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {"PYTHONPATH": paths, **(ONE_THREAD if contender.threads == 1 else {})}

        def attempt(folder: Path) -> tuple[Finished, dict[str, Any]]:
            (folder / "job.json").write_text(json.dumps(job))
            command = [sys.executable, "-W", "ignore", "-m", "bench.once", "job.json", "out.json"]
            ended = run(command, folder, self.timeout, environment, core)
            done = ended.status == "done"
            return ended, json.loads((folder / "out.json").read_text()) if done else {}

        return self._repeat(row, attempt)

    def rival(self, rival: Rival, threads: int, dataset: Dataset) -> Row:
        """A row of results: one rival on one dataset."""
        row = self.row(rival.title, "rival", threads, dataset)

        def attempt(folder: Path) -> tuple[Finished, dict[str, Any]]:
            alignment = folder / "alignment.phy"
            shutil.copyfile(dataset.alignment, alignment)
            _write_fasta(dataset.alignment, alignment.with_suffix(".fasta"))
            job = Job(folder, alignment, dataset.start, dataset.model, self.seed, threads)
            command = rival.command(job)
            environment = dict(rival.program.environment)
            core = _core(threads) if self.jobs == 1 else None
            ended = run(command, folder, self.timeout, environment, core)
            answer = rival.answer(folder) if ended.status == "done" else {}
            if ended.status == "done" and not answer:
                ended = Finished(ended.wall, ended.user, "failed", ended.output)
            return ended, answer

        if rival.program.note:
            row["note"] = rival.program.note
        if self.jobs > 1:
            row["side_by_side"] = self.jobs
        return self._repeat(row, attempt)

    def row(self, name: str, kind: str, threads: int | None, dataset: Dataset) -> Row:
        """The fields that say who, what and under which circumstances."""
        return {
            "contender": name,
            "kind": kind,
            "threads": threads,
            "dataset": dataset.name,
            "model": dataset.model,
            "seed": self.seed,
            "load_average": round(os.getloadavg()[0], 2),
        }

    def _repeat(self, row: Row, attempt: Callable[[Path], tuple[Finished, dict[str, Any]]]) -> Row:
        """The row with medians over the repetitions; a failure or time-out ends them."""
        walls, users, answers = [], [], []
        for _ in range(self.repetitions):
            with _folder() as folder:
                try:
                    ended, answer = attempt(folder)
                except NotRun as error:
                    return {**row, "status": "not run", "note": str(error)}
            row["status"] = ended.status
            if ended.status != "done":
                row["limit_s" if ended.status == "timeout" else "output"] = (
                    round(self.timeout, 1)
                    if ended.status == "timeout"
                    else _without_paths(ended.output)
                )
                return row
            walls.append(ended.wall)
            users.append(ended.user)
            answers.append(answer)
        row |= {"user_s": repeated(users)}
        if "side_by_side" not in row:
            row["whole_s"] = repeated(walls)
        laps = [lap for lap in LAPS if lap in answers[0]]
        row |= {lap: repeated([answer[lap] for answer in answers]) for lap in laps}
        rest = {name: value for name, value in answers[-1].items() if name not in LAPS}
        return {**row, **rest}


def _core(threads: int | None) -> int | None:
    """The core that a single thread is pinned to, where the system can."""
    pinned = threads == 1 and hasattr(os, "sched_setaffinity")
    return min(os.sched_getaffinity(0)) if pinned else None


def _write_fasta(alignment: Path, target: Path) -> None:
    """FASTA in short lines: FastTree takes no PHYLIP lines of more than 5,000 characters."""
    read = read_alignment(alignment)
    with target.open("w", encoding="ascii") as file:
        for name, row in zip(read.names, read.characters, strict=True):
            text = row.tobytes().decode("ascii")
            lines = (text[at : at + LINE] for at in range(0, len(text), LINE))
            file.write(f">{name}\n" + "\n".join(lines) + "\n")


@contextmanager
def _folder() -> Iterator[Path]:
    """A working folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name).resolve()


def _without_paths(output: str) -> str:
    """The last lines of a failure, without this machine's folders."""
    lines = [line[:200] for line in output.splitlines() if line.strip()][-6:]
    return "\n".join(" ".join(_short(word) for word in line.split()) for line in lines)


def _short(word: str) -> str:
    return Path(word.strip("'\"(),:")).name if word.lstrip("'\"(").startswith("/") else word
