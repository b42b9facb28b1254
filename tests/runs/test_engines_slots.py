"""Trees on what replicates drew, in replicate slots: as under rows of weights over all patterns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from verifier import VerifiedEngine

from mltree.data.patterns import Patterns, drawn, empty_slots
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.runs.engines import ReplicateLikelihood
from mltree.supports.resampling import Resampling
from mltree.tree.topology import Tree
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

Open = Callable[..., Engine]
MakeLikelihood = Callable[..., TreeLikelihood]

BOUNDS = (1e-6, 100.0)
TAXA, SLOTS = 6, 3
RELATIVE = 1e-9
"""Between fp64 engines that sum in another order."""

CHUNK = 2
"""Blocks of a chunk: slots have several."""


@dataclass(frozen=True)
class Data:
    """An alignment, a tree and a model for each slot, and rows of weights."""

    problem: Problem
    rows: np.ndarray
    """f64[R, L]"""

    @property
    def patterns(self) -> Patterns:
        return self.problem.patterns

    @property
    def count(self) -> int:
        return len(self.patterns.parts)

    @property
    def sizes(self) -> list[int]:
        """Patterns of each part that a slot has room for."""
        return [int((self.rows[:, part] > 0).sum(axis=1).max()) for part in self.patterns.parts]

    def case(self, tree: int, slot: int) -> Case:
        models = self.problem.models[tree :: len(self.problem.trees)]
        return Case(tuple(models), first_part=slot * self.count)

    def opened(self, open_: Open, slots: int, more: int = 0) -> ReplicateLikelihood:
        """Empty slots, with room for more patterns than any row has."""
        sizes = [size + more for size in self.sizes]
        empty = empty_slots(self.patterns, sizes, slots)
        options = {"parted": True, "chunk_blocks": CHUNK}
        engine = VerifiedEngine(open_(empty, self.problem.categories, **options), TAXA)
        return ReplicateLikelihood(engine, BOUNDS, Columns.of([empty]))

    def load(self, used: ReplicateLikelihood, slot: int, row: int, more: int = 0) -> None:
        sizes = [size + more for size in self.sizes]
        used.load_patterns(slot * self.count, drawn(self.patterns, self.rows[row], sizes))


@pytest.fixture(params=[4, 20])
def data(request: pytest.FixtureRequest, make_problem: Callable[..., Problem], case: int) -> Data:
    """Random parts, of one pattern too, most patterns of one site."""
    rng = np.random.default_rng([13, case, request.param])
    sizes = rng.choice([1, 9, 30], rng.integers(1, 4))
    own = {"states": request.param, "seed": case}
    problem = make_problem(TAXA, int(sizes.sum()), trees=SLOTS, **own)
    ends = tuple(np.cumsum(sizes).tolist()) if len(sizes) > 1 else ()
    weights = rng.choice([1.0, 1.0, 1.0, 5.0], sizes.sum())
    models = make_problem(TAXA, 1, trees=SLOTS * len(sizes), **own | {"seed": case + 50}).models
    patterns = replace(problem.patterns, ends=ends, weights=weights)
    problem = replace(problem, patterns=patterns, models=models)
    return Data(problem, Resampling.of([patterns], case, "x").rows(range(4)))


def everything(
    used: TreeLikelihood, trees: Sequence[Tree], cases: Sequence[Case]
) -> list[np.ndarray]:
    """What a search asks for, of all trees side by side: lnLs, then lengths."""
    trees = [tree.copy() for tree in trees]
    around = Neighbourhood(trees)
    scan = around.scan(around.extend(2))
    scores = used.insertions(trees, cases, scan)
    lnl, lengths = used.refine(trees, cases, around.scan(np.arange(0, around.size, 8)))
    joins = used.join_lengths(trees, cases, around.prunes)
    parts = used.part_log_likelihoods(trees, cases)
    smoothed = used.smooth(trees, cases, 1e-3)
    every = np.concatenate([tree.lengths for tree in trees])
    return [parts, scores, lnl, smoothed, lengths, joins, every]


FUZZING = "MLTREE_FUZZ" in os.environ
"""Then the bounds are those of wild data, on which climbs end apart."""

SCORES, LNLS = 2, 4
"""Of what :func:`everything` finds: of lengths as they are, and with those of climbs."""


@pytest.mark.cases(2, 30)
def test_a_slot_is_as_a_row_of_weights(
    open_engine: Open, reference: MakeLikelihood, data: Data
) -> None:
    """Of trees side by side, a slot each; also once another replicate has come into one."""
    trees = data.problem.trees
    used, expected = data.opened(open_engine, SLOTS), reference(data.problem)
    expected.load_weights(data.rows)
    for slot in range(SLOTS):
        data.load(used, slot, slot)
    cases = [data.case(n, n) for n in range(SLOTS)]
    for rows in ([0, 1, 2], [0, 3, 2]):
        data.load(used, 1, rows[1])
        found = everything(used, trees, cases)
        under = [
            case._replace(weights=row, first_part=0) for case, row in zip(cases, rows, strict=True)
        ]
        wanted = everything(expected, trees, under)
        for own, other in zip(found[:SCORES], wanted[:SCORES], strict=True):
            np.testing.assert_allclose(own, other, rtol=RELATIVE, atol=RELATIVE)
        for own, other in zip(found[SCORES:LNLS], wanted[SCORES:LNLS], strict=True):
            np.testing.assert_allclose(own, other, rtol=RELATIVE, atol=0.1 if FUZZING else RELATIVE)
        # Where lengths tell little, climbs end on other tops.
        lengths, expected_lengths = (
            np.concatenate([own.ravel() for own in every[LNLS:]]) for every in (found, wanted)
        )
        assert np.isclose(lengths, expected_lengths, rtol=1e-3, atol=1e-5).mean() > (
            0.75 if FUZZING else 0.9999
        )


@pytest.mark.cases(2, 30)
def test_no_bit_depends_on_the_slots(open_device: Open, data: Data) -> None:
    """How many there are, which one it is, what stands in the others; how large a lone part is."""
    more = 9 if data.count == 1 else 0
    tree, lone = data.problem.tree, data.opened(open_device, 1)
    data.load(lone, 0, 0)
    expected = everything(lone, [tree], [data.case(0, 0)])
    used = data.opened(open_device, SLOTS, more)
    for slot, row in enumerate((1, 2, 0)):
        data.load(used, slot, row, more=more)
    found = everything(used, [tree], [data.case(0, 2)])
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)
    beside = everything(used, data.problem.trees[::-1], [data.case(n, n) for n in (2, 1, 0)])
    data.load(used, 0, 0, more=more)
    again = everything(used, data.problem.trees[::-1], [data.case(n, n) for n in (2, 1, 0)])
    np.testing.assert_array_equal(beside[0][:2], again[0][:2])  # of the slots that it is not in
    np.testing.assert_array_equal(again[0][2], expected[0][0])


@pytest.mark.cases(2, 10)
def test_patterns_bring_their_systems(
    open_engine: Open, reference: MakeLikelihood, make_problem: Callable[..., Problem], case: int
) -> None:
    """Those that have frequencies of their own (PMSF), in two slots."""
    problem = make_problem(TAXA, 40, states=20, trees=2, seed=case, own_frequencies=True)
    rows = Resampling.of([problem.patterns], case, "x").rows(range(3))
    data = Data(problem, rows)
    used, expected = data.opened(open_engine, 2), reference(problem)
    expected.load_weights(rows)
    for slot, row in ((0, 0), (1, 1), (0, 2)):
        data.load(used, slot, row)
    found = used.smooth(
        [tree.copy() for tree in problem.trees], [data.case(0, 0), data.case(1, 1)], 1e-3
    )
    under = [problem.cases[0]._replace(weights=2), problem.cases[1]._replace(weights=1)]
    wanted = expected.smooth([tree.copy() for tree in problem.trees], under, 1e-3)
    np.testing.assert_allclose(found, wanted, rtol=RELATIVE)


def test_parts_of_other_sizes_are_refused(
    open_engine: Open, make_problem: Callable[..., Problem]
) -> None:
    data = Data(problem := make_problem(TAXA, 40), problem.patterns.weights[None])
    used = data.opened(open_engine, 2)
    with pytest.raises(ValueError, match="parts of other sizes"):
        used.load_patterns(1, drawn(data.patterns, data.rows[0], [90]))


def test_weights_of_a_slot_are_known(
    open_engine: Open, make_problem: Callable[..., Problem]
) -> None:
    """Classes are weighed by them."""
    data = Data(problem := make_problem(TAXA, 30), problem.patterns.weights[None])
    used = data.opened(open_engine, 2)
    data.load(used, 1, 0)
    counts = used._counts(problem.tree, data.case(0, 1))
    assert not counts[:30].any()
    np.testing.assert_array_equal(counts[30:], data.rows[0])
