"""What the reader says that it changed in a tree: how many of each, in any mixture."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mltree.tree.newick import read_newick


def count_of(notices: tuple[str, ...], words: str) -> int:
    """The number that stands before the words in a notice; 0 where none has them."""
    found = [re.match(r"(\d+) ", notice) for notice in notices if words in notice]
    assert len(found) <= 1
    return int(found[0][1]) if found and found[0] else 0


def subtree_text(
    rng: np.random.Generator, names: list[str], counts: dict[str, int], depth: int = 0
) -> str:
    """Random Newick over the names, counting what it leaves to the reader."""
    if len(names) == 1:
        text = names[0]
    else:
        parts = min(len(names), int(rng.integers(2, 5)))
        counts["artificial"] += max(0, parts - (3 if depth == 0 else 2))
        cuts = np.sort(rng.choice(np.arange(1, len(names)), parts - 1, replace=False))
        pieces = [list(piece) for piece in np.split(np.array(names), cuts)]
        inside = ",".join(subtree_text(rng, piece, counts, depth + 1) for piece in pieces)
        text = f"({inside})"
    if depth == 0:
        return text
    while rng.random() < 0.3:
        counts["single child"] += 1
        text = f"({text}:0.5)"
    return f"{text}:1.5"


@pytest.mark.cases(30, 3000)
def test_notices_count_what_was_changed(case: int) -> None:
    rng = np.random.default_rng(case)
    names = [f"t{n}" for n in range(int(rng.integers(5, 30)))]
    counts = {"artificial": 0, "single child": 0}
    tree, notices = read_newick(subtree_text(rng, names, counts) + ";", names)
    tree.validate()
    assert tree.n_artificial == counts.pop("artificial")
    assert {words: count_of(notices, words) for words in counts} == counts


def test_a_clean_tree_needs_no_notice() -> None:
    names = [f"t{n}" for n in range(6)]
    _, notices = read_newick("(t0:1,(t1:1,t2:1):1,(t3:1,(t4:1,t5:1):1):1);", names)
    assert notices == ()
