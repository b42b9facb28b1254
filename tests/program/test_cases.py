"""Cases: parts, lengths, rows of weights, mixtures and loci in one launch.

What a launch says of a case is what a lone engine says that has nothing but the case's parts; and
every device says what the reference does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from verifier import VerifiedEngine

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.program import builders, contract, planner
from mltree.program.cases import Cases
from mltree.program.engine import NO_CONTROL, Engine, ReferenceEngine
from mltree.program.ops.edges import EvaluateSites
from mltree.program.ops.operation import CASE
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)
CATEGORIES = 4
RELATIVE = 1e-9

EPSILON = 1e-4
"""lnL: of smoothings, which other sums may lead to other lengths."""
TAXA = 7


@dataclass(frozen=True)
class Parts:
    """An alignment in parts, and a model for each part of each of two trees."""

    patterns: Patterns
    trees: list[Tree]
    models: list[list[ModelArrays]]
    weights: np.ndarray
    """f64[R, L], the first row the patterns' own."""

    @property
    def count(self) -> int:
        return len(self.patterns.parts)

    def engine(self, open_: Callable[..., Engine] | None = None) -> Engine:
        lone = ReferenceEngine(self.patterns, CATEGORIES, BOUNDS)
        inner = open_(self.patterns, CATEGORIES) if open_ else lone
        engine = VerifiedEngine(inner, self.patterns.n_tips)
        engine.load_models([model for of_tree in self.models for model in of_tree])
        engine.load_weights(self.weights)
        return engine

    def alone(self, part: int, tree: int, weights: int = 0) -> Engine:
        """The reference with nothing but one part."""
        own = self.patterns.parts[part]
        patterns = replace(
            self.patterns,
            codes=self.patterns.codes[:, own],
            weights=self.weights[weights, own],
            ends=(),
        )
        engine = ReferenceEngine(patterns, CATEGORIES, BOUNDS)
        engine.load_models([self.models[tree][part]])
        return engine


@pytest.fixture
def parts(make_problem: Callable[..., Problem], case: int) -> Parts:
    """Random sizes, of one pattern too; rows of weights with zeros."""
    rng = np.random.default_rng([7, case])
    sizes = rng.choice([1, 3, 8, 20, 70], rng.integers(2, 6))
    problem = make_problem(TAXA, int(sizes.sum()), trees=2, seed=case)
    scales = np.exp(rng.normal(size=(2, len(sizes))))
    others = make_problem(TAXA, 1, trees=2 * len(sizes), seed=case + 100).models
    models = [
        [scaled(others[2 * part + tree], scales[tree, part]) for part in range(len(sizes))]
        for tree in range(2)
    ]
    patterns = replace(problem.patterns, ends=tuple(np.cumsum(sizes).tolist()))
    own = patterns.weights
    drawn = rng.multinomial(own.sum(), own / own.sum(), 3).astype(np.float64)
    return Parts(patterns, problem.trees, models, np.concatenate([own[None], drawn]))


def scaled(model: ModelArrays, factor: float) -> ModelArrays:
    """The model of a part whose branches are so many times as long."""
    return replace(model, rates=model.rates * factor)


def run(engine: Engine, program: Any, lengths: np.ndarray, control: np.ndarray = NO_CONTROL) -> Any:
    return engine.run(program, lengths, control)


def lengths_of(trees: list[Tree]) -> np.ndarray:
    return np.concatenate([tree.lengths for tree in trees])


def close(got: np.ndarray, expected: np.ndarray) -> None:
    scale = np.abs(expected).max() + 1
    np.testing.assert_allclose(got, expected, rtol=RELATIVE, atol=RELATIVE * scale)


@pytest.mark.cases(20, 2000)
def test_what_is_before_on_the_same_parts(case: int) -> None:
    """Of things tree by tree, and in any order."""
    rng = np.random.default_rng(case)
    trees, count = rng.integers(1, 12), rng.integers(0, 30)
    records = np.zeros(trees, CASE)
    records["parts"], records["first_part"] = 1, rng.integers(0, 4, trees)
    number, size = rng.integers(0, trees, count), rng.integers(0, 5, count)
    number = np.sort(number) if case % 2 else number
    passed = dict.fromkeys(range(4), 0)
    expected = []
    for part, own in zip(records["first_part"][number].tolist(), size.tolist(), strict=True):
        expected.append(passed[part])
        passed[part] += own
    found = Cases(records, False).before(number.astype(np.int32), size.astype(np.int32))
    assert found.tolist() == expected


