"""What a search remembers of prunes, moves and topologies."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.fit.settings import PhaseSettings
from mltree.tree.forest import Forest
from mltree.tree.moves import nni, spr
from mltree.tree.random_trees import random_topology
from mltree.tree.splits import topology_key
from mltree.tree.topology import Tree
from mltree.treesearch import explored as module
from mltree.treesearch.explored import SURROUNDINGS, Explored, Keys, Lesson
from mltree.treesearch.scoring import Moves, Neighbourhood

PHASE = PhaseSettings(8, 30.0)


def some_tree(tips: int = 24, seed: int = 3) -> Tree:
    return random_topology(tips, np.random.default_rng(seed))


def renumbered(tree: Tree) -> Tree:
    """The same topology, its inner nodes in another order."""
    first, half = 3 * tree.n_tips, tree.twin.size
    new = np.arange(half)
    new[first:] = np.arange(first, half).reshape(-1, 3)[::-1].ravel()
    twin, edge = np.empty_like(tree.twin), np.empty_like(tree.edge)
    there = tree.twin >= 0
    twin[new] = np.where(there, new[tree.twin], -1)
    edge[new] = tree.edge
    return Tree(twin, edge, tree.lengths.copy(), tree.n_tips)


def moves_of(tree: Tree, lnl: float) -> Moves:
    """All moves up to three edges far, with one lnL."""
    found = Neighbourhood(tree)
    found.extend(3)
    size = found.size
    return Moves(found.prune, found.target, np.full(size, lnl), np.full((size, 4), 0.1))


def learned(tree: Tree, moves: Moves, near: float) -> tuple[Explored, Lesson]:
    keys, explored = Keys(Forest([tree])), Explored()
    floors = np.array([near]), np.array([-0.5])
    (lesson,) = keys.lessons(keys.worthwhile([explored]), [moves], *floors)
    explored.add([lesson])
    return explored, lesson


def test_moves_far_below_are_hopeless_in_any_numbering() -> None:
    tree = some_tree()
    moves = moves_of(tree, -9.0)
    good = moves.prune % 7 == 0
    moves.lnl[good] = -1.0
    explored, _ = learned(tree, moves, near=-5.0)
    for same in (tree, renumbered(tree)):
        every = moves_of(same, 0.0)
        keys = Keys(Forest([some_tree(24, 8), same]))
        other = Explored()
        halves = np.int32(same.twin.size)
        hopeful = keys.hopeful([other, explored], every.prune + halves, every.target + halves)
        assert hopeful.sum() == good.sum()
        assert keys.hopeful([explored, other], every.prune + halves, every.target + halves).all()
    assert (Keys(Forest([tree])).hopeful([explored], moves.prune, moves.target) == good).all()


def test_moves_to_one_topology_of_one_subtree_have_one_key() -> None:
    """Wherever the subtree was before; and no other move has that key."""
    tree = some_tree(9)
    explored, _ = learned(tree, moves_of(tree, -9.0), near=-5.0)
    assert explored.moves.size == len(moves_of(tree, 0.0).prune)
    (first, second, *_) = np.flatnonzero(moves_of(tree, 0.0).prune == 3 * 9 + 2)
    moves = moves_of(tree, 0.0)
    moved = tree.copy()
    spr(moved, int(moves.prune[first]), int(moves.target[first]))
    after = moves_of(moved, 0.0)
    hopeful = Keys(Forest([moved])).hopeful([explored], after.prune, after.target)
    wanted = tree.copy()
    spr(wanted, int(moves.prune[second]), int(moves.target[second]))
    again = []
    for prune, target, is_new in zip(after.prune, after.target, hopeful, strict=True):
        end = moved.copy()
        spr(end, int(prune), int(target))
        if topology_key(end) == topology_key(wanted) and int(prune) == 3 * 9 + 2:
            again.append(bool(is_new))
    assert again == [False]


def test_prunes_are_exhausted_where_no_move_came_near() -> None:
    tree = some_tree()
    moves = moves_of(tree, -9.0)
    near = int(moves.prune[5])
    moves.lnl[5] = -1.0
    explored, lesson = learned(tree, moves, near=-5.0)
    prunes = Forest([tree]).inner
    assert lesson.prunes.size == prunes.size - 1
    assert Keys(Forest([tree])).worthwhile([explored]).tolist() == [near]
    assert Keys(Forest([renumbered(tree)])).worthwhile([explored]).size == 1
    assert Keys(Forest([some_tree(24, 9)])).worthwhile([explored]).size > prunes.size // 2


def test_prunes_are_idle_where_some_move_came_near_and_none_gained() -> None:
    tree = some_tree()
    moves = moves_of(tree, -9.0)
    near, gaining = (int(prune) for prune in np.unique(moves.prune)[[4, 9]])
    moves.lnl[np.flatnonzero(moves.prune == near)[0]] = -1.0
    moves.lnl[np.flatnonzero(moves.prune == gaining)[:2]] = -1.0, -0.5
    explored, lesson = learned(tree, moves, near=-5.0)
    assert (lesson.idle.size, lesson.prunes.size) == (1, Forest([tree]).inner.size - 2)
    for same in (tree, renumbered(tree)):
        assert Keys(Forest([same])).worthwhile([explored]).size == 2
    explored.add([lesson], idle=[lesson])
    assert Keys(Forest([tree])).worthwhile([explored]).tolist() == [gaining]
    explored.ended([1])
    explored.forget_ends(idle=False)
    assert explored.has_ended([1]) == [False]
    assert Keys(Forest([tree])).worthwhile([explored]).tolist() == [gaining]
    explored.forget_ends()
    assert Keys(Forest([tree])).worthwhile([explored]).tolist() == [near, gaining]


def test_what_changes_near_by_makes_a_prune_worth_another_look() -> None:
    tree = some_tree(60, 11)
    explored, _ = learned(tree, moves_of(tree, -9.0), near=-5.0)
    changed = tree.copy()
    edge = int(tree.inner_edges[20])
    nni(changed, edge, 0)
    again = Keys(Forest([changed])).worthwhile([explored])
    distance = edges_between(changed, edge)
    assert set(again.tolist()) >= {h for h in Forest([changed]).inner.tolist() if distance[h] == 0}
    assert all(distance[half] <= SURROUNDINGS + 1 for half in again.tolist())
    assert 0 < again.size < Forest([changed]).inner.size // 2


def edges_between(tree: Tree, edge: int) -> dict[int, int]:
    """From the node of a half-edge to the nearer end of an edge."""
    ends = [int(half) // 3 for half in tree.edge_halves[edge]]
    steps = dict.fromkeys(ends, 0)
    wave = ends
    while wave:
        halves = [half for node in wave for half in range(3 * node, 3 * node + 3)]
        beyond = [int(tree.twin[half]) // 3 for half in halves if tree.twin[half] >= 0]
        wave = [node for node in dict.fromkeys(beyond) if node not in steps]
        reached = max(steps.values()) + 1
        steps.update(dict.fromkeys(wave, reached))
    return {half: steps[half // 3] for half in range(tree.twin.size)}


def test_a_wider_phase_looks_again_and_a_narrower_one_does_not() -> None:
    some = Lesson(*(np.arange(size, dtype=np.uint64) for size in (4, 3, 2)))
    explored = Explored()

    def sizes() -> tuple[int, int, int]:
        return explored.moves.size, explored.prunes.size, explored.idle.size

    explored.add([some], idle=[some])
    explored.enter(PHASE)
    assert sizes() == (0, 0, 0)
    for narrower in (PhaseSettings(7, 30.0), PhaseSettings(7, 20.0)):
        explored.add([some], idle=[some])
        explored.enter(narrower)
        assert sizes() == (4, 3, 2)
    explored.enter(PHASE)
    assert sizes() == (0, 0, 0), "seen in narrower phases alone"


def test_trials_look_again_at_ends() -> None:
    explored = Explored()
    explored.enter(PHASE)
    explored.ended([7, 3])
    rows = np.arange(6, dtype=np.uint64).reshape(2, 3)
    explored.add([Lesson(np.empty(0, np.uint64), *rows)])
    assert explored.has_ended([3, 4, 7]) == [True, False, True]
    explored.enter(PhaseSettings(8, 30.0, trials=2))
    assert explored.has_ended([3, 4, 7]) == [False] * 3
    assert explored.prunes.size == 3


def test_what_is_known_rises_and_is_known_once() -> None:
    rng, explored, known = np.random.default_rng(5), Explored(), set[int]()
    for size in (0, 3, 40, 0, 200, 1):
        rows = rng.integers(0, 300, (2, size)).astype(np.uint64)
        explored.add([Lesson(own, own[:0], own) for own in rows], idle=[])
        known.update(rows.ravel().tolist())
        assert explored.moves.tolist() == sorted(known)
        assert not explored.idle.size


def test_it_forgets_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", 10)
    explored = Explored()
    for first in (0, 6, 12):
        explored.ended(range(first, first + 6))
        assert explored.has_ended([first, first + 5]) == [True, True]
    assert explored.ends.size <= 10


def test_a_copy_keeps_what_was_known() -> None:
    explored = Explored()
    explored.ended([1])
    kept = explored.copy()
    explored.ended([2])
    assert kept.has_ended([1, 2]) == [True, False]
