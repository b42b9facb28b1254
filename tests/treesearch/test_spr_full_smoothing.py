"""Fully smoothed candidates, by a likelihood with given answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.fit.settings import RoundSettings
from mltree.likelihood.requests import perform
from mltree.program.cases import Case
from mltree.tree.moves import SprLengths, spr
from mltree.tree.splits import same_topology, splits, topology_key
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.spr import Neighbourhood, RescoredMoves, fully_smoothed_moves, rescore

if TYPE_CHECKING:
    from simulated import Simulated

SETTINGS = RoundSettings(smoothing_margin=2.0, min_gain=0.05)

BEFORE = -100.0
"""lnL of the tree that finds no move."""

UNDER = Case(())
"""The oracle knows no models."""


class Oracle:
    """Remembers the trees that it smooths, and gives each the next lnL."""

    def __init__(self, lnls: Sequence[float] = ()) -> None:
        self.lnls = list(lnls)
        self.trees: list[Tree] = []

    def smooth(
        self, trees: Sequence[Tree], cases: Sequence[Case], epsilon: float, *, floors: np.ndarray
    ) -> np.ndarray:
        assert len(cases) == len(trees)
        np.testing.assert_array_equal(floors, BEFORE + SETTINGS.min_gain)
        self.trees += trees
        missing = len(self.trees) - len(self.lnls)
        every = [*self.lnls, *[BEFORE - 1.0] * missing]
        return np.array(every[: len(self.trees)][-len(trees) :])


def candidate(seed: int = 1) -> CandidateTree:
    return CandidateTree(random_topology(10, np.random.default_rng(seed)), BEFORE, "user")


def moves_of(tree: Tree, lnl: Callable[[int], np.ndarray], depth: int = 2) -> RescoredMoves:
    found = Neighbourhood(tree)
    found.extend(depth)
    size = found.size
    return RescoredMoves(found.prune, found.target, lnl(size), np.full((size, 4), 0.1))


def distinct_near(tree: Tree, moves: RescoredMoves) -> list[int]:
    """Keys of the topologies that near misses lead to: the best target of each prune."""
    keys = {}
    order = np.argsort(-moves.lnl, kind="stable")
    taken: set[int] = set()
    for n in order.tolist():
        if moves.prune[n] not in taken and moves.lnl[n] >= BEFORE - SETTINGS.smoothing_margin:
            taken.add(int(moves.prune[n]))
            moved = tree.copy()
            spr(moved, int(moves.prune[n]), int(moves.target[n]))
            keys.setdefault(topology_key(moved), n)
    return list(keys)


def smoothed_of(
    oracle: Oracle, own: CandidateTree, moves: RescoredMoves, count: int
) -> RescoredMoves:
    (found,) = perform(oracle, fully_smoothed_moves([own], [UNDER], [moves], count, SETTINGS))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_the_nearest_misses_are_smoothed_once_each(count: int) -> None:
    own, rng = candidate(), np.random.default_rng(2)
    moves = moves_of(own.tree, lambda size: BEFORE - rng.uniform(0.0, 8.0, size))
    oracle = Oracle()
    assert smoothed_of(oracle, own, moves, count).prune.size == 0
    expected = distinct_near(own.tree, moves)
    assert len(expected) > 5
    assert list(map(topology_key, oracle.trees)) == expected[:count]


FREE = 1e-4
"""Longest branch that says nothing about the order of its neighbours."""


def shape(tree: Tree) -> frozenset[bytes]:
    """The splits of all longer branches."""
    return frozenset(row.tobytes() for row in splits(tree)[tree.lengths > FREE])


@pytest.mark.cases(3, 60)
def test_the_order_of_branches_without_length_is_not_smoothed(case: int) -> None:
    """Half of the inner branches have none, and so have many that the moves make."""
    own, rng = candidate(case), np.random.default_rng(case)
    inner = own.tree.inner_edges
    own.tree.lengths[rng.choice(inner, inner.size // 2, replace=False)] = 1e-6
    moves = moves_of(own.tree, lambda size: BEFORE - rng.uniform(0.0, 2.0, size))
    moves.lengths[rng.random(moves.prune.size) < 0.7, 0] = 1e-6
    expected = []
    best: dict[int, int] = {}
    for n in np.argsort(-moves.lnl, kind="stable").tolist():
        best.setdefault(int(moves.prune[n]), n)
    for prune, n in best.items():
        moved = own.tree.copy()
        spr(moved, prune, int(moves.target[n]), SprLengths(*moves.lengths[n]))
        expected.append(shape(moved))
    distinct = [found for found in dict.fromkeys(expected) if found != shape(own.tree)]
    oracle = Oracle()
    perform(oracle, fully_smoothed_moves([own], [UNDER], [moves], 1000, SETTINGS, FREE))  # type: ignore[arg-type]
    assert [shape(tree) for tree in oracle.trees] == distinct
    assert 5 < len(distinct) < len(expected)


def test_of_those_that_are_redeemed_the_best_is_taken_alone() -> None:
    own, rng = candidate(), np.random.default_rng(3)
    moves = moves_of(own.tree, lambda size: BEFORE - rng.uniform(0.0, 2.0, size))
    oracle = Oracle([BEFORE + 0.3, BEFORE - 5.0, BEFORE + 2.0, BEFORE + 1.0])
    found = smoothed_of(oracle, own, moves, 4)
    assert found.lnl.tolist() == [BEFORE + 2.0]
    moved = own.tree.copy()
    spr(moved, int(found.prune[0]), int(found.target[0]))
    assert same_topology(moved, oracle.trees[2])


@pytest.mark.parametrize(("gain", "taken"), [(0.04, 0), (0.06, 1)])
def test_a_gain_too_small_is_none(gain: float, taken: int) -> None:
    own = candidate()
    moves = moves_of(own.tree, lambda size: np.full(size, BEFORE - 1.0))
    assert smoothed_of(Oracle([BEFORE + gain]), own, moves, 3).prune.size == taken


def test_far_misses_are_not_tried() -> None:
    own, oracle = candidate(), Oracle()
    moves = moves_of(own.tree, lambda size: np.full(size, BEFORE - 2.1))
    assert smoothed_of(oracle, own, moves, 3).prune.size == 0
    assert oracle.trees == []


def test_every_tree_has_candidates_of_its_own() -> None:
    """Two trees side by side, with nothing near for a third."""
    every = [candidate(1), candidate(2), candidate(3)]
    depths = (BEFORE - 1.0, BEFORE - 9.0, BEFORE - 1.0)
    moves = [
        moves_of(own.tree, lambda size, lnl=lnl: np.full(size, lnl))  # type: ignore[misc]
        for own, lnl in zip(every, depths, strict=True)
    ]
    oracle = Oracle([BEFORE, BEFORE + 1.0, BEFORE + 4.0, BEFORE + 3.0])
    found = perform(oracle, fully_smoothed_moves(every, [UNDER] * 3, moves, 2, SETTINGS))  # type: ignore[arg-type]
    assert [part.lnl.tolist() for part in found] == [[BEFORE + 1.0], [], [BEFORE + 4.0]]


@pytest.mark.cases(2, 40)
def test_what_reaches_its_floor_is_not_given_up(
    case: int, make_case: Callable[..., Simulated]
) -> None:
    """Near misses of a tree at its maximum, with floors just below what each of them reaches.

    Promises say little of lengths that hang together: of 40 sets two give up a tenth, wrongly.
    """
    data = make_case(9 + case % 12, 40 + 10 * (case % 8), case)
    used, tree, cases = data.likelihood, data.tree.copy(), [data.under]
    (lnl,) = used.smooth([tree], cases, 1e-4)
    found = Neighbourhood(tree)
    found.extend(3)
    (moves,) = rescore(used, cases, found, np.arange(found.size, dtype=np.int32))
    trees = []
    for n in np.flatnonzero(moves.lnl > lnl - RoundSettings().smoothing_margin):
        trees.append(tree.copy())
        spr(trees[-1], int(moves.prune[n]), int(moves.target[n]), SprLengths(*moves.lengths[n]))
    assert trees

    def smoothed(floors: np.ndarray | None = None) -> np.ndarray:
        copies = [one.copy() for one in trees]
        return used.smooth(copies, cases * len(trees), 0.01, floors=floors)

    reached = smoothed()
    assert np.mean(smoothed(reached - 0.05) == reached) >= (1.0 if case < 10 else 0.85)
    assert np.sum(smoothed(reached + 1e4)) < np.sum(reached) - 0.05
