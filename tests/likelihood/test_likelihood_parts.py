"""Trees on several parts: each part alone and all together, and rows that trees share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.likelihood.likelihood import LOCAL_EPSILON, TreeLikelihood
from mltree.likelihood.site_rows import rows_of_neighbours, rows_of_trees
from mltree.models.eigen import ModelArrays
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.tree.moves import SprLengths, spr
from mltree.tree.topology import Tree
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

TAXA, TREES = 7, 3
RELATIVE = 1e-10

FUZZING = "MLTREE_FUZZ" in os.environ
"""Then the bounds are those of wild data, on which climbs end apart."""
"""lnL of the same patterns, summed part by part or by another engine."""

Open = Callable[..., Engine]
MakeLikelihood = Callable[..., TreeLikelihood]


@dataclass(frozen=True)
class Parted:
    """An alignment in parts, and trees that have a model for each of them."""

    problem: Problem
    trees: list[Tree]
    """Whose lengths are every part's own, f64[parts, E]."""
    cases: list[Case]
    weights: np.ndarray
    """f64[R, L], the first row the patterns' own."""

    @property
    def count(self) -> int:
        return len(self.problem.patterns.parts)

    @property
    def linked(self) -> list[Tree]:
        """The trees with the lengths of their first part for all."""
        return [self.of_part(tree, 0) for tree in self.trees]

    @staticmethod
    def of_part(tree: Tree, part: int) -> Tree:
        return Tree(tree.twin.copy(), tree.edge.copy(), tree.lengths[part].copy(), tree.n_tips)

    def opened(self, make: MakeLikelihood, open_: Open) -> TreeLikelihood:
        used = make(open_, self.problem)
        used.engine.load_weights(self.weights)
        return used

    def alone(self, reference: MakeLikelihood, part: int, weights: int) -> TreeLikelihood:
        """The reference with nothing but one part, under one row of weights."""
        patterns = self.problem.patterns
        own = patterns.parts[part]
        codes, row = patterns.codes[:, own], self.weights[weights, own]
        lone = replace(patterns, codes=codes, weights=row, ends=())
        return reference(replace(self.problem, patterns=lone))


@pytest.fixture
def parted(make_problem: Callable[..., Problem], case: int) -> Parted:
    """Random sizes, of one pattern too; each tree has models of its own and a row of weights."""
    rng = np.random.default_rng([11, case])
    sizes = rng.choice([1, 4, 15, 40], rng.integers(2, 4))
    problem = make_problem(TAXA, int(sizes.sum()), trees=TREES, seed=case)
    problem = replace(
        problem, patterns=replace(problem.patterns, ends=tuple(np.cumsum(sizes).tolist()))
    )
    models = make_problem(TAXA, 1, trees=TREES * len(sizes), seed=case + 100).models
    own = problem.patterns.weights
    drawn = rng.multinomial(own.sum(), own / own.sum(), TREES - 1).astype(np.float64)
    trees = []
    for tree in problem.trees:
        speeds = np.exp(rng.normal(size=(len(sizes), 1)))
        trees.append(Tree(tree.twin, tree.edge, speeds * tree.lengths, TAXA))
    cases = [Case(tuple(models[n::TREES]), weights=n) for n in range(TREES)]
    return Parted(problem, trees, cases, np.concatenate([own[None], drawn]))


def lone_case(case: Case, part: int) -> Case:
    return Case(case.models[part : part + 1])


@pytest.mark.cases(3, 60)
def test_every_part_is_told_its_own_lnl(
    open_engine: Open, likelihood: MakeLikelihood, reference: MakeLikelihood, parted: Parted
) -> None:
    """Trees under models and rows of weights of their own, with lengths for all parts or each."""
    used = parted.opened(likelihood, open_engine)
    for trees in (parted.linked, parted.trees):
        found = used.part_log_likelihoods(trees, parted.cases)
        expected = np.empty((TREES, parted.count))
        for n, tree in enumerate(trees):
            lengths = np.broadcast_to(tree.lengths, (parted.count, tree.n_edges))
            for part in range(parted.count):
                lone = Tree(tree.twin, tree.edge, lengths[part].copy(), TAXA)
                alone = parted.alone(reference, part, n)
                case = lone_case(parted.cases[n], part)
                expected[n, part] = alone.log_likelihoods([lone], [case])[0]
        np.testing.assert_allclose(found, expected, rtol=RELATIVE, atol=RELATIVE)
        together = used.log_likelihoods(trees, parted.cases)
        np.testing.assert_allclose(found.sum(axis=1), together, rtol=RELATIVE)
        for n in range(TREES):  # to the bit, whatever stands beside it
            alone_too = used.part_log_likelihoods(trees[n : n + 1], parted.cases[n : n + 1])
            np.testing.assert_array_equal(alone_too[0], found[n])


