"""Partitioned alignments on the command line: searched, evaluated, and read again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from mltree.tree.newick import read_newicks

Run = Callable[..., Result]

LINKAGES = ("linked", "scaled", "unlinked")

SAME_LNL = 1e-3
"""Between a run's lnL and the evaluation of what it wrote: six decimals of every value."""

FIXED = ("--no-opt-model", "--no-opt-branches")

TREE = "((t0:0.1,t1:0.2):0.05,(t2:0.1,t3:0.3):0.1,(t4:0.2,t5:0.1):0.02);"

SCHEME = "HKY+FC, one = 1-120\nK80, two = 121-200\\2\nJC+G2, three = 122-200\\2\n"

DNA, PROTEIN = "ACGT", "ARNDCQEGHILKMFPSTWYV"


def final_lnl(result: Result) -> float:
    assert result.exit_code == 0, result.output
    (line,) = (x for x in result.stdout.splitlines() if x.startswith("Final log-likelihood:"))
    return float(line.split()[-1])


def rows(letters: str, sites: int, seed: int) -> dict[str, str]:
    """Six sequences, each from one before it."""
    rng = random.Random(seed)
    found = ["".join(rng.choices(letters, k=sites))]
    while len(found) < 6:
        parent = rng.choice(found)
        found.append("".join(rng.choice(letters) if rng.random() < 0.2 else x for x in parent))
    return {f"t{n}": row for n, row in enumerate(found)}


def save(name: str, sequences: dict[str, str]) -> str:
    Path(name).write_text("".join(f">{taxon}\n{row}\n" for taxon, row in sequences.items()))
    return name


@pytest.fixture
def inputs(run: Run) -> None:
    """An alignment, its parts and a tree, in the folder of the runs."""
    save("aln.fa", rows(DNA, 200, 5))
    Path("parts").write_text(SCHEME)
    Path("tree").write_text(TREE)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_a_search_is_read_again(run: Run, inputs: None, linkage: str) -> None:
    brlen = ("--brlen", linkage)
    found = run("search", "aln.fa", "--model", "parts", *brlen, "--preset", "fast", "--prefix", "x")
    model = Path("x.mltree.bestModel").read_text()
    places = [line.split(", ")[1] for line in model.splitlines()]
    assert places == ["one = 1-120", "two = 121-200\\2", "three = 122-200\\2"]
    assert ("+BU{" in model) == (linkage == "scaled")
    trees = "bestTree" if linkage != "unlinked" else "bestPartitionTrees"
    assert Path("x.mltree.bestPartitionTrees").exists() == (linkage == "unlinked")
    again = run(
        "evaluate", "aln.fa", "--model", "x.mltree.bestModel", "--tree", f"x.mltree.{trees}",
        *brlen, *FIXED, "--prefix", "e",
    )  # fmt: skip
    assert final_lnl(again) == pytest.approx(final_lnl(found), abs=SAME_LNL)


@pytest.mark.parametrize("term", ["+B", "+BO", "+B{2}", "+BU{2}"])
def test_parts_have_one_scale(run: Run, inputs: None, term: str) -> None:
    """Whoever asks for it gets what all parts have, in a file that is read again."""
    scheme = [line.split(", ", 1) for line in SCHEME.splitlines()]
    text = "".join(f"{model}{term}, {place}\n" for model, place in scheme)
    for name, content in (("plain", SCHEME), ("own", text)):
        Path("parts").write_text(content)
        options = ("--model", "parts", "--prefix", name)
        assert run("evaluate", "aln.fa", "--tree", "tree", *options).exit_code == 0
    model = Path("own.mltree.evalModel").read_text()
    assert [line.count("+BU{") for line in model.splitlines()] == [1] * len(scheme)
    if "{" not in term:
        assert model == Path("plain.mltree.evalModel").read_text()
    again = ("--tree", "own.mltree.evalTree", "--model", "own.mltree.evalModel", *FIXED)
    assert final_lnl(run("evaluate", "aln.fa", *again, "--prefix", "again")) == pytest.approx(
        json.loads(Path("own.mltree.eval.json").read_text())["lnl"], abs=SAME_LNL
    )
    refused = run("evaluate", "aln.fa", "--tree", "tree", "--model", "parts", "--brlen", "linked")
    assert refused.exit_code == 2
    assert "part one: +B scales its branches, --brlen linked has no scale" in refused.stderr


def test_trees_of_parts_do_not_outlive_their_run(run: Run, inputs: None) -> None:
    """What --redo writes without them would stand beside those of other lengths."""
    for command, kind in ((("evaluate", "--tree", "tree"), "eval"), (("search",), "best")):
        options = (command[0], "aln.fa", *command[1:], "--model", "parts", "--prefix", "x")
        options += ("--preset", "fast") if command[0] == "search" else ()
        trees = Path(f"x.mltree.{kind}PartitionTrees")
        final_lnl(run(*options, "--brlen", "unlinked"))
        assert trees.exists()
        final_lnl(run(*options, "--brlen", "linked", "--redo"))
        assert not trees.exists()


