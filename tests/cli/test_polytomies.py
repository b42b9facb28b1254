"""Trees with polytomies, and trees that come through a pipe, as users of commands see them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

DATASETS = Path(__file__).parents[2] / "datasets"
TREES = (DATASETS / "primates.bootstraps").read_text()
BINARY = TREES.splitlines()[0]
MODEL = "HKY{1/12.7}+FC+G4{0.364}"
SMALL = ("--model", "JC", "--device", "reference", "--prefix", "x")

DATA = {"a": "ACGTCACC", "b": "ACGACATC", "c": "ATGACGTC", "d": "ATTACATG", "e": "CTTACAGG"}
FIVE = "((a:0.1,b:0.1)81:0.2,c:0.1,(d:0.1,e:0.1)92:0.1);\n"


def without(newick: str, branches: int) -> str:
    """The tree without the inner branches whose clades close first."""
    for _ in range(branches):
        newick = re.sub(r"\(([^()]*)\):[\d.]+", r"\1", newick, count=1)
    return newick


def star(newick: str) -> str:
    return "(" + ",".join(f"{name}:0.1" for name in re.findall(r"[(,](\w+)", newick)) + ");"


def fine(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def test_polytomies_are_tested_as_they_are(run: Run, primates: str, tmp_path: Path) -> None:
    """A tree is no more likely without a branch, and `evaluate` and `sitelh` say the same of it."""
    texts = [BINARY, without(BINARY, 1), without(BINARY, 4), star(BINARY)]
    (tmp_path / "all.nwk").write_text("\n".join(texts) + "\n")
    asked = ("--model", MODEL, "--no-opt-model", "--prefix", "x", "--redo")
    fine(run("test", primates, "--trees", "all.nwk", *asked, "--replicates", "100"))
    tested = json.loads((tmp_path / "x.mltree.test.json").read_text())["trees"]
    lnls = [tree["lnl"] for tree in tested]
    assert [tree["same_as"] for tree in tested] == [None] * 4
    assert all(one > other for one, other in pairwise(lnls))
    fine(run("sitelh", primates, "--trees", "all.nwk", *asked))
    sites = json.loads((tmp_path / "x.mltree.sitelh.json").read_text())["lnl"]
    assert sites == pytest.approx(lnls, abs=0.01)
    written = (tmp_path / "x.mltree.testedTrees").read_text().splitlines()
    for text, own, lnl in zip(texts, written, lnls, strict=True):
        assert own.count("(") == text.count("(")
        (tmp_path / "one.nwk").write_text(text)
        alone = fine(run("evaluate", primates, "--tree", "one.nwk", *asked, "--json"))
        found = json.loads(alone.stdout.splitlines()[-1])
        assert found["lnl"] == pytest.approx(lnl, abs=0.01)
        assert found["tree"].count("(") == text.count("(")


def test_the_order_of_a_polytomy_makes_no_other_tree(
    run: Run, primates: str, tmp_path: Path
) -> None:
    turned = star(BINARY)[1:-2].split(",")[::-1]
    (tmp_path / "stars.nwk").write_text(f"{star(BINARY)}\n({','.join(turned)});\n")
    result = run("test", primates, "--trees", "stars.nwk", "--model", MODEL)
    assert result.exit_code == 2
    assert "all trees are identical" in result.stderr


def test_branches_at_polytomies_have_no_tests(run: Run, primates: str, tmp_path: Path) -> None:
    text = without(BINARY, 2)
    (tmp_path / "tree.nwk").write_text(text.replace("):", ")77:"))
    asked = ("--tests", "abayes", "--model", MODEL, "--no-opt-model", "--prefix", "x")
    result = fine(run("alrt", primates, "--tree", "tree.nwk", *asked))
    newick = (tmp_path / "x.mltree.supportALRT").read_text()
    assert newick.count("(") == text.count("(")
    labels = re.findall(r"\)([^:,;()]+):", newick)
    tested = [label for label in labels if "/" in label]
    assert {label.split("/")[-1] for label in labels} == {"77"}
    assert 0 < len(tested) < len(labels)
    assert len((tmp_path / "x.mltree.branchTests").read_text().splitlines()) == 1 + len(tested)
    left_out = len(labels) - len(tested)
    assert f"{left_out} of {len(labels)} inner branches end at polytomies" in result.output


def test_ancestors_at_polytomies(run: Run, tmp_path: Path) -> None:
    """A node has states, however many branches it has: those that a tiny branch next to it has."""
    write_data(tmp_path)
    fixed = (*SMALL, "--no-opt-branches", "--redo")
    (tmp_path / "t.nwk").write_text("((a:0.1,b:0.1,c:0.2):0.1,d:0.1,e:0.1);\n")
    fine(run("ancestral", "a.fa", "--tree", "t.nwk", *fixed))
    rows = (tmp_path / "x.mltree.ancestralProbs").read_text().splitlines()[1:]
    assert {row.split("\t")[0] for row in rows} == {"Node1", "Node2"}
    assert (tmp_path / "x.mltree.ancestralTree").read_text().count("Node") == 2
    (tmp_path / "t.nwk").write_text("(((a:0.1,b:0.1):0,c:0.2):0.1,d:0.1,e:0.1);\n")
    fine(run("ancestral", "a.fa", "--tree", "t.nwk", *fixed))
    binary = (tmp_path / "x.mltree.ancestralProbs").read_text().splitlines()[1:]
    values = {row.split("\t", 1)[1] for row in binary}
    assert {row.split("\t", 1)[1] for row in rows} == values


def write_data(folder: Path) -> None:
    text = "".join(f">{name}\n{row}\n" for name, row in DATA.items())
    (folder / "a.fa").write_text(text)


@contextmanager
def pipe(text: str) -> Iterator[str]:
    """The name of a pipe that holds a short text, as a shell's <(...) has it."""
    out, end = os.pipe()
    os.write(end, text.encode())
    os.close(end)
    try:
        yield f"/dev/fd/{out}"
    finally:
        os.close(out)


