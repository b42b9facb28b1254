"""What must hold of a likelihood whoever computes it; every program is verified before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays
from mltree.program.cases import Case
from mltree.program.engine import Engine, Room
from mltree.system.errors import NumericalError
from mltree.tree.moves import SprLengths, nni, spr
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

RELATIVE = 1e-11
"""The same sum by another way: a few hundred roundings of fp64."""

EXAMPLES = settings(max_examples=8, derandomize=True)

Open = Callable[..., Engine]
MakeProblem = Callable[..., "Problem"]
MakeLikelihood = Callable[..., TreeLikelihood]


def renumbered(tree: Tree, edge: int) -> Tree:
    """The same tree, with the given edge numbered 0: where lnL is evaluated."""
    other = tree.copy()
    other.edge[tree.edge == edge] = 0
    other.edge[tree.edge == 0] = edge
    other.lengths[[0, edge]] = tree.lengths[[edge, 0]]
    return other


@EXAMPLES
@given(tips=st.integers(4, 12), invariant=st.sampled_from([0.0, 0.2]), seed=st.integers(0, 10**6))
def test_the_pulley_principle(
    open_engine: Open,
    make_problem: MakeProblem,
    likelihood: MakeLikelihood,
    tips: int,
    invariant: float,
    seed: int,
) -> None:
    """lnL is the same at every branch (Felsenstein 1981): the model is reversible."""
    problem = make_problem(tips, 40, seed=seed, alpha=0.6, invariant=invariant)
    trees = [renumbered(problem.tree, edge) for edge in range(problem.tree.n_edges)]
    engine = likelihood(open_engine, problem)
    lnl = engine.log_likelihoods(trees, [problem.case] * len(trees))
    np.testing.assert_allclose(lnl, lnl[0], rtol=RELATIVE)


@EXAMPLES
@given(tips=st.integers(4, 10), seed=st.integers(0, 10**6))
def test_derivatives_are_differences(
    open_engine: Open,
    make_problem: MakeProblem,
    likelihood: MakeLikelihood,
    tips: int,
    seed: int,
) -> None:
    problem = make_problem(tips, 40, seed=seed, alpha=0.6)
    tree, case, engine = problem.tree, problem.case, likelihood(open_engine, problem)
    lnl, slope, curve = engine.derivatives(tree, case)
    # Central differences: error h^2 f''' against eps lnL / h and eps lnL / h^2.
    steps = 1e-3 * np.maximum(tree.lengths, 1e-3)
    shifted = [tree.copy() for _ in range(2 * tree.n_edges)]
    for edge in range(tree.n_edges):
        shifted[2 * edge].lengths[edge] -= steps[edge]
        shifted[2 * edge + 1].lengths[edge] += steps[edge]
    lower, upper = engine.log_likelihoods(shifted, [case] * len(shifted)).reshape(-1, 2).T
    scale = np.sqrt(np.abs(curve)) + np.abs(slope) + 1
    np.testing.assert_allclose((upper - lower) / (2 * steps) / scale, slope / scale, atol=1e-4)
    second = (upper - 2 * lnl + lower) / steps**2
    noise = 64 * np.finfo(float).eps * abs(lnl) / steps**2
    assert np.all(np.abs(second - curve) < 1e-3 * scale**2 + noise)


@pytest.fixture(scope="module")
def problem(make_problem: MakeProblem) -> Problem:
    return make_problem(8, 40, alpha=0.6, seed=4)


@pytest.fixture(scope="module")
def found(problem: Problem) -> Neighbourhood:
    neighbourhood = Neighbourhood(problem.tree)
    neighbourhood.extend(6)
    return neighbourhood


def regrafted(
    tree: Tree, found: Neighbourhood, candidates: np.ndarray, lengths: np.ndarray | None = None
) -> list[Tree]:
    """Trees after moves, with f64[n, 4] proximal, distal, pendant, merged lengths if given."""
    trees = []
    for n, candidate in enumerate(candidates):
        trees.append(tree.copy())
        set_lengths = None if lengths is None else SprLengths(*lengths[n].tolist())
        spr(trees[-1], int(found.prune[candidate]), int(found.target[candidate]), set_lengths)
    return trees


def test_an_insertion_is_the_regrafted_tree(
    open_engine: Open, likelihood: MakeLikelihood, problem: Problem, found: Neighbourhood
) -> None:
    engine = likelihood(open_engine, problem)
    every = np.arange(found.size)
    s0 = engine.insertions([problem.tree], [problem.case], found.scan(every))
    trees = regrafted(problem.tree, found, every)
    lnl = engine.log_likelihoods(trees, [problem.case] * len(trees))
    np.testing.assert_allclose(s0, lnl, rtol=RELATIVE)


def test_refined_lengths_give_the_refined_lnl(
    open_engine: Open, likelihood: MakeLikelihood, problem: Problem, found: Neighbourhood
) -> None:
    engine = likelihood(open_engine, problem)
    trees, cases = [problem.tree], [problem.case]
    picked = np.arange(0, found.size, 3)
    joins = engine.join_lengths(trees, cases, found.prunes)
    scan = found.scan(picked, joins)
    s0 = engine.insertions(trees, cases, scan)
    lnl, three = engine.refine(trees, cases, scan)
    lengths = np.column_stack([three, joins[found.number[picked]]])
    after = engine.log_likelihoods(
        regrafted(problem.tree, found, picked, lengths), cases * len(picked)
    )
    np.testing.assert_allclose(lnl, after, rtol=RELATIVE)
    assert np.all(lnl >= s0 - RELATIVE * np.abs(s0))
    assert np.median(lnl - s0) > 0


def test_only_what_lies_below_its_floor_is_refined_roughly(
    open_engine: Open, likelihood: MakeLikelihood, problem: Problem, found: Neighbourhood
) -> None:
    """And in as many parts as there is room for: each output has a floor of its own."""
    engine = likelihood(open_engine, problem)
    arguments = ([problem.tree], [problem.case], found.scan(np.arange(0, found.size, 2)))
    lnl, lengths = engine.refine(*arguments)
    floors = np.where(np.arange(lnl.size) % 2, lnl - 1e-6, lnl.max() + 10.0)
    rough, rough_lengths = engine.refine(*arguments, floors)
    assert (rough <= lnl + 1e-3).all()
    assert (rough < lnl)[::2].any()
    np.testing.assert_array_equal(rough[1::2], lnl[1::2])
    np.testing.assert_array_equal(rough_lengths[1::2], lengths[1::2])


@pytest.mark.parametrize("room", [2, 7])
def test_refining_in_parts_changes_nothing(
    open_engine: Open,
    likelihood: MakeLikelihood,
    problem: Problem,
    found: Neighbourhood,
    room: int,
) -> None:
    scan = found.scan(np.arange(0, found.size, 2))
    most = np.bincount(scan.task_of_output).max()
    assert most > 2  # so that there is a task to cut
    arguments = ([problem.tree], [problem.case], scan)
    lnl, lengths = likelihood(open_engine, problem).refine(*arguments)
    engine = likelihood(open_engine, problem)
    slots = 3 * (problem.tree.n_tips - 2) + room
    engine.engine.room = Room(slots, slots, slots)  # type: ignore[misc]
    engine.engine.verifier.max_slots = slots  # type: ignore[attr-defined]
    got_lnl, got_lengths = engine.refine(*arguments)
    np.testing.assert_array_equal(got_lnl, lnl)
    np.testing.assert_array_equal(got_lengths, lengths)


def test_the_join_length_is_the_best(
    open_engine: Open, likelihood: MakeLikelihood, problem: Problem, found: Neighbourhood
) -> None:
    """Around the optimum, a pruned tree's lnL (a subtree of gaps, far away) is lower."""
    engine = likelihood(open_engine, problem)
    trees, cases = [problem.tree], [problem.case]
    joins = engine.join_lengths(trees, cases, found.prunes)
    assert np.all((joins >= 1e-6) & (joins <= 100.0))
    # A pendant branch without end makes the subtree's place irrelevant: what remains is the
    # lnL of the rest, whose only free length is the join.
    tips = [n for n, h in enumerate(found.prunes) if problem.tree.twin[h] < 3 * 8]
    for n in tips:
        lnl = []
        for factor in (1.0, 0.9, 1.1):
            tree = problem.tree.copy()
            left, right = tree.edge[list(tree.siblings(int(found.prunes[n])))]
            tree.lengths[[left, right]] = np.clip(joins[n] * factor, 1e-6, 100.0) / 2
            tree.lengths[tree.edge[found.prunes[n]]] = 1e4
            lnl.append(engine.log_likelihoods([tree], cases)[0])
        assert lnl[0] >= max(lnl[1:]) - 1e-3