def test_a_lone_part_is_the_whole(
    open_engine: Open, likelihood: MakeLikelihood, make_problem: Callable[..., Problem]
) -> None:
    problem = make_problem(6, 30, trees=2)
    used = likelihood(open_engine, problem)
    of_parts = used.part_log_likelihoods(problem.trees, problem.cases)
    assert of_parts.shape == (2, 1)
    whole = used.log_likelihoods(problem.trees, problem.cases)
    np.testing.assert_allclose(of_parts[:, 0], whole, rtol=RELATIVE)


@pytest.mark.cases(2, 40)
def test_parts_with_lengths_of_their_own_are_as_each_alone(
    open_engine: Open, likelihood: MakeLikelihood, reference: MakeLikelihood, parted: Parted
) -> None:
    """Derivatives, insertions and optima of a tree under the second row of weights."""
    used = parted.opened(likelihood, open_engine)
    tree, case = parted.trees[1], parted.cases[1]
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(4))
    lnl, slope, curve = used.derivatives(tree, case)
    s0 = used.insertions([tree], [case], scan)
    smoothed = tree.copy()
    (top,) = used.smooth([smoothed], [case], 1e-4)
    lnls, tops, scores = [], [], np.zeros_like(s0)
    for part in range(parted.count):
        lone, own = parted.of_part(tree, part), lone_case(case, part)
        alone = parted.alone(reference, part, 1)
        own_lnl, own_slope, own_curve = alone.derivatives(lone, own)
        scale = np.sqrt(np.abs(own_curve)) + np.abs(own_slope) + 1
        np.testing.assert_allclose(slope[part] / scale, own_slope / scale, atol=1e-9)
        np.testing.assert_allclose(curve[part] / scale**2, own_curve / scale**2, atol=1e-9)
        there = Neighbourhood(lone)
        scores += alone.insertions([lone], [own], there.scan(there.extend(4)))
        lnls.append(own_lnl)
        tops.append(alone.smooth([lone], [own], 1e-4)[0])
    assert lnl == pytest.approx(sum(lnls), rel=RELATIVE)
    np.testing.assert_allclose(s0, scores, rtol=RELATIVE)
    assert top == pytest.approx(sum(tops), abs=0.1 if FUZZING else parted.count * 1e-3)
    assert top == pytest.approx(used.log_likelihoods([smoothed], [case])[0], rel=RELATIVE)


@pytest.mark.cases(2, 40)
def test_parts_with_lengths_of_their_own_are_refined_apart(
    open_engine: Open, likelihood: MakeLikelihood, reference: MakeLikelihood, parted: Parted
) -> None:
    """The lengths give the lnL, and no part ends below where it ends alone."""
    used = parted.opened(likelihood, open_engine)
    tree, case = parted.trees[1], parted.cases[1]
    found = Neighbourhood(tree)
    found.extend(4)
    picked = np.arange(0, found.size, 5, dtype=np.int32)
    joins = found.merged * np.linspace(0.5, 2.0, found.prunes.size)
    best, three = used.refine([tree], [case], found.scan(picked, joins))
    lnls = np.empty((parted.count, picked.size))
    for part in range(parted.count):
        lone, own = parted.of_part(tree, part), lone_case(case, part)
        alone = parted.alone(reference, part, 1)
        moved = [lone.copy() for _ in picked]
        for n, candidate in enumerate(picked):
            join = joins[part, found.number[candidate]]
            lengths = SprLengths(*three[part, n].tolist(), join)
            spr(moved[n], int(found.prune[candidate]), int(found.target[candidate]), lengths)
        lnls[part] = alone.log_likelihoods(moved, [own] * len(moved))
        there = Neighbourhood(lone)
        there.extend(4)
        own_best, _ = alone.refine([lone], [own], there.scan(picked, joins[part]))
        assert (lnls[part] > own_best - LOCAL_EPSILON).all()
    np.testing.assert_allclose(best, lnls.sum(axis=0), rtol=RELATIVE)


@pytest.mark.cases(2, 40)
def test_parts_with_lengths_of_their_own_are_joined_apart(
    open_engine: Open, likelihood: MakeLikelihood, reference: MakeLikelihood, parted: Parted
) -> None:
    """But a length that the data say nothing of: there rounding leads anywhere."""
    used = parted.opened(likelihood, open_engine)
    tree, case = parted.trees[1], parted.cases[1]
    prunes = Neighbourhood(tree).prunes
    joins = used.join_lengths([tree], [case], prunes)
    assert joins.shape == (parted.count, prunes.size)
    for part in range(parted.count):
        lone = parted.of_part(tree, part)
        expected = parted.alone(reference, part, 1).join_lengths(
            [lone], [lone_case(case, part)], prunes
        )
        assert np.isclose(joins[part], expected, rtol=0.1, atol=1e-4).mean() > (
            0.75 if FUZZING else 0.9
        )


