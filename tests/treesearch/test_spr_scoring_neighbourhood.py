"""Candidates against a brute-force walk; walks against a stack machine over sets of edges."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.program.planner import ScanTasks
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.spr import Neighbourhood


def tree_of(n_tips: int, seed: int = 1) -> Tree:
    return random_topology(n_tips, np.random.default_rng(seed))


def textbook(tree: Tree, radius: int) -> dict[tuple[int, int], tuple[int, int]]:
    """(prune, target) -> (depth, previous target), by recursion."""
    found: dict[tuple[int, int], tuple[int, int]] = {}

    def walk(prune: int, entered: int, depth: int, before: int) -> None:
        if entered < 3 * tree.n_tips or depth > radius:
            return
        for g in tree.siblings(entered):
            found[prune, int(g)] = (depth, before)
            walk(prune, int(tree.twin[g]), depth + 1, int(g))

    for prune in range(3 * tree.n_tips, tree.twin.size):
        for side in tree.siblings(prune):
            walk(prune, int(tree.twin[side]), 1, -1)
    return found


def depths(neighbourhood: Neighbourhood) -> np.ndarray:
    """Edges from the pruning point to each target."""
    depth = np.ones(neighbourhood.size, np.int32)
    for n, parent in enumerate(np.repeat(neighbourhood.up, 2).tolist()):
        depth[n] += depth[parent] if parent >= 0 else 0
    return depth


def found_by(neighbourhood: Neighbourhood) -> dict[tuple[int, int], tuple[int, int]]:
    up = np.repeat(neighbourhood.up, 2)
    before = np.where(up < 0, -1, neighbourhood.target[up])
    columns = (neighbourhood.prune, neighbourhood.target, depths(neighbourhood), before)
    rows = np.stack(columns, axis=1).tolist()
    return {(p, g): (d, b) for p, g, d, b in rows}


def replay(tree: Tree, scan: ScanTasks) -> dict[int, frozenset[int]]:
    """output -> the tip set that N stands for, computed as the device walks."""
    below = subtree_tips(tree)
    answer: dict[int, frozenset[int]] = {}
    for task in range(scan.prune.size):
        stack = {0: below[int(scan.root[task])]}
        for step in range(scan.first_step[task], scan.first_step[task + 1]):
            behind = stack[int(scan.level_in[step])]
            for side in (0, 1):
                near_vector = behind | below[int(scan.far[1 - side, step])]
                if scan.output[side, step] >= 0:
                    answer[int(scan.output[side, step])] = near_vector
                if scan.level_out[side, step] >= 0:
                    stack[int(scan.level_out[side, step])] = near_vector
    return answer


def subtree_tips(tree: Tree) -> dict[int, frozenset[int]]:
    memo: dict[int, frozenset[int]] = {}

    def tips(h: int) -> frozenset[int]:
        if h not in memo:
            if h < 3 * tree.n_tips:
                memo[h] = frozenset([h // 3])
            else:
                first, second = tree.siblings(h)
                memo[h] = tips(int(tree.twin[first])) | tips(int(tree.twin[second]))
        return memo[h]

    for h in np.flatnonzero(tree.twin >= 0):
        tips(int(h))
    return memo


@pytest.mark.parametrize("n_tips", [4, 5, 12, 30])
@pytest.mark.parametrize("radius", [1, 3, 25])
def test_finds_every_candidate_once(n_tips: int, radius: int) -> None:
    tree = tree_of(n_tips)
    neighbourhood = Neighbourhood(tree)
    neighbourhood.extend(radius)
    assert found_by(neighbourhood) == textbook(tree, radius)
    assert neighbourhood.size == len(textbook(tree, radius))


def test_waves_find_what_one_walk_finds() -> None:
    tree = tree_of(40)
    waves = Neighbourhood(tree)
    slices = [waves.extend(depth) for depth in (3, 8, 25)]
    assert [s.start for s in slices] == [0, slices[0].stop, slices[1].stop]
    assert found_by(waves) == textbook(tree, 25)


def test_the_cut_ends_walks_at_any_ancestor() -> None:
    tree = tree_of(30)
    neighbourhood = Neighbourhood(tree)
    neighbourhood.extend(3)
    scores = np.zeros(neighbourhood.size)
    scores[0] = -10.0
    alive = neighbourhood.survivors(scores, np.array([-5.0]))
    whole = textbook(tree, 25)
    doomed = (int(neighbourhood.prune[0]), int(neighbourhood.target[0]))
    neighbourhood.extend(25, alive)

    def under_doomed(prune: int, target: int) -> bool:
        depth, before = whole[prune, target]
        return depth > 1 and ((prune, before) == doomed or under_doomed(prune, before))

    expected = {k for k, (d, _) in whole.items() if d <= 3 or not under_doomed(*k)}
    assert set(found_by(neighbourhood)) == expected


@pytest.mark.parametrize("n_tips", [4, 7, 25, 60])
def test_walks_rebuild_the_near_side(n_tips: int) -> None:
    tree = tree_of(n_tips, seed=3)
    neighbourhood = Neighbourhood(tree)
    rng = np.random.default_rng(5)
    below = subtree_tips(tree)
    everyone = frozenset(range(n_tips))
    for depth in (2, 5, 40):
        alive = rng.random(neighbourhood.size)[neighbourhood.frontier] < 0.6
        new = neighbourhood.extend(depth, alive if neighbourhood.size else None)
        scan = neighbourhood.scan(new)
        answer = replay(tree, scan)
        assert sorted(answer) == list(range(new.stop - new.start))
        for output, near_tips in answer.items():
            candidate = new.start + output
            pruned = below[int(tree.twin[neighbourhood.prune[candidate]])]
            far = below[int(tree.twin[neighbourhood.target[candidate]])]
            assert near_tips | pruned | far == everyone
            assert not near_tips & (far | pruned)


def test_a_selection_walks_only_its_ancestors() -> None:
    tree = tree_of(40, seed=9)
    neighbourhood = Neighbourhood(tree)
    neighbourhood.extend(25)
    deepest = np.flatnonzero(depths(neighbourhood) == depths(neighbourhood).max())[:1].astype(
        np.int32
    )
    scan = neighbourhood.scan(deepest)
    assert scan.level_in.size == depths(neighbourhood).max()
    assert scan.outputs == 1
    assert scan.output.tolist() == [
        [-1] * (scan.level_in.size - 1) + [0],
        [-1] * scan.level_in.size,
    ]
    assert scan.levels == 1


def test_stack_depth_is_logarithmic() -> None:
    tree = tree_of(300, seed=2)
    neighbourhood = Neighbourhood(tree)
    new = neighbourhood.extend(300)
    scan = neighbourhood.scan(new)
    assert scan.levels <= 1 + np.log2(np.diff(scan.first_step).max())
    assert (np.diff(np.diff(scan.first_step)) <= 0).all()


def test_trees_side_by_side_have_the_candidates_of_each() -> None:
    trees = [tree_of(9, seed=s) for s in (1, 2, 3)]
    together = Neighbourhood(trees)
    together.extend(3)
    halves = trees[0].twin.size
    up = np.repeat(together.up, 2)
    before = np.where(up < 0, -1, together.target[up] % halves)
    columns = (together.prune % halves, together.target % halves, depths(together), before)
    for n, tree in enumerate(trees):
        own = np.stack(columns, axis=1)[together.tree == n].tolist()
        assert {(p, g): (d, b) for p, g, d, b in own} == textbook(tree, 3)


def test_one_scan_walks_all_trees() -> None:
    trees = [tree_of(9, seed=s) for s in (1, 2, 3)]
    together = Neighbourhood(trees)
    scan = together.scan(together.extend(3))
    assert scan.outputs == together.size
    assert (np.diff(np.diff(scan.first_step)) <= 0).all()
    step_tree = np.repeat(scan.tree, np.diff(scan.first_step))
    for output in scan.output:
        is_scored = output >= 0
        np.testing.assert_array_equal(step_tree[is_scored], together.tree[output[is_scored]])
    for n, tree in enumerate(trees):
        alone = Neighbourhood(tree)
        single = alone.scan(alone.extend(3))
        mine = step_tree == n
        own = scan.far[:, mine] - together.forest.first_half[n]
        np.testing.assert_array_equal(own, single.far)
        np.testing.assert_array_equal(scan.level_out[:, mine], single.level_out)
        np.testing.assert_array_equal(scan.join_length[scan.tree == n], single.join_length)
