from typing import Any

import numpy as np
import pytest

from mltree.supports import consensus as module
from mltree.supports.consensus import SplitTable, members, split_table
from mltree.tree.clades import read_clades


def occurrences(table: SplitTable) -> list[dict[Any, float]]:
    """For every tree its splits, as sets of names, with their lengths."""
    names = np.array(table.taxa)
    sides = [frozenset(names[row].tolist()) for row in members(table.bits, len(names))]
    found: list[dict[Any, float]] = [{} for _ in range(table.n_trees)]
    for tree, split, length in zip(table.tree, table.split, table.lengths, strict=True):
        found[tree][frozenset((sides[split], frozenset(table.taxa) - sides[split]))] = length
    return found


@pytest.mark.cases(30, 1000)
@pytest.mark.parametrize("at_once", [0, 1 << 26], ids=["tree by tree", "all"])
def test_tables_hold_the_splits_and_lengths_of_every_tree(
    case: int, at_once: int, grower: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    grow = grower(case)
    names = grow.names(int(grow.rng.integers(1, 150 if case % 5 == 0 else 12)))
    trees = [grow.tree(names, wild=bool(k % 2)) for k in range(6)]
    clades = read_clades("\n".join(tree.text for tree in trees))
    table = split_table(clades)
    assert [set(found) for found in occurrences(table)] == [tree.splits() for tree in trees]
    assert (
        len({row.tobytes() for row in table.bits}) == table.n_splits == np.unique(table.split).size
    )
    assert not (table.bits[:, :1] & np.uint64(1)).any()
    for found, tree in zip(occurrences(split_table(clades, with_tips=True)), trees, strict=True):
        assert found == pytest.approx(tree.lengths())


def test_splits_that_share_a_hash_are_told_apart(
    grower: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow = grower(0)
    trees = [grow.tree(grow.names(9)) for _ in range(1)]
    made = np.random.Generator.integers
    drawn = []

    class Poor(np.random.Generator):
        """Draws keys that are all alike, the first time."""

        def integers(self, *arguments: Any, **named: Any) -> Any:
            drawn.append(made(self, *arguments, **named))
            return drawn[0] * 0 + 1 if len(drawn) == 1 else drawn[-1]

    monkeypatch.setattr(np.random, "Generator", Poor)
    table = split_table(read_clades(trees[0].text))
    assert len(drawn) == 2
    assert set(occurrences(table)[0]) == trees[0].splits()