@pytest.mark.cases(4, 60)
def test_linked_parts_add_up(open_engine: Callable[..., Engine], parts: Parts) -> None:
    engine, trees = parts.engine(open_engine), parts.trees
    cases = Cases.alike(2, parts.count)
    found = run(engine, builders.derivatives(trees, cases), lengths_of(trees)).sums
    expected = np.zeros_like(found)
    for part in range(parts.count):
        for tree in range(2):
            alone = run(
                parts.alone(part, tree), builders.derivatives([trees[tree]]), trees[tree].lengths
            ).sums
            edges = 2 * trees[tree].n_edges
            expected[tree] += alone[0]
            expected[2 + tree * edges : 2 + (tree + 1) * edges] += alone[1:]
    close(found, expected)
    for program in (
        builders.traversal(trees, cases=cases),
        builders.walk(trees, TAXA, cases=cases),
        builders.walk(trees, 2, cases=cases),
    ):
        close(run(engine, program, lengths_of(trees)).sums, expected[:2])


@pytest.mark.cases(3, 30)
def test_insertions_and_their_optima(open_engine: Callable[..., Engine], parts: Parts) -> None:
    engine, slow, trees = parts.engine(open_engine), parts.engine(), parts.trees
    cases = Cases.alike(2, parts.count)
    found = Neighbourhood(trees[0])
    scan = found.scan(found.extend(3))
    base = 2 * planner.slots_of(trees[0])
    for each in (slow, engine):
        run(each, builders.update(trees, cases), lengths_of(trees))
    scored = [run(each, *builders.scores(trees, scan, cases)).sums for each in (slow, engine)]
    close(scored[1], scored[0])
    some = found.scan(np.arange(0, found.size, 7))
    results = []
    for each in (slow, engine):
        run(each, *builders.near_vectors(trees, some, base, cases))
        control = planner.control_records(some.outputs, 1e-3, 8)
        results.append(run(each, *builders.triplets(trees, some, base, 8, cases), control))
    close(results[1].control[:, 1], results[0].control[:, 1])
    np.testing.assert_allclose(results[1].lengths, results[0].lengths, rtol=1e-6, atol=1e-9)


@pytest.mark.cases(3, 30)
def test_unlinked_lengths_are_smoothed_apart(
    open_engine: Callable[..., Engine], parts: Parts
) -> None:
    """Every part of a tree ends where it ends alone."""
    engine, count = parts.engine(open_engine), parts.count
    rng = np.random.default_rng(count)
    own = [
        Tree(t.twin, t.edge, t.lengths * np.exp(rng.normal(size=(count, 1))), t.n_tips)
        for t in parts.trees
    ]
    cases = Cases.alike(2, count, unlinked=True)
    start = np.concatenate([tree.lengths for tree in own], axis=1)
    control = planner.control_records(2 * count, EPSILON, 20)
    result = run(engine, builders.smoothing(own, 20, cases), start.ravel(), control)
    best = result.control[:, contract.Control.BEST].reshape(count, 2)
    lengths = result.lengths.reshape(count, 2, -1)
    for part in range(count):
        for n, tree in enumerate(own):
            alone = parts.alone(part, n)
            program = builders.smoothing([tree], 20)
            control = planner.control_records(1, EPSILON, 20)
            expected = run(alone, program, tree.lengths[part], control)
            (alone_best,) = expected.control[:, contract.Control.BEST]
            assert best[part, n] == pytest.approx(alone_best, abs=EPSILON)
            assert lengths[part, n].min() >= BOUNDS[0]


@pytest.mark.cases(3, 30)
def test_rows_of_weights(open_engine: Callable[..., Engine], parts: Parts) -> None:
    """Replicates side by side: each is its tree under its own row."""
    engine, tree = parts.engine(open_engine), parts.trees[0]
    rows = len(parts.weights)
    records = Cases.alike(rows, parts.count).records.copy()
    records["model"], records["weights"] = 0, np.arange(rows)
    cases = Cases(records)
    found = run(engine, builders.derivatives([tree] * rows, cases), np.tile(tree.lengths, rows))
    expected = [
        sum(
            run(parts.alone(part, 0, row), builders.traversal([tree]), tree.lengths).sums[0]
            for part in range(parts.count)
        )
        for row in range(rows)
    ]
    close(found.sums[:rows], np.array(expected))
    alone = []
    for row in range(rows):
        lone = Cases(records[row : row + 1])
        alone.append(run(engine, builders.derivatives([tree], lone), tree.lengths).sums)
    edges = 2 * tree.n_edges
    for row in range(rows):  # to the bit, whatever stands beside it
        assert found.sums[row] == alone[row][0]
        of_row = slice(rows + row * edges, rows + (row + 1) * edges)
        np.testing.assert_array_equal(found.sums[of_row], alone[row][1:])


