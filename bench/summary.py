"""The README's table: whole analyses beside IQ-TREE, searches on a GPU beside 16 cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.markdown import markdown_table, seconds, who
from bench.quoted import QUOTED_SEARCHES
from bench.results import FOLDER, Row, load
from bench.search_tables import NO_WORSE, difference, pairs, standings

__all__ = ["ANALYSES", "DATA", "SEARCHES", "summary"]

ANALYSES, ON_GPU, SEEDS = "analyses-2core", "search-h200", "search-quality"
"""The stored results: whole analyses, searches on a GPU, many alignments and several seeds."""

GPU = "mltree, fast preset, NVIDIA H200"
"""Title of mltree's rows on the GPU."""

HOST = "H200's host"
"""Machine of the quoted searches beside them."""

SEARCHES: Mapping[str, tuple[str, str]] = {
    "beast_benchmark2_carnivora": ("carnivores, mtDNA", "62 × 10,869"),
    "sim200x2000_gtrg": ("simulated DNA", "200 × 2,000"),
    "sim50x2000_lgg": ("simulated proteins", "50 × 2,000"),
}
"""Alignments of searches on a GPU: their data, and taxa × sites."""

DATA: Mapping[str, str] = {
    "animals": "animals, DNA",
    "frogs": "frogs, rRNA",
    "laurasiatherian": "mammals, RNA genes",
    "primates": "primates, mtDNA",
    "proteins": "proteins",
}
"""Data of the alignments of whole analyses; others are simulated."""


def summary(folder: Path = FOLDER) -> str:
    """The table, and what has to be known to read it."""
    head = ["", "data", "taxa × sites", "mltree", "other program", "lnL", "BIC"]
    body = [*_analyses(folder), *_searches(folder)]
    told = (
        "Whole analyses: model choice, tree, SH-aLRT and ultrafast bootstrap (1,000 each) by one "
        "command on one core; CPU seconds of all processes, kernels built beforehand. Searches: "
        "wall seconds from start to written tree, by mltree's fast preset on one NVIDIA H200, and "
        "by RAxML-NG from the same parsimony tree on 16 cores of its host. lnL and BIC: mltree's "
        "less the other program's; a higher lnL and a lower BIC are better."
    )
    return f"{markdown_table(head, body)}\n\n{told}\n\n{_over_seeds(folder)}"


def _analyses(folder: Path) -> Iterator[list[str]]:
    for own, other in pairs(load(folder / f"{ANALYSES}.json").rows):
        kind = "proteins" if own["data"] == "AA" else "DNA"
        yield [
            "whole analysis",
            DATA.get(own["dataset"], f"simulated {kind}"),
            f"{own['taxa']:,} × {own['sites']:,}",
            f"{seconds(own['cpu_s']['median'])} s, 1 core",
            f"{seconds(other['cpu_s']['median'])} s, IQ-TREE {other['program']}, 1 core",
            difference(own["lnl"] - other["lnl"]),
            difference(own["bic"] - other["bic"]),
        ]


def _searches(folder: Path) -> Iterator[list[str]]:
    rows = load(folder / f"{ON_GPU}.json").rows
    for dataset, (data, size) in SEARCHES.items():
        mine = [row for row in rows if row["dataset"] == dataset and who(row) == GPU]
        (quoted,) = (one for one in QUOTED_SEARCHES if one.machine == HOST and dataset in one.found)
        took, lnl = quoted.found[dataset]
        yield [
            "search",
            data,
            size,
            f"{seconds(_median(mine, 'whole_s'))} s, 1 GPU",
            f"{seconds(took)} s, {quoted.title}, {quoted.threads} cores",
            difference(median(row["judged_lnl"] for row in mine) - lnl),
            "",
        ]


def _median(rows: Sequence[Row], clock: str) -> float:
    return float(median(row[clock]["median"] for row in rows))


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
