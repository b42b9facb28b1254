"""Time trees: their nodes, and what is written of them is read again."""

import numpy as np
import pytest

from mltree.dating.time_trees import TimeTree, rates_for_lengths, read_time_trees
from mltree.sampling.beast_files import TREES_END, tree_line, trees_head
from mltree.system.errors import InputError
from mltree.tree.clades import read_written


def coalesced(rng: np.random.Generator, names: list[str], *, is_dated: bool) -> TimeTree:
    """A random tree: the number of nodes is that of the order in which they are made."""
    n_tips = len(names)
    heights = list(rng.random(n_tips) if is_dated else np.zeros(n_tips))
    heights = [height - min(heights) for height in heights]
    parents = [-1] * (2 * n_tips - 1)
    left = list(range(n_tips))
    while len(left) > 1:
        first, second = (left.pop(int(rng.integers(len(left)))) for _ in range(2))
        parents[first] = parents[second] = node = len(heights)
        heights.append(max(heights[first], heights[second]) + rng.exponential())
        left.append(node)
    rates = rng.lognormal(-5.0, 1.0, len(heights))
    return TimeTree(tuple(names), np.array(parents), np.array(heights), rates)


NAMES = ["A", "it's", "b c", "(x:1.5)", "t|2001.5", "Homo_sapiens", "ä", "[&rate]", "7", "x,y"]


@pytest.mark.cases(6, 300)
def test_trees_are_read_as_they_were_written(case, tmp_path):
    rng = np.random.default_rng(case)
    names = list(rng.permutation(NAMES))[: 2 + case % 8]
    trees = [coalesced(rng, names, is_dated=bool(case % 2)) for _ in range(3)]
    nexus, plain = tmp_path / "a.trees", tmp_path / "a.nwk"
    lines = [tree_line(number, tree, -1.5) for number, tree in enumerate(trees)]
    nexus.write_text(trees_head(names) + "".join(lines) + TREES_END, encoding="utf-8")
    plain.write_text("".join(tree.newick() + "\n" for tree in trees), encoding="utf-8")
    for file in (nexus, plain):
        for tree, again in zip(trees, read_time_trees(file, names), strict=True):
            order = [again.mrca(np.flatnonzero(row)) for row in members(tree)]
            assert [again.bits[node] for node in order] == list(tree.bits)
            np.testing.assert_allclose(again.heights[order], tree.heights, atol=1e-12)
            inner = np.arange(len(order)) != tree.root
            np.testing.assert_array_equal(again.rates[order][inner], tree.rates[inner])
            assert np.isnan(again.rates[again.root])


def members(tree):
    return [[bits >> tip & 1 for tip in range(tree.n_tips)] for bits in tree.bits]


def test_nodes_of_a_tree():
    tree = TimeTree.of(read_written("((b:1,(c:0.5,a:0.25):0.5):1,d:3);")[0], "abcd")
    assert tree.heights[:4].tolist() == [1.25, 1.0, 1.0, 0.0]
    assert tree.heights[tree.root] == 3.0
    assert tree.mrca([0, 2]) == tree.parents[0]
    assert tree.is_clade([0, 1, 2])
    assert not tree.is_clade([1, 2])
    assert tree.newick() == "(((a:0.25,c:0.5):0.5,b:1):1,d:3);"
    assert tree.written.labels[1:3] == ("", "")
    np.testing.assert_allclose(tree.written.lengths, tree.lengths[tree.preorder])


def test_rates_of_several_programs():
    told = b"(A[&x=1,rate=2e-3]:1.5,('c:9,[d'[&rate=4,y={1,2}]:3,B:[&rate=0.5]2):1)[&rate=1];"
    assert rates_for_lengths(told) == b"(A:2e-3,('c:9,[d':4,B:0.5))[&rate=1];"
    assert rates_for_lengths(b"(A:1[&rate=3],B:1[&r=1]);") == b"(A:3,B[&r=1]);"


@pytest.mark.parametrize(
    ("newick", "message"),
    [
        ("(a:1,b:1,c:1);", "a node of the tree has not two children"),
        ("(a:1,(b:1,c));", "a branch of the tree has no length"),
        ("(a:1,(b:1,c:1):-0.5);", "a branch of the tree has a negative length"),
        ("(a:1,(b:1,d:1):1);", "taxon 'c' is not in the tree"),
        ("(a:1,(b:1,(c:1,e:1):1):1);", "taxon 'e' is only in the tree"),
        ("(a:1,(b:1,b:1):1);", "taxon 'b' is in the tree twice"),
    ],
)
def test_trees_that_are_none_in_time(newick, message):
    with pytest.raises(InputError, match=message):
        TimeTree.of(read_written(newick)[0], "abc")
