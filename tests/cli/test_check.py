"""What commands say of the data that they read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]


def test_a_search_tells_what_check_tells(run: Run, tmp_path: Path) -> None:
    rows = {"a": "ACGTACGTAA", "A": "ACX-------", "c": "ACGT.CGTAC", "d": "GCTTACGTCC"}
    Path("odd.fa").write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    check = run("check", "odd.fa").output
    warnings = re.findall(r"^warning: (.*)$", check, re.MULTILINE)
    assert len(warnings) == 4, check
    for command in (
        ("search", "--preset", "fast", "--prefix", "s"),
        ("evaluate", "--tree", "((a,A),c,d);", "--prefix", "e"),
    ):
        result = run(*command, "odd.fa", "--model", "JC", "--device", "reference")
        assert result.exit_code == 0, result.output
        notes = re.findall(r"note: (.*)$", result.output, re.MULTILINE)
        assert notes[:4] == warnings


def test_the_data_type_can_be_told(run: Run, tmp_path: Path) -> None:
    rows = {"a": "MKVRS", "b": "MKVRS", "c": "MKARS", "d": "RKVRS"}
    Path("few.fa").write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    tree = ("few.fa", "--tree", "((a,b),c,d);", "--device", "reference", "--redo", "--prefix", "x")
    for options, expected in (
        ((), "AA (0% EFILPQ, 5% ACGT)"),
        (("--data-type", "dna"), "DNA (5.0% ACGT, 19 ambiguity codes)"),
        (("--model", "JC"), "DNA (5.0% ACGT, 19 ambiguity codes)"),
        (("--data-type", "protein"), "AA (0% EFILPQ, 5% ACGT)"),
    ):
        result = run("evaluate", *tree, "--no-opt-branches", "--no-opt-model", *options)
        assert result.exit_code == 0, result.output
        assert expected in result.output
        assert ("could be DNA" in result.output) == (not options)


def test_the_parts_are_shown(run: Run, primates: str) -> None:
    Path("genes.part").write_text(
        "GTR+G4, first = 1-898\\3, 2-898\\3\nHKY+I, [b]third = 3-898\\3\n"
    )
    shown = run("check", primates, "--partitions", "genes.part")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert rows[0] == ["2", "parts", "of", "898", "sites,", "12", "taxa"]
    assert [row[:3] for row in rows[2:]] == [["first", "DNA", "599"], ["[b]third", "DNA", "299"]]
    told = run("check", primates, "--partitions", "genes.part", "--json").stdout.splitlines()
    event, last = map(json.loads, told)
    assert (event["event"], last["event"]) == ("PartitionsLoaded", "result")
    patterns = [str(part["patterns"]) for part in event["parts"]]
    assert patterns == [row[3] for row in rows[2:]]
    assert [part["taxa"] for part in event["parts"]] == [12, 12]


def test_bad_parts_are_one_line(run: Run, primates: str) -> None:
    Path("genes.part").write_text("GTR+G4, first = 1-500\nHKYY, last = 501-898\n")
    result = run("check", primates, "--partitions", "genes.part")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("mltree: genes.part, line 2: part last: unknown model 'HKYY'")


def test_an_alignment_as_json(run: Run, primates: str) -> None:
    event, last = map(json.loads, run("check", primates, "--json").stdout.splitlines())
    assert (event["event"], last["event"]) == ("AlignmentChecked", "result")
    assert event["summary"]["taxa"] == last["taxa"] == 12
    assert event["memory"] is None or event["memory"]["process"] > 0