@pytest.mark.parametrize(
    "command",
    [
        "alrt a.fa --tree PIPE --replicates 50",
        "test a.fa --trees PIPE --replicates 50",
        "sitelh a.fa --trees PIPE",
        "evaluate a.fa --tree PIPE",
        "ancestral a.fa --tree PIPE",
        "bootstrap a.fa --tree PIPE --replicates 2",
        "search a.fa --tree PIPE",
        "model a.fa --tree PIPE",
        "simulate --tree PIPE --sites 9 --out x.sim.fa",
        "support PIPE --trees many.nwk",
        "support many.nwk --trees PIPE",
        "consensus PIPE",
        "rf many.nwk --reference PIPE",
        "rf PIPE",
        "concordance PIPE --alignment a.fa",
        "concordance many.nwk --gene-trees PIPE",
        "draw PIPE --out x.svg",
        "convert PIPE --out x.converted.nex",
    ],
)
def test_trees_come_through_a_pipe(run: Run, tmp_path: Path, command: str) -> None:
    """And every file is that which trees from a file lead to."""
    write_data(tmp_path)
    text = FIVE + "((a:0.1,c:0.1)81:0.2,b:0.1,(d:0.1,e:0.1)92:0.1);\n"
    (tmp_path / "many.nwk").write_text(text)
    name, *words = command.split()
    alone = {"support", "consensus", "rf", "concordance"}
    more = ["--prefix", "x"] if name in alone else []
    more = [*SMALL] if "a.fa" in words[0] else more
    if name == "model":
        more = [*SMALL[2:]]
    if name == "simulate":
        more = ["--model", "JC"]
    with pipe(text) as source:
        fine(run(name, *(source if word == "PIPE" else word for word in words), *more))
    kept = contents(tmp_path)
    assert kept
    again = ("many.nwk" if word == "PIPE" else word for word in words)
    fine(run(name, *again, *more, "--redo"))
    assert contents(tmp_path) == kept


def contents(folder: Path) -> dict[str, str]:
    """Results, without those that tell of seconds."""
    told = ("json", "log", "Log", "vents", "nwk", ".fa", "Journal")
    return {
        file.name: file.read_text()
        for file in folder.iterdir()
        if file.is_file() and (file.name == "x.sim.fa" or not file.name.endswith(told))
    }
