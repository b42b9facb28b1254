"""What a search remembers of prunes, moves and topologies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mltree.fit.settings import PhaseSettings
from mltree.tree.moves import nni, spr
from mltree.tree.splits import topology_key
from mltree.tree.topology import Forest, Tree, random_topology
from mltree.treesearch import move_cache as module
from mltree.treesearch.move_cache import SURROUNDINGS, CacheUpdate, MoveCache, MoveKeys
from mltree.treesearch.spr import Neighbourhood, RescoredMoves

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


def moves_of(tree: Tree, lnl: float) -> RescoredMoves:
    """All moves up to three edges far, with one lnL."""
    found = Neighbourhood(tree)
    found.extend(3)
    size = found.size
    return RescoredMoves(found.prune, found.target, np.full(size, lnl), np.full((size, 4), 0.1))


def learned(tree: Tree, moves: RescoredMoves, near: float) -> tuple[MoveCache, CacheUpdate]:
    keys, cache = MoveKeys(Forest([tree])), MoveCache()
    floors = np.array([near]), np.array([-0.5])
    (update,) = keys.updates(keys.open_prunes([cache]), [moves], *floors)
    cache.add([update])
    return cache, update


def test_moves_far_below_are_rejected_in_any_numbering() -> None:
    tree = some_tree()
    moves = moves_of(tree, -9.0)
    good = moves.prune % 7 == 0
    moves.lnl[good] = -1.0
    cache, _ = learned(tree, moves, near=-5.0)
    for same in (tree, renumbered(tree)):
        every = moves_of(same, 0.0)
        keys = MoveKeys(Forest([some_tree(24, 8), same]))
        other = MoveCache()
        halves = np.int32(same.twin.size)
        open_moves = keys.open_moves([other, cache], every.prune + halves, every.target + halves)
        assert open_moves.sum() == good.sum()
        assert keys.open_moves([cache, other], every.prune + halves, every.target + halves).all()
    assert (MoveKeys(Forest([tree])).open_moves([cache], moves.prune, moves.target) == good).all()


def test_moves_to_one_topology_of_one_subtree_have_one_key() -> None:
    """Wherever the subtree was before; and no other move has that key."""
    tree = some_tree(9)
    cache, _ = learned(tree, moves_of(tree, -9.0), near=-5.0)
    assert cache.moves.size == len(moves_of(tree, 0.0).prune)
    (first, second, *_) = np.flatnonzero(moves_of(tree, 0.0).prune == 3 * 9 + 2)
    moves = moves_of(tree, 0.0)
    moved = tree.copy()
    spr(moved, int(moves.prune[first]), int(moves.target[first]))
    after = moves_of(moved, 0.0)
    open_moves = MoveKeys(Forest([moved])).open_moves([cache], after.prune, after.target)
    wanted = tree.copy()
    spr(wanted, int(moves.prune[second]), int(moves.target[second]))
    again = []
    for prune, target, is_new in zip(after.prune, after.target, open_moves, strict=True):
        end = moved.copy()
        spr(end, int(prune), int(target))
        if topology_key(end) == topology_key(wanted) and int(prune) == 3 * 9 + 2:
            again.append(bool(is_new))
    assert again == [False]


def test_prunes_are_rejected_where_no_move_came_near() -> None:
    tree = some_tree()
    moves = moves_of(tree, -9.0)
    near = int(moves.prune[5])
    moves.lnl[5] = -1.0
    cache, update = learned(tree, moves, near=-5.0)
    prunes = Forest([tree]).inner
    assert update.prunes.size == prunes.size - 1
    assert MoveKeys(Forest([tree])).open_prunes([cache]).tolist() == [near]
    assert MoveKeys(Forest([renumbered(tree)])).open_prunes([cache]).size == 1
    assert MoveKeys(Forest([some_tree(24, 9)])).open_prunes([cache]).size > prunes.size // 2


def test_prunes_are_stalled_where_some_move_came_near_and_none_gained() -> None:
    tree = some_tree()
    moves = moves_of(tree, -9.0)
    near, gaining = (int(prune) for prune in np.unique(moves.prune)[[4, 9]])
    moves.lnl[np.flatnonzero(moves.prune == near)[0]] = -1.0
    moves.lnl[np.flatnonzero(moves.prune == gaining)[:2]] = -1.0, -0.5
    cache, update = learned(tree, moves, near=-5.0)
    assert (update.stalled.size, update.prunes.size) == (1, Forest([tree]).inner.size - 2)
    for same in (tree, renumbered(tree)):
        assert MoveKeys(Forest([same])).open_prunes([cache]).size == 2
    cache.add([update], stalled=[update])
    assert MoveKeys(Forest([tree])).open_prunes([cache]).tolist() == [gaining]
    cache.add_converged([1])
    cache.forget_converged(stalled=False)
    assert cache.has_converged([1]) == [False]
    assert MoveKeys(Forest([tree])).open_prunes([cache]).tolist() == [gaining]
    cache.forget_converged()
    assert MoveKeys(Forest([tree])).open_prunes([cache]).tolist() == [near, gaining]


def test_what_changes_near_by_makes_a_prune_worth_another_look() -> None:
    tree = some_tree(60, 11)
    cache, _ = learned(tree, moves_of(tree, -9.0), near=-5.0)
    changed = tree.copy()
    edge = int(tree.inner_edges[20])
    nni(changed, edge, 0)
    again = MoveKeys(Forest([changed])).open_prunes([cache])
    distance = edges_between(changed, edge)
    assert set(again.tolist()) >= {h for h in Forest([changed]).inner.tolist() if distance[h] == 0}
    assert all(distance[half] <= SURROUNDINGS + 1 for half in again.tolist())
    assert 0 < again.size < Forest([changed]).inner.size // 2


def edges_between(tree: Tree, edge: int) -> dict[int, int]:
    """From the node of a half-edge to the nearer end of an edge."""
    converged = [int(half) // 3 for half in tree.edge_halves[edge]]
    steps = dict.fromkeys(converged, 0)
    wave = converged
    while wave:
        halves = [half for node in wave for half in range(3 * node, 3 * node + 3)]
        beyond = [int(tree.twin[half]) // 3 for half in halves if tree.twin[half] >= 0]
        wave = [node for node in dict.fromkeys(beyond) if node not in steps]
        reached = max(steps.values()) + 1
        steps.update(dict.fromkeys(wave, reached))
    return {half: steps[half // 3] for half in range(tree.twin.size)}


def test_a_wider_phase_looks_again_and_a_narrower_one_does_not() -> None:
    some = CacheUpdate(*(np.arange(size, dtype=np.uint64) for size in (4, 3, 2)))
    cache = MoveCache()

    def sizes() -> tuple[int, int, int]:
        return cache.moves.size, cache.prunes.size, cache.stalled.size

    cache.add([some], stalled=[some])
    cache.enter(PHASE)
    assert sizes() == (0, 0, 0)
    for narrower in (PhaseSettings(7, 30.0), PhaseSettings(7, 20.0)):
        cache.add([some], stalled=[some])
        cache.enter(narrower)
        assert sizes() == (4, 3, 2)
    cache.enter(PHASE)
    assert sizes() == (0, 0, 0), "seen in narrower phases alone"


def test_trials_look_again_at_ends() -> None:
    cache = MoveCache()
    cache.enter(PHASE)
    cache.add_converged([7, 3])
    rows = np.arange(6, dtype=np.uint64).reshape(2, 3)
    cache.add([CacheUpdate(np.empty(0, np.uint64), *rows)])
    assert cache.has_converged([3, 4, 7]) == [True, False, True]
    cache.enter(PhaseSettings(8, 30.0, fully_smoothed=2))
    assert cache.has_converged([3, 4, 7]) == [False] * 3
    assert cache.prunes.size == 3


def test_what_is_known_rises_and_is_known_once() -> None:
    rng, cache, known = np.random.default_rng(5), MoveCache(), set[int]()
    for size in (0, 3, 40, 0, 200, 1):
        rows = rng.integers(0, 300, (2, size)).astype(np.uint64)
        cache.add([CacheUpdate(own, own[:0], own) for own in rows], stalled=[])
        known.update(rows.ravel().tolist())
        assert cache.moves.tolist() == sorted(known)
        assert not cache.stalled.size


def test_it_forgets_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", 10)
    cache = MoveCache()
    for first in (0, 6, 12):
        cache.add_converged(range(first, first + 6))
        assert cache.has_converged([first, first + 5]) == [True, True]
    assert cache.converged.size <= 10


def test_a_copy_keeps_what_was_known() -> None:
    cache = MoveCache()
    cache.add_converged([1])
    kept = replace(cache)
    cache.add_converged([2])
    assert kept.has_converged([1, 2]) == [True, False]
