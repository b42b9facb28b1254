"""Trees of any taxa side by side, each on parts of its own: every answer is the lone tree's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from verifier import VerifiedEngine

from mltree.data.patterns import Patterns
from mltree.fit.settings import PhaseSettings, RoundSettings
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import random_reversible
from mltree.program.cases import Case
from mltree.program.engine import Engine, ReferenceEngine, Room
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.move_cache import MoveCache
from mltree.treesearch.spr import MoveRules, ScoredMoves, ScoreMoves

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)
CATEGORIES = 4
RELATIVE = 1e-9
PHASE, ROUNDS = PhaseSettings(3, np.inf), RoundSettings(keep=99, window=np.inf)
"""All moves as far: which are best of equals, rounding tells."""


@dataclass(frozen=True)
class GeneTrees:
    """Trees of different taxa on the parts of one table of tips."""

    patterns: Patterns
    trees: list[Tree]
    cases: list[Case]

    def likelihood(self, open_: Callable[..., Engine]) -> TreeLikelihood:
        engine = open_(self.patterns, CATEGORIES)
        return TreeLikelihood(VerifiedEngine(engine, self.patterns.n_tips), BOUNDS)

    def alone(self, number: int) -> tuple[TreeLikelihood, Case]:
        """The reference with nothing but the parts and the taxa of one tree."""
        case, tips = self.cases[number], self.trees[number].n_tips
        ranges = self.patterns.parts[case.first_part :][: len(case.models)]
        span = slice(ranges[0].start, ranges[-1].stop)
        own = replace(
            self.patterns,
            codes=self.patterns.codes[:tips, span],
            weights=self.patterns.weights[span],
            ends=tuple(part.stop - span.start for part in ranges),
        )
        engine = ReferenceEngine(own, CATEGORIES, BOUNDS)
        return TreeLikelihood(engine, BOUNDS), Case(case.models)

    def copies(self) -> list[Tree]:
        return [tree.copy() for tree in self.trees]


@pytest.fixture
def gene_trees(make_problem: Callable[..., Problem], case: int) -> GeneTrees:
    """Loci of one part each, or of two with lengths of their own; some with several trees.

    Their order is random, and on the same parts too there may be trees of fewer taxa.
    """
    rng = np.random.default_rng([11, case])
    parts_each = 1 + case % 2
    loci = int(rng.integers(2, 5))
    sizes = rng.choice([1, 5, 30, 60, 130], loci * parts_each)
    problem = make_problem(9, int(sizes.sum()), seed=case)
    patterns = replace(problem.patterns, ends=tuple(np.cumsum(sizes).tolist()))
    trees, cases = [], []
    for locus in rng.permutation(np.repeat(np.arange(loci), rng.integers(1, 3, loci))):
        tree = random_topology(int(rng.integers(4, 10)), rng)
        lengths = rng.exponential(0.2, (parts_each, tree.n_edges)) + 1e-4
        tree.lengths = lengths if parts_each > 1 else lengths[0]
        models = [random_reversible(4, rng, categories=CATEGORIES) for _ in range(parts_each)]
        trees.append(tree)
        cases.append(Case(tuple(models), first_part=int(locus) * parts_each))
    return GeneTrees(patterns, trees, cases)


def close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=RELATIVE, atol=RELATIVE)


@pytest.mark.cases(4, 100)
def test_log_likelihoods(open_engine: Callable[..., Engine], gene_trees: GeneTrees) -> None:
    used, (trees, cases) = gene_trees.likelihood(open_engine), (gene_trees.trees, gene_trees.cases)
    together = used.part_log_likelihoods(trees, cases)
    close(used.log_likelihoods(trees, cases), together.sum(axis=1))
    for n, tree in enumerate(trees):
        lone, own = gene_trees.alone(n)
        close(together[n], lone.part_log_likelihoods([tree], [own])[0])
        np.testing.assert_array_equal(together[n], used.part_log_likelihoods([tree], [cases[n]])[0])


@pytest.mark.cases(4, 60)
def test_smoothing(open_engine: Callable[..., Engine], gene_trees: GeneTrees) -> None:
    used, cases = gene_trees.likelihood(open_engine), gene_trees.cases
    smoothed = gene_trees.copies()
    lnl = used.smooth(smoothed, cases, 1e-3)
    for n, tree in enumerate(gene_trees.copies()):
        lone, own = gene_trees.alone(n)
        again = tree.copy()
        assert used.smooth([again], [cases[n]], 1e-3)[0] == lnl[n]
        np.testing.assert_array_equal(again.lengths, smoothed[n].lengths)
        # Sums in another order may end it a pass sooner or later.
        assert lnl[n] == pytest.approx(lone.smooth([tree], [own], 1e-3)[0], rel=1e-8, abs=1e-3)


def scored(used: TreeLikelihood, trees: list[Tree], cases: list[Case]) -> list[ScoredMoves]:
    known = [MoveCache() for _ in trees]
    rules = MoveRules(PHASE, ROUNDS)
    return ScoreMoves(trees, cases, [-1e6] * len(trees), known, rules).answer(used)


@pytest.mark.cases(4, 60)
def test_moves(open_device: Callable[..., Engine], gene_trees: GeneTrees) -> None:
    """In one launch, in small ones too, and after a smoothing that left its CLAs."""
    used, (trees, cases) = gene_trees.likelihood(open_device), (gene_trees.trees, gene_trees.cases)
    used.hold(trees, cases)
    together = scored(used, trees, cases)
    room = used.engine.room
    used.engine.room = Room(room.most, 20, 3)  # type: ignore[misc]
    narrow = scored(used, trees, cases)
    used.engine.room = room  # type: ignore[misc]
    for n, tree in enumerate(trees):
        lone, own = gene_trees.alone(n)
        (expected,) = scored(lone, [tree], [own])
        (single,) = scored(used, [tree], [cases[n]])
        for got in (together[n], narrow[n]):
            assert got.insertions == expected.insertions
            for mine, alone in zip(got.moves, single.moves, strict=True):
                np.testing.assert_array_equal(mine, alone)
        np.testing.assert_array_equal(together[n].moves.target, expected.moves.target)
        parts = gene_trees.patterns.parts[cases[n].first_part :][: len(cases[n].models)]
        if all(
            part.stop - part.start >= 30 for part in parts
        ):  # with fewer patterns optima are flat, and rounding leads elsewhere
            apart = np.abs(together[n].moves.lnl - expected.moves.lnl)
            assert np.sum(apart > 1e-7) <= 2, np.sort(apart)[-5:]


def test_trees_that_share_no_part_share_slots(
    open_native: Callable[..., Engine], make_problem: Callable[..., Problem]
) -> None:
    """Sixty loci take the slots of one, and no more near vectors at a time than fit."""
    rng = np.random.default_rng(3)
    count = 60
    problem = make_problem(9, 5 * count)
    patterns = replace(problem.patterns, ends=tuple(range(5, 5 * count + 1, 5)))
    trees = [random_topology(int(rng.integers(4, 10)), rng) for _ in range(count)]
    models = [random_reversible(4, rng, categories=CATEGORIES) for _ in trees]
    cases = [Case((model,), first_part=n) for n, model in enumerate(models)]
    used = GeneTrees(patterns, trees, cases).likelihood(open_native)
    slots = []
    run = used.engine.run

    def counted(program, *others):  # type: ignore[no-untyped-def]
        slots.append(program.slots)
        return run(program, *others)

    used.engine.run = counted  # type: ignore[method-assign]
    used.engine.room = Room(100, 21, 5)  # type: ignore[misc]
    assert used.trees_at_once(trees, cases) == count
    used.smooth([tree.copy() for tree in trees], cases, 0.1)
    assert len(slots) == 1
    scored(used, trees, cases)
    assert max(slots) <= 100
    assert len(slots) < 60


def test_trees_of_many_parts_share_batches(
    open_native: Callable[..., Engine], make_problem: Callable[..., Problem]
) -> None:
    """Of three trees on each part one fits at a time: three batches of all parts, the same bits."""
    rng = np.random.default_rng(4)
    count, each = 10, 3
    problem = make_problem(9, 5 * count)
    patterns = replace(problem.patterns, ends=tuple(range(5, 5 * count + 1, 5)))
    trees = [random_topology(9, rng) for _ in range(count * each)]
    cases = [
        Case((random_reversible(4, rng, categories=CATEGORIES),), first_part=n // each)
        for n in range(count * each)
    ]
    used = GeneTrees(patterns, trees, cases).likelihood(open_native)
    together = [tree.copy() for tree in trees]
    expected = used.smooth(together, cases, 0.1)
    batches = []
    run = used.engine.run

    def counted(program, *others):  # type: ignore[no-untyped-def]
        batches.append(program)
        return run(program, *others)

    used.engine.run = counted  # type: ignore[method-assign]
    used.engine.room = Room(21, 21, 5)  # type: ignore[misc]
    apart = [tree.copy() for tree in trees]
    np.testing.assert_array_equal(used.smooth(apart, cases, 0.1), expected)
    for mine, theirs in zip(apart, together, strict=True):
        np.testing.assert_array_equal(mine.lengths, theirs.lengths)
    assert len(batches) == each