@pytest.mark.parametrize("cut", [1, 17])
def test_an_alignment_cut_in_two_is_the_whole(
    cut: int, open_engine: Open, likelihood: MakeLikelihood, make_problem: Callable[..., Problem]
) -> None:
    """Both parts under the very same model, with the same lengths."""
    problem = make_problem(TAXA, 60, seed=cut)
    parts = replace(problem, patterns=replace(problem.patterns, ends=(cut, 60)))
    whole, halves = likelihood(open_engine, problem), likelihood(open_engine, parts)
    tree, case = problem.tree, problem.case
    both = Case(case.models * 2)
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(4))
    some = found.scan(np.arange(0, found.size, 9, dtype=np.int32))

    def everything(used: TreeLikelihood, under: Case) -> list[np.ndarray]:
        smoothed = tree.copy()
        return [
            used.log_likelihoods([tree], [under]),
            used.site_log_likelihoods(tree, under),
            *map(np.asarray, used.derivatives(tree, under)),
            used.insertions([tree], [under], scan),
            used.join_lengths([tree], [under], found.prunes),
            used.refine([tree], [under], some)[0],
            used.smooth([smoothed], [under], 1e-5),
            smoothed.lengths,
        ]

    for mine, theirs in zip(everything(halves, both), everything(whole, case), strict=True):
        scale = np.abs(theirs).max() + 1
        np.testing.assert_allclose(mine / scale, theirs / scale, rtol=0, atol=1e-8)


class Loaded:
    """Keeps book of the models that an engine is given."""

    def __init__(self, likelihood: TreeLikelihood) -> None:
        self.models: list[list[ModelArrays]] = []
        load = likelihood.engine.load_models

        def noted(models: list[ModelArrays]) -> None:
            self.models.append(list(models))
            load(models)

        likelihood.engine.load_models = noted  # type: ignore[method-assign]


@pytest.mark.cases(1, 10)
def test_trees_under_the_same_models_share_their_rows(
    open_engine: Open, likelihood: MakeLikelihood, parted: Parted
) -> None:
    used = parted.opened(likelihood, open_engine)
    loaded = Loaded(used)
    one, other, _ = parted.cases
    trees = [tree for tree in parted.trees for _ in range(2)]
    mixed = [one, other, one, one._replace(weights=2), other._replace(weights=0), one]
    lnls = used.part_log_likelihoods(trees, mixed)
    assert loaded.models == [[*one.models, *other.models]]
    used.smooth([tree.copy() for tree in trees], mixed, 1.0)
    used.log_likelihoods(trees[:2], mixed[:2])
    assert len(loaded.models) == 1
    for n, (tree, case) in enumerate(zip(trees, mixed, strict=True)):
        np.testing.assert_array_equal(used.part_log_likelihoods([tree], [case])[0], lnls[n])
    assert loaded.models[1:] == [list(case.models) for case in (one, other, one, other, one)]


@pytest.mark.cases(1, 10)
def test_a_part_or_a_row_beside_another_is_not_taken_for_it(
    open_engine: Open, likelihood: MakeLikelihood, reference: MakeLikelihood, parted: Parted
) -> None:
    """The same tree and models, on other patterns or under other weights: nothing is left over."""
    used = parted.opened(likelihood, open_engine)
    tree = parted.linked[0]
    models = parted.cases[0].models[:1]
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(3))
    seen = set()
    for first_part in (0, parted.count - 1, 0):
        for weights in range(TREES):
            case = Case(models, weights, first_part)
            scores = used.insertions([tree], [case], scan)
            alone = parted.alone(reference, first_part, weights)
            expected = alone.insertions([tree], [Case(models)], scan)
            np.testing.assert_allclose(scores, expected, rtol=RELATIVE, atol=RELATIVE)
            seen.add(float(scores[0]))
    assert len(seen) > TREES


@pytest.mark.cases(2, 40)
def test_every_part_has_its_columns_of_site_rows(
    open_engine: Open, likelihood: MakeLikelihood, reference: MakeLikelihood, parted: Parted
) -> None:
    """Of trees and of neighbours, whose branches every part optimises for itself if it has them."""
    used = parted.opened(likelihood, open_engine)
    weights, case, tree = parted.weights[0], parted.cases[0], parted.trees[0]
    rows = rows_of_trees(used, parted.trees, parted.cases, weights).sites()
    around = rows_of_neighbours(used, tree, case, weights, tree.inner_edges)
    sites = around.sites()
    np.testing.assert_allclose(sites @ weights, around.lnl, rtol=1e-9)
    for part, own in enumerate(parted.problem.patterns.parts):
        alone = parted.alone(reference, part, 0)
        lone, mine = parted.of_part(tree, part), weights[own]
        expected = rows_of_neighbours(
            alone, lone, lone_case(case, part), mine, lone.inner_edges
        ).lnl
        np.testing.assert_allclose(sites[:, own] @ mine, expected, atol=5e-3)
        for n, other in enumerate(parted.trees):
            lone = parted.of_part(other, part)
            one = alone.site_log_likelihoods(lone, lone_case(parted.cases[n], part))
            np.testing.assert_allclose(rows[n, own], one, rtol=1e-9)
