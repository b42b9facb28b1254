"""Parts of several state counts under one tree say what they say one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.joint import JointEngine
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program import builders, planner
from mltree.program.cases import Case, Cases
from mltree.program.contract import Control
from mltree.program.engine import NO_CONTROL, Engine, ReferenceEngine
from mltree.program.ops.edges import EvaluateSites
from mltree.program.ops.operation import CASE
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)
TAXA = 7
SIZES = ((4, (20, 9)), (2, (30,)))
"""States, and patterns of the parts that have them."""


@pytest.fixture
def problems(make_problem: Callable[..., Problem]) -> list[Problem]:
    """The patterns of each state count, with a model for each part."""
    found = []
    for states, sizes in SIZES:
        problem = make_problem(TAXA, sum(sizes), states=states, trees=len(sizes))
        ends = tuple(np.cumsum(sizes).tolist())
        found.append(replace(problem, patterns=replace(problem.patterns, ends=ends)))
    return found


def joint(problems: list[Problem], open_: Callable[..., Engine]) -> JointEngine:
    engines = [open_(p.patterns, p.categories) for p in problems]
    states, widths = zip(
        *((p.model.n_states, p.patterns.n_patterns) for p in problems), strict=True
    )
    engine = JointEngine(engines, states, widths, BOUNDS)
    engine.load_models([model for problem in problems for model in problem.models])
    return engine


def open_parted(open_native: Callable[..., Engine]) -> Callable[..., Engine]:
    return lambda patterns, categories: open_native(patterns, categories, parted=True)


def open_reference(patterns: object, categories: int) -> Engine:
    return ReferenceEngine(patterns, categories, BOUNDS)  # type: ignore[arg-type]


def alone(problems: list[Problem], part: int) -> Engine:
    """The reference with one part only."""
    for problem in problems:
        ranges = problem.patterns.parts
        if part < len(ranges):
            own = replace(
                problem.patterns,
                codes=problem.patterns.codes[:, ranges[part]],
                weights=problem.patterns.weights[ranges[part]],
                ends=(),
            )
            engine = ReferenceEngine(own, problem.categories, BOUNDS)
            engine.load_models([problem.models[part]])
            return engine
        part -= len(ranges)
    raise AssertionError(part)


def test_parts_of_several_state_counts_add_up(
    problems: list[Problem], open_native: Callable[..., Engine]
) -> None:
    tree = problems[0].tree
    engines = [joint(problems, open_reference), joint(problems, open_parted(open_native))]
    derivatives = builders.derivatives([tree])
    expected = sum(
        alone(problems, part).run(derivatives, tree.lengths, NO_CONTROL).sums for part in range(3)
    )
    cases = Cases.alike(1, 3)
    for engine in engines:
        assert engine.parts == 3
        found = engine.run(builders.derivatives([tree], cases), tree.lengths, NO_CONTROL)
        np.testing.assert_allclose(found.sums, expected, rtol=1e-9, atol=1e-6)
        walk = builders.walk([tree], TAXA, EvaluateSites, cases)
        lnl = engine.run(walk, tree.lengths, NO_CONTROL).sums
        weights = np.concatenate([problem.patterns.weights for problem in problems])
        np.testing.assert_allclose(engine.site_log_likelihoods()[0] @ weights, lnl[0], rtol=1e-9)
        rell = engine.run(builders.rell(1, 1, 3), np.zeros(0), NO_CONTROL)
        np.testing.assert_allclose(rell.sums, lnl, rtol=1e-9)


def test_a_part_of_one_state_count_leaves_the_others_alone(
    problems: list[Problem], open_native: Callable[..., Engine]
) -> None:
    tree = problems[0].tree
    engine = joint(problems, open_parted(open_native))
    for part in range(3):
        case = Cases(np.array([(part, 1, 0, 0)], CASE))
        found = engine.run(builders.derivatives([tree], case), tree.lengths, NO_CONTROL)
        lone = alone(problems, part).run(builders.derivatives([tree]), tree.lengths, NO_CONTROL)
        np.testing.assert_allclose(found.sums, lone.sums, rtol=1e-9, atol=1e-8)


def test_smoothing_and_insertions_see_all_parts(
    problems: list[Problem], open_native: Callable[..., Engine]
) -> None:
    tree, cases = problems[0].tree, Cases.alike(1, 3)
    results = []
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(3))
    for engine in (joint(problems, open_reference), joint(problems, open_parted(open_native))):
        control = planner.control_records(1, 1e-6, 60)
        smoothed = engine.run(builders.smoothing([tree], 60, cases), tree.lengths, control)
        engine.run(builders.update([tree], cases), tree.lengths, NO_CONTROL)
        program, lengths = builders.scores([tree], scan, cases)
        scored = engine.run(program, lengths, NO_CONTROL).sums
        results.append((smoothed.control[0, Control.BEST], smoothed.lengths, scored))
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-9)
    np.testing.assert_allclose(results[1][2], results[0][2], rtol=1e-9)
    best = results[0][1]
    slopes = sum(
        alone(problems, part).run(builders.derivatives([tree]), best, NO_CONTROL).sums[1::2]
        for part in range(3)
    )
    free = (best > 2 * BOUNDS[0]) & (best < BOUNDS[1] / 2)
    assert np.abs(slopes[free]).max() < 0.1  # type: ignore[index]


@pytest.mark.parametrize("order", [(2,), (2, 0), (1, 2)])
def test_models_come_for_the_parts_that_are_asked_for(
    problems: list[Problem], open_native: Callable[..., Engine], order: tuple[int, ...]
) -> None:
    """Of whichever state counts, the first too."""
    tree = problems[0].tree
    models = [model for problem in problems for model in problem.models]
    states, widths = zip(
        *((p.model.n_states, p.patterns.n_patterns) for p in problems), strict=True
    )
    engines = [open_parted(open_native)(p.patterns, p.categories) for p in problems]
    used = TreeLikelihood(JointEngine(engines, states, widths, BOUNDS), BOUNDS)
    cases = [Case((models[part],), first_part=part) for part in order]
    found = used.log_likelihoods([tree] * len(order), cases)
    expected = [
        alone(problems, part).run(builders.traversal([tree]), tree.lengths, NO_CONTROL).sums[0]
        for part in order
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
