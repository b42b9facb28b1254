"""Tables of searches: quality over seeds, time, and times relative to another program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median

from bench.markdown import crowded, markdown_table, seconds, time_cell, who
from bench.quoted import QUOTED_LNLS
from bench.results import Row, Run

__all__ = [
    "NO_WORSE",
    "analyses",
    "brief",
    "difference",
    "effort",
    "full",
    "gaps",
    "pairs",
    "standings",
]

NO_WORSE = 0.1
"""lnL below the best rival's tree down to which a median counts as no worse: what re-scoring by
different programs differs by."""

SAME = 0.01
"""lnL within which two trees count as equally good: what is quoted is given to that."""

BETTER = 1.0
"""lnL above the best rival's tree from which a median counts as better."""

JUDGED = "default preset"
"""mltree's contenders that are held against the best rival."""

MB = 1_000_000

MOST_COLUMNS = 8
"""Alignments up to which they stand across."""

CLOCKS = ("user_s", "whole_s")

BASE = "IQ-TREE"
"""Program, on one thread, that times are relative to."""


YARDSTICKS = {"IQ-TREE": 1.0, "RAxML": 2.0}
"""Programs whose CPU time, so many times, mltree's `JUDGED` preset shall not exceed."""


Groups = dict[tuple[str, str], list[Row]]
"""Rows by alignment and contender."""


def brief(run: Run) -> str:
    """Quality over seeds where there are several, else effort, else quality and time."""
    return standings(run.rows) or effort(run.rows) or _quality_and_time(run)


def full(run: Run) -> list[tuple[str, str]]:
    """The sections of a page; empty ones have nothing to say."""
    best = [[name, f"{lnl:.4f}"] for name, lnl in _best(_judged(run.rows)).items()]
    return [
        ("Quality over seeds", standings(run.rows)),
        ("Quality and time", _quality_and_time(run)),
        ("Effort", effort(run.rows)),
        (f"Times relative to {BASE} on one thread", _ratios(run.rows)),
        ("What programs claim for their trees", _claims(run.rows)),
        ("Best log-likelihoods (judged)", markdown_table(["alignment", "lnL"], best)),
    ]


def gaps(rows: Sequence[Row], clock: str = "whole_s") -> list[tuple[str, str, float, float | None]]:
    """(alignment, contender, lnL below the best, seconds): medians over the seeds.

    Seconds are None where that clock was not read.
    """
    judged = _judged(rows)
    best = _best(judged)
    return [
        (name, title, best[name] - median(_lnls(group)), _time(group, clock))
        for (name, title), group in _groups(judged).items()
    ]


def effort(rows: Sequence[Row]) -> str:
    """CPU seconds of mltree's `JUDGED` preset beside its yardsticks', and whether the bar is met.

    Of the alignments that all of them have searched on one thread.
    """
    alone = [row for row in _judged(rows) if row["threads"] == 1 and "side_by_side" not in row]
    groups = _groups(alone)
    body, met = [], 0
    for name in _names(alone):
        found = {}
        for (dataset, title), group in groups.items():
            key = JUDGED if JUDGED in title else title.split()[0]
            if dataset == name and (cpu := _time(group, "user_s")) is not None:
                found[key] = cpu, median(_lnls(group))
        if not {JUDGED, *YARDSTICKS} <= set(found):
            continue
        cpu, lnl = found[JUDGED]
        margin = lnl - max(found[program][1] for program in YARDSTICKS)
        within = [cpu <= most * found[program][0] for program, most in YARDSTICKS.items()]
        holds = all(within) and margin >= -NO_WORSE
        met += holds
        times = [cpu, *(found[program][0] for program in YARDSTICKS)]
        verdict = "met" if holds else "missed"
        body.append([name, *map(seconds, times), _signed(margin), verdict])
    if not body:
        return ""
    most = " and ".join(f"{factor:g} x {program}'s" for program, factor in YARDSTICKS.items())
    told = (
        "CPU seconds (user) of whole processes on one thread, and the lnL of mltree's tree less "
        f"that of the better of the others. The bar: no more CPU than {most}, and lnL no more than "
        f"{NO_WORSE} below the better one. Met on {met} of {len(body)} alignments.\n\n"
    )
    head = ["alignment", f"mltree, {JUDGED}", *YARDSTICKS, "lnL", "bar"]
    return told + markdown_table(head, body)