def test_more_freedom_is_never_worse(run: Run, inputs: None) -> None:
    given = ("evaluate", "aln.fa", "--model", "parts", "--tree", "tree", "--redo")
    linked, scaled, unlinked = (final_lnl(run(*given, "--brlen", each)) for each in LINKAGES)
    assert linked < scaled + 0.01
    assert scaled < unlinked + 0.01


def test_parts_of_unlike_data_sum_up(run: Run, inputs: None) -> None:
    """DNA and protein in one file under one tree; every part apart is a run of its own."""
    dna, protein = rows(DNA, 60, 1), rows(PROTEIN, 40, 2)
    save("both.fa", {taxon: dna[taxon] + protein[taxon] for taxon in dna})
    Path("mixed").write_text("LG+G2{0.6}, b = 61-100\nHKY{3}+FE+G4{0.5}, a = 1-60\n")
    fixed = ("--tree", "tree", *FIXED, "--redo")
    whole = run(
        "evaluate", "both.fa", "--model", "mixed", "--brlen", "linked", *fixed, "--site-lnl"
    )
    one = run("evaluate", save("a.fa", dna), "--model", "HKY{3}+FE+G4{0.5}", *fixed)
    other = run("evaluate", save("b.fa", protein), "--model", "LG+G2{0.6}", *fixed)
    total = final_lnl(one) + final_lnl(other)
    assert final_lnl(whole) == pytest.approx(total, abs=SAME_LNL)
    values = list(map(float, Path("both.fa.mltree.siteLnL").read_text().split()))
    assert len(values) == 100
    assert sum(values[:40]) == pytest.approx(final_lnl(other), abs=SAME_LNL)
    assert sum(values[40:]) == pytest.approx(final_lnl(one), abs=SAME_LNL)


def test_a_gene_that_a_taxon_lacks_costs_nothing(run: Run, inputs: None) -> None:
    """Where a cherry's tip is missing, the part's lnL is that of the tree without it."""
    first, second = rows(DNA, 80, 3), rows(DNA, 50, 4)
    without = {taxon: row for taxon, row in second.items() if taxon != "t5"}
    gappy = without | {"t5": "-" * 50}
    save("aln.fa", {taxon: first[taxon] + gappy[taxon] for taxon in first})
    Path("genes").write_text("JC, one = 1-80\nJC+G2{0.5}, two = 81-130\n")
    Path("pruned").write_text(TREE.replace("(t4:0.2,t5:0.1):0.02", "t4:0.22"))
    whole = run("evaluate", "aln.fa", "--model", "genes", "--tree", "tree", *FIXED)
    one = run("evaluate", save("1.fa", first), "--model", "JC", "--tree", "tree", *FIXED)
    two = run(
        "evaluate", save("2.fa", without), "--model", "JC+G2{0.5}", "--tree", "pruned", *FIXED
    )
    assert final_lnl(whole) == pytest.approx(final_lnl(one) + final_lnl(two), abs=SAME_LNL)


def test_trees_of_parts_are_taken_by_their_splits(run: Run, inputs: None) -> None:
    """However each line is rooted and ordered."""
    Path("genes").write_text("JC, one = 1-80\nJC, two = 81-200\n")
    other = "(t5:0.4,t4:0.1,((t1:0.05,t0:0.3):0.2,(t3:0.1,t2:0.2):0.02):0.03);"
    Path("trees").write_text(f"{TREE}\n{other}\n")
    lnls = {}
    command = ("evaluate", "aln.fa", *FIXED, "--redo")
    unlinked = run(*command, "--model", "genes", "--brlen", "unlinked", "--tree", "trees")
    taxa = [f"t{n}" for n in range(6)]
    sequences = rows(DNA, 200, 5)
    for name, span, text in (("1.fa", slice(80), TREE), ("2.fa", slice(80, 200), other)):
        save(name, {taxon: row[span] for taxon, row in sequences.items()})
        Path("own").write_text(text)
        lnls[name] = final_lnl(run("evaluate", name, *FIXED, "--model", "JC", "--tree", "own"))
    assert final_lnl(unlinked) == pytest.approx(sum(lnls.values()), abs=SAME_LNL)
    written = read_newicks("aln.fa.mltree.evalPartitionTrees", taxa)
    expected = [tree.lengths.sum() for tree, _ in read_newicks("trees", taxa)]
    assert [tree.lengths.sum() for tree, _ in written] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("trees", "words"),
    [
        (f"{TREE}\n{TREE}\n", "2 trees for 3 parts"),
        (f"{TREE}\n{TREE}\n{TREE.replace('t0', 't9').replace('t2', 't0').replace('t9', 't2')}\n",
         "tree 3 has another topology"),
    ],
)  # fmt: skip
def test_trees_that_suit_no_parts_are_refused(
    run: Run, inputs: None, trees: str, words: str
) -> None:
    Path("trees").write_text(trees)
    result = run("evaluate", "aln.fa", "--model", "parts", "--brlen", "unlinked", "--tree", "trees")
    assert result.exit_code == 2
    assert words in result.stderr
