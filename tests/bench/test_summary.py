"""The README's table: the rival is the quickest of the good ones, the difference is to the best."""

from pathlib import Path

import pytest

from bench import summary
from bench.quoted import QuotedSearch
from bench.results import Run

LINE = summary.Line(
    "toads", "3 × 4", "toads", "own", "mltree, fast preset, 1 thread", "1 CPU core", "all", "here"
)


def row(kind: str, who: str, took: float, lnl: float) -> dict[str, object]:
    return {
        "kind": kind, "contender": who, "threads": 1, "dataset": "toads", "seed": 1,
        "status": "done", "user_s": {"median": took}, "judged_lnl": lnl,
    }  # fmt: skip


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells of the table's only line."""
    made = {"utc": "2026-01-02T03:04", "commit": "abc"}
    rivals = [
        row("rival", "Slow", 100.0, -10.0),
        row("rival", "Near", 5.0, -11.0),
        row("rival", "Far", 1.0, -50.0),
    ]
    quoted = QuotedSearch("Elsewhere", 2, "here", {"toads": (4.0, -11.5)})
    monkeypatch.setattr(summary, "LINES", (LINE,))
    monkeypatch.setattr(summary, "QUOTED_SEARCHES", (quoted,))
    seeds = [
        {**row(kind, "default preset", 1.0, lnl), "seed": seed}
        for seed in (1, 2)
        for kind, lnl in (("mltree", -9.0), ("rival", -10.0))
    ]
    for name, rows in (
        ("search-quality", seeds),
        ("own", [row("mltree", "fast preset", 2.0, -9.5)]),
        ("all", rivals),
    ):
        Run("search", made, {}, rows, path=tmp_path / f"{name}.json").save()
    table, *_, over_seeds = summary.summary(tmp_path).split("\n\n")
    assert over_seeds.startswith("Median of the default preset over 2 seeds")
    assert "on all 1 alignments mltree is at most 0.1 log-likelihood" in over_seeds
    return [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]


def test_a_line_names_the_quickest_good_rival(cells: list[str]) -> None:
    assert cells[:4] == ["toads", "3 × 4", "1 CPU core", "*Elsewhere, 2 cores*"]


def test_a_line_compares_with_the_best_tree_of_any(cells: list[str]) -> None:
    assert cells[4:] == ["2.00 / 4.00", "+0.50"]


def test_alignments_have_a_line_each() -> None:
    assert len({(line.dataset, line.result) for line in summary.LINES}) == len(summary.LINES)
