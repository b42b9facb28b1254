"""Functions beside their commands: the same figures, whatever way they are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mltree
from mltree.cli.main import app

TREE = "(t0:0.1,t1:0.1,(t2:0.1,(t3:0.1,(t4:0.1,(t5:0.1,t6:0.1):0.1):0.1):0.1):0.1);"
OTHER = "(t0:0.1,t6:0.1,(t2:0.1,(t3:0.1,(t4:0.1,(t5:0.1,t1:0.1):0.1):0.1):0.1):0.1);"
MODEL = ("--model", "HKY")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows_of(path: str) -> list[dict[str, str]]:
    lines = [line for line in Path(path).read_text().splitlines() if line[:1] != "#"]
    head, *rows = (line.split("\t") for line in lines)
    return [dict(zip(head, row, strict=False)) for row in rows]


@pytest.fixture
def trees(file: str) -> str:
    Path("trees.nwk").write_text(f"{TREE}\n{OTHER}\n{TREE}\n")
    Path("tree.nwk").write_text(TREE)
    return "trees.nwk"


def test_tests_of_branches(file: str, trees: str) -> None:
    options = ("--tests", "sh-alrt,abayes", "--replicates", "200")
    run("alrt", file, "--tree", "tree.nwk", *MODEL, *options, "--prefix", "x")
    found = mltree.alrt(file, TREE, "HKY", tests=["sh-alrt", "abayes"], replicates=200)
    assert found.tree.newick == Path("x.mltree.supportALRT").read_text().strip()
    frame, rows = found.to_dataframe(), rows_of("x.mltree.branchTests")
    assert list(frame["taxa"]) == [row["taxa"] for row in rows]
    for column, name in (("SH-aLRT", "sh_alrt"), ("p-aLRT", "p_alrt"), ("lnL1", "lnl1")):
        np.testing.assert_allclose(frame[name], [float(row[column]) for row in rows], atol=1e-6)
    assert found.means.keys() == {"SH-aLRT", "aBayes"}
    assert repr(found).startswith("BranchTestResult(4 branches, mean SH-aLRT 0.")
    assert "<svg" in found._repr_html_()


def test_tests_of_trees(file: str, trees: str) -> None:
    run("test", file, "--trees", trees, *MODEL, "--replicates", "200", "--prefix", "x")
    found = mltree.test(file, [TREE, OTHER, mltree.PhyloTree(TREE)], "HKY", replicates=200)
    frame, rows = found.to_dataframe(), rows_of("x.mltree.treeTests")
    for name in ("lnL", "deltaL", "p-AU", "c-ELW", "p-KH"):
        column = {"lnL": "lnl", "deltaL": "delta"}.get(name, name)
        np.testing.assert_allclose(frame[column], [float(row[name]) for row in rows], atol=1e-6)
    assert frame["same_as"].tolist()[2] == 1
    assert [tree.newick for tree in found.trees[:2]] == (
        Path("x.mltree.testedTrees").read_text().split()
    )
    assert found.trees[2] == found.trees[0]
    assert found.kept("p-KH") == [n for n, kept in zip((1, 2, 3), frame["p-KH_kept"], strict=True)
                                  if kept]  # fmt: skip
    assert found.best in found.kept()
    with pytest.raises(mltree.InputError, match="test='AU' is not one of bp-RELL, p-KH"):
        found.kept("AU")


def test_ancestral_states(file: str, trees: str) -> None:
    run("ancestral", file, "--tree", "tree.nwk", *MODEL, "--prefix", "x")
    found = mltree.ancestral(file, TREE, "HKY")
    assert found.tree.newick == Path("x.mltree.ancestralTree").read_text().strip()
    states = dict(line.split() for line in Path("x.mltree.ancestralStates").read_text().split("\n")
                  if line)  # fmt: skip
    assert found.sequences == states
    frame, rows = found.to_dataframe(), rows_of("x.mltree.ancestralProbs")
    assert len(frame) == len(rows) == 5 * 60
    for state in "ACGT":
        written = [float(row[f"p_{state}"]) for row in rows]
        np.testing.assert_allclose(frame[f"p_{state}"], written, atol=1e-5)
    assert found.probabilities.shape == (5, 60, 4)
    np.testing.assert_allclose(found.probabilities.sum(axis=2), 1.0, rtol=1e-12)
    assert "5 nodes × 60 sites" in found._repr_html_()


def test_ancestral_states_of_parts(file: str, trees: str) -> None:
    Path("parts").write_text("DNA, one = 1-20\nDNA, two = 21-60\n")
    run("ancestral", file, "--tree", "tree.nwk", "--model", "parts", "--prefix", "x")
    found = mltree.ancestral(file, TREE, "parts")
    frame, rows = found.to_dataframe(), rows_of("x.mltree.ancestralProbs")
    for column, name in (("Part", "part"), ("Site", "site"), ("State", "state")):
        assert [str(value) for value in frame[name]] == [row[column] for row in rows]
    assert found.probabilities.shape == (5, 60, 4)


def test_simulated_sequences(file: str, trees: str) -> None:
    run("simulate", "--model", "HKY{2}+FE", "--tree", "tree.nwk", "--sites", "40", "-s", "5", "-o",
        "x.fa")  # fmt: skip
    model = mltree.ModelParameters("HKY", rates=2, frequencies=[0.25] * 4)
    found = mltree.simulate(model, TREE, sites=40, seed=5)
    written = dict(row.split("\n")[:2] for row in Path("x.fa").read_text()[1:].split(">"))
    assert dict(found) == written
    found.write("y.fa")
    assert Path("y.fa").read_bytes() == Path("x.fa").read_bytes()
    found.write("y.phy.gz")
    assert mltree.check("y.phy.gz").sites == 40
    assert found.tree.rf(TREE) == 0
    assert repr(found) == "SimulatedAlignment(DNA, 7 taxa × 40 sites, 1 tree)"
    assert mltree.evaluate(found, found.tree, "JC").taxa == tuple(sorted(found))
    gapped = mltree.simulate("JC", TREE, gaps_from={**found, "t0": "-" * 40})
    assert gapped["t0"] == "-" * 40
    assert "-" not in gapped["t1"]
    assert "nobody" not in gapped


def test_random_trees() -> None:
    drawn = mltree.random_tree(9, shape="yule", seed=4)
    assert drawn == mltree.simulate("JC", taxa=9, random_tree="yule", seed=4, sites=1).tree
    named = mltree.random_tree(["b", "a", "c d", "e"], mean_length=1.0)
    assert set(named.taxa) == {"a", "b", "c d", "e"}
    for taxa, line in ((2, "at least 4 taxa, not 2"), ("aabc", "two have the same name")):
        with pytest.raises(mltree.InputError, match=line):
            mltree.random_tree(taxa)


def test_a_consensus(trees: str) -> None:
    run("consensus", trees, "--type", "extended,strict", "--prefix", "x")
    for kind, ending in (("extended", "MRE"), ("strict", "STRICT")):
        written = Path(f"x.mltree.consensusTree{ending}").read_text().strip()
        assert mltree.consensus([TREE, OTHER, TREE], kind=kind).newick == written


@pytest.mark.parametrize("given", ["genes", "sites", "both"])
def test_concordance_factors(file: str, trees: str, given: str) -> None:
    tree, genes = mltree.PhyloTree(TREE), Path(trees).read_text().split()
    asked, options = dict[str, Any](), list[str]()
    if given != "sites":
        asked["gene_trees"], options = genes, ["--gene-trees", trees]
    if given != "genes":
        asked |= {"alignment": file, "quartets": 20, "seed": 4}
        options += ["--alignment", file, "--quartets", "20", "--seed", "4"]
    factors = mltree.concordance(tree, **asked)
    run("concordance", "tree.nwk", *options, "--prefix", "x")
    rows = rows_of("x.mltree.concordance")
    columns = factors.columns()
    assert list(columns) == list(rows[0])
    for name, column in columns.items():
        texts = [row[name] for row in rows]
        read = texts if name == "taxa" else [float(text) if text else None for text in texts]
        assert list(column) == read
    assert str(factors.tree) == str(mltree.PhyloTree.read("x.mltree.concordanceTree"))
    for name, mean in factors.means.items():
        known = [share for share in columns[name] if share is not None]
        assert mean == pytest.approx(np.mean(known), abs=1e-6)
        assert f"{name} {100 * np.mean(known):.1f}%" in repr(factors)
        assert f"mean {name}" in factors._repr_html_()
    assert len(factors.to_dataframe()) == len(rows)


def test_concordance_of_sequences_in_memory(file: str, sequences: dict[str, str]) -> None:
    given = mltree.PhyloTree(TREE)
    of_file, of_memory = (
        mltree.concordance(given, alignment=alignment, quartets=20)
        for alignment in (file, sequences)
    )
    assert of_file.columns() == of_memory.columns()
    with pytest.raises(mltree.InputError, match="give gene_trees, alignment or both"):
        mltree.concordance(given)
    with pytest.raises(mltree.InputError, match="'a', 'b', 'c' are in gene tree 1 but not in"):
        mltree.concordance(given, ["(a,b,c);"])
    with pytest.raises(mltree.InputError, match="not in the alignment"):
        mltree.concordance(given, alignment=dict(list(sequences.items())[1:]))


def test_pictures(trees: str) -> None:
    run("draw", "tree.nwk", "--layout", "circular", "-o", "x.svg")
    found = mltree.draw(TREE, "y.svg", layout="circular")
    assert found.svg == Path("x.svg").read_text() == Path("y.svg").read_text()
    assert found._repr_svg_() == str(found)
    assert mltree.draw(mltree.PhyloTree(TREE), "y.png").svg == mltree.draw("tree.nwk").svg
    assert Path("y.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(mltree.InputError, match=r"y\.jpg: the file name does not show the picture"):
        mltree.draw(TREE, "y.jpg")


def test_a_check(file: str) -> None:
    found = mltree.check(file)
    facts = json.loads(run("check", file, "--json").splitlines()[-1])
    assert found.to_dict()["summary"]["gap_share"] == facts["gap_share"]
    assert (found.taxa, found.sites, found.data_type) == (7, 60, "DNA")
    assert found.patterns == facts["patterns"]
    assert len(found.warnings) == len(facts["warnings"])
    frame = found.to_dataframe()
    assert list(frame["taxon"]) == list(facts["names"])
    np.testing.assert_allclose(frame["composition_p"], facts["composition_p_values"])
    Path("parts").write_text("DNA, one = 1-20\nDNA, two = 21-60\n")
    parts = mltree.check(file, partitions="parts")
    assert list(parts.to_dataframe()["sites"]) == [20, 40]
    assert parts.data_type == "DNA"
    assert "one" in parts._repr_html_()


def test_a_run(file: str) -> None:
    options = ("--model", "JC", "--bootstrap", "3", "--sh-alrt", "100")
    run("run", file, *options, "--prefix", "x")
    kept = mltree.run(file, "JC", bootstrap=3, sh_alrt=100, prefix="y")
    found = mltree.run(file, "JC", bootstrap=3, sh_alrt=100)
    written = Path("x.mltree.support").read_text().strip()
    assert found.tree.newick == kept.tree.newick == written
    assert Path("y.mltree.report.html").exists()
    assert found.bootstrap is not None
    assert [str(tree) for tree in found.bootstrap.trees] == (
        Path("x.mltree.bootstraps").read_text().split()
    )


@pytest.mark.parametrize("threads", [1, 2, 1000])
def test_any_number_of_threads(sequences: dict[str, str], threads: int) -> None:
    one = mltree.evaluate(sequences, TREE, "HKY+G4")
    other = mltree.evaluate(sequences, TREE, "HKY+G4", threads=threads)
    assert other.lnl == pytest.approx(one.lnl, rel=1e-12)
    likelihood = mltree.Likelihood(sequences, other.tree, other.parameters, threads=threads)
    assert likelihood.lnl() == pytest.approx(one.lnl, abs=1e-5)
    assert likelihood.parameters().alpha == pytest.approx(other.parameters.alpha, abs=1e-9)
