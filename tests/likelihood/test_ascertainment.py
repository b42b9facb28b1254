"""+ASC: against the formulas, the sites that were left out, and an independent optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.alignment.ascertainment import Ascertainment, Correction, with_unseen
from mltree.alignment.patterns import Patterns
from mltree.errors import ModelError
from mltree.likelihood.api import Likelihood
from mltree.likelihood.ascertainment import AscertainedLikelihood, conditioned_parts
from mltree.likelihood.classes import Columns
from mltree.likelihood.reference import ReferenceEngine
from mltree.search.neighbourhood import Neighbourhood
from mltree.tree.moves import spr
from mltree.tree.topology import Tree

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
    return AscertainedLikelihood(engine, BOUNDS, columns, conditioned_parts([patterns]))


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
    plain = Likelihood(ReferenceEngine(extended, problem.categories, BOUNDS), BOUNDS)
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
            other = Likelihood(ReferenceEngine(whole, problem.categories, BOUNDS), BOUNDS)
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
    with pytest.raises(ModelError, match="not corrected"):
        used.take([problem.tree], cases)
