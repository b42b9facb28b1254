"""Choosing, applying and halving moves."""

from __future__ import annotations

import numpy as np

from mltree.tree.moves import spr
from mltree.tree.splits import robinson_foulds
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.spr import Neighbourhood, RescoredMoves, apply_moves, best_moves, better_half


def moves_of(prune: list[int], target: list[int], lnl: list[float]) -> RescoredMoves:
    return RescoredMoves(
        np.array(prune, dtype=np.int32),
        np.array(target, dtype=np.int32),
        np.array(lnl),
        np.full((len(prune), 4), 0.1),
    )


def all_moves(tree: Tree, seed: int = 1) -> RescoredMoves:
    found = Neighbourhood(tree)
    found.extend(25)
    lnl = np.random.default_rng(seed).normal(size=found.size)
    return RescoredMoves(found.prune, found.target, lnl, np.full((found.size, 4), 0.1))


def test_takes_the_best_target_of_every_prune_in_order_of_gain() -> None:
    moves = moves_of([5, 5, 7, 9, 9], [1, 2, 3, 4, 6], [-9.0, -7.0, -5.0, -9.96, -20.0])
    best = best_moves(moves, -10.0, 0.05)
    assert best.target.tolist() == [3, 2]
    assert best.lnl.tolist() == [-5.0, -7.0]


def test_the_better_half_comes_first_and_runs_out() -> None:
    moves = moves_of([1, 2, 3], [4, 5, 6], [3.0, 2.0, 1.0])
    assert better_half(moves).target.tolist() == [4]
    assert better_half(better_half(moves)).target.size == 0


def test_applied_moves_leave_a_valid_tree() -> None:
    tree = random_topology(30, np.random.default_rng(4))
    before = tree.copy()
    done = apply_moves(tree, best_moves(all_moves(tree), 0.0, 0.05))
    tree.validate()
    assert done.prune.size > 1
    assert robinson_foulds(tree, before) > 0


class WithinOneInterchange:
    """Allows trees at most one interchange away from the start."""

    def __init__(self, start: Tree) -> None:
        self.start = start.copy()

    def satisfied(self, tree: Tree) -> bool:
        return robinson_foulds(self.start, tree) <= 2


def test_moves_that_only_break_the_rule_together_are_left_out() -> None:
    tree = random_topology(16, np.random.default_rng(6))
    start = tree.copy()
    found = Neighbourhood(tree)
    found.extend(1)
    lnl = np.random.default_rng(7).random(found.size)
    moves = RescoredMoves(found.prune, found.target, lnl, np.full((found.size, 4), 0.1))
    free = apply_moves(start.copy(), best_moves(moves, 0.0, 0.0))
    assert free.prune.size > 1
    done = apply_moves(tree, best_moves(moves, 0.0, 0.0), WithinOneInterchange(start))
    tree.validate()
    assert done.prune.size >= 1
    assert robinson_foulds(tree, start) == 2


def test_a_lone_move_is_what_spr_does() -> None:
    tree = random_topology(12, np.random.default_rng(8))
    moves = all_moves(tree).at(slice(40, 41))
    expected = tree.copy()
    spr(expected, int(moves.prune[0]), int(moves.target[0]))
    apply_moves(tree, moves)
    assert robinson_foulds(tree, expected) == 0
