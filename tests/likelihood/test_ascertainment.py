"""+ASC: against the formulas, the sites that were left out, and an independent optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.data.patterns import Ascertainment, Correction, Patterns, with_unseen
from mltree.likelihood.ascertainment import AscertainedLikelihood
from mltree.likelihood.interchanges import interchanged, neighbours
from mltree.likelihood.joint import JointEngine
from mltree.likelihood.left_out import ascertained_parts
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.likelihood.site_rows import (
    optimised_quartets,
    rows_of_neighbours,
    rows_of_quartets,
    rows_of_trees,
)
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine
from mltree.tree.moves import nni, spr
from mltree.tree.newick import read_newick
from mltree.tree.topology import Tree
from mltree.treesearch.spr import Neighbourhood

BOUNDS = (1e-6, 100.0)
KINDS = {
    "LEWIS": lambda _: Ascertainment(Correction.LEWIS),
    "FELS": lambda _: Ascertainment(Correction.FELSENSTEIN, (40.0,)),
    "STAM": lambda s: Ascertainment(Correction.STAMATAKIS, tuple(range(1, s + 1))),
}


def variable(problem: Any) -> Any:
    """The problem without the patterns that are, or may be, constant."""
    patterns = problem.patterns
    common = np.bitwise_and.reduce(patterns.alphabet.state_masks[patterns.codes], axis=0)
    kept = patterns.take(np.flatnonzero(common == 0))
    sites = np.arange(kept.n_patterns, dtype=np.int32)
    return replace(problem, patterns=replace(kept, site_pattern=sites))


def corrected(engine: Any, patterns: Patterns) -> AscertainedLikelihood:
    columns = Columns.of([patterns])
    return AscertainedLikelihood(engine, BOUNDS, columns, ascertained_parts([patterns]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("states", [4, 2])
def test_formulas(
    kind: str, states: int, open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    problem = variable(make_problem(6, 40, states=states, trees=2))
    about = KINDS[kind](states)
    extended = with_unseen(problem.patterns, [about])
    engine = open_native(extended, problem.categories)
    found = corrected(engine, extended).log_likelihoods(problem.trees, problem.cases)
    plain = TreeLikelihood(ReferenceEngine(extended, problem.categories, BOUNDS), BOUNDS)
    for tree, case, lnl in zip(problem.trees, problem.cases, found, strict=True):
        sites = plain.site_log_likelihoods(tree, case)
        seen, unseen = sites[:-states], np.exp(sites[-states:])
        weights = problem.patterns.weights
        expected = float(weights @ seen)
        if kind == "LEWIS":
            expected -= weights.sum() * np.log(1 - unseen.sum())
        elif kind == "FELS":
            expected += 40.0 * np.log(unseen.sum())
        else:  # those sites themselves
            whole = replace(extended, weights=np.append(weights, about.counts))
            other = TreeLikelihood(ReferenceEngine(whole, problem.categories, BOUNDS), BOUNDS)
            expected = float(other.log_likelihoods([tree], [case])[0])
        assert lnl == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(1, 30)
def test_an_independent_optimiser_gains_nothing_where_smoothing_ends(
    kind: str, case: int, open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    problem = variable(make_problem(5, 30, states=2 + 2 * (case % 2), seed=case, alpha=0.7))
    states = problem.patterns.alphabet.n_states
    extended = with_unseen(problem.patterns, [KINDS[kind](states)])
    reference = corrected(ReferenceEngine(extended, problem.categories, BOUNDS), extended)
    tree = problem.tree

    def loss(logs: np.ndarray) -> float:
        moved = Tree(tree.twin, tree.edge, np.exp(logs), tree.n_tips)
        return -float(reference.log_likelihoods([moved], [problem.case])[0])

    before = -loss(np.log(tree.lengths))
    device = corrected(open_native(extended, problem.categories), extended)
    (found,) = device.smooth([tree], [problem.case], 1e-4)
    assert found == pytest.approx(device.log_likelihoods([tree], [problem.case])[0], rel=1e-9)
    assert found > before
    limits = [(np.log(1e-6), np.log(100.0))] * tree.n_edges
    best = -minimize(loss, np.log(tree.lengths), method="L-BFGS-B", bounds=limits).fun
    assert found >= best - 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(1, 30)
def test_derivatives_are_those_of_the_corrected_lnl(
    kind: str, case: int, open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    """Of two parts, with and without branch lengths of their own."""
    problem = variable(make_problem(5, 40, states=2 + 2 * (case % 2), seed=case))
    width, states = problem.patterns.n_patterns, problem.patterns.alphabet.n_states
    parted = replace(problem.patterns, ends=(width // 2, width))
    first = KINDS[kind](states)
    extended = with_unseen(parted, [first, None if case % 3 else KINDS["LEWIS"](states)])
    used = corrected(open_native(extended, problem.categories), extended)
    under, rng = Case((problem.model, problem.model)), np.random.default_rng(case)
    lengths = rng.uniform(0.05, 0.5, (2, problem.tree.n_edges))
    for own in (lengths[0], lengths):
        tree = Tree(problem.tree.twin, problem.tree.edge, own, problem.tree.n_tips)
        lnl, slope, curve = used.derivatives(tree, under)
        k, step = (*rng.integers(0, own.shape),), 1e-3
        lnls = []
        for by in (-step, 0.0, step):
            moved = tree.copy()
            moved.lengths[k] += by
            lnls.append(float(used.log_likelihoods([moved], [under])[0]))
        assert lnl == pytest.approx(lnls[1], rel=1e-9)
        assert slope[k] == pytest.approx((lnls[2] - lnls[0]) / (2 * step), rel=1e-2, abs=1e-2)
        second = (lnls[0] - 2 * lnls[1] + lnls[2]) / step**2
        assert curve[k] == pytest.approx(second, rel=1e-2, abs=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_of_insertions_is_never_too_high(
    kind: str, make_problem: Callable[..., Any]
) -> None:
    problem = variable(make_problem(6, 30, seed=3))
    extended = with_unseen(problem.patterns, [KINDS[kind](4)])
    used = corrected(ReferenceEngine(extended, problem.categories, BOUNDS), extended)
    trees, cases = [problem.tree], [problem.case]
    around = Neighbourhood(trees)
    scan = around.scan(around.extend(3))
    told = used.insertions(trees, cases, scan)
    refined, lengths = used.refine(trees, cases, scan)
    assert lengths.shape == (told.size, 3)
    assert (refined >= told - 1e-9).all()
    moved = [problem.tree.copy() for _ in told]
    for tree, prune, target in zip(
        moved, around.prune.tolist(), around.target.tolist(), strict=True
    ):
        spr(tree, prune, target)
    lnls = used.log_likelihoods(moved, cases * len(moved))
    assert (told <= lnls + 1e-6).all()
    assert (told >= lnls - 40).any()


def test_replicates_and_sites(make_problem: Callable[..., Any]) -> None:
    problem = variable(make_problem(6, 30))
    extended = with_unseen(problem.patterns, [KINDS["LEWIS"](4)])
    used = corrected(ReferenceEngine(extended, problem.categories, BOUNDS), extended)
    sites = used.site_log_likelihoods(problem.tree, problem.case)
    whole = used.log_likelihoods([problem.tree], [problem.case])[0]
    assert extended.weights @ sites == pytest.approx(whole)
    used.load_weights(np.stack([extended.weights, 2 * extended.weights]))
    cases = [problem.case._replace(weights=row) for row in (1, 0)]
    twice, once = used.log_likelihoods([problem.tree] * 2, cases)
    assert (twice, once) == pytest.approx((2 * whole, whole))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(1, 30)
def test_neighbours_are_as_good_as_their_five_branches_allow(
    kind: str, case: int, open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    problem = variable(make_problem(6, 30, states=2 + 2 * (case % 2), seed=case, alpha=0.7))
    tree, states = problem.tree, problem.patterns.alphabet.n_states
    extended = with_unseen(problem.patterns, [KINDS[kind](states)])
    reference = corrected(ReferenceEngine(extended, problem.categories, BOUNDS), extended)
    device = corrected(open_native(extended, problem.categories), extended)
    device.smooth([tree], [problem.case], 0.01)
    rows = rows_of_neighbours(device, tree, problem.case, extended.weights, tree.inner_edges)
    np.testing.assert_allclose(rows.sites() @ extended.weights, rows.lnl, rtol=1e-9)
    own = reference.log_likelihoods([tree], [problem.case])
    assert rows.lnl[-1] == pytest.approx(own[0], rel=1e-9)
    row = case % (len(rows.lnl) - 1)
    edge = int(tree.inner_edges[row // 2])
    other = tree.copy()
    nni(other, edge, row % 2)
    ends = tree.edge_halves[edge].tolist()
    branches = [edge, *(int(tree.edge[half]) for end in ends for half in tree.siblings(end))]

    def loss(logs: np.ndarray) -> float:
        other.lengths[branches] = np.exp(logs)
        return -float(reference.log_likelihoods([other], [problem.case])[0])

    limits = [(np.log(1e-6), np.log(100.0))] * len(branches)
    starts = [np.log(np.maximum(tree.lengths[branches], least)) for least in (0.01, 0.3)]
    best = -min(minimize(loss, x, method="L-BFGS-B", bounds=limits).fun for x in starts)
    assert rows.lnl[row] >= best - 0.02
    around = neighbours(tree, tree.inner_edges)
    own, told = optimised_quartets(device, tree, problem.case, around)
    np.testing.assert_allclose(told, rows.lnl[:-1], rtol=1e-9)
    every = [interchanged(tree, own, n) for n in range(len(told))]
    np.testing.assert_allclose(
        reference.log_likelihoods(every, [problem.case] * len(every)), told, rtol=1e-9
    )
    best, told = optimised_quartets(device, tree, problem.case, around, turns=0)
    exact = rows_of_quartets(device, tree, problem.case, best, extended.weights).lnl
    assert (told <= exact[:-1] + 1e-6).all()
    assert (told >= exact[:-1] - 20).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(1, 30)
def test_resampled_lnls_have_the_correction_of_the_sites_drawn(
    kind: str, case: int, open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    """Of two parts, of which the other is the same as ever, or another kind of correction."""
    problem = variable(make_problem(6, 60, trees=3, seed=case))
    width = problem.patterns.n_patterns
    parted = replace(problem.patterns, ends=(width // 3, width))
    rng = np.random.default_rng(case)
    first, second = KINDS[kind](4), rng.choice([None, KINDS["LEWIS"](4), KINDS["STAM"](4)])
    extended = with_unseen(parted, [first, second])
    cases = [Case((model, model)) for model in problem.models]
    device = corrected(open_native(extended, problem.categories), extended)
    drawn = np.zeros((7, extended.n_patterns))
    ranges = [slice(0, width // 3), slice(width // 3 + 4, width + 4)]
    for part in ranges:
        drawn[:, part] = rng.integers(0, 4, (7, part.stop - part.start))
    rows = rows_of_trees(device, problem.trees, cases, extended.weights)
    found = rows.resampled(drawn)
    np.testing.assert_allclose(rows.sites() @ drawn.T, found, rtol=1e-9)
    plain = TreeLikelihood(ReferenceEngine(extended, problem.categories, BOUNDS), BOUNDS)
    for tree, own, lnls in zip(problem.trees, cases, found, strict=True):
        sites = plain.site_log_likelihoods(tree, own)
        expected = drawn @ sites
        for part, about in zip(ranges, (first, second), strict=True):
            logs, share = sites[part.stop : part.stop + 4], drawn[:, part].sum(axis=1)
            if about is None:
                continue
            if about.correction is Correction.LEWIS:
                expected -= share * np.log(1 - np.exp(logs).sum())
                continue
            share = share / extended.weights[part].sum()
            if about.correction is Correction.FELSENSTEIN:
                expected += share * 40.0 * np.log(np.exp(logs).sum())
            else:
                expected += share * (np.array(about.counts) @ logs)
        np.testing.assert_allclose(lnls, expected, rtol=1e-9)
    whole = device.log_likelihoods(problem.trees, cases)
    np.testing.assert_allclose(rows.lnl, whole, rtol=1e-9)


def test_parts_of_several_state_counts_are_corrected_each_by_its_own(
    open_native: Callable[..., Any], make_problem: Callable[..., Any]
) -> None:
    problems = [variable(make_problem(6, 40, states=states)) for states in (4, 2)]
    kinds = [KINDS["LEWIS"](4), KINDS["STAM"](2)]
    groups = [with_unseen(own.patterns, [kind]) for own, kind in zip(problems, kinds, strict=True)]
    tree, weights = problems[0].tree, np.concatenate([own.weights for own in groups])
    case = Case(tuple(own.model for own in problems))
    drawn = np.random.default_rng(1).integers(0, 3, (5, weights.size)) * (weights > 0)
    expected = np.zeros((1, 5))
    drawn_of = np.hsplit(drawn, [groups[0].n_patterns])
    for own, patterns, part in zip(problems, groups, drawn_of, strict=True):
        alone = corrected(ReferenceEngine(patterns, own.categories, BOUNDS), patterns)
        rows = rows_of_trees(alone, [tree], [own.case], patterns.weights)
        expected += rows.resampled(part.astype(np.float64))
    widths = [own.n_patterns for own in groups]
    openers = partial(ReferenceEngine, bounds=BOUNDS), partial(open_native, parted=True)
    for opened in openers:
        engines = [opened(own, problems[0].categories) for own in groups]
        joint = JointEngine(engines, (4, 2), widths, BOUNDS)
        parts = ascertained_parts(groups)
        used = AscertainedLikelihood(joint, BOUNDS, Columns.of(groups), parts)
        rows = rows_of_trees(used, [tree], [case], weights)
        np.testing.assert_allclose(rows.resampled(drawn.astype(np.float64)), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_polytomies_are_kept(kind: str, make_problem: Callable[..., Any]) -> None:
    problem = variable(make_problem(6, 30, seed=4))
    extended = with_unseen(problem.patterns, [KINDS[kind](problem.patterns.alphabet.n_states)])
    used = corrected(ReferenceEngine(extended, problem.categories, BOUNDS), extended)
    names = problem.patterns.taxa
    tree, _ = read_newick(f"({','.join(names[:3])},({','.join(names[3:])}));", names)
    before = used.log_likelihoods([tree], [problem.case])
    lnl = used.smooth([tree], [problem.case], 1e-4)
    assert lnl > before
    tree.validate()
    assert tree.n_artificial == 2
    assert used.log_likelihoods([tree], [problem.case]) == pytest.approx(lnl, rel=1e-9)
