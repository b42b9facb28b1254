"""``mltree sample``: its files, its resumption, and what it refuses."""

from __future__ import annotations

import json
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
from launches import launch, ran
from typer.testing import Result

import mltree
import mltree.analyses.sample as analysis
from mltree.program.ops.sweeps import ChainTree
from mltree.sampling.sampler import FreeTrees
from mltree.sampling.shares import ChainShares

Run = Callable[..., Result]

SHORT = ("--model", "HKY+G4", "--burnin", "40", "--rungs", "3", "--runs", "2")
"""Far from converged, but all of it happens."""


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Six taxa x 60 sites."""
    rng = np.random.default_rng(1)
    root = rng.choice(list("ACGT"), 60)
    rows = []
    for taxon in range(6):
        row = np.where(rng.random(60) < 0.15, rng.choice(list("ACGT"), 60), root)
        rows.append(f">taxon {taxon}\n{''.join(row)}\n")
    path = tmp_path / "six.fasta"
    path.write_text("".join(rows).replace("taxon ", "taxon_"))
    return str(path)


def samples(
    prefix: str, kinds: tuple[str, ...] = ("run1.p", "run1.t", "run2.p", "run2.t")
) -> dict[str, str]:
    return {kind: Path(f"{prefix}.mltree.{kind}").read_text() for kind in kinds}


def test_it_leaves_samples_as_mrbayes_does(run: Run, data: str) -> None:
    result = run("sample", data, *SHORT, "--stop", "30", "--prefix", "a")
    assert result.exit_code == 0, result.output
    files = samples("a")
    lines = files["run1.p"].splitlines()
    assert lines[0] == "[ID: 0000000001]"
    head = lines[1].split("\t")
    assert head[:4] == ["Gen", "LnL", "LnPr", "TL"]
    assert head[4:] == ["kappa", "pi(A)", "pi(C)", "pi(G)", "pi(T)", "alpha"]
    table = np.array([line.split("\t") for line in lines[2:]], float)
    assert table.shape == (30, len(head))
    assert table[:, 0].tolist() == list(range(41, 71))
    np.testing.assert_allclose(table[:, 5:9].sum(axis=1), 1)
    trees = files["run1.t"].splitlines()
    assert trees[0] == "#NEXUS"
    assert trees[-1] == "end;"
    assert sum("tree gen." in line for line in trees) == 30
    found = json.loads(Path("a.mltree.sample.json").read_text())
    assert found["samples"] == 30
    assert found["rungs"] == len(found["heats"]) == 3
    assert np.array(found["mean_lnl"]).shape == (2, 3)
    assert found["lnz"] == pytest.approx(np.mean(found["lnz_by_run"]))
    assert not found["converged"]
    assert any(line.startswith("ESS") for line in found["unmet"])
    assert 'branch_lengths = "GammaDirichlet(1, 0.1, 1, 1)"' in found["priors"]


def test_lnl_and_prior_are_those_of_the_sample(run: Run, data: str) -> None:
    """The lnL of a sampled tree under the sampled parameters, by another command."""
    run("sample", data, *SHORT, "--stop", "5", "--prefix", "a")
    head, *rows = [line.split("\t") for line in samples("a")["run1.p"].splitlines()[1:]]
    row = dict(zip(head, map(float, rows[-1]), strict=True))
    text = samples("a")["run1.t"]
    newick = text.splitlines()[-2].partition("[&U] ")[2]
    for number in range(6, 0, -1):
        newick = newick.replace(f"({number}:", f"(taxon_{number - 1}:")
        newick = newick.replace(f",{number}:", f",taxon_{number - 1}:")
    Path("t.nwk").write_text(newick)
    frequencies = "/".join(str(row[f"pi({x})"]) for x in "ACGT")
    model = f"HKY{{{row['kappa']}}}+FU{{{frequencies}}}+G4{{{row['alpha']}}}"
    result = mltree.evaluate(data, "t.nwk", model, optimise_model=False, optimise_branches=False)
    assert result.lnl == pytest.approx(row["LnL"], abs=1e-3)
    assert row["TL"] == pytest.approx(sum(float(x) for x in _lengths(newick)), rel=1e-6)


def _lengths(newick: str) -> list[str]:
    return [part.split(",")[0].split(")")[0].rstrip(";") for part in newick.split(":")[1:]]


def test_a_later_stop_adds_samples(run: Run, data: str) -> None:
    assert run("sample", data, *SHORT, "--stop", "25", "--prefix", "whole").exit_code == 0
    assert run("sample", data, *SHORT, "--stop", "10", "--prefix", "parts").exit_code == 0
    first = samples("parts")
    assert run("sample", data, *SHORT, "--stop", "25", "--prefix", "parts").exit_code == 0
    assert samples("parts") == samples("whole")
    assert first["run1.p"] == "".join(samples("whole")["run1.p"].splitlines(True)[:12])


@pytest.mark.cases(1, 20)
def test_a_killed_run_goes_on_with_the_same_bytes(
    run: Run, data: str, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.analyses.sample.PAUSE", 0.0)
    command = ("sample", data, *SHORT, "--stop", "40", "--prefix")
    assert run(*command, "straight").exit_code == 0
    patch = "import mltree.analyses.sample as s; s.PAUSE = 0.0; "
    code = patch + "from mltree.cli.main import main; main()"
    log = Path("killed.mltree.run1.p")
    rng = np.random.default_rng(case)
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *command, "killed", "-q"],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ),
        )  # fmt: skip
        until, rows = time.monotonic() + 60, int(rng.integers(2, 40))
        while time.monotonic() < until and process.poll() is None:
            if log.exists() and log.read_text().count("\n") > rows:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert run(*command, "killed").exit_code == 0
    assert samples("killed") == samples("straight")


def test_other_data_under_the_same_prefix_lose_nothing(run: Run, data: str) -> None:
    run("sample", data, *SHORT, "--stop", "3", "--prefix", "a")
    before = samples("a")
    for other in (("--seed", "2"), ("--every", "2"), ("--prior-only",)):
        result = run("sample", data, *SHORT, *other, "--stop", "5", "--prefix", "a")
        assert result.exit_code == 2
        assert "belongs to other data, priors or options" in result.output
        assert samples("a") == before
    Path(data).write_text(Path(data).read_text().replace("A", "C", 1))
    assert run("sample", data, *SHORT, "--stop", "5", "--prefix", "a").exit_code == 2
    assert samples("a") == before


def test_fewer_runs_leave_none_of_the_further_ones(run: Run, data: str) -> None:
    run("sample", data, *SHORT, "--runs", "3", "--stop", "3", "--prefix", "a")
    assert Path("a.mltree.run3.p").exists()
    run("sample", data, *SHORT, "--stop", "3", "--prefix", "a", "--redo")
    assert not Path("a.mltree.run3.p").exists()
    assert len(samples("a")["run2.p"].splitlines()) == 5


def test_a_prior_from_a_file_and_no_data(run: Run, data: str) -> None:
    Path("p.toml").write_text('branch_lengths = "Exponential(100)"\n')
    options = ("--prior", "p.toml", "--prior-only", "--every", "2", "--stop", "150")
    assert run("sample", data, *SHORT, *options, "--prefix", "a").exit_code == 0
    found = json.loads(Path("a.mltree.sample.json").read_text())
    assert 'branch_lengths = "Exponential(100)"' in found["priors"]
    rows = samples("a")["run1.p"].splitlines()[2:] + samples("a")["run2.p"].splitlines()[2:]
    lnl, length = np.array([row.split("\t")[1:4:2] for row in rows], float).T
    assert (lnl == 0).all()
    assert length.mean() == pytest.approx(9 / 100, rel=0.15)
    assert found["lnz"] == pytest.approx(0, abs=1e-9)


def test_from_python(data: str, tmp_path: Path) -> None:
    found = mltree.sample(data, "JC", burnin="30", rungs="2", runs=2, stop="20")
    assert len(found.trees) == 40
    assert set(found.parameters) == {"LnL", "LnPr", "TL"}
    assert found.lnz is not None
    assert not found.converged
    assert not list(tmp_path.glob("*mltree*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--runs", "1"), "one run cannot agree with another"),
        (("--stop", "0"), "a number from 1 on, or auto"),
        (("--rungs", "few"), "a number from 1 on, or auto"),
        (("--model", "GTR+PSR"), "+PSR is for search"),
        (("--prior", "none.toml"), "none.toml"),
    ],
)
def test_what_cannot_be_sampled_is_one_line(
    run: Run, data: str, options: tuple[str, ...], message: str
) -> None:
    result = run("sample", data, *options, "--prefix", "x")
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")
    assert not Path("x.mltree.sampleState").exists()


def test_three_taxa_have_one_topology(run: Run, data: str) -> None:
    lines = Path(data).read_text().splitlines(True)
    Path("three.fasta").write_text("".join(lines[:6]))
    result = run("sample", "three.fasta", "--model", "JC")
    assert result.exit_code == 2
    assert "3 taxa have one topology" in result.output


def test_sites_left_out_are_whole_ones(run: Run) -> None:
    rows = np.array([list("ACGT" * 8), list("CAGT" * 8), list("ACTG" * 8), list("CATG" * 8)])
    Path("four.fasta").write_text("".join(f">t{n}\n{''.join(r)}\n" for n, r in enumerate(rows)))
    result = run("sample", "four.fasta", "--model", "JC+ASC_FELS{9.5}")
    assert result.exit_code == 2
    assert "a number of sites that is sampled is a whole one" in result.output
    short = (*SHORT[2:], "--stop", "6", "--prefix", "x")
    assert run("sample", "four.fasta", "--model", "JC+ASC_FELS{9}", *short).exit_code == 0
    heats = json.loads(Path("x.mltree.sample.json").read_text())["heats"]
    assert np.allclose(np.array(heats) * 9, np.rint(np.array(heats) * 9))


UNLINKED = ("run1.p", "tree1.run1.t", "tree2.run1.t", "run2.p", "tree1.run2.t", "tree2.run2.t")


@pytest.mark.parametrize("second", ["HKY+FO+G2, b = 31-60", "HKY+FE+ASC_LEWIS, b = 31-60"])
def test_parts_with_lengths_of_their_own(run: Run, data: str, second: str) -> None:
    """Files of every part, which go on with the same bytes; lnL is that of the sampled trees."""
    if "+ASC" in second:
        vary_from(data, 30)
    Path("parts").write_text(f"JC, a = 1-30\n{second}\n")
    command = ("sample", data, "--partitions", "parts", "--brlen", "unlinked", *SHORT[2:])
    assert run(*command, "--stop", "12", "--prefix", "a").exit_code == 0
    assert run(*command, "--stop", "5", "--prefix", "b").exit_code == 0
    assert run(*command, "--stop", "12", "--prefix", "b").exit_code == 0
    files = samples("a", UNLINKED)
    assert files == samples("b", UNLINKED)
    head, *rows = (line.split("\t") for line in files["run1.p"].splitlines()[1:])
    assert head[:5] == ["Gen", "LnL", "LnPr", "TL{1}", "TL{2}"]
    newicks = [
        [line.split("= [&U] ")[1] for line in files[kind].splitlines() if " tree gen." in line]
        for kind in UNLINKED[1:3]
    ]
    shapes = [[re.sub(r":[0-9.]+", "", tree) for tree in trees] for trees in newicks]
    assert shapes[0] == shapes[1]
    for number, (trees, kind) in enumerate(zip(newicks, UNLINKED[1:3], strict=True), 1):
        assert f"[Param: tree{{{number}}}]" in files[kind]
        lengths = [sum(map(float, re.findall(r":([0-9.]+)", tree))) for tree in trees]
        np.testing.assert_allclose(lengths, [float(row[2 + number]) for row in rows], atol=1e-6)
    last = dict(zip(head, map(float, rows[-1]), strict=True))
    pairs = zip(("JC", second.partition(",")[0]), newicks, strict=True)
    lnls = [
        lnl_of_part(data, slice(30 * number, 30 * number + 30), model, trees[-1], last)
        for number, (model, trees) in enumerate(pairs)
    ]
    assert sum(lnls) == pytest.approx(last["LnL"], abs=1e-3)
    summed = run("summarize", "a")
    assert summed.exit_code == 0, summed.output
    one, other = (Path(f"a.mltree.{kind}").read_text() for kind in ("con.tre", "tree2.con.tre"))
    assert one != other
    linked = ("sample", data, "--model", "JC", *SHORT[2:], "--stop", "5", "--prefix", "a", "--redo")
    assert run(*linked).exit_code == 0
    assert not list(Path().glob("a.mltree.tree*.t")), "samples of another kind are gone"


def lnl_of_part(
    data: str, sites: slice, model: str, newick: str, values: dict[str, float]
) -> float:
    """The lnL of a part's sites, by another command."""
    lines = Path(data).read_text().splitlines()[1::2]
    rows = {str(number): line[sites] for number, line in enumerate(lines, 1)}
    if model.startswith("HKY"):
        model = model.replace("HKY", f"HKY{{{values['kappa{2}']}}}")
    if model.endswith("+FO+G2"):
        shares = "/".join(str(values[f"pi({x}){{2}}"]) for x in "ACGT")
        model = model.replace("+FO+G2", f"+FU{{{shares}}}+G2{{{values['alpha{2}']}}}")
    fixed = {"optimise_model": False, "optimise_branches": False}
    return float(mltree.evaluate(rows, newick, model, **fixed).lnl)


