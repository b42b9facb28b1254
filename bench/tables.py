"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench import engine_tables, sample, search_tables
from bench.markdown import (
    circumstances,
    crowded,
    earlier,
    markdown_table,
    seconds,
    time_cell,
    who,
)
from bench.quoted import QUOTED
from bench.results import Row, Run

__all__ = ["brief", "full", "speedups"]

FUNCTIONS = {
    "newview": "newview",
    "evaluate": "evaluate",
    "derive": "sumGAMMA + coreDerivative",
    "scan": "insertion scan",
    "tripod": "insertion re-scoring",
    "pmatrices": "P matrices",
}
"""The likelihood functions that are compared, by their titles."""

BASE = "AVX layout"
"""The contender that mltree's others are compared with."""

MIN_SECONDS = 1e-3
"""Device time of a function in the AVX layout from which a ratio says something."""


def brief(run: Run) -> str:
    """The table that a README has room for."""
    older = run.path if run.provenance.get("earlier") else None
    more = f" Some rows are from other runs: `bench/results/{older.stem}.md`." if older else ""
    return f"{_BRIEF[run.bench](run)}\n\n{circumstances(run)}{more}"


def full(run: Run) -> str:
    """Everything, for the page beside the result."""
    parts = [f"# {run.bench}", circumstances(run), earlier(run)]
    sections = (
        _FULL[run.bench](run) if run.bench in _FULL else [("Results", _BRIEF[run.bench](run))]
    )
    parts += [f"## {title}\n\n{table}" for title, table in sections if table]
    broken = [check for check in run.checks if not check["holds"]]
    verdict = f"{len(run.checks) - len(broken)} of {len(run.checks)} checks hold."
    if run.checks:
        parts.append("\n".join([verdict, *(f"- does not hold: `{check}`" for check in broken)]))
    return "\n\n".join(filter(None, parts)) + "\n"


def _pivot(
    rows: Sequence[Row], column: str, cell: Callable[[Row], str]
) -> tuple[list[Any], dict[str, dict[Any, str]]]:
    """The columns' values in order, and cells by contender, mltree's first, and column."""
    columns = sorted({row[column] for row in rows})
    table: dict[str, dict[Any, str]] = {}
    for row in sorted(rows, key=lambda row: (row["kind"] != "mltree", row["contender"] != BASE)):
        table.setdefault(who(row), {})[row[column]] = cell(row)
    return columns, table


def _by_size(run: Run, cell: Callable[[Row], str], quoted: bool = False) -> str:
    sizes, table = _pivot(run.rows, "patterns", cell)
    head = ["patterns", *(f"{size:,}" for size in sizes)]
    body = [[title, *(cells.get(size, "") for size in sizes)] for title, cells in table.items()]
    if quoted and run.settings.get("origin") == "given":
        for entry in QUOTED:
            threads = f"{entry.threads} thread{'s' if entry.threads > 1 else ''}"
            title = f"*{entry.title}, {threads}: quoted, from {entry.machine}*"
            times = [entry.seconds.get(size) for size in sizes]
            body.append([title, *(f"*{seconds(time)}*" if time else "" for time in times)])
    return markdown_table(head, body)


def _table1(run: Run) -> str:
    """Wall times; on a machine that others used too, CPU seconds."""
    if crowded(run):
        told = "CPU seconds (user mode) of the whole process, from start to written tree"
        return f"{told}{_legend(run)}.\n\n{_by_size(run, _user_cell)}"
    return _table1_walls(run)


def _legend(run: Run) -> str:
    """What the words in some cells mean, where they are said."""
    states = {row["status"] for row in run.rows}
    told = ""
    if any("side_by_side" in row and not row.get("whole_s") for row in run.rows):
        told += "; CPU: seconds of CPU time, of programs that ran side by side"
    if "timeout" in states:
        told += "; > N: stopped after N seconds of wall time"
    if "not run" in states:
        told += "; late: not run, since a smaller size took too long"
    return told


def _table1_walls(run: Run) -> str:
    return (
        "Seconds of the whole process, from start to written tree; in brackets mltree's search "
        f"alone, without start, loading and kernel build{_legend(run)}.\n\n"
        + _by_size(run, time_cell, True)
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
    return seconds(row["user_s"]["median"]) if row.get("user_s") else time_cell(row)


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
    sizes = sorted({patterns for patterns, *_ in found})
    table: dict[tuple[str, str], dict[int, str]] = {}
    for patterns, title, function, ratio in found:
        table.setdefault((title, function), {})[patterns] = f"{ratio:.2f}"
    head = ["contender", "function", *(f"{size:,}" for size in sizes)]
    body = [[*key, *(cells.get(size, "") for size in sizes)] for key, cells in table.items()]
    return markdown_table(head, body) if body else ""


def speedups(rows: Sequence[Row]) -> list[tuple[int, str, str, float]]:
    """(patterns, contender, function, AVX layout's device seconds / the contender's)."""
    found = []
    timed = [row for row in rows if row.get("functions")]
    base = {row["patterns"]: row["functions"] for row in timed if row["contender"] == BASE}
    for row in timed:
        if row["contender"] == BASE:
            continue
        for name, title in FUNCTIONS.items():
            own = row["functions"].get(name, 0.0)
            slow = base.get(row["patterns"], {}).get(name, 0.0)
            if own > 0 and slow >= MIN_SECONDS:
                found.append((row["patterns"], who(row), title, slow / own))
    return found


_BRIEF: dict[str, Callable[[Run], str]] = {
    "table1": _table1,
    "search": search_tables.brief,
    "analyses": search_tables.analyses,
    "kernels": engine_tables.kernels,
    "cases": engine_tables.cases,
    "scale": engine_tables.scale,
    "precision": engine_tables.precision,
    "reach": engine_tables.reach,
    "golden": engine_tables.golden,
    "sample": sample.table,
    "unifrac": engine_tables.unifrac,
}
_FULL: dict[str, Callable[[Run], list[tuple[str, str]]]] = {
    "table1": _table1_full,
    "search": search_tables.full,
}
"""Pages with more than the brief table."""