def standings(rows: Sequence[Row]) -> str:
    """Medians and best trees over several seeds, relative to the best tree of any rival."""
    judged, seeds = _judged(rows), len({row["seed"] for row in rows})
    if seeds < 2 or len({row["kind"] for row in judged}) < 2:
        return ""
    groups = _groups(rows)
    titles = _mine_first(title for _, title in groups)
    held = next((title for title in titles if JUDGED in title), "")
    body, margins, beside = [], [], []
    for name in _names(rows):
        rivals = [*_rivals(judged, name), *_quoted(name)]
        if not rivals:
            continue
        goal, medians = max(lnl for lnl, _ in rivals), _medians(judged, name)
        cells = [_seeds_cell(groups.get((name, title), []), goal, seeds) for title in titles]
        own = _lnls(groups.get((name, held), []))
        margins += [median(own) - goal] if own else []
        beside += [median(own) - max(medians)] if own and medians else []
        verdict = _verdict(margins[-1]) if own else ""
        body.append([name, f"{goal:.2f}, {_finders(rivals, goal)}", *cells, verdict])
    told = (
        "lnL relative to the best tree that any rival found with any seed: the median of "
        f"{seeds} seeds, in brackets the best. Each program starts from trees of their own; all "
        "trees are scored by one judge, but *in italics* what a program claims that was not run "
        "here.\n\n"
    )
    head = ["alignment", "best rival", *titles, f"{JUDGED}, median"]
    summaries = (
        _summary("the best tree of any rival", margins),
        _summary("the best median of any rival", beside),
    )
    return told + markdown_table(head, body) + "\n\n" + " ".join(summaries)


def _summary(what: str, margins: Sequence[float]) -> str:
    no_worse = sum(margin >= -NO_WORSE for margin in margins)
    better = sum(margin > BETTER for margin in margins)
    above = f", and on {better} more than {BETTER:.0f} unit above it" if better else ""
    return (
        f"On {no_worse} of {len(margins)} alignments the median of mltree's {JUDGED} is at most "
        f"{NO_WORSE} log-likelihood units below {what}{above}."
    )


def _verdict(margin: float) -> str:
    if margin > BETTER:
        return "better"
    return "no worse" if margin >= -NO_WORSE else "worse"


def _rivals(judged: Sequence[Row], name: str) -> list[tuple[float, str]]:
    """(lnL, title) of every rival's trees of an alignment."""
    return [
        (row["judged_lnl"], row["contender"])
        for row in judged
        if row["kind"] == "rival" and row["dataset"] == name
    ]


def _medians(judged: Sequence[Row], name: str) -> list[float]:
    """Each rival's median lnL of an alignment."""
    groups = _groups(row for row in judged if row["kind"] == "rival")
    return [median(_lnls(group)) for (dataset, _), group in groups.items() if dataset == name]


def _finders(rivals: Sequence[tuple[float, str]], goal: float) -> str:
    """The programs that found a tree as good as the best of them, without their versions."""
    found = sorted({title for lnl, title in rivals if lnl > goal - SAME})
    return ", ".join(re.sub(r" [\d.]+", "", title) for title in found)


def _quoted(name: str) -> list[tuple[float, str]]:
    return [(entry.lnls[name], f"*{entry.title}*") for entry in QUOTED_LNLS if name in entry.lnls]


def _seeds_cell(group: Sequence[Row], goal: float, seeds: int) -> str:
    """Median and best of the trees that were found, and how many there are if some are missing."""
    lnls = _lnls(group)
    if not lnls:
        return time_cell(group[0]) if group else ""
    told = f"{_signed(median(lnls) - goal)} ({_signed(max(lnls) - goal)})"
    return told if len(lnls) == seeds else f"{told}, {len(lnls)} of {seeds}"


def _signed(difference: float) -> str:
    """Two decimals, without a sign on what rounds to nothing."""
    return f"{difference:+.2f}" if abs(difference) >= 0.005 else "0.00"


def _quality_and_time(run: Run) -> str:
    clock, what = ("user_s", "CPU seconds") if crowded(run) else ("whole_s", "seconds")
    found, seeds = gaps(run.rows, clock), len({row["seed"] for row in run.rows})
    alone = _search_seconds(run.rows)
    cells = {
        (name, title): _below(gap)
        + (f" / {seconds(time)}" if time is not None else "")
        + (f" ({seconds(alone[name, title])})" if (name, title) in alone else "")
        for name, title, gap, time in found
    }
    for row in run.rows:
        if row["status"] in {"timeout", "failed"}:
            cells.setdefault((row["dataset"], who(row)), time_cell(row))
    told = (
        f"lnL relative to the best tree of anybody (0.00 is best) / {what} of the whole process, "
        "in brackets wall seconds of mltree's search alone; "
        f"{'medians over ' * (seeds > 1)}{seeds} seed{'s' * (seeds > 1)}. All trees scored by one "
        "judge.\n\n"
    )
    return told + _crossed(cells, sideways=len(_names(run.rows)) > MOST_COLUMNS)


