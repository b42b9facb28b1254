"""Genotypes on the command line: simulated, checked, evaluated, searched for; and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

MODEL = "GT16{1/4/0.7/1/3/1}+FE"


@pytest.fixture
def simulated(run: Run) -> None:
    """Letters that evolved under GT16 along a tree, in the folder of the runs."""
    result = run("simulate", "--model", f"{MODEL}+G4{{0.8}}", "--taxa", "6", "--mean-length", "0.2",
                 "-n", "150", "--seed", "4", "-o", "aln.phy", "--true-tree", "tree")  # fmt: skip
    assert result.exit_code == 0, result.output


def final_lnl(result: Result) -> float:
    assert result.exit_code == 0, result.output
    (line,) = (x for x in result.stdout.splitlines() if x.startswith("Final log-likelihood:"))
    return float(line.split()[-1])


@pytest.mark.parametrize("model", ["GTGTR4+G4", "GT16HKY+FC+I+R2", "GT16JC-SM+FO"])
def test_a_tree_is_evaluated_again_from_what_was_written(
    run: Run, simulated: None, model: str
) -> None:
    of = ("evaluate", "aln.phy", "--device", "reference", "--no-opt-branches")
    lnl = final_lnl(run(*of, "--model", model, "--tree", "tree", "--prefix", "a"))
    text = Path("a.mltree.evalModel").read_text()
    assert text.startswith(("GT10{", "GT16HKY{", "GT16JC-SM+"))
    again = run(*of, "--model", "a.mltree.evalModel", "--tree", "tree", "--no-opt-model",
                "--prefix", "b")  # fmt: skip
    assert final_lnl(again) == pytest.approx(lnl, abs=1e-3)


def test_they_are_searched_for_and_checked(run: Run, simulated: None) -> None:
    result = run("search", "aln.phy", "--data-type", "gt16", "--preset", "fast", "--prefix", "s",
                 "--device", "reference")  # fmt: skip
    final_lnl(result)
    assert Path("s.mltree.bestModel").read_text().startswith("GT16{")
    result = run("check", "aln.phy", "--data-type", "gt10")
    assert "GT10" in result.output
    assert "heterozygous" in result.output


def test_constant_sites_are_those_of_one_letter(run: Run, simulated: None) -> None:
    lines = [line.split() for line in Path("aln.phy").read_text().splitlines()[1:]]
    columns = [c for c in zip(*(row for _, row in lines), strict=True) if len(set(c)) > 1]
    kept = ["".join(row) for row in zip(*columns, strict=True)]
    names = [name for name, _ in lines]
    Path("varying.fa").write_text(
        "".join(f">{name}\n{row}\n" for name, row in zip(names, kept, strict=True))
    )
    of = ("evaluate", "varying.fa", "--tree", "tree", "--device", "reference", "--no-opt-branches")
    lewis = final_lnl(run(*of, "--model", f"{MODEL}+ASC_LEWIS", "--no-opt-model", "--prefix", "l"))
    none = final_lnl(run(*of, "--model", MODEL, "--no-opt-model", "--prefix", "n"))
    assert lewis > none
    stam = f"{MODEL}+ASC_STAM{{{'/'.join(['5'] * 10)}}}"
    assert final_lnl(run(*of, "--model", stam, "--no-opt-model", "--prefix", "m")) < none
    constant = "".join(f">{name}\n{row}M\n" for name, row in zip(names, kept, strict=True))
    Path("varying.fa").write_text(constant)
    result = run(*of, "--model", f"{MODEL}+ASC_LEWIS", "--prefix", "c")
    assert result.exit_code == 2
    assert f"1 site is (or may be): {len(columns) + 1}" in result.stderr


@pytest.mark.parametrize(
    ("letter", "model", "message"),
    [
        ("B", "GT10", "taxon T1, site 3: 'B' is not a GT10 character"),
        ("E", "GT16", "taxon T1, site 3: 'E' is not a GT16 character"),
        ("A", "GT10+FO+E", "+E is not supported yet"),
    ],
)
def test_what_is_refused(run: Run, simulated: None, letter: str, model: str, message: str) -> None:
    text = Path("aln.phy").read_text()
    head, first, *rest = text.splitlines()
    name, row = first.split()
    assert name == "T1"
    Path("aln.phy").write_text("\n".join([head, f"{name} {row[:2]}{letter}{row[3:]}", *rest, ""]))
    result = run("evaluate", "aln.phy", "--tree", "tree", "--model", model)
    assert result.exit_code == 2
    assert message in result.stderr