def vary_from(data: str, first: int) -> None:
    """Make the columns from one on variable."""
    lines = Path(data).read_text().splitlines()
    lines[1] = lines[1][:first] + "A" * (60 - first)
    lines[3] = lines[3][:first] + "C" * (60 - first)
    Path(data).write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("brlen", ["scaled", "unlinked"])
def test_large_trees_begin_near_searched_ones(
    run: Run, data: str, brlen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every chain has a tree of its own, close to the best ones; devices change no byte."""
    Path("parts").write_text("JC, a = 1-30\nHKY+FO+G2, b = 31-60\n")
    command = ("sample", data, "--partitions", "parts", "--brlen", brlen, *SHORT[2:], "--stop", "3")
    monkeypatch.setattr(analysis, "SEARCHED_TAXA", 5)
    began: list[np.ndarray] = []
    begin = FreeTrees.begin

    def begun(space: FreeTrees, words: np.ndarray, *of: object) -> None:
        begin(space, words, *of)
        began.append(words.copy())

    monkeypatch.setattr(FreeTrees, "begin", begun)
    assert run(*command, "--prefix", "a").exit_code == 0
    assert run(*command, "--prefix", "b", "--device", "0,0").exit_code == 0
    kinds = UNLINKED if brlen == "unlinked" else ("run1.p", "run1.t", "run2.p", "run2.t")
    assert samples("a", kinds) == samples("b", kinds)
    assert np.array_equal(*began)
    lengths = [ChainTree(row).length_sets[:, 1:] for row in began[0]]
    assert len({one.tobytes() for one in lengths}) == 6, "two runs of three chains"
    assert len(lengths[0]) == (2 if brlen == "unlinked" else 1)
    assert all(((one >= 1e-8) & (one < 5)).all() for one in lengths)


def test_memory_is_that_of_all_chains(run: Run, data: str) -> None:
    lines = []
    for runs in ("2", "4"):
        command = ("sample", data, "--model", "JC", "--runs", runs, "--rungs", "3", "--burnin", "2")
        result = run(*command, "--stop", "2", "--prefix", runs, "--verbose")
        arrays = r"([0-9.]+) MiB for likelihood arrays \(CLAs\), 14 a tree, of ([0-9]+) trees"
        pattern = r"about ([0-9,]+) MiB[^;]*; " + arrays
        lines.append(re.search(pattern, result.output.replace("\n", " ")).groups())
    assert [int(trees) for *_, trees in lines] == [6, 12]
    assert float(lines[1][1]) == pytest.approx(2 * float(lines[0][1]), abs=0.11)


def test_more_chains_than_fit_leave_the_ladder_out(
    run: Run, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChainShares, "chains_that_fit", lambda *_: 5)
    command = ("sample", data, "--model", "JC", "--burnin", "5", "--stop", "3", "--prefix")
    result = run(*command, "a")
    assert result.exit_code == 0, result.output
    assert "memory for 5 chains: one chain a run, without ln Z" in result.output
    assert json.loads(Path("a.mltree.sample.json").read_text())["lnz"] is None
    result = run(*command, "b", "--rungs", "3")
    assert result.exit_code == 2
    assert "no memory for 2 x 3 chains: 5 fit" in result.output


def test_a_clock_is_of_all_parts(run: Run, data: str) -> None:
    Path("parts").write_text("JC, a = 1-30\nJC, b = 31-60\n")
    result = run("sample", data, "--partitions", "parts", "--brlen", "unlinked", "--clock", "ucln")
    assert result.exit_code == 2
    assert "branch lengths of every part's own have no clock in common" in result.output


@pytest.fixture
def total_evidence(tmp_path: Path) -> tuple[str, ...]:
    """DNA of six taxa, and characters that vary; the options that read both."""
    rng = np.random.default_rng(2)
    rows = []
    for letters, sites in (("ACGT", 50), ("01", 20)):
        root = rng.choice(list(letters), sites)
        change = rng.random((6, sites)) < 0.2
        table = np.where(change, rng.choice(list(letters), (6, sites)), root)
        if letters == "01":
            table[0], table[1] = "0", "1"
        rows.append(["".join(row) for row in table])
    lines = [f"t{n} {dna}{rows[1][n]}\n" for n, dna in enumerate(rows[0])]
    (tmp_path / "all.phy").write_text("6 70\n" + "".join(lines))
    (tmp_path / "all.part").write_text("HKY+G2, dna = 1-50\nBIN+ASC_LEWIS, morph = 51-70\n")
    return (
        "sample", str(tmp_path / "all.phy"), "--partitions", str(tmp_path / "all.part"),
        "--burnin", "8", "--rungs", "3", "--runs", "2",
    )  # fmt: skip


def test_data_types_side_by_side_on_any_number_of_devices(
    run: Run, total_evidence: tuple[str, ...]
) -> None:
    """The same bytes on one device, on two (the same twice), and resumed on another number."""
    assert run(*total_evidence, "--stop", "12", "--prefix", "one").exit_code == 0
    two = ("--device", "0,0")
    assert run(*total_evidence, "--stop", "12", "--prefix", "two", *two).exit_code == 0
    assert run(*total_evidence, "--stop", "5", "--prefix", "both", *two).exit_code == 0
    assert run(*total_evidence, "--stop", "12", "--prefix", "both").exit_code == 0
    assert samples("one") == samples("two") == samples("both")
    head = samples("one")["run1.p"].splitlines()[1].split("\t")
    assert head[-2:] == ["m{1}", "m{2}"]


def test_sites_left_out_do_not_count_in_a_sample_of_the_prior(
    run: Run, total_evidence: tuple[str, ...]
) -> None:
    options = ("--prior-only", "--stop", "9", "--prefix", "prior")
    assert run(*total_evidence, *options).exit_code == 0
    rows = samples("prior")["run1.p"].splitlines()[2:]
    assert {row.split("\t")[1] for row in rows} <= {"0.0", "0", "-0.0"}


def test_data_types_side_by_side_on_any_number_of_ranks(
    run: Run, total_evidence: tuple[str, ...]
) -> None:
    assert run(*total_evidence, "--stop", "12", "--prefix", "one").exit_code == 0
    for prefix, stops in (("two", [(2, "12")]), ("some", [(3, "4"), (1, "8"), (2, "12")])):
        for ranks, stop in stops:
            command = (*total_evidence, "--stop", stop, "--prefix", prefix)
            result = ran(Path(), launch("mpi", command, ranks))
            assert result.returncode == 0, result.stderr
        assert samples(prefix) == samples("one")
