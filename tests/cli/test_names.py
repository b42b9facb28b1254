"""Names that trees cannot hold, from an alignment to the trees and back; and data without constant
sites."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import dendropy
import numpy as np
import pytest
from click.testing import Result

Run = Callable[..., Result]

NAMES = ("Pan:1", "A/Ohio/7(H1N1)", "O'Brien", "gi|1;x", "x[1]", "Homo,s", "plain")
SAFE = ("Pan_1", "A/Ohio/7_H1N1_", "O_Brien", "gi|1_x", "x_1_", "Homo_s", "plain")


def rows_of(seed: int, *, taxa: int = 7, sites: int = 120, letters: str = "ACGT") -> list[str]:
    """Related sequences."""
    rng, rows = random.Random(seed), []
    row = rng.choices(letters, k=sites)
    for _ in range(taxa):
        row = [rng.choice(letters) if rng.random() < 0.12 else one for one in row]
        rows.append("".join(row))
    return rows


@pytest.fixture
def _alignment(run: Run) -> None:
    pairs = zip(NAMES, rows_of(1), strict=True)
    Path("x.fa").write_text("".join(f">{name} of something\n{row}\n" for name, row in pairs))


def quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


@pytest.mark.usefixtures("_alignment")
def test_trees_are_read_by_everybody_and_a_table_leads_back(run: Run) -> None:
    constraint = f"(({quoted(NAMES[0])},{quoted(NAMES[1])}),{quoted(NAMES[2])},plain);"
    Path("c.nwk").write_text(constraint)
    result = run(
        "search", "x.fa", "--model", "JC", "--preset", "fast", "--constraint", "c.nwk",
        "--outgroup", "Pan:1", "--prefix", "s", "--report",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "names changed to what every reader of trees takes: Pan:1 to Pan_1" in result.output
    table = dict(line.split("\t") for line in Path("s.mltree.names").read_text().splitlines()[1:])
    assert table == {new: old for new, old in zip(SAFE, NAMES, strict=True) if new != old}
    assert json.loads(Path("s.mltree.json").read_text())["renamed"] == table
    tree = Path("s.mltree.bestTree").read_text()
    assert "'" not in tree
    assert all(name in tree for name in SAFE)
    assert "A/Ohio/7(H1N1)" in Path("s.mltree.report.html").read_text()

    back = run("convert", "s.mltree.bestTree", "--rename", "s.mltree.names", "-o", "back.nwk")
    assert back.exit_code == 0, back.output
    read = dendropy.Tree.get(path="back.nwk", schema="newick", preserve_underscores=True)
    assert {leaf.taxon.label for leaf in read.leaf_nodes()} == set(NAMES)
    for spelled in ("back.nwk", "s.mltree.bestTree"):
        scored = run(
            "evaluate", "x.fa", "--tree", spelled, "--model", "JC", "--prefix", "e", "--redo"
        )
        assert scored.exit_code == 0, scored.output
    assert Path("e.mltree.names").read_text() == Path("s.mltree.names").read_text()


@pytest.mark.usefixtures("_alignment")
def test_a_table_of_names_has_two_columns(run: Run) -> None:
    Path("t.nwk").write_text("(a,b,(c,d));")
    for text, told in (
        ("a b\n", "not two columns"), ("a\t\n", "not two columns"),
        ("a\tb\na\tc\n", "a is there twice"), ("a\tb\n", "two tips would be called 'b'"),
    ):  # fmt: skip
        Path("names").write_text(text)
        result = run("convert", "t.nwk", "--rename", "names", "-o", "u.nwk")
        assert result.exit_code == 2
        assert told in result.output
    Path("names").write_text("a\tx\n")
    assert (
        "--outgroup is for trees" in run("convert", "x.fa", "--outgroup", "A", "-o", "y.fa").output
    )
    assert (
        "--rename is for trees" in run("convert", "x.fa", "--rename", "names", "-o", "y.phy").output
    )


def test_all_names_that_are_not_in_the_data_are_told_at_once(run: Run) -> None:
    Path("x.fa").write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows_of(2))))
    result = run("search", "x.fa", "--outgroup", "a,t1,b")
    assert "outgroup: 'a', 'b' are not in the alignment" in result.output
    Path("c.nwk").write_text("((t1,a),(b,t2),t3);")
    result = run("search", "x.fa", "--constraint", "c.nwk")
    assert "'a', 'b' are in the constraint tree but not in the alignment" in result.output


def test_three_taxa_have_a_tree(run: Run) -> None:
    Path("x.fa").write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows_of(3, taxa=3))))
    result = run("search", "x.fa", "--model", "JC", "--sh-alrt", "100", "--prefix", "s")
    assert result.exit_code == 0, result.output
    assert Path("s.mltree.bestTree").read_text().count(":") == 3


@pytest.fixture
def _snps(run: Run) -> None:
    columns = [c for c in zip(*rows_of(4, sites=400), strict=True) if len(set(c)) > 1][:160]
    rows = zip(*columns, strict=True)
    Path("x.fa").write_text("".join(f">t{n}\n{''.join(row)}\n" for n, row in enumerate(rows)))


@pytest.mark.usefixtures("_snps")
def test_data_without_constant_sites_are_hinted_at(run: Run) -> None:
    assert "no site is constant" in run("check", "x.fa").output
    assert "no site is constant" not in run("check", "x.fa", "--model", "JC+ASC").output
    assert "no site is constant" not in run("check", "x.fa", "--model", "auto+ASC").output
    Path("p.part").write_text("JC, one = 1-80\nJC+ASC, two = 81-160\n")
    assert "no site is constant in one:" in run("check", "x.fa", "--partitions", "p.part").output


@pytest.mark.usefixtures("_snps")
def test_a_model_is_chosen_among_corrected_ones(run: Run) -> None:
    result = run("model", "x.fa", "-m", "auto+ASC", "--model-set", "JC,HKY", "--prefix", "m")
    assert result.exit_code == 0, result.output
    (part,) = json.loads(Path("m.mltree.modelTest").read_text())
    names = [one["model"] for one in part["models"]]
    assert all(name.endswith("+ASC_LEWIS") for name in names)
    assert not any("+I" in name for name in names)
    assert {name.split("+")[0] for name in names} == {"JC", "HKY"}
    best = part["models"][0]
    tree = run("search", "x.fa", "-m", "auto+ASC", "--model-set", "JC,HKY", "--prefix", "m")
    assert tree.exit_code == 0, tree.output
    scored = json.loads(Path("m.mltree.json").read_text())
    assert scored["lnl"] >= best["lnl"] - 0.1
    assert "+ASC_LEWIS" in scored["model"]


@pytest.mark.usefixtures("_snps")
def test_what_does_not_go_with_a_choice(run: Run) -> None:
    result = run("model", "x.fa", "-m", "GTR", "--prefix", "m")
    assert "--model GTR: a choice is auto or auto+ASC" in result.output
    result = run("search", "x.fa", "-m", "GTR", "--model-set", "HKY")
    assert "--model-set goes with --model auto" in result.output
    Path("p.part").write_text("JC, one = 1-80\nJC, two = 81-160\n")
    result = run("model", "x.fa", "-m", "auto+ASC", "--partitions", "p.part", "--merge")
    assert "--merge does not go with +ASC" in result.output
    result = run("bootstrap", "x.fa", "--model", "JC", "--sampling", "genes", "-N", "2")
    assert "--sampling genes draws parts" in result.output


@pytest.mark.usefixtures("_snps")
def test_symmetry_of_parts(run: Run) -> None:
    Path("p.part").write_text("JC, one = 1-80\nJC, two = 81-160\n")
    result = run("check", "x.fa", "--partitions", "p.part", "--symmetry", "--json")
    assert result.exit_code == 0, result.output
    one, two = json.loads(result.stdout.splitlines()[-1])["symmetry"]
    assert (one["part"], two["part"]) == ("one", "two")
    assert one["symmetry"]["pairs"] == 21
    head, row = run("check", "x.fa", "--symmetry").output.splitlines()[-2:]
    assert head.split() == ["symmetry", "marginal", "internal", "most", "divergent", "pair"]
    assert re.fullmatch(r"all( +\d+ of \d+ +[\d.e-]+){3}  \w+, \w+", row)


@pytest.mark.parametrize("taxa", [12, 47, 150])
def test_columns_of_symmetry_stay_apart(run: Run, taxa: int) -> None:
    """Tables of the pairs of many taxa, of which most are rejected."""
    rng = np.random.default_rng(taxa)
    shares = rng.dirichlet([0.5] * 4, taxa)
    rows = ["".join(rng.choice(list("ACGT"), 400, p=row)) for row in shares]
    Path("y.fa").write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows)))
    row = run("check", "y.fa", "--symmetry").output.splitlines()[-1]
    counts = re.findall(r"(?<= )([\d,]+) of ([\d,]+)(?= )", row)
    assert len(counts) == 3
    assert counts[0][1] == f"{taxa * (taxa - 1) // 2:,}"


@pytest.mark.parametrize("scheme", ["genes", "genes-sites", "jackknife{0.3}"])
@pytest.mark.usefixtures("_snps")
def test_replicates_of_parts_are_searched(run: Run, scheme: str) -> None:
    Path("p.part").write_text("JC, one = 1-50\nHKY, two = 51-100\nJC, three = 101-160\n")
    command = ("search", "x.fa", "--partitions", "p.part", "--preset", "fast", "--prefix", "s")
    result = run(*command, "--bootstrap", "6", "--sampling", scheme)
    assert result.exit_code == 0, result.output
    trees = Path("s.mltree.bootstraps").read_text().splitlines()
    assert len(trees) == 6
    other = run(*command, "--bootstrap", "8")
    assert other.exit_code == 2
