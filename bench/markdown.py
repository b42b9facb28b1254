"""Pieces of Markdown that all pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.results import Row, Run

__all__ = [
    "circumstances",
    "crowded",
    "earlier",
    "engineering",
    "markdown_table",
    "seconds",
    "time_cell",
    "who",
]

CROWDED = 1.25
"""Load average per core beyond which a run was not alone; a benchmark itself adds one."""


def markdown_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table, numbers to the right."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    lines = [head, ruler, *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def circumstances(run: Run) -> str:
    """One line: on what, with what, when."""
    made = run.provenance
    devices = "; ".join(
        f"{device['name']} ({device['platform']}, driver {device['driver']})"
        for device in made["devices"]
    )
    remark = f" {run.settings['remark']}" if "remark" in run.settings else ""
    return (
        f"{_crowd(run)}Measured {made['utc'][:10]} on {made['cpu']}, {_cores(made)}; "
        f"OpenCL devices: {devices or 'none'}. mltree {made['mltree']} at {made['commit']}; "
        f"{_medians(run)}. `{made['command']}`.{remark}"
    )


def _cores(made: dict[str, Any]) -> str:
    """How many cores there were, and to how many of them the run was pinned."""
    pinned = made.get("pinned_to", made["cores"])
    of_them = f", pinned to {pinned}" if pinned < made["cores"] else ""
    return f"{made['cores']} core{'s' if made['cores'] > 1 else ''}{of_them}"


def earlier(run: Run) -> str:
    """A line for each run that some of the rows are from."""
    return "\n".join(
        f"- Some rows: {old['utc'][:10]}, at {old['commit']}, `{old['command']}`."
        for old in run.provenance.get("earlier", [])
    )


def _medians(run: Run) -> str:
    """Of how many repetitions the rows are medians."""
    counts = {row["user_s"]["n"] for row in run.rows if row.get("user_s")}
    least, most = min(counts, default=0), max(counts, default=run.provenance["repetitions"])
    return f"medians of {least} to {most}" if 0 < least < most else f"median of {most}"


def crowded(run: Run) -> bool:
    """Whether more wanted to run than there were cores, so that wall times mean little."""
    load: float = max((row.get("load_average", 0.0) for row in run.rows), default=0.0)
    return bool(load > run.provenance["cores"] * CROWDED)


def _crowd(run: Run) -> str:
    if not crowded(run):
        return ""
    load = max(row.get("load_average", 0.0) for row in run.rows)
    return (
        f"**Other work shared the machine (load averages up to {load:.1f} on "
        f"{run.provenance['cores']} cores): wall times are too long, those of programs with "
        "several threads most of all, whose threads also burn CPU time waiting for each other.** "
    )


def seconds(value: float) -> str:
    """Three significant digits."""
    return f"{value:#.3g}".rstrip(".")


def engineering(value: float) -> str:
    """Three significant digits and k, M, G or T."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:#.3g} {letter}".replace(". ", " ")
    return f"{value:#.3g}".rstrip(".")


def who(row: Row) -> str:
    """A contender's title: program or mltree's variant, and threads."""
    threads = row.get("threads")
    name = row["contender"] if row["kind"] == "rival" else f"mltree, {row['contender']}"
    return name + (f", {threads} thread{'s' if threads > 1 else ''}" if threads else "")


def time_cell(row: Row) -> str:
    """How long a process took, or why there is no saying; its CPU time, if others slowed it."""
    if row["status"] == "timeout":
        return f"> {row['limit_s']:.0f}"
    if row["status"] != "done":
        return row["status"] if row["status"] != "not run" else "late"
    if "side_by_side" in row and not row.get("whole_s"):
        return f"{seconds(row['user_s']['median'])} CPU"
    search = f" ({seconds(row['search_s']['median'])})" if "search_s" in row else ""
    return seconds(row["whole_s"]["median"]) + search
