"""The README's table: six alignments, mltree beside the best of its rivals, from stored results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.markdown import markdown_table, seconds, who
from bench.quoted import QUOTED_SEARCHES
from bench.results import FOLDER, Row, load
from bench.search_tables import NO_WORSE, standings

__all__ = ["LINES", "Line", "summary"]

NEAR = 2.0
"""lnL below the best tree of any rival down to which a quicker rival is held to be as good."""


SEEDS = "search-quality"
"""The stored result of many alignments and several seeds."""


@dataclass(frozen=True)
class Line:
    """One alignment, and where its figures are stored."""

    data: str
    size: str
    dataset: str
    result: str
    """The stored result with mltree's row, whose title follows."""
    mltree: str
    shown: str
    rivals: str
    """The stored result with the other programs' rows."""
    machine: str
    """What quoted figures have to be from."""


def _line_cpu(data: str, size: str, dataset: str) -> Line:
    title = "mltree, fast preset, new layout, 1 thread"
    return Line(data, size, dataset, "search-2core", title, "1 CPU core", "search-2core", "2 cores")


def _line_gpu(data: str, size: str, dataset: str) -> Line:
    title = "mltree, fast preset, NVIDIA H200"
    return Line(data, size, dataset, "search-h200", title, "1 GPU", "search-quality", "H200's host")


LINES = (
    _line_cpu("frogs, rRNA", "64 × 1,976", "garli_rana"),
    _line_cpu("mammals, RNA genes", "47 × 3,179", "R_Laurasiatherian"),
    _line_cpu("RAxML's test set", "101 × 1,858", "stamatak_101"),
    _line_gpu("carnivores, mtDNA", "62 × 10,869", "beast_benchmark2_carnivora"),
    _line_gpu("simulated DNA", "200 × 2,000", "sim200x2000_gtrg"),
    _line_gpu("simulated DNA", "1,000 × 1,000", "sim1000x1000_gtrg"),
)


@dataclass(frozen=True)
class _Found:
    """What a rival made of an alignment."""

    title: str
    seconds: float
    lnl: float


def summary(folder: Path = FOLDER) -> str:
    """The table, and what has to be known to read it."""
    runs = {name: load(folder / f"{name}.json").rows for name in _results()}
    body = [_cells(line, runs[line.result], runs[line.rivals]) for line in LINES]
    head = ["data", "taxa × sites", "mltree on", "best rival", "seconds", "lnL difference"]
    told = (
        "mltree ran its fast preset. Seconds are mltree's / the rival's, from start to written "
        "tree: CPU seconds, or wall seconds where a GPU or 16 cores computed. The best rival is "
        f"the fastest whose tree is within {NEAR:.0f} lnL of the best tree of any rival; the lnL "
        "difference is mltree's tree minus that best tree. Rivals in *italics* were measured in "
        "another session on the same kind of machine."
    )
    return f"{markdown_table(head, body)}\n\n{told}\n\n{_over_seeds(folder)}"


def _over_seeds(folder: Path) -> str:
    """Share of the alignments on which mltree's median is as good as the best rival."""
    rows = load(folder / f"{SEEDS}.json").rows
    verdict = standings(rows).rpartition("\n\n")[2]
    good, total = verdict.removeprefix("On ").partition(" alignments ")[0].split(" of ")
    alignments = f"all {total}" if good == total else f"{good} of {total}"
    seeds = len({row["seed"] for row in rows})
    return (
        f"Median of the default preset over {seeds} seeds, each program from its own starting "
        f"trees: on {alignments} alignments mltree is at most {NO_WORSE} log-likelihood units "
        "below the best tree of any rival."
    )


def _results() -> list[str]:
    return sorted({name for line in LINES for name in (line.result, line.rivals)})


def _cells(line: Line, own: Sequence[Row], others: Sequence[Row]) -> list[str]:
    mine = [row for row in own if row["dataset"] == line.dataset and who(row) == line.mltree]
    clock = "whole_s" if "GPU" in line.shown else "user_s"
    took = median(row[clock]["median"] for row in mine)
    rivals = [*_measured(line, others), *_quoted(line)]
    best = max(rival.lnl for rival in rivals)
    quickest = min((r for r in rivals if r.lnl > best - NEAR), key=lambda r: r.seconds)
    difference = median(row["judged_lnl"] for row in mine) - best
    shown = f"{difference:+.2f}" if abs(difference) >= 0.005 else "0.00"
    times = f"{seconds(took)} / {seconds(quickest.seconds)}"
    return [line.data, line.size, line.shown, quickest.title, times, shown]


def _measured(line: Line, rows: Sequence[Row]) -> Iterator[_Found]:
    """Every rival's tree, with the CPU seconds that it took on its one thread."""
    for row in rows:
        if row["dataset"] == line.dataset and row["kind"] == "rival" and "judged_lnl" in row:
            core = "1 core" if row["threads"] == 1 else f"{row['threads']} cores"
            title = f"{row['contender']}, {core}"
            yield _Found(title, row["user_s"]["median"], row["judged_lnl"])


def _quoted(line: Line) -> Iterator[_Found]:
    for quoted in QUOTED_SEARCHES:
        if line.dataset in quoted.found and quoted.machine == line.machine:
            took, lnl = quoted.found[line.dataset]
            core = "1 core" if quoted.threads == 1 else f"{quoted.threads} cores"
            yield _Found(f"*{quoted.title}, {core}*", took, lnl)
