"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench import engine_tables
from bench.markdown import circumstances, crowded, markdown_table, seconds
from bench.quoted import QUOTED
from bench.results import Row, Run

__all__ = ["brief", "full", "gaps", "speedups", "who"]

FUNCTIONS = {
    "newview": "newview",
    "evaluate": "evaluate",
    "derive": "sumGAMMA + coreDerivative",
    "scan": "insertion scan",
    "tripod": "insertion re-scoring",
    "pmatrices": "P matrices",
}
"""The likelihood functions that are compared, by their titles."""

MIN_SECONDS = 1e-3
"""Device time of a function in the AVX layout from which a ratio says something."""


def brief(run: Run) -> str:
    """The table that a README has room for."""
    return f"{_BRIEF[run.bench](run)}\n\n{circumstances(run)}"


def full(run: Run) -> str:
    """Everything, for the page beside the result."""
    parts = [f"# {run.bench}", circumstances(run)]
    sections = (
        _FULL[run.bench](run) if run.bench in _FULL else [("Results", _BRIEF[run.bench](run))]
    )
    parts += [f"## {title}\n\n{table}" for title, table in sections if table]
    broken = [check for check in run.checks if not check["holds"]]
    verdict = f"{len(run.checks) - len(broken)} of {len(run.checks)} checks hold."
    parts.append("\n".join([verdict, *(f"- does not hold: `{check}`" for check in broken)]))
    return "\n\n".join(parts) + "\n"


def who(row: Row) -> str:
    """A contender's title: program or mltree's variant, and threads."""
    threads = row.get("threads")
    name = row["contender"] if row["kind"] == "rival" else f"mltree, {row['contender']}"
    return name + (f", {threads} thread{'s' if threads > 1 else ''}" if threads else "")


def _pivot(
    rows: Sequence[Row], column: str, cell: Callable[[Row], str]
) -> tuple[list[Any], dict[str, dict[Any, str]]]:
    """The columns' values, and cells by contender and column."""
    columns = list(dict.fromkeys(row[column] for row in rows))
    table: dict[str, dict[Any, str]] = {}
    for row in rows:
        table.setdefault(who(row), {})[row[column]] = cell(row)
    return columns, table


def _time_cell(row: Row) -> str:
    if row["status"] == "timeout":
        return f"> {row['limit_s']:.0f}"
    if row["status"] != "done":
        return row["status"] if row["status"] != "not run" else "–"
    search = f" ({seconds(row['search_s']['median'])})" if "search_s" in row else ""
    return seconds(row["whole_s"]["median"]) + search


def _by_size(run: Run, cell: Callable[[Row], str], quoted: bool = False) -> str:
    sizes, table = _pivot(run.rows, "patterns", cell)
    head = ["patterns", *(f"{size:,}" for size in sizes)]
    body = [[who, *(cells.get(size, "") for size in sizes)] for who, cells in table.items()]
    if quoted and run.settings.get("origin") == "given":
        for entry in QUOTED:
            threads = f"{entry.threads} thread{'s' if entry.threads > 1 else ''}"
            who = f"*{entry.title}, {threads}: quoted, from {entry.machine}*"
            times = [entry.seconds.get(size) for size in sizes]
            body.append([who, *(f"*{seconds(time)}*" if time else "" for time in times)])
    return markdown_table(head, body)


def _table1(run: Run) -> str:
    """Wall times; on a machine that others used too, CPU seconds."""
    if crowded(run):
        told = "CPU seconds (user mode) of the whole process, from start to written tree.\n\n"
        return told + _by_size(run, _user_cell)
    return _table1_walls(run)


def _table1_walls(run: Run) -> str:
    return (
        "Seconds of the whole process, from start to written tree; in brackets mltree's search "
        "alone, without start, loading and kernel build.\n\n" + _by_size(run, _time_cell, True)
    )


def _table1_full(run: Run) -> list[tuple[str, str]]:
    return [
        ("Whole processes and searches", _table1_walls(run)),
        ("CPU seconds (user)", _by_size(run, _user_cell)),
        ("Process start, kernel build and loading (mltree)", _starts(run)),
        ("Judged log-likelihoods", _by_size(run, _lnl_cell)),
        ("Speed of the likelihood functions over the AVX layout", _speedups(run)),
    ]


def _user_cell(row: Row) -> str:
    return seconds(row["user_s"]["median"]) if row.get("user_s") else _time_cell(row)


def _lnl_cell(row: Row) -> str:
    return f"{row['judged_lnl']:.3f} (tree {row['topology']})" if "judged_lnl" in row else ""


