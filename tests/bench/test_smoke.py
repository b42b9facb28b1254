"""Every benchmark runs, in seconds, and its result can be rendered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import tables
from bench.commands import main
from bench.results import Run, load

RACES = ("table1", "search")
COMMANDS = (*RACES, "kernels", "cases", "scale", "reach", "precision", "sample", "unifrac")


def smoke(command: str, folder: Path, *more: str) -> Run:
    out = folder / "result.json"
    main([command, "--smoke", "--out", str(out), "--cache", str(folder), "--commit", "test", *more])
    return load(out)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_smoke_run_measures_and_renders(command: str, tmp_path: Path) -> None:
    more = ("--threads", "1", "--rivals", "none") if command in RACES else ()
    run = smoke(command, tmp_path, *more)
    assert run.rows
    assert all(row.get("status", "done") == "done" for row in run.rows), run.rows
    assert all(check["holds"] for check in run.checks), run.checks
    assert run.provenance["commit"] == "test"
    assert str(tmp_path) not in run.provenance["command"]
    assert tables.full(run)


BOASTER = """
import shutil, sys
if "-help" in sys.argv:
    print("FastTree 9.9")
else:
    given = dict(zip(sys.argv, sys.argv[1:]))
    shutil.copy(given["-intree"], given["-out"])
    print("Gamma(20) LogLk = -1.0")
"""
"""Stands in for FastTree: returns the tree that it was given, and praises it."""


ANALYST = """
import sys
assert sys.argv[1:4] == ["-s", "alignment.phy", "-m"] and "-alrt" in sys.argv
with open("alignment.phy.iqtree", "w") as file:
    file.write("IQ-TREE 9.9 built today\\nBest-fit model according to BIC: HKY+F+G4\\n")
    file.write("Log-likelihood of the tree: -5721.6229 (s.e. 127.0)\\n")
    file.write("Bayesian information criterion (BIC) score: 11626.8505\\n")
"""
"""Stands in for IQ-TREE: knows the answer for the primates."""


def test_a_whole_analysis_stands_beside_that_of_iq_tree(tmp_path: Path) -> None:
    program = tmp_path / "analyst"
    program.write_text(f"#!{sys.executable}\n{ANALYST}")
    program.chmod(0o755)
    run = smoke("analyses", tmp_path, "--iqtree", str(program))
    own, other = run.rows
    assert (own["kind"], other["kind"], other["program"]) == ("mltree", "rival", "9.9")
    assert own["lnl"] == pytest.approx(other["lnl"], abs=0.1)
    assert own["bic"] == pytest.approx(other["bic"], abs=0.2)
    assert own["peak_memory"] > other["peak_memory"] > 0
    assert [check["holds"] for check in run.checks] == [False, True, True], "it took no time"
    assert tables.full(run)


def test_rivals_are_judged_like_everybody(tmp_path: Path) -> None:
    program = tmp_path / "boaster"
    program.write_text(f"#!{sys.executable}\n{BOASTER}")
    program.chmod(0o755)
    rival = ("--rival", f"fasttree={program}", "--rivals", "fasttree")
    run = smoke("search", tmp_path, "--threads", "1", *rival, "--no-mltree")
    (row,) = run.rows
    assert row["claimed_lnl"] == -1.0
    assert row["judged_lnl"] == pytest.approx(-5719.36, abs=10)


def test_judging_can_wait(tmp_path: Path) -> None:
    run = smoke("search", tmp_path, "--threads", "1", "--rivals", "none", "--no-judge")
    assert all("judged_lnl" not in row for row in run.rows)
    out = tmp_path / "result.json"
    main(["judge", str(out), "--cache", str(tmp_path)])
    assert all(row["judged_lnl"] == pytest.approx(row["lnl"], abs=0.1) for row in load(out).rows)


def test_a_race_says_who_was_late(tmp_path: Path) -> None:
    more = ("--threads", "1", "--rivals", "none", "--timeout", "0.05", "--no-judge")
    run = smoke("table1", tmp_path, *more)
    assert {row["status"] for row in run.rows} == {"timeout"}
    assert "> 0" in tables.brief(run)


def test_golden_numbers_need_their_folder() -> None:
    with pytest.raises(SystemExit, match="--data"):
        main(["golden", "--smoke"])
