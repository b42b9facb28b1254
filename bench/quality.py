"""``bench search``: quality and time over alignments and seeds, mltree beside the rivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.contenders import Contender
from bench.data import Dataset, sha256
from bench.race import Race
from bench.results import Row, Run
from bench.rivals import Rival
from bench.table1 import judge_rows

__all__ = ["SHIPPED", "measure"]

SHIPPED = ("primates", "animals", "frogs", "laurasiatherian", "carnivores", "proteins")
"""Alignments of ``datasets/`` that a run takes unless others are named."""


def measure(
    run: Run,
    race: Race,
    datasets: Sequence[Dataset],
    seeds: Sequence[int],
    presets: Sequence[str],
    contenders: Sequence[Contender],
    rivals: Sequence[Rival],
    threads: Sequence[int],
    judge: Contender | None,
) -> None:
    """Fill the run with a row per dataset, seed and contender; lnLs by one judge."""
    for dataset in datasets:
        run.settings.setdefault("alignments", {})[dataset.name] = {
            "model": dataset.model,
            "origin": dataset.origin,
            "sha256": sha256(dataset.alignment),
        }
        rows = [
            _row(run, row)
            for seed in seeds
            for row in _everybody(
                replace(race, seed=seed), dataset, presets, contenders, rivals, threads
            )
        ]
        if judge is not None:
            judge_rows(run, dataset, rows, judge)


def _everybody(
    race: Race,
    dataset: Dataset,
    presets: Sequence[str],
    contenders: Sequence[Contender],
    rivals: Sequence[Rival],
    threads: Sequence[int],
) -> Iterator[Row]:
    """The rows of one dataset and seed, one process after the other."""
    for preset in presets:
        for contender in contenders:
            row = replace(race, preset=preset).mltree(contender, dataset)
            yield {**row, "contender": f"{preset} preset, {contender.name}"}
    for rival in rivals:
        for count in threads:
            row = race.rival(rival, count, dataset)
            if row["status"] != "not run":
                yield row


def _row(run: Run, row: Row) -> Row:
    run.add(row)
    seconds = row["whole_s"]["median"] if row.get("whole_s") else row["status"]
    who = f"{row['contender']} x{row['threads'] or ''}"
    print(f"{row['dataset']} seed {row['seed']} {who}: {seconds}", flush=True)
    return row
