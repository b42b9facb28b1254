"""``alrt``, ``test`` and ``concordance``: what they print, write and refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from mltree.supports.consensus import members, split_table
from mltree.tree.clades import read_clades

Run = Callable[..., Result]

DATASETS = Path(__file__).parents[2] / "datasets"
REPLICATES = DATASETS / "primates.bootstraps"
MODEL = "HKY{1/12.7}+FC+G4{0.364}"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of the primates, with a label."""
    path = tmp_path / "primates.nwk"
    first = REPLICATES.read_text().splitlines()[0]
    path.write_text(first.replace("):", ")77:", 1) + "\n")
    return path


@pytest.fixture
def rivals(tmp_path: Path) -> Path:
    """Three trees, of which the third has the first's topology."""
    path = tmp_path / "rivals.nwk"
    lines = REPLICATES.read_text().splitlines()
    other = next(line for line in lines if shape(line) != shape(lines[0]))
    path.write_text("\n".join([lines[0], other, lines[0]]) + "\n")
    return path


def shape(newick: str) -> str:
    return re.sub(r":[\d.]+", "", newick)


def table(path: Path) -> list[dict[str, str]]:
    """The lines of a table by its head; of columns of one name the last."""
    head, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_branches_get_their_supports_in_front_of_older_labels(
    run: Run, primates: str, tree: Path, tmp_path: Path
) -> None:
    asked = ("--tests", "abayes,sh-alrt", "--replicates", "200", "--prefix", "x", "--json")
    result = run("alrt", primates, "--tree", tree, "--model", MODEL, *asked)
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    drawn = [event for event in events if event["event"] == "SupportsDrawn"]
    assert [event["metric"] for event in drawn] == ["SH-aLRT", "aBayes"]
    newick = (tmp_path / "x.mltree.supportALRT").read_text()
    labels = re.findall(r"\)([^:,;()]+):", newick)
    assert len(labels) == 9
    assert sorted(label.count("/") for label in labels) == [1] * 8 + [2]
    assert sum(label.endswith("/77") for label in labels) == 1
    rows = table(tmp_path / "x.mltree.branchTests")
    told = sorted(f"{100 * float(row['SH-aLRT']):.3g}" for row in rows)
    assert told == sorted(label.split("/")[0] for label in labels)
    for row in rows:
        assert 0 <= float(row["SH-aLRT"]) <= 1
        assert float(row["aBayes"]) > 0.5
    again = run("alrt", primates, "--tree", tree, "--model", MODEL, *asked, "--redo")
    assert again.exit_code == 0
    assert (tmp_path / "x.mltree.supportALRT").read_text() == newick


def test_a_search_tests_the_branches_that_it_has_found(
    run: Run, primates: str, tmp_path: Path
) -> None:
    """In front of the bootstrap's supports, and as `mltree alrt` does for the same tree."""
    asked = ("--model", MODEL, "--preset", "fast", "--prefix", "x")
    more = ("--abayes", "--sh-alrt", "300", "--bootstrap", "2", "--lbp", "100")
    result = run("search", primates, *asked, *more)
    assert result.exit_code == 0, result.output
    newick = (tmp_path / "x.mltree.support").read_text()
    labels = [label.split("/") for label in re.findall(r"\)([^:,;()]+):", newick)]
    assert len(labels) == 9
    assert {len(label) for label in labels} == {4}
    rows = table(tmp_path / "x.mltree.branchTests")
    told = sorted(f"{100 * float(row['SH-aLRT']):.3g}" for row in rows)
    assert told == sorted(label[0] for label in labels)
    assert {label[-1] for label in labels} <= {"0", "50", "100"}
    found = json.loads((tmp_path / "x.mltree.json").read_text())
    assert list(found["supports"]) == ["sh-alrt", "lbp", "abayes", "fbp"]
    assert found["supports"]["fbp"]["newick"] == newick.strip()
    assert "/".join(labels[0]) in result.stdout
    log = " ".join((tmp_path / "x.mltree.log").read_text().split())
    assert re.search(r" SH-aLRT \[\d+\] \(300 replicates\), local bootstrap", log)
    assert re.search(r" aBayes \[\d+\] and the bootstrap \[\d+\] \(2 replicates\)\.", log)
    again = ("--tree", "x.mltree.bestTree", "--replicates", "300", "--no-opt-model")
    result = run("alrt", primates, "--model", "x.mltree.bestModel", *again, "--prefix", "y")
    assert result.exit_code == 0, result.output
    others = {
        row["taxa"]: float(row["SH-aLRT"]) for row in table(tmp_path / "y.mltree.branchTests")
    }
    assert {row["taxa"]: float(row["SH-aLRT"]) for row in rows} == pytest.approx(others, abs=0.01)


