"""Walks visit every node after what it is made from, and few results wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mltree.program.builders import walk_stages
from mltree.program.cases import Cases
from mltree.program.contract import NO_CELL, RESULT
from mltree.program.ops.walk import Walk
from mltree.tree.topology import Tree, random_topology


def stages_of(trees: Sequence[Tree], longest: int) -> list[Walk]:
    cells = np.arange(len(trees), dtype=np.int32)
    return walk_stages(trees, longest, Cases.alike(len(trees)), cells)


Seen = tuple[list[int], list[int], int]
"""Tips and lengths below a result, and the steps of its walk up to there."""


def walked(stages: Sequence[Walk], longest: int) -> dict[int, Seen]:
    """What lies below the root of every tree, by its cell, as a stack machine finds it."""
    kept: dict[int, Seen] = {}
    roots: dict[int, Seen] = {}
    for stage in stages:
        found: dict[int, Seen] = {}
        most = 0
        for tip, length, case, *_, cell, slot, first, count in stage.records.tolist():
            waiting: list[Seen] = []
            for left, left_p, right, right_p in stage.steps[first : first + count].tolist():
                below: Seen = [], [left_p, right_p], 1
                assert left == RESULT or right != RESULT, "a lone result is the left operand"
                for operand in (right, left):
                    if operand == RESULT:
                        one = waiting.pop()
                    else:
                        one = ([~operand], [], 0) if operand < 0 else (*kept[operand][:2], 0)
                    below = below[0] + one[0], below[1] + one[1], below[2] + one[2]
                assert right != RESULT or below[2] <= longest, "these are walked apart"
                waiting.append(below)
                most = max(most, len(waiting))
            ((tips, lengths, steps),) = waiting
            assert steps == count
            if slot == NO_CELL:
                assert case == cell
                roots[cell] = [*tips, ~tip], [*lengths, length], steps
            else:
                assert slot not in kept
                found[slot] = tips, lengths, steps
        assert most <= 1 + stage.levels
        kept |= found
    return roots


def assert_whole(stages: Sequence[Walk], trees: Sequence[Tree], longest: int) -> None:
    """Every tip and length of every tree is met once."""
    roots = walked(stages, longest)
    assert sorted(roots) == list(range(len(trees)))
    first = 0
    for number, tree in enumerate(trees):
        tips, lengths, _ = roots[number]
        assert sorted(tips) == list(range(tree.n_tips))
        assert sorted(lengths) == list(range(first, first + tree.n_edges))
        first += tree.n_edges


@pytest.mark.parametrize("tips", [4, 5, 17, 200])
def test_a_walk_is_in_post_order_with_few_results_waiting(tips: int) -> None:
    tree = random_topology(tips, np.random.default_rng(tips))
    (stage,) = stages_of([tree], tips)
    assert len(stage.records) == 1
    assert len(stage.steps) == tips - 2
    assert 1 + stage.levels <= 1 + np.log2(tips)
    assert_whole([stage], [tree], tips)


@pytest.mark.parametrize("longest", [1, 2, 7, 50])
def test_pieces_make_up_the_trees(longest: int) -> None:
    rng = np.random.default_rng(longest)
    trees = [random_topology(200, rng) for _ in range(3)]
    stages = stages_of(trees, longest)
    assert len(stages) > 1
    assert sum(stage.records["steps"].sum() for stage in stages) == 3 * 198
    assert_whole(stages, trees, longest)


def under_other_lengths(tree: Tree) -> Tree:
    return Tree(tree.twin, tree.edge, 2 * tree.lengths, tree.n_tips)


@pytest.mark.cases(6, 200)
def test_trees_of_one_shape_go_one_way(case: int) -> None:
    rng = np.random.default_rng(case)
    shapes = [random_topology(int(tips), rng) for tips in rng.integers(4, 90, rng.integers(1, 4))]
    of_tree = [*range(len(shapes)), *rng.integers(0, len(shapes), 6).tolist()]
    rng.shuffle(of_tree)
    trees = [under_other_lengths(shapes[n]) for n in of_tree]
    longest = int(rng.integers(1, 100))
    stages = stages_of(trees, longest)
    assert_whole(stages, trees, longest)
    kept = [slot for stage in stages for slot in stage.records["slot"].tolist() if slot != NO_CELL]
    assert sorted(kept) == list(range(len(kept)))
    roots, first, ways = walked(stages, longest), 0, {}
    for number, (tree, shape) in enumerate(zip(trees, of_tree, strict=True)):
        tips, lengths, steps = roots[number]
        way = tips, [length - first for length in lengths], steps
        assert way == ways.setdefault(shape, way)
        first += tree.n_edges
