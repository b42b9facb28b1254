"""``mltree sample --clock``: its files, its resumption, and what it refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

import mltree

Run = Callable[..., Result]

SHORT = ("--model", "HKY", "--clock", "ucln", "--burnin", "30", "--rungs", "2", "--runs", "2")


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Six taxa x 60 sites, whose names end in years; one has a year alone."""
    rng = np.random.default_rng(1)
    root = rng.choice(list("ACGT"), 60)
    rows = []
    for taxon in range(6):
        row = np.where(rng.random(60) < 0.15, rng.choice(list("ACGT"), 60), root)
        date = "2003-XX-XX" if taxon == 2 else f"{2001 + 0.7 * taxon:.2f}"
        rows.append(f">t{taxon}|{date}\n{''.join(row)}\n")
    path = tmp_path / "six.fasta"
    path.write_text("".join(rows))
    return str(path)


def samples(prefix: str) -> dict[str, str]:
    kinds = ("run1.log", "run1.trees", "run2.log", "run2.trees")
    return {kind: Path(f"{prefix}.mltree.{kind}").read_text() for kind in kinds}


def table_of(text: str) -> dict[str, np.ndarray]:
    head, *rows = [row.split("\t") for row in text.splitlines() if not row.startswith("#")]
    return dict(zip(head, np.array(rows, float).T, strict=True))


def test_it_leaves_samples_as_beast_does(run: Run, data: str) -> None:
    result = run("sample", data, *SHORT, "--dates", "names", "--stop", "20", "--prefix", "a")
    assert result.exit_code == 0, result.output
    table = table_of(samples("a")["run1.log"])
    assert list(table) == [
        "Sample", "posterior", "likelihood", "prior", "Tree.height", "Tree.treeLength", "age(root)",
        "clockRate", "ucldStdev", "popSize", "rate.mean", "rate.variance",
        "rate.coefficientOfVariation", "height(t2|2003-XX-XX)", "kappa", "freqParameter.A",
        "freqParameter.C", "freqParameter.G", "freqParameter.T",
    ]  # fmt: skip
    assert table["Sample"].tolist() == list(range(31, 51))
    np.testing.assert_allclose(table["posterior"], table["likelihood"] + table["prior"])
    np.testing.assert_allclose(table["age(root)"] + table["Tree.height"], 2004.5)
    within = table["height(t2|2003-XX-XX)"]
    assert within.min() > 0.49
    assert within.max() < 1.51
    assert np.ptp(within) > 0
    trees = [row for row in samples("a")["run1.trees"].splitlines() if row.startswith("tree ")]
    assert len(trees) == 20
    assert all("[&rate=" in row for row in trees)


def test_a_skyline_has_sizes_and_groups_of_events(run: Run, data: str) -> None:
    skyline = ("--tree-prior", "skyline", "--skyline", "3", "--stop", "20", "--prefix", "a")
    result = run("sample", data, *SHORT, "--dates", "names", *skyline)
    assert result.exit_code == 0, result.output
    table = table_of(samples("a")["run1.log"])
    groups = np.array([table[f"bGroupSizes.{n}"] for n in (1, 2, 3)])
    assert (groups.sum(axis=0) == 5).all()
    assert groups.min() == 1
    sizes = np.array([table[f"bPopSizes.{n}"] for n in (1, 2, 3)])
    assert (sizes > 0).all()
    assert np.ptp(sizes) > 0
    assert "popSize" not in table


def test_rates_of_gtr_are_relative_to_that_of_c_and_t(run: Run, data: str) -> None:
    """Sampled are shares; BEAST has C and T as the unit."""
    gtr = ("sample", data, "--model", "GTR+FE", "--clock", "strict", "--dates", "names")
    priors = 'exchangeabilities = "Dirichlet(1000)"\n'
    Path("even.toml").write_text(priors)
    result = run(*gtr, "--prior", "even.toml", "--burnin", "100", "--stop", "20", "--prefix", "a")
    assert result.exit_code == 0, result.output
    table = table_of(samples("a")["run1.log"])
    rates = [name for name in table if name.startswith("rate")]
    assert rates == ["rateAC", "rateAG", "rateAT", "rateCG", "rateGT"]
    assert all(abs(table[name].mean() - 1) < 0.2 for name in rates)


