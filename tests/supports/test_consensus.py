from itertools import combinations
from typing import Any

import numpy as np
import pytest

from mltree.supports.consensus import Consensus, consensus, members, split_table
from mltree.tree.clades import nested, read_clades, write_clades


def named(texts: list[str], kind: Consensus) -> dict[Any, int]:
    """The splits of a consensus, as sets of names, with the trees that have them."""
    table = split_table(read_clades("\n".join(texts)))
    names, everybody = np.array(table.taxa), frozenset(table.taxa)
    chosen = consensus(table, kind)
    found = {}
    for row, split in zip(members(table.bits[chosen], names.size), chosen, strict=True):
        side = frozenset(names[row].tolist())
        found[frozenset((side, everybody - side))] = int(table.counts[split])
    return found


def counted(trees: list[Any]) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for tree in trees:
        for split in tree.splits():
            counts[split] = counts.get(split, 0) + 1
    return counts


def fit(one: Any, other: Any) -> bool:
    """Whether a tree can have both splits: one side of each are apart."""
    return any(not (a & b) for a in one for b in other)


def evenness_and_names(split: Any) -> tuple[int, list[str]]:
    """What ties are broken by."""
    side = min(split, key=lambda side: (len(side), sorted(side)))
    return -len(side), sorted(side)


@pytest.mark.cases(40, 2000)
def test_consensus_trees_are_those_of_the_definitions(case: int, grower: Any) -> None:
    grow = grower(case)
    names = grow.names(int(grow.rng.integers(3, 14)))
    trees = [
        grow.tree(names, wild=case % 2 > 0, base=sorted(names))
        for _ in range(int(grow.rng.integers(1, 9)))
    ]
    texts, counts = [tree.text for tree in trees], counted(trees)
    strict = {split: n for split, n in counts.items() if n == len(trees)}
    majority = {split: n for split, n in counts.items() if n > len(trees) / 2}
    assert named(texts, Consensus.STRICT) == strict
    assert named(texts, Consensus.MAJORITY) == majority
    extended: dict[Any, int] = {}
    for split in sorted(counts, key=lambda split: (-counts[split], *evenness_and_names(split))):
        if all(fit(split, other) for other in extended):
            extended[split] = counts[split]
    assert named(texts, Consensus.EXTENDED) == extended
    assert named(list(grow.rng.permutation(texts)), Consensus.EXTENDED) == extended


@pytest.mark.cases(30, 1000)
def test_the_tree_of_a_consensus_has_its_splits_and_their_labels(case: int, grower: Any) -> None:
    grow = grower(case)
    names = grow.names(int(grow.rng.integers(2, 40)))
    table = split_table(read_clades(grow.tree(names).text))
    inside = members(table.bits, len(names))
    shuffled = grow.rng.permutation(len(inside))
    tree, rows = nested(table.taxa, inside[shuffled])
    again = read_clades(write_clades(tree, [f"r{row}" for row in rows]), like=tree)
    found = split_table(again)
    assert {row.tobytes() for row in found.bits} == {row.tobytes() for row in table.bits}
    for first, last, row in zip(tree.first, tree.last, rows, strict=True):
        assert set(tree.order[0, first:last]) == set(np.flatnonzero(inside[shuffled][row]))


def test_ties_go_to_the_more_even_split_and_then_by_name() -> None:
    even, uneven = "((a,b,c),d,e,f);", "((c,d),a,b,e,f);"
    assert set(named([uneven, even], Consensus.EXTENDED)) == {
        frozenset((frozenset("abc"), frozenset("def")))
    }
    by_name = named(["(b,(a,d),c,e);", "((b,a),c,d,e);"], Consensus.EXTENDED)
    assert set(by_name) == {frozenset((frozenset("ab"), frozenset("cde")))}


def test_all_pairs_of_splits_of_one_tree_fit(grower: Any) -> None:
    tree = grower(3).tree(list("abcdefghijklm"))
    assert all(fit(one, other) for one, other in combinations(tree.splits(), 2))
