"""The numbers that a run reports: one lnL, whatever it was found with, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

FIXED = ("--no-opt-model", "--no-opt-branches")

SAME_LNL = 1e-3
"""Between a search's lnL and the evaluation of what it wrote: six decimals of six parameters."""


def final_lnl(output: str) -> float:
    (line,) = (line for line in output.splitlines() if line.startswith("Final log-likelihood:"))
    return float(line.split()[-1])


def test_mixed_precision_is_scored_in_double(run: Run, primates: str) -> None:
    mixed = run("search", primates, "--preset", "fast", "--prefix", "m", "--precision", "mixed")
    assert mixed.exit_code == 0, mixed.output
    assert "scored again in fp64" in mixed.stderr
    files = ("--tree", "m.mltree.bestTree", "--model", "m.mltree.bestModel", "--prefix", "e")
    exact = run("evaluate", primates, *files, *FIXED)
    assert final_lnl(exact.stdout) == pytest.approx(final_lnl(mixed.stdout), abs=SAME_LNL)


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_site_lnls_sum_to_the_lnl(run: Run, primates: str, precision: str) -> None:
    """A site's has ten decimals, the lnL four; fp32 misses it by about 1e-3."""
    starts = run("search", primates, "--preset", "fast", "--moves", "nni", "--prefix", "s")
    assert starts.exit_code == 0, starts.output
    result = run(
        "evaluate", primates, "--tree", "s.mltree.bestTree", "--model", "GTR+I+G4", "--site-lnl",
        "--prefix", "e", "--precision", precision,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    sites = [float(line) for line in Path("e.mltree.siteLnL").read_text().split()]
    assert len(sites) == 898
    assert sum(sites) == pytest.approx(final_lnl(result.output), abs=1e-4)


CONFLICT = "minus infinity: a and b exclude each other at site 2"


@pytest.mark.parametrize(
    ("command", "switches", "message"),
    [
        ("evaluate", FIXED, CONFLICT),
        ("evaluate", ("--no-opt-branches",), CONFLICT),
        ("evaluate", (), None),
        ("compare", (), CONFLICT),
    ],
)
def test_conflicting_zero_length_cherries(
    run: Run, command: str, switches: tuple[str, ...], message: str | None
) -> None:
    Path("a.fa").write_text(">a\nACGTACGTAA\n>b\nAAGTACGTAC\n>c\nACGTTCGTAA\n>d\nACGAACGTAG\n")
    Path("a.nwk").write_text("((a:0,b:0):0.1,c:0.1,d:0.1);")
    result = run(command, "a.fa", "--tree", "a.nwk", "--model", "JC", *switches)
    assert result.exit_code == (2 if message else 0), result.output
    assert message is None or message in result.output
