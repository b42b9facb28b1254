"""The numbers that a run reports: one lnL, whatever it was found with, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

Run = Callable[..., Result]

ROOT = Path(__file__).parents[2]

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


CLASSES = "MIX{JC:1:0.3,HKY{3}+FU{0.4/0.3/0.1/0.2}:2:0.7}+G4{0.5}"


def test_classes_and_frequencies_of_sites(run: Run, primates: str) -> None:
    """A site's frequencies are those of its classes, by their probabilities, in IQ-TREE's files."""
    taxa = [line.split()[0] for line in Path(primates).read_text().splitlines()[1:]]
    comb = taxa[0]
    for taxon in taxa[1:-1]:
        comb = f"({comb}:0.1,{taxon}:0.1)"
    Path("t.nwk").write_text(f"{comb[:-1]},{taxa[-1]}:0.1);")
    result = run(
        "evaluate", primates, "--tree", "t.nwk", "--model", CLASSES, *FIXED,
        "--site-prob", "--site-freq", "--prefix", "e",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    header, *rows = Path("e.mltree.siteprob").read_text().splitlines()
    assert header.split("\t") == ["Site", "p1", "p2"]
    posteriors = np.array([row.split() for row in rows], np.float64)
    assert posteriors[:, 0].tolist() == list(range(1, 899))
    np.testing.assert_allclose(posteriors[:, 1:].sum(axis=1), 1.0, atol=1e-5)
    found = np.loadtxt("e.mltree.sitefreq")
    frequencies = np.array([[0.25] * 4, [0.4, 0.3, 0.1, 0.2]])
    np.testing.assert_allclose(found[:, 1:], posteriors[:, 1:] @ frequencies, atol=1e-5)
    assert np.ptp(posteriors[:, 1]) > 0.3


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("GTR+G4", "GTR has no classes of sites"),
        (str(ROOT / "datasets" / "primates.part"), "those of one model, not of parts"),
    ],
)
def test_sites_without_classes_are_refused(
    run: Run, primates: str, model: str, message: str
) -> None:
    Path("t.nwk").write_text("(a,b,c);")
    result = run("evaluate", primates, "--tree", "t.nwk", "--model", model, "--site-prob")
    assert result.exit_code == 2
    assert message in result.stderr


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