@pytest.mark.cases(3, 30)
def test_site_values_stay_and_are_weighted(
    open_engine: Callable[..., Engine], parts: Parts
) -> None:
    engine, trees = parts.engine(open_engine), parts.trees
    cases = Cases.alike(2, parts.count)
    walk = builders.walk(trees, TAXA, EvaluateSites, cases)
    lnl = run(engine, walk, lengths_of(trees)).sums
    sites = engine.site_log_likelihoods(2)
    close((sites * parts.weights[0]).sum(axis=1), lnl)
    rell = builders.rell(2, len(parts.weights), parts.count)
    found = run(engine, rell, np.zeros(0)).sums.reshape(2, -1)
    close(found, sites @ parts.weights.T)
    np.testing.assert_array_equal(engine.site_log_likelihoods(2), sites)
    one = builders.rell(1, 1, parts.count, first_weights=2)
    close(run(engine, one, np.zeros(0)).sums, found[0, 2:3])


@pytest.mark.cases(3, 30)
def test_loci_of_other_taxa(
    open_engine: Callable[..., Engine], make_problem: Callable[..., Problem], case: int
) -> None:
    """Gene trees on their own patterns, together and alone, to the bit."""
    rng = np.random.default_rng([9, case])
    sizes = rng.choice([1, 5, 40, 130], 4)
    problem = make_problem(TAXA, int(sizes.sum()), seed=case)
    models = make_problem(TAXA, 1, trees=len(sizes), seed=case + 50).models
    patterns = replace(problem.patterns, ends=tuple(np.cumsum(sizes).tolist()))
    trees = [random_topology(TAXA, rng) for _ in sizes]
    for tree in trees:
        tree.lengths[:] = rng.exponential(0.2, tree.n_edges) + 1e-6
    loci = Parts(patterns, trees, [[model] for model in models], patterns.weights[None])
    engine, slow = loci.engine(open_engine), loci.engine()
    records = np.zeros(len(sizes), CASE)
    records["first_part"], records["parts"] = np.arange(len(sizes)), 1
    cases = Cases(records)  # the model of part q is row q
    control = planner.control_records(len(trees), EPSILON, 12)
    smoothing = builders.smoothing(trees, 12, cases)
    results = [run(each, smoothing, lengths_of(trees), control) for each in (slow, engine)]
    best = [result.control[:, contract.Control.BEST] for result in results]
    np.testing.assert_allclose(best[1], best[0], atol=EPSILON)
    assert smoothing.slots == planner.slots_of(trees[0])  # which all of them share
    walked = run(engine, builders.walk(trees, 2, cases=cases), results[1].lengths).sums
    close(walked, best[1])
    for n, tree in enumerate(trees):
        alone = run(
            engine, builders.smoothing([tree], 12, Cases(records[n : n + 1])), tree.lengths,
            control[:1],
        )  # fmt: skip
        assert alone.control[0, contract.Control.BEST] == best[1][n]


@pytest.mark.parametrize(("classes", "rates"), [(3, 2), (2, 20)])
def test_a_mixture_is_the_sum_of_its_classes(
    open_engine: Callable[..., Engine], make_problem: Callable[..., Problem], classes: int,
    rates: int,
) -> None:  # fmt: skip
    """Every class has a matrix, and its share of every pattern's likelihood; more of them than a
    work-group holds too."""
    rng = np.random.default_rng(classes)
    problem = make_problem(TAXA, 40)
    bases = make_problem(TAXA, 1, trees=classes, seed=3, categories=rates).models
    weights = rng.dirichlet(np.ones(classes * rates))
    speed = rng.exponential(size=classes * rates)
    tables = zip(*(list(vars(base).values())[:-2] for base in bases), strict=True)
    model = ModelArrays(*map(np.stack, tables), speed, weights)
    inner = open_engine(problem.patterns, classes * rates, systems=classes)
    engine = VerifiedEngine(inner, TAXA)
    engine.load_models([model])
    tree = problem.trees[0]
    result = run(engine, builders.walk([tree], TAXA, EvaluateSites), tree.lengths)
    likelihood = np.zeros(problem.patterns.n_patterns)
    for k in range(classes * rates):
        base = bases[k // rates]
        lone = ReferenceEngine(problem.patterns, 1, BOUNDS)
        lone.load_models([replace(base, rates=speed[k : k + 1], weights=np.ones(1))])
        run(lone, builders.traversal([tree], EvaluateSites), tree.lengths)
        likelihood += weights[k] * np.exp(lone.site_log_likelihoods()[0])
    close(engine.site_log_likelihoods()[0], np.log(likelihood))
    assert result.sums[0] == pytest.approx(problem.patterns.weights @ np.log(likelihood))
    found = run(engine, builders.derivatives([tree]), tree.lengths).sums
    step = 1e-5
    edge = 3
    ends = []
    for change in (-step, step):
        moved = tree.lengths.copy()
        moved[edge] += change
        ends.append(run(engine, builders.traversal([tree]), moved).sums[0])
    slope = (ends[1] - ends[0]) / (2 * step)
    assert found[1 + 2 * edge] == pytest.approx(slope, rel=1e-5, abs=1e-4)
