"""What follows from stored results: tables, plots, and the README's figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import plots, render, search_tables, tables
from bench.markdown import circumstances, crowded
from bench.results import FOLDER, Run, load, repeated

PROVENANCE = {
    "utc": "2026-01-02T03:04:05+00:00",
    "commit": "abc",
    "command": "python -m bench table1",
    "seed": 1,
    "repetitions": 3,
    "cpu": "a CPU",
    "cores": 2,
    "mltree": "0.1.0",
    "devices": [{"name": "a device", "platform": "a platform", "driver": "1"}],
}


def mltree_row(name: str, patterns: int, search: float) -> dict[str, object]:
    return {
        "contender": name,
        "kind": "mltree",
        "threads": 1,
        "dataset": f"paper {patterns}",
        "patterns": patterns,
        "seed": 1,
        "status": "done",
        "whole_s": repeated([search + 1]),
        "user_s": repeated([search]),
        "load_s": repeated([0.1]),
        "open_s": repeated([0.1]),
        "build_s": repeated([0.1]),
        "search_s": repeated([search]),
        "functions": {"newview": search / 2},
        "judged_lnl": -100.0 - search,
        "topology": 1,
    }


@pytest.fixture
def run() -> Run:
    rows = [mltree_row("AVX layout", 1024, 4.0), mltree_row("new layout", 1024, 1.0)]
    late = {
        "contender": "Rival 1", "kind": "rival", "threads": 2, "dataset": "paper 1024",
        "patterns": 1024, "seed": 1, "status": "timeout", "limit_s": 60.0,
    }  # fmt: skip
    return Run("table1", {**PROVENANCE}, {"origin": "given"}, [*rows, late])


def test_a_load_is_that_of_the_whole_machine(run: Run) -> None:
    """A run that is pinned to some cores is not crowded by what others do."""
    run.rows[0]["load_average"] = 8.0
    assert crowded(run)
    run.provenance.update(cores=16, pinned_to=2)
    assert not crowded(run)
    assert "on a CPU, 16 cores, pinned to 2;" in circumstances(run)


def test_time_outs_are_shown(run: Run) -> None:
    assert "| Rival 1, 2 threads | > 60 |" in tables.brief(run)


def test_searches_stand_beside_whole_processes(run: Run) -> None:
    assert "| mltree, new layout, 1 thread | 2.00 (1.00) |" in tables.brief(run)


def test_quoted_figures_are_marked_and_only_beside_their_own_data(run: Run) -> None:
    assert re.search(r"\*RAxML-NG .*quoted.*\| \*0\.324\* \|", tables.brief(run))
    run.settings["origin"] = "simulated"
    assert "quoted" not in tables.brief(run)


def test_a_shared_machine_is_told_by_cpu_seconds(run: Run) -> None:
    run.rows[0]["load_average"] = 5.0
    assert "Other work shared the machine" in tables.brief(run)
    assert "| mltree, new layout, 1 thread | 1.00 |" in tables.brief(run)


def test_speedups_are_over_the_avx_layout(run: Run) -> None:
    assert tables.speedups(run.rows) == [(1024, "mltree, new layout, 1 thread", "newview", 4.0)]


def test_gaps_are_below_the_best_tree_of_anybody(run: Run) -> None:
    found = {who: gap for _, who, gap, _ in search_tables.gaps(run.rows)}
    assert found["mltree, new layout, 1 thread"] == 0.0
    assert found["mltree, AVX layout, 1 thread"] == 3.0


def test_a_page_says_what_it_was_measured_on(run: Run) -> None:
    page = tables.full(run)
    for fact in ("a CPU", "a device", "abc", "2026-01-02", "`python -m bench table1`"):
        assert fact in page


def test_checks_that_fail_are_told(run: Run) -> None:
    run.checks.append({"what": "one lnL", "holds": False})
    assert "does not hold" in tables.full(run)


def test_runs_survive_storing(run: Run, tmp_path: Path) -> None:
    run.path = tmp_path / "table1.json"
    run.save()
    assert load(run.path) == run


def test_a_run_can_go_on_from_another(run: Run) -> None:
    newer = Run("table1", {**PROVENANCE, "commit": "def"}, {})
    newer.go_on_from(run)
    newer.add(mltree_row("new layout", 1024, 0.5))
    assert len(newer.rows) == len(run.rows) == 3
    assert newer.rows[-1]["commit"] == "def"
    assert "at abc" in tables.full(newer)


def test_only_marked_blocks_change(run: Run, tmp_path: Path) -> None:
    run.path = tmp_path / "mine.json"
    run.save()
    text = (
        "a\n<!-- bench:mine -->\nold\n<!-- /bench -->\nb\n<!-- bench:none -->\nc\n<!-- /bench -->"
    )
    new = render.filled(text, tmp_path)
    assert "old" not in new
    assert tables.brief(run) in new
    assert new.endswith("b\n<!-- bench:none -->\n<!-- /bench -->")


def test_a_name_stands_for_every_machine(run: Run, tmp_path: Path) -> None:
    for run.path in (tmp_path / "table1.json", tmp_path / "table1-gpu.json"):
        run.save()
    new = render.filled("<!-- bench:table1 -->\n<!-- /bench -->\n", tmp_path)
    assert new.count(tables.brief(run)) == 2
    assert render.filled(new, tmp_path) == new


def test_plots_are_the_same_every_time(run: Run, tmp_path: Path) -> None:
    first = [path.read_text() for path in plots.draw(run, tmp_path / "x")]
    assert first
    assert first == [path.read_text() for path in plots.draw(run, tmp_path / "x")]


@pytest.mark.parametrize("page", render.PAGES, ids=lambda page: page.stem)
def test_pages_quote_stored_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = re.findall(r"<!-- bench:(\S+) -->", text)
    assert names
    for name in set(names) - {render.SUMMARY}:
        assert render.stored(name), f"{page.name} quotes {name}, which is not stored"
    assert render.filled(text) == text, "run: python -m bench render"


@pytest.mark.parametrize("result", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_stored_pages_are_fresh(result: Path) -> None:
    page = result.with_suffix(".md").read_text(encoding="utf-8")
    assert page.startswith(tables.full(load(result))), "run: python -m bench render"