def test_an_ultrafast_bootstrap_follows_a_search(run: Run, primates: str, tmp_path: Path) -> None:
    """With parts that have lengths of their own and a constraint; twice to the same bytes."""
    groups = tmp_path / "groups.nwk"
    groups.write_text("((Pan,Gorilla),Pongo,Hylobates);\n")
    scheme = str(DATASETS / "primates.part")
    asked = ("--model", scheme, "--brlen", "unlinked", "--preset", "fast", "--constraint", groups)
    result = run("search", primates, *asked, "--ufboot", "1000", "--abayes", "--prefix", "x")
    assert result.exit_code == 0, result.output
    trees = (tmp_path / "x.mltree.ufboot").read_text().splitlines()
    assert len(trees) == 1000
    labels = re.findall(r"\)([^:,;()]+):", (tmp_path / "x.mltree.support").read_text())
    found = json.loads((tmp_path / "x.mltree.json").read_text())["supports"]
    assert list(found) == ["abayes", "ufboot"]
    shares = [int(label.split("/")[1]) for label in labels]
    assert found["ufboot"]["mean"] == pytest.approx(np.mean(shares) / 100, abs=0.005)
    consensus = (tmp_path / "x.mltree.contree").read_text()
    assert len(re.findall(r"\)[0-9]+:", consensus)) == 9
    for newick in (*trees, consensus):
        others = read_clades(newick)
        four = np.isin(others.taxa, ["Gorilla", "Pan", "Pongo", "Hylobates"])
        sides = members(split_table(others).bits, 12)[:, four]
        pair = np.isin(others.taxa, ["Gorilla", "Pan"])[four]
        assert ((sides == pair).all(axis=1) | (sides != pair).all(axis=1)).any()
    splits = (tmp_path / "x.mltree.splits.nex").read_text()
    assert f"nsplits={splits.count(',')};" in splits
    again = run("search", primates, *asked, "--ufboot", "1000", "--prefix", "y")
    assert again.exit_code == 0, again.output
    for kind in ("ufboot", "contree", "splits.nex"):
        one, other = (tmp_path / f"{name}.mltree.{kind}" for name in "xy")
        assert one.read_text() == other.read_text()


def test_copies_of_sequences_have_supports_too(run: Run, primates: str, tmp_path: Path) -> None:
    records = Path(primates).read_text().splitlines()[1:]
    twice = [line for line in records if line.strip()]
    name, sequence = twice[0].split()
    content = [f"13 {len(sequence)}", *twice, f"Copy {sequence}", ""]
    (tmp_path / "twice.phy").write_text("\n".join(content))
    asked = ("--model", MODEL, "--preset", "fast", "--prefix", "x", "--sh-alrt", "300")
    result = run("search", "twice.phy", *asked, "--ufboot", "1000", "--bnni")
    assert result.exit_code == 0, result.output
    support = (tmp_path / "x.mltree.support").read_text()
    assert re.search(rf"^\(Copy:0,.*\)100/100:[\d.]+,{name}:0\);$", support)
    (both,) = (
        row for row in table(tmp_path / "x.mltree.branchTests")
        if set(row["taxa"].split(",")) == {"Copy", name}
    )  # fmt: skip
    assert float(both["SH-aLRT"]) == 1


def test_what_a_command_found_is_in_a_file(
    run: Run, primates: str, tree: Path, rivals: Path, tmp_path: Path
) -> None:
    """As ``--json`` prints it last."""
    fixed = ("--model", MODEL, "--no-opt-model", "--no-opt-branches", "--prefix", "x", "--json")
    few = ("--replicates", "10")
    for command, *asked in (
        ("alrt", primates, "--tree", tree, *fixed, *few),
        ("test", primates, "--trees", rivals, *fixed, *few),
        ("sitelh", primates, "--trees", rivals, *fixed),
        ("concordance", tree, "--gene-trees", rivals, "--prefix", "x", "--json"),
    ):
        result = run(command, *asked)
        assert result.exit_code == 0, result.output
        printed = json.loads(result.stdout.splitlines()[-1])
        path = tmp_path / f"x.mltree.{command}.json"
        assert printed["files"][f"{command}.json"] == str(path.relative_to(tmp_path))
        kept = json.loads(path.read_text())
        assert kept | {"event": "result", "elapsed": printed["elapsed"]} == printed


def test_trees_are_tested_in_a_table(run: Run, primates: str, rivals: Path, tmp_path: Path) -> None:
    asked = ("--model", MODEL, "--no-opt-model", "--replicates", "300", "--prefix", "x")
    result = run("test", primates, "--trees", rivals, *asked)
    assert result.exit_code == 0, result.output
    assert "p-AU" in result.stdout
    assert "= tree 1" in result.stdout
    rows = table(tmp_path / "x.mltree.treeTests")
    assert [row["same_as"] for row in rows] == ["", "", "1"]
    assert rows[0]["lnL"] == rows[2]["lnL"]
    assert {row["deltaL"] == "0.000000" for row in rows[:2]} == {True, False}
    for name in ("bp-RELL", "c-ELW"):
        assert sum(float(row[name]) for row in rows[:2]) == pytest.approx(1, abs=2e-6)
    trees = (tmp_path / "x.mltree.testedTrees").read_text().splitlines()
    assert len(trees) == 2


