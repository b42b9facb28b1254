"""Samples beside MrBayes': splits, parameters and ln Z of fresh data, where ``mb`` is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from launches import MLTREE

from mltree.sampling.mrbayes_files import files_of, read_runs
from mltree.sampling.summaries import Posterior
from mltree.supports.consensus import members
from mltree.tree.newick import write_newick
from mltree.tree.topology import random_topology

ERRORS = 4.0
"""Standard errors of a difference that are believed, of some 30 numbers a case."""

PROTEIN = (
    "LG+G4{0.7}",
    "LG+G4",
    "lset rates=gamma ngammacat=4; prset aamodelpr=fixed(lg);",
)
GENES = (
    "GTR{1/3/1/1/4/1}+FU{0.3/0.2/0.2/0.3}+I{0.2}+G4{0.8}",
    "",
    (
        "charset a = 1-200; charset b = 201-400; partition two = 2: a, b; set partition=two; "
        "lset applyto=(all) nst=6 rates=invgamma ngammacat=4; prset applyto=(all) ratepr=variable; "
        "unlink statefreq=(all) revmat=(all) shape=(all) pinvar=(all);"
    ),
)


def run_mltree(*arguments: str) -> None:
    subprocess.run([*MLTREE, *arguments], check=True, capture_output=True)


def frequencies(posterior: Posterior) -> dict[frozenset[str], float]:
    taxa = np.array(posterior.splits.taxa)
    inside = members(posterior.splits.bits, len(taxa))
    names = (frozenset(taxa[row].tolist()) for row in inside.astype(bool))
    return dict(zip(names, posterior.probabilities.tolist(), strict=True))


def mrbayes(folder: Path, commands: str, what: str, seed: int) -> str:
    """Run MrBayes on the data, and return its output; the commands end with ``what``."""
    start = f"set autoclose=yes nowarn=yes usebeagle=no seed={seed} swapseed={seed};"
    text = (folder / "data.nex").read_text()
    (folder / "run.nex").write_text(f"{text}begin mrbayes;\n{start} {commands} {what}\nend;\n")
    program = str(shutil.which("mb"))
    command = [program, "run.nex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.cases(0, 4)
@pytest.mark.skipif(shutil.which("mb") is None, reason="needs MrBayes")
def test_posterior_and_evidence_are_mrbayes_own(tmp_path: Path, case: int) -> None:
    simulated, model, commands = (PROTEIN, GENES)[case % 2]
    seed, data, is_parted = 100 + case, str(tmp_path / "data.phy"), case % 2
    shape = ("--taxa", "6", "--sites", "400" if is_parted else "100", "--seed", str(seed))
    run_mltree("simulate", "--model", simulated, *shape, "-o", data)
    run_mltree("convert", data, "-o", str(tmp_path / "data.nex"))
    options = ["--model", model] if model else []
    if is_parted:
        (tmp_path / "parts").write_text("GTR+FO+I+G4, a = 1-200\nGTR+FO+I+G4, b = 201-400\n")
        options = ["--partitions", str(tmp_path / "parts")]
    prefix = str(tmp_path / "ours")
    run_mltree("sample", data, *options, "--stop", "2500", "--seed", str(seed), "-p", prefix)
    chains = "nruns=2 nchains=4 printfreq=100000 checkpoint=no filename=theirs"
    sampled = f"mcmc ngen=200000 samplefreq=100 diagnfreq=100000 {chains};"
    mrbayes(tmp_path, commands, sampled, seed)
    expect_alike(prefix, str(tmp_path / "theirs"))

    stones = f"ss ngen=300000 nsteps=30 samplefreq=50 diagnfreq=100000 {chains};"
    told = mrbayes(tmp_path, commands, stones, seed + 1)
    each = [float(x) for x in re.findall(r"^\s+[12]\s+(-\d+\.\d+)\s*$", told, re.MULTILINE)]
    assert len(each) == 2, told[-2000:]
    found = json.loads(Path(f"{prefix}.mltree.sample.json").read_text())
    error = float(np.hypot(found["lnz_error"], np.ptp(each) / 2))
    assert abs(found["lnz"] - np.mean(each)) < 0.3 + 3 * error


def expect_alike(prefix: str, others: str) -> None:
    """Frequencies of splits and means of parameters are the same within their errors."""
    ours = Posterior.of(read_runs(files_of(prefix))[0], 0.0)
    theirs = Posterior.of(read_runs(files_of(others))[0], 0.25)

    least = min(np.min(p.split_ess, initial=np.inf) for p in (ours, theirs))
    mine, other = frequencies(ours), frequencies(theirs)
    for split in mine.keys() | other.keys():
        a, b = mine.get(split, 0.0), other.get(split, 0.0)
        mean = min(max((a + b) / 2, 1e-3), 1 - 1e-3)
        error = (2 * mean * (1 - mean) / min(least, 1000.0)) ** 0.5
        assert abs(a - b) < ERRORS * error, split

    for name in set(ours.columns) & set(theirs.columns) - {"LnPr", "lnPr"}:
        pair = [p.parameters[name].ravel() for p in (ours, theirs)]
        errors = [x.std() / p.ess[name] ** 0.5 for x, p in zip(pair, (ours, theirs), strict=True)]
        difference = abs(pair[0].mean() - pair[1].mean())
        assert difference < ERRORS * float(np.hypot(*errors)), name


UNLINKED = (
    "charset a = 1-300; charset b = 301-500; partition two = 2: a, b; set partition=two; "
    "lset applyto=(all) nst=1; prset applyto=(all) statefreqpr=fixed(equal); "
    "unlink brlens=(all);"
)


@pytest.mark.cases(0, 4)
@pytest.mark.skipif(shutil.which("mb") is None, reason="needs MrBayes")
def test_lengths_of_every_parts_own_are_mrbayes_own(tmp_path: Path, case: int) -> None:
    """Two parts whose trees have one topology and other lengths."""
    rng, rows = np.random.default_rng(case), {}
    tree = random_topology(6, rng)
    for part, sites in enumerate((300, 200)):
        tree.lengths[:] = rng.exponential((0.05, 0.15)[part], tree.n_edges) + 0.002
        file, data = tmp_path / f"{part}.nwk", tmp_path / f"{part}.fasta"
        file.write_text(write_newick(tree, [f"t{n}" for n in range(6)]) + "\n")
        shape = ("--sites", str(sites), "--seed", str(case + 1), "-t", str(file), "-o", str(data))
        run_mltree("simulate", "--model", "JC", *shape)
        records = (one.split("\n", 1) for one in data.read_text().split(">")[1:])
        for name, sequence in records:
            rows[name] = rows.get(name, "") + sequence.replace("\n", "")
    both = str(tmp_path / "data.fasta")
    Path(both).write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    run_mltree("convert", both, "-o", str(tmp_path / "data.nex"))
    (tmp_path / "parts").write_text("JC, a = 1-300\nJC, b = 301-500\n")
    prefix, parted = str(tmp_path / "ours"), ("--partitions", str(tmp_path / "parts"))
    unlinked = (*parted, "--brlen", "unlinked", "--stop", "3000", "--seed", str(case + 1))
    run_mltree("sample", both, *unlinked, "-p", prefix)
    chains = "nruns=2 nchains=4 printfreq=100000 checkpoint=no filename=theirs"
    sampled = f"mcmc ngen=300000 samplefreq=100 diagnfreq=100000 {chains};"
    mrbayes(tmp_path, UNLINKED, sampled, case + 1)
    expect_alike(prefix, str(tmp_path / "theirs"))
    for name in (prefix, str(tmp_path / "theirs")):
        run_mltree("summarize", name, "--prefix", f"{name}.sums")
    pairs = [
        [median_lengths(Path(f"{name}.sums.mltree.{kind}").read_text()) for kind in KINDS]
        for name in (prefix, str(tmp_path / "theirs"))
    ]
    for ours, theirs in zip(*pairs, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.1, atol=0.004)


KINDS = ("con.tre", "tree2.con.tre")


def median_lengths(text: str) -> list[float]:
    """Median lengths of the tips' branches, in the order of their names."""
    names = dict(re.findall(r"^\s*([0-9]+)\s+(t[0-9]+)[,;]?$", text, re.MULTILINE))
    tree = text[text.index("= [&U]") :]
    of_tips = re.findall(r"[(,]([0-9]+)\[&[^\]]*\]:[^\[]*\[&[^\]]*length_median=([0-9.e+-]+)", tree)
    assert len(names) == len(of_tips)
    return [float(length) for _, length in sorted(of_tips, key=lambda one: names[one[0]])]
