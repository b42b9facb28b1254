from typing import Any

import numpy as np
import pytest

from mltree.supports.distances import distances, largest, topologies
from mltree.supports.table import split_table
from mltree.tree.newick import read_newick, robinson_foulds
from mltree.tree.newick_clades import read_clades


@pytest.mark.cases(30, 1500)
def test_distances_are_sums_of_differences(case: int, grower: Any) -> None:
    grow = grower(case)
    names = grow.names(int(grow.rng.integers(2, 20)))
    trees = [grow.tree(names, wild=case % 2 > 0, base=sorted(names)) for _ in range(8)]
    clades = read_clades("".join(tree.text for tree in trees))
    table = split_table(clades)
    plain = np.array(list(distances(table, np.ones(table.split.size), 8)))
    assert plain.tolist() == [[len(a.splits() ^ b.splits()) for b in trees] for a in trees]
    assert topologies(table) == len({frozenset(tree.splits()) for tree in trees})
    assert topologies(table, 3) == len({frozenset(tree.splits()) for tree in trees[3:]})
    whole = split_table(clades, with_tips=True)
    weighted = np.array(list(distances(whole, whole.lengths, 3)))
    expected = [
        [
            sum(
                abs(a.lengths().get(split, 0) - b.lengths().get(split, 0))
                for split in {*a.lengths(), *b.lengths()}
            )
            for b in trees
        ]
        for a in trees[:3]
    ]
    assert weighted == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.cases(5, 200)
def test_plain_distances_are_those_of_ete3(case: int, grower: Any) -> None:
    grow = grower(case)
    names = [f"t{k}" for k in range(15)]
    texts = [grow.tree(names, wild=False, base=names).text for _ in range(3)]
    table = split_table(read_clades("".join(texts)))
    trees = [read_newick(text, names)[0] for text in texts]
    plain = list(distances(table, np.ones(table.split.size), 3))
    assert [row.tolist() for row in plain] == [
        [robinson_foulds(a, b) for b in trees] for a in trees
    ]


def test_branches_shorter_than_nothing_count() -> None:
    table = split_table(
        read_clades("((a:1,b:1):-2,c:1,d:1);((a:1,b:1):3,c:1,d:1);(a:1,b:1,c:1,d:-1);"),
        with_tips=True,
    )
    found = [row.tolist() for row in distances(table, table.lengths, 3)]
    assert found == [[0, 5, 4], [5, 0, 5], [4, 5, 0]]


def test_the_largest_distance_is_that_of_two_resolved_trees() -> None:
    table = split_table(read_clades("((a,b),(c,d),e);((a,c),(b,e),d);"))
    assert next(distances(table, np.ones(table.split.size), 1)).tolist() == [0, largest(5)]
    assert largest(3) == largest(2) == 0