def _starts(run: Run) -> str:
    def cell(row: Row) -> str:
        laps = [row[lap]["median"] for lap in ("load_s", "open_s", "build_s") if lap in row]
        if not laps:
            return ""
        start = row["whole_s"]["median"] - row["search_s"]["median"] - sum(laps)
        return " + ".join(seconds(lap) for lap in (start, *laps))

    mine = Run(run.bench, run.provenance, {}, [row for row in run.rows if row["kind"] == "mltree"])
    told = "start and end of the process + loading + opening the device + building kernels\n\n"
    return told + _by_size(mine, cell) if mine.rows else ""


def _speedups(run: Run) -> str:
    found = speedups(run.rows)
    sizes = list(dict.fromkeys(patterns for patterns, *_ in found))
    table: dict[tuple[str, str], dict[int, str]] = {}
    for patterns, who, function, ratio in found:
        table.setdefault((who, function), {})[patterns] = f"{ratio:.2f}"
    head = ["contender", "function", *(f"{size:,}" for size in sizes)]
    body = [[*key, *(cells.get(size, "") for size in sizes)] for key, cells in table.items()]
    return markdown_table(head, body) if body else ""


def speedups(rows: Sequence[Row]) -> list[tuple[int, str, str, float]]:
    """(patterns, contender, function, AVX layout's device seconds / the contender's)."""
    found = []
    timed = [row for row in rows if row.get("functions")]
    base = {row["patterns"]: row["functions"] for row in timed if row["contender"] == "AVX layout"}
    for row in timed:
        if row["contender"] == "AVX layout":
            continue
        for name, title in FUNCTIONS.items():
            own = row["functions"].get(name, 0.0)
            slow = base.get(row["patterns"], {}).get(name, 0.0)
            if own > 0 and slow >= MIN_SECONDS:
                found.append((row["patterns"], who(row), title, slow / own))
    return found


def gaps(rows: Sequence[Row], clock: str = "whole_s") -> list[tuple[str, str, float, float]]:
    """(alignment, contender, lnL below the best, seconds): medians over the seeds."""
    judged = [row for row in rows if "judged_lnl" in row]
    best: dict[str, float] = {}
    for row in judged:
        best[row["dataset"]] = max(best.get(row["dataset"], row["judged_lnl"]), row["judged_lnl"])
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in judged:
        groups.setdefault((row["dataset"], who(row)), []).append(row)
    return [
        (
            dataset,
            name,
            best[dataset] - _median([row["judged_lnl"] for row in group]),
            _median([row[clock]["median"] for row in group]),
        )
        for (dataset, name), group in groups.items()
    ]


def _median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _search(run: Run) -> str:
    clock, what = ("user_s", "CPU seconds") if crowded(run) else ("whole_s", "seconds")
    found = gaps(run.rows, clock)
    names = list(dict.fromkeys(dataset for dataset, *_ in found))
    table: dict[str, dict[str, str]] = {}
    for dataset, name, gap, time in found:
        table.setdefault(name, {})[dataset] = f"{_below(gap)} / {seconds(time)}"
    for row in run.rows:
        if row["status"] in {"timeout", "failed"}:
            cell = _time_cell(row)
            table.setdefault(who(row), {}).setdefault(row["dataset"], cell)
            names += [row["dataset"]] if row["dataset"] not in names else []
    body = [[who, *(cells.get(name, "") for name in names)] for who, cells in table.items()]
    told = (
        f"lnL relative to the best tree of anybody (0.00 is best) / {what} of the whole process; "
        f"medians over {len({row['seed'] for row in run.rows})} seed(s). All trees scored by one "
        "judge.\n\n"
    )
    return told + markdown_table(["", *names], body)


def _below(gap: float) -> str:
    """How far below the best, without a sign on what rounds to nothing."""
    return f"{-gap:.2f}" if gap >= 0.005 else "0.00"


def _search_full(run: Run) -> list[tuple[str, str]]:
    best = [
        [name, f"{max(r['judged_lnl'] for r in run.rows if _is(r, name)):.4f}"]
        for name in dict.fromkeys(row["dataset"] for row in run.rows if "judged_lnl" in row)
    ]
    return [
        ("Quality and time", _search(run)),
        ("Best log-likelihoods (judged)", markdown_table(["alignment", "lnL"], best)),
    ]


def _is(row: Row, dataset: str) -> bool:
    return row["dataset"] == dataset and "judged_lnl" in row


_BRIEF: dict[str, Callable[[Run], str]] = {
    "table1": _table1,
    "search": _search,
    "kernels": engine_tables.kernels,
    "scale": engine_tables.scale,
    "precision": engine_tables.precision,
    "golden": engine_tables.golden,
}
_FULL: dict[str, Callable[[Run], list[tuple[str, str]]]] = {
    "table1": _table1_full,
    "search": _search_full,
}
"""Pages with more than the brief table."""