@pytest.mark.parametrize("start", ["usual", "bounds", "short", "long"])
def test_smoothing_ends_no_worse_on_a_stationary_point(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood, start: str
) -> None:
    problem = make_problem(10, 300, alpha=0.8, seed=5)
    tree, cases = problem.tree.copy(), [problem.case]
    rng = np.random.default_rng(6)
    lengths = {
        "usual": tree.lengths,
        "bounds": rng.choice([1e-6, 100.0], tree.n_edges),
        "short": np.full(tree.n_edges, 1e-6),
        "long": np.full(tree.n_edges, 100.0),
    }
    tree.lengths[:] = lengths[start]
    engine = likelihood(open_engine, problem)
    before = engine.log_likelihoods([tree], cases)[0]
    lnl = engine.smooth([tree], cases, 1e-9)[0]
    assert lnl >= before
    assert engine.log_likelihoods([tree], cases)[0] == pytest.approx(lnl, rel=RELATIVE)
    assert np.all((tree.lengths >= 1e-6) & (tree.lengths <= 100.0))
    if start in {"usual", "short"}:
        _, slope, curve = engine.derivatives(tree, problem.case)
        free = (tree.lengths > 1.1e-6) & (tree.lengths < 99.0)
        # What one more Newton step on a branch could gain: slope^2 / 2 |curve|.
        assert np.all(slope[free] ** 2 < 2e-3 * np.abs(curve[free]))
        assert np.all(slope[tree.lengths <= 1.1e-6] < 1.0)


