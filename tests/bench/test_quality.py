"""Races side by side: own starts, deadlines, and going on where a run ended."""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import pytest

from bench.data import Dataset, Source
from bench.provenance import ROOT
from bench.quality import Field, measure
from bench.race import Race
from bench.results import Run, load
from bench.rivals import MODELS, PROGRAMS, Job, Program, Rival

TREE = "(a,b,(c,d));"

PRIMATES = ROOT / "datasets" / "primates.phy"


def run(path: Path) -> Run:
    made = dict.fromkeys(("utc", "commit", "command", "cpu", "devices"))
    return Run("search", made, {}, path=path)


def dataset() -> Dataset:
    return Dataset("primates", PRIMATES, "GTR+FC+G4", None, "shipped")


def rival(name: str, code: str) -> Rival:
    """A program of a few lines, which leaves a tree and says its score."""
    script = f"{code}\nprint('score: -12.5')\nopen('tree.nwk', 'w').write('{TREE}')"
    program = Program(name, name, (), (), "", lambda _: ["-c", script], "tree.nwk", "score: ")
    return Rival(program, sys.executable, "1")


def race_of(target: Run, field: Field, jobs: int = 2, **terms: object) -> None:
    race = Race(1, 60.0, 1, "fast", jobs)
    measure(target, race, [dataset()], (1, 2), field, None, **terms)  # type: ignore[arg-type]


def test_rivals_side_by_side_keep_cpu_seconds_only(tmp_path: Path) -> None:
    target = run(tmp_path / "result.json")
    race_of(target, Field((), (), [rival("A", ""), rival("B", "")], (1,)))
    assert {(row["contender"], row["seed"]) for row in target.rows} == {
        ("A 1", 1), ("A 1", 2), ("B 1", 1), ("B 1", 2),
    }  # fmt: skip
    for row in target.rows:
        assert (row["status"], row["side_by_side"]) == ("done", 2)
        assert (row["tree"], row["claimed_lnl"]) == (TREE, -12.5)
        assert row["user_s"]["n"] == 1
        assert "whole_s" not in row


def test_a_resumed_run_adds_what_is_lacking(tmp_path: Path) -> None:
    target = run(tmp_path / "result.json")
    first, second = rival("A", ""), rival("B", "")
    race_of(target, Field((), (), [first], (1,)))
    before = [row["user_s"] for row in target.rows]
    race_of(target, Field((), (), [first, second], (1,)), resume=True)
    assert [row["user_s"] for row in target.rows[:2]] == before
    assert [row["contender"] for row in target.rows].count("B 1") == 2


def test_what_was_late_runs_again_when_it_has_more_time(tmp_path: Path) -> None:
    target = run(tmp_path / "result.json")
    slow = Field((), (), [rival("A", "import time; time.sleep(4)")], (1,))
    race_of(target, slow, within=2.0)
    assert {row["status"] for row in target.rows} == {"timeout"}
    limits = [row["limit_s"] for row in target.rows]
    race_of(target, slow, within=2.0, resume=True)
    assert [row["limit_s"] for row in target.rows] == limits
    race_of(target, slow, resume=True)
    assert {row["status"] for row in target.rows} == {"done"}
    assert len(target.rows) == 2


def test_merged_runs_know_where_their_rows_come_from(tmp_path: Path) -> None:
    one, two = run(tmp_path / "one.json"), run(tmp_path / "two.json")
    race_of(one, Field((), (), [rival("A", "")], (1,)))
    race_of(two, Field((), (), [rival("B", "")], (1,)))
    two.provenance["command"] = "another"
    one.absorb(two)
    one.save()
    merged = load(tmp_path / "one.json")
    assert len(merged.rows) == 4
    assert [old["command"] for old in merged.provenance["earlier"]] == ["another"]
    with pytest.raises(ValueError, match="table1"):
        one.absorb(Run("table1", {}, {}))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.key)
def test_a_program_is_given_a_starting_tree_only_if_there_is_one(
    program: Program, tmp_path: Path
) -> None:
    model = next(
        model for model in MODELS if program.key in {*MODELS[model], "raxml-ng", "raxml-threads"}
    )
    threads = 2 if program.key == "raxml-threads" else 1
    start = tmp_path / "start.nwk"
    given = Job(tmp_path, tmp_path / "x.phy", start, model, 1, threads)
    own = Job(tmp_path, tmp_path / "x.phy", None, model, 1, threads)
    assert str(start) in program.arguments(given)
    assert len(program.arguments(own)) == len(program.arguments(given)) - 2


def test_own_starts_mean_no_tree(tmp_path: Path) -> None:
    assert Source(tmp_path, start="own").dataset("primates").start is None
    assert Source(tmp_path).dataset("primates").start is not None


def test_packed_alignments_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.phy.xz").write_bytes(lzma.compress(PRIMATES.read_bytes()))
    found = Source(tmp_path / "cache", tmp_path, start="own").dataset("mine")
    assert found.alignment.read_bytes() == PRIMATES.read_bytes()
    assert found.origin == "given"
