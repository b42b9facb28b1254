"""Distances and supports from Python, against ete3's distance and a count by hand."""

from __future__ import annotations

import numpy as np
import pytest
from ete3_trees import ete3_distance

import mltree
from mltree.system.errors import InputError
from mltree.tree.newick import write_newick
from mltree.tree.topology import random_topology


def test_distances_are_ete3s() -> None:
    rng = np.random.default_rng(1)
    trees = [random_topology(9, rng) for _ in range(4)]
    taxa = [f"t{n}" for n in range(9)]
    texts = [write_newick(tree, taxa, None) for tree in trees]
    matrix = mltree.rf(texts)
    wanted = [[ete3_distance(one, other) if one is not other else 0 for other in trees]
              for one in trees]  # fmt: skip
    assert np.array_equal(matrix, wanted)
    assert mltree.rf(texts[0], texts[1]) == wanted[0][1]
    assert mltree.rf("\n".join(texts)).tolist() == wanted


def test_weighted_distances() -> None:
    one, other = "(a:1,b:2,(c:1,d:1):3);", "(a:1.5,c:2,(b:1,d:1):0.25);"
    assert mltree.rf(one, other, weighted=True) == pytest.approx(0.5 + 1 + 1 + 0 + 3 + 0.25)
    with pytest.raises(InputError, match="a branch without a length"):
        mltree.rf(one, "(a,b,(c,d));", weighted=True)
    with pytest.raises(InputError, match="'e' is in this tree but not in the first tree"):
        mltree.rf(one, "(a,b,(c,e));")


def test_supports_are_counts() -> None:
    others = ["(a,b,(c,(d,e)));", "(a,b,(c,(d,e)));", "(a,c,(b,(d,e)));"]
    found = mltree.support("(a:1,b:1,(c:1,(d:1,e:1):1):1);", others)
    assert found.supports == {frozenset("cde"): 67.0, frozenset("de"): 100.0}
    assert found.length == 7
    transfers = mltree.support("(a,b,(c,(d,e)));", others, metric="tbe").supports
    assert transfers[frozenset("de")] == 1.0
    with pytest.raises(InputError, match="metric='x' is not one of fbp, tbe"):
        mltree.support(others[0], others, metric="x")