def test_one_pass_of_smoothing_returns_to_the_start(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    problem = make_problem(8, 40, alpha=0.6)
    tree = problem.tree.copy()
    engine = likelihood(open_engine, problem)
    lnl = engine.smooth([tree], [problem.case], 1e-9, max_passes=1)[0]
    np.testing.assert_array_equal(tree.lengths, problem.tree.lengths)
    assert lnl == pytest.approx(engine.log_likelihoods([tree], [problem.case])[0], rel=RELATIVE)


def test_trees_side_by_side_are_as_each_alone(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    problem = make_problem(8, 40, trees=3, alpha=0.6)
    trees, cases = problem.trees, problem.cases
    engine = likelihood(open_engine, problem)
    together = engine.log_likelihoods(trees, cases)
    alone = [engine.log_likelihoods([t], [c])[0] for t, c in zip(trees, cases, strict=True)]
    np.testing.assert_array_equal(together, alone)
    smoothed, single = [t.copy() for t in trees], [t.copy() for t in trees]
    lnl = engine.smooth(smoothed, cases, 1e-3)
    for n, tree in enumerate(single):
        assert engine.smooth([tree], [cases[n]], 1e-3)[0] == lnl[n]
        np.testing.assert_array_equal(tree.lengths, smoothed[n].lengths)
    slots = 3 * (problem.tree.n_tips - 2)
    engine.engine.room = Room(slots, slots, slots)  # type: ignore[misc]
    np.testing.assert_array_equal(engine.log_likelihoods(trees, cases), together)


def test_a_tree_that_moved_gets_programs_of_its_own(
    open_native: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    """Programs are kept from call to call; a tree changed in place is another topology."""
    problem = make_problem(8, 40, alpha=0.6)
    kept, tree = likelihood(open_native, problem), problem.tree.copy()
    for _ in range(2):
        fresh = likelihood(open_native, problem)
        lnls = [engine.log_likelihoods([tree], [problem.case])[0] for engine in (kept, fresh)]
        slopes = [engine.derivatives(tree, problem.case)[1] for engine in (kept, fresh)]
        assert lnls[0] == lnls[1]
        np.testing.assert_array_equal(*slopes)
        nni(tree, int(tree.inner_edges[0]), 1)


def identity_model(states: int, categories: int) -> ModelArrays:
    """A model under which nothing ever changes: Q = 0, every P the identity."""
    eye, share = np.eye(states), np.full(states, 1 / states)
    weights = np.full(categories, 1 / categories)
    still, direct = np.zeros((states, states)), np.ones(())
    return ModelArrays(
        np.zeros(states), eye, eye, share, still, direct, np.ones(categories), weights
    )


def test_constant_one(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    """With P = I and nothing but gaps every CLA is 1: lnL and all derivatives are exactly 0."""
    problem = make_problem(9, 40)
    problem.patterns.codes[:] = problem.patterns.alphabet.gap_code
    tree, case = problem.tree, Case((identity_model(4, 4),))
    engine = likelihood(open_engine, problem)
    assert engine.log_likelihoods([tree], [case])[0] == 0.0
    assert not engine.site_log_likelihoods(tree, case).any()
    lnl, slope, curve = engine.derivatives(tree, case)
    assert lnl == 0.0
    assert not slope.any()
    assert not curve.any()
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(5))
    assert not engine.insertions([tree], [case], scan).any()
    assert not engine.refine([tree], [case], scan)[0].any()
    assert engine.smooth([tree], [case], 1e-3)[0] == 0.0


def test_gaps_weigh_nothing(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    """Under any model, a sequence of gaps contributes a factor of 1 wherever it stands."""
    problem = make_problem(7, 40, alpha=0.6)
    problem.patterns.codes[:] = problem.patterns.alphabet.gap_code
    problem.patterns.codes[2] = 1
    engine = likelihood(open_engine, problem)
    lnl = engine.log_likelihoods([problem.tree], [problem.case])[0]
    share = np.log(problem.model.frequencies[0])
    assert lnl == pytest.approx(problem.patterns.weights.sum() * share, rel=RELATIVE)


@pytest.mark.parametrize("length", [0.05, 2.0, 100.0])
def test_two_thousand_taxa(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood, length: float
) -> None:
    """CLAs far below fp64's range: the pulley principle, and the limit of endless branches."""
    problem = make_problem(2100, 3, alpha=50.0)
    tree = random_topology(2100, np.random.default_rng(8), length)
    engine = likelihood(open_engine, problem)
    trees = [tree, renumbered(tree, 1234), renumbered(tree, 4000)]
    lnl = engine.log_likelihoods(trees, [problem.case] * 3)
    assert np.all(np.isfinite(lnl))
    np.testing.assert_allclose(lnl, lnl[0], rtol=1e-10)
    if length == 100.0:
        table, codes = problem.patterns.alphabet.tip_table, problem.patterns.codes
        alone = np.log(table @ problem.model.frequencies)[codes].sum(axis=0)
        assert lnl[0] == pytest.approx(problem.patterns.weights @ alone, rel=1e-9)


def test_a_category_that_cannot_be_does_not_set_the_scale(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    """A rate-0 category of likelihood 0 and few scalings, beside a fast one with many.

    Every sequence shows A but the one at the branch where lnL is taken: only there does the
    unchanging category find out that it is impossible.
    """
    problem = make_problem(1500, 3, categories=2, alpha=1.0, invariant=0.1)
    problem.patterns.codes[:] = 1
    tree = random_topology(1500, np.random.default_rng(9), 50.0)
    half = int(np.flatnonzero(tree.edge == 0)[0])
    tip = next(n for n in range(1500) if n != half // 3)
    problem.patterns.codes[tip] = 2
    tree = renumbered(tree, int(tree.edge[3 * tip]))
    lnl = likelihood(open_engine, problem).log_likelihoods([tree], [problem.case])[0]
    f = np.log(problem.model.frequencies)
    expected = problem.patterns.weights.sum() * (1499 * f[0] + f[1] + np.log(0.9))
    assert lnl == pytest.approx(expected, rel=1e-9)


def test_a_likelihood_that_is_no_number_is_an_error(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    problem = make_problem(6, 8, alpha=0.6)
    engine = likelihood(open_engine, problem)
    tree = problem.tree.copy()
    tree.lengths[3] = np.nan
    for ask in (
        lambda: engine.log_likelihoods([tree], [problem.case]),
        lambda: engine.derivatives(tree, problem.case),
        lambda: engine.smooth([tree], [problem.case], 1e-3),
    ):
        with pytest.raises(NumericalError):
            ask()
    # The engine is as good as before.
    assert np.isfinite(engine.log_likelihoods([problem.tree], [problem.case])[0])


def test_impossible_data_is_an_error(
    open_engine: Open, make_problem: MakeProblem, likelihood: MakeLikelihood
) -> None:
    """Two different characters joined by branches of length 0 have probability 0."""
    problem = make_problem(4, 8, alpha=0.6)
    problem.patterns.codes[0], problem.patterns.codes[1:] = 1, 2
    tree = problem.tree.copy()
    tree.lengths[:] = 0.0
    with pytest.raises(NumericalError):
        likelihood(open_engine, problem).log_likelihoods([tree], [problem.case])
