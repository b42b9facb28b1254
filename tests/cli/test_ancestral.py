"""``mltree ancestral`` as its users see it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from mltree.cli.main import ANALYSES
from mltree.tree.clades import read_written
from mltree.tree.newick import read_newick

Run = Callable[..., Result]

DATASETS = Path(__file__).parents[2] / "datasets"
TREE = (DATASETS / "primates.bootstraps").read_text().splitlines()[0]

DATA = {"a": "ACGT-A", "b": "ACGA-A", "c": "ATGA-R", "d": "ATTA-A", "e": "CTTA-A"}
FIXED = ("--no-opt-model", "--no-opt-branches", "--device", "reference")


@pytest.fixture
def data(tmp_path: Path) -> None:
    (tmp_path / "a.fa").write_text("".join(f">{name}\n{row}\n" for name, row in DATA.items()))
    (tmp_path / "t.nwk").write_text("(a:0.1,b:0.1,(c:0.1,(d:0.1,e:0.1):0.1):0.1);\n")


def fine(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def table(path: Path) -> dict[tuple[str, ...], list[str]]:
    """Rows by node, part and site; the first line has names."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    head = lines[0].split("\t")
    keys = head.index("State")
    rows = [line.split("\t") for line in lines[1:]]
    assert all(len(row) >= keys + 2 for row in rows)
    return {tuple(row[:keys]): row[keys:] for row in rows}


def test_help_has_an_example_that_works(run: Run, tmp_path: Path) -> None:
    (tmp_path / "datasets").symlink_to(DATASETS)
    (tmp_path / "primates.mltree.bestTree").write_text(TREE + "\n")
    example = f"ancestral {ANALYSES['ancestral'].example}"
    result = fine(run(*shlex.split(example)))
    assert "Wrote primates.mltree.ancestralProbs" in result.stdout
    assert len(table(tmp_path / "primates.mltree.ancestralProbs")) == 10 * 898


@pytest.mark.usefixtures("data")
def test_raxmls_files(run: Run, tmp_path: Path) -> None:
    options = ("--tree", "t.nwk", "--model", "JC", *FIXED)
    fine(run("ancestral", "a.fa", *options, "--prefix", "x"))
    rows = table(tmp_path / "x.mltree.ancestralProbs")
    assert len(rows) == 3 * 6
    for (_node, site), (state, *values) in rows.items():
        shares = [float(value) for value in values]
        assert sum(shares) == pytest.approx(1, abs=3e-5)
        assert state == ("-" if site == "5" else "ACGT"[shares.index(max(shares))])
        if site == "5":
            assert shares == [0.25] * 4
    (tree,) = read_written(tmp_path / "x.mltree.ancestralTree")
    lines = (tmp_path / "x.mltree.ancestralStates").read_text().splitlines()
    states = dict(line.split("\t") for line in lines)
    inner = [tree.labels[n] for n in range(tree.n_nodes) if tree.children[n]]
    assert set(inner) == set(states) == {"Node1", "Node2", "Node3"}
    below = {tree.labels[node]: {tree.labels[tip] for tip in tree.children[node]}
             for node in range(tree.n_nodes) if tree.children[node]}  # fmt: skip
    cherry = next(name for name, tips in below.items() if tips == {"d", "e"})
    assert states[cherry][1:4] == "TTA"
    assert {row[4] for row in states.values()} == {"-"}
    same, _ = read_newick(tmp_path / "x.mltree.ancestralTree", sorted(DATA))
    assert same.lengths.sum() == pytest.approx(0.7)
    assert run("ancestral", "a.fa", *options, "--prefix", "x").exit_code == 2


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("brlen", ["scaled", "unlinked"])
def test_iqtrees_file_of_parts(run: Run, tmp_path: Path, brlen: str) -> None:
    (tmp_path / "parts").write_text("HKY, second = 4-6\nJC, first = 1-3\n")
    options = ("--tree", "t.nwk", "--model", "parts", "--brlen", brlen, "--device", "reference")
    result = fine(run("ancestral", "a.fa", *options, "--format", "iqtree", "--json", "-p", "x"))
    rows = table(tmp_path / "x.mltree.state")
    assert set(rows) == {
        (f"Node{n}", part, site) for n in (1, 2, 3) for part in "12" for site in "123"
    }
    assert rows["Node1", "1", "2"][0] == "-", "site 5 of the file"
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["nodes"] == 3
    assert set(last["files"]) == {"state", "ancestralTree"}


@pytest.mark.usefixtures("data")
def test_what_cannot_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "zero.nwk").write_text("(a:0,b:0,(c:0,(d:0,e:0):0):0);")
    result = run("ancestral", "a.fa", "--tree", "zero.nwk", "--model", "JC", *FIXED)
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr
    assert run("ancestral", "a.fa", "--tree", "no.nwk").exit_code == 2


def test_codons(run: Run, tmp_path: Path) -> None:
    rows = {"a": "ATGTTY", "b": "ATGTTC", "c": "ATA---", "d": "ATGTTC"}
    (tmp_path / "a.fa").write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    (tmp_path / "t.nwk").write_text("(a:0.1,b:0.1,(c:0.1,d:0.1):0.1);\n")
    fine(run("ancestral", "a.fa", "--tree", "t.nwk", "--model", "GY{0.2/2}+FE", *FIXED))
    lines = (tmp_path / "a.fa.mltree.ancestralProbs").read_text().splitlines()
    assert lines[0].split("\t")[3:5] == ["p_AAA", "p_AAC"]
    assert len(lines[0].split("\t")) == 3 + 61
    states = (tmp_path / "a.fa.mltree.ancestralStates").read_text()
    assert states == "Node1\tATGTTC\nNode2\tATGTTC\n"
