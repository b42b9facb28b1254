"""The README's table: whole analyses beside IQ-TREE's, searches on a GPU beside quoted ones."""

from pathlib import Path

import pytest

from bench import summary, tables
from bench.quoted import QuotedSearch
from bench.results import Run

MADE = {
    "utc": "2026-01-02T03:04", "commit": "abc", "cpu": "a CPU", "cores": 2, "mltree": "1",
    "devices": [], "repetitions": 1, "command": "python -m bench analyses",
}  # fmt: skip


def analysis(kind: str, took: float, lnl: float, bic: float) -> dict[str, object]:
    return {
        "contender": kind, "kind": kind, "dataset": "toads", "taxa": 1200, "sites": 34,
        "data": "AA", "status": "done", "cpu_s": {"median": took}, "peak_memory": 5_000_000,
        "model": "LG", "lnl": lnl, "bic": bic, "program": "9.9", "seed": 1, "threads": 1,
    }  # fmt: skip


def search(kind: str, who: str, lnl: float, seed: int = 1) -> dict[str, object]:
    return {
        "kind": kind, "contender": who, "threads": None, "dataset": "frogs", "seed": seed,
        "status": "done", "whole_s": {"median": 2.0}, "judged_lnl": lnl,
    }  # fmt: skip


ANALYSES = Run(
    "analyses", MADE, {}, [analysis("mltree", 2.0, -9.5, 20.0), analysis("rival", 4.0, -10.0, 21.0)]
)


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Cells of the lines of the table, with a search on a GPU and seeds of another."""
    quoted = QuotedSearch("Elsewhere", 16, summary.HOST, {"frogs": (8.0, -10.0)})
    monkeypatch.setattr(summary, "QUOTED_SEARCHES", (quoted,))
    monkeypatch.setattr(summary, "SEARCHES", {"frogs": ("frogs, rRNA", "64 × 1,976")})
    seeds = [
        search(kind, "default preset", lnl, seed)
        for seed in (1, 2)
        for kind, lnl in (("mltree", -9.0), ("rival", -10.0))
    ]
    on_gpu = [search("mltree", "fast preset, NVIDIA H200", -9.75)]
    ANALYSES.path = tmp_path / f"{summary.ANALYSES}.json"
    ANALYSES.save()
    for name, rows in ((summary.SEEDS, seeds), (summary.ON_GPU, on_gpu)):
        Run("search", MADE, {}, rows, path=tmp_path / f"{name}.json").save()
    table, *_, over_seeds = summary.summary(tmp_path).split("\n\n")
    assert over_seeds.startswith("Median of the default preset over 2 seeds")
    assert "on all 1 alignments mltree is at most 0.1 log-likelihood" in over_seeds
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def test_an_analysis_stands_beside_that_of_iq_tree(lines: list[list[str]]) -> None:
    assert lines[0] == [
        "whole analysis", "simulated proteins", "1,200 × 34", "2.00 s, 1 core",
        "4.00 s, IQ-TREE 9.9, 1 core", "+0.50", "-1.00",
    ]  # fmt: skip


def test_a_search_on_a_gpu_stands_beside_one_on_16_cores(lines: list[list[str]]) -> None:
    assert lines[1:] == [
        ["search", "frogs, rRNA", "64 × 1,976", "2.00 s, 1 GPU", "8.00 s, Elsewhere, 16 cores",
         "+0.25", ""]
    ]  # fmt: skip


def test_the_page_of_analyses_has_seconds_memory_and_models() -> None:
    page = tables.full(ANALYSES)
    assert "| 2.00 / 4.00 | 0.50 | 5 / 5 MB | LG / LG | -9.50 (+0.50) | 20.00 (-1.00) |" in page


def test_an_analysis_that_failed_has_no_line() -> None:
    run = Run("analyses", MADE, {}, [*ANALYSES.rows])
    run.rows[1] = {**run.rows[1], "status": "timeout"}
    assert "toads" not in tables.full(run)
