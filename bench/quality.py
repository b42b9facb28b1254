"""``bench search``: quality and time over alignments and seeds, mltree beside the rivals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from bench.contenders import Contender
from bench.data import Dataset, sha256
from bench.race import Race
from bench.results import Row, Run, identity
from bench.rivals import Rival
from bench.table1 import judge_rows

__all__ = ["SHIPPED", "Field", "measure"]

SHIPPED = ("primates", "animals", "frogs", "laurasiatherian", "carnivores", "proteins")
"""Alignments of ``datasets/`` that a run takes unless others are named."""

LEAST = 1.0
"""Seconds below which a process is not worth its start."""


@dataclass(frozen=True)
class Field:
    """Everybody who runs."""

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
