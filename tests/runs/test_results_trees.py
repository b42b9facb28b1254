"""Trees are written, rooted and put in order; every result shows itself, and counts its trees."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mltree
from mltree import PhyloTree
from mltree.runs import results

TREE = "(a:1,b:2,((c:1,d:1)90:1,(e:1,f:4)80:0.5)70:0.25);"


def labelled(case: int) -> PhyloTree:
    """A random tree whose inner branches have labels of their own."""
    tree = mltree.random_tree(5 + case % 30, seed=case)
    numbers = iter(range(1, 100))
    text = "".join(f"){next(numbers)}" if x == ")" else x for x in tree.newick[:-2])
    return PhyloTree(f"{text});")


def splits(tree: PhyloTree) -> dict[frozenset[frozenset[str]], tuple[float, float]]:
    """Summed length and support of every split."""
    taxa, found = frozenset(tree.taxa), dict[frozenset[frozenset[str]], tuple[float, float]]()
    columns = tree.columns()
    for names, length, support in zip(
        columns["taxa"], columns["length"], columns["support"], strict=True
    ):
        side = frozenset(names.split(","))
        key = frozenset([side, taxa - side])
        before = found.get(key, (0.0, support))
        found[key] = (before[0] + length, support)
    return found


@pytest.mark.cases(6, 200)
def test_a_root_changes_neither_lengths_nor_supports(case: int) -> None:
    rng = np.random.default_rng(case)
    tree = labelled(case)
    taxon = str(rng.choice(tree.taxa))
    groups = [side for side in tree.supports if 1 < len(side) < len(tree.taxa) - 1]
    group = sorted(groups[int(rng.integers(len(groups)))])
    for rooted, outgroup in (
        (tree.root(taxon), {taxon}),
        (tree.root(group), set(group)),
        (tree.root(midpoint=True), None),
        (tree.ladderize(), None),
        (tree.root(taxon).ladderize(reverse=True), {taxon}),
    ):
        assert rooted.rf(tree) == 0
        before, after = splits(tree), splits(rooted)
        assert before.keys() == after.keys()
        for key, (length, support) in before.items():
            assert after[key][0] == pytest.approx(length, abs=1e-9)
            if min(map(len, key)) > 1:
                assert after[key][1] == support
        if outgroup is not None:
            assert rooted.is_rooted
            first, *_ = rooted._written.children[0]
            sides = [set(names.split(",")) for names in rooted.columns()["taxa"]]
            assert outgroup in (sides[0], set(rooted.taxa) - sides[0])
            assert first == 1


@pytest.mark.cases(4, 100)
def test_a_midpoint_is_as_far_from_both_ends(case: int) -> None:
    tree = mltree.random_tree(4 + case % 40, seed=case).root(midpoint=True)
    written = tree._written
    deepest = [
        max(written.heights[tip] for tip in written.tips if start <= tip < end)
        for start, end in zip(
            written.children[0], (*written.children[0][1:], written.n_nodes), strict=True
        )
    ]
    first, second, *_ = sorted(deepest, reverse=True)
    assert first == pytest.approx(second, abs=1e-9)


def test_what_cannot_be_a_root() -> None:
    tree = PhyloTree(TREE)
    for call, line in (
        (tree.root, "either outgroup= or midpoint=True"),
        (lambda: tree.root("a", midpoint=True), "either outgroup= or midpoint=True"),
        (lambda: tree.root("x"), "no taxon 'x'"),
        (lambda: tree.root([]), "no taxon is named"),
        (lambda: tree.root(["a", "c"]), "does not stand together"),
        (lambda: PhyloTree("(a,b,(c,d));").root(midpoint=True), "no midpoint"),
    ):
        with pytest.raises(mltree.InputError, match=line):
            call()


@pytest.mark.parametrize("name", ["x.nwk", "x.nex", "x.tre"])
def test_files(tmp_path: Path, name: str) -> None:
    tree = PhyloTree("('a b':1,b:2,(c:1,'d;':1)90:0.5);")
    tree.write(tmp_path / name)
    tree.write(str(tmp_path / name))
    assert PhyloTree.read(tmp_path / name) == PhyloTree.read(tree) == tree
    with pytest.raises(mltree.InputError):
        tree.write(tmp_path / "nowhere" / name)


def test_tables_of_trees() -> None:
    frame = PhyloTree(TREE).to_dataframe().set_index("taxa")
    assert frame.loc["c,d", "support"] == 90
    assert frame.loc["f", "length"] == 4
    assert frame.loc["c,d,e,f", "size"] == 4
    assert frame.loc["a", "label"] == ""
    assert len(frame) == 9


def test_no_pandas_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(results, "import_module", missing)
    with pytest.raises(ImportError, match="pandas is not installed: pip install pandas"):
        PhyloTree(TREE).to_dataframe()


def test_pandas_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *arguments: Any, **keywords: Any) -> Any:
        assert name.split(".", maxsplit=1)[0] != "pandas"
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", importing)
    found = mltree.check({"a": "ACGT", "b": "ACGA", "c": "ACGC", "d": "TCGA"})
    assert found.columns()["taxon"] == ("a", "b", "c", "d")
    assert "<table>" in found._repr_html_()


def test_results_are_short_and_count_their_trees(sequences: dict[str, str]) -> None:
    found = mltree.search(sequences, "JC", preset="fast", bootstrap=3)
    fast = mltree.search(sequences, "JC", preset="fast", ufboot=1000)
    assert found.bootstrap is not None
    assert fast.bootstrap is not None
    for result, trees in (
        (found, "and 3 replicates"),
        (found.bootstrap, "3 trees of 7 taxa"),
        (fast, "and 1,000 replicates"),
        (fast.bootstrap, "1,000 trees of 7 taxa"),
    ):
        assert trees in repr(result)
        assert len(repr(result)) < 200
        assert "\n" not in repr(result)
        page = result._repr_html_()
        assert trees.split()[-2] in page
        assert "<svg" in page
    assert repr(found.tree).startswith("PhyloTree(7 taxa, length ")
    assert len(fast.bootstrap) == 1000
    assert mltree.consensus(fast.bootstrap, kind="extended").rf(fast.bootstrap.consensus) == 0
    assert fast.bootstrap.tree == fast.tree
    assert mltree.rf(found, fast) == found.tree.rf(fast.tree)
    assert "/-" in found.tree.ascii()
