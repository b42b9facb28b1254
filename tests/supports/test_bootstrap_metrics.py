from typing import Any

import numpy as np
import pytest

from mltree.supports import bootstrap
from mltree.supports.bootstrap import occurrences, transfer_expectations
from mltree.tree.clades import read_clades


def transfer_by_definition(clade: frozenset[str], trees: list[Any]) -> float:
    """1 - mean of the least number of taxa that change sides, over p - 1."""
    taxa = trees[0].taxa
    smaller = min(len(clade), len(taxa - clade))
    least = [min(len(clade ^ side) for split in tree.lengths() for side in split) for tree in trees]
    return 1 - sum(least) / len(least) / (smaller - 1)


@pytest.mark.cases(30, 2000)
@pytest.mark.parametrize("narrow", [0, bootstrap.NARROW], ids=["int32", "int16"])
def test_supports_are_those_of_the_definitions(
    case: int, narrow: int, grower: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "NARROW", narrow)
    grow = grower(case)
    names = grow.names(int(grow.rng.integers(3, 30)))
    order = sorted(names)
    target = grow.tree(names, wild=case % 3 > 0, base=order)
    trees = [grow.tree(names, wild=case % 3 > 1, base=order) for _ in range(7)]
    tree = read_clades(target.text)
    replicates = read_clades("".join(tree.text for tree in trees), like=tree)
    inner = tree.only(tree.is_inner)
    clades = [
        frozenset(tree.taxa[k] for k in inner.order[0, first:last])
        for first, last in zip(inner.first, inner.last, strict=True)
    ]
    assert {frozenset((clade, target.taxa - clade)) for clade in clades} == target.splits()
    expected = [
        sum(frozenset((clade, target.taxa - clade)) in tree.splits() for tree in trees)
        for clade in clades
    ]
    assert occurrences(tree, replicates).tolist() == expected
    transfer = transfer_expectations(tree, replicates)
    assert transfer == pytest.approx([transfer_by_definition(c, trees) for c in clades], abs=1e-12)
    assert np.isfinite(transfer).all()


@pytest.mark.parametrize("text", ["(a);", "(a,b);", "(a,b,c);", "(a,b,c,d);", "((a,b,c,d));"])
def test_trees_without_inner_branches_have_no_supports(text: str) -> None:
    tree = read_clades(text)
    assert occurrences(tree, tree).size == transfer_expectations(tree, tree).size == 0


def test_a_replicate_that_is_a_star_supports_nothing() -> None:
    tree = read_clades("((a,b),(c,d),(e,(f,g)));")
    star = read_clades("(a,b,c,d,e,f,g);", like=tree)
    assert occurrences(tree, star).tolist() == [0] * 4
    assert transfer_expectations(tree, star).tolist() == [0] * 4


def test_one_taxon_that_jumps_costs_transfers_less_than_proportions() -> None:
    tree = read_clades("((a,b,c,d,e),(f,g,h,i,j));")
    replicate = read_clades("((b,c,d,e),(f,g,h,i,j,a));", like=tree)
    assert occurrences(tree, replicate).tolist() == [0, 0]
    assert transfer_expectations(tree, replicate) == pytest.approx([0.75, 0.75])
