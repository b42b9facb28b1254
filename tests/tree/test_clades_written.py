"""Trees as they are written: nothing of a text is lost."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.system.errors import InputError
from mltree.tree.clades import WrittenTree, read_clades, read_written
from mltree.tree.newick import read_newick
from mltree.tree.splits import same_topology

TEXT = "((a:1,'b c':2)95:0.5,(d,(e,f)x)0.7/80,g:0.25);"


def tree_of(text: str) -> WrittenTree:
    (tree,) = read_written(text)
    return tree


def test_everything_is_there() -> None:
    tree = tree_of(TEXT)
    assert tree.labels == ("", "95", "a", "b c", "0.7/80", "d", "x", "e", "f", "g")
    assert tree.parent.tolist() == [-1, 0, 1, 1, 0, 4, 4, 6, 6, 0]
    assert tree.tips == (2, 3, 5, 7, 8, 9)
    assert tree.n_below.tolist() == [6, 2, 1, 1, 3, 1, 2, 1, 1, 1]
    nan = np.nan
    np.testing.assert_array_equal(tree.lengths, [nan, 0.5, 1, 2, nan, nan, nan, nan, nan, 0.25])
    np.testing.assert_array_equal(tree.heights, [0, 0.5, 1.5, 2.5, 0, 0, 0, 0, 0, 0.25])
    np.testing.assert_array_equal(tree.supports, [nan, 95, nan, nan, 80, *[nan] * 5])
    assert tree.newick() == TEXT
    assert tree.is_measured
    assert not tree_of("(a,b,(c,d)9);").is_measured


@pytest.mark.parametrize("label", ["clade", "1_000", "nan", "95/1_0", "95/"])
def test_a_label_that_is_no_number_is_no_support(label: str) -> None:
    assert np.isnan(tree_of(f"((a,b){label},c,d);").supports).all()


@pytest.mark.parametrize(
    "text", ["a;", "(a);", "((a,b),((c)));", "(a:0,b:0.000001,(c:12,d:0.5)'it''s':3)root;"]
)
def test_odd_trees_are_written_as_they_were(text: str) -> None:
    assert tree_of(text).newick() == text


@pytest.mark.parametrize("text", ["(,a,b);", "(a,b,);", "();", "(a,(),b);"])
def test_a_tip_needs_a_name(text: str) -> None:
    with pytest.raises(InputError, match="a tip without a name"):
        read_written(text)


def test_a_text_without_trees() -> None:
    with pytest.raises(InputError, match="no tree in it"):
        read_written("[nothing]")


def random_newick(rng: np.random.Generator) -> tuple[str, list[str]]:
    """A tree of any shape, and its taxa."""
    taxa = [f"t{n}" for n in range(int(rng.integers(4, 25)))]
    parts = [f"{name}:{int(rng.integers(1, 10000)) / 10000}" for name in taxa]
    while len(parts) > 3:
        size = min(int(rng.integers(2, 4)), len(parts) - 1)
        chosen = sorted(rng.choice(len(parts), size, replace=False), reverse=True)
        inside = ",".join(parts.pop(place) for place in chosen)
        parts.append(f"({inside}){rng.integers(0, 101)}:{int(rng.integers(1, 10000)) / 10000}")
    return f"({','.join(parts)});", taxa


@pytest.mark.cases(40, 3000)
def test_ladders_are_the_same_tree_with_small_clades_first(case: int) -> None:
    text, taxa = random_newick(np.random.default_rng(case))
    tree = tree_of(text)
    assert tree.newick() == text
    ladder = tree.ladderised()
    for below in ladder.children:
        sizes = [int(ladder.n_below[child]) for child in below]
        assert sizes == sorted(sizes)
    again = tree_of(ladder.newick())
    np.testing.assert_array_equal(again.parent, ladder.parent)
    before, after = (
        sorted(map(str, zip(t.labels, t.lengths.tolist(), strict=True))) for t in (tree, ladder)
    )
    assert before == after
    is_binary = all(len(below) in {0, 2} for below in tree.children[1:])
    if is_binary and len(tree.children[0]) == 3:
        assert same_topology(read_newick(text, taxa)[0], read_newick(ladder.newick(), taxa)[0])


def test_clades_agree() -> None:
    """Another reader of the same text finds the same taxa."""
    assert read_clades(TEXT).taxa == tuple(tree_of(TEXT).labels[tip] for tip in tree_of(TEXT).tips)