def test_trees_whose_lengths_are_kept_differ_by_them(
    run: Run, primates: str, tree: Path, tmp_path: Path
) -> None:
    """And polytomies stay what they are: lnL are those that `evaluate` finds, one by one."""
    newick = tree.read_text()
    longer = re.sub(r":([\d.]+)", lambda found: f":{1.5 * float(found[1]):.6f}", newick)
    star = "(" + ",".join(f"{name}:0.1" for name in re.findall(r"[(,](\w+)", newick)) + ");\n"
    (tmp_path / "three.nwk").write_text(newick + longer + newick + star)
    fixed = ("--model", MODEL, "--no-opt-model", "--no-opt-branches", "--prefix", "x", "--redo")
    result = run("test", primates, "--trees", "three.nwk", *fixed, "--replicates", "100")
    assert result.exit_code == 0, result.output
    rows = table(tmp_path / "x.mltree.treeTests")
    assert [row["same_as"] for row in rows] == ["", "", "1", ""]
    for row, text in zip(rows, (newick, longer, newick, star), strict=True):
        (tmp_path / "one.nwk").write_text(text)
        alone = run("evaluate", primates, "--tree", "one.nwk", *fixed, "--json")
        lnl = json.loads(alone.stdout.splitlines()[-1])["lnl"]
        assert float(row["lnL"]) == pytest.approx(lnl, abs=1e-5)


def test_some_tests_may_be_chosen(run: Run, primates: str, rivals: Path) -> None:
    asked = ("--no-opt-model", "--no-opt-branches", "--tests", "elw,kh", "--replicates", "50")
    result = run("test", primates, "--trees", rivals, *asked, "--prefix", "x", "--json")
    assert result.exit_code == 0, result.output
    event, last = map(json.loads, result.stdout.splitlines()[-2:])
    assert (event["event"], last["event"]) == ("TreesTested", "result")
    assert last["trees"] == event["trees"]
    assert [test["name"] for test in event["trees"][0]["tests"]] == ["p-KH", "c-ELW"]


def test_concordance_factors_go_behind_older_labels(
    run: Run, primates: str, tree: Path, tmp_path: Path
) -> None:
    asked = ("--gene-trees", REPLICATES, "--alignment", primates, "--quartets", "20")
    result = run("concordance", tree, *asked, "--prefix", "x")
    assert result.exit_code == 0, result.output
    lines = [re.sub(r"^\[.*?\] ", "", line) for line in result.stdout.splitlines()]
    assert "100 trees, 12 taxa" in result.stderr
    assert lines[0].startswith("gCF  9 inner branches, mean ")
    assert lines[1].startswith("sCF  9 inner branches, mean ")
    labels = re.findall(r"\)([^:,;()]+):", (tmp_path / "x.mltree.concordanceTree").read_text())
    assert sorted(label.count("/") for label in labels) == [1] * 8 + [2]
    assert sum(label.startswith("77/") for label in labels) == 1
    for row in table(tmp_path / "x.mltree.concordance"):
        shares = [float(row[name]) for name in ("gCF", "gDF1", "gDF2", "gDFP")]
        assert sum(shares) == pytest.approx(1, abs=3e-6)
        assert row["gN"] == "100"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("alrt", "ALN", "--tree", "TREE", "--tests", "sh"), "'sh' is not one of sh-alrt"),
        (("search", "ALN", "--sh-alrt", "0"), "--sh-alrt 0: between 1 and"),
        (("search", "ALN", "--ufboot", "100"), "--ufboot 100: between 1,000 and"),
        (("search", "ALN", "--bnni"), "--bnni improves the replicates of --ufboot"),
        (("search", "ALN", "--ufboot", "1000", "--bootstrap", "9"), "exclude each other"),
        (("test", "ALN", "--trees", "TREE"), "all trees are identical"),
        (("alrt", "ALN", "--tree", "star.nwk"), "star.nwk: the tree has no branch to test"),
        (("test", "ALN", "--trees", "TREE", "--tests", "au,ks"), "'ks' is not one of bp"),
        (("concordance", "TREE"), "give --gene-trees"),
        (("concordance", "TREE", "--gene-trees", "odd.nwk"), "'X' is in gene tree 2 but not in"),
        (("concordance", "other.nwk", "--alignment", "ALN"), "'A' is not in the alignment"),
        (("concordance", "TREE", "--gene-trees", "empty.nwk"), "no tree in it"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    run: Run, primates: str, tree: Path, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "odd.nwk").write_text("((Gorilla,Pan),Pongo,Hylobates);\n(Gorilla,Pan,X);\n")
    (tmp_path / "other.nwk").write_text("((Gorilla,Pan),Pongo,A);\n")
    (tmp_path / "empty.nwk").write_text("\n")
    newick = tree.read_text()
    taxa = re.findall(r"[(,](\w+)", newick)
    (tmp_path / "star.nwk").write_text(f"({','.join(taxa)});\n")
    known = {"ALN": primates, "TREE": str(tree)}
    result = run(*(known.get(word, word) for word in arguments), "--prefix", "x")
    assert result.exit_code == 2, result.output
    (line,) = (line for line in result.stderr.splitlines() if not line.startswith("["))
    assert problem in line
