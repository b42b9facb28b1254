"""Work in batches: all of it, in order, and in smaller ones where memory is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.likelihood import TreeLikelihood, in_batches, rows_in_batches
from mltree.likelihood.requests import perform
from mltree.program.engine import Engine, Result, Room
from mltree.program.program import Program
from mltree.system.errors import DeviceError, DeviceMemoryError
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.spr import Neighbourhood, spr_round

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)


class Narrow:
    """Work on at most so many items at once, which is found out by failing."""

    def __init__(self, room: int, least: int) -> None:
        self.most, self.least = room, least
        self.failures = 0

    def at_once(self, _: int) -> int:
        return self.most

    def work(self, batch: slice) -> list[int]:
        items = list(range(batch.start, batch.stop))
        if len(items) > self.least:
            self.failures += 1
            self.most -= 1
            raise DeviceMemoryError("no room") if self.most else DeviceError("none at all")
        return items


@pytest.mark.parametrize("room", range(1, 9))
@pytest.mark.parametrize("least", range(1, 4))
def test_every_item_is_done_once_and_in_order(room: int, least: int) -> None:
    narrow = Narrow(room, least)
    done = in_batches(7, narrow.at_once, narrow.work)
    assert [item for part in done for item in part] == list(range(7))
    assert narrow.failures == max(0, room - least)


def test_no_room_for_a_single_item_is_an_error() -> None:
    narrow = Narrow(3, 0)
    with pytest.raises(DeviceError, match="none at all"):
        in_batches(7, narrow.at_once, narrow.work)


def everything(likelihood: TreeLikelihood, problem: Problem) -> list[np.ndarray]:
    """LnLs, smoothed lengths and a round's trees of several trees."""
    trees = [tree.copy() for tree in problem.trees]
    results = [
        likelihood.log_likelihoods(trees, problem.cases),
        likelihood.smooth(trees, [problem.case] * len(trees), 0.1),
    ]
    candidates = [
        CandidateTree(tree, float(lnl), "start")
        for tree, lnl in zip(trees, results[-1], strict=True)
    ]
    phase, settings = PhaseSettings(8, 60.0, fully_smoothed=3), RoundSettings(keep=4, window=60.0)
    for _ in range(2):
        outcomes = perform(
            likelihood, spr_round(candidates, [problem.case] * len(candidates), phase, settings)
        )
        results += [np.array(outcomes), np.array([one.lnl for one in candidates])]
    assert any(outcome.moves for outcome in outcomes)
    return results + [array for tree in trees for array in (tree.twin, tree.edge, tree.lengths)]


def assert_same_bits(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    return make_problem(9, 300, trees=5, alpha=0.7)


def of_room(engine: Engine, room: Room) -> TreeLikelihood:
    engine.room = room  # type: ignore[misc]
    return TreeLikelihood(engine, BOUNDS)


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
def test_no_bit_depends_on_the_batches(
    open_native: Callable[..., Engine], problem: Problem, at_once: int
) -> None:
    every = open_native(problem.patterns, problem.categories)
    batched = open_native(problem.patterns, problem.categories)
    own = at_once * 3 * (problem.tree.n_tips - 2)
    expected = everything(of_room(every, Room(1 << 20, 1 << 20, 1 << 20)), problem)
    got = everything(of_room(batched, Room(own + at_once, own, at_once)), problem)
    assert_same_bits(got, expected)


@pytest.mark.parametrize("most", [1, 7, 50])
def test_insertions_are_scored_as_many_at_a_time_as_there_are_cells(
    open_native: Callable[..., Engine],
    problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    found = Neighbourhood(problem.trees)
    found.extend(4)
    arguments = problem.trees, problem.cases, found.scan(np.arange(found.size))
    engine = open_native(problem.patterns, problem.categories)
    used = TreeLikelihood(engine, BOUNDS)
    whole = used.insertions(*arguments)
    engine.room = engine.room._replace(scores=most)  # type: ignore[misc]
    cells, run = [], used.run

    def counted(program: Program, *numbers: np.ndarray) -> Result:
        cells.append(program.cells)
        return run(program, *numbers)

    monkeypatch.setattr(used, "run", counted)
    np.testing.assert_array_equal(used.insertions(*arguments), whole)
    assert max(cells) == most
    assert len(cells) >= whole.size // most


def trees_at_once(room: Room, tree: Tree) -> int:
    return room.trees_at_once(3 * (tree.n_tips - 2), beside=1)


def test_how_many_at_once(problem: Problem) -> None:
    slots = 3 * (problem.tree.n_tips - 2)
    assert trees_at_once(Room(most=10 * slots, trees=4 * slots, near=9), problem.tree) == 4
    assert trees_at_once(Room(most=4 * slots, trees=4 * slots, near=9), problem.tree) == 3
    assert trees_at_once(Room(most=slots, trees=1, near=1), problem.tree) == 1
    assert Room(most=50, trees=9, near=20).near_at_once(40) == 10
    assert Room(most=90, trees=9, near=20).near_at_once(40) == 20
    assert Room(most=30, trees=9, near=20).near_at_once(40) == 1


@pytest.mark.parametrize("least", [1, 3, 7, 20])
def test_rows_of_batches_stand_in_one_array(least: int) -> None:
    rows = np.random.default_rng(5).random((7, 4))
    narrow = Narrow(least, least)

    def work(batch: slice) -> np.ndarray:
        return rows[narrow.work(batch)]

    np.testing.assert_array_equal(rows_in_batches(7, narrow.at_once, work), rows)
