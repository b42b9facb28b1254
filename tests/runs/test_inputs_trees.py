"""Trees of other libraries: all digits there and back; what a tree says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mltree
from mltree.runs.inputs import newick_of, newicks_of
from mltree.runs.results import PhyloTree
from mltree.system.errors import InputError
from mltree.tree.newick import write_newick
from mltree.tree.topology import random_topology

NEWICK = "(a:0.1234567890123,(b:1e-06,c:0.3)88:0.25,('d x':0.1,d_x:0.4)0.5:0.1);"

LIBRARIES = {
    "ete3": "ete3",
    "biopython": "Bio",
    "dendropy": "dendropy",
    "cogent3": "cogent3",
    "skbio": "skbio",
}


def handed_on(tree: PhyloTree, library: str) -> Any:
    pytest.importorskip(LIBRARIES[library])
    return getattr(tree, f"to_{library}")()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_get_and_give_all_of_it(library: str) -> None:
    back = newick_of(handed_on(PhyloTree(NEWICK), library))
    assert mltree.rf(NEWICK, back) == 0
    assert mltree.rf(NEWICK, back, weighted=True) == 0.0
    assert "'d x'" in back
    assert "d_x" in back


@pytest.mark.filterwarnings("ignore")
@pytest.mark.cases(2, 100)
def test_random_trees_come_back(case: int) -> None:
    rng = np.random.default_rng(case)
    taxa = [f"t{n}" for n in range(int(rng.integers(4, 40)))]
    tree = PhyloTree(write_newick(random_topology(len(taxa), rng), taxa, None))
    for library in ("ete3", "biopython", "dendropy"):
        assert mltree.rf(tree, handed_on(tree, library), weighted=True) == 0.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["ete3", "biopython", "dendropy", "skbio"])
def test_supports_come_back(library: str) -> None:
    for text in (NEWICK, NEWICK.replace("0.5:", ":").replace("88:", ":")):
        tree = PhyloTree(text)
        assert PhyloTree.read(handed_on(tree, library)).supports == tree.supports
    assert mltree.draw(handed_on(PhyloTree(NEWICK), library)).svg == mltree.draw(NEWICK).svg


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("mltree.runs.results.import_module", missing)
    with pytest.raises(ImportError, match="pip install biopython"):
        PhyloTree(NEWICK).to_biopython()


def test_what_a_tree_says() -> None:
    tree = PhyloTree(NEWICK)
    assert str(tree) == NEWICK
    assert tree.taxa == ("a", "b", "c", "d x", "d_x")
    assert tree.length == pytest.approx(1.2734577890123)
    assert tree.supports == {frozenset("bc"): 88.0, frozenset(["d x", "d_x"]): 0.5}
    assert tree.rf("(a,b,(c,('d x',d_x)));") == 2
    assert "<svg" in tree._repr_html_()
    assert tree.svg(layout="circular") != tree.svg()
    with pytest.raises(InputError, match="layout='square' is not one of"):
        tree.svg(layout="square")


def test_several_trees(tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text("(a,b,(c,d));\n")
    path = tmp_path / "t.nwk"
    assert newicks_of(path) == str(path)
    assert newicks_of([path, PhyloTree("(a,c,(b,d));")]) == "(a,b,(c,d));\n\n(a,c,(b,d));"
    assert newicks_of(PhyloTree("(a,c,(b,d));")) == "(a,c,(b,d));"
    with pytest.raises(InputError, match="int is not a tree"):
        newick_of(3)
