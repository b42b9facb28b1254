from itertools import combinations
from typing import Any

import numpy as np
import pytest
from ete3_trees import ete3_distance

from mltree.supports import consensus as module
from mltree.supports.consensus import (
    distances,
    largest,
    split_table,
    topologies,
    weighted_distances,
)
from mltree.tree.clades import read_clades
from mltree.tree.newick import read_newick


@pytest.mark.cases(30, 1500)
@pytest.mark.parametrize("common", [0, 0.25, 1], ids=["all common", "some", "all rare"])
def test_distances_are_sums_of_differences(
    case: int, common: float, grower: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMON", common)
    grow = grower(case)
    names = grow.names(int(grow.rng.integers(2, 20)))
    trees = [grow.tree(names, wild=case % 2 > 0, base=sorted(names)) for _ in range(8)]
    clades = read_clades("".join(tree.text for tree in trees))
    table = split_table(clades)
    pairs = list(combinations(trees, 2))
    plain = np.concatenate(list(distances(table, 7)))
    assert plain.tolist() == [len(a.splits() ^ b.splits()) for a, b in pairs]
    assert topologies(table) == len({frozenset(tree.splits()) for tree in trees})
    assert topologies(table, 3) == len({frozenset(tree.splits()) for tree in trees[3:]})
    whole = split_table(clades, with_tips=True)
    weighted = np.concatenate(list(weighted_distances(whole, 7)))
    expected = [
        sum(
            abs(a.lengths().get(split, 0) - b.lengths().get(split, 0))
            for split in {*a.lengths(), *b.lengths()}
        )
        for a, b in pairs
    ]
    assert weighted == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.cases(5, 200)
def test_plain_distances_are_those_of_ete3(case: int, grower: Any) -> None:
    grow = grower(case)
    names = [f"t{k}" for k in range(15)]
    texts = [grow.tree(names, wild=False, base=names).text for _ in range(3)]
    table = split_table(read_clades("".join(texts)))
    trees = [read_newick(text, names)[0] for text in texts]
    plain = np.concatenate(list(distances(table, 2)))
    assert plain.tolist() == [ete3_distance(a, b) for a, b in combinations(trees, 2)]


def test_branches_shorter_than_nothing_count() -> None:
    table = split_table(
        read_clades("((a:1,b:1):-2,c:1,d:1);((a:1,b:1):3,c:1,d:1);(a:1,b:1,c:1,d:-1);"),
        with_tips=True,
    )
    assert [row.tolist() for row in weighted_distances(table, 2)] == [[5, 4], [5]]


def test_the_largest_distance_is_that_of_two_resolved_trees() -> None:
    table = split_table(read_clades("((a,b),(c,d),e);((a,c),(b,e),d);"))
    assert next(distances(table, 1)).tolist() == [largest(5)]
    assert largest(3) == largest(2) == 0