def _search_seconds(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Median wall seconds of mltree's searches, by alignment and contender."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if "search_s" in row:
            found.setdefault((row["dataset"], who(row)), []).append(row["search_s"]["median"])
    return {key: median(times) for key, times in found.items()}


def _below(gap: float) -> str:
    """How far below the best, without a sign on what rounds to nothing."""
    return f"{-gap:.2f}" if gap >= 0.005 else "0.00"


def _crossed(cells: dict[tuple[str, str], str], *, sideways: bool) -> str:
    """Contenders down and alignments across, or the other way round."""
    names = list(dict.fromkeys(name for name, _ in cells))
    titles = _mine_first(title for _, title in cells)
    if sideways:
        body = [[name, *(cells.get((name, title), "") for title in titles)] for name in names]
        return markdown_table(["", *titles], body)
    body = [[title, *(cells.get((name, title), "") for name in names)] for title in titles]
    return markdown_table(["", *names], body)


def _mine_first(titles: Iterable[str]) -> list[str]:
    """Each once, mltree's contenders before the others."""
    return sorted(dict.fromkeys(titles), key=lambda title: not title.startswith("mltree"))


def _ratios(rows: Sequence[Row]) -> str:
    """CPU and wall times of mltree's contenders over those of `BASE`."""
    alone = [row for row in rows if row["status"] == "done" and "side_by_side" not in row]
    groups = _groups(alone)
    base = {
        name: group
        for (name, _), group in groups.items()
        if group[0]["contender"].startswith(BASE) and group[0]["threads"] == 1
    }
    cells = {
        (name, title): " / ".join(_ratio(group, base[name], clock) for clock in CLOCKS)
        for (name, title), group in groups.items()
        if name in base and group[0]["kind"] == "mltree"
    }
    told = "CPU seconds (user) / wall seconds of the whole process; medians.\n\n"
    return told + _crossed(cells, sideways=False) if cells else ""


def _ratio(group: Sequence[Row], base: Sequence[Row], clock: str) -> str:
    own, other = _time(group, clock), _time(base, clock)
    return "–" if own is None or other is None else f"{own / other:.2f}"


def _claims(rows: Sequence[Row]) -> str:
    """How far the judge's lnLs lie above what programs say of the same trees."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in _judged(rows):
        claimed = row.get("claimed_lnl", row.get("lnl"))
        if claimed is not None:
            more = found.setdefault((row["dataset"], who(row)), [])
            more.append(row["judged_lnl"] - claimed)
    cells = {
        key: " to ".join(dict.fromkeys(_signed(end) for end in (min(more), max(more))))
        for key, more in found.items()
    }
    told = (
        "The judge's lnL less the program's own, least and most over the seeds. Bounds on alpha "
        "and branch lengths differ; FastTree computes another likelihood.\n\n"
    )
    return told + _crossed(cells, sideways=True) if cells else ""


def _judged(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if "judged_lnl" in row]


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in rows))


def _best(judged: Sequence[Row]) -> dict[str, float]:
    """The best lnL of anybody, by alignment."""
    best: dict[str, float] = {}
    for row in judged:
        best[row["dataset"]] = max(best.get(row["dataset"], row["judged_lnl"]), row["judged_lnl"])
    return best


def _groups(rows: Iterable[Row]) -> Groups:
    groups: Groups = {}
    for row in rows:
        groups.setdefault((row["dataset"], who(row)), []).append(row)
    return groups


def _lnls(group: Sequence[Row]) -> list[float]:
    return [row["judged_lnl"] for row in _judged(group)]


def _time(group: Sequence[Row], clock: str) -> float | None:
    """Median seconds over the seeds; None if the clock was not read for all."""
    times = [row[clock]["median"] for row in group if row.get(clock)]
    return median(times) if len(times) == len(group) else None


# Whole analyses, mltree beside IQ-TREE.


def pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Rows of mltree and of the other program on the same alignment."""
    ended = [row for row in rows if row["status"] == "done"]
    others = {row["dataset"]: row for row in ended if row["kind"] == "rival"}
    return [
        (row, others[row["dataset"]])
        for row in ended
        if row["kind"] == "mltree" and row["dataset"] in others
    ]


def difference(value: float) -> str:
    """A signed difference with two decimals, without a sign where they are zeros."""
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def analyses(run: Run) -> str:
    """CPU seconds, memory, models, lnL and BIC of whole analyses."""
    head = ["alignment", "taxa × sites", "CPU seconds", "share", "peak memory", "models",
            "lnL", "BIC"]  # fmt: skip
    body = []
    for own, other in pairs(run.rows):
        mine, theirs = own["cpu_s"]["median"], other["cpu_s"]["median"]
        memory = [
            f"{row['peak_memory'] / MB:,.0f}" if "peak_memory" in row else "?"
            for row in (own, other)
        ]
        body.append([
            own["dataset"],
            f"{own['taxa']:,} × {own['sites']:,} {own['data']}",
            f"{seconds(mine)} / {seconds(theirs)}",
            f"{mine / theirs:.2f}",
            f"{' / '.join(memory)} MB",
            f"{own['model']} / {other['model']}",
            f"{own['lnl']:.2f} ({difference(own['lnl'] - other['lnl'])})",
            f"{own['bic']:.2f} ({difference(own['bic'] - other['bic'])})",
        ])  # fmt: skip
    programs = sorted({f"IQ-TREE {other['program']}" for _, other in pairs(run.rows)})
    told = (
        "Model choice, tree, SH-aLRT and ultrafast bootstrap (1,000 each) by one command on one "
        f"core: mltree's figures / those of {', '.join(programs)}. CPU seconds are user and system "
        "seconds of all processes; share: mltree's seconds over the other's. lnL and BIC are "
        "mltree's, in brackets less the other's."
    )
    return f"{told}\n\n{markdown_table(head, body)}"
