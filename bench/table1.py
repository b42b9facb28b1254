"""The PLL paper's Table I: one search of 15 taxa, 1,024 to 262,144 patterns, by all programs.

Seconds of whole processes (start, load, kernel build and all), and of mltree's search alone; all
start from one tree. Variants of mltree must end in one topology and one lnL.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.contenders import Contender
from bench.data import Dataset, Source
from bench.judge import JUDGE, Judge
from bench.race import Race
from bench.results import Row, Run
from bench.rivals import Rival

__all__ = ["LNL_TOLERANCE", "measure"]

LNL_TOLERANCE = 0.01
"""lnL (natural log) within which mltree's variants must agree: the search's own last epsilon."""


def measure(
    run: Run,
    race: Race,
    source: Source,
    sizes: Sequence[int],
    contenders: Sequence[Contender],
    rivals: Sequence[Rival],
    threads: Sequence[int],
    judge: Contender | None,
) -> None:
    """Fill the run with a row per size and contender."""
    if not run.settings["smoke"]:
        _warm_up(race, source.paper(sizes[0]), contenders)
    late: set[str] = set()
    for size in sizes:
        dataset = source.paper(size)
        rows = [_row(run, size, race.mltree(contender, dataset)) for contender in contenders]
        for rival, count in ((rival, count) for rival in rivals for count in threads):
            row = _in_time(race, rival, count, dataset, late)
            if row is not None:
                rows.append(_row(run, size, row))
        check(run, size, rows)
        if judge is not None:
            judge_rows(run, dataset, rows, judge)


def _in_time(
    race: Race, rival: Rival, threads: int, dataset: Dataset, late: set[str]
) -> Row | None:
    """A rival's row; one that was late at a smaller size is not made to run again."""
    who = f"{rival.title} {threads}"
    if who in late:
        row = race.row(rival.title, "rival", threads, dataset)
        return {**row, "status": "not run", "note": "timed out at a smaller size"}
    row = race.rival(rival, threads, dataset)
    if row["status"] == "timeout":
        late.add(who)
    return None if row["status"] == "not run" else row


def _warm_up(race: Race, dataset: Dataset, contenders: Sequence[Contender]) -> None:
    """Fill the kernel caches: what is timed is a second use, as nearly all uses are."""
    once = Race(1, race.timeout, race.seed, race.preset)
    for contender in contenders:
        once.mltree(contender, dataset)


def _row(run: Run, size: int, row: Row) -> Row:
    row["patterns"] = size
    run.add(row)
    seconds = row["whole_s"]["median"] if row.get("whole_s") else row["status"]
    threads = f", {row['threads']} threads" if row.get("threads") else ""
    print(f"{size:>7} {row['contender']}{threads}: {seconds}", flush=True)
    return row


def check(run: Run, size: int, rows: Sequence[Row]) -> None:
    """Whether all variants of mltree came to one lnL."""
    lnls = [row["lnl"] for row in rows if row["kind"] == "mltree" and row["status"] == "done"]
    if len(lnls) > 1:
        spread = max(lnls) - min(lnls)
        run.check(what="mltree variants: lnL", patterns=size, spread=spread,
                  tolerance=LNL_TOLERANCE, holds=bool(spread <= LNL_TOLERANCE))  # fmt: skip


def judge_rows(run: Run, dataset: Dataset, rows: Sequence[Row], optimiser: Contender) -> None:
    """Add the judge's lnL to the rows, and number the topologies that the dataset has seen."""
    judge = Judge(dataset, optimiser)
    numbers: dict[int, int] = {}
    seen = [row for row in run.rows if row["dataset"] == dataset.name and "tree" in row]
    for row in seen:
        key = judge.topology(row["tree"])
        row["topology"] = numbers.setdefault(key, len(numbers) + 1)
    for row in rows:
        if "tree" in row:
            row["judged_lnl"] = judge.lnl(row["tree"])
    run.settings["judge"] = JUDGE
    if run.bench == "table1":
        mine = {row["topology"] for row in seen if row["kind"] == "mltree"}
        run.check(what="mltree variants: topology", dataset=dataset.name,
                  topologies=len(mine), holds=len(mine) <= 1)  # fmt: skip
    run.save()
