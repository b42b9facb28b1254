"""What commands say of the data that they read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]


def test_a_search_tells_what_check_tells(run: Run, tmp_path: Path) -> None:
    rows = {"a": "ACGTACGTAA", "A": "ACX-------", "c": "ACGT.CGTAC", "d": "GCTTACGTCC"}
    Path("odd.fa").write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    check = run("check", "odd.fa").stdout
    warnings = re.findall(r"^warning: (.*)$", check, re.MULTILINE)
    assert len(warnings) == 4, check
    for command in (
        ("search", "--preset", "fast", "--prefix", "s"),
        ("evaluate", "--tree", "((a,A),c,d);", "--prefix", "e"),
    ):
        result = run(*command, "odd.fa", "--model", "JC", "--device", "reference")
        assert result.exit_code == 0, result.output
        notes = re.findall(r"note: (.*)$", result.stdout, re.MULTILINE)
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
        assert expected in result.stdout
        assert ("could be DNA" in result.stdout) == (not options)