def test_lnl_is_that_of_the_sampled_tree(run: Run, data: str) -> None:
    """Branches of time times rate are lengths, under which another command has the same lnL."""
    run("sample", data, *SHORT, "--dates", "names", "--stop", "4", "--prefix", "a")
    row = {name: values[-1] for name, values in table_of(samples("a")["run1.log"]).items()}
    text = next(r for r in reversed(samples("a")["run1.trees"].splitlines()) if "tree " in r)
    newick = text.partition("[&R] ")[2]
    names = [f"t{n}|2003-XX-XX" if n == 2 else f"t{n}|{2001 + 0.7 * n:.2f}" for n in range(6)]

    def branch(match: re.Match[str]) -> str:
        return f":{float(match[1]) * float(match[2]):.12g}"

    newick = re.sub(r"\[&rate=([^\]]+)\]:([-+0-9.eE]+)", branch, newick)
    newick = re.sub(r"(?<=[(,])(\d+)(?=:)", lambda m: f"'{names[int(m[1]) - 1]}'", newick)
    Path("t.nwk").write_text(newick)
    frequencies = "/".join(str(row[f"freqParameter.{x}"]) for x in "ACGT")
    model = f"HKY{{{row['kappa']}}}+FU{{{frequencies}}}"
    result = mltree.evaluate(data, "t.nwk", model, optimise_model=False, optimise_branches=False)
    assert result.lnl == pytest.approx(row["likelihood"], abs=2e-3)


@pytest.mark.cases(1, 10)
def test_a_killed_run_goes_on_with_the_same_bytes(
    run: Run, data: str, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.analyses.sample.PAUSE", 0.0)
    grid = ("--tree-prior", "skygrid", "--skygrid", "4,0.8")
    command = ("sample", data, *SHORT, "--dates", "names", *grid, "--stop", "30", "--prefix")
    assert run(*command, "straight").exit_code == 0
    code = "import mltree.analyses.sample as s; s.PAUSE = 0.0; "
    code += "from mltree.cli.main import main; main()"
    log, rng = Path("killed.mltree.run1.log"), np.random.default_rng(case)
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *command, "killed", "-q"],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ),
        )  # fmt: skip
        until, rows = time.monotonic() + 60, int(rng.integers(3, 28))
        while time.monotonic() < until and process.poll() is None:
            if log.exists() and log.read_text().count("\n") > rows:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert run(*command, "killed").exit_code == 0
    assert samples("killed") == samples("straight")


TABLES = {
    "none.tsv": "nobody\t1999\n",
    "future.tsv": "t0|2001.00\t-3\nt1|2001.70\t2\n",
    "young.tsv": "pair\tt0|2001.00,t1|2001.70\t[2003,2010]\n",
    "two.tsv": "in\tt0|2001.00,t1|2001.70\t[1900,1910]\nout\tt0|2001.00,t1|2001.70,t3|2003.10\t"
    "[1950,1960]\n",
    "offset.toml": 'population_size = "1 + LogNormal(1, 3)"\n',
    "flat.toml": 'clock_rate = "Uniform(0, inf)"\n',
}
CLOCK = ("--clock", "strict", "--model", "JC")
REFUSED = [
    (("--model", "JC", "--dates", "names"), "add --clock"),
    (("--model", "JC", "--tree-prior", "yule"), "--tree-prior is of trees in time"),
    ((*CLOCK, "--skygrid", "9"), "--skygrid is of --tree-prior skygrid"),
    ((*CLOCK, "--dates", "none.tsv"), "nobody"),
    ((*CLOCK, "--dates", "future.tsv", "--ages"), "after the present"),
    ((*CLOCK, "--dates", "names", "--calibrate", "young.tsv"), "no older than"),
    ((*CLOCK, "--dates", "names", "--calibrate", "two.tsv"), "at most"),
    ((*CLOCK, "--dates", "names", "--prior", "flat.toml"), "improper"),
    ((*CLOCK, "--tree-prior", "skygrid", "--prior-only"), "how much time a skygrid spans"),
    ((*CLOCK, "--dates", "names", "--prior", "offset.toml"), "an offset, as only a calibration"),
    ((*CLOCK, "--tree-prior", "skygrid", "--skygrid", "1"), "cells"),
    ((*CLOCK, "--tree-prior", "skyline", "--skyline", "6"), "the tree has 5 events"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_sampled_is_told_in_one_line(
    run: Run, data: str, options: tuple[str, ...], words: str
) -> None:
    for name, text in TABLES.items():
        Path(name).write_text(text)
    result = run("sample", data, *options, "--stop", "5", "--prefix", "b")
    assert result.exit_code == 2
    assert words in result.output
    assert not Path("b.mltree.run1.log").exists()


def test_two_taxa_have_no_time_tree_to_sample(run: Run) -> None:
    Path("two.fasta").write_text(">a\nACGT\n>b\nACGA\n")
    result = run("sample", "two.fasta", *CLOCK, "--stop", "5")
    assert result.exit_code == 2
